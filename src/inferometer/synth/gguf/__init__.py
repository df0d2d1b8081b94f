"""GGUF files with random weights and a working vocabulary, written in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.synth.files import landing
from inferometer.synth.gguf.metadata import architecture_of, metadata_of
from inferometer.synth.gguf.names import Target, targets
from inferometer.synth.gguf.recipe import FORMATS, Model, file_type, format_of, require_format
from inferometer.synth.gguf.write import data_bytes, write

if TYPE_CHECKING:
    from inferometer.core.graph import Graph

__all__ = ["FORMATS", "save"]


def save(
    graph: Graph, config: Mapping[str, Any], path: Path, *, dtype: str = "f32", seed: int = 0, overwrite: bool = False
) -> tuple[Path, ...]:
    """Write the graph's weights as one GGUF file that llama.cpp loads."""
    require_format(dtype)
    architecture = architecture_of(graph)
    found = targets(graph, architecture)
    model = _model(graph, found)
    tensors = [(target, format_of(target, dtype, model)) for target in found]
    metadata = metadata_of(graph, config, file_type=file_type(dtype), seed=seed)
    with landing(path, overwrite=overwrite, needs_bytes=data_bytes(tensors)) as (partial,), partial.open("wb") as file:
        write(file, metadata, tensors, seed)
    return (path,)


def _model(graph: Graph, found: tuple[Target, ...]) -> Model:
    core = next((op for _, op in graph.ops() if op.kind == "attention"), None)
    stack = next((op for _, op in graph.ops() if op.kind == "moe_experts"), None)
    return Model(
        layers=1 + max(target.layer for target in found),
        heads=core["heads"] if core else 1,
        kv_heads=core["kv_heads"] if core else 1,
        experts=stack["experts"] if stack else 0,
        tied=all(target.stem != "output" for target in found),
    )
