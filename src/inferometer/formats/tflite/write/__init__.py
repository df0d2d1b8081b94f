"""TFLite files with random weights that LiteRT runs, at the exact shapes of the graph: networks that see."""

from pathlib import Path

from inferometer.core.errors import InferometerError
from inferometer.core.units import format_quantity
from inferometer.formats.onnx.write.lowering import numbers_of
from inferometer.formats.synth.files import Order, landing, require_sizes
from inferometer.formats.tflite.schema import IDENTIFIER
from inferometer.formats.tflite.write import planes
from inferometer.formats.tflite.write.lowering import lower
from inferometer.formats.tflite.write.network import model_of, placed, write

__all__ = ["FORMATS", "LARGEST_BYTES", "RULE_MODULES", "save"]

FORMATS = ("f32",)
LARGEST_BYTES = (1 << 31) - 1  # distances in a flatbuffer, and its verifier, end there
RULE_MODULES = (planes, planes)  # importing them registers their rules


def save(order: Order, *, largest_bytes: int = LARGEST_BYTES) -> tuple[Path, ...]:
    """Write the graph as a TFLite model; the path written.

    Symbols that the model itself suggests a size for are fixed to it, or to what the order says; the batch stays open
    unless the order fixes it. The factor of a batch norm goes into the convolution before it, so that the file holds
    one number a channel less than the checkpoint.
    """
    if order.weights not in FORMATS:
        raise InferometerError(
            f"TFLite cannot be written with {order.weights} weights here.",
            remedy=f"Choose {', '.join(FORMATS)}.",
        )
    graph = order.graph
    require_sizes(order)
    suggested = graph.metadata.get("default_sizes", {})
    sizes = {name: size for name, size in suggested.items() if name != "batch"} | dict(order.sizes)
    network = lower(graph, sizes, epsilon=numbers_of(order.config).epsilon, seed=order.seed)
    model = model_of(network, f"inferometer: {graph.name}, random weights, seed {order.seed}")
    _, total = placed(model)
    if total > largest_bytes:
        raise InferometerError(
            f"{graph.name} would take {format_quantity(total, 'B')}; a TFLite file holds "
            f"{format_quantity(largest_bytes, 'B')}.",
            remedy="Write this model as .onnx.",
        )
    with landing(order.path, overwrite=order.overwrite, needs_bytes=total) as (partial,), partial.open("wb") as file:
        write(file, model, IDENTIFIER)
    return (order.path,)
