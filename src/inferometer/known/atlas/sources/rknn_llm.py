"""Rockchip's language models: the first token's time, tokens a second, and memory."""

from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.csv_lines import CsvLine
from inferometer.known.atlas.form import Form, published, quantised
from inferometer.known.atlas.measurement import PublishedMeasurement


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
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


FORM = Form(
    name="rknn-llm",
    title="Rockchip, rknn-llm",
    columns=frozenset({"device", "model", "model_size", "dtype", "seqlen", "ttft_ms", "tokens_per_s"}),
    read=read,
)
