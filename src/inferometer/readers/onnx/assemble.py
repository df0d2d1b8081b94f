"""From bytes to a Graph, step by step."""

import mmap
from pathlib import Path

from inferometer.core.graph import Graph
from inferometer.readers.onnx.build import build
from inferometer.readers.onnx.contents import Contents
from inferometer.readers.onnx.external import ExternalFiles
from inferometer.readers.onnx.faults import Fault
from inferometer.readers.onnx.messages import Model, TypeDef
from inferometer.readers.onnx.parse import parse_model
from inferometer.readers.onnx.scope import Scope
from inferometer.readers.onnx.symbols import Symbols, read_symbols
from inferometer.readers.onnx.value import Notes, Shape, Value
from inferometer.readers.onnx.walk import Walk
from inferometer.readers.onnx.wire import Wire

__all__ = ["assemble"]


def assemble(path: Path, data: bytes | mmap.mmap) -> Graph:
    """Parse the messages, name the sizes, walk the nodes, lower them."""
    wire = Wire(data)
    model = parse_model(wire)
    files = ExternalFiles(path.parent)
    given = _given(model)
    symbols = read_symbols([(name, kind) for name, kind in given if kind.group == "tensor"])
    walk = Walk(model, symbols, Contents(wire, files), files, Notes())
    scope = Scope(opsets=model.opsets)
    inputs = tuple(_input(name, kind, symbols) for name, kind in given)
    for value in inputs:
        if value.name in scope.values:
            raise Fault(f"two inputs named {value.name!r}")
        scope.values[value.name] = value
    steps = walk.graph(model.graph, scope)
    return build(path, walk, steps, scope, inputs)


def _given(model: Model) -> list[tuple[str, TypeDef]]:
    """The inputs a caller gives. Old files list stored tensors among them."""
    stored = {tensor.name for tensor in model.graph.initializers}
    return [(info.name, info.type or TypeDef(group="opaque")) for info in model.graph.inputs if info.name not in stored]


def _input(name: str, kind: TypeDef, symbols: Symbols) -> Value:
    group, inner = kind.group, kind
    while inner.inner is not None:  # nesting is bounded by the parser
        inner = inner.inner
    shape: Shape | None = None
    if inner.axes is not None:
        shape = tuple(symbols.input_dim(name, place, axis) for place, axis in enumerate(inner.axes))
    return Value(name=name, shape=shape, dtype=inner.dtype, group="tensor" if group == "sparse" else group)
