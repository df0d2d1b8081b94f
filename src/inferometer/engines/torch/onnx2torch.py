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

from inferometer.core.errors import FormatError
from inferometer.engines.onnxruntime.convert import loaded_onnx
from inferometer.engines.torch.convert import example_inputs, first_line, without_unused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from inferometer.engines.order import ToolOrder

    class Interpreter:
        """What is used of torch.fx.Interpreter, so that types are checked alike with and without PyTorch."""

        def __init__(self, module: Any) -> None: ...
        def run(self, *inputs: Any) -> Any: ...
        def run_node(self, node: Any) -> Any: ...
        def fetch_attr(self, target: str) -> Any: ...
        def fetch_args_kwargs_from_env(self, node: Any) -> tuple[tuple[Any, ...], dict[str, Any]]: ...
        def _set_current_node(self, node: Any) -> AbstractContextManager[None]: ...


_OPSET = 17  # the newest of which onnx2torch has nearly every operator that it has at all
_CALLED = re.compile(r"call_module\[target=(.*?)\]")  # where PyTorch says what it was doing when it failed
_UNKNOWN = re.compile(r"domain='(.*?)', operation_type='(.*?)', version=(\d+)")
_BY_HAND = "Replace the operator in the model, export the model with torch.export, or choose an engine that opens ONNX."


def to_program(order: ToolOrder) -> Iterator[str]:
    import torch  # noqa: PLC0415, TID251 - an edge, in a child

    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # it prints the whole graph where it fails
    model = _sized(loaded_onnx(order.source), order)
    module, notes = _module(model)
    yield from notes
    examples = example_inputs(order)
    try:
        program = torch.export.export(_with_plain_sizes(module, examples), examples)
        torch.export.save(program, str(order.target))
    except Exception as error:
        words = f"PyTorch cannot export what onnx2torch made{_at(error, model)}: {first_line(error)}."
        raise FormatError(words, remedy=_BY_HAND) from error


def _at(error: Exception, model: Any) -> str:
    """The operator at which it failed, and its node, where PyTorch says it."""
    called = _CALLED.search(str(error))
    kinds = {_plain(node.name): node.op_type for node in model.graph.node}
    kind = kinds.get(called[1]) if called else None
    return "" if called is None or kind is None else f" of the operator {kind}, which the node {called[1]!r} is"


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
    # onnx2torch imports torchvision for two operators of detectors; all others work without it, and so do we
    try:
        import_module("torchvision")
    except Exception:  # noqa: BLE001 - a build for another PyTorch fails in many ways
        package, ops = ModuleType("torchvision"), ModuleType("torchvision.ops")
        for name in ("nms", "box_convert", "roi_align"):
            setattr(ops, name, _without_torchvision)
        package.ops = ops  # type: ignore[attr-defined]  # a module made here
        sys.modules |= {"torchvision": package, "torchvision.ops": ops}
    convert = import_module("onnx2torch").convert
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
    """Modules under the names of the file's nodes, whose points onnx2torch writes as strokes.

    A program's file divides names by `;` and `,`, and one that has them itself could not be loaded.
    """
    names = {node.name.replace(".", "/"): _plain(node.name) for node in model.graph.node}
    for node in module.graph.nodes:
        name = names.get(str(node.target)) if node.op == "call_module" else None
        if name is not None and name != node.target and all(name.split(".")):
            module.add_submodule(name, module.get_submodule(node.target))
            node.target = name
    module.delete_all_unused_submodules()
    module.recompile()
    return module


def _plain(name: str) -> str:
    return name.translate(str.maketrans(";,", "__"))


def _with_plain_sizes(module: Any, examples: tuple[Any, ...]) -> Any:
    """Modules that read sizes out of tensors, which torch.export cannot do, with those of these inputs."""
    import torch  # noqa: PLC0415, TID251 - as above

    if not TYPE_CHECKING:
        from torch.fx import Interpreter  # noqa: PLC0415, TID251 - as above

    fixed: dict[Any, Any] = {}

    class Fixing(Interpreter):
        def run_node(self, node: Any) -> Any:
            given, named = self.fetch_args_kwargs_from_env(node)
            form = _FORMS.get(type(self.fetch_attr(node.target)).__name__) if node.op == "call_module" else None
            if form is None:
                return super().run_node(node)
            with self._set_current_node(node):
                fixed[node] = _called_so(form(self.fetch_attr(node.target), *given, **named))
                return fixed[node](given[0])

    with torch.inference_mode():
        Fixing(module).run(*examples)
    for node, form in fixed.items():
        module.add_submodule(node.target, form)
        node.args, node.kwargs = node.args[:1], {}
    module.graph.eliminate_dead_code()
    module.recompile()
    return without_unused(module)


def _called_so(forward: Any) -> Any:
    import torch  # noqa: PLC0415, TID251 - as above

    module = torch.nn.Module()
    module.forward = forward
    return module


def _reshaped(module: Any, x: Any, *rest: Any) -> Any:
    shape = tuple(module(x, *rest).shape)
    return lambda x: x.reshape(shape)


def _expanded(module: Any, x: Any, *rest: Any) -> Any:
    shape = tuple(module(x, *rest).shape)
    return lambda x: x.broadcast_to(shape)


def _resized(module: Any, x: Any, *rest: Any, **named: Any) -> Any:
    shape = tuple(module(x, *rest, **named).shape)
    inner = getattr(module, "_resize", module)
    mode = import_module("onnx2torch.node_converters.resize")._onnx_mode_to_torch_mode  # noqa: SLF001 - its table
    resize = import_module("torch.nn.functional").interpolate
    return partial(resize, size=shape[2:], align_corners=inner.align_corners, mode=mode(inner.onnx_mode, x.dim() - 2))


def _sliced(_: Any, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    """By numbers. A step back is a step forward through the axis turned round, as onnx2torch does it."""
    firsts, lasts = starts.tolist(), ends.tolist()
    along = [axis % x.dim() for axis in (range(len(firsts)) if axes is None else axes.tolist())]
    every = [1] * len(firsts) if steps is None else steps.tolist()
    turned = tuple(axis for axis, step in zip(along, every, strict=True) if step < 0)
    parts = [slice(None)] * x.dim()
    for axis, first, last, step in zip(along, firsts, lasts, every, strict=True):
        parts[axis] = slice(first, last, step) if step > 0 else slice(-first - 1, -last - 1, -step)
    return lambda x: (x.flip(turned) if turned else x)[tuple(parts)]


def _padded(module: Any, x: Any, pads: Any, value: Any = 0.0) -> Any:
    """By as many axes as are padded: PyTorch mirrors or repeats no others than the last, even by nothing."""
    before, after = pads.tolist()[: x.dim()], pads.tolist()[x.dim() :]
    sides = [side for pair in zip(reversed(before), reversed(after), strict=True) for side in pair]
    while sides and not any(sides[-2:]):
        del sides[-2:]
    pad = import_module("torch.nn.functional").pad
    filled = {} if module.mode != "constant" else {"value": float(value)}
    return partial(pad, pad=sides, mode=module.mode, **filled)


# What gives a module that reads no tensors for its sizes, by onnx2torch's name of the one that does.
_FORMS: dict[str, Any] = {
    "OnnxReshape": _reshaped, "OnnxExpand": _expanded, "OnnxResize": _resized, "OnnxResizeV10": _resized,
    "OnnxSlice": _sliced, "OnnxPadDynamic": _padded,
}  # fmt: skip
