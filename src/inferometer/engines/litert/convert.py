"""TFLite files, quantised by ai-edge-quantizer."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.engines.order import ToolOrder

_EVERY = ".*"  # layer, by a pattern of its name
_THREADS = 2


def quantise(order: ToolOrder) -> Iterator[str]:
    from ai_edge_quantizer import Quantizer  # noqa: PLC0415 - an edge, in a child

    source = _signed(order)
    quantizer = Quantizer(str(source), _recipe(order.options["recipe"]))
    ranges = None
    if order.calibration:
        ranges = quantizer.calibrate(_readings(source, order.calibration), num_threads=order.threads or _THREADS)
    order.target.write_bytes(quantizer.quantize(ranges).quantized_model)
    if order.calibration:
        yield f"The ranges are those of {len(order.calibration)} sets of inputs."


def _signed(order: ToolOrder) -> Path:
    """The file; if it has no signature, with one that names inputs and outputs as tensors are: the tool needs one."""
    from ai_edge_litert import schema_py_generated as schema  # noqa: PLC0415 - as above
    from ai_edge_litert.tools import flatbuffer_utils  # noqa: PLC0415 - as above

    try:
        model = flatbuffer_utils.read_model(str(order.source))
        graph = model.subgraphs[0]
    except Exception as error:  # noqa: BLE001 - it raises no narrower kind
        raise FormatError(
            f"{order.source.name} cannot be read as TFLite: {error}.", remedy="Export the model again; it is damaged."
        ) from None
    if model.signatureDefs:
        return order.source

    def named(places: Any) -> list[Any]:
        return [schema.TensorMapT(name=graph.tensors[place].name, tensorIndex=int(place)) for place in places]

    signature = schema.SignatureDefT(
        inputs=named(graph.inputs), outputs=named(graph.outputs), signatureKey=b"serving_default", subgraphIndex=0
    )
    model.signatureDefs = [signature]
    path = order.target.parent.parent / "signed.tflite"
    flatbuffer_utils.write_model(model, str(path))
    return path


def _readings(source: Path, calibration: tuple[Path, ...]) -> dict[str, list[dict[str, Any]]]:
    """The inputs by the names that the file's first signature has for them; in our files they are the tensors'."""
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - as above

    interpreter = Interpreter(str(source))
    signature = next(iter(interpreter.get_signature_list()))
    details = interpreter.get_signature_runner(signature).get_input_details()
    tensors = {argument: str(detail["name"]) for argument, detail in details.items()}
    sets = map(_loaded, calibration)
    return {signature: [{argument: arrays[name] for argument, name in tensors.items()} for arrays in sets]}


def _loaded(path: Path) -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415 - as above

    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _recipe(name: str) -> Any:
    """What is quantised and how, as the tool names it: weights (w) and activations (a) in i8, or in floats."""
    from ai_edge_quantizer import qtyping, recipe  # noqa: PLC0415 - as above
    from ai_edge_quantizer.algorithm_manager import AlgorithmName  # noqa: PLC0415 - as above
    from ai_edge_quantizer.recipe_manager import RecipeManager  # noqa: PLC0415 - as above

    if name != "f16":
        found = getattr(recipe, _RECIPES[name])()
        return [*found, *(_as_they_are(place) for place in ("INPUT", "OUTPUT"))] if name == "i8" else found
    half = qtyping.TensorQuantizationConfig(num_bits=16, dtype=qtyping.TensorDataType.FLOAT)
    stored = qtyping.OpQuantizationConfig(
        weight_tensor_config=half, compute_precision=qtyping.ComputePrecision.FLOAT, explicit_dequantize=True
    )
    manager = RecipeManager()
    manager.add_quantization_config(_EVERY, qtyping.TFLOperationName.ALL_SUPPORTED, stored, AlgorithmName.FLOAT_CASTING)
    return manager.get_quantization_recipe()


def _as_they_are(place: str) -> dict[str, Any]:
    """What goes in and comes out stays in floats, as callers of the model have it."""
    return {
        "regex": _EVERY,
        "operation": place,
        "algorithm_key": "no_quantize",
        "op_config": {
            "activation_tensor_config": None,
            "weight_tensor_config": None,
            "compute_precision": "FLOAT",
            "explicit_dequantize": False,
            "skip_checks": False,
            "min_weight_elements": 0,
        },
    }


_RECIPES: Mapping[str, str] = {
    "i8": "static_wi8_ai8", "i8-dynamic": "dynamic_wi8_afp32", "i8-weights": "weight_only_wi8_afp32",
}  # fmt: skip
