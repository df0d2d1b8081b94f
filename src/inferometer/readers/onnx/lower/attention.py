"""Attention nodes as `attention` ops, with the products and rotations that some of them hold as ops of their own."""

from dataclasses import replace
from typing import Any

from inferometer.core.dims import Dim
from inferometer.core.graph import Op, Tensor
from inferometer.readers.onnx.rules.attention import Heads, heads_of
from inferometer.readers.onnx.step import Lowering, Maker, Step

__all__ = [
    "attention_attributes", "attention_op", "fixed_heads", "lower_attention", "lower_causal_conv",
    "lower_linear_attention", "lower_rotary", "table_rows",
]  # fmt: skip


def attention_attributes(sizes: Heads, *, cached: bool, **more: Any) -> dict[str, Any]:
    """Keys that are neither as many as the queries nor added to a cache come from elsewhere: cross attention."""
    cross = not cached and sizes.keys != sizes.queries
    return {
        "heads": sizes.heads,
        "kv_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "value_dim": sizes.value_dim,
        "query": sizes.queries,
        "context": sizes.keys if cross else sizes.past,
        "cross": cross,
        "cached": cached,
        **more,
    }


def fixed_heads(sizes: Heads) -> bool:
    """Whether all that rules multiply without binding are numbers."""
    return all(isinstance(n, int) for n in (sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.value_dim))


def lower_attention(step: Step, maker: Maker) -> list[Op]:
    """ONNX's own. Inputs: Q, K, V, mask, past key, past value."""
    call = step.call
    sizes = heads_of(call)
    if not fixed_heads(sizes):
        return maker.custom(step, "the sizes of its heads are not known")
    left = call.integer("left_window_size", -1)
    attributes = attention_attributes(
        sizes,
        cached=call.has(4),
        causal=bool(call.integer("is_causal")),
        window=left + 1 if left >= 0 else None,  # it counts the token itself; -1 is all
        soft_cap=call.number("softcap") > 0,
    )
    return [attention_op(step, maker, (0, 1, 2), (4, 5), attributes)]


def attention_op(
    step: Step, maker: Maker, qkv: tuple[int, ...], caches: tuple[int, ...], attributes: dict[str, Any]
) -> Op:
    """Queries, keys and values first, then masks, then caches. The second and third output are the grown caches."""
    call, inputs = step.call, step.call.inputs
    main = [value for i in qkv if call.has(i) and (value := inputs[i]) is not None]
    rest = [value for i, value in enumerate(inputs) if i not in (*qkv, *caches) and value is not None]
    activations = [value for value in (*main, *rest) if not value.constant]
    op = maker.op_of(step, "attention", activations, rest, attributes)
    past = tuple(maker.tensor(value, "kv") for i in caches if call.has(i) and (value := inputs[i]) is not None)
    results = tuple(
        maker.tensor(value, "kv" if place in {1, 2} else None) for place, value in enumerate(step.outs) if value.name
    )
    return replace(op, inputs=(*op.inputs, *past), outputs=results)


def lower_rotary(positions: int, tables: tuple[int, int] = (1, 2)) -> Lowering:
    """The rows of the sine and cosine tables that the positions name are gathered; then the input is rotated."""

    def lower(step: Step, maker: Maker) -> list[Op]:
        call = step.call
        x = call.value(0)
        shape = x.shape
        if shape is None:
            return maker.custom(step, "the shape of its input is not known")
        tokens = (shape[0], shape[2]) if len(shape) == 4 else shape[:2]
        gathered = table_rows(step, maker, tables, positions, tokens)
        attributes = _partial(step)
        op = maker.op_of(step, "rotary", [x], [], attributes)
        angles = gathered[0].outputs if gathered else _activations(maker, step, tables)
        return [*gathered, replace(op, inputs=(*op.inputs, *angles))]

    return lower


def _activations(maker: Maker, step: Step, places: tuple[int, ...]) -> tuple[Tensor, ...]:
    values = [step.call.inputs[i] for i in places if step.call.has(i)]
    return tuple(maker.tensor(value) for value in values if value is not None and not value.constant)


def _partial(step: Step) -> dict[str, Any]:
    """Where only a part of each head is rotated: how much of what."""
    call, rotated = step.call, step.call.integer("rotary_embedding_dim")
    shape = call.value(0).shape or ()
    heads = call.integer("num_heads")
    width = shape[-1] if shape else None
    if not rotated or not isinstance(width, int) or (len(shape) != 4 and heads < 1):
        return {}
    return {"rotary_dim": rotated, "head_dim": width if len(shape) == 4 else width // heads}


def table_rows(
    step: Step, maker: Maker, tables: tuple[int, int], positions: int | None, tokens: tuple[Dim, ...]
) -> list[Op]:
    """A gather from stored tables, or nothing where they are no tables or are computed."""
    values = [step.call.inputs[i] for i in tables if step.call.has(i)]
    stored = [
        value for value in values if value is not None and value.constant and value.shape and len(value.shape) == 2
    ]
    if len(stored) != 2:
        return []
    given = step.call.inputs[positions] if positions is not None and step.call.has(positions) else None
    outputs = tuple(
        Tensor(
            name=f"{step.name}/{part}",
            shape=(*tokens, *(value.shape or ())[1:]),
            dtype=maker.stored(value.stored[0]).dtype,
        )
        for part, value in zip(("cos", "sin"), stored, strict=True)
    )
    index = () if given is None or given.constant else (maker.tensor(given, "index"),)
    return [
        Op(
            name=f"{step.name}/angles",
            kind="gather",
            inputs=index,
            outputs=outputs,
            weights=maker.weights(stored),
            source_type=step.op_type,
        )
    ]


def lower_linear_attention(step: Step, maker: Maker) -> list[Op]:
    """Each token and head updates and reads a state of [key, value].

    It is counted as a state-space scan whose channels are the values of all heads and whose state is as wide as a key.
    """
    call = step.call
    heads, kv_heads = call.integer("q_num_heads"), call.integer("kv_num_heads")
    q, v = (call.value(i).shape or (None,) for i in (0, 2))
    if heads < 1 or kv_heads < 1 or not isinstance(q[-1], int) or not isinstance(v[-1], int):
        return maker.custom(step, "the sizes of its heads are not known")
    inner, state = v[-1] // kv_heads * heads, q[-1] // heads
    return [maker.op(step, "ssm_scan", inner=inner, state=state, heads=heads, groups=kv_heads, version=2)]


def lower_causal_conv(step: Step, maker: Maker) -> list[Op]:
    """Depthwise along time; the state it carries is read and written as a state."""
    call = step.call
    weight, x = call.value(1).shape, call.value(0).shape
    kernel = weight[-1] if weight else None
    channels = x[1] if x is not None and len(x) > 1 else None
    if not isinstance(kernel, int) or not isinstance(channels, int):
        return maker.custom(step, "the shape of its weight is not known")
    sizes = dict.fromkeys(("in_channels", "out_channels", "groups"), channels)
    return [maker.op(step, "convolution", **sizes, kernel=(kernel,), strides=(1,), dilations=(1,), transposed=False)]
