"""The standard domain (ai.onnx), every operator of every version, and ai.onnx.preview."""

from inferometer.readers.onnx.lower import attention as lower_a
from inferometer.readers.onnx.lower import layers as lower_l
from inferometer.readers.onnx.lower import products as lower_p
from inferometer.readers.onnx.rules import (
    attention,
    common,
    images,
    indexing,
    layers,
    moves,
    pointwise,
    products,
    reductions,
    sequences,
    signals,
    windows,
)
from inferometer.readers.onnx.step import Row, Rule

__all__ = ["PREVIEW", "STANDARD"]


def _activation(function: str) -> Row:
    return Row(kind="activation", infer=pointwise.unary, attributes={"function": function}, least=1)


def _unary(function: str, *, rule: Rule = pointwise.unary, flops: int = 1) -> Row:
    attributes = {"function": function} if flops == 1 else {"function": function, "flops_per_element": flops}
    return Row(kind="elementwise", infer=rule, attributes=attributes, least=1)


def _binary(function: str, *, rule: Rule = pointwise.pointwise) -> Row:
    return Row(kind="elementwise", infer=rule, attributes={"function": function}, least=1)


def _reduce(function: str) -> Row:
    return Row(kind="reduce", infer=reductions.reduce, lower=lower_l.lower_reduce(function), settings=(1,), least=1)


def _view(rule: Rule, *settings: int, passes: bool = True, least: int = 1) -> Row:
    return Row(kind="view", infer=rule, settings=settings, passes=passes, least=least)


def _copy(function: str, rule: Rule, *settings: int, passes: bool = False, least: int = 1) -> Row:
    return Row(
        kind="copy", infer=rule, attributes={"function": function}, settings=settings, passes=passes, least=least
    )


def _custom(reason: str, rule: Rule = common.nothing_known) -> Row:
    return Row(kind="custom", infer=rule, attributes={"reason": reason}, folds=False)


def _norm(norm: str, rule: Rule = common.same_as_first) -> Row:
    return Row(kind="norm", infer=rule, lower=lower_l.lower_norm(norm), weights=(1, 2), least=1)


def _pool(function: str, rule: Rule = windows.pool) -> Row:
    return Row(kind="pool", infer=rule, lower=lower_l.lower_pool(function), least=1)


def _recurrent(cell: str) -> Row:
    return Row(
        kind="recurrent", infer=layers.recurrent, lower=lower_l.lower_recurrent(cell), weights=(1, 2, 3, 7),
        states=((5, 6), (1, 2)), least=3,
    )  # fmt: skip


def _random(rule: Rule) -> Row:
    return Row(kind="elementwise", infer=rule, attributes={"function": "random"}, folds=False)


_TEXT = "its work depends on the text it is given"

_ACTIVATIONS = {
    name: _activation(function)
    for name, function in {
        "Relu": "relu", "LeakyRelu": "leaky_relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Elu": "elu", "Selu": "selu",
        "Celu": "celu", "HardSigmoid": "hardsigmoid", "HardSwish": "hardswish", "Mish": "mish",
        "Softplus": "softplus", "Softsign": "softsign", "ThresholdedRelu": "thresholded_relu", "Swish": "swish",
        "Shrink": "shrink", "ScaledTanh": "tanh", "ParametricSoftplus": "softplus",
    }.items()
}  # fmt: skip

_UNARIES = {
    name: _unary(name.casefold())
    for name in (
        "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh", "Erf", "Exp",
        "Floor", "Log", "Neg", "Reciprocal", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Tan",
    )
}  # fmt: skip

_BINARIES = {
    name: _binary(name.casefold())
    for name in (
        "Add", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Max", "Mean", "Min", "Mod", "Mul", "Pow",
        "Sub", "Sum",
    )
} | {
    name: _binary(name.casefold(), rule=pointwise.comparison)
    for name in ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Or", "Xor")
}  # fmt: skip

_POINTWISE = {
    "Gelu": Row(kind="activation", infer=pointwise.unary, lower=lower_l.lower_gelu, least=1),
    "PRelu": Row(
        kind="activation", infer=common.same_as_first, attributes={"function": "prelu"}, weights=(1,), least=2
    ),
    "SwiGLU": Row(kind="activation", infer=pointwise.swiglu, attributes={"function": "silu"}, least=2),
    "Clip": Row(kind="activation", infer=pointwise.unary, lower=lower_l.lower_clip, settings=(1, 2), least=1),
    "IsInf": _unary("isinf", rule=pointwise.unary_bool),
    "IsNaN": _unary("isnan", rule=pointwise.unary_bool),
    "Not": _unary("not", rule=pointwise.unary_bool),
    "Where": Row(kind="elementwise", infer=pointwise.where, attributes={"function": "where"}, least=3),
    "CumSum": Row(
        kind="elementwise", infer=common.same_as_first, attributes={"function": "cumsum"}, settings=(1,), least=1
    ),
    "CumProd": Row(
        kind="elementwise", infer=common.same_as_first, attributes={"function": "cumprod"}, settings=(1,), least=1
    ),
    "Softmax": Row(kind="softmax", infer=common.same_as_first, least=1),
    "LogSoftmax": Row(kind="softmax", infer=common.same_as_first, attributes={"function": "log"}, least=1),
    "Hardmax": Row(kind="reduce", infer=common.same_as_first, attributes={"function": "hardmax"}, least=1),
    "Cast": Row(kind="cast", infer=pointwise.cast, passes=True, least=1),
    "CastLike": Row(kind="cast", infer=pointwise.cast_like, passes=True, settings=(1,), least=2),
    "BitCast": _view(pointwise.bit_cast),
    "Dropout": _view(pointwise.dropout, 1, 2),
    "AffineGrid": Row(
        kind="elementwise", infer=images.affine_grid, attributes={"function": "affine_grid", "flops_per_element": 5},
        settings=(1,), least=2,
    ),
    "EyeLike": Row(kind="copy", infer=indexing.eye_like, attributes={"function": "fill"}, settings=(0,), least=1),
    "Trilu": _copy("trilu", common.same_as_first, 1),
    "ReverseSequence": _copy("reverse", common.same_as_first, 1, least=2),
    "Affine": _unary("affine", flops=2),
    "ImageScaler": _unary("affine", flops=2),
}  # fmt: skip

_RANDOM = {
    "RandomNormal": _random(indexing.random_of_shape),
    "RandomUniform": _random(indexing.random_of_shape),
    "RandomNormalLike": _random(pointwise.random_like),
    "RandomUniformLike": _random(pointwise.random_like),
    "Bernoulli": _random(pointwise.random_like),
    "Multinomial": Row(kind="sampling", infer=indexing.multinomial, folds=False, least=1),
}

_MOVES = {
    "Reshape": _view(moves.reshape, 1),
    "Flatten": _view(moves.flatten),
    "Squeeze": _view(moves.squeeze, 1),
    "Unsqueeze": _view(moves.unsqueeze, 1),
    "Identity": _view(moves.identity),
    "Shape": _view(indexing.shape_of, passes=False),
    "Size": _view(indexing.size_of, passes=False),
    "Transpose": _copy("transpose", moves.permute, passes=True),
    "Concat": _copy("concat", moves.concatenate),
    "Slice": _copy("slice", moves.slice_, 1, 2, 3, 4),
    "DynamicSlice": _copy("slice", moves.slice_, 1, 2, 3),
    "Split": _copy("split", moves.split, 1),
    "Pad": _copy("pad", moves.pad, 1, 2, 3),
    "Expand": _copy("expand", moves.expand, 1, least=2),
    "Tile": _copy("tile", moves.tile, 1, least=2),
    "DepthToSpace": _copy("depth_to_space", moves.depth_to_space),
    "SpaceToDepth": _copy("space_to_depth", moves.space_to_depth),
    "CenterCropPad": _copy("crop", images.center_crop_pad, 1, least=2),
    "ConstantOfShape": _copy("fill", indexing.constant_of_shape, 0),
    "Range": Row(kind="elementwise", infer=indexing.range_, attributes={"function": "range"}, settings=(0, 1, 2)),
}

_INDEXING = {
    "Gather": Row(
        kind="gather", infer=indexing.gather, lower=lower_l.lower_gather, weights=(0,), indices=(1,), least=2
    ),
    "GatherElements": Row(kind="gather", infer=indexing.gather_elements, indices=(1,), least=2),
    "GatherND": Row(kind="gather", infer=indexing.gather_nd, indices=(1,), least=2),
    "Compress": Row(kind="gather", infer=indexing.compress, indices=(1,), least=2),
    "NonZero": Row(kind="gather", infer=indexing.non_zero, attributes={"function": "non_zero"}, least=1),
    "Scatter": Row(kind="scatter", infer=indexing.scatter_elements, lower=lower_l.lower_scatter, indices=(1,), least=3),
    "ScatterElements": Row(
        kind="scatter", infer=indexing.scatter_elements, lower=lower_l.lower_scatter, indices=(1,), least=3
    ),
    "ScatterND": Row(kind="scatter", infer=indexing.scatter_nd, lower=lower_l.lower_scatter, indices=(1,), least=3),
    "TensorScatter": Row(
        kind="scatter", infer=indexing.tensor_scatter, attributes={"in_place": True}, settings=(2,),
        caches=((0,), (0,)), least=2,
    ),
    "OneHot": Row(
        kind="scatter", infer=indexing.one_hot, attributes={"function": "one_hot"}, indices=(0,), settings=(1, 2),
        least=3,
    ),
    "MaxUnpool": Row(kind="scatter", infer=windows.max_unpool, indices=(1,), settings=(2,), least=2),
    "Col2Im": Row(kind="scatter", infer=images.col2im, attributes={"reduction": "add"}, settings=(1, 2), least=3),
    "TopK": Row(kind="sort", infer=indexing.top_k, lower=lower_l.lower_sort, settings=(1,), least=1),
    "Unique": Row(kind="sort", infer=indexing.unique, lower=lower_l.lower_unique, least=1),
    "NonMaxSuppression": Row(
        kind="sort", infer=indexing.non_max_suppression, lower=lower_l.lower_suppression, settings=(2, 3, 4), least=2
    ),
}  # fmt: skip

_REDUCTIONS = {
    name: _reduce(function)
    for name, function in {
        "ReduceL1": "l1", "ReduceL2": "l2", "ReduceLogSum": "log_sum", "ReduceLogSumExp": "logsumexp",
        "ReduceMax": "max", "ReduceMean": "mean", "ReduceMin": "min", "ReduceProd": "prod", "ReduceSum": "sum",
        "ReduceSumSquare": "sum_square",
    }.items()
} | {
    "ArgMax": Row(kind="reduce", infer=reductions.arg_reduce, lower=lower_l.lower_arg("argmax"), least=1),
    "ArgMin": Row(kind="reduce", infer=reductions.arg_reduce, lower=lower_l.lower_arg("argmin"), least=1),
    "NegativeLogLikelihoodLoss": Row(
        kind="reduce", infer=reductions.loss, attributes={"function": "mean"}, indices=(1,), least=2
    ),
    "SoftmaxCrossEntropyLoss": Row(
        kind="reduce", infer=reductions.loss_and_log, attributes={"function": "logsumexp"}, indices=(1,), least=2
    ),
}  # fmt: skip

_WINDOWS = {
    "Conv": Row(kind="convolution", infer=windows.conv(), lower=lower_l.lower_conv(), weights=(1, 2), least=2),
    "ConvInteger": Row(
        kind="convolution", infer=windows.conv(dtype_from="i32"), lower=lower_l.lower_conv(0, 1, None, compute="i8"),
        weights=(1,), least=2,
    ),
    "QLinearConv": Row(
        kind="convolution", infer=windows.conv(0, 3, 7), lower=lower_l.lower_conv(0, 3, 8, compute="i8"),
        weights=(3, 8), least=8,
    ),
    "ConvTranspose": Row(
        kind="convolution", infer=windows.conv_transpose, lower=lower_l.lower_conv(transposed=True), weights=(1, 2),
        least=2,
    ),
    "DeformConv": Row(
        kind="convolution", infer=windows.conv(), lower=lower_l.lower_conv(0, 1, 3), weights=(1, 3), least=3
    ),
    "CausalConvWithState": Row(
        kind="convolution", infer=attention.causal_conv, lower=lower_a.lower_causal_conv, weights=(1, 2),
        states=((3,), (1,)), least=2,
    ),
    "AveragePool": _pool("average"),
    "MaxPool": _pool("max"),
    "LpPool": _pool("lp"),
    "GlobalAveragePool": _pool("global", windows.global_pool),
    "GlobalMaxPool": _pool("global", windows.global_pool),
    "GlobalLpPool": _pool("global", windows.global_pool),
    "MaxRoiPool": Row(kind="pool", infer=windows.roi_pool, attributes={"function": "max"}, least=2),
    "RoiAlign": Row(kind="pool", infer=windows.roi_align, lower=lower_l.lower_roi_align, indices=(2,), least=3),
    "Resize": Row(kind="resize", infer=images.resize, lower=lower_l.lower_resize, settings=(1, 2, 3), least=1),
    "Upsample": Row(kind="resize", infer=images.upsample, lower=lower_l.lower_resize, settings=(1,), least=1),
    "GridSample": Row(kind="resize", infer=images.grid_sample, lower=lower_l.lower_resize, least=2),
    "Crop": _copy("crop", common.nothing_known, 1),
}  # fmt: skip

_LAYERS = {
    "MatMul": Row(kind="matmul", infer=products.matmul, lower=lower_p.lower_product(), weights=(1, 0), least=2),
    "Gemm": Row(kind="linear", infer=products.gemm, lower=lower_p.lower_product(0, 1, 2), weights=(1, 0, 2), least=2),
    "MatMulInteger": Row(
        kind="matmul", infer=products.matmul_of(dtype="i32"), lower=lower_p.lower_product(compute="i8"),
        weights=(1, 0), least=2,
    ),
    "QLinearMatMul": Row(
        kind="matmul", infer=products.matmul_of(0, 3, 7), lower=lower_p.lower_product(0, 3, compute="i8"),
        weights=(3, 0), least=8,
    ),
    "Einsum": Row(kind="matmul", infer=products.einsum, lower=lower_p.lower_einsum, weights=(1, 0), least=1),
    "Attention": Row(
        kind="attention", infer=attention.attention, lower=lower_a.lower_attention, caches=((4, 5), (1, 2)), least=3
    ),
    "LinearAttention": Row(
        kind="ssm_scan", infer=attention.linear_attention, lower=lower_a.lower_linear_attention, states=((3,), (1,)),
        least=3,
    ),
    "RotaryEmbedding": Row(
        kind="rotary", infer=common.same_as_first, lower=lower_a.lower_rotary(positions=3), indices=(3,), least=3
    ),
    "LSTM": _recurrent("lstm"),
    "GRU": _recurrent("gru"),
    "RNN": _recurrent("rnn"),
    "BatchNormalization": _norm("batch", layers.batch_norm),
    "InstanceNormalization": _norm("instance"),
    "GroupNormalization": _norm("group"),
    "LayerNormalization": _norm("layer", layers.layer_norm),
    "SimplifiedLayerNormalization": _norm("rms", layers.layer_norm),  # ONNX Runtime keeps it in this domain
    "RMSNormalization": _norm("rms"),
    "LpNormalization": _norm("l2"),
    "MeanVarianceNormalization": _norm("instance"),
    "LRN": Row(kind="norm", infer=common.same_as_first, lower=lower_l.lower_lrn, least=1),
    "QuantizeLinear": Row(kind="quantize", infer=layers.quantize, passes=True, least=2),
    "DequantizeLinear": Row(kind="dequantize", infer=layers.dequantize, passes=True, least=2),
    "DynamicQuantizeLinear": Row(kind="quantize", infer=layers.dynamic_quantize, attributes={"dynamic": True}, least=1),
}  # fmt: skip

_SIGNALS = {
    "DFT": Row(kind="elementwise", infer=signals.dft, lower=lower_l.lower_transform, settings=(1, 2), least=1),
    "STFT": Row(kind="elementwise", infer=signals.stft, lower=lower_l.lower_transform, settings=(1, 3), least=2),
    "HannWindow": _unary("window", rule=signals.window_function, flops=4),
    "HammingWindow": _unary("window", rule=signals.window_function, flops=4),
    "BlackmanWindow": _unary("window", rule=signals.window_function, flops=8),
    "MelWeightMatrix": Row(
        kind="elementwise", infer=signals.mel_weights, attributes={"function": "mel"}, settings=(0, 1, 2, 3, 4), least=5
    ),
    "Det": Row(kind="reduce", infer=signals.determinant, lower=lower_l.lower_determinant, least=1),
    "ImageDecoder": _custom("its work depends on the image it is given", signals.image_decoder),
    "RegexFullMatch": _custom(_TEXT, layers.shaped_like(0, "bool")),
    "StringConcat": _custom(_TEXT, pointwise.pointwise),
    "StringNormalizer": _custom(_TEXT),
    "StringSplit": _custom(_TEXT, signals.string_split),
    "TfIdfVectorizer": _custom("its work depends on the words it is given", signals.tf_idf),
}  # fmt: skip

_SEQUENCES = {
    "SequenceConstruct": _copy("sequence", sequences.sequence_construct, least=0),
    "SequenceEmpty": _view(sequences.sequence_empty, passes=False, least=0),
    "SequenceInsert": _copy("sequence", sequences.sequence_insert, 2, least=2),
    "SequenceErase": _view(sequences.sequence_erase, 1, passes=False),
    "SequenceAt": _copy("sequence", sequences.sequence_at, 1, least=2),
    "SequenceLength": _view(sequences.sequence_length, passes=False),
    "ConcatFromSequence": _copy("concat", sequences.concat_from_sequence),
    "SplitToSequence": _copy("split", sequences.split_to_sequence, 1),
    "Optional": _view(sequences.optional, passes=False, least=0),
    "OptionalGetElement": _view(sequences.optional_element, passes=False),
    "OptionalHasElement": _view(sequences.optional_has_element, passes=False, least=0),
}

# Their bodies are walked, not looked up: these rows only give the kind. A Constant never becomes an op.
_CONTROL = {name: Row(kind="control", infer=common.nothing_known, folds=False) for name in ("If", "Loop", "Scan",
"SequenceMap")} | {
    "Constant": Row(kind="view", infer=common.nothing_known)
}  # fmt: skip

STANDARD: dict[str, Row] = {
    **_ACTIVATIONS, **_UNARIES, **_BINARIES, **_POINTWISE, **_RANDOM, **_MOVES, **_INDEXING, **_REDUCTIONS, **_WINDOWS,
    **_LAYERS, **_SIGNALS, **_SEQUENCES, **_CONTROL,
}  # fmt: skip

PREVIEW: dict[str, Row] = {
    "FlexAttention": Row(kind="attention", infer=attention.attention, lower=lower_a.lower_attention, least=3),
}
