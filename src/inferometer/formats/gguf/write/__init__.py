"""GGUF files with random weights and a working vocabulary, written in one pass."""

from pathlib import Path

from inferometer.core.graph import Graph
from inferometer.formats.gguf.write.file import (
    FORMATS,
    GgufFacts,
    data_bytes,
    file_type,
    format_of,
    require_format,
    turned,
    write,
    write_tensors,
)
from inferometer.formats.gguf.write.metadata import architecture_row, metadata_of
from inferometer.formats.gguf.write.names import WrittenTensor, targets
from inferometer.formats.synth.files import Order, landing

__all__ = [
    "FORMATS", "WrittenTensor", "architecture_row", "file_type", "format_of", "metadata_of", "model_facts", "save",
    "targets", "turned", "write_tensors",
]  # fmt: skip


def save(order: Order) -> tuple[Path, ...]:
    """Write the graph's weights as one GGUF file that llama.cpp loads."""
    require_format(order.weights)
    graph, path = order.graph, order.path
    tensors_of = targets(graph, architecture_row(graph, order.config))
    model = model_facts(graph, tensors_of)
    tensors = [(target, format_of(target, order.weights, model)) for target in tensors_of]
    metadata = metadata_of(graph, order.config, file_type=file_type(order.weights), seed=order.seed)
    needs = data_bytes(tensors)
    with landing(path, overwrite=order.overwrite, needs_bytes=needs) as (partial,), partial.open("wb") as file:
        write(file, metadata, tensors, order.seed)
    return (path,)


def model_facts(graph: Graph, tensors: tuple[WrittenTensor, ...]) -> GgufFacts:
    core = next((op for _, op in graph.ops() if op.kind == "attention"), None)
    stack = next((op for _, op in graph.ops() if op.kind == "moe_experts"), None)
    return GgufFacts(
        layers=1 + max(target.layer for target in tensors),
        heads=core["heads"] if core else 1,
        kv_heads=core["kv_heads"] if core else 1,
        experts=stack["experts"] if stack else 0,
        tied=all(target.stem != "output" for target in tensors),
    )
