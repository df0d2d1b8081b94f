"""com.microsoft: the operators that ONNX Runtime's optimiser and exporters write, and its blocked layouts (nchwc)."""

from dataclasses import replace
from math import prod
from typing import Any

from inferometer.core.dims import Dim
from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Tensor
from inferometer.formats.onnx.lower import attention as lower_a
from inferometer.formats.onnx.lower import layers as lower_l
from inferometer.formats.onnx.lower.layers import product_op, unpacked
from inferometer.formats.onnx.rules import attention, common, indexing, microsoft, pointwise, products, windows
from inferometer.formats.onnx.rules.common import static
from inferometer.formats.onnx.step import Lowering, Maker, OnnxRow, OnnxStep, Rule, Wires, part_op
from inferometer.formats.onnx.tables.standard import custom, pool, row

# ONNX Runtime's own operators: packed products, fused layers, experts.

# Packed weights


def lower_n_bits(step: OnnxStep, maker: Maker) -> list[Op]:
    """[N, K] in `bits` bits a number, a scale for each block of them. The bytes are the file's, the parameters N·K."""
    call = step.call
    columns, depth, bits = call.integer("N"), call.integer("K"), call.integer("bits", 4)
    bias = 5 if call.node.op_type == "MatMulNBits" else None
    contracted = depth if call.integer("transB", 1) else columns  # MatMulBnb4 may go through the matrix the other way
    op = product_op(step, maker, (0, 1, bias), contracted, block=call.integer("block_size"), bits=bits)
    return [_unpacked_first(op, (columns, depth), bits)]


def lower_fpq4(step: OnnxStep, maker: Maker) -> list[Op]:
    sides = step.call.whole(2)
    if sides is None or len(sides) != 2:
        return maker.custom(step, "the shape of its weight is not known")
    op = product_op(step, maker, (0, 1, None), sides[0], bits=4)
    return [_unpacked_first(op, sides, 4)]


def lower_block_quantized(bits: int, bias: int) -> Lowering:
    def lower(step: OnnxStep, maker: Maker) -> list[Op]:
        a, b = step.call.shape(0), static(step.call.shape(1))
        if b is None:
            return maker.custom(step, "the shape of its weight is not known")
        op = product_op(step, maker, (0, 1, bias), a[-1], bits=bits)
        return [_unpacked_first(op, (b[0], b[1] * 8 // bits), bits)]

    return lower


def _unpacked_first(op: Op, shape: tuple[Dim, ...], bits: int) -> Op:
    if not op.weights or op.kind != "linear":
        return op
    return replace(op, weights=(unpacked(op.weights[0], shape, bits), *op.weights[1:]))


def lower_nbits_mlp(step: OnnxStep, maker: Maker) -> list[Op]:
    """Optional sum and norm, then gate and up projections of one input, one gated by the other."""
    call, columns = step.call, step.call.integer("N")
    x, ops = _normed(step, maker)
    halves: list[Tensor] = []
    for name, place in (("gate", 3), ("up", 6)):
        y = Tensor(name=f"{step.name}/{name}", shape=(*x.shape[:-1], columns), dtype=x.dtype)
        ops.append(_projection(step, maker, name, place, (x, y)))
        halves.append(y)
    wires = Wires(tuple(halves), (maker.tensor(step.outs[0]),))
    function = call.text("activation", "silu").casefold()
    return [*ops, part_op(step, "gated", "activation", wires, function=function)]


def lower_nbits_qkv(step: OnnxStep, maker: Maker) -> list[Op]:
    """Optional sum, norm, then the projections to q, k and v."""
    x, ops = _normed(step, maker)
    for order, (name, place) in enumerate((("q", 3), ("k", 6), ("v", 9))):
        if order < len(step.outs) and step.outs[order].name:
            ops.append(_projection(step, maker, name, place, (x, maker.tensor(step.outs[order]))))
    return ops


def _normed(step: OnnxStep, maker: Maker) -> tuple[Tensor, list[Op]]:
    """The input as the projections see it, and the norm before them where there is one."""
    call, x = step.call, maker.tensor(step.call.value(0))
    if not call.has(2):
        return x, []
    inner = Tensor(name=f"{step.name}/normed", shape=x.shape, dtype=x.dtype)
    skip = (maker.tensor(call.value(1)),) if call.has(1) else ()
    wires = Wires((x, *skip), (inner,), maker.weights([call.inputs[2]]))
    return inner, [part_op(step, "norm", "norm", wires, norm="rms")]


def _projection(step: OnnxStep, maker: Maker, name: str, index: int, ends: tuple[Tensor, Tensor]) -> Op:
    """Packed weight, scales and bias stand at `place` and the two after it."""
    call, bits, depth = step.call, step.call.integer("bits", 4), step.call.integer("K")
    x, y = ends
    weights = maker.weights([call.inputs[i] for i in (index, index + 2, index + 1) if call.has(i)])
    op = part_op(step, name, "linear", Wires((x,), (y,), weights), contracted=depth, bits=bits)
    return _unpacked_first(op, (y.shape[-1], depth), bits)


def lower_gather_quantized(step: OnnxStep, maker: Maker) -> list[Op]:
    """A lookup in a packed table."""
    call = step.call
    table, bits = static(call.shape(0)), call.integer("bits", 4)
    if table is None or not table or not call.value(0).constant or bits < 1:
        return [maker.op(step, "gather")]
    packed = call.dtype(0) == "u8" and bits < 8
    whole = (*table[:-1], table[-1] * 8 // bits) if packed else table
    op = maker.op(step, "embedding", bits=bits)
    return [replace(op, weights=(unpacked(op.weights[0], whole, bits), *op.weights[1:]))]


# Experts


@frozen
class ExpertPlaces:
    """Where the stacks of a mixture's three projections stand among its inputs."""

    first: int
    second: int
    third: int
    packed: bool


MOE = ExpertPlaces(first=2, second=4, third=6, packed=False)
QMOE = ExpertPlaces(first=2, second=5, third=8, packed=True)


def lower_moe(places: ExpertPlaces) -> Lowering:
    """Router scores come in; the experts' projections are here.

    Their inner width follows from the second stack; a first stack of twice its size holds the gate too.
    """

    def lower(step: OnnxStep, maker: Maker) -> list[Op]:
        call = step.call
        sizes = static((call.shape(1)[-1], call.shape(0)[-1]))
        up, down = (static(call.shape(place)) for place in (places.first, places.second))
        if sizes is None or 0 in sizes or up is None or down is None:
            return maker.custom(step, "the shape of its experts is not known")
        experts, hidden = sizes
        bits = call.integer("expert_weight_bits", 4) if places.packed else 8
        per_byte = 8 // bits if bits in {1, 2, 4, 8} else 1
        function = call.text("activation_type", "relu").casefold()
        op = maker.op(
            step,
            "moe_experts",
            experts=experts,
            top_k=call.integer("k", 1),
            hidden=hidden,
            intermediate=prod(down) * per_byte // (experts * hidden),
            gated=prod(up) == 2 * prod(down) or call.has(places.third),
            function={"swiglu": "silu"}.get(function, function),
        )
        return [_unpacked_stacks(op, bits) if places.packed else op]

    return lower


def _unpacked_stacks(op: Op, bits: int) -> Op:
    """Stacks of packed matrices, [experts, rows, columns / numbers in a byte]."""
    per_byte = max(1, 8 // max(1, bits))
    weights = tuple(
        unpacked(w, (*w.shape[:-1], w.shape[-1] * per_byte), bits) if w.role == "weight" and len(w.shape) == 3 else w
        for w in op.weights
    )
    return replace(op, weights=weights)


# The rest


def lower_embed_norm(step: OnnxStep, maker: Maker) -> list[Op]:
    """Lookups of words, positions and segments, added up and normalised."""
    call = step.call
    ids, y = maker.tensor(call.value(0), "index"), maker.tensor(step.outs[0])
    ops: list[Op] = []
    for name, place, index in (("words", 2, 0), ("positions", 3, 8), ("segments", 4, 1)):
        table = call.inputs[place] if call.has(place) else None
        if table is None or not table.constant:
            continue
        chosen = maker.tensor(call.value(index), "index") if call.has(index) else ids
        out = Tensor(name=f"{step.name}/{name}", shape=y.shape, dtype=y.dtype)
        ops.append(part_op(step, name, "embedding", Wires((chosen,), (out,), maker.weights([table]))))
    outputs = tuple(maker.tensor(value) for value in step.outs if value.name)
    norm = maker.weights([call.inputs[i] for i in (5, 6) if call.has(i)])
    wires = Wires(tuple(op.outputs[0] for op in ops), outputs, norm)
    return [*ops, part_op(step, "norm", "norm", wires, norm="layer")]


def lower_inverse(step: OnnxStep, maker: Maker) -> list[Op]:
    """2·n³ operations a matrix, n² results: 2·n each."""
    n = step.call.shape(0)[-1]
    if not isinstance(n, int):
        return maker.custom(step, "the size of its matrices is not known")
    return [maker.op(step, function="inverse", flops_per_element=max(1, 2 * n))]


def lower_cdist(step: OnnxStep, maker: Maker) -> list[Op]:
    """All distances between two sets of vectors: a product of the one with the other."""
    return [product_op(step, maker, (0, 1, None), step.call.shape(0)[-1])]


_CACHES = ((3, 4), (1, 2))


def _activation(function: str, *, weights: tuple[int, ...] = (), flops: int = 1) -> OnnxRow:
    return row("activation", common.same_as_first, function=function, flops=flops, weights=weights, least=1)


def _elementwise(function: str, rule: Rule, *, flops: int = 1, weights: tuple[int, ...] = ()) -> OnnxRow:
    return row("elementwise", rule, function=function, flops=flops, weights=weights, least=1)


def _product(rule: Rule, lower: Lowering, weights: tuple[int, ...] = (1, 0), least: int = 2) -> OnnxRow:
    return row("matmul", rule, lower=lower, weights=weights, least=least)


def _norm(norm: str, rule: Rule, weights: tuple[int, ...], least: int = 2) -> OnnxRow:
    return row("norm", rule, attributes={"norm": norm}, weights=weights, least=least)


def _conv(rule: Rule, lower: Lowering, weights: tuple[int, ...] = (1, 2)) -> OnnxRow:
    return row("convolution", rule, lower=lower, weights=weights, least=2)


def _attention(rule: Rule, lower: Lowering, **more: Any) -> OnnxRow:
    return row("attention", rule, lower=lower, **more)


_PRODUCTS = {
    "FusedMatMul": _product(products.matmul, lower_l.lower_product()),
    "FusedMatMulActivation": _product(products.matmul, lower_l.lower_product()),
    "TransposeMatMul": _product(products.matmul, lower_l.lower_product()),
    "FusedGemm": _product(products.gemm, lower_l.lower_product(0, 1, 2), (1, 0, 2)),
    "GemmFastGelu": _product(products.matmul, lower_l.lower_product(0, 1, 2, activation="gelu_tanh"), (1, 0, 2)),
    "GemmFloat8": _product(microsoft.gemm_float8, lower_l.lower_product(0, 1, 2, compute="f8e4m3"), (1, 0, 2)),
    "MatMulInteger16": _product(products.matmul_of(dtype="i32"), lower_l.lower_product(compute="i16")),
    "MatMulIntegerToFloat": _product(
        products.matmul_of(dtype=2), lower_l.lower_product(0, 1, 6, compute="i8"), (1, 0, 6), 4
    ),
    "DynamicQuantizeMatMul": _product(products.matmul, lower_l.lower_product(0, 1, 4, compute="i8"), (1, 4), 3),
    "QGemm": _product(microsoft.q_gemm, lower_l.lower_product(0, 3, 6, compute="i8"), (3, 6), 6),
    "QOrderedMatMul": _product(products.matmul_of(0, 2), lower_l.lower_product(0, 2, 5, compute="i8"), (2, 5), 5),
    "MatMulNBits": _product(microsoft.n_bits, lower_n_bits, (1, 5), 3),
    "MatMulBnb4": _product(microsoft.bnb4, lower_n_bits, (1,), 3),
    "MatMulFpQ4": _product(microsoft.fpq4, lower_fpq4, (1,), 3),
    "MatMulBlockQuantizedFp4Weight": _product(microsoft.block_quantized(2), lower_block_quantized(4, 5), (1, 5), 3),
    "MatMulBlockQuantizedFp8Weight": _product(microsoft.block_quantized(1), lower_block_quantized(8, 4), (1, 4), 3),
    "MatMulNBitsMlp": _product(microsoft.nbits_mlp, lower_nbits_mlp, (2, 3, 5, 6, 8), 5),
    "MatMulNBitsQkv": _product(microsoft.nbits_qkv, lower_nbits_qkv, (2, 3, 5, 6, 8, 9, 11), 8),
    "CDist": _product(microsoft.cdist, lower_cdist),
    "SparseToDenseMatMul": custom("how many numbers of its sparse operand are stored is not known"),
}

_CONVOLUTIONS = {
    "FusedConv": _conv(windows.conv(), lower_l.lower_conv()),
    "NhwcConv": _conv(microsoft.channels_last_conv, lower_l.lower_conv()),
    "NhwcFusedConv": _conv(microsoft.channels_last_conv, lower_l.lower_conv()),
    "QLinearConv": _conv(microsoft.qlinear_conv, lower_l.lower_conv(0, 3, 8, compute="i8"), (3, 8)),
    "ConvTransposeWithDynamicPads": _conv(windows.conv_transpose, lower_l.lower_conv(0, 1, 3, transposed=True), (1, 3)),
    "CausalConvWithState": row(
        "convolution", attention.causal_conv, lower=lower_a.lower_causal_conv, weights=(1, 2), states=((3,), (1,)),
        least=2,
    ),
    "NhwcMaxPool": pool("max", microsoft.channels_last_pool),
    "MaxpoolWithMask": row("pool", windows.pool, lower=lower_l.lower_pool("max"), settings=(1,), least=1),
    "QLinearAveragePool": pool("average", microsoft.channels_last_pool),
    "QLinearGlobalAveragePool": pool("global", microsoft.global_pool),
    "GridSample": row("resize", windows.grid_sample, lower=lower_l.lower_sampling, least=2),
    "CropAndResize": row(
        "resize", microsoft.crop_and_resize, lower=lower_l.lower_sampling, indices=(2,), settings=(3,), least=4
    ),
}  # fmt: skip

_NORMS = {
    "LayerNormalization": _norm("layer", products.layer_norm, (1, 2)),
    "SimplifiedLayerNormalization": _norm("rms", products.layer_norm, (1, 2)),
    "SkipLayerNormalization": _norm("layer", microsoft.skip_norm, (2, 3, 4), 3),
    "SkipSimplifiedLayerNormalization": _norm("rms", microsoft.skip_norm, (2, 3), 3),
    "GroupNorm": _norm("group", common.same_as_first, (1, 2)),
    "SkipGroupNorm": _norm("group", common.same_as_first, (1, 2, 4), 4),
    "GatedRMSNorm": _norm("rms", common.same_as_first, (1,)),
    "BranchwiseRMSNorm": _norm("rms", common.same_as_first, (1,), 1),
    "QOrderedLayerNormalization": _norm("layer", common.same_as_first, (2, 3)),
    "EmbedLayerNormalization": row(
        "norm", microsoft.embed_norm, lower=lower_embed_norm, weights=(2, 3, 4, 5, 6), indices=(0, 1, 8),
        least=5,
    ),
    "QEmbedLayerNormalization": row(
        "norm", microsoft.embed_norm, lower=lower_embed_norm, weights=(2, 3, 4, 5, 6), indices=(0, 1), least=5
    ),
}  # fmt: skip

_ATTENTION = {
    "Attention": _attention(
        attention.fused_attention, lower_a.lower_fused_attention, weights=(1, 2), caches=((4,), (1,)), least=2
    ),
    "QAttention": _attention(
        attention.fused_attention, lower_a.lower_fused_attention, weights=(1, 2), caches=((8,), (1,)), least=5
    ),
    "DecoderMaskedSelfAttention": _attention(
        attention.fused_attention, lower_a.lower_fused_attention, weights=(1, 2), caches=((4,), (1,)), least=3
    ),
    "MultiHeadAttention": _attention(
        attention.multi_head, lower_a.lower_multi_head, weights=(3,), caches=((6, 7), (1, 2)), least=1
    ),
    "DecoderMaskedMultiHeadAttention": _attention(
        attention.multi_head, lower_a.lower_multi_head, weights=(10,), caches=((5, 6), (1, 2)), least=1
    ),
    "GroupQueryAttention": _attention(attention.group_query, lower_a.lower_group_query, caches=_CACHES, least=1),
    "SparseAttention": _attention(attention.group_query, lower_a.lower_group_query, caches=_CACHES, least=3),
    "PagedAttention": _attention(attention.paged, lower_a.lower_paged, caches=_CACHES, least=4),
    "PackedAttention": _attention(attention.packed, lower_a.lower_packed, weights=(1, 2), least=4),
    "PackedMultiHeadAttention": _attention(attention.packed, lower_a.lower_packed, weights=(3,), least=3),
    "LongformerAttention": _attention(common.same_as_first, lower_a.lower_longformer, weights=(1, 2, 4, 5), least=7),
    "LinearAttention": row(
        "ssm_scan", attention.linear_attention, lower=lower_a.lower_linear_attention, states=((3,), (1,)), least=3
    ),
    "RotaryEmbedding": row(
        "rotary", common.same_as_first, lower=lower_a.lower_rotary(1, (2, 3)), indices=(1,), least=4
    ),
    "MRotaryEmbedding": row(
        "rotary", common.same_as_first, lower=lower_a.lower_rotary(1, (2, 3)), indices=(1,), least=4
    ),
    "GemmaRotaryEmbedding": _elementwise("rotary", products.shaped_like(1), flops=4),
    "RelativePositionBias": row("gather", microsoft.position_bias, weights=(0,), settings=(1, 2), least=3),
    "MoE": row(
        "moe_experts", common.same_as_first, lower=lower_moe(MOE), weights=(2, 4, 6, 3, 5, 7), least=4
    ),
    "QMoE": row(
        "moe_experts", common.same_as_first, lower=lower_moe(QMOE), weights=(2, 5, 8, 4, 7, 10),
        least=4,
    ),
}  # fmt: skip

_ACTIVATIONS = {
    "Gelu": _activation("gelu"),
    "FastGelu": _activation("gelu_tanh", weights=(1,)),
    "QuickGelu": _activation("quick_gelu"),
    "BiasGelu": _activation("gelu", weights=(1,), flops=6),
    # a bias, a gelu of one half, times the other
    "BiasSplitGelu": row("activation", microsoft.bias_split, function="gelu", flops=8, weights=(1,), least=2),
    "ScaledSiLU": _activation("silu", weights=(1,), flops=6),
    "QOrderedGelu": _activation("gelu"),
    "QLinearSigmoid": _activation("sigmoid"),
    "QLinearLeakyRelu": _activation("leaky_relu"),
    "BiasSoftmax": row("softmax", common.same_as_first, least=2),
    "QLinearSoftmax": row("softmax", common.same_as_first, least=1),
    "BiasAdd": _elementwise("add", common.same_as_first, flops=2, weights=(1,)),
    "BiasDropout": _elementwise("add", microsoft.same_and_mask, flops=2, weights=(1,)),
    "BitmaskBiasDropout": _elementwise("add", microsoft.same_and_mask, flops=2, weights=(1,)),
    "BitmaskDropout": row("view", microsoft.same_and_mask, settings=(1, 2), least=1),
    "GatedAdd": _elementwise("add", pointwise.broadcast_of(0, 1, 2), flops=2),
    "QLinearAdd": _elementwise("add", pointwise.broadcast_of(0, 3)),
    "QLinearMul": _elementwise("mul", pointwise.broadcast_of(0, 3)),
    "QLinearWhere": _elementwise("where", pointwise.broadcast_of(0, 1, 4, dtype=1)),
    "MulInteger": _elementwise("mul", pointwise.broadcast_of(0, 2)),
    "ComplexMul": _elementwise("complex_mul", pointwise.broadcast_of(0, 1), flops=3),
    "ComplexMulConj": _elementwise("complex_mul", pointwise.broadcast_of(0, 1), flops=3),
    "SampleOp": _elementwise("identity", common.same_as_first),
    "LinearAttentionGate": _elementwise("gate", common.same_as_first, flops=6, weights=(1, 2)),
    "Inverse": row("elementwise", common.same_as_first, lower=lower_inverse, least=1),
    "Rfft": row("elementwise", microsoft.rfft, lower=lower_l.lower_transform, least=1),
    "Irfft": row("elementwise", microsoft.irfft, lower=lower_l.lower_transform, least=1),
}  # fmt: skip

_MOVES = {
    "QLinearConcat": row("copy", microsoft.qlinear_concat, function="concat", least=3),
    "ExpandDims": row("view", microsoft.expand_dims, settings=(1,), passes=True, least=2),
    "Pad": row("copy", microsoft.padded, function="pad", settings=(1, 2), least=2),
    "Trilu": row("copy", common.same_as_first, function="trilu", settings=(1,), least=1),
    "UnfoldTensor": row("copy", microsoft.unfold, function="unfold", least=1),
    "RemovePadding": row("gather", microsoft.remove_padding, indices=(1,), least=2),
    "RestorePadding": row("scatter", microsoft.restore_padding, indices=(1,), least=2),
    "GatherND": row("gather", indexing.gather_nd, indices=(1,), least=2),
    "GatherBlockQuantized": row(
        "embedding", microsoft.gather_block_quantized, lower=lower_gather_quantized, weights=(0,),
        indices=(1,), least=3,
    ),
    "TorchEmbedding": row(
        "embedding", indexing.gather, lower=lower_l.lower_gather, weights=(0,), indices=(1,), settings=(2, 3), least=2
    ),
    "Range": row("elementwise", indexing.range_, function="range", settings=(0, 1, 2)),
    "Unique": row("sort", indexing.unique, lower=lower_l.lower_unique, least=1),
    "ReduceSumInteger": row("reduce", pointwise.reduce, lower=lower_l.lower_reduce("sum"), settings=(1,), least=1),
    "QLinearReduceMean": row("reduce", microsoft.qlinear_reduce, function="mean", least=1),
    "IsAllFinite": row("reduce", microsoft.one_flag, function="max", least=1),
    "QuantizeLinear": row("quantize", products.quantize, passes=True, least=2),
    "DequantizeLinear": row("dequantize", products.dequantize, passes=True, least=2),
    "QuantizeWithOrder": row("quantize", products.shaped_like(0, "i8"), least=2),
    "DequantizeWithOrder": row("dequantize", products.shaped_like(0, "f32"), least=2),
    "DynamicQuantizeLSTM": row(
        "recurrent", products.recurrent, lower=lower_l.lower_recurrent("lstm"), weights=(1, 2, 3, 7),
        attributes={"compute": "i8"}, states=((5, 6), (1, 2)), least=3,
    ),
}  # fmt: skip

_GENERATION = "a whole generation runs inside it"
_COMPILED = "it is compiled for a device, and its graph is not in the file"
_RARE = "no rule has been written for it"
_UNCOVERED = {
    "BeamSearch": custom(_GENERATION), "GreedySearch": custom(_GENERATION), "Sampling": custom(_GENERATION),
    "WhisperBeamSearch": custom(_GENERATION), "EPContext": custom(_COMPILED), "Snpe": custom(_COMPILED),
    "Tokenizer": custom("its work depends on the text it is given"),
} | {
    name: custom(_RARE)
    for name in (
        "AttnLSTM", "BifurcationDetector", "DecoderAttention", "DequantizeBFP", "DynamicSparseAttention",
        "DynamicTimeWarping", "EngramGate", "GatedDeltaNet", "GatedRelativePositionBias", "HyperConnectionPostMix",
        "HyperConnectionPreMix", "MurmurHash3", "NGramHashMapping", "NGramRepeatBlock",
        "PackedSparseAttentionIndexer", "QOrderedAttention", "QOrderedLongformerAttention", "QuantizeBFP",
        "SparseAttentionIndexer", "SparsePagedAttention", "VarlenCausalConvWithState", "VarlenNGramHashMapping",
        "WordConvEmbedding",
    )
}  # fmt: skip

MICROSOFT: dict[str, OnnxRow] = {
    **_PRODUCTS, **_CONVOLUTIONS, **_NORMS, **_ATTENTION, **_ACTIVATIONS, **_MOVES, **_UNCOVERED
}  # fmt: skip

# Channels in blocks of as many as a vector register holds; sizes are those of the usual layout.
NCHWC: dict[str, OnnxRow] = {
    "Conv": _conv(windows.conv(), lower_l.lower_conv()),
    "AveragePool": pool("average"),
    "MaxPool": pool("max"),
    "GlobalAveragePool": pool("global", windows.global_pool),
    "GlobalMaxPool": pool("global", windows.global_pool),
    "ReorderInput": row("copy", common.same_as_first, function="reorder", least=1),
    "ReorderOutput": row("copy", microsoft.reordered, function="reorder", least=1),
    "Upsample": row("resize", microsoft.upsampled, lower=lower_l.lower_resize, least=1),
}
