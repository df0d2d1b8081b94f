"""Hailo's model zoo: frames a second of a stream at batch 1 and 8, with GOPs and parameters.

The compiler's default is i8. Marks of the table (`star`, `rocket`) are no part of a name.
"""

import re
from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.csv_lines import CsvLine
from inferometer.known.atlas.form import Form, published, settings
from inferometer.known.atlas.measurement import PublishedMeasurement


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
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


FORM = Form(
    name="hailo",
    title="Hailo model zoo",
    columns=frozenset({"device", "dfc", "network", "fps_b1", "fps_b8", "input_hwc"}),
    read=read,
)
