"""ONNX files with random weights that ONNX Runtime runs, at the exact shapes of the graph."""

from pathlib import Path

from inferometer.core.errors import InferometerError
from inferometer.formats.onnx.write import attention, planes, pointwise
from inferometer.formats.onnx.write.file import data_bytes, require_onnx, write_data, write_model
from inferometer.formats.onnx.write.lowering import lower, numbers_of
from inferometer.formats.synth.files import Order, landing, require_sizes

__all__ = ["FORMATS", "INLINE_BYTES", "RULE_MODULES", "STAY_OPEN", "save"]

FORMATS = {"f32": "float32", "f16": "float16"}
INLINE_BYTES = 1_000_000_000  # more than this goes into a file beside the model: protobuf ends at 2 GiB
RULE_MODULES = (attention, planes, pointwise)  # importing them registers their rules
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
