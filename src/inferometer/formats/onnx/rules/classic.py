"""ai.onnx.ml: scalers, encoders, linear models, support vectors and trees."""

from inferometer.core.dims import Dim
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.faults import UnknownShapeError
from inferometer.formats.onnx.value import Call, Out


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
