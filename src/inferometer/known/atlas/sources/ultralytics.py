"""Ultralytics' guides: milliseconds an image of a YOLO by export format.

`TensorRT (FP16)` and `OpenVINO|INT8` say the precision; without one it is f32.
"""

import re
from collections.abc import Iterator

from inferometer.known.atlas.form import CsvLine, format_named, published, published_form, settings
from inferometer.known.atlas.measurement import PublishedMeasurement

_ENGINES = {
    "pytorch": "torch-eager", "torchscript": "torchscript", "onnx": "onnxruntime", "openvino": "openvino",
    "tensorrt": "tensorrt", "tf savedmodel": "tensorflow", "tf graphdef": "tensorflow", "tf lite": "litert",
    "tflite": "litert", "mnn": "mnn", "ncnn": "ncnn", "rknn": "rknn", "paddlepaddle": "paddle",
    "executorch": "executorch", "imx": "imx500", "edge tpu": "edgetpu", "coreml": "coreml",
}  # fmt: skip
_WITHOUT_GPU = frozenset({"litert", "mnn", "ncnn", "openvino", "executorch", "tensorflow", "paddle"})


@published_form("ultralytics", "Ultralytics, guides", "device", "model", "format", "imgsz", "ms_per_image")
def ultralytics(line: CsvLine) -> Iterator[PublishedMeasurement]:
    device, exported = line.required("device"), line.required("format")
    bare = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", exported).strip("` ")
    stated = re.search(r"(?i)(?:fp|int|bf)\d+", bare)
    engine = _ENGINES.get(re.sub(r"(?i)\s*[(|].*$", "", bare).casefold(), bare.casefold())
    computed = format_named(stated[0]) if stated else {"rknn": "i8", "imx500": "i8"}.get(engine, "f32")
    yield published(
        line,
        dataset="ultralytics",
        place=line.text("doc"),
        date="2025",
        device_published=device,
        device_spelling=re.sub(r"\s*\(.*\)$| Developer Kit$", "", device),
        unit=_unit(device, engine),
        model_published=line.required("model"),
        engine_published=bare,
        engine=engine,
        settings=settings(pipeline="deepstream" if "DeepStream" in device else None),
        precision_published=stated[0] if stated else None,
        weights=computed,
        activations=computed,
        batch=1,
        image=line.whole("imgsz"),
        quantity="forward",
        figure=line.positive("ms_per_image"),
        figure_unit="ms",
    )


def _unit(device: str, engine: str) -> str | None:
    """A Jetson's GPU runs what can use CUDA; the other formats run on its CPU. Elsewhere the name says it.

    A page about OpenVINO names Intel's GPU for every format, but only OpenVINO ran there: what PyTorch took is that of
    a CPU that nobody names.
    """
    if "Jetson" in device:
        return "cpu" if engine in _WITHOUT_GPU else "gpu"
    if "Raspberry" in device or (re.search("Intel.*GPU", device) and engine != "openvino"):
        return "cpu"
    if "Rockchip" in device:
        return "npu" if engine == "rknn" else "cpu"
    return next((unit for unit in ("cpu", "gpu", "npu") if unit.upper() in device), None)


FORMS = (ultralytics,)
