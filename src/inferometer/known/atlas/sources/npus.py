"""Tables of makers of NPUs: Hailo and Rockchip."""

import re
from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.form import CsvLine, format_named, published, published_form, quantised, settings
from inferometer.known.atlas.measurement import PublishedMeasurement

# Hailo's model zoo: frames a second of a stream at batch 1 and 8, with GOPs and parameters.
#
# The compiler's default is i8. Marks of the table (`star`, `rocket`) are no part of a name.


@published_form("hailo", "Hailo model zoo", "device", "dfc", "network", "fps_b1", "fps_b8", "input_hwc")
def hailo(line: CsvLine) -> Iterator[PublishedMeasurement]:
    device, name = line.required("device"), line.required("network")
    bare = re.sub(r"\s+(?:star|rocket)\b", "", name).strip()
    shape = line.text("input_hwc")
    sides = re.match(r"(\d+)x(\d+)x\d+$", shape or "")
    side = int(sides[1]) if sides and sides[1] == sides[2] else None
    operations, parameters = line.value("ops_g"), line.value("params_m")
    facts: dict[str, Any] = {
        "dataset": "hailo",
        "device_published": device,
        "device_spelling": re.sub(r"(?i)hailo-?", "hailo-", device),
        "unit": "npu",
        "model_published": bare,
        "engine_published": "HailoRT",
        "engine": "hailort",
        "version": (line.text("dfc") or "").rstrip(".") or None,
        "settings": settings(task=line.text("task"), dataset=line.text("dataset")),
        "weights": "i8",
        "activations": "i8",
        "image": side,
        "input": shape if side is None else None,
        "macs": operations * 1e9 / 2 if operations else None,  # an operation is a multiply or an add
        "parameters": parameters * 1e6 if parameters else None,
    }
    for batch in (1, 8):
        rate = line.value(f"fps_b{batch}")
        if rate:
            yield published(line, quantity="stream", figure=rate, figure_unit="inputs/s", batch=batch, **facts)


# Rockchip's model zoo: frames a second of the NPU alone, one input after the other.


@published_form("rknn", "Rockchip, rknn_model_zoo", "device", "model", "input_shape", "dtype", "fps")
def rknn(line: CsvLine) -> Iterator[PublishedMeasurement]:
    device, shape = line.required("device"), line.text("input_shape") or ""
    sides = re.match(r"\[1, 3, (\d+), (\d+)\]$", shape)
    square = sides is not None and sides[1] == sides[2]
    computed = format_named(line.text("dtype_override") or line.required("dtype"))
    chip, _, cores = device.partition("@")
    yield published(
        line,
        dataset="rknn",
        device_published=device,
        device_spelling=f"Rockchip {chip.split()[-1]}",
        unit="npu",
        model_published=line.required("model"),
        engine_published="RKNN",
        engine="rknn",
        settings=settings(cores=1 if "single_core" in cores else None),
        precision_published=line.text("dtype"),
        weights=computed,
        activations=computed,
        batch=1,
        image=int(sides[1]) if sides and square else None,
        input=None if square else shape or None,
        quantity="forward",
        figure=line.positive("fps"),
        figure_unit="inputs/s",
    )


# Rockchip's language models: the first token's time, tokens a second, and memory.


@published_form(
    "rknn-llm", "Rockchip, rknn-llm", "device", "model", "model_size", "dtype", "seqlen", "ttft_ms", "tokens_per_s"
)
def rknn_llm(line: CsvLine) -> Iterator[PublishedMeasurement]:
    device, stated = line.required("device"), line.required("dtype")
    weights, activations = quantised(stated)
    memory, prompt = line.value("memory_mb"), line.whole("seqlen")
    facts: dict[str, Any] = {
        "dataset": "rknn-llm",
        "device_published": device,
        "device_spelling": f"Rockchip {device}",
        "unit": "npu",
        "model_published": f"{line.required('model')} {line.text('model_size') or ''}".strip(),
        "engine_published": "RKLLM",
        "engine": "rkllm",
        "precision_published": stated,
        "weights": weights,
        "activations": "f16" if activations == "i16" else activations,  # a16 is half precision here
        "batch": 1,
        "memory_bytes": memory * 1e6 if memory else None,
    }
    yield published(
        line, quantity="prefill", figure=line.positive("ttft_ms"), figure_unit="ms", prompt=prompt, context=0, **facts
    )
    yield published(
        line, quantity="decode", figure=line.positive("tokens_per_s"), figure_unit="tokens/s", context=prompt,
        generate=line.whole("new_tokens"), **facts,
    )  # fmt: skip


FORMS = (hailo, rknn, rknn_llm)
