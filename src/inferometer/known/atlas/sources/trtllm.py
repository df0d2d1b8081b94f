"""TensorRT-LLM's performance overview: output tokens a second of a full server, or the first token's time.

`TP4`, `DEP8` (data and expert parallel) and `TP2,PP4 x8 GPUs` say how many GPUs share the model.
"""

import re
from collections.abc import Iterator
from math import prod

from inferometer.known.atlas.csv_lines import CsvLine, LineError
from inferometer.known.atlas.form import Form, format_named, published, settings
from inferometer.known.atlas.measurement import PublishedMeasurement

_FORMATS = {"FP4": "nvfp4", "FP8": "f8e4m3", "FP16": "f16", "BF16": "bf16"}


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
    metric, parallel = line.required("metric"), line.required("parallel")
    plan = {name.casefold(): int(size) for name, size in re.findall(r"(TP|PP|DEP|EP|DP)(\d+)", parallel)}
    stated = re.search(r"x(\d+) GPU", parallel)
    precision = line.text("precision")
    first = "first token" in metric
    if not first and "tok/s" not in metric:
        raise LineError(f"{metric!r} is neither a rate of tokens nor a time to the first one.")
    per_device = "/GPU" in metric
    yield published(
        line,
        dataset="trtllm",
        date=line.text("date"),
        device_published=line.required("gpu"),
        device_spelling=f"NVIDIA {line.required('gpu')}",
        unit="gpu",
        count=int(stated[1]) if stated else prod(plan.values()),
        model_published=line.required("model"),
        engine_published="TensorRT-LLM",
        engine="trtllm",
        settings=settings(**plan),
        precision_published=precision,
        weights=_FORMATS.get(precision or "") or format_named(precision),
        batch=line.whole("batch"),
        prompt=line.whole("isl"),
        generate=line.whole("osl"),
        quantity="ttft" if first else "tokens",
        figure=line.positive("value"),
        figure_unit="ms" if first else "tokens/s/device" if per_device else "tokens/s",
    )


FORM = Form(
    name="trtllm",
    title="TensorRT-LLM, performance overview",
    columns=frozenset({"model", "gpu", "precision", "parallel", "isl", "osl", "metric", "value"}),
    read=read,
)
