"""The standard domain (ai.onnx), every operator of every version, ai.onnx.preview and ai.onnx.ml."""

from dataclasses import replace
from typing import Any

from inferometer.core.dims import Dim
from inferometer.core.graph import Op, Tensor
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.faults import UnknownShapeError
from inferometer.formats.onnx.lower import attention as lower_a
from inferometer.formats.onnx.lower import layers as lower_l
from inferometer.formats.onnx.rules import attention, common, indexing, moves, pointwise, products, sequences, windows
from inferometer.formats.onnx.rules.common import nothing_known
from inferometer.formats.onnx.rules.windows import pool as pool_rule
from inferometer.formats.onnx.step import Maker, OnnxRow, OnnxStep, Rule
from inferometer.formats.onnx.value import Call, Out

# The few shapes that rows of the tables have.


def row(kind: str, infer: Rule, *, function: str = "", flops: int = 1, **more: Any) -> OnnxRow:
    """A row whose op has a function, and a cost an element other than 1, where these are given."""
    named: dict[str, Any] = {"function": function} if function else {}
    counted = {"flops_per_element": flops} if flops != 1 else {}
    return OnnxRow(kind=kind, infer=infer, attributes={**named, **counted, **more.pop("attributes", {})}, **more)


def custom(reason: str, rule: Rule = nothing_known) -> OnnxRow:
    """An operator whose work cannot be read off the file."""
    return OnnxRow(kind="custom", infer=rule, attributes={"reason": reason}, folds=False)


def pool(function: str, rule: Rule = pool_rule) -> OnnxRow:
    return OnnxRow(kind="pool", infer=rule, lower=lower_l.lower_pool(function), least=1)


def _reduce(function: str) -> OnnxRow:
    return row("reduce", pointwise.reduce, lower=lower_l.lower_reduce(function), settings=(1,), least=1)


def _view(rule: Rule, *settings: int, passes: bool = True, least: int = 1) -> OnnxRow:
    return row("view", rule, settings=settings, passes=passes, least=least)


def _copy(function: str, rule: Rule, *settings: int, passes: bool = False, least: int = 1) -> OnnxRow:
    return row("copy", rule, function=function, settings=settings, passes=passes, least=least)


def _norm(norm: str, rule: Rule = common.same_as_first) -> OnnxRow:
    return row("norm", rule, attributes={"norm": norm}, weights=(1, 2), least=1)


def _recurrent(cell: str) -> OnnxRow:
    lower = lower_l.lower_recurrent(cell)
    return row("recurrent", products.recurrent, lower=lower, weights=(1, 2, 3, 7), states=((5, 6), (1, 2)), least=3)


def _random(rule: Rule) -> OnnxRow:
    return row("elementwise", rule, function="random", folds=False)


_TEXT = "its work depends on the text it is given"

_ACTIVATIONS = {
    name: row("activation", pointwise.unary, function=function, least=1)
    for name, function in {
        "Relu": "relu", "LeakyRelu": "leaky_relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Elu": "elu", "Selu": "selu",
        "Celu": "celu", "HardSigmoid": "hardsigmoid", "HardSwish": "hardswish", "Mish": "mish",
        "Softplus": "softplus", "Softsign": "softsign", "ThresholdedRelu": "thresholded_relu", "Swish": "swish",
        "Shrink": "shrink", "ScaledTanh": "tanh", "ParametricSoftplus": "softplus",
    }.items()
}  # fmt: skip

_UNARIES = {
    name: row("elementwise", pointwise.unary, function=name.casefold(), least=1)
    for name in (
        "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh", "Erf", "Exp",
        "Floor", "Log", "Neg", "Reciprocal", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Tan",
    )
}  # fmt: skip

_BINARIES = {
    name: row("elementwise", pointwise.pointwise, function=name.casefold(), least=1)
    for name in (
        "Add", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Max", "Mean", "Min", "Mod", "Mul", "Pow",
        "Sub", "Sum",
    )
} | {
    name: row("elementwise", pointwise.comparison, function=name.casefold(), least=1)
    for name in ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Or", "Xor")
}  # fmt: skip

_POINTWISE = {
    "Gelu": row("activation", pointwise.unary, lower=lower_l.lower_gelu, least=1),
    "PRelu": row("activation", common.same_as_first, function="prelu", weights=(1,), least=2),
    "SwiGLU": row("activation", pointwise.broadcast_of(0, 1), function="silu", least=2),
    "Clip": row("activation", pointwise.unary, lower=lower_l.lower_clip, settings=(1, 2), least=1),
    "IsInf": row("elementwise", pointwise.unary_bool, function="isinf", least=1),
    "IsNaN": row("elementwise", pointwise.unary_bool, function="isnan", least=1),
    "Not": row("elementwise", pointwise.unary_bool, function="not", least=1),
    "Where": row("elementwise", pointwise.where, function="where", least=3),
    "CumSum": row("elementwise", common.same_as_first, function="cumsum", settings=(1,), least=1),
    "CumProd": row("elementwise", common.same_as_first, function="cumprod", settings=(1,), least=1),
    "Softmax": row("softmax", common.same_as_first, least=1),
    "LogSoftmax": row("softmax", common.same_as_first, function="log", least=1),
    "Hardmax": row("reduce", common.same_as_first, function="hardmax", least=1),
    "Cast": row("cast", pointwise.cast, passes=True, least=1),
    "CastLike": row("cast", pointwise.cast_like, passes=True, settings=(1,), least=2),
    "BitCast": _view(pointwise.bit_cast),
    "Dropout": _view(pointwise.dropout, 1, 2),
    "AffineGrid": row("elementwise", windows.affine_grid, function="affine_grid", flops=5, settings=(1,), least=2),
    "EyeLike": row("copy", pointwise.retyped, function="fill", settings=(0,), least=1),
    "Trilu": _copy("trilu", common.same_as_first, 1),
    "ReverseSequence": _copy("reverse", common.same_as_first, 1, least=2),
    "Affine": row("elementwise", pointwise.unary, function="affine", flops=2, least=1),
    "ImageScaler": row("elementwise", pointwise.unary, function="affine", flops=2, least=1),
}  # fmt: skip

_RANDOM = {
    "RandomNormal": _random(indexing.random_of_shape),
    "RandomUniform": _random(indexing.random_of_shape),
    "RandomNormalLike": _random(pointwise.retyped),
    "RandomUniformLike": _random(pointwise.retyped),
    "Bernoulli": _random(pointwise.retyped),
    "Multinomial": row("sampling", indexing.multinomial, folds=False, least=1),
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
    "CenterCropPad": _copy("crop", windows.center_crop_pad, 1, least=2),
    "ConstantOfShape": _copy("fill", indexing.constant_of_shape, 0),
    "Range": row("elementwise", indexing.range_, function="range", settings=(0, 1, 2)),
}

_INDEXING = {
    "Gather": row("gather", indexing.gather, lower=lower_l.lower_gather, weights=(0,), indices=(1,), least=2),
    "GatherElements": row("gather", indexing.gather_elements, indices=(1,), least=2),
    "GatherND": row("gather", indexing.gather_nd, indices=(1,), least=2),
    "Compress": row("gather", indexing.compress, indices=(1,), least=2),
    "NonZero": row("gather", indexing.non_zero, function="non_zero", least=1),
    "Scatter": row("scatter", indexing.scatter, lower=lower_l.lower_scatter, indices=(1,), least=3),
    "ScatterElements": row("scatter", indexing.scatter, lower=lower_l.lower_scatter, indices=(1,), least=3),
    "ScatterND": row("scatter", indexing.scatter, lower=lower_l.lower_scatter, indices=(1,), least=3),
    "TensorScatter": row(
        "scatter", common.same_as_first, attributes={"in_place": True}, settings=(2,), caches=((0,), (0,)), least=2
    ),
    "OneHot": row("scatter", indexing.one_hot, function="one_hot", indices=(0,), settings=(1, 2), least=3),
    "MaxUnpool": row("scatter", windows.max_unpool, indices=(1,), settings=(2,), least=2),
    "Col2Im": row("scatter", windows.col2im, attributes={"reduction": "add"}, settings=(1, 2), least=3),
    "TopK": row("sort", indexing.top_k, lower=lower_l.lower_sort, settings=(1,), least=1),
    "Unique": row("sort", indexing.unique, lower=lower_l.lower_unique, least=1),
    "NonMaxSuppression": row(
        "sort", indexing.non_max_suppression, lower=lower_l.lower_suppression, settings=(2, 3, 4), least=2
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
    "ArgMax": row("reduce", pointwise.arg_reduce, lower=lower_l.lower_arg("argmax"), least=1),
    "ArgMin": row("reduce", pointwise.arg_reduce, lower=lower_l.lower_arg("argmin"), least=1),
    "NegativeLogLikelihoodLoss": row("reduce", pointwise.loss, function="mean", indices=(1,), least=2),
    "SoftmaxCrossEntropyLoss": row("reduce", pointwise.loss, function="logsumexp", indices=(1,), least=2),
}  # fmt: skip

_WINDOWS = {
    "Conv": row("convolution", windows.conv(), lower=lower_l.lower_conv(), weights=(1, 2), least=2),
    "ConvInteger": row(
        "convolution", windows.conv(dtype_from="i32"), lower=lower_l.lower_conv(0, 1, None, compute="i8"),
        weights=(1,), least=2,
    ),
    "QLinearConv": row(
        "convolution", windows.conv(0, 3, 7), lower=lower_l.lower_conv(0, 3, 8, compute="i8"), weights=(3, 8), least=8
    ),
    "ConvTranspose": row(
        "convolution", windows.conv_transpose, lower=lower_l.lower_conv(transposed=True), weights=(1, 2), least=2
    ),
    "DeformConv": row("convolution", windows.conv(), lower=lower_l.lower_conv(0, 1, 3), weights=(1, 3), least=3),
    "CausalConvWithState": row(
        "convolution", attention.causal_conv, lower=lower_a.lower_causal_conv, weights=(1, 2), states=((3,), (1,)),
        least=2,
    ),
    "AveragePool": pool("average"),
    "MaxPool": pool("max"),
    "LpPool": pool("lp"),
    "GlobalAveragePool": pool("global", windows.global_pool),
    "GlobalMaxPool": pool("global", windows.global_pool),
    "GlobalLpPool": pool("global", windows.global_pool),
    "MaxRoiPool": row("pool", windows.roi_pool, function="max", least=2),
    "RoiAlign": row("pool", windows.roi_align, lower=lower_l.lower_roi_align, indices=(2,), least=3),
    "Resize": row("resize", windows.resize, lower=lower_l.lower_resize, settings=(1, 2, 3), least=1),
    "Upsample": row("resize", windows.upsample, lower=lower_l.lower_resize, settings=(1,), least=1),
    "GridSample": row("resize", windows.grid_sample, lower=lower_l.lower_sampling, least=2),
    "Crop": _copy("crop", common.nothing_known, 1),
}  # fmt: skip

_LAYERS = {
    "MatMul": row("matmul", products.matmul, lower=lower_l.lower_product(), weights=(1, 0), least=2),
    "Gemm": row("linear", products.gemm, lower=lower_l.lower_product(0, 1, 2), weights=(1, 0, 2), least=2),
    "MatMulInteger": row(
        "matmul", products.matmul_of(dtype="i32"), lower=lower_l.lower_product(compute="i8"), weights=(1, 0), least=2
    ),
    "QLinearMatMul": row(
        "matmul", products.matmul_of(0, 3, 7), lower=lower_l.lower_product(0, 3, compute="i8"), weights=(3, 0),
        least=8,
    ),
    "Einsum": row("matmul", products.einsum, lower=lower_l.lower_einsum, weights=(1, 0), least=1),
    "Attention": row("attention", attention.attention, lower=lower_a.lower_attention, caches=((4, 5), (1, 2)), least=3),
    "LinearAttention": row(
        "ssm_scan", attention.linear_attention, lower=lower_a.lower_linear_attention, states=((3,), (1,)), least=3
    ),
    "RotaryEmbedding": row(
        "rotary", common.same_as_first, lower=lower_a.lower_rotary(positions=3), indices=(3,), least=3
    ),
    "LSTM": _recurrent("lstm"),
    "GRU": _recurrent("gru"),
    "RNN": _recurrent("rnn"),
    "BatchNormalization": _norm("batch", products.batch_norm),
    "InstanceNormalization": _norm("instance"),
    "GroupNormalization": _norm("group"),
    "LayerNormalization": _norm("layer", products.layer_norm),
    "SimplifiedLayerNormalization": _norm("rms", products.layer_norm),  # ONNX Runtime keeps it in this domain
    "RMSNormalization": _norm("rms"),
    "LpNormalization": _norm("l2"),
    "MeanVarianceNormalization": _norm("instance"),
    "LRN": row("norm", common.same_as_first, lower=lower_l.lower_lrn, least=1),
    "QuantizeLinear": row("quantize", products.quantize, passes=True, least=2),
    "DequantizeLinear": row("dequantize", products.dequantize, passes=True, least=2),
    "DynamicQuantizeLinear": row("quantize", products.dynamic_quantize, attributes={"dynamic": True}, least=1),
}  # fmt: skip

_SIGNALS = {
    "DFT": row("elementwise", sequences.dft, lower=lower_l.lower_transform, settings=(1, 2), least=1),
    "STFT": row("elementwise", sequences.stft, lower=lower_l.lower_transform, settings=(1, 3), least=2),
    "HannWindow": row("elementwise", sequences.window_function, function="window", flops=4, least=1),
    "HammingWindow": row("elementwise", sequences.window_function, function="window", flops=4, least=1),
    "BlackmanWindow": row("elementwise", sequences.window_function, function="window", flops=8, least=1),
    "MelWeightMatrix": row("elementwise", sequences.mel_weights, function="mel", settings=(0, 1, 2, 3, 4), least=5),
    "Det": row("reduce", sequences.determinant, lower=lower_l.lower_determinant, least=1),
    "ImageDecoder": custom("its work depends on the image it is given", sequences.image_decoder),
    "RegexFullMatch": custom(_TEXT, products.shaped_like(0, "bool")),
    "StringConcat": custom(_TEXT, pointwise.pointwise),
    "StringNormalizer": custom(_TEXT),
    "StringSplit": custom(_TEXT, sequences.string_split),
    "TfIdfVectorizer": custom("its work depends on the words it is given", sequences.tf_idf),
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
_CONTROL = {
    **{name: row("control", common.nothing_known, folds=False) for name in ("If", "Loop", "Scan", "SequenceMap")},
    "Constant": row("view", common.nothing_known),
}

STANDARD: dict[str, OnnxRow] = {
    **_ACTIVATIONS, **_UNARIES, **_BINARIES, **_POINTWISE, **_RANDOM, **_MOVES, **_INDEXING, **_REDUCTIONS, **_WINDOWS,
    **_LAYERS, **_SIGNALS, **_SEQUENCES, **_CONTROL,
}  # fmt: skip

PREVIEW: dict[str, OnnxRow] = {
    "FlexAttention": row("attention", attention.attention, lower=lower_a.lower_attention, least=3),
}

# Optimisers' steps: a graph that holds one is trained, not run.
TRAINING = {name: custom("it is a step of training") for name in ("Adagrad", "Adam", "Gradient", "Momentum")}


# ai.onnx.ml: what scikit-learn and its like are exported to.

# ai.onnx.ml's linear models and support vectors, whose coefficients are attributes.


def lower_linear(step: OnnxStep, maker: Maker) -> list[Op]:
    """A row of coefficients for each class or target. The scores are the result that is computed."""
    return _with_coefficients(step, maker, step.call.count("coefficients"), step.call.count("intercepts"))


def lower_support_vectors(step: OnnxStep, maker: Maker) -> list[Op]:
    """A product with each support vector; the kernel's function and the votes after it are left out."""
    return _with_coefficients(step, maker, step.call.count("support_vectors"), 0)


def _with_coefficients(step: OnnxStep, maker: Maker, count: int, intercepts: int) -> list[Op]:
    shape = step.call.value(0).shape
    width = shape[-1] if shape else None
    if not isinstance(width, int) or not width or not count:
        return maker.custom(step, "how many features it takes is not known")
    weights = [Tensor(name=f"{step.name}/coefficients", shape=(count // width, width), dtype="f32", role="weight")]
    if intercepts:
        weights.append(Tensor(name=f"{step.name}/intercepts", shape=(intercepts,), dtype="f32", role="weight"))
    op = maker.op(step, "linear", contracted=width)
    rows = shape[:-1] if shape else ()
    inner = Tensor(name=f"{step.name}/scores", shape=(*rows, count // width), dtype="f32")
    outputs = tuple(tensor for tensor in op.outputs if tensor.name != inner.name)
    return [replace(op, weights=tuple(weights), outputs=(inner, *outputs))]


# ai.onnx.ml: scalers, encoders, linear models, support vectors and trees.


def scaled(call: Call) -> list[Out]:
    return [Out(call.shape(0), "f32" if call.dtype(0) != "f64" else "f64")]


def _rows(call: Call) -> Dim:
    shape = call.shape(0)
    return shape[0] if len(shape) > 1 else 1


def classes(call: Call) -> int | None:
    """How many classes a classifier has, from its labels."""
    names = ("classlabels_ints", "classlabels_int64s", "classlabels_strings")
    return next((call.count(name) for name in names if call.count(name)), None)


def classifier(call: Call) -> list[Out]:
    """A label for each row, and a score for each class."""
    label = "string" if call.count("classlabels_strings") else "i64"
    return [Out((_rows(call),), label), Out((_rows(call), classes(call)), "f32")]


def regressor(call: Call) -> list[Out]:
    targets = call.integer("targets", call.integer("n_targets", 1))
    return [Out((_rows(call), targets), call.dtype(0) if call.dtype(0) == "f64" else "f32")]


def label_encoder(call: Call) -> list[Out]:
    formats = (("values_int64s", "i64"), ("values_floats", "f32"), ("values_strings", "string"))
    values = call.tensor("values_tensor")
    dtype = values.dtype if values is not None else next((f for name, f in formats if call.count(name)), None)
    if dtype is None:  # before version 2: between text and whole numbers
        dtype = "i64" if call.dtype(0) == "string" else "string"
    return [Out(call.shape(0), dtype)]


def array_feature_extractor(call: Call) -> list[Out]:
    x, chosen = call.shape(0), algebra.product(call.shape(1))
    return [Out((1, chosen) if len(x) == 1 else (*x[:-1], chosen), call.dtype(0))]


def one_hot_encoder(call: Call) -> list[Out]:
    count = call.count("cats_int64s") or call.count("cats_strings")
    return [Out((*call.shape(0), count), "f32")]


def feature_vectorizer(call: Call) -> list[Out]:
    widths = call.integers("inputdimensions")
    if widths is None:
        raise UnknownShapeError
    return [Out((_rows(call), sum(widths)), "f32")]


def zip_map(call: Call) -> list[Out]:
    """A map from label to score for each row."""
    return [Out((), "f32", None, "sequence", _rows(call))]


_TREES = "how deep its trees are walked depends on the data"

CLASSIC: dict[str, OnnxRow] = {
    "ArrayFeatureExtractor": row("gather", array_feature_extractor, indices=(1,), least=2),
    "Binarizer": row("elementwise", common.same_as_first, function="greater", least=1),
    "CastMap": row("cast", common.nothing_known, folds=False),
    "CategoryMapper": row("gather", label_encoder, least=1),
    "DictVectorizer": custom("its work depends on the words it is given"),
    "FeatureVectorizer": row("copy", feature_vectorizer, function="concat", least=1),
    "Imputer": row("elementwise", common.same_as_first, function="where", least=1),
    "LabelEncoder": row("gather", label_encoder, least=1),
    "LinearClassifier": row("linear", classifier, lower=lower_linear, least=1),
    "LinearRegressor": row("linear", regressor, lower=lower_linear, least=1),
    "Normalizer": row("norm", scaled, attributes={"norm": "l2"}, least=1),
    "OneHotEncoder": row("scatter", one_hot_encoder, function="one_hot", least=1),
    "SVMClassifier": row("linear", classifier, lower=lower_support_vectors, least=1),
    "SVMRegressor": row("linear", regressor, lower=lower_support_vectors, least=1),
    "Scaler": row("elementwise", scaled, function="affine", flops=2, least=1),
    "TreeEnsemble": custom(_TREES, regressor),
    "TreeEnsembleClassifier": custom(_TREES, classifier),
    "TreeEnsembleRegressor": custom(_TREES, regressor),
    "ZipMap": row("view", zip_map, folds=False, least=1),
}
