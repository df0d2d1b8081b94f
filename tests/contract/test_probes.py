"""Every engine of ours has probes: a way to make them, and points and whole steps where they are run."""

from __future__ import annotations

import warnings
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from fakes.xnnpack import without_patterns
from inferometer.known import device
from inferometer.known.engines import engine, engines
from inferometer.measure.calibrate.probes.converted import EXPORTED, converter_to, source_of
from inferometer.measure.calibrate.probes.decoders import DecoderProvider
from inferometer.measure.calibrate.probes.models import ProbeRun, read_probes, steps_to
from inferometer.measure.calibrate.probes.provider import ProbeProvider
from inferometer.measure.prepare.child import carry_out
from inferometer.measure.run.child import runtime_named

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.engines.order import ToolAnswer, ToolOrder
    from inferometer.measure.prepare.steps import PrepareStep

BOARD = device("arm-neoverse-n1-2-cores")
PROBES = {probe.name: probe for probe in read_probes()}
RUN = [name for name, described in engines().items() if described.opens]
DECODERS = [name for name in RUN if engine(name).calibrated.get("cpu") == "decoders"]
FILES = [name for name in RUN if engine(name).calibrated.get("cpu") == "files"]
CONVERTED = [name for name in DECODERS if "gguf" not in engine(name).opens]
LOWERED = [name for name in FILES if (step := converter_to(engine(name).opens)) and source_of(step) == EXPORTED]


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_can_be_made_in_the_format_that_is_calibrated_by_default(name):
    described = engine(name)
    assert described.by_weights is not None, "calibrations of language models are by the format of the weights"
    assert "gguf" in described.opens or described.calibrated_in in steps_to(described.opens)


@pytest.mark.parametrize("name", FILES)
def test_networks_can_be_made_for_an_engine_that_takes_arrays(name):
    opens = set(engine(name).opens)
    assert opens & {"onnx", "tflite", "config"} or converter_to(opens) is not None


def in_this_process(step: PrepareStep, order: ToolOrder, _folder: Path, _seconds_at_most: float) -> ToolAnswer:
    """Tools take seconds to import in a process of their own, as test_workshop.py shows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their own
        return carry_out(step.work, order)


def needs(name: str, packages: tuple[str, ...]) -> None:
    for package in (engine(name).module, *packages):
        if package is None or find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("name", CONVERTED)
def test_a_converted_decoder_tells_of_its_products_in_both_phases(name, tmp_path: Path):
    step = steps_to(engine(name).opens)[engine(name).calibrated_in or ""]
    needs(name, step.modules)
    tiny = PROBES["probe-tiny-decoder"]
    runtime = runtime_named(name)
    timed = runtime.capabilities.per_op
    tiny = replace(
        tiny, config={**tiny.config, "num_hidden_layers": 2}, runs=(ProbeRun(prompt=8, context=16),),
        role="overhead" if timed else "ceiling",
    )  # fmt: skip
    provider = DecoderProvider(
        runtime=runtime, device=BOARD, weights=engine(name).calibrated_in or "", folder=tmp_path, threads=1,
        limit_s=0.01, probes=(tiny,), tools=in_this_process,
    )  # fmt: skip
    (candidate,) = provider.candidates()
    measured = provider.measure(candidate)
    if not timed:
        assert not measured.points
        assert {step.phase for step in measured.steps} == {"prefill", "decode"}
        return
    assert {point.classes[0] for point in measured.points if "linear" in point.classes} == {
        "linear.prefill", "linear.decode",
    }  # fmt: skip
    assert {point.op for point in measured.points if point.classes == ("overhead",)} == {"kernel"}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOWERED)
def test_a_lowered_network_gives_points_that_a_prediction_finds(name, tmp_path: Path, monkeypatch):
    needs(name, ("torch", "torchao"))
    without_patterns(monkeypatch)
    narrow = PROBES["probe-basic-narrow"]
    two = {"hidden_sizes": [24, 48], "depths": [1, 1]}  # a stem, and two blocks of which the second changes the size
    small = replace(narrow, config={**narrow.config, **two}, runs=(ProbeRun(image=64),))
    provider = ProbeProvider(
        runtime=runtime_named(name), device=BOARD, dtype="f32", folder=tmp_path, threads=1, limit_s=0.01,
        probes=(small,), tools=in_this_process,
    )  # fmt: skip
    (candidate,) = provider.candidates()
    measured = provider.measure(candidate)
    provider._shut()
    windows = [point for point in measured.points if point.classes[-1] == "convolution"]
    assert len(windows) == 1 + 2 + 3
    assert all({"flops", "bytes", "weight_bytes"} <= point.axes.keys() for point in windows)
    assert not any("plane" in point.axes for point in windows), "images lie the other way round in its files"
    assert measured.steps[0].config == small.config, "whole steps are priced as users ask for them"
