"""What a config's `quantization_config` says of how weights are stored.

Two methods keep the tensors' shapes, so the config alone gives the bytes: block-scaled fp8 (DeepSeek-V3) and mxfp4
(gpt-oss). Others repack their tensors; for them only the method's name is kept, and the file must be read.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from inferometer.core.graph import Graph, Op, Tensor
from inferometer.formats.huggingface.config import LARGEST, Config


def quantized(graph: Graph, config: Config) -> Graph:
    quantization = config.get("quantization_config")
    if not isinstance(quantization, Mapping):
        return graph
    method = quantization.get("quant_method")
    graph = replace(
        graph, metadata={**graph.metadata, "quantization": method if isinstance(method, str) else "unknown"}
    )
    kept = _kept(quantization)
    match method:
        case "fp8":
            sides = _block_sides(quantization)
            return _over_ops(graph, lambda op: _as_fp8(op, kept, sides))
        case "mxfp4":
            return _over_ops(graph, _as_mxfp4)
        case _:
            return graph


def _over_ops(graph: Graph, change: Any) -> Graph:
    blocks = tuple(replace(block, ops=tuple(change(op) for op in block.ops)) for block in graph.blocks)
    return replace(graph, blocks=blocks)


def _kept(quantization: Mapping[str, Any]) -> tuple[str, ...]:
    """Modules that stay as they were."""
    names = quantization.get("modules_to_not_convert")
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _block_sides(quantization: Mapping[str, Any]) -> tuple[int, int] | None:
    sides = quantization.get("weight_block_size")
    if not isinstance(sides, list) or len(sides) != 2:
        return None
    if not all(isinstance(side, int) and 0 < side < LARGEST for side in sides):
        return None
    return sides[0], sides[1]


def _as_fp8(op: Op, kept: tuple[str, ...], sides: tuple[int, int] | None) -> Op:
    """Matrices of the layers become one byte a number, with one f32 scale a block; embedding, head and router stay."""
    if op.kind not in {"linear", "moe_experts"} or op.name == "lm_head":
        return op
    weights: list[Tensor] = []
    for tensor in op.weights:
        if len(tensor.shape) < 2 or any(name in tensor.name for name in kept):
            weights.append(tensor)
            continue
        weights.append(replace(tensor, dtype="f8e4m3"))
        if sides is not None:
            weights.append(_scales(tensor, sides))
    return replace(op, weights=tuple(weights))


def _scales(tensor: Tensor, sides: tuple[int, int]) -> Tensor:
    *stack, rows, columns = tensor.shape
    blocks = (-(-1 * rows // sides[0]), -(-1 * columns // sides[1]))
    return Tensor(name=f"{tensor.name}_scale_inv", shape=(*stack, *blocks), dtype="f32", role="constant")


def _as_mxfp4(op: Op) -> Op:
    """gpt-oss stores the experts' matrices so; the scales are in the format's own blocks."""
    if op.kind != "moe_experts":
        return op
    weights = tuple(replace(w, dtype="mxfp4") if len(w.shape) == 3 else w for w in op.weights)
    return replace(op, weights=weights)
