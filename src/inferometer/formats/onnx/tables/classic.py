"""ai.onnx.ml: what scikit-learn and its like are exported to."""

from inferometer.formats.onnx.lower import classic as lower_c
from inferometer.formats.onnx.rules import classic, common
from inferometer.formats.onnx.step import OnnxRow
from inferometer.formats.onnx.tables.rows import custom, row

_TREES = "how deep its trees are walked depends on the data"

CLASSIC: dict[str, OnnxRow] = {
    "ArrayFeatureExtractor": row("gather", classic.array_feature_extractor, indices=(1,), least=2),
    "Binarizer": row("elementwise", common.same_as_first, function="greater", least=1),
    "CastMap": row("cast", common.nothing_known, folds=False),
    "CategoryMapper": row("gather", classic.label_encoder, least=1),
    "DictVectorizer": custom("its work depends on the words it is given"),
    "FeatureVectorizer": row("copy", classic.feature_vectorizer, function="concat", least=1),
    "Imputer": row("elementwise", common.same_as_first, function="where", least=1),
    "LabelEncoder": row("gather", classic.label_encoder, least=1),
    "LinearClassifier": row("linear", classic.classifier, lower=lower_c.lower_linear, least=1),
    "LinearRegressor": row("linear", classic.regressor, lower=lower_c.lower_linear, least=1),
    "Normalizer": row("norm", classic.scaled, attributes={"norm": "l2"}, least=1),
    "OneHotEncoder": row("scatter", classic.one_hot_encoder, function="one_hot", least=1),
    "SVMClassifier": row("linear", classic.classifier, lower=lower_c.lower_support_vectors, least=1),
    "SVMRegressor": row("linear", classic.regressor, lower=lower_c.lower_support_vectors, least=1),
    "Scaler": row("elementwise", classic.scaled, function="affine", flops=2, least=1),
    "TreeEnsemble": custom(_TREES, classic.regressor),
    "TreeEnsembleClassifier": custom(_TREES, classic.classifier),
    "TreeEnsembleRegressor": custom(_TREES, classic.regressor),
    "ZipMap": row("view", classic.zip_map, folds=False, least=1),
}
