"""ONNX as MNN, by the converter in MNN's wheel.

The wheel's own command installs a package and reports its use over the network, so the library is called instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.prepare.order import ToolOrder

_WEIGHTS = {"f16": ("--fp16",), "i8": ("--weightQuantBits", "8"), "i4": ("--weightQuantBits", "4")}


def convert(order: ToolOrder) -> Iterator[str]:
    import _tools  # noqa: PLC0415 - an edge, in a child

    weights = order.options.get("weights")
    arguments = [
        "MNNConvert", "-f", "ONNX", "--modelFile", str(order.source), "--MNNModel", str(order.target), "--bizCode",
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
