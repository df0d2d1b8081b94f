"""OpenVINO's tables of language models on built-in GPUs: the first token's time, each later one's, and memory."""

import re
from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.csv_lines import CsvLine
from inferometer.known.atlas.form import Form, format_named, published
from inferometer.known.atlas.measurement import PublishedMeasurement


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
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


FORM = Form(
    name="openvino-llm",
    title="OpenVINO, language models",
    columns=frozenset({"platform", "topology", "precision", "input_size", "first_ms", "second_ms"}),
    read=read,
)
