"""MLPerf Mobile: one query's mean and 90th percentile, or the offline rate, of a phone's own stack."""

from collections.abc import Iterator
from typing import Any

from inferometer.known.atlas.csv_lines import CsvLine
from inferometer.known.atlas.form import Form, published, settings
from inferometer.known.atlas.measurement import PublishedMeasurement

# The submissions' short names of chips.
_CHIPS = {
    "SD8G2": "Snapdragon 8 Gen 2", "SD8G3": "Snapdragon 8 Gen 3", "SD8SG3": "Snapdragon 8s Gen 3",
    "SDX_Elite": "Snapdragon X Elite", "SD8E": "Snapdragon 8 Elite", "D9300": "Dimensity 9300",
}  # fmt: skip


def read(line: CsvLine) -> Iterator[PublishedMeasurement]:
    device, scenario = line.required("device"), line.required("scenario").casefold()
    facts: dict[str, Any] = {
        "dataset": "mlperf-mobile",
        "place": line.text("round"),
        "date": "2024-09" if line.text("round") == "v4.1" else None,
        "device_published": device,
        "device_spelling": _CHIPS.get(device, device),
        "unit": "npu",
        "model_published": line.required("model"),
        "settings": settings(scenario=scenario, submitter=line.text("submitter")),
    }
    if scenario == "offline":
        rate = line.positive("samples_per_s")
        yield published(line, quantity="stream", figure=rate, figure_unit="inputs/s", **facts)
        return
    quantity = "request" if "diffusion" in facts["model_published"] else "forward"
    mean = line.positive("mean_ns")
    yield published(line, quantity=quantity, figure=mean, figure_unit="ns", batch=1, **facts)


FORM = Form(
    name="mlperf-mobile",
    title="MLPerf Mobile",
    columns=frozenset({"round", "submitter", "device", "model", "scenario", "p90_ns", "mean_ns"}),
    read=read,
)
