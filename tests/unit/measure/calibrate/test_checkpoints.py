"""Decoders for engines with folders of their own: who makes them, how deep they are, and steps without timers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inferometer.core.device import Memory
from inferometer.known import device
from inferometer.known.engines import engine, engines
from inferometer.measure.calibrate.probes.decoders import whole_rates
from inferometer.measure.calibrate.probes.models import (
    WRITES,
    beyond_caches,
    deepened,
    graph_of,
    making_s,
    read_probes,
    steps_to,
)
from inferometer.measure.calibrate.probes.points import price_probe
from inferometer.measure.calibrate.run import CalibrationJournal, CandidateResult, ProbeCandidate, calibrate_with

PROBES = {probe.name: probe for probe in read_probes()}
LLM = [
    name for name, each in engines().items() if each.calibrated.get("cpu") == "decoders" and "gguf" not in each.opens
]


def test_each_engine_of_language_models_is_probed_by_default_in_a_format_that_a_tool_makes():
    assert sorted(LLM) == ["ctranslate2", "onnxruntime-genai", "openvino-genai"]
    for name in LLM:
        steps = steps_to(engine(name).opens)
        assert engine(name).calibrated_in in steps
        assert "f32" in steps
        assert {step.gives for step in steps.values()} == set(engine(name).opens)


def test_a_step_of_a_probe_reads_more_than_a_cache_holds():
    probe = PROBES["probe-decoder-384"]
    deep = deepened(probe, "i8", 64_000_000)
    assert (deep.config["num_hidden_layers"], deep.name) == (24, "probe-decoder-384-24-layers"), (
        "told apart by the name"
    )
    assert deepened(probe, "f32", 64_000_000) is probe, "ten layers of it are 63 MB, and its head is 25 MB"
    tiny = PROBES["probe-tiny-decoder"]
    assert deepened(tiny, "i8", 64_000_000) is tiny


@pytest.mark.parametrize(
    ("cache", "read", "layers"), [(None, 64, 7), (1, 64, 7), (32, 64, 7), (64, 96, 12), (105, 157, 21), (320, 256, 35)]
)
def test_the_larger_a_machines_caches_are_the_more_layers_its_probes_have(cache, read, layers):
    """Weights that stay in a cache of 105 MB are read twice as fast as a model's, which come from memory."""
    machine = device("arm-neoverse-n1-2-cores")
    levels = [Memory(level="l2", capacity_bytes=replace(machine.memory.capacity_bytes, value=1e6))]
    if cache:
        levels.append(Memory(level="l3", capacity_bytes=replace(machine.memory.capacity_bytes, value=cache * 1e6)))
    found = beyond_caches(replace(machine, memories=(machine.memory, *levels)))
    assert found == pytest.approx(read * 1e6, rel=0.01)
    assert making_s(found) == pytest.approx(6 * found / 64e6)
    probe = deepened(PROBES["probe-decoder-768"], "i8", found)
    assert probe.config["num_hidden_layers"] == layers
    assert graph_of(probe).parameters - 24_000 * 768 >= found


def test_decoders_differ_in_depth_so_that_a_layer_is_told_apart_from_a_step():
    shapes = [probe for probe in PROBES.values() if probe.kind == WRITES and probe.role == "shape"]
    assert len({probe.config["num_hidden_layers"] for probe in shapes}) > 2


def test_an_engine_without_timers_has_peaks_above_what_its_whole_steps_reach():
    probe = PROBES["probe-decoder-384"]
    sizes = {"batch": 1, "query": 1, "context": 64, "logits": 1}
    known = price_probe(
        graph_of(probe), device("arm-neoverse-n1-2-cores"), "ctranslate2", sizes=sizes, phase="decode",
        workload=probe.runs[0].workload(),
    )  # fmt: skip
    merged = max(known.entries, key=lambda work: "q_proj" in work.name)
    assert merged.axes["out_features"] == 384 + 2 * 128, "three projections are one matrix in this engine"
    reached = whole_rates(known, 2.0)
    for rate, axis in zip(reached, ("flops", "bytes"), strict=True):
        assert rate > 2 * sum(work.count * work.axes[axis] for work in known.entries) / 2.0


def test_what_takes_long_to_make_is_begun_only_while_there_is_time_for_it(tmp_path):
    class Provider:
        def candidates(self) -> list[ProbeCandidate]:
            return [
                ProbeCandidate(key=key, op_class="linear", seconds=1.0, making_s=making)
                for key, making in (("made", 0.0), ("short", 50.0), ("long", 150.0))
            ]

        def measure(self, candidate: ProbeCandidate) -> CandidateResult:
            measured.append(candidate.key)
            return CandidateResult()

    measured: list[str] = []
    calibrate_with(Provider(), CalibrationJournal(folder=tmp_path), budget_s=100.0, clock=lambda: 0.0)
    assert sorted(measured) == ["made", "short"], "making is not held against a case: it is done once"
