"""Requests of a vLLM server one by one, with their queueing: TTFT, TPOT and the whole of each."""

from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.csv_lines import CsvLine
from inferometer.known.atlas.form import Form, published, settings
from inferometer.known.atlas.measurement import PublishedMeasurement

_QUANTITIES = {"ttft": "ttft_ms", "tpot": "tpot_ms", "request": "e2e_ms"}


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
    facts: dict[str, Any] = {
        "dataset": "vllm-requests",
        "date": "2026-08",
        "device_published": line.required("device"),
        "unit": "gpu",
        "count": (line.whole("tp") or 1) * (line.whole("dp") or 1),
        "model_published": line.required("model"),
        "engine_published": "vLLM",
        "engine": "vllm",
        "version": line.text("vllm"),
        "settings": settings(
            tp=line.whole("tp"), sequences=line.whole("max_num_seqs"),
            token_budget=line.whole("max_num_batched_tokens"), kv_blocks=line.whole("num_gpu_blocks"),
            block=line.whole("block_size"), arrival_s=line.value("arrival_s"), queue_ms=line.value("queue_ms"),
        ),
        "batch": 1,
        "prompt": line.whole("input_tokens"),
        "generate": line.whole("output_tokens"),
    }  # fmt: skip
    for quantity, column in _QUANTITIES.items():
        yield published(line, quantity=quantity, figure=line.positive(column), figure_unit="ms", **facts)


FORM = Form(
    name="vllm-requests",
    title="requests of vLLM",
    columns=frozenset({"device", "model", "request_id", "arrival_s", "input_tokens", "ttft_ms", "tpot_ms", "e2e_ms"}),
    read=read,
)
