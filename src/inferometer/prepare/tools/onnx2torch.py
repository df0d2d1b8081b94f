"""ONNX files as exported PyTorch programs: onnx2torch makes a module of each node, and torch.export a program of them.

It knows the operators of one age: newer files are written back to it by ONNX's own converter first. A module is called
what the node is called in the file, so that layers keep their names.
"""

from __future__ import annotations

import re
import sys
import warnings
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from inferometer.errors import FormatError
from inferometer.prepare.tools.onnx import loaded_onnx
from inferometer.prepare.tools.torch import example_inputs, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.prepare.order import ToolOrder

_OPSET = 17  # the newest of which onnx2torch has nearly every operator that it has at all
_UNKNOWN = re.compile(r"domain='(.*?)', operation_type='(.*?)', version=(\d+)")
_BY_HAND = "Replace the operator in the model, export the model with torch.export, or choose an engine that opens ONNX."


def to_program(order: ToolOrder) -> Iterator[str]:
    import torch  # noqa: PLC0415, TID251 - an edge, in a child

    warnings.simplefilter("ignore")
    module, notes = _module(loaded_onnx(order.source))
    yield from notes
    try:
        program = torch.export.export(module.eval(), example_inputs(order))
    except Exception as error:
        raise FormatError(f"PyTorch cannot export what onnx2torch made: {first_line(error)}.", remedy=_BY_HAND) from error
    torch.export.save(program, str(order.target))


def _module(model: Any) -> tuple[Any, tuple[str, ...]]:
    """The model as a module of PyTorch, and what there is to say about it."""
    convert = _converter()
    version = next((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), _OPSET)
    notes: tuple[str, ...] = ()
    if version > _OPSET and (older := _written_back(model)) is not None:
        model, notes = older, (f"Opset {version} was written back to {_OPSET}.",)
    try:
        return _renamed(convert(model), model), notes
    except NotImplementedError as error:
        raise _unknown(error, model) from error
    except Exception as error:
        raise FormatError(f"onnx2torch cannot convert it: {first_line(error)}.", remedy=_BY_HAND) from error


def _converter() -> Any:
    """onnx2torch imports torchvision for two operators of detectors; all others work without it, and so do we."""
    try:
        import_module("torchvision")
    except Exception:  # noqa: BLE001 - a build for another PyTorch fails in many ways
        package, ops = ModuleType("torchvision"), ModuleType("torchvision.ops")
        for name in ("nms", "box_convert", "roi_align"):
            setattr(ops, name, _without_torchvision)
        package.ops = ops  # type: ignore[attr-defined]  # a module made here
        sys.modules |= {"torchvision": package, "torchvision.ops": ops}
    return import_module("onnx2torch").convert


def _without_torchvision(*_: Any, **__: Any) -> Any:
    raise FormatError(
        "The model has NonMaxSuppression or RoiAlign, for which onnx2torch needs torchvision.",
        remedy="Install the torchvision that was made for your PyTorch.",
    )


def _written_back(model: Any) -> Any:
    """The same model with older operators; None where one of them has no older form."""
    from onnx import version_converter  # noqa: PLC0415 - as above

    try:
        return version_converter.convert_version(model, _OPSET)
    except Exception:  # noqa: BLE001 - the converter has no errors of its own; onnx2torch then names the operator
        return None


def _unknown(error: Exception, model: Any) -> FormatError:
    found = _UNKNOWN.search(str(error))
    if found is None:
        return FormatError(f"onnx2torch cannot convert it: {first_line(error)}.", remedy=_BY_HAND)
    domain, kind, version = found.groups()
    nodes = [node.name for node in model.graph.node if node.op_type == kind and node.domain == domain]
    at = f", which the node {nodes[0]!r} is" if nodes and nodes[0] else ""
    label = f"{domain}.{kind}" if domain else kind
    return FormatError(
        f"onnx2torch has no form of the operator {label} of version {version}{at}.",
        remedy=f"{_BY_HAND} Constant ones go away with onnxslim (pip install onnxslim).",
    )


def _renamed(module: Any, model: Any) -> Any:
    """Modules under the names of the file's nodes, whose points onnx2torch writes as strokes."""
    names = {node.name.replace(".", "/"): node.name for node in model.graph.node if "." in node.name}
    for node in module.graph.nodes:
        name = names.get(str(node.target)) if node.op == "call_module" else None
        if name is not None and all(name.split(".")):
            module.add_submodule(name, module.get_submodule(node.target))
            node.target = name
    module.delete_all_unused_submodules()
    module.recompile()
    return module
