"""Attention nodes as `attention` ops, with the products and rotations that some of them hold as ops of their own."""

from dataclasses import replace
from typing import Any

from inferometer.core.dims import Dim
from inferometer.core.graph import Op, Tensor
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.faults import UncoveredError
from inferometer.formats.onnx.rules.attention import (
    Heads,
    fused_heads,
    group_query_heads,
    heads_of,
    multi_head_heads,
    multi_head_past,
    packed_heads,
    paged_heads,
    past_place,
)
from inferometer.formats.onnx.step import Lowering, Maker, OnnxStep, Wires, part_op

_NO_HEADS = "the sizes of its heads are not known"


def _attention_attributes(sizes: Heads, *, cached: bool, **more: Any) -> dict[str, Any]:
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


def _fixed(sizes: Heads) -> Heads:
    """The sizes, where all that rules multiply and divide by without binding are numbers above 0."""
    if not all(isinstance(n, int) and n > 0 for n in (sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.value_dim)):
        raise UncoveredError(_NO_HEADS)
    return sizes


def lower_attention(step: OnnxStep, maker: Maker) -> list[Op]:
    """ONNX's own. Inputs: Q, K, V, mask, past key, past value."""
    call = step.call
    sizes = _fixed(heads_of(call))
    left = call.integer("left_window_size", -1)
    attributes = _attention_attributes(
        sizes,
        cached=call.has(4),
        causal=bool(call.integer("is_causal")),
        window=left + 1 if left >= 0 else None,  # it counts the token itself; -1 is all
        soft_cap=call.number("softcap") > 0,
    )
    return [attention_op(step, maker, (0, 1, 2), (4, 5), attributes)]


def attention_op(
    step: OnnxStep, maker: Maker, qkv: tuple[int, ...], caches: tuple[int, ...], attributes: dict[str, Any]
) -> Op:
    """Queries, keys and values first, then masks, then caches. The second and third output are the grown caches."""
    call, inputs = step.call, step.call.inputs
    main = [value for i in qkv if call.has(i) and (value := inputs[i]) is not None]
    rest = [value for i, value in enumerate(inputs) if i not in (*qkv, *caches) and value is not None]
    activations = [value for value in (*main, *rest) if not value.constant]
    op = maker.op_of(step, "attention", activations, rest, attributes)
    past = tuple(maker.tensor(value, "kv") for i in caches if call.has(i) and (value := inputs[i]) is not None)
    results = tuple(
        maker.tensor(value, "kv" if index in {1, 2} else None) for index, value in enumerate(step.outs) if value.name
    )
    return replace(op, inputs=(*op.inputs, *past), outputs=results)


def lower_rotary(positions: int, tables: tuple[int, int] = (1, 2)) -> Lowering:
    """The rows of the sine and cosine tables that the positions name are gathered; then the input is rotated."""

    def lower(step: OnnxStep, maker: Maker) -> list[Op]:
        call = step.call
        x = call.value(0)
        shape = x.shape
        if shape is None:
            return maker.custom(step, "the shape of its input is not known")
        tokens = (shape[0], shape[2]) if len(shape) == 4 else shape[:2]
        gathered = _table_rows(step, maker, tables, positions, tokens)
        attributes = _partial(step)
        op = maker.op_of(step, "rotary", [x], [], attributes)
        angles = gathered[0].outputs if gathered else _activations(maker, step, tables)
        return [*gathered, replace(op, inputs=(*op.inputs, *angles))]

    return lower


def _activations(maker: Maker, step: OnnxStep, places: tuple[int, ...]) -> tuple[Tensor, ...]:
    values = [step.call.inputs[i] for i in places if step.call.has(i)]
    return tuple(maker.tensor(value) for value in values if value is not None and not value.constant)


def _partial(step: OnnxStep) -> dict[str, Any]:
    """Where only a part of each head is rotated: how much of what."""
    call, rotated = step.call, step.call.integer("rotary_embedding_dim")
    shape = call.value(0).shape or ()
    heads = call.integer("num_heads")
    width = shape[-1] if shape else None
    if not rotated or not isinstance(width, int) or (len(shape) != 4 and heads < 1):
        return {}
    return {"rotary_dim": rotated, "head_dim": width if len(shape) == 4 else width // heads}


def _table_rows(
    step: OnnxStep, maker: Maker, tables: tuple[int, int], positions: int | None, tokens: tuple[Dim, ...]
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


def lower_linear_attention(step: OnnxStep, maker: Maker) -> list[Op]:
    """Each token and head updates and reads a state of [key, value].

    It is counted as a state-space scan whose channels are the values of all heads and whose state is as wide as a key.
    """
    call = step.call
    heads, kv_heads = call.integer("q_num_heads"), call.integer("kv_num_heads")
    q, v = (call.value(i).shape or (None,) for i in (0, 2))
    if heads < 1 or kv_heads < 1 or not isinstance(q[-1], int) or not isinstance(v[-1], int):
        raise UncoveredError(_NO_HEADS)
    inner, state = v[-1] // kv_heads * heads, q[-1] // heads
    return [maker.op(step, "ssm_scan", inner=inner, state=state, heads=heads, groups=kv_heads, version=2)]


def lower_causal_conv(step: OnnxStep, maker: Maker) -> list[Op]:
    """Depthwise along time; the state it carries is read and written as a state."""
    call = step.call
    weight, x = call.value(1).shape, call.value(0).shape
    kernel = weight[-1] if weight else None
    channels = x[1] if x is not None and len(x) > 1 else None
    if not isinstance(kernel, int) or not isinstance(channels, int):
        return maker.custom(step, "the shape of its weight is not known")
    sizes = dict.fromkeys(("in_channels", "out_channels", "groups"), channels)
    return [maker.op(step, "convolution", **sizes, kernel=(kernel,), strides=(1,), dilations=(1,), transposed=False)]


def lower_fused_attention(step: OnnxStep, maker: Maker) -> list[Op]:
    """The projection to q, k and v, then attention."""
    return _projected(step, maker, fused_heads(step.call), (past_place(step.call),))


def lower_packed(step: OnnxStep, maker: Maker) -> list[Op]:
    if step.call.node.op_type == "PackedAttention":
        return _projected(step, maker, packed_heads(step.call), ())
    sizes = _fixed(packed_heads(step.call))
    attributes = _attention_attributes(sizes, cached=False, causal=False, window=None)
    return [attention_op(step, maker, (0, 1, 2), (), attributes)]


def lower_longformer(step: OnnxStep, maker: Maker) -> list[Op]:
    """Each token meets `window` tokens on each side. What is global is left out."""
    x, heads = step.call.shape(0), step.call.integer("num_heads")
    if not isinstance(x[-1], int) or heads < 1 or len(x) != 3:
        raise UncoveredError(_NO_HEADS)
    size = x[-1] // heads
    sizes = Heads.of_itself(x[0], heads, (size, size), x[1])
    return _projected(step, maker, sizes, (), window=2 * step.call.integer("window") + 1)


def _projected(
    step: OnnxStep, maker: Maker, sizes: Heads, caches: tuple[int, ...], *, window: int | None = None
) -> list[Op]:
    _fixed(sizes)
    call = step.call
    quantised = call.node.op_type == "QAttention"
    x, y = maker.tensor(call.value(0)), maker.tensor(step.outs[0])
    head_width = algebra.add(algebra.mul(sizes.head_dim, 2), sizes.value_dim)
    qkv = Tensor(name=f"{step.name}/qkv", shape=(*x.shape[:-1], algebra.mul(sizes.heads, head_width)), dtype=y.dtype)
    scales = (3, 4, 6, 7) if quantised else ()
    weights = maker.weights([call.inputs[i] for i in (1, 2, *scales) if call.has(i)])
    extra = {"compute": "i8"} if quantised else {}
    wires = Wires((x,), (qkv,), weights)
    projection = part_op(step, "projection", "linear", wires, contracted=x.shape[-1], **extra)
    attributes = _attention_attributes(
        sizes,
        cached=any(call.has(place) for place in caches) or len([value for value in step.outs if value.name]) > 1,
        causal=bool(call.integer("unidirectional")) or "Decoder" in call.node.op_type,
        window=window,
    )
    taken = {0, 1, 2, *scales, *caches}
    masks = [value for i, value in enumerate(call.inputs) if i not in taken and value is not None]
    past = [value for i in caches if call.has(i) and (value := call.inputs[i]) is not None]
    inputs = (
        qkv,
        *(maker.tensor(value) for value in masks if not value.constant),
        *(maker.tensor(value, "kv") for value in past),
    )
    outputs = tuple(maker.tensor(value, "kv" if i else None) for i, value in enumerate(step.outs) if value.name)
    return [projection, part_op(step, "attention", "attention", Wires(inputs, outputs), **attributes)]


def lower_multi_head(step: OnnxStep, maker: Maker) -> list[Op]:
    call = step.call
    sizes = _fixed(multi_head_heads(call))
    past = multi_head_past(call)
    kept = call.has(1) and len(call.shape(1)) == 4  # keys as a cache keeps them are an encoder's, computed once
    attributes = _attention_attributes(
        sizes,
        cached=call.has(past[0]) or kept,
        causal=bool(call.integer("unidirectional")) or "Decoder" in call.node.op_type,
        window=None,
    )
    if kept:
        attributes |= {"cross": True, "context": sizes.keys}
    return [attention_op(step, maker, (0, 1, 2), past, attributes)]


def lower_group_query(step: OnnxStep, maker: Maker) -> list[Op]:
    """With its rotation, where it does that itself. A cache of a fixed length is taken as full."""
    call = step.call
    sizes = _fixed(group_query_heads(call))
    if isinstance(sizes.past, int) and sizes.past:
        call.assume(f"its cache of {sizes.past} tokens is full")
    tables = (9, 10) if call.node.op_type == "SparseAttention" else (7, 8)
    op = attention_op(step, maker, (0, 1, 2), (3, 4), _windowed(step, sizes))
    return _with_rotation(step, maker, op, sizes, tables)


def lower_paged(step: OnnxStep, maker: Maker) -> list[Op]:
    sizes = _fixed(paged_heads(step.call))
    op = attention_op(step, maker, (0, 1, 2), (3, 4), _windowed(step, sizes))
    return _with_rotation(step, maker, op, sizes, (8, 9))


def _windowed(step: OnnxStep, sizes: Heads) -> dict[str, Any]:
    window = step.call.integer("local_window_size", -1)
    return _attention_attributes(
        sizes,
        cached=True,
        causal=True,
        window=window if window > 0 else None,
        soft_cap=step.call.number("softcap") > 0,
    )


def _with_rotation(step: OnnxStep, maker: Maker, op: Op, sizes: Heads, tables: tuple[int, int]) -> list[Op]:
    """The tables of sines and cosines belong to the rotation, which reads a row of them for each token."""
    stored = {tensor.name for tensor in maker.weights([step.call.inputs[i] for i in tables if step.call.has(i)])}
    op = replace(op, weights=tuple(weight for weight in op.weights if weight.name not in stored))
    return [*(_rotation(step, maker, sizes, tables) if step.call.integer("do_rotary") else []), op]


def _rotation(step: OnnxStep, maker: Maker, sizes: Heads, tables: tuple[int, int]) -> list[Op]:
    gathered = _table_rows(step, maker, tables, None, (sizes.batch, sizes.queries))
    dtype = maker.tensor(step.call.value(0)).dtype
    turned = tuple(
        Tensor(
            name=f"{step.name}/{name}",
            shape=(sizes.batch, sizes.queries, algebra.mul(heads, sizes.head_dim)),
            dtype=dtype,
        )
        for name, heads in (("q", sizes.heads), ("k", sizes.kv_heads))
    )
    sources = [value for i in (0, 1) if step.call.has(i) and (value := step.call.inputs[i]) is not None]
    inputs = [maker.tensor(value) for value in sources if not value.constant]
    cos = step.call.inputs[tables[0]] if step.call.has(tables[0]) else None
    attributes: dict[str, Any] = {}
    if cos is not None and cos.shape and isinstance(cos.shape[-1], int):
        attributes = {"rotary_dim": 2 * cos.shape[-1], "head_dim": sizes.head_dim}
    wires = Wires((*inputs, *(gathered[0].outputs if gathered else ())), turned)
    return [*gathered, part_op(step, "rotary", "rotary", wires, **attributes)]
