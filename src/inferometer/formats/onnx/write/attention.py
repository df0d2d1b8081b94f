"""Attention and rotary positions, written out in plain matrix products.

Keys and values that live in a cache come in as `past_key_values.N.key` and `.value`, [batch, kv heads, context,
features], and go out with the new tokens appended as `present.N.key` and `.value`. Query heads that share a key head
are one more axis, so nothing is repeated in memory.
"""

from math import sqrt
from typing import Any

import numpy as np

from inferometer.core.dims import Dim
from inferometer.core.graph import Op
from inferometer.formats.onnx.write.lowering import OnnxLowering, positions, reshaped, rule, transposed
from inferometer.formats.onnx.write.nodes import Nodes, WrittenPort, WrittenValue
from inferometer.formats.onnx.write.planes import relative_bias, window_mask
from inferometer.formats.onnx.write.pointwise import soft_capped


@rule("attention")
def attention(lowering: OnnxLowering, op: Op) -> None:
    if op.get("kv_latent"):
        raise lowering.refuse(op, "its latent keys and values are not among its inputs")
    nodes, heads, kv_heads = lowering.nodes, op["heads"], op["kv_heads"]
    q, k, v = (lowering.read(tensor) for tensor in op.inputs[:3])
    query = _by_head(nodes, q, heads, op["head_dim"])
    key = _by_head(nodes, k, kv_heads, op["head_dim"])
    value = _by_head(nodes, v, kv_heads, op.get("value_dim", op["head_dim"]))
    if op.get("cached") and not op.get("cross"):
        key, value = _appended(lowering, key, value)
    if heads != kv_heads:
        query = reshaped(nodes, query, (query.shape[0], kv_heads, heads // kv_heads, *query.shape[2:]))
        key, value = (reshaped(nodes, part, (*part.shape[:2], 1, *part.shape[2:])) for part in (key, value))
    weighted = _weighted(lowering, op, query, key, value)
    joined = reshaped(nodes, weighted, (weighted.shape[0], heads, *weighted.shape[-2:]))
    rows = transposed(nodes, joined, 0, 2, 1, 3)
    lowering.give(op.outputs[0], reshaped(nodes, rows, lowering.shape(op.outputs[0])))


def _by_head(nodes: Nodes, x: WrittenValue, heads: int, features: int) -> WrittenValue:
    """[batch, tokens, heads · features] → [batch, heads, tokens, features]."""
    return transposed(nodes, reshaped(nodes, x, (*x.shape[:2], heads, features)), 0, 2, 1, 3)


def _appended(lowering: OnnxLowering, key: WrittenValue, value: WrittenValue) -> tuple[WrittenValue, WrittenValue]:
    """The cache with the new tokens after it, which is also what the next step needs."""
    nodes, index = lowering.nodes, lowering.caches
    lowering.caches += 1
    both = []
    for part, new in (("key", key), ("value", value)):
        past = lowering.made[f"past_key_values.{index}.{part}"]
        shape = (*new.shape[:2], past.shape[2] + new.shape[2], new.shape[3])
        name = nodes.add("Concat", past.name, new.name, axis=2)
        nodes.outputs.append(WrittenPort(name=nodes.named(f"present.{index}.{part}", name), shape=shape))
        both.append(WrittenValue(name, shape))
    return both[0], both[1]


def _weighted(
    lowering: OnnxLowering, op: Op, query: WrittenValue, key: WrittenValue, value: WrittenValue
) -> WrittenValue:
    """softmax(q · kᵀ · scale + bias) · v."""
    nodes, rank = lowering.nodes, len(query.shape)
    scale = lowering.numbers.attention_scale or 1 / sqrt(op["head_dim"])
    scaled = nodes.add("Mul", query.name, nodes.floats(scale))
    turned = nodes.add("Transpose", key.name, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = nodes.add("MatMul", scaled, turned)
    if op.get("soft_cap"):
        scores = soft_capped(nodes, scores, lowering.numbers.attention_cap)
    tokens, keys = query.shape[-2], key.shape[-2]
    scores = _biased(lowering, op, WrittenValue(scores, (*query.shape[:-1], keys)))
    if op.get("causal") or op.get("window"):
        scores = nodes.add("Add", scores, _mask(lowering, op, tokens, keys))
    shares = nodes.add("Softmax", scores, axis=-1)
    y = nodes.add("MatMul", shares, value.name)
    return WrittenValue(y, (*query.shape[:-1], value.shape[-1]))


def _biased(lowering: OnnxLowering, op: Op, scores: WrittenValue) -> str:
    """What is added to the scores by position: ALiBi's slopes, or Swin's table and the mask of shifted windows."""
    nodes = lowering.nodes
    if not op.get("biased"):
        if op.weights:
            raise lowering.refuse(op, f"what {op.weights[0].name!r} does is not known")
        return scores.name
    if op.weights:
        table = lowering.weights(op)[0]
        added = nodes.add("Add", scores.name, relative_bias(nodes, table))
        return window_mask(lowering, op, WrittenValue(added, scores.shape))
    if not op.get("causal"):
        raise lowering.refuse(op, "its position bias is not among its inputs")
    return str(nodes.add("Add", scores.name, _alibi(lowering, op, scores.shape)))


def _alibi(lowering: OnnxLowering, op: Op, shape: tuple[Dim, ...]) -> str:
    """A slope a head, 2^(−8h/heads), times the key's position; the query's own drops out of the softmax."""
    nodes, heads = lowering.nodes, op["heads"]
    slopes = np.array([2.0 ** (-8.0 * (head + 1) / heads) for head in range(heads)])
    column = slopes.reshape(*[size for size in shape[1:-2] if isinstance(size, int)], 1, 1)
    keys = _as_float(nodes, _positions_of_keys(lowering, shape[-1]))
    return str(nodes.add("Mul", nodes.constant(column.astype(nodes.float_type)), keys))


def _mask(lowering: OnnxLowering, op: Op, tokens: Dim, keys: Dim) -> str:
    """[tokens, keys]: 0 where a token may look, far below zero where not."""
    nodes, causal, window = lowering.nodes, bool(op.get("causal")), op.get("window")

    def make() -> str:
        axis = nodes.wholes(1)
        here = nodes.add("Unsqueeze", positions(lowering, tokens), axis)
        there = _positions_of_keys(lowering, keys)
        reach = window if causal or not window else window // 2 + 1
        allowed = (
            nodes.add("LessOrEqual", there, here)
            if causal
            else nodes.add("Less", there, nodes.add("Add", here, nodes.scalar(reach)))
        )
        if window:
            near = nodes.add("Greater", there, nodes.add("Sub", here, nodes.scalar(reach)))
            allowed = nodes.add("And", allowed, near)
        low = float(np.finfo(nodes.float_type).min) / 2
        return str(nodes.add("Where", allowed, nodes.floats(0.0), nodes.floats(low)))

    return nodes.once(("mask", causal, window, tokens, keys), make, scope="mask")


def _positions_of_keys(lowering: OnnxLowering, keys: Dim) -> str:
    """0, 1, … as an int64 vector."""
    nodes = lowering.nodes

    def make() -> str:
        return str(nodes.add("Range", nodes.scalar(0), nodes.number(keys), nodes.scalar(1)))

    return nodes.once(("keys", keys), make, scope="positions")


def _as_float(nodes: Nodes, x: str) -> str:
    return str(nodes.add("Cast", x, to=nodes.float_type))


@rule("rotary")
def rotary(lowering: OnnxLowering, op: Op) -> None:
    """Turn the first `rotary_dim` features of every head, halves against each other, by angles of the position."""
    nodes, features, turned = lowering.nodes, op["head_dim"], op["rotary_dim"]
    for tensor, result in zip(op.inputs, op.outputs, strict=False):
        x = lowering.read(tensor)
        width = x.shape[-1]
        if len(x.shape) != 3 or not isinstance(width, int) or width % features:
            raise lowering.refuse(op, f"{tensor.name!r} has no whole number of heads of {features}")
        heads = reshaped(nodes, x, (*x.shape[:-1], width // features, features))
        angles = _angles(lowering, x.shape[1], turned)
        y = WrittenValue(_turned(nodes, heads, turned, angles), heads.shape)
        lowering.give(result, reshaped(nodes, y, x.shape))


def _turned(nodes: Nodes, x: WrittenValue, count: int, angles: tuple[str, str]) -> str:
    """(a, b) → (a·cos − b·sin, b·cos + a·sin); what is not turned passes."""
    cosine, sine = angles
    features = x.shape[-1]
    sizes = [count // 2, count // 2] + ([features - count] if isinstance(features, int) and features > count else [])
    parts = nodes.add("Split", x.name, nodes.wholes(*sizes), outputs=len(sizes), axis=-1)
    a, b, *rest = parts
    first = nodes.add("Sub", nodes.add("Mul", a, cosine), nodes.add("Mul", b, sine))
    second = nodes.add("Add", nodes.add("Mul", b, cosine), nodes.add("Mul", a, sine))
    return str(nodes.add("Concat", first, second, *rest, axis=-1))


def _angles(lowering: OnnxLowering, tokens: Dim, count: int) -> tuple[str, str]:
    """Cosines and sines as [tokens, 1, count / 2]: angle = position · theta^(−2i/count)."""
    nodes, theta = lowering.nodes, lowering.numbers.rope_theta
    steps = theta ** (-np.arange(0, count - 1, 2, dtype=np.float64) / count)

    def angle() -> str:
        place = nodes.add("Cast", positions(lowering, tokens), to=np.dtype(np.float32))
        column = nodes.add("Unsqueeze", place, nodes.wholes(1, 2))
        return str(nodes.add("Mul", column, nodes.constant(steps.astype(np.float32))))

    def made(kind: str) -> Any:
        def make() -> str:
            value = nodes.add(kind, nodes.once(("angles", tokens, count), angle, scope="rotary"))
            return value if nodes.float_type == np.float32 else _as_float(nodes, value)

        return make

    cosine = nodes.once(("Cos", tokens, count), made("Cos"), scope="rotary")
    return cosine, nodes.once(("Sin", tokens, count), made("Sin"), scope="rotary")
