"""What works number by number or row by row: linear, matmul, embedding, norms, activations, sums, softmax, casts."""

from functools import reduce as fold
from math import sqrt
from typing import Any

import numpy as np

from inferometer.core.dims import Dim, product
from inferometer.core.graph import Op
from inferometer.formats.onnx.write.lowering import (
    Nodes,
    OnnxLowering,
    WrittenPort,
    WrittenValue,
    positions,
    probe,
    reshaped,
    rule,
    shown,
    transposed,
)
from inferometer.formats.onnx.write.planes import relative_bias, window_mask

# Norms. An RMS norm is written out in the nodes that runtimes recognise and fuse.


@rule("norm")
def norm(lowering: OnnxLowering, op: Op) -> None:
    nodes, x = lowering.nodes, lowering.read(op.inputs[0])
    names = [nodes.weight(weight) or weight.name for weight in lowering.weights(op)]
    match op["norm"]:
        case "batch":
            scale, bias, mean, variance = names
            y = WrittenValue(nodes.add("BatchNormalization", x.name, scale, bias, mean, variance), x.shape)
        case "group":
            y = WrittenValue(_group(nodes, x.name, names, op, lowering.numbers.epsilon), x.shape)
        case "layer" | "rms":
            y = _last_axis(lowering, op, x, names)
        case "l2":
            y = WrittenValue(nodes.add("LpNormalization", x.name, axis=-1, p=2), x.shape)
        case other:
            raise lowering.refuse(op, f"the norm {other!r} has no rule")
    lowering.give(op.outputs[0], y)


def _last_axis(lowering: OnnxLowering, op: Op, x: WrittenValue, names: list[str]) -> WrittenValue:
    """Over the last axis, over a head's part of it, or over the channels of a plane."""
    nodes, features = lowering.nodes, op.get("features", x.shape[-1])
    if x.shape[-1] == features:
        return WrittenValue(_normed(lowering, op, x.name, features, names), x.shape)
    if len(x.shape) == 4 and x.shape[1] == features:
        last = transposed(nodes, x, 0, 2, 3, 1)
        y = WrittenValue(_normed(lowering, op, last.name, features, names), last.shape)
        return transposed(nodes, y, 0, 3, 1, 2)
    width = x.shape[-1]
    if not isinstance(width, int) or width % features:
        raise lowering.refuse(op, f"{features} features do not divide an axis of {width}")
    heads = reshaped(nodes, x, (*x.shape[:-1], width // features, features))
    y = WrittenValue(_normed(lowering, op, heads.name, features, names), heads.shape)
    return reshaped(nodes, y, x.shape)


def _normed(lowering: OnnxLowering, op: Op, x: str, features: int, names: list[str]) -> str:
    nodes, epsilon = lowering.nodes, lowering.numbers.epsilon
    if op["norm"] == "layer":
        scale = names[:1] or [nodes.constant(np.ones(features, nodes.float_type))]
        return str(nodes.add("LayerNormalization", x, *scale, *names[1:], axis=-1, epsilon=epsilon))
    squares = nodes.add("ReduceMean", nodes.add("Pow", x, nodes.floats(2.0)), nodes.wholes(-1), keepdims=1)
    # f16 has nothing below 6e-8: a smaller epsilon would be zero
    small = epsilon if nodes.float_type == np.float32 else max(epsilon, 1e-5)
    root = nodes.add("Sqrt", nodes.add("Add", squares, nodes.floats(small)))
    y = nodes.add("Div", x, root)
    return str(nodes.add("Mul", y, names[0])) if names else str(y)


def _group(nodes: Nodes, x: str, names: list[str], op: Op, epsilon: float) -> str:
    features, groups = op["features"], op.get("groups", 32)
    scale = names[:1] or [nodes.constant(np.ones(features, nodes.float_type))]
    bias = names[1:2] or [nodes.constant(np.zeros(features, nodes.float_type))]
    return str(nodes.add("GroupNormalization", x, *scale, *bias, num_groups=groups, epsilon=epsilon))


# Matrices and tables: linear, matmul, embedding.


@rule("linear")
def linear(lowering: OnnxLowering, op: Op) -> None:
    """MatMul with the weight as [in, out], or Gemm.

    Gemm is for rows alone, and where the weight is stored as [out, in] for another op too (a tied embedding), since
    only Gemm reads it the other way round.
    """
    nodes, x = lowering.nodes, lowering.read(op.inputs[0])
    weight, *rest = lowering.weights(op)
    bias = [nodes.weight(entry) or entry.name for entry in rest if len(entry.shape) == 1]
    shape = lowering.shape(op.outputs[0])
    if sorted(weight.shape) != sorted((x.shape[-1], shape[-1])):  # type: ignore[type-var]  # features are fixed numbers
        raise lowering.refuse(op, f"its weight {weight.name!r} is {list(weight.shape)}")
    kept = op.get("layout") == "in_out"  # the checkpoint itself holds [in, out]
    if len(x.shape) > 2 and (name := nodes.weight(weight, transposed=not kept)):
        y = nodes.add("MatMul", x.name, name)
        y = nodes.add("Add", y, bias[0]) if bias else y
        lowering.give(op.outputs[0], y)
        return
    name = nodes.weight(weight)
    stored = name is not None
    rows = reshaped(nodes, x, (product(x.shape[:-1]), x.shape[-1]))
    swap = 0 if kept == stored else 1
    y = nodes.add("Gemm", rows.name, weight.name, *bias, transB=swap)
    flat = WrittenValue(y, (rows.shape[0], shape[-1]))
    lowering.give(op.outputs[0], reshaped(nodes, flat, shape))


@rule("matmul")
def matmul(lowering: OnnxLowering, op: Op) -> None:
    """The second factor may be transposed; whether it is follows from the contracted and the resulting sizes."""
    nodes = lowering.nodes
    a, b = (lowering.read(tensor) for tensor in op.inputs[:2])
    shape = lowering.shape(op.outputs[0])
    sizes = probe((a.shape[-1], shape[-1], *b.shape[-2:]))
    if sizes[2:] != sizes[:2]:
        if sizes[2:] != sizes[1::-1]:
            raise lowering.refuse(op, "its factors do not fit")
        b = transposed(nodes, b, *range(len(b.shape) - 2), len(b.shape) - 1, len(b.shape) - 2)
    lowering.give(op.outputs[0], WrittenValue(nodes.add("MatMul", a.name, b.name), shape))


@rule("embedding")
def embedding(lowering: OnnxLowering, op: Op) -> None:
    nodes, (table,) = lowering.nodes, lowering.weights(op)
    name = nodes.weight(table)
    if name is None:
        raise lowering.refuse(op, f"the table {table.name!r} is a matrix of an earlier op")
    ids = lowering.read(op.inputs[0])
    lowering.give(op.outputs[0], nodes.add("Gather", name, ids.name, axis=0))


_ONE_NODE: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "gelu": ("Gelu", {}),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}),
    "sigmoid": ("Sigmoid", {}),
    "tanh": ("Tanh", {}),
    "hardswish": ("HardSwish", {}),
    "hard_swish": ("HardSwish", {}),
    "hardsigmoid": ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    "hard_sigmoid": ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    "softplus": ("Softplus", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.01}),
    "elu": ("Elu", {}),
    "mish": ("Mish", {}),
    "exp": ("Exp", {}),
    "identity": ("Identity", {}),
    "linear": ("Identity", {}),
}
_BINARY = {"add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "maximum": "Max", "minimum": "Min"}


def _activated(nodes: Nodes, x: str, function: str) -> str | None:
    """The activation of a value, or None where it is not known."""
    if function in _ONE_NODE:
        kind, attributes = _ONE_NODE[function]
        return str(nodes.add(kind, x, **attributes))
    if function in {"silu", "swish"}:
        return str(nodes.add("Mul", x, nodes.add("Sigmoid", x)))
    if function == "quick_gelu":
        return str(nodes.add("Mul", x, nodes.add("Sigmoid", nodes.add("Mul", x, nodes.floats(1.702)))))
    if function == "relu6":
        return str(nodes.add("Clip", x, nodes.floats(0.0), nodes.floats(6.0)))
    if function in {"relu2", "squared_relu"}:
        positive = nodes.add("Relu", x)
        return str(nodes.add("Mul", positive, positive))
    return None


@rule("activation")
def activation(lowering: OnnxLowering, op: Op) -> None:
    x = lowering.read(op.inputs[0])
    y = _activated(lowering.nodes, x.name, op["function"])
    if y is None:
        raise lowering.refuse(op, f"the activation {op['function']!r} is not known")
    lowering.give(op.outputs[0], y)


@rule("elementwise")
def elementwise(lowering: OnnxLowering, op: Op) -> None:
    nodes, function = lowering.nodes, op["function"]
    values = [lowering.read(tensor) for tensor in op.inputs]
    values += [WrittenValue(nodes.weight(weight) or weight.name, weight.shape) for weight in lowering.weights(op)]
    if function == "soft_cap":
        lowering.give(op.outputs[0], soft_capped(nodes, values[0].name, lowering.numbers.logit_cap))
        return
    if function not in _BINARY:
        y = _activated(nodes, values[0].name, function)
        if y is None:
            raise lowering.refuse(op, f"the function {function!r} is not known")
        lowering.give(op.outputs[0], y)
        return
    if len(values) == 1:  # by a number that the graph does not name: a language model's scale of its embedding
        (features,) = probe(values[0].shape[-1:])
        values.append(WrittenValue(nodes.floats(sqrt(features)), ()))
    first = values[0]
    names = [first.name]
    for value in values[1:]:
        name = aligned(nodes, value, first)
        if name is None:
            raise lowering.refuse(op, f"{value.name!r} is {shown(value.shape)} beside {shown(first.shape)}")
        names.append(name)
    kind = _BINARY[function]
    lowering.give(op.outputs[0], fold(lambda left, right: str(nodes.add(kind, left, right)), names))


def aligned(nodes: Nodes, value: WrittenValue, like: WrittenValue) -> str | None:
    """A smaller value ready to be broadcast: by its last axes, or, where those do not fit, by its first ones.

    [batch, channels] beside [batch, channels, height, width], or a factor a channel. None where neither fits.
    """
    sizes = probe((*value.shape, *like.shape))
    mine, full = sizes[: len(value.shape)], sizes[len(value.shape) :]
    if len(mine) > len(full):
        return None
    last = full[len(full) - len(mine) :]
    if all(size in {1, other} for size, other in zip(mine, last, strict=True)):
        return value.name
    begin = next((axis for axis in (0, 1) if mine == full[axis : axis + len(mine)]), None)
    if begin is None:
        return None
    trailing = len(full) - begin - len(mine)
    return reshaped(nodes, value, (*value.shape, *[1] * trailing)).name


def soft_capped(nodes: Nodes, x: str, cap: float) -> str:
    """The cap times tanh(x / cap)."""
    inside = nodes.add("Tanh", nodes.add("Div", x, nodes.floats(cap)))
    return str(nodes.add("Mul", inside, nodes.floats(cap)))


@rule("softmax")
def softmax(lowering: OnnxLowering, op: Op) -> None:
    x = lowering.read(op.inputs[0])
    lowering.give(op.outputs[0], lowering.nodes.add("Softmax", x.name, axis=op.get("axis", -1)))


_REDUCTIONS = {"mean": "ReduceMean", "sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin"}


@rule("reduce")
def reduction(lowering: OnnxLowering, op: Op) -> None:
    nodes, x = lowering.nodes, lowering.read(op.inputs[0])
    kind = _REDUCTIONS.get(op["function"])
    if kind is None:
        raise lowering.refuse(op, f"the reduction {op['function']!r} is not known")
    keeps = len(op.outputs[0].shape) == len(x.shape)
    lowering.give(op.outputs[0], nodes.add(kind, x.name, nodes.wholes(*op["axes"]), keepdims=int(keeps)))


@rule("cast")
def cast(lowering: OnnxLowering, op: Op) -> None:
    """Everything has one format here, so a cast is nothing."""
    lowering.give(op.outputs[0], lowering.read(op.inputs[0]))


# Attention and rotary positions, written out in plain matrix products.
#
# Keys and values that live in a cache come in as `past_key_values.N.key` and `.value`, [batch, kv heads, context,
# features], and go out with the new tokens appended as `present.N.key` and `.value`. Query heads that share a key head
# are one more axis, so nothing is repeated in memory.


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
