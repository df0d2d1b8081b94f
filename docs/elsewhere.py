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
from inferometer.core.units import format_quantity
from inferometer.known.atlas.shipped import load
from inferometer.known.atlas.sources.tidy import COLUMNS
from inferometer.measure.calibrate.priors.judged import DEVICE_OUT
from inferometer.understand.view.accuracy import left_out_results

if TYPE_CHECKING:
    from inferometer.core.calibration import Calibration
    from inferometer.known.atlas.measurement import PublishedMeasurement

NPU = "qualcomm-snapdragon-8-elite-npu"
KEPT, ASKED = (3, 5, 10), 30
# Boards with the engine that their owners run and its format. A source whose licence keeps its figures out of the
# package is named, and its figure is not shown.
BOARDS = (
    ("rockchip-rk3588-npu", "rknn", "i8", ""),
    ("rockchip-rk3576-npu", "rknn", "i8", ""),
    ("rockchip-rk3568-npu", "rknn", "i8", ""),
    ("qualcomm-qcs6490-npu", "qnn", "i8", ""),
    ("qualcomm-dragonwing-iq-8275-npu", "qnn", "i8", ""),
    ("intel-n100-gpu", "openvino", "i8", ""),
    ("intel-atom-x7425e-cpu", "openvino", "i8", ""),
    ("raspberry-pi-5", "ncnn", "f16", "Ultralytics' documentation"),
    ("nvidia-jetson-orin-nano-8gb", "tensorrt", "f16", "Ultralytics' documentation"),
    ("axera-ax650n-npu", "pulsar2", "i8", "AXERA-TECH/ax-samples"),
    ("horizon-rdk-x5-npu", "hbdnn", "i8", "D-Robotics/rdk_model_zoo"),
)
QUESTIONS = (
    "whisper-large-v3 --on apple-m2-ultra-gpu --runtime whispercpp",
    "whisper-large-v3 --on nvidia-rtx-4090 --runtime whispercpp",
    "whisper-large-v3 --on raspberry-pi-5 --runtime whispercpp",
    "sdxl --on nvidia-a100-80gb --runtime torch-compile",
    "llama-3.1-8b --on nvidia-h100-sxm --runtime vllm --batch 64 --context 1024",
)
COMMANDS = (
    "atlas --device 'galaxy s25' --model yolov8n",
    "predict yolov8n --on rockchip-rk3588-npu --runtime rknn --weights i8 --activations i8",
    "predict yolov8n --on raspberry-pi-5 --runtime ncnn --weights f16 --activations f16",
    "predict yolov8n --on nvidia-jetson-orin-nano-super --runtime tensorrt --weights f16 --activations f16",
    "predict llama-3.2-1b --on qualcomm-snapdragon-8-elite-npu --runtime genie --weights i4 --activations i16",
)
_FEW_ROWS = """Three, five and ten of its published rows with QNN, in a table of a user's own, predict thirty others;
those below are from ten. The priors have seen rows of this device too, which the fit leaves aside;
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
        "## YOLOv8n on boards, beside what others published",
        "One image of 640 × 640. Most of these figures were in the fit of the priors.",
        _boards(),
        "## Speech, pictures and energy",
        _questions(),
        f"## {NPU}, calibrated from a few rows",
        _FEW_ROWS,
        _calibrated(),
        "## Before the priors were fitted, and after",
        "Median errors of published steps; now each device is predicted from fits without it.",
        _before_and_after(),
    ]


def _boards() -> str:
    lines = ["| board | engine | format | published | by | predicted | low | high |", "| --- " * 8 + "|"]
    for board, engine, form, named in BOARDS:
        chosen = load().where(model="yolov8n", device=board, engine=engine, activations=form, quantity="forward")
        rows = [row for row in chosen.rows() if row.image == 640 and (row.batch or 1) == 1]
        published = f"{1e3 * float(np.median([row.seconds for row in rows])):.1f} ms" if rows else "not shown"
        forward = im.predict("yolov8n", on=board, runtime=engine, weights=form, activations=form).phase("forward")
        times = " | ".join(f"{1e3 * time:.1f}" for time in (forward.time_s, forward.low_s, forward.high_s))
        lines.append(f"| {board} | {engine} | {form} | {published} | {named or rows[0].source} | {times} |")
    return "\n".join(lines)


def _questions() -> str:
    """What each of them takes: a line for each phase, and the energy of a token or of the whole."""
    lines = ["| `inferometer predict` … | takes | energy |", "| --- " * 3 + "|"]
    for question in QUESTIONS:
        words = shlex.split(question)
        options = {name[2:]: value for name, value in zip(words[1::2], words[2::2], strict=True)}
        sizes = {name: int(value) for name, value in options.items() if value.isdecimal()}
        profile = im.predict(words[0], **{**options, **sizes})
        phases = [phase for phase in profile.phases if not phase.once]
        taken = ", ".join(f"{phase.name} {format_quantity(phase.time_s, 's')}" for phase in phases)
        whole = profile.summary.e2e_s or profile.summary.latency_s
        taken += f"; all of it {format_quantity(whole, 's')}" if whole and len(phases) > 1 else ""
        joules, tokens = profile.summary.energy_j, sizes.get("batch", 0) if "context" in sizes else 0
        energy = "–" if joules is None else f"{joules / (tokens or 1):.3g} J{' a token' if tokens else ''}"
        lines.append(f"| `{question}` | {taken} | {energy} |")
    return "\n".join(lines)


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
    asked = names[max(KEPT) : max(KEPT) + ASKED]
    said = []
    for many in KEPT:
        told = _told(rows, names[:many], asked)
        errors = [abs(predicted / published - 1) for _, published, predicted, _, _ in told]
        held = sum(low <= published <= high for _, published, _, low, high in told)
        width = float(np.median([(high - low) / predicted for _, _, predicted, low, high in told]))
        said.append(
            f"- from {many}: median error {100 * float(np.median(errors)):.0f} %; {held} of {len(told)} intervals of "
            f"eight in ten hold, {100 * width:.0f} % wide"
        )
    head = "| model | published | predicted | low | high | off |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    body = "\n".join(
        f"| {name} | {1e3 * published:.2f} ms | {1e3 * predicted:.2f} ms | {1e3 * low:.2f} | {1e3 * high:.2f} | "
        f"{100 * (predicted / published - 1):+.0f} % |"
        for name, published, predicted, low, high in told
    )
    return "\n".join(said) + f"\n\n{head}\n{body}"


def _told(
    rows: dict[str, PublishedMeasurement], kept: list[str], asked: list[str]
) -> list[tuple[str, float, float, float, float]]:
    """Some models by a calibration from others: name, published, predicted, low, high."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(_line(rows[name]) for name in kept)
        fit = im.calibrate_from(path, device=NPU, runtime="qnn")
    return [_answer(rows[name], fit.calibration) for name in asked]


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
