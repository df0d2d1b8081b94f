"""ai.onnx.preview.training: optimisers' steps. A graph that holds one is trained, not run."""

from inferometer.readers.onnx.rules.common import nothing_known
from inferometer.readers.onnx.step import Row

__all__ = ["TRAINING"]

TRAINING: dict[str, Row] = {
    name: Row(kind="custom", infer=nothing_known, attributes={"reason": "it is a step of training"}, folds=False)
    for name in ("Adagrad", "Adam", "Gradient", "Momentum")
}
