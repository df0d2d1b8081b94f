"""ONNX Runtime's attention operators, with the projections and rotations that some of them hold."""

from dataclasses import replace
from typing import Any

from inferometer.core.graph import Op, Tensor
from inferometer.readers.onnx import algebra
from inferometer.readers.onnx.lower.attention import attention_attributes, attention_op, fixed_heads, table_rows
from inferometer.readers.onnx.rules.attention import Heads
from inferometer.readers.onnx.rules.microsoft_attention import (
    fused_heads,
    group_query_heads,
    multi_head_heads,
    multi_head_past,
    packed_heads,
    paged_heads,
    past_place,
)
from inferometer.readers.onnx.step import Maker, Step, Wires, part_op

__all__ = [
    "lower_fused_attention", "lower_group_query", "lower_longformer", "lower_multi_head", "lower_packed",
    "lower_paged",
]  # fmt: skip

_NO_HEADS = "the sizes of its heads are not known"


def lower_fused_attention(step: Step, maker: Maker) -> list[Op]:
    """The projection to q, k and v, then attention."""
    return _projected(step, maker, fused_heads(step.call), (past_place(step.call),))


def lower_packed(step: Step, maker: Maker) -> list[Op]:
    if step.call.node.op_type == "PackedAttention":
        return _projected(step, maker, packed_heads(step.call), ())
    sizes = packed_heads(step.call)
    if not fixed_heads(sizes):
        return maker.custom(step, _NO_HEADS)
    attributes = attention_attributes(sizes, cached=False, causal=False, window=None)
    return [attention_op(step, maker, (0, 1, 2), (), attributes)]


def lower_longformer(step: Step, maker: Maker) -> list[Op]:
    """Each token meets `window` tokens on each side. What is global is left out."""
    x, heads = step.call.shape(0), step.call.integer("num_heads")
    if not isinstance(x[-1], int) or heads < 1 or len(x) != 3:
        return maker.custom(step, _NO_HEADS)
    size = x[-1] // heads
    sizes = Heads(x[0], heads, heads, head_dim=size, value_dim=size, queries=x[1], keys=x[1])
    return _projected(step, maker, sizes, (), window=2 * step.call.integer("window") + 1)


def _projected(
    step: Step, maker: Maker, sizes: Heads, caches: tuple[int, ...], *, window: int | None = None
) -> list[Op]:
    if not fixed_heads(sizes):
        return maker.custom(step, _NO_HEADS)
    call = step.call
    quantised = call.node.op_type == "QAttention"
    x, y = maker.tensor(call.value(0)), maker.tensor(step.outs[0])
    each = algebra.add(algebra.mul(sizes.head_dim, 2), sizes.value_dim)
    qkv = Tensor(name=f"{step.name}/qkv", shape=(*x.shape[:-1], algebra.mul(sizes.heads, each)), dtype=y.dtype)
    scales = (3, 4, 6, 7) if quantised else ()
    weights = maker.weights([call.inputs[i] for i in (1, 2, *scales) if call.has(i)])
    extra = {"compute": "i8"} if quantised else {}
    wires = Wires((x,), (qkv,), weights)
    projection = part_op(step, "projection", "linear", wires, contracted=x.shape[-1], **extra)
    attributes = attention_attributes(
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


def lower_multi_head(step: Step, maker: Maker) -> list[Op]:
    call = step.call
    sizes = multi_head_heads(call)
    if not fixed_heads(sizes):
        return maker.custom(step, _NO_HEADS)
    past = multi_head_past(call)
    kept = call.has(1) and len(call.shape(1)) == 4  # keys as a cache keeps them are an encoder's, computed once
    attributes = attention_attributes(
        sizes,
        cached=call.has(past[0]) or kept,
        causal=bool(call.integer("unidirectional")) or "Decoder" in call.node.op_type,
        window=None,
    )
    if kept:
        attributes |= {"cross": True, "context": sizes.keys}
    return [attention_op(step, maker, (0, 1, 2), past, attributes)]


def lower_group_query(step: Step, maker: Maker) -> list[Op]:
    """With its rotation, where it does that itself. A cache of a fixed length is taken as full."""
    call = step.call
    sizes = group_query_heads(call)
    if not fixed_heads(sizes):
        return maker.custom(step, _NO_HEADS)
    if isinstance(sizes.past, int) and sizes.past:
        call.assume(f"its cache of {sizes.past} tokens is full")
    tables = (9, 10) if call.node.op_type == "SparseAttention" else (7, 8)
    op = attention_op(step, maker, (0, 1, 2), (3, 4), _windowed(step, sizes))
    return _with_rotation(step, maker, op, sizes, tables)


def lower_paged(step: Step, maker: Maker) -> list[Op]:
    sizes = paged_heads(step.call)
    if not fixed_heads(sizes):
        return maker.custom(step, _NO_HEADS)
    op = attention_op(step, maker, (0, 1, 2), (3, 4), _windowed(step, sizes))
    return _with_rotation(step, maker, op, sizes, (8, 9))


def _windowed(step: Step, sizes: Heads) -> dict[str, Any]:
    window = step.call.integer("local_window_size", -1)
    return attention_attributes(
        sizes,
        cached=True,
        causal=True,
        window=window if window > 0 else None,
        soft_cap=step.call.number("softcap") > 0,
    )


def _with_rotation(step: Step, maker: Maker, op: Op, sizes: Heads, tables: tuple[int, int]) -> list[Op]:
    """The tables of sines and cosines belong to the rotation, which reads a row of them for each token."""
    stored = {tensor.name for tensor in maker.weights([step.call.inputs[i] for i in tables if step.call.has(i)])}
    op = replace(op, weights=tuple(weight for weight in op.weights if weight.name not in stored))
    return [*(_rotation(step, maker, sizes, tables) if step.call.integer("do_rotary") else []), op]


def _rotation(step: Step, maker: Maker, sizes: Heads, tables: tuple[int, int]) -> list[Op]:
    gathered = table_rows(step, maker, tables, None, (sizes.batch, sizes.queries))
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
