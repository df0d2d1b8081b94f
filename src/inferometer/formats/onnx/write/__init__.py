"""ONNX files with random weights that ONNX Runtime runs, at the exact shapes of the graph."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np

from inferometer.core.errors import InferometerError, MissingDependencyError
from inferometer.core.graph import Graph
from inferometer.formats.onnx.write import planes, pointwise
from inferometer.formats.onnx.write.lowering import Nodes, WrittenNode, WrittenPort, WrittenWeight, lower, numbers_of
from inferometer.formats.synth.files import Order, landing, require_sizes
from inferometer.formats.synth.weights import CHUNK, Array, numbers, whole

__all__ = ["FORMATS", "INLINE_BYTES", "RULE_MODULES", "STAY_OPEN", "save"]

FORMATS = {"f32": "float32", "f16": "float16"}
INLINE_BYTES = 1_000_000_000  # more than this goes into a file beside the model: protobuf ends at 2 GiB
RULE_MODULES = (pointwise, planes, pointwise)  # importing them registers their rules
STAY_OPEN = frozenset({"batch", "query", "context"})  # sizes that stay open unless they are given


def save(order: Order, *, inline_bytes: int = INLINE_BYTES) -> tuple[Path, ...]:
    """Write the graph as an ONNX model; the paths written, the model last.

    Symbols that the model itself suggests a size for are fixed to it, or to what the order says; batch, query and
    context stay open unless the order fixes them.
    """
    if order.weights not in FORMATS:
        raise InferometerError(
            f"ONNX cannot be written with {order.weights} weights here.", remedy=f"Choose one of {', '.join(FORMATS)}."
        )
    require_onnx()
    graph, path, seed = order.graph, order.path, order.seed
    require_sizes(order)
    suggested = graph.metadata.get("default_sizes", {})
    sizes = {name: size for name, size in suggested.items() if name not in STAY_OPEN} | dict(order.sizes)
    nodes = lower(graph, numbers_of(order.config), sizes, float_type=FORMATS[order.weights])
    beside = path.with_name(path.name + ".data") if data_bytes(nodes) > inline_bytes else None
    paths = (path,) if beside is None else (beside, path)
    with landing(*paths, overwrite=order.overwrite, needs_bytes=data_bytes(nodes)) as partial:
        if beside is not None:
            write_data(partial[0], nodes, seed)
        with partial[-1].open("wb") as file:
            write_model(file, nodes, graph, seed, data=beside.name if beside else None)
    return paths


# The edge to the `onnx` package: nodes become a model, weights are stored in it or, where they are many, beside it.

OPSET, IR_VERSION = 20, 9  # what ONNX Runtime has taken since 1.17
ALIGNMENT = 4096  # of a tensor in the data file: a page, so that it can be mapped


def require_onnx() -> Any:
    """The package, or an error that says how to get it."""
    try:
        return import_module("onnx")
    except ImportError:
        raise MissingDependencyError(
            "Writing ONNX files needs the package onnx, which is not installed.",
            remedy="pip install 'inferometer[onnxruntime]'.",
        ) from None


def data_bytes(nodes: Nodes) -> int:
    """Bytes of the weights, each padded to a page."""
    return sum(size for _, _, size in _places(nodes))


def write_model(file: IO[bytes], nodes: Nodes, graph: Graph, seed: int, *, data: str | None) -> None:
    """`data` is the name of the file beside it that holds the weights; without it they are in the model."""
    onnx = require_onnx()
    made = onnx.GraphProto(name=graph.name)
    made.node.extend(_node(onnx, node) for node in nodes.nodes)
    made.input.extend(_port(onnx, nodes, port) for port in nodes.inputs)
    made.output.extend(_port(onnx, nodes, port) for port in nodes.outputs)
    for stored, offset, _ in _places(nodes):
        kind = onnx.helper.np_dtype_to_tensor_dtype(nodes.float_type)
        tensor = onnx.TensorProto(name=stored.weight.name, data_type=kind, dims=stored.shape)
        if data is None:
            array = whole(stored.weight, seed)
            tensor.raw_data = (array.T if stored.transposed else array).astype(nodes.float_type).tobytes()
        else:
            # Say where in the data file the tensor lies.
            length = stored.weight.elements * nodes.float_type.itemsize
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", data), ("offset", offset), ("length", length)):
                tensor.external_data.add(key=key, value=str(value))
        made.initializer.append(tensor)
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(made, opset_imports=[opset], ir_version=IR_VERSION, producer_name="inferometer")
    about = {"inferometer.weights": f"random, seed {seed}", "inferometer.parameters": str(graph.parameters)}
    onnx.helper.set_model_props(model, about)
    file.write(model.SerializeToString())


def write_data(path: Path, nodes: Nodes, seed: int) -> None:
    """Write the weights' own file, a piece at a time."""
    indices = _places(nodes)
    with path.open("wb") as file:
        file.truncate(sum(size for _, _, size in indices))
        for stored, offset, _ in indices:
            if stored.transposed:
                # rows come out of the generator and go into the file as columns, through a mapping of the file
                rows, width = stored.weight.shape
                target = np.memmap(path, dtype=nodes.float_type, mode="r+", offset=offset, shape=(width, rows))
                for start, block in _row_blocks(stored, seed):
                    target[:, start : start + len(block)] = block.T
                target.flush()
                continue
            file.seek(offset)
            for piece in numbers(stored.weight, seed):
                file.write(piece.astype(nodes.float_type, copy=False).data)


def _row_blocks(stored: WrittenWeight, seed: int) -> Iterator[tuple[int, Array]]:
    """Whole rows at a time. A piece is a multiple of 4 numbers, as the generator asks."""
    _, width = stored.weight.shape
    rows = 4 * max(1, CHUNK // (4 * width))
    start = 0
    for piece in numbers(stored.weight, seed, chunk=rows * width):
        block = piece.reshape(-1, width)
        yield start, block
        start += len(block)


def _places(nodes: Nodes) -> list[tuple[WrittenWeight, int, int]]:
    """Each weight with where it begins in the data file and how much room it takes there."""
    indices, offset = [], 0
    for stored in nodes.stored.values():
        size = stored.weight.elements * nodes.float_type.itemsize
        room = -(-size // ALIGNMENT) * ALIGNMENT
        indices.append((stored, offset, room))
        offset += room
    return indices


def _node(onnx: Any, node: WrittenNode) -> Any:
    attributes = {key: _attribute(onnx, node, value) for key, value in node.attributes.items()}
    return onnx.helper.make_node(node.kind, list(node.inputs), list(node.outputs), name=node.name, **attributes)


def _attribute(onnx: Any, node: WrittenNode, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return onnx.numpy_helper.from_array(value, name=node.name)
    if isinstance(value, np.dtype):
        return onnx.helper.np_dtype_to_tensor_dtype(value)
    return value


def _port(onnx: Any, nodes: Nodes, port: WrittenPort) -> Any:
    kind = np.dtype(np.int64) if port.integer else nodes.float_type
    shape = [dim if isinstance(dim, int) else str(dim) for dim in port.shape]
    return onnx.helper.make_tensor_value_info(port.name, onnx.helper.np_dtype_to_tensor_dtype(kind), shape)
