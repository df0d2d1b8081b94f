"""ONNX Runtime's own operators: packed products, fused layers, experts."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from inferometer.core.dims import Dim
from inferometer.core.graph import Op, Tensor
from inferometer.readers.onnx import algebra
from inferometer.readers.onnx.lower.attention import (
    attention_attributes,
    attention_op,
    fixed_heads,
    table_rows,
)
from inferometer.readers.onnx.lower.products import product_op, unpacked
from inferometer.readers.onnx.rules.attention import Heads
from inferometer.readers.onnx.rules.common import static
from inferometer.readers.onnx.rules.microsoft_attention import (
    fused_heads,
    group_query_heads,
    multi_head_heads,
    multi_head_past,
    packed_heads,
    paged_heads,
    past_place,
)
from inferometer.readers.onnx.step import Lowering, Maker, Step

__all__ = [
    "lower_bias_split", "lower_block_quantized", "lower_embed_norm", "lower_fused_attention", "lower_gather_quantized",
    "lower_group_query", "lower_inverse", "lower_longformer", "lower_moe", "lower_multi_head", "lower_n_bits", "lower_nbits_mlp",
    "lower_nbits_qkv", "lower_packed", "lower_paged",
]  # fmt: skip


# Packed weights --------------------------------------------------------------------------------------------------------


def lower_n_bits(step: Step, maker: Maker) -> list[Op]:
    """[N, K] in `bits` bits a number, a scale for each block of them. The bytes are the file's, the parameters N·K."""
    call = step.call
    columns, depth, bits = call.integer("N"), call.integer("K"), call.integer("bits", 4)
    bias = 5 if call.node.op_type == "MatMulNBits" else None
    op = product_op(step, maker, (0, 1, bias), depth, block=call.integer("block_size"), bits=bits)
    return [_unpacked_first(op, (columns, depth), bits)]


def lower_fpq4(step: Step, maker: Maker) -> list[Op]:
    sides = step.call.whole(2)
    if sides is None or len(sides) != 2:
        return maker.custom(step, "the shape of its weight is not known")
    op = product_op(step, maker, (0, 1, None), sides[0], bits=4)
    return [_unpacked_first(op, sides, 4)]


def lower_block_quantized(bits: int, bias: int) -> Lowering:
    def lower(step: Step, maker: Maker) -> list[Op]:
        a, b = step.call.value(0).shape, static(step.call.value(1).shape)
        if not a or b is None:
            return maker.custom(step, "the shapes of its operands are not known")
        op = product_op(step, maker, (0, 1, bias), a[-1], bits=bits)
        return [_unpacked_first(op, (b[0], b[1] * 8 // bits), bits)]

    return lower


def _unpacked_first(op: Op, shape: tuple[Dim, ...], bits: int) -> Op:
    if not op.weights or op.kind != "linear":
        return op
    return replace(op, weights=(unpacked(op.weights[0], shape, bits), *op.weights[1:]))


def lower_nbits_mlp(step: Step, maker: Maker) -> list[Op]:
    """Optional sum and norm, then gate and up projections of one input, their product gated."""
    return _nbits_parts(step, maker, (("gate", 3), ("up", 6)), step.call.integer("N"))


def lower_nbits_qkv(step: Step, maker: Maker) -> list[Op]:
    wide, narrow = step.call.integer("Nq"), step.call.integer("Nkv")
    return _nbits_parts(step, maker, (("q", 3), ("k", 6), ("v", 9)), wide, narrow)


def _nbits_parts(
    step: Step, maker: Maker, parts: tuple[tuple[str, int], ...], wide: int, narrow: int | None = None
) -> list[Op]:
    call, bits, depth = step.call, step.call.integer("bits", 4), step.call.integer("K")
    x = maker.tensor(call.value(0))
    ops: list[Op] = []
    if call.has(2):
        inner = Tensor(name=f"{step.name}/normed", shape=x.shape, dtype=x.dtype)
        skip = (maker.tensor(value),) if (value := call.inputs[1]) is not None else ()
        norm = maker.weights([call.inputs[2]])
        ops.append(_part(step, "norm", "norm", (x, *skip), (inner,), norm, norm="rms"))
        x = inner
    named = [maker.tensor(value) for value in step.outs if value.name]
    for order, (name, place) in enumerate(parts):
        columns = wide if order == 0 or narrow is None else narrow
        y = Tensor(name=f"{step.name}/{name}", shape=(*x.shape[:-1], columns), dtype=x.dtype)
        if narrow is not None and order < len(named):
            y = named[order]
        weights = maker.weights([call.inputs[i] for i in (place, place + 2, place + 1) if i < len(call.inputs)])
        op = _part(step, name, "linear", (x,), (y,), weights, contracted=depth, bits=bits)
        ops.append(_unpacked_first(op, (columns, depth), bits))
    if narrow is None:
        halves = tuple(op.outputs[0] for op in ops[-2:])
        function = call.text("activation", "silu").casefold()
        ops.append(_part(step, "gated", "activation", halves, tuple(named[:1]), (), function=function))
    return ops


def _part(
    step: Step,
    suffix: str,
    kind: str,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    weights: tuple[Tensor, ...],
    **attributes: Any,
) -> Op:
    """One op of several that a node stands for."""
    return Op(
        name=f"{step.name}/{suffix}",
        kind=kind,
        inputs=inputs,
        outputs=outputs,
        weights=weights,
        attributes=attributes,
        source_type=step.op_type,
    )


def lower_gather_quantized(step: Step, maker: Maker) -> list[Op]:
    """A lookup in a packed table."""
    call, result = step.call, step.outs[0].shape
    table = static(call.value(0).shape)
    if table is None or result is None or not call.value(0).constant:
        return [maker.op(step, "gather")]
    bits = call.integer("bits", 4)
    packed = call.dtype(0) == "u8" and bits < 8
    whole = (*table[:-1], table[-1] * 8 // bits) if packed else table
    op = maker.op(step, "embedding", bits=bits)
    return [replace(op, weights=(unpacked(op.weights[0], whole, bits), *op.weights[1:]))]


# Attention ---------------------------------------------------------------------------------------------------------------


def lower_fused_attention(step: Step, maker: Maker) -> list[Op]:
    """The projection to q, k and v, then attention."""
    sizes = fused_heads(step.call)
    past = past_place(step.call)
    quantised = step.call.node.op_type == "QAttention"
    return _projected(step, maker, sizes, (past,), quantised=quantised)


def lower_packed(step: Step, maker: Maker) -> list[Op]:
    if step.call.node.op_type == "PackedAttention":
        return _projected(step, maker, packed_heads(step.call), (), quantised=False)
    sizes = packed_heads(step.call, 4)
    if not fixed_heads(sizes):
        return maker.custom(step, "the sizes of its heads are not known")
    attributes = attention_attributes(sizes, cached=False, causal=False, window=None)
    return [attention_op(step, maker, (0, 1, 2), (), attributes)]


def lower_longformer(step: Step, maker: Maker) -> list[Op]:
    """Each token meets `window` tokens on each side. What is global is left out."""
    call = step.call
    x, heads = call.shape(0), call.integer("num_heads")
    if not isinstance(x[-1], int) or heads < 1 or len(x) != 3:
        return maker.custom(step, "the sizes of its heads are not known")
    size = x[-1] // heads
    sizes = Heads(
        batch=x[0], heads=heads, kv_heads=heads, head_dim=size, value_dim=size, queries=x[1], keys=x[1], past=0
    )
    return _projected(step, maker, sizes, (), quantised=False, window=2 * call.integer("window") + 1)


def _projected(
    step: Step, maker: Maker, sizes: Heads, caches: tuple[int, ...], *, quantised: bool, window: int | None = None
) -> list[Op]:
    if not fixed_heads(sizes):
        return maker.custom(step, "the sizes of its heads are not known")
    call = step.call
    x = maker.tensor(call.value(0))
    wide = algebra.add(
        algebra.mul(sizes.heads, algebra.mul(sizes.head_dim, 2)), algebra.mul(sizes.heads, sizes.value_dim)
    )
    y = maker.tensor(step.outs[0])
    qkv = Tensor(name=f"{step.name}/qkv", shape=(*x.shape[:-1], wide), dtype=y.dtype)
    scales = (3, 4, 6, 7) if quantised else ()
    weights = maker.weights([call.inputs[i] for i in (1, 2, *scales) if call.has(i)])
    extra = {"compute": "i8"} if quantised else {}
    linear = _part(step, "projection", "linear", (x,), (qkv,), weights, contracted=x.shape[-1], **extra)
    attributes = attention_attributes(
        sizes,
        cached=any(call.has(place) for place in caches) or len([v for v in step.outs if v.name]) > 1,
        causal=bool(call.integer("unidirectional")) or "Decoder" in call.node.op_type,
        window=window,
    )
    taken = {0, 1, 2, *scales, *caches}
    masks = tuple(
        maker.tensor(v) for i, v in enumerate(call.inputs) if i not in taken and v is not None and not v.constant
    )
    past = tuple(maker.tensor(v, "kv") for i in caches if call.has(i) and (v := call.inputs[i]) is not None)
    outputs = tuple(maker.tensor(v, "kv" if i else None) for i, v in enumerate(step.outs) if v.name)
    attention = _part(step, "attention", "attention", (qkv, *masks, *past), outputs, (), **attributes)
    return [linear, attention]


def lower_multi_head(step: Step, maker: Maker) -> list[Op]:
    call = step.call
    sizes = multi_head_heads(call)
    if not fixed_heads(sizes):
        return maker.custom(step, "the sizes of its heads are not known")
    past = multi_head_past(call)
    # keys laid out as a cache keeps them are an encoder's, computed once
    kept = call.has(1) and len(call.shape(1)) == 4
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
        return maker.custom(step, "the sizes of its heads are not known")
    window = call.integer("local_window_size", -1)
    if isinstance(sizes.past, int) and sizes.past:
        call.assume(f"its cache of {sizes.past} tokens is full")
    attributes = attention_attributes(
        sizes,
        cached=True,
        causal=True,
        window=window if window > 0 else None,
        soft_cap=call.number("softcap") > 0,
    )
    tables = (9, 10) if call.node.op_type == "SparseAttention" else (7, 8)
    rotation = _rotation(step, maker, sizes, tables) if call.integer("do_rotary") else []
    op = attention_op(step, maker, (0, 1, 2), (3, 4), attributes)
    stored = {tensor.name for tensor in maker.weights([call.inputs[i] for i in tables if call.has(i)])}
    return [*rotation, replace(op, weights=tuple(w for w in op.weights if w.name not in stored))]


def _rotation(step: Step, maker: Maker, sizes: Heads, tables: tuple[int, int]) -> list[Op]:
    gathered = table_rows(step, maker, tables, None, (sizes.batch, sizes.queries))
    dtype = maker.tensor(step.call.value(0)).dtype
    both = tuple(
        Tensor(
            name=f"{step.name}/{name}",
            shape=(sizes.batch, sizes.queries, algebra.mul(heads, sizes.head_dim)),
            dtype=dtype,
        )
        for name, heads in (("q", sizes.heads), ("k", sizes.kv_heads))
    )
    sources = tuple(
        maker.tensor(v)
        for i in (0, 1)
        if step.call.has(i) and (v := step.call.inputs[i]) is not None and not v.constant
    )
    angles = gathered[0].outputs if gathered else ()
    attributes: dict[str, Any] = {}
    cos = step.call.inputs[tables[0]] if step.call.has(tables[0]) else None
    if cos is not None and cos.shape and isinstance(cos.shape[-1], int):
        attributes = {"rotary_dim": 2 * cos.shape[-1], "head_dim": sizes.head_dim}
    return [*gathered, _part(step, "rotary", "rotary", (*sources, *angles), both, (), **attributes)]


def lower_paged(step: Step, maker: Maker) -> list[Op]:
    call = step.call
    sizes = paged_heads(call)
    if not fixed_heads(sizes):
        return maker.custom(step, "the sizes of its heads are not known")
    window = call.integer("local_window_size", -1)
    attributes = attention_attributes(
        sizes, cached=True, causal=True, window=window if window > 0 else None, soft_cap=call.number("softcap") > 0
    )
    rotation = _rotation(step, maker, sizes, (8, 9)) if call.integer("do_rotary") else []
    return [*rotation, attention_op(step, maker, (0, 1, 2), (3, 4), attributes)]


# Experts, embeddings, the rest -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertPlaces:
    """Where the stacks of a mixture's three projections stand among its inputs."""

    first: int
    second: int
    third: int
    packed: bool


MOE = ExpertPlaces(first=2, second=4, third=6, packed=False)
QMOE = ExpertPlaces(first=2, second=5, third=8, packed=True)


def lower_moe(places: ExpertPlaces) -> Lowering:
    """Router scores come in; the experts' projections are here. How wide they are inside, the second tells; a first of
    twice its size holds the gate too.
    """

    def lower(step: Step, maker: Maker) -> list[Op]:
        call = step.call
        scores, x = call.value(1).shape, call.value(0).shape
        stacks = [static(call.value(place).shape) for place in (places.first, places.second)]
        experts, hidden = (scores[-1] if scores else None), (x[-1] if x else None)
        if not isinstance(experts, int) or not isinstance(hidden, int) or None in stacks or not experts * hidden:
            return maker.custom(step, "the shape of its experts is not known")
        bits = call.integer("expert_weight_bits", 4) if places.packed else 8
        each = 8 // bits if bits in {1, 2, 4, 8} else 1
        up, down = (prod(stack or ()) * each for stack in stacks)
        fused = up == 2 * down
        function = call.text("activation_type", "relu").casefold()
        op = maker.op(
            step,
            "moe_experts",
            experts=experts,
            top_k=call.integer("k", 1),
            hidden=hidden,
            intermediate=down // (experts * hidden),
            gated=fused or call.has(places.third),
            function={"swiglu": "silu"}.get(function, function),
        )
        return [_unpacked_stacks(op, bits) if places.packed else op]

    return lower


def _unpacked_stacks(op: Op, bits: int) -> Op:
    """Stacks of packed matrices, [experts, rows, columns / numbers in a byte]."""
    each = max(1, 8 // max(1, bits))
    weights = tuple(
        unpacked(w, (*w.shape[:-1], w.shape[-1] * each), bits) if w.role == "weight" and len(w.shape) == 3 else w
        for w in op.weights
    )
    return replace(op, weights=weights)


def lower_embed_norm(step: Step, maker: Maker) -> list[Op]:
    """Lookups of words, positions and segments, added up and normalised."""
    call = step.call
    ids = maker.tensor(call.value(0), "index")
    y = maker.tensor(step.outs[0])
    ops: list[Op] = []
    summed: list[Tensor] = []
    for name, place, index in (("words", 2, 0), ("positions", 3, 8), ("segments", 4, 1)):
        table = call.inputs[place] if call.has(place) else None
        if table is None or not table.constant:
            continue
        chosen = maker.tensor(value, "index") if call.has(index) and (value := call.inputs[index]) is not None else ids
        out = Tensor(name=f"{step.name}/{name}", shape=y.shape, dtype=y.dtype)
        ops.append(_part(step, name, "embedding", (chosen,), (out,), maker.weights([table])))
        summed.append(out)
    outputs = tuple(maker.tensor(value) for value in step.outs if value.name)
    norm = maker.weights([call.inputs[i] for i in (5, 6) if call.has(i)])
    return [*ops, _part(step, "norm", "norm", tuple(summed), outputs, norm, norm="layer")]


def lower_bias_split(step: Step, maker: Maker) -> list[Op]:
    """A bias, a gelu of one half, times the other."""
    return [maker.op(step, function="gelu", flops_per_element=8)]


def lower_inverse(step: Step, maker: Maker) -> list[Op]:
    """2·n³ operations a matrix, n² results: 2·n each."""
    shape = step.call.value(0).shape
    n = shape[-1] if shape else None
    if not isinstance(n, int):
        return maker.custom(step, "the size of its matrices is not known")
    return [maker.op(step, function="inverse", flops_per_element=2 * n)]


def lower_cdist(step: Step, maker: Maker) -> list[Op]:
    """All distances between two sets of vectors: a product of the one with the other."""
    a = step.call.value(0).shape
    if not a:
        return maker.custom(step, "the shapes of its operands are not known")
    return [product_op(step, maker, (0, 1, None), a[-1])]


def lower_fft(step: Step, maker: Maker) -> list[Op]:
    """As for a DFT: about 2.5·log₂ n operations a number, along the last axis of the signal."""
    shape = step.call.value(0).shape
    place = -1 if step.call.node.op_type == "Rfft" else -2
    points = shape[place] if shape is not None and len(shape) >= -place else None
    if not isinstance(points, int) or points < 1:
        return maker.custom(step, "the length of the transform is not known")
    stages = max(1, (points - 1).bit_length())
    return [maker.op(step, function="fft", flops_per_element=-(-5 * stages // 2))]
