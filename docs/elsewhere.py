"""docs/elsewhere.md: answers for devices that nobody here owns, beside what others measured of them."""

from __future__ import annotations

import csv
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from click.testing import CliRunner

import inferometer as im
from inferometer.cli.run import cli
from inferometer.known.atlas.shipped import load
from inferometer.known.atlas.sources.tidy import COLUMNS
from inferometer.measure.calibrate.priors.judged import DEVICE_OUT
from inferometer.understand.accuracy.published import left_out_results

if TYPE_CHECKING:
    from inferometer.core.calibration import Calibration
    from inferometer.known.atlas.measurement import PublishedMeasurement

NPU = "qualcomm-snapdragon-8-elite-npu"
KEPT, ASKED = 10, 30
COMMANDS = (
    "atlas --device 'galaxy s25' --model yolov8n",
    "predict yolov8n --on rockchip-rk3588-npu --runtime rknn --weights i8 --activations i8",
    "predict yolov8n --on raspberry-pi-5 --runtime ncnn --weights f16 --activations f16",
    "predict yolov8n --on nvidia-jetson-orin-nano-super --runtime tensorrt --weights f16 --activations f16",
    "predict llama-3.2-1b --on qualcomm-snapdragon-8-elite-npu --runtime genie --weights i4 --activations i16",
)
_TEN_ROWS = """Ten of its published rows with QNN, in a table of a user's own, predict thirty others. The priors have
seen rows of this device too, which the fit leaves aside;
[accuracy](accuracy.md) has devices that were left out whole."""
# What one hand-written share for each kind of op and unit gave on the same tables, before the priors were fitted.
BEFORE = {
    ("timm", "gpu", "torch-eager", "forward"): "38 to 55 %",
    ("timm", "gpu", "torch-compile", "forward"): "55 to 64 %",
    ("argonne", "gpu", "llamacpp", "decode"): "44 to 81 %",
    ("rknn", "npu", "rknn", "forward"): "YOLOv8n 7.8 times too fast",
    ("qai-hub", "npu", "qnn", "forward"): "refused",
    ("hailo", "npu", "hailort", "stream"): "refused",
}


def page_parts() -> list[str]:
    return [
        "# Devices that nobody here owns",
        "What the commands print for a phone, boards and an NPU, from the shipped priors and tables alone.",
        *(f"```\n$ inferometer {command}\n{_printed(command)}\n```" for command in COMMANDS),
        f"## {NPU}, calibrated from ten rows",
        _TEN_ROWS,
        _calibrated(),
        "## Before the priors were fitted, and after",
        "Median errors of published steps; now each device is predicted from fits without it.",
        _before_and_after(),
    ]


def _before_and_after() -> str:
    groups = {(each.dataset, each.unit, each.engine, each.quantity, each.way): each for each in left_out_results()}
    lines = ["| table | unit | engine | before | now | 80 % interval covers | its width |", "| --- " * 7 + "|"]
    for key, before in BEFORE.items():
        now = groups[(*key, DEVICE_OUT)]
        shares = (f"{100 * share:.0f} %" for share in (now.median, now.coverage, now.width))
        lines.append(f"| {' | '.join((*key[:3], before, *shares))} |")
    return "\n".join(lines)


def _printed(command: str) -> str:
    result = CliRunner().invoke(cli, shlex.split(command), env={"COLUMNS": "120", "NO_COLOR": "1"})
    return result.output.partition("\n\nSide by side")[0].rstrip()


def _calibrated() -> str:
    table = load(["qai-hub"]).where(device=NPU, engine="qnn", activations="i8", quantity="forward")
    rows = {row.model: row for row in table.rows() if row.model and row.part is None and row.settings["form"] == "dlc"}
    names = np.random.default_rng(0).permutation(sorted(rows)).tolist()
    kept, asked = names[:KEPT], names[KEPT : KEPT + ASKED]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(_line(rows[name]) for name in kept)
        fit = im.calibrate_from(path, device=NPU, runtime="qnn")
    told = [_answer(rows[name], fit.calibration) for name in asked]
    errors = [abs(predicted / published - 1) for _, published, predicted, _, _ in told]
    held = sum(low <= published <= high for _, published, _, low, high in told)
    head = "| model | published | predicted | low | high | off |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    body = "\n".join(
        f"| {name} | {1e3 * published:.2f} ms | {1e3 * predicted:.2f} ms | {1e3 * low:.2f} | {1e3 * high:.2f} | "
        f"{100 * (predicted / published - 1):+.0f} % |"
        for name, published, predicted, low, high in told
    )
    return (
        f"Median error {100 * float(np.median(errors)):.0f} %; {held} of {len(told)} intervals of eight in ten hold."
        f"\n\n{head}\n{body}"
    )


def _line(row: PublishedMeasurement) -> dict[str, Any]:
    taken = ("model", "engine", "quantity", "figure", "figure_unit", "batch", "image", "weights", "activations")
    return {"device": NPU, **{name: getattr(row, name) for name in taken}}


def _answer(row: PublishedMeasurement, calibration: Calibration) -> tuple[str, float, float, float, float]:
    image = row.image if ":" in str(row.model) else None  # the others are published at their usual size
    profile = im.predict(
        str(row.model), on=NPU, runtime="qnn", weights="i8", activations="i8", image=image, calibration=calibration
    )
    forward = profile.phase("forward")
    return str(row.model), row.seconds, forward.time_s, forward.low_s, forward.high_s
