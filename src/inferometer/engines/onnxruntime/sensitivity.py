"""How far a network's outputs drift when one of its layers alone has its weights in fewer bits."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.engines.onnxruntime.convert import loaded_onnx

Array = np.ndarray[Any, Any]

_PRODUCTS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": -1}  # the axis that a weight's outputs run along


def weight_drifts(path: Path, inputs: Sequence[Mapping[str, Array]], *, bits: int) -> dict[str, float]:
    """By the name of each weight that is multiplied: the root mean square change of the outputs, over their own.

    The weights are listed among the file's inputs, so that one session runs the network with each of them rounded in
    turn. What folding would have joined with a weight stays apart therefore: times mean nothing here, numbers do.
    """
    import onnxruntime  # noqa: PLC0415 - an edge

    model = loaded_onnx(path)
    weights = _weights(model)
    axes = {name: axis for name, (_, axis) in weights.items()}
    model.graph.input.extend(_value_info(tensor) for tensor, _ in weights.values())
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    right = [session.run(None, dict(given)) for given in inputs]
    drifts = {}
    for name, array in _arrays(weights).items():
        rounded = rounded_weight(array, axes[name], bits)
        ran = [session.run(None, {**given, name: rounded}) for given in inputs]
        drifts[name] = max(map(_drift, right, ran))
    return drifts


def rounded_weight(array: Array, axis: int, bits: int) -> Array:
    """The weight rounded to `bits` bits and back: whole numbers about zero, with one scale for each output."""
    most = 2 ** (bits - 1) - 1
    rest = tuple(index for index in range(array.ndim) if index != axis % array.ndim)
    scale = np.maximum(np.abs(array).max(axis=rest, keepdims=True), np.finfo(array.dtype).tiny) / most
    rounded: Array = (np.round(array / scale) * scale).astype(array.dtype)
    return rounded


def _weights(model: Any) -> dict[str, tuple[Any, int]]:
    """Stored matrices and windows that a product multiplies with, in the order of the file."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    known = {value.name for value in model.graph.input}
    found: dict[str, tuple[Any, int]] = {}
    for node in model.graph.node:
        if node.op_type not in _PRODUCTS or len(node.input) < 2:
            continue
        tensor = stored.get(node.input[1])
        if tensor is not None and len(tensor.dims) > 1 and tensor.name not in known:
            flipped = node.op_type == "Gemm" and any(each.name == "transB" and each.i for each in node.attribute)
            found[tensor.name] = tensor, 0 if flipped else _PRODUCTS[node.op_type]
    return found


def _value_info(tensor: Any) -> Any:
    from onnx import helper  # noqa: PLC0415 - an edge

    return helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))


def _arrays(weights: Mapping[str, tuple[Any, int]]) -> dict[str, Array]:
    from onnx import numpy_helper  # noqa: PLC0415 - an edge

    arrays = {name: numpy_helper.to_array(tensor) for name, (tensor, _) in weights.items()}
    return {name: array for name, array in arrays.items() if array.dtype.kind == "f"}


def _drift(right: Sequence[Array], ran: Sequence[Array]) -> float:
    """The worst output's."""
    worst = 0.0
    for before, after in zip(right, ran, strict=True):
        if before.dtype.kind == "f" and before.size:
            size = float(np.sqrt(np.mean(np.square(before, dtype=np.float64))))
            change = float(np.sqrt(np.mean(np.square(np.subtract(after, before, dtype=np.float64)))))
            worst = max(worst, change / size if size else float(change > 0))
    return worst
