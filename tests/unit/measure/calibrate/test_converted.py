"""Engines that open a format of their own: their probes are converted, and may go beyond a format's peak."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from inferometer.core.calibration import Calibration
from inferometer.core.device import Sourced
from inferometer.known import device
from inferometer.measure.calibrate.fitting.fit import fit_points
from inferometer.measure.calibrate.fitting.points import OpPoint
from inferometer.measure.calibrate.probes.converted import converter_to
from inferometer.measure.calibrate.probes.models import ProbeRun, graph_of, read_probes
from inferometer.measure.calibrate.probes.points import run_in_turns
from inferometer.measure.calibrate.probes.provider import (
    CEILINGS,
    Ceilings,
    ProbeProvider,
    probe_provider,
    write_ceilings,
)
from inferometer.measure.run.child import runtime_named
from inferometer.predict.basis.calibrations import with_calibration
from inferometer.predict.work.classes import class_path

if TYPE_CHECKING:
    from pathlib import Path

BOARD = device("arm-neoverse-n1-2-cores")
PROBES = {probe.name: probe for probe in read_probes()}
SMALL = replace(PROBES["probe-basic-narrow"], runs=(ProbeRun(image=96), ProbeRun(batch=2, image=96)))
ENCODER = replace(PROBES["probe-encoder-320"], runs=(ProbeRun(prompt=48),))


def provider(name: str, folder: Path) -> ProbeProvider:
    runtime = runtime_named(name)
    return ProbeProvider(
        runtime=runtime, device=BOARD, dtype="f32", folder=folder, threads=1, limit_s=0.01, probes=(SMALL, ENCODER)
    )


@pytest.mark.parametrize(
    ("name", "tool", "cases"),
    [
        ("mnn", "_tools", ["basic-narrow 1 x image 96", "basic-narrow 2 x image 96", "encoder-320 1 x 48 tokens"]),
        ("ncnn", "pnnx", ["basic-narrow 1 x image 96"]),  # one input at a time, and no attention
    ],
)
def test_a_converted_probe_gives_points_for_its_convolutions_and_products(name, tool, cases, tmp_path, monkeypatch):
    pytest.importorskip(tool)
    pytest.importorskip("_mnncengine" if name == "mnn" else name)

    def run_without_interruption(*sessions, **asked):
        """A step as long as its kernels: on a busy machine the few that run could all have been interrupted."""
        ran = run_in_turns(*sessions, **asked)
        return replace(ran, clean_s=sum(kernel.samples_s[0] for kernel in ran.kernels))

    monkeypatch.setattr("inferometer.measure.calibrate.probes.provider.run_in_turns", run_without_interruption)
    with closing(provider(name, tmp_path)) as made:
        candidates = made.candidates()
        assert [candidate.key for candidate in candidates] == [f"probe-{case}" for case in cases]
        for candidate in candidates:
            measured = made.measure(candidate)
            probe = SMALL if "image" in candidate.key else ENCODER
            wanted = [
                op for block in graph_of(probe).blocks for op in block.ops if op.kind in {"convolution", "linear"}
            ]
            products = [point for point in measured.points if point.classes[-1] in {"convolution", "linear"}]
            # one that is too short for the clock of a busy machine has none
            assert len(wanted) - 2 <= len(products) <= len(wanted)
            assert measured.steps[0].config == probe.config, "whole steps are priced as users ask for them"


def test_a_converter_leaves_numbers_as_they_are():
    steps = [converter_to(runtime_named(name).formats) for name in ("mnn", "ncnn", "litert")]
    assert [step and step.quantises for step in steps[:2]] == [None, None]
    assert steps[2] is None, "no tool makes it of ONNX"


def test_an_engine_that_goes_beyond_a_peak_measures_its_own(tmp_path: Path):
    reached = Ceilings(flop_per_s=2e11, bytes_per_s=1e9, dtype="f32", threads=1, source="x", date="2026-01-01")
    write_ceilings(tmp_path / CEILINGS, reached)
    asked = {"journal": tmp_path, "threads": 1, "folder": tmp_path}
    runtime = runtime_named("onnxruntime")
    for beyond, peak in ((True, 2e11), (False, BOARD.peaks["f32"].value)):
        made = probe_provider(runtime, BOARD, "f32", beyond_peaks=beyond, **asked)
        assert made.device.peaks["f32"].value == peak
        assert made.device.memory.bandwidth_bytes_per_s.value == BOARD.memory.bandwidth_bytes_per_s.value


def test_a_prediction_takes_the_peak_that_the_calibration_reached():
    stated = BOARD.peaks["f32"].value
    for name, reached, peak in (("ncnn", 2e11, 2e11), ("ncnn", 1e9, stated), ("onnxruntime", 2e11, stated)):
        rate = Sourced(value=reached, origin="calibrated", source="x", date="2026-01-01")
        made = Calibration(device=BOARD.name, runtime=name, dtype="f32", created="2026-01-01", peaks={"f32": rate})
        assert with_calibration(BOARD, made).peaks["f32"].value == peak


def test_strided_windows_have_a_table_of_their_own_once_there_are_enough():
    ops = {block.full_name(op.name): op for block in graph_of(SMALL).blocks for op in block.ops}
    strided, dense = (class_path(ops[name], "forward") for name in ("layer2.0.conv1", "layer2.0.conv2"))
    assert strided[:2] == ("convolution.window.strided", "convolution.window")
    assert dense[0] == "convolution.window"
    large = next(op for _, op in graph_of(PROBES["probe-large-windows"]).ops() if op.get("kernel") == (5, 5))
    assert class_path(large, "forward")[:2] == ("convolution.window.large", "convolution.window"), "no Winograd's"

    def points(classes: tuple[str, ...], count: int, seconds: float) -> list[OpPoint]:
        return [
            OpPoint(classes=classes, axes={"flops": 1e6 * (1 + n), "channels": 8.0, "in_features": 8.0,
                    "weight_bytes": 1e3, "bytes": 1e3, "aligned": 8.0, "filled": 50.0}, seconds=seconds,
                    floor_s=1e-4, dtype="f32", probe=f"p{n % 3}")
            for n in range(count)
        ]  # fmt: skip

    def table(name: str, few: int) -> list[float]:
        fitted = {fit.table.op_class: fit.table for fit in fit_points([*points(strided, few, 1e-3),
                                                                        *points(dense, 60, 2e-4)])}  # fmt: skip
        return [] if name not in fitted else list(fitted[name].values)

    assert table(strided[0], 20) == pytest.approx([0.1] * len(table(strided[0], 20)))
    assert min(table(dense[0], 20)) == pytest.approx(0.5)
    assert not table(strided[0], 19)
    assert min(table(dense[0], 19)) < 0.5, "too few: they are windows like the others"
