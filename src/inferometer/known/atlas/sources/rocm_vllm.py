"""ROCm's vLLM on MI300X: the time of `batch` requests, and tokens a second of many.

Some rows name the 70B's id under the title of the 405B. Their times are the 405B's, so the title counts.
"""

import re
from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.csv_lines import CsvLine, LineError
from inferometer.known.atlas.form import Form, format_named, published, settings
from inferometer.known.atlas.measurement import PublishedMeasurement


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
    name, metric = line.required("model"), line.required("metric")
    together = line.whole("tp") or 1
    yield published(
        line,
        dataset="rocm-vllm",
        date=line.text("date"),
        device_published=line.required("gpu"),
        unit="gpu",
        count=together,
        model_published=name,
        model_spelling=re.sub(r"\s*\(.*\)$", "", name),
        engine_published="vLLM",
        engine="vllm",
        version=line.text("vllm"),
        settings=settings(tp=together, prompts=line.whole("num_prompts")),
        precision_published=line.text("precision"),
        weights=format_named(line.text("precision")),
        activations=format_named(line.text("precision")),
        prompt=line.whole("isl"),
        generate=line.whole("osl"),
        **_figure(metric, line),
    )


def _figure(metric: str, line: CsvLine) -> dict[str, Any]:
    value = line.positive("value")
    if "tokens/s" in metric:
        return {"quantity": "tokens", "figure": value, "figure_unit": "tokens/s"}
    unit = "ms" if "(ms)" in metric else "s" if "(sec)" in metric else None
    if unit is None:
        raise LineError(f"{metric!r} has no known unit.")
    return {"quantity": "request", "figure": value, "figure_unit": unit, "batch": line.whole("batch")}


FORM = Form(
    name="rocm-vllm",
    title="ROCm, vLLM on MI300X",
    columns=frozenset({"gpu", "model", "precision", "tp", "batch", "isl", "osl", "metric", "value"}),
    read=read,
)
