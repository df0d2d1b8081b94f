"""XiongjieDai's list of GPUs: llama.cpp with Llama 3, `4090 24GB * 2` for two cards that share the layers."""

import re
from collections.abc import Iterator

from inferometer.known.atlas.csv_lines import CsvLine, LineError
from inferometer.known.atlas.form import Form, published
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.sources.llamacpp import weights_of


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
    device, name = line.required("device"), line.required("model")
    several = re.match(r"(.+?)\s*\*\s*(\d+)$", device)
    test = re.match(r"(pp|tg)\s*(\d+)$", line.required("test"))
    if test is None:
        raise LineError(f"the test {line.text('test')!r} is neither ppN nor tgN.")
    reads, tokens = test[1] == "pp", int(test[2])
    one = several[1] if several else device
    yield published(
        line,
        dataset="llamacpp-gpus",
        device_published=device,
        device_spelling=f"RTX {one}" if re.match(r"[2345]0[5-9]0", one) else one.replace("\u2011", "-"),
        unit="gpu",
        count=int(several[2]) if several else 1,
        model_published=name,
        engine_published="llama.cpp",
        engine="llamacpp",
        weights=weights_of(name),
        batch=1,
        quantity="prefill" if reads else "decode",
        prompt=tokens if reads else None,
        generate=None if reads else tokens,
        context=0,
        figure=line.positive("tokens_per_s"),
        figure_unit="tokens/s",
    )


FORM = Form(
    name="llamacpp-gpus",
    title="GPU benchmarks on LLM inference",
    columns=frozenset({"device", "model", "test", "tokens_per_s"}),
    read=read,
)
