"""ONNX as MNN, by the converter in MNN's wheel.

The wheel's own command installs a package and reports its use over the network, so the library is called instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from inferometer.prepare.order import ToolOrder

_OPSET = 13  # from here on Softmax means one axis; of an older one MNN takes the last axis, whatever the file says
_IR = 8  # a version of the file format in which weights need not be listed among the inputs
_WEIGHTS = {"f16": ("--fp16",), "i8": ("--weightQuantBits", "8"), "i4": ("--weightQuantBits", "4")}


def convert(order: ToolOrder) -> Iterator[str]:
    import _tools  # noqa: PLC0415 - an edge, in a child

    weights = order.options.get("weights")
    source = _renewed(order)
    arguments = [
        "MNNConvert", "-f", "ONNX", "--modelFile", str(source), "--MNNModel", str(order.target), "--bizCode",
        "inferometer", *_WEIGHTS.get(weights or "", ()),
    ]  # fmt: skip
    _tools.mnnconvert(arguments)
    if not order.target.is_file() or not order.target.stat().st_size:
        raise FormatError(
            "MNN's converter made nothing of it; what it printed names the operator.",
            remedy="Replace the operator in the model, or prepare the model for another engine.",
        )
    if weights in {"i8", "i4"}:
        yield "Only the weights of convolutions and matrix products are stored so, with a scale for each channel."


def _renewed(order: ToolOrder) -> Path:
    """The file in operators that are new enough; as it is, where they are or where ONNX cannot rewrite them."""
    import onnx  # noqa: PLC0415 - as above

    model = onnx.load(str(order.source))
    version = next((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), _OPSET)
    if version >= _OPSET:
        return order.source
    model.ir_version = max(model.ir_version, _IR)
    path = order.target.parent.parent / "renewed.onnx"
    try:
        onnx.save(onnx.version_converter.convert_version(model, _OPSET), str(path))
    except Exception:  # noqa: BLE001 - its errors have no common root; what MNN makes of the file is verified anyway
        return order.source
    return path
