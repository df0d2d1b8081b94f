"""Rockchip's model zoo: frames a second of the NPU alone, one input after the other."""

import re
from collections.abc import Iterator

from inferometer.known.atlas.csv_lines import CsvLine
from inferometer.known.atlas.form import Form, format_named, published, settings
from inferometer.known.atlas.measurement import PublishedMeasurement


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
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


FORM = Form(
    name="rknn",
    title="Rockchip, rknn_model_zoo",
    columns=frozenset({"device", "model", "input_shape", "dtype", "fps"}),
    read=read,
)
