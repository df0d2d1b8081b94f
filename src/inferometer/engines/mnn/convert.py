"""ONNX as MNN, by the converter in MNN's wheel, and int8 by its quantiser.

The wheel's own commands install a package and report their use over the network, so the library is called instead.
"""

import ctypes
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.core.errors import DomainError, FormatError
from inferometer.engines.onnxruntime.convert import loaded_onnx, save
from inferometer.engines.order import ToolOrder

_OPSET = 13  # from here on Softmax means one axis; of an older one MNN takes the last axis, whatever the file says
_IR = 8  # a version of the file format in which weights need not be listed among the inputs
_WEIGHTS = {"f16": ("--fp16",), "i8": ("--weightQuantBits", "8"), "i4": ("--weightQuantBits", "4")}


def convert(order: ToolOrder) -> Iterator[str]:
    weights = order.options.get("weights")
    _converted(order, order.target, weights)
    if weights in {"i8", "i4"}:
        yield "Only the weights of convolutions and matrix products are stored so, with a scale for each channel."


def quantise(order: ToolOrder) -> Iterator[str]:
    """MNN's quantiser takes a file of its own and a folder with one folder for each set of inputs, written as text.

    Of its ways to find ranges, KL keeps ResNet-50 within 3 %; EMA, which is meant for training, does not (150 %).
    """
    import _tools  # noqa: PLC0415 - an edge, in a child

    beside = order.target.parent.parent
    plain, samples, config = beside / "plain.mnn", beside / "samples", beside / "quantise.json"
    _converted(order, plain, None)
    for number, path in enumerate(order.calibration):
        _write_sample(samples / f"{number:04d}", path)
    config.write_text(json.dumps({"path": f"{samples}/", "used_sample_num": len(order.calibration), **_KL}))
    if not _tools.mnnquant(["mnnquant", str(plain), str(order.target), str(config)]) or not order.target.is_file():
        raise FormatError("MNN's quantiser made nothing of it.", remedy="Quantise the weights alone: i8-weights.")
    yield f"The ranges are those of {len(order.calibration)} sets of inputs, found by MNN's KL method."


_KL = {
    "format": "RGB", "input_type": "sequence", "feature_quantize_method": "KL", "weight_quantize_method": "MAX_ABS",
    "quant_bits": 8,
}  # fmt: skip


def _write_sample(folder: Path, path: Path) -> None:
    folder.mkdir(parents=True)
    inputs = []
    with np.load(path, allow_pickle=False) as stored:
        for name in stored.files:
            if "/" in name:
                raise DomainError(
                    f"MNN's quantiser reads inputs from files with their names, and {name!r} is none.",
                    remedy="Rename the input in the model, or quantise the weights alone: i8-weights.",
                )
            inputs.append({"name": name, "shape": list(stored[name].shape)})
            np.savetxt(folder / f"{name}.txt", stored[name].ravel(), fmt="%.9g")
    (folder / "input.json").write_text(json.dumps({"inputs": inputs, "outputs": []}))


def _converted(order: ToolOrder, target: Path, weights: str | None) -> None:
    import _tools  # noqa: PLC0415 - as above

    source = _rewritten(order, halved=weights == "f16")
    arguments = [
        "MNNConvert", "-f", "ONNX", "--modelFile", str(source), "--MNNModel", str(target), "--bizCode", "inferometer",
        *_WEIGHTS.get(weights or "", ()),
    ]  # fmt: skip
    _tools.mnnconvert(arguments)
    if not target.is_file() or not target.stat().st_size:
        raise FormatError(
            f"MNN's converter made nothing of it{_last_words(order)}.",
            remedy="Replace the operator in the model, or prepare the model for another engine.",
        )


def _last_words(order: ToolOrder) -> str:
    """What the converter printed: it names operators that it does not know there, and raises nothing."""
    ctypes.CDLL(None).fflush(None)
    log = order.target.parent.parent / "log.txt"  # where a child's output goes
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    said = [line.rpartition(": ")[2] for line in lines if "Op Not Support" in line]
    said += [line for line in lines if line.strip().startswith("ONNX::")]
    return f": it does not know {', '.join(dict.fromkeys(word.strip()[:200] for word in said))}" if said else ""


def _rewritten(order: ToolOrder, *, halved: bool) -> Path:
    """The file in operators that are new enough, and with weights that f16 holds where those are asked for."""
    model, changed = _renewed(loaded_onnx(order.source))
    if halved:
        _round_to_half(model)
    if not (changed or halved):
        return order.source
    path = order.target.parent.parent / "rewritten.onnx"
    save(model, path)
    return path


def _round_to_half(model: Any) -> None:
    """Weights as the nearest number that f16 holds, since MNN cuts the digits that do not fit.

    What is cut makes every weight smaller, by 0.03 % in the mean, and that adds up from layer to layer: ResNet-50's
    outputs were 0.33 % too small, ten times what rounding makes of them. A number beyond f16 is left to the converter.
    """
    from onnx import TensorProto, numpy_helper  # noqa: PLC0415 - as above

    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            with np.errstate(over="ignore"):
                values = numpy_helper.to_array(tensor)
                nearest = values.astype(np.float16).astype(np.float32)
            rounded = np.where(np.isfinite(nearest), nearest, values)
            tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))


def _renewed(model: Any) -> tuple[Any, bool]:
    """The model in operators that are new enough, and whether it was changed: not where ONNX cannot rewrite them."""
    import onnx  # noqa: PLC0415 - as above

    version = next((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), _OPSET)
    if version >= _OPSET:
        return model, False
    model.ir_version = max(model.ir_version, _IR)
    try:
        return onnx.version_converter.convert_version(model, _OPSET), True
    except Exception:  # noqa: BLE001 - its errors have no common root; what MNN makes of the file is verified anyway
        return model, False
