"""A model without its last layer, to see whether two runtimes differ only there or before it.

A softmax of very large numbers depends on their last bit. If its outputs differ, that says nothing about the layers
before it; their outputs do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.errors import InferometerError
from inferometer.engines.onnx_nodes import load_model, name_nodes

if TYPE_CHECKING:
    from pathlib import Path


def without_last(path: Path, place: Path) -> str | None:
    """Write the ONNX model without its last layer to `place`, and return that layer's name.

    None if there is no single last layer: several outputs, weights beside the file, or another format.
    """
    if path.suffix != ".onnx" or not path.is_file():
        return None
    try:
        model = load_model(path)
    except InferometerError:
        return None
    graph = model.graph
    if len(graph.output) != 1 or any(tensor.data_location for tensor in graph.initializer):
        return None
    name_nodes(model)
    makers = {name: node for node in graph.node for name in node.output}
    last = makers.get(graph.output[0].name)
    taken = [name for name in (last.input if last else ()) if name in makers]
    if last is None or len(taken) != 1:
        return None
    graph.output[0].name = taken[0]
    graph.output[0].type.tensor_type.ClearField("shape")  # the output of the layer before may have another shape
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(model.SerializeToString())
    return f"{last.op_type} {last.name!r}"
