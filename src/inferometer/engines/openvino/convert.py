"""OpenVINO's own files: its converter makes them, NNCF quantises them."""

import logging
from collections.abc import Iterator
from typing import Any

from inferometer.engines.order import ToolOrder


def convert(order: ToolOrder) -> None:
    import openvino  # noqa: PLC0415 - an edge, in a child

    openvino.save_model(openvino.convert_model(str(order.source)), str(order.target), compress_to_fp16=False)


def halve(order: ToolOrder) -> None:
    import openvino  # noqa: PLC0415 - as above

    openvino.save_model(_read(order), str(order.target), compress_to_fp16=True)


def quantise(order: ToolOrder) -> Iterator[str]:
    import nncf  # noqa: PLC0415 - as above
    import openvino  # noqa: PLC0415 - as above

    logging.getLogger("nncf").setLevel(logging.ERROR)
    model = _read(order)
    names = [port.any_name for port in model.inputs]
    dataset = nncf.Dataset(order.calibration, lambda path: _inputs(path, names))
    quantised = nncf.quantize(model, dataset, subset_size=len(order.calibration))
    openvino.save_model(quantised, str(order.target), compress_to_fp16=False)
    yield f"The ranges are those of {len(order.calibration)} sets of inputs."


def compress(order: ToolOrder) -> None:
    """Weights alone: eight bits by channel, or four in groups with eight in the first and last layer."""
    import nncf  # noqa: PLC0415 - as above
    import openvino  # noqa: PLC0415 - as above

    logging.getLogger("nncf").setLevel(logging.ERROR)
    narrow = order.options["weights"] == "i4"
    mode = nncf.CompressWeightsMode.INT4_SYM if narrow else nncf.CompressWeightsMode.INT8_SYM
    more = {"group_size": -1, "ratio": 1.0} if narrow else {}
    openvino.save_model(nncf.compress_weights(_read(order), mode=mode, **more), str(order.target))


def _read(order: ToolOrder) -> Any:
    import openvino  # noqa: PLC0415 - as above

    return openvino.Core().read_model(str(order.source))


def _inputs(path: Any, names: list[str]) -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415 - as above

    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in names}
