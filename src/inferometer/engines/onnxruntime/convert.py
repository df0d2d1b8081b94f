"""ONNX files: onnxslim simplifies, ONNX Runtime optimises and quantises."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.engines.order import ToolOrder

_PROTOBUF_BYTES = 2_000_000_000
_LOWEST_IR = 8  # a version of the file format in which weights need not be listed among the inputs
_BY_CHANNEL = 13  # the first opset with scales for each channel
_HIGHEST_IR = 10  # the newest version of the file format that every engine here opens


def simplify(order: ToolOrder) -> Iterator[str]:
    import onnxslim  # noqa: PLC0415 - an edge, in a child

    model = loaded_onnx(order.source)
    before = len(model.graph.node)
    slim = onnxslim.slim(model)
    save(slim, order.target)
    yield f"{before} nodes became {len(slim.graph.node)}."


def optimise(order: ToolOrder) -> Iterator[str]:
    """What ONNX Runtime does when it loads the file, done once. The layouts of one processor are left out."""
    import onnxruntime  # noqa: PLC0415 - as above

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(order.target)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 3
    options.add_session_config_entry("session.save_model_format", order.format.upper())
    if order.source.stat().st_size > _PROTOBUF_BYTES:
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    onnxruntime.InferenceSession(str(order.source), options, providers=["CPUExecutionProvider"])
    yield "Made for CPUs; ONNX Runtime may add the layouts of one processor when it loads the file."


def quantise_dynamic(order: ToolOrder) -> None:
    """Unsigned weights for convolutions, signed ones for the other products.

    ConvInteger multiplies signed weights number by number on x86-64, at a sixth of the speed that it has with unsigned
    ones; MatMulInteger has instructions for signed weights.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415 - as above
    from onnxruntime.quantization.registry import IntegerOpsRegistry  # noqa: PLC0415 - as above

    logging.getLogger().setLevel(logging.ERROR)
    source, between = _clean(order), order.target.with_name(f"{order.target.stem}-convolutions.onnx")
    even = {"WeightSymmetric": True}
    quantize_dynamic(
        source, between, op_types_to_quantize=["Conv"], weight_type=QuantType.QUInt8, extra_options=even
    )  # fmt: skip
    others = [name for name in IntegerOpsRegistry if name != "Conv"]
    quantize_dynamic(between, order.target, op_types_to_quantize=others, weight_type=QuantType.QInt8, per_channel=True)
    between.unlink()


def quantise_static(order: ToolOrder) -> Iterator[str]:
    """Signed weights by channel, unsigned activations: what ONNX Runtime advises for CPUs without VNNI and with."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static  # noqa: PLC0415 - as above

    logging.getLogger().setLevel(logging.ERROR)
    quantize_static(
        _clean(order),
        order.target,
        _Readings(order.calibration),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    yield f"The ranges are those of {len(order.calibration)} sets of inputs."


class _Readings:
    """What ONNX Runtime calls a CalibrationDataReader: one set of inputs after the other."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = iter(paths)

    def get_next(self) -> dict[str, Any] | None:
        import numpy as np  # noqa: PLC0415 - as above

        path = next(self._paths, None)
        if path is None:
            return None
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}


def _clean(order: ToolOrder) -> str:
    """The file with its shapes worked out, which the quantiser needs to find what it may quantise."""
    import onnx  # noqa: PLC0415 - as above

    model = loaded_onnx(order.source)
    model.ir_version = max(model.ir_version, _LOWEST_IR)  # the quantiser renews old operators, which needs this
    model = _renewed(model)
    model = onnx.shape_inference.infer_shapes(model)
    place = order.target.parent.parent / "shaped.onnx"
    save(model, place)
    return str(place)


def _renewed(model: Any) -> Any:
    """At least the opset in which a scale may be one of several, one for each channel."""
    from onnx import version_converter  # noqa: PLC0415 - as above

    version = next((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), _BY_CHANNEL)
    if version >= _BY_CHANNEL:
        return model
    try:
        return version_converter.convert_version(model, _BY_CHANNEL)
    except Exception as error:  # noqa: BLE001 - the converter has no errors of its own
        first = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise FormatError(
            f"The file is of opset {version}, and ONNX's converter cannot bring it to {_BY_CHANNEL}, which scales for "
            f"each channel need: {first}.",
            remedy=f"Export the model with opset {_BY_CHANNEL} or later.",
        ) from None


def loaded_onnx(path: Path) -> Any:
    import onnx  # noqa: PLC0415 - as above

    try:
        return onnx.load(str(path))
    except Exception as error:  # noqa: BLE001 - protobuf's errors have no common root
        raise FormatError(
            f"{path.name} cannot be read as ONNX: {error}.", remedy="Export the model again; the file is damaged."
        ) from None


def save(model: Any, path: Path) -> None:
    import onnx  # noqa: PLC0415 - as above

    model.ir_version = min(model.ir_version, _HIGHEST_IR)
    large = model.ByteSize() > _PROTOBUF_BYTES
    onnx.save(model, str(path), save_as_external_data=large, location=f"{path.name}.data" if large else None)
