"""ai.onnx.ml: what scikit-learn and its like are exported to."""

from typing import Any

from inferometer.readers.onnx.lower import classic as lower_c
from inferometer.readers.onnx.rules import classic, common
from inferometer.readers.onnx.step import Row, Rule

__all__ = ["CLASSIC"]


def _elementwise(function: str, rule: Rule, flops: int = 1) -> Row:
    attributes: dict[str, Any] = {"function": function}
    if flops != 1:
        attributes["flops_per_element"] = flops
    return Row(kind="elementwise", infer=rule, attributes=attributes, least=1)


def _custom(reason: str, rule: Rule = common.nothing_known) -> Row:
    return Row(kind="custom", infer=rule, attributes={"reason": reason}, folds=False)


_TREES = "how deep its trees are walked depends on the data"

CLASSIC: dict[str, Row] = {
    "ArrayFeatureExtractor": Row(kind="gather", infer=classic.array_feature_extractor, indices=(1,), least=2),
    "Binarizer": _elementwise("greater", common.same_as_first),
    "CastMap": Row(kind="cast", infer=common.nothing_known, folds=False),
    "CategoryMapper": Row(kind="gather", infer=classic.label_encoder, least=1),
    "DictVectorizer": _custom("its work depends on the words it is given"),
    "FeatureVectorizer": Row(kind="copy", infer=classic.feature_vectorizer, attributes={"function": "concat"}, least=1),
    "Imputer": _elementwise("where", common.same_as_first),
    "LabelEncoder": Row(kind="gather", infer=classic.label_encoder, least=1),
    "LinearClassifier": Row(kind="linear", infer=classic.classifier, lower=lower_c.lower_linear, least=1),
    "LinearRegressor": Row(kind="linear", infer=classic.regressor, lower=lower_c.lower_linear, least=1),
    "Normalizer": Row(kind="norm", infer=classic.scaled, attributes={"norm": "l2"}, least=1),
    "OneHotEncoder": Row(kind="scatter", infer=classic.one_hot_encoder, attributes={"function": "one_hot"}, least=1),
    "SVMClassifier": Row(kind="linear", infer=classic.classifier, lower=lower_c.lower_support_vectors, least=1),
    "SVMRegressor": Row(kind="linear", infer=classic.regressor, lower=lower_c.lower_support_vectors, least=1),
    "Scaler": _elementwise("affine", classic.scaled, 2),
    "TreeEnsemble": _custom(_TREES, classic.regressor),
    "TreeEnsembleClassifier": _custom(_TREES, classic.classifier),
    "TreeEnsembleRegressor": _custom(_TREES, classic.regressor),
    "ZipMap": Row(kind="view", infer=classic.zip_map, folds=False, least=1),
}
