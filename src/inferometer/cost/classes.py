"""How ops are told apart when they are priced: the class, which has its own utilisation, and the shape within it.

Priors and calibrations speak of these names. A class may be told apart further by phase or path, after a dot:
`attention.decode` is looked for before `attention`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.dims import symbols_in
from inferometer.cost.rules.attention import sequences
from inferometer.cost.rules.streams import rows

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.core.graph import Op

__all__ = [
    "AXES", "CLASSES", "FREE", "MATRIX", "NARROW_HEAD", "attention_path", "class_of", "class_path", "is_padded",
    "shape_of",
]  # fmt: skip

_CLASS = {
    "linear": "linear", "moe_router": "linear", "matmul": "matmul", "attention": "attention",
    "convolution": "convolution", "moe_experts": "experts", "ssm_scan": "scan", "recurrent": "recurrent",
    "norm": "vector", "softmax": "vector", "elementwise": "vector", "activation": "vector", "reduce": "vector",
    "pool": "vector", "resize": "vector", "rotary": "vector", "quantize": "vector", "dequantize": "vector",
    "cast": "vector", "copy": "vector", "control": "vector",
    "embedding": "indexing", "gather": "indexing", "scatter": "indexing", "sort": "indexing", "sampling": "indexing",
    "collective": "collective", "view": "free", "custom": "free",
}  # fmt: skip

CLASSES = frozenset({*_CLASS.values(), "depthwise"})
FREE = frozenset({"free"})  # nothing is computed and nothing moves
MATRIX = frozenset({"linear", "matmul", "attention", "convolution", "depthwise", "experts", "scan", "recurrent"})

NARROW_HEAD = 64  # heads up to this wide leave matrix units waiting for the softmax

# What a table's axes may be called: numbers of an op's shape that a utilisation can depend on.
AXES = (
    "rows", "in_features", "out_features", "sequences", "query", "keys", "heads", "kv_heads", "head_dim", "channels",
    "elements", "flops", "bytes", "weight_bytes", "kv_bytes",
)  # fmt: skip


def class_of(op: Op) -> str:
    if op.kind == "convolution" and op.get("groups", 1) == op.get("in_channels") != 1:
        return "depthwise"
    return _CLASS[op.kind]


def class_path(op: Op, phase: str, path: str | None = None) -> tuple[str, ...]:
    """The names to look for, the most telling first."""
    name = class_of(op)
    if name != "attention":
        return (f"{name}.{phase}", name)
    width = "narrow" if max(op["head_dim"], op.get("value_dim", 0)) <= NARROW_HEAD else "wide"
    if phase == "decode":
        ways = ["decode"]
    else:  # attention over padding runs other kernels: what causal attention reaches says nothing of it
        ways = [path] if path == "padded" else [way for way in (path, "prefill") if way]
    return (*(f"{name}.{way}{end}" for way in ways for end in (f".{width}", "")), name)


def is_padded(op: Op) -> bool:
    """Whether attention may meet padding: an encoder's over a batch of texts, which are not of one length."""
    tokens = op.get("query")
    return op.kind == "attention" and not op.get("cached") and tokens is not None and "query" in symbols_in(tokens)


def attention_path(op: Op, path: str) -> str | None:
    """How a runtime of a path (flash, masked …) attends here: as it says with a cache, `padded` where it must mask.

    None is a fused kernel without a mask, as for the patches of an image.
    """
    if path == "flash" or op.kind != "attention":
        return None
    return path if op.get("cached") else "padded" if is_padded(op) else None


def shape_of(op: Op, binding: Binding) -> dict[str, Any]:
    """The axes that the op itself gives; flops and bytes come from its work."""
    found: dict[str, Any] = {}
    if op.inputs and op.inputs[0].shape:
        found["rows"] = rows(op.inputs[0], binding)
        found["in_features"] = binding.size(op.inputs[0].shape[-1])
    if op.outputs and op.outputs[0].shape:
        found["out_features"] = binding.size(op.outputs[0].shape[-1])
        found["elements"] = binding.elements(op.outputs[0])
    if op.kind == "attention":
        query, context = binding.size(op["query"]), binding.size(op.get("context", 0))
        found |= {
            "sequences": sequences(op, binding),
            "query": query,
            "keys": context if op.get("cross") else context + query,
            "heads": op["heads"],
            "kv_heads": op.get("kv_heads", op["heads"]),
            "head_dim": op["head_dim"],
        }
    if op.kind == "convolution":
        found["channels"] = op["out_channels"]
    return found
