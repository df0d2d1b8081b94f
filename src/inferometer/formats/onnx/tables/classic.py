"""ai.onnx.ml: what scikit-learn and its like are exported to."""

from dataclasses import replace

from inferometer.core.dims import Dim
from inferometer.core.graph import Op, Tensor
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.faults import UnknownShapeError
from inferometer.formats.onnx.rules import common
from inferometer.formats.onnx.step import Maker, OnnxRow, OnnxStep
from inferometer.formats.onnx.tables.rows import custom, row
from inferometer.formats.onnx.value import Call, Out

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
