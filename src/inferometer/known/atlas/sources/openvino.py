"""OpenVINO's performance benchmarks: throughput with several streams, latency with one, by platform and precision.

For language models latency is that of a token after the first, and throughput is its inverse; releases differ in the
unit they print (`FPS`, `Tokens per sec`). For diffusion models it is seconds an image.
"""

import re
from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.form import CsvLine, LineError, format_named, published, published_form
from inferometer.known.atlas.measurement import PublishedMeasurement, unit_named

_LANGUAGE = re.compile(r"(?i)llama|phi-|qwen|mistral|glm|gemma|falcon|deepseek|mixtral|gpt-|minicpm|granite")
_DIFFUSION = re.compile(r"(?i)stable-diffusion|flux|sdxl")
_SIDES = {
    "resnet-50": 224, "yolo_v8n": 640, "yolo11": 640, "efficientdet-d0": 512, "ssd_mobilenet_v1_coco": 300,
    "yolo_v3_tiny": 416, "mobilenet-v2": 224, "ssd-resnet34-1200": 1200, "yolo_v5m": 640,
}  # fmt: skip


@published_form(
    "openvino", "OpenVINO, performance benchmarks", "platform", "model", "metric", "precision", "value", "unit"
)
def openvino(line: CsvLine) -> Iterator[PublishedMeasurement]:
    platform, name = line.required("platform"), line.required("model")
    precision = line.required("precision")
    unit = unit_of(platform, line.text("platform_type") or "")
    weights = format_named(precision.removeprefix("token_"))
    language = bool(_LANGUAGE.search(name))
    yield published(
        line,
        dataset="openvino",
        date=line.text("date"),
        device_published=platform,
        unit=unit,
        model_published=name,
        engine_published="OpenVINO",
        engine="openvino",
        precision_published=precision,
        weights=weights,
        activations=None if language or weights == "i4" else weights,
        image=_SIDES.get(name),
        **_figure(line, language=language, diffusion=bool(_DIFFUSION.search(name))),
    )


def _figure(line: CsvLine, *, language: bool, diffusion: bool) -> dict[str, Any]:
    value, metric, stated = line.positive("value"), line.required("metric"), line.required("unit")
    if diffusion:  # some releases head a column of seconds with `ms`
        if metric != "latency":
            raise LineError(f"the {metric} of a diffusion model in {stated} has no stated meaning.")
        return {"quantity": "request", "figure": value, "figure_unit": "s", "batch": 1}
    if language:
        unit = "ms" if metric == "latency" else "tokens/s"
        return {"quantity": "decode", "figure": value, "figure_unit": unit, "batch": 1}
    if metric == "latency":
        return {"quantity": "forward", "figure": value, "figure_unit": unit_named(stated), "batch": 1}
    return {"quantity": "stream", "figure": value, "figure_unit": unit_named(stated)}


def unit_of(platform: str, kind: str) -> str | None:
    """From the platform's name where it says so, else from its heading: `Intel® Core™, iGPU-only`."""
    for text in (platform, kind):
        for words, unit in (
            ("CPU+iGPU", "cpu+gpu"), ("CPU+NPU", "cpu+npu"), ("NPU", "npu"), ("iGPU", "gpu"), ("dGPU", "gpu"),
            ("CPU-only", "cpu"), ("Graphics", "gpu"), ("Accelerator", "gpu"), ("Xeon", "cpu"),
        ):  # fmt: skip
            if words in text:
                return unit
    return None


# OpenVINO's tables of language models on built-in GPUs: the first token's time, each later one's, and memory.


@published_form(
    "openvino-llm", "OpenVINO, language models", "platform", "topology", "precision", "input_size", "first_ms",
    "second_ms"
)  # fmt: skip
def openvino_llm(line: CsvLine) -> Iterator[PublishedMeasurement]:
    platform, precision = line.required("platform"), line.required("precision")
    stated = re.match(r"(?i)(?:u?int|fp|bf)\d+", precision)
    size, memory = line.text("input_size") or "", line.value("max_rss")
    prompt = int(size) if size.isdecimal() else None
    facts: dict[str, Any] = {
        "dataset": "openvino-llm",
        "date": line.text("date"),
        "device_published": platform,
        "device_spelling": f"Intel Core Ultra {platform.replace('-', ' ', 1)}"
        if platform[0].isdigit()
        else platform.rstrip("?"),
        "unit": "gpu",
        "model_published": line.required("topology"),
        "engine_published": "OpenVINO",
        "engine": "openvino",
        "precision_published": precision,
        "weights": format_named(stated[0]) if stated else None,
        "batch": 1,
        "prompt": prompt,
        "input": None if prompt else size or None,
        "memory_bytes": memory * 1e6 if memory else None,
    }
    first, second = line.value("first_ms"), line.value("second_ms")
    if first:
        yield published(line, quantity="prefill", figure=first, figure_unit="ms", context=0, **facts)
    if second:
        yield published(line, quantity="decode", figure=second, figure_unit="ms", context=prompt, **facts)


FORMS = (openvino, openvino_llm)
