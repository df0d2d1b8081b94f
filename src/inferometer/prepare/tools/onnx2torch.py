"""ONNX files as exported PyTorch programs: onnx2torch makes a module of each node, and torch.export a program of them.

It knows the operators of one age: newer files are written back to it by ONNX's own converter first. A module is called
what the node is called in the file, so that layers keep their names.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from functools import partial
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
_SIZED = frozenset({"OnnxReshape", "OnnxExpand", "OnnxResize", "OnnxResizeV10"})  # modules that read sizes of tensors
_UNKNOWN = re.compile(r"domain='(.*?)', operation_type='(.*?)', version=(\d+)")
_BY_HAND = "Replace the operator in the model, export the model with torch.export, or choose an engine that opens ONNX."


def to_program(order: ToolOrder) -> Iterator[str]:
    import torch  # noqa: PLC0415, TID251 - an edge, in a child

    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # it prints the whole graph where it fails
    module, notes = _module(_sized(loaded_onnx(order.source), order))
    yield from notes
    examples = example_inputs(order)
    try:
        program = torch.export.export(_with_plain_sizes(module, examples), examples)
    except Exception as error:
        words = f"PyTorch cannot export what onnx2torch made: {first_line(error)}."
        raise FormatError(words, remedy=_BY_HAND) from error
    torch.export.save(program, str(order.target))


def _sized(model: Any, order: ToolOrder) -> Any:
    """The model at the sizes that were asked for, what follows from them worked out where onnxslim is installed."""
    for value in model.graph.input:
        shape = order.shapes.get(value.name, ())
        for place, size in zip(value.type.tensor_type.shape.dim, shape, strict=False):
            place.dim_value = size
    try:
        return import_module("onnxslim").slim(model)
    except Exception:  # noqa: BLE001 - it only helps: what cannot be exported is said below
        return model


def _module(model: Any) -> tuple[Any, tuple[str, ...]]:
    """The model as a module of PyTorch, and what there is to say about it."""
    convert = _converter()
    version = next((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), _OPSET)
    notes: tuple[str, ...] = ()
    if version > _OPSET and (older := _written_back(model)) is not None:
        model, notes = older, (f"Opset {version} was written back to {_OPSET}.",)
    try:
        return _renamed(convert(model), model).eval(), notes
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
    """It stops at the first version that it lacks; an operator that it lacks in every version is the cause of that."""
    table = import_module("onnx2torch.node_converters.registry")._CONVERTER_REGISTRY  # noqa: SLF001 - it has no other name
    known = {entry.operation_type for entry in table}
    found = _UNKNOWN.search(str(error))
    node = next((node for node in model.graph.node if node.op_type not in known), None)
    if node is None and found is not None:
        node = next((node for node in model.graph.node if (node.domain, node.op_type) == found.groups()[:2]), None)
    if node is None:
        return FormatError(f"onnx2torch cannot convert it: {first_line(error)}.", remedy=_BY_HAND)
    label = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    version = "" if node.op_type not in known or found is None else f" of version {found[3]}"
    at = f", which the node {node.name!r} is" if node.name else ""
    return FormatError(f"onnx2torch has no form of the operator {label}{version}{at}.", remedy=_BY_HAND)


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


def _with_plain_sizes(module: Any, examples: tuple[Any, ...]) -> Any:
    """Modules that read sizes out of a tensor, which torch.export cannot do, with those of these inputs."""
    shapes = _shapes_of(module, examples)
    for node in module.graph.nodes:
        if node.op != "call_module" or not node.args:
            continue
        fixed = _fixed_form(module.get_submodule(node.target), shapes.get(node.args[0]), shapes.get(node))
        if fixed is not None:
            module.add_submodule(node.target, fixed)
            node.args, node.kwargs = node.args[:1], {}
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _shapes_of(module: Any, examples: tuple[Any, ...]) -> dict[Any, tuple[int, ...]]:
    """The shape that each node of the graph has, found by running it once."""
    import torch  # noqa: PLC0415, TID251 - as above

    shapes: dict[Any, tuple[int, ...]] = {}

    class Watched(torch.fx.Interpreter):
        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            if isinstance(result, torch.Tensor):
                shapes[node] = tuple(result.shape)
            return result

    with torch.inference_mode():
        Watched(module).run(*examples)
    return shapes


def _fixed_form(module: Any, before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> Any:
    """What gives the shape `after`, as a module; None for those that torch.export takes as they are."""
    import torch  # noqa: PLC0415, TID251 - as above

    kind = type(module).__name__
    if after is None or before is None or kind not in _SIZED:
        return None
    fixed = torch.nn.Module()
    if kind == "OnnxReshape":
        fixed.forward = lambda x: torch.reshape(x, after)
    elif kind == "OnnxExpand":
        fixed.forward = lambda x: torch.broadcast_to(x, after)
    else:
        inner = getattr(module, "_resize", module)
        mode = import_module("onnx2torch.node_converters.resize")._onnx_mode_to_torch_mode  # noqa: SLF001 - its table
        resize = partial(torch.nn.functional.interpolate, size=after[2:], align_corners=inner.align_corners)
        fixed.forward = partial(resize, mode=mode(inner.onnx_mode, len(before) - 2))
    return fixed
