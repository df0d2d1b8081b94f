"""ai.onnx.ml's linear models and support vectors, whose coefficients are attributes."""

from dataclasses import replace

from inferometer.core.graph import Op, Tensor
from inferometer.formats.onnx.step import Maker, OnnxStep


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
