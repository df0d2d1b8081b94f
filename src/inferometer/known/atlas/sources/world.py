"""Tables that many projects publish, gathered in one form: a row is a figure with the words of its table.

`source, repo, path, model, device, runtime, precision, batch, input, metric, value, unit, notes`. The words are those
of each project, so rules here say what they mean; a row whose engine, unit, batch or metric stays unclear is set aside
with the reason. What a rule cannot know of a model's name stands in `aliases.toml`.
"""

import re
from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.form import CsvLine, LineError, format_named, published, published_form, settings
from inferometer.known.atlas.measurement import TIMES, PublishedMeasurement, unit_named

# What a runtime's words mean, the narrower first: a pattern, the engine, and a variant of it.
_RUNTIMES: tuple[tuple[str, str, str | None], ...] = (
    (r"paddle inference \+ tensorrt", "paddle-tensorrt", None),
    (r"paddle ?lite", "paddle-lite", None),
    (r"paddle", "paddle", None),
    (r"fastertransformer doc: (ft|cpp|torch op|trt plugin|ft-int8.*)$", "fastertransformer", None),
    (r"fastertransformer doc: tf", "tensorflow", None),
    (r"aitemplate|ait$", "aitemplate", None),
    (r"tensorrt", "tensorrt", None),
    (r"torch\.compile|pytorch.*dev compile$|pytorch.*compile$", "torch-compile", None),
    (r"pytorch( eager)?$|torch$|vanilla pytorch|diffusers|pytorch.*dev (?:fp32|bf16)$", "torch-eager", None),
    (r"tensorflow ?[12]?$", "tensorflow", None),
    (r"sophon.* bmrt_test|sophon llm", "sophon", None),
    (r"sophon", "sophon", "sail"),
    (r"core ml", "coreml", None),
    (r"executorch core ml", "coreml", "executorch"),
    (r"executorch xnnpack", "executorch", None),
    (r"neuron.*(?:pytorch|tensorflow)", "neuron", None),
    (r"optimum-habana", "habana", None),
    (r"pulsar2", "pulsar2", None),
    (r"hbdnn", "hbdnn", None),
    (r"stedgeai", "stedgeai", None),
    (r"vitis", "vitis", None),
    (r"esp-dl", "esp-dl", None),
    (r"opencv-dnn", "opencv-dnn", None),
    (r"tflite|litert|x-linux-ai", "litert", None),
    (r"tnn", "tnn", None),
    (r"ncnn", "ncnn", None),
    (r"onnxruntime", "onnxruntime", None),
    (r"whisper\.cpp", "whispercpp", None),
    (r"llama\.cpp", "llamacpp", None),
    (r"vllm", "vllm", None),
    (r"mlx", "mlx", None),
)
# Of a metric: the quantity, and whether a time is that of one input although a batch was under way.
_METRICS = {
    "latency": ("forward", False), "latency_avg": ("forward", False), "latency_p50": ("forward", False),
    "latency_mean_with_pre_post": ("forward", False), "latency_1thread": ("forward", False),
    "latency_per_image": ("forward", True), "throughput": ("forward", False),
    "throughput_single_thread": ("forward", False), "throughput_multi_thread": ("stream", False),
    "throughput_max": ("stream", False), "encode_30s": ("forward", False), "decode_per_token": ("decode", False),
    "decode": ("decode", False), "itl_p50": ("tpot", False), "tpot_p50": ("tpot", False), "ttft_p50": ("ttft", False),
    "batch_latency": ("picture", False), "end_to_end": ("picture", False), "diffusion_speed": ("forward", False),
}  # fmt: skip
_PARTS = {"encode_30s": "encoder"}
_ONE_BY_ONE = frozenset({"encode_30s", "decode_per_token"})  # whisper.cpp hears one recording
_RATES = re.compile(
    r"(?i)(?:images?|imgs?|items?|samples?|inferences?|sent(?:ences?)?|sequences?|frames|inputs|iterations)/s(?:ec(?:ond)?)?"
)
_UNITS = {
    "cpu": r"\bcpu\b|cortex|\bthreads?\b", "gpu": r"\bgpu\b|\bcuda", "npu": r"\bnpu\b|\bbpu\b|\bdpu\b|neural engine",
    "tpu": r"edge tpu",
}  # fmt: skip
_ALWAYS = {
    "sophon": "npu", "vitis": "npu", "habana": "npu", "neuron": "npu", "executorch": "cpu", "ncnn": "cpu",
    "paddle-lite": "cpu",
}  # fmt: skip
_SEVERAL = re.compile(r"^(\d+) ?x ")
_PER_INPUT = frozenset({"sophgo"})  # the tables of this project divide a batch's time by its inputs
_ONE_INPUT = frozenset({"vitis", "hbdnn"})  # engines whose tables state no batch: a core runs one input
_PADDED = re.compile(r"(?i)doc: eff|doc: (?:t4|a100)$|tp\d+, pp\d+")


@published_form(
    "world", "Tables of many projects", "source", "repo", "path", "model", "device", "runtime", "metric", "value",
    "unit"
)  # fmt: skip
def world(line: CsvLine) -> Iterator[PublishedMeasurement]:
    dataset = line.required("source").partition(" ")[0].casefold()
    metric, unit_text = line.required("metric"), line.required("unit")
    if metric not in _METRICS:
        raise LineError(f"{metric} in {unit_text} is no time of a step.")
    runtime, device = line.required("runtime"), line.required("device")
    engine, variant = _engine(runtime)
    quantity, for_each = _METRICS[metric]
    steps = re.search(r"steps=(\d+)|\b(\d+) steps\b(?!=)", f"{line.required('model')} {line.text('input') or ''}")
    if quantity == "picture" and steps is None:
        raise LineError("no steps of the denoiser are stated.")
    if re.search(r"\[(?:En|De)coding\]|\[Streaming mode\]|\[OCR\]|\[Vertical OCR\]", line.required("model")):
        raise LineError("a part of a model whose input is not stated.")
    unit, count = _unit(device, engine, line), _SEVERAL.match(device)
    engine = "edgetpu" if engine == "litert" and unit == "tpu" and "Coral" in device else engine
    weights, activations, precision = _formats(line, device)
    batch = _batch(line, engine)
    image, shape, prompt = _input(line, quantity)
    figure, figure_unit = line.positive("value"), _figure_unit(unit_text, quantity)
    if batch is not None and batch > 1 and figure_unit in TIMES and (for_each or dataset in _PER_INPUT):
        figure, figure_unit = 1 / (figure * TIMES[figure_unit]), "inputs/s"
    threads = re.search(r"(\d+) threads?", device)
    cores = re.search(r"(?i)(\d) ?cores?", f"{device} {line.required('model')}") if unit == "npu" else None
    yield published(
        line, dataset=dataset, source="world", place=line.text("path"), device_published=device,
        device_spelling=_device_words(device), unit=unit, count=int(count[1]) if count else 1,
        model_published=line.required("model"), model_spelling=_model_words(line.required("model")),
        part=_PARTS.get(metric), engine_published=runtime, engine=engine,
        settings=settings(
            backend=variant, form=_form(device, cores), threads=threads[1] if threads else None,
            autocast="f16" if precision in {"amp", "mixed precision"} else None,
            steps=next(filter(None, steps.groups())) if quantity == "picture" and steps is not None else None,
        ),
        precision_published=precision, weights=weights, activations=activations, image=image, input=shape,
        prompt=prompt, quantity=quantity, figure=figure, figure_unit=figure_unit,
        **({"concurrency": batch} if quantity in {"tpot", "ttft"} else {"batch": batch}), **_counts(line),
    )  # fmt: skip


def _form(device: str, cores: re.Match[str] | None) -> str | None:
    """A share of the device that ran, or an older instruction set on it."""
    return "armv7" if "ARMv7" in device else f"{cores[1]} cores" if cores else None


def _engine(runtime: str) -> tuple[str, str | None]:
    if _PADDED.search(runtime):
        raise LineError(f"{runtime!r} leaves padding out, or splits the model: its work is not stated.")
    for pattern, engine, variant in _RUNTIMES:
        if re.match(pattern, runtime.casefold()):
            return engine, variant
    raise LineError(f"the runtime {runtime!r} is none that is known.")


def _unit(device: str, engine: str, line: CsvLine) -> str | None:
    """The unit that ran: named with the device, or the only one that the engine uses."""
    if "+" in device.partition("(")[0].replace("S9+", "") and engine == "litert":
        raise LineError(f"{device} is several units at once.")
    shared = re.search(r"cores=(\d+)", line.text("notes") or "")
    if shared is not None and int(shared[1]) > 1:
        raise LineError(f"{shared[1]} cores have a share of the inputs each, and no share is stated.")
    if engine == "coreml" and "Neural Engine" not in device and (line.text("precision") or "") != "fp16":
        raise LineError("Core ML chose the unit, and the table does not say which.")
    named = next((unit for unit, pattern in _UNITS.items() if re.search(pattern, device.casefold())), None)
    if "NPU" in device:
        named = "npu"
    if named == "npu" and engine == "opencv-dnn":
        raise LineError("OpenCV hands the network to another engine there, and the table does not say which.")
    return {"coreml": "npu"}.get(engine) or named or _ALWAYS.get(engine)


def _formats(line: CsvLine, device: str) -> tuple[str | None, str | None, str | None]:
    stated = line.text("precision")
    if device.endswith("CUDA_FP16"):
        return "f16", "f16", "fp16"
    if stated is None:
        return None, None, None
    bare = re.sub(r"(?i)^(int8)-v\d$", r"\1", stated.partition(",")[0])
    if bare in {"amp", "mixed precision"}:
        return "f32", "f16", stated
    mixed = re.fullmatch(r"w(\d)a(\d+)|8da4w", bare)
    if mixed is not None:
        return (f"i{mixed[1]}", f"i{mixed[2]}", stated) if mixed[1] else ("i4", "i8", stated)
    known = {"tf32": "f32", "matmult-bf16": "bf16"}.get(bare.casefold()) or format_named(bare)
    return known, None if known is not None and known.startswith("q") else known, stated


def _batch(line: CsvLine, engine: str) -> int | None:
    batch = line.value("batch")
    if batch is None and engine in _ONE_INPUT:
        return 1
    if batch is None and line.required("metric") not in _ONE_BY_ONE:
        raise LineError("no batch is stated.")
    if batch is not None and batch <= 0:
        raise LineError(f"a batch of {batch:g} is none.")
    return max(1, round(batch or 1))


def _input(line: CsvLine, quantity: str) -> tuple[int | None, str | None, int | None]:
    """The side of a square image, any other shape, and the tokens of a text."""
    stated = re.sub(r" steps=\d+", "", line.text("input") or "") or _size_in_name(line.required("model"))
    if stated is None:
        length = re.search(r"sequence-length=(\d+)", line.text("precision") or "")
        return None, None, int(length[1]) if length else None
    text = re.search(r"(?i)bert|electra|gpt|\bt5\b|language", line.required("model") + (line.text("path") or ""))
    if stated.isdigit() and text:
        return None, None, int(stated)
    if quantity in {"tpot", "ttft"}:
        lengths = re.match(r"(\d+)/\d+/\d+$", stated)
        return None, stated, int(lengths[1]) if lengths else None
    if quantity == "picture" and "frames" in stated:
        return None, stated, None
    sides = [int(side) for side in re.findall(r"\d+", re.sub(r"(?i)[x×*](?:1|3)$|^(?:1|3)[x×*]", "", stated))]
    if len(sides) == 2 and sides[0] != sides[1]:
        raise LineError(f"the image is {stated}, and graphs here take square ones.")
    square = bool(sides) and len(sides) <= 2
    return (sides[0], None, None) if square else (None, stated, None)


def _size_in_name(model: str) -> str | None:
    size = re.search(r"(?<!\d)(\d{3,4})x(\d{3,4})(?!\d)", model)
    return size[0] if size else None


def _figure_unit(text: str, quantity: str) -> str:
    if quantity in {"forward", "stream"} and _RATES.fullmatch(text):
        return "inputs/s"
    return unit_named(text)


def _counts(line: CsvLine) -> dict[str, Any]:
    """Operations and parameters where the notes state them: they tell whether a name means the same network."""
    notes = line.text("notes") or ""
    found: dict[str, Any] = {}
    if stated := re.search(r"params=([\d.]+)M", notes):
        found["parameters"] = float(stated[1]) * 1e6
    if stated := re.search(r"MACs=([\d.]+)G", notes):
        found["macs"] = float(stated[1]) * 1e9
    elif stated := re.search(r"Ops=([\d.]+) ?G", notes):
        found["macs"] = float(stated[1]) * 1e9 / 2
    return found


def _device_words(device: str) -> str:
    words = _SEVERAL.sub("", device)
    words = re.sub(r"(?i)\s*@ ?[\d.]+GHz.*$|\bARMv\d\b|\b\d+ threads?\b|\bcuda\w*|\bneural engine\b", " ", words)
    words = re.sub(r"(?i)\bnano orin\b", "orin nano", words)
    words = re.sub(r"(?i)npu/mcu|npu ?\+ ?gpu|\bnpu \d( cores?)?|\b\d+ cores?\b|\b1 cpu( \+ hsp)?|\bsoc\b", " ", words)
    words = re.sub(r"\((?:SE|SC)\d[\w-]*\)|\(R\)|\(With HSP\)|\((?:cores|RAM)?:? ?[\dEPGUB+ ]+\)", " ", words)
    return " ".join(words.split()) or device


# What is written around the name of a network: its task, its number in a list, formats, batches, frameworks, dates.
_AROUND = (
    r" \[[^]]*\]$", r"^.*/(?!\w*decoder|\w*encoder)", r"(?i)_(?:fp32|fp16|int8|int4|f16|f32|bf16)(?:_\d+b)?$",
    r"_\d+b$", r"^\d\d_", r"(?i)_(?:tf2?|pt|quant|ssld|nndct)$", r"_3\.5$",
    r"(?i)_20\d\d[a-z]{3,4}(?:_int8|_fp16)?$", r" (?:cls|backbone)$",
    r"(?i)^(?:image_classification|object_detection|face_recognition)_(?=\w)",
    r"(?i)_(?:a100|w100)?_?pt_224$", r"(?i)_\db_2core$|_2core$",
    r"(?i)^(?:vit|efficientnet|bert) (?=vit_|efficientnet|bert)", r"(?i)_s8(?:_v\d)?_(?:p4|s3).*$",
    r"(?i)(?<=yolo11n|yolo26n)_\d{3}$",
    r"(?i)_x?1_0(?:_224)?$", r"(?i)-q\d_\d$", r"(?i) (?:fft|tfs|per channel|onnx|sparse)$",
    r"(?i)(?<=yolov5\w)_v7\.0$", r"(?i)_v6\.1(?:_3output|_fuse)?$",
)  # fmt: skip
_WHOLE_DETECTORS = re.compile(r"(?i)ssd|r-?cnn|retina|unet|u-net|fpn|deeplab|pruned|sparse|minimalistic|depth_|ofa_")


def _model_words(model: str) -> str:
    words = model.strip()
    for _ in range(2):  # what one rule takes off may have hidden what another would
        for pattern in _AROUND:
            words = re.sub(pattern, "", words).strip(" *")
    # A detector or a cut network that no graph here is of must not pass for the network that it begins with.
    return model if _WHOLE_DETECTORS.search(words) and not _WHOLE_DETECTORS.fullmatch(words) else words


FORMS = (world,)
