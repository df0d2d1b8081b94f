"""NVIDIA's Jetson AI Lab: output tokens a second with one request or several under way.

Measured with vLLM, 2,048 tokens in and 128 out; on Orin weights of 4 bits with activations in f16 (W4A16), on Thor
NVFP4.
"""

from collections.abc import Iterator

from inferometer.known.atlas.csv_lines import CsvLine
from inferometer.known.atlas.form import Form, published
from inferometer.known.atlas.measurement import PublishedMeasurement

_DEVICES = {"orin": "NVIDIA Jetson AGX Orin 64GB", "thor": "NVIDIA Jetson AGX Thor"}


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
    device = line.required("device")
    yield published(
        line,
        dataset="jetson",
        device_published=device,
        device_spelling=_DEVICES.get(device, device),
        unit="gpu",
        engine_published="vLLM",
        engine="vllm",
        weights="nvfp4" if "thor" in device.casefold() else "i4",
        activations="f16",
        prompt=2048,
        generate=128,
        model_published=line.required("model"),
        concurrency=line.whole("concurrency"),
        quantity="tokens",
        figure=line.positive("tokens_per_s"),
        figure_unit="tokens/s",
    )


FORM = Form(
    name="jetson",
    title="Jetson AI Lab",
    columns=frozenset({"model", "device", "concurrency", "tokens_per_s"}),
    read=read,
)
