"""llama-batched-bench: `batch` sequences read `pp` tokens each at once, then make `tg` tokens each."""

from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.csv_lines import CsvLine
from inferometer.known.atlas.form import Form, published
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.sources.llamacpp import weights_of


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
    name, prompt = line.required("model"), line.whole("pp")
    facts: dict[str, Any] = {
        "dataset": "llamacpp-batched",
        "device_published": line.required("device"),
        "unit": "gpu",
        "model_published": name,
        "engine_published": "llama.cpp",
        "engine": "llamacpp",
        "weights": weights_of(name),
        "batch": line.whole("batch"),
    }
    yield published(
        line, quantity="prefill", figure=line.positive("s_pp"), figure_unit="tokens/s", prompt=prompt, context=0,
        **facts,
    )  # fmt: skip
    yield published(
        line, quantity="decode", figure=line.positive("s_tg"), figure_unit="tokens/s", context=prompt,
        generate=line.whole("tg"), **facts,
    )  # fmt: skip


FORM = Form(
    name="llamacpp-batched",
    title="llama-batched-bench",
    columns=frozenset({"device", "model", "pp", "tg", "batch", "s_pp", "s_tg"}),
    read=read,
)
