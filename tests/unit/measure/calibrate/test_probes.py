"""Probe models: what is read from the table, what counts as a step, and what becomes of it as points."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isclose
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.device import Device, Memory
from inferometer.core.errors import DomainError, FormatError
from inferometer.core.workload import Precision
from inferometer.engines.base import Capabilities, Kernel, Opened
from inferometer.formats.resolve import read
from inferometer.known.zoo import models
from inferometer.measure.calibrate.probes.models import PROBES, Probe, ProbeRun, file_of, graph_of, read_probes
from inferometer.measure.calibrate.probes.pace import MachinePace, Timed, first_decile, steady_places, steady_seconds
from inferometer.measure.calibrate.probes.points import (
    ProbeTimes,
    SmallOps,
    ops_of,
    price_probe,
    probe_points,
    run_in_turns,
)
from inferometer.measure.calibrate.probes.provider import (
    Ceilings,
    ProbeProvider,
    measure_ceilings,
    probe_provider,
    read_ceilings,
    unit_rates,
    with_rates,
)
from inferometer.understand.accuracy.cases import read_cases

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.engines.base import Target

F32 = Precision(weights="f32", activations="f32", kv="f32")
DEVICE = Device(name="here", title="Here", vendor="x", unit="cpu", memories=(Memory(level="dram"),))
RATES = Ceilings(flop_per_s=1e11, bytes_per_s=2e10, dtype="f32", threads=1, source="a test", date="2026-11-15")
NARROW = next(probe for probe in read_probes() if probe.name == "probe-basic-narrow")


# ---- the table ------------------------------------------------------------------------------------------------------


def test_every_probe_is_a_graph_that_can_be_priced():
    device = with_rates(DEVICE, RATES)
    for probe in read_probes():
        run = probe.runs[0]
        sizes = {"batch": run.batch, "query": run.prompt or 1, "context": run.context or 0, "logits": 1}
        phase = "prefill" if probe.kind == "decoder" else "forward"
        found = price_probe(
            graph_of(probe), device, "onnxruntime", workload=run.workload(F32), sizes=sizes, phase=phase
        )
        assert found.floor_s > 0, probe.name
        assert found.launches > 0, probe.name


def test_no_probe_has_the_sizes_of_a_model_that_predictions_are_tried_on():
    def shape(config):
        told = ("hidden_size", "intermediate_size", "hidden_sizes", "stages", "blocks", "block_config")
        return str({name: config[name] for name in told if name in config})

    tried = {case.model for case in read_cases()}
    known = {shape(row.config) for name, row in models().items() if name in tried}
    assert len(known) > 10
    assert known.isdisjoint({shape(probe.config) for probe in read_probes()})


def test_the_table_covers_every_class_of_op():
    device = with_rates(DEVICE, RATES)
    classes = set()
    for probe in read_probes():
        run = probe.runs[-1]
        for phase, query, context in (("prefill", run.prompt or 1, 0), ("decode", 1, run.context or 0)):
            name = phase if probe.kind == "decoder" else "forward"
            sizes = {"batch": run.batch, "query": query, "context": context, "logits": 1}
            found = price_probe(
                graph_of(probe), device, "llamacpp", workload=run.workload(F32), sizes=sizes, phase=name
            )
            classes |= {each for work in found.works.values() for each in work.classes}
    assert {
        "linear",
        "convolution",
        "depthwise",
        "attention.prefill",
        "attention.decode",
        "vector",
        "indexing",
    } <= classes


def test_there_are_probes_for_ceilings_and_for_overheads():
    roles = {probe.role for probe in read_probes()}
    assert roles == {"ceiling", "overhead", "shape"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[probes.a]\nfamily = 'none'\nruns = []\nconfig = {}", "the unknown family 'none'"),
        ("[families.f]\n[probes.a]\nfamily = 'f'\nrole = 'odd'\nruns = []\nconfig = {}", "the unknown role 'odd'"),
        ("[families.f]\n[probes.a]\nfamily = 'f'\nruns = [[1]]\nconfig = { image_size = 8 }", "has 1 sizes"),
        ("[probes", "cannot be read"),
    ],
)
def test_a_wrong_table_is_an_error_that_names_what_is_wrong(tmp_path: Path, text: str, words: str):
    path = tmp_path / "probes.toml"
    path.write_text(text)
    with pytest.raises(FormatError, match=words):
        read_probes(path)


def test_a_file_is_made_once_and_again_for_another_image(tmp_path: Path):
    first = file_of(NARROW, ProbeRun(image=32), format="onnx", weights="f32", folder=tmp_path)
    made = first.stat().st_mtime_ns
    assert file_of(NARROW, ProbeRun(image=32), format="onnx", weights="f32", folder=tmp_path) == first
    assert first.stat().st_mtime_ns == made
    assert file_of(NARROW, ProbeRun(image=64), format="onnx", weights="f32", folder=tmp_path) != first
    assert not list(tmp_path.glob("part-*"))


@pytest.mark.parametrize("weights", ["f32", "f16"])
def test_a_file_has_the_weights_that_its_name_says(tmp_path: Path, weights: str):
    path = file_of(NARROW, ProbeRun(image=32), format="onnx", weights=weights, folder=tmp_path)
    assert f"-{weights}-" in path.name
    assert {tensor.dtype for tensor, _ in read(path).weights() if tensor.elements > 1} == {weights}


def test_a_config_says_the_image_of_the_run(tmp_path: Path):
    """PyTorch is fed what the config says, so that one config for all sizes would measure the first of them only."""
    sides = {}
    for side in (32, 64):
        folder = file_of(NARROW, ProbeRun(image=side), format="config", weights="f32", folder=tmp_path)
        sides[folder] = json.loads((folder / "config.json").read_text(encoding="utf-8"))["image_size"]
    assert sorted(sides.values()) == [32, 64]
    assert len(sides) == 2


# ---- the pace -------------------------------------------------------------------------------------------------------


class Clocks:
    """Time that only work makes pass: on the wall, and on our own clock where nobody comes between."""

    def __init__(self) -> None:
        self.wall = self.mine = 0.0
        self.piece_s = 1e-4

    def work(self, own_s: float, lost_s: float = 0.0) -> None:
        self.mine += own_s
        self.wall += own_s + lost_s

    def pace(self) -> MachinePace:
        return MachinePace(
            piece=lambda rounds: self.work(self.piece_s * rounds / 40),
            clock=lambda: self.wall,
            own=lambda: self.mine,
            thread=lambda: self.mine,
        )


def test_a_step_beside_which_the_machine_was_slow_does_not_count():
    clocks = Clocks()
    pace = clocks.pace()
    pace.learn(0.01)
    fast = pace.timed(lambda: clocks.work(0.010))
    clocks.piece_s = 1.6e-4
    slow = pace.timed(lambda: clocks.work(0.016))
    assert steady_places([fast, slow], pace, threads=1) == [0]
    assert isclose(steady_seconds([fast, slow], pace, threads=1), 0.010)


def test_a_step_that_others_interrupted_does_not_count_unless_it_is_all_there_is():
    clocks = Clocks()
    pace = clocks.pace()
    pace.learn(0.01)
    alone = pace.timed(lambda: clocks.work(0.010))
    interrupted = pace.timed(lambda: clocks.work(0.009, lost_s=0.03))
    assert steady_places([alone, interrupted], pace, threads=1) == [0]
    assert isclose(steady_seconds([interrupted], pace, threads=1), 0.009)
    assert isclose(steady_seconds([interrupted], pace, threads=2), 0.039), "two threads share one clock of their own"


@given(st.lists(st.floats(1e-6, 1.0), min_size=1))
def test_the_first_decile_is_one_of_the_readings_and_few_are_less(values: list[float]):
    found = first_decile(values)
    assert found in values
    assert sum(value < found for value in values) <= len(values) / 10


# ---- running --------------------------------------------------------------------------------------------------------


class FakeSession:
    """Takes the same time each step; every third is slower by what others took."""

    def __init__(self, clocks: Clocks, seconds: float, kernels: tuple[tuple[str, str, float], ...] = ()) -> None:
        self.clocks, self.seconds, self.parts = clocks, seconds, kernels
        self.steps = 0
        self.opened = Opened(stages=(), versions={"engine": "1"})
        self.closed = False

    def feed(self, inputs: object) -> None: ...

    def step(self) -> None:
        self.steps += 1
        self.clocks.work(self.seconds, lost_s=self.seconds if self.steps % 3 == 0 else 0.0)

    def kernels(self) -> dict[str, tuple[Kernel, ...]]:
        count, self.steps = self.steps, 0
        return {
            "forward": tuple(
                Kernel(name=name, kind=kind, samples_s=tuple([seconds] * count), layers=(name,))
                for name, kind, seconds in self.parts
            )
        }

    def close(self) -> None:
        self.closed = True


def test_steps_are_taken_until_enough_count():
    clocks = Clocks()
    pace = clocks.pace()
    pace.learn(0.01)
    ran = run_in_turns(FakeSession(clocks, 0.02), None, pace, limit_s=0.1, threads=1)
    assert isclose(ran.clean_s, 0.02)
    assert ran.steady >= 3
    assert ran.versions == {"engine": "1"}


def test_a_probe_that_takes_longer_than_its_time_is_run_once_or_twice_and_no_more():
    clocks = Clocks()
    pace = clocks.pace()
    pace.learn(0.01)
    session = FakeSession(clocks, 50.0)
    ran = run_in_turns(session, None, pace, limit_s=0.5, threads=1)
    assert ran.runs <= 3
    assert session.steps <= 4


def test_kernels_are_read_from_the_steps_that_count():
    clocks = Clocks()
    pace = clocks.pace()
    pace.learn(0.01)
    timed = FakeSession(clocks, 0.02, (("a", "Conv", 0.015),))
    ran = run_in_turns(FakeSession(clocks, 0.018), timed, pace, limit_s=0.2, threads=1)
    assert [kernel.samples_s for kernel in ran.kernels] == [(0.015,)]
    assert isclose(ran.clean_s, 0.018)


# ---- points ---------------------------------------------------------------------------------------------------------


def ran_at(share: float, device: Device, run: ProbeRun) -> ProbeTimes:
    """A run in which every op that begins a kernel takes its floor over a share, and the others nothing."""
    sizes = {"batch": run.batch, "query": 1, "context": 0, "logits": 1}
    works = price_probe(
        graph_of(NARROW), device, "onnxruntime", workload=run.workload(F32), sizes=sizes, phase="forward"
    ).works
    kernels = tuple(
        Kernel(name=name, kind="x", samples_s=(work.floor_s / share,), layers=(name,))
        for name, work in works.items()
        if work.launches
    )
    return ProbeTimes(clean_s=sum(kernel.samples_s[0] for kernel in kernels), kernels=kernels, runs=3, steady=3)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_an_op_at_a_share_of_its_peak_is_a_point_of_that_share(share: float):
    device, run = with_rates(DEVICE, RATES), ProbeRun(image=64)
    sizes = {"batch": 1, "query": 1, "context": 0, "logits": 1}
    known = price_probe(
        graph_of(NARROW), device, "onnxruntime", workload=run.workload(F32), sizes=sizes, phase="forward"
    )
    ran = ran_at(share, device, run)
    found = probe_points(
        ops_of(graph_of(NARROW), run.workload(F32), sizes, ran),
        known,
        SmallOps(),
        dtype="f32",
        probe="p",
        workload="w",
        rates={"peak:f32": 1e11},
    )
    assert {point.classes[-1] for point in found} >= {"convolution", "linear", "vector"}
    for point in found:
        assert isclose(point.share(), share, rel_tol=1e-6), point.op
        assert point.rates == {"peak:f32": 1e11}


def test_small_ops_inside_a_kernel_leave_the_large_one_what_their_own_table_does_not_claim():
    device, run = with_rates(DEVICE, RATES), ProbeRun(image=64)
    sizes = {"batch": 1, "query": 1, "context": 0, "logits": 1}
    known = price_probe(
        graph_of(NARROW), device, "onnxruntime", workload=run.workload(F32), sizes=sizes, phase="forward"
    )
    main, inside = "layer1.0.conv1", "layer1.0.bn1.act"
    whole = 10 * known.works[main].floor_s
    kernel = Kernel(name="k", kind="Conv", samples_s=(whole,), layers=(main, inside))
    ran = ProbeTimes(clean_s=whole, kernels=(kernel,), runs=3, steady=3)
    found = probe_points(
        ops_of(graph_of(NARROW), run.workload(F32), sizes, ran), known, SmallOps(), dtype="f32", probe="p",
        workload="w", rates={},
    )  # fmt: skip
    floor_s = known.works[inside].floor_s
    assert {point.op: point.seconds for point in found} == pytest.approx({main: whole - floor_s, inside: floor_s})


def test_where_most_of_the_time_is_in_no_op_of_the_graph_there_are_no_points():
    device, run = with_rates(DEVICE, RATES), ProbeRun(image=64)
    sizes = {"batch": 1, "query": 1, "context": 0, "logits": 1}
    known = price_probe(
        graph_of(NARROW), device, "onnxruntime", workload=run.workload(F32), sizes=sizes, phase="forward"
    )

    def points(named_s: float):
        kernels = (
            Kernel(name="k", kind="Conv", samples_s=(named_s,), layers=("layer1.0.conv1",)),
            Kernel(name="x", kind="Conv", samples_s=(1 - named_s,), layers=("of.another.name",)),
        )
        ran = ProbeTimes(clean_s=1.0, kernels=kernels, runs=3, steady=3)
        ops = ops_of(graph_of(NARROW), run.workload(F32), sizes, ran)
        return probe_points(ops, known, SmallOps(), dtype="f32", probe="p", workload="w", rates={})

    assert points(0.3) == ()
    (point,) = points(0.7)
    assert isclose(point.seconds, 1.0)  # what is in no op is spread over those that are


# ---- the provider ---------------------------------------------------------------------------------------------------


class FakeRuntime:
    name, title, formats = "onnxruntime", "A fake engine", frozenset({"onnx"})
    capabilities = Capabilities()

    def __init__(self, clocks: Clocks, rate: float) -> None:
        self.clocks, self.rate = clocks, rate
        self.sessions: list[FakeSession] = []

    def open(self, target: Target) -> FakeSession:
        """Every op at the rate: all of its work at that many operations and bytes a second."""
        probe = next(each for each in PROBED if target.path.name.startswith(f"{each.name}-f32"))
        run = probe.runs[0]
        sizes = {"batch": run.batch, "query": run.prompt or 1, "context": 0, "logits": 1}
        works = price_probe(
            graph_of(probe), with_rates(DEVICE, unit_rates("f32")), self.name, workload=run.workload(F32), sizes=sizes,
            phase="forward",
        ).works  # fmt: skip
        parts = tuple((name, "x", work.floor_s / self.rate) for name, work in works.items() if work.launches)
        session = FakeSession(self.clocks, sum(part[2] for part in parts), parts)
        self.sessions.append(session)
        return session


SMALL = replace(NARROW, runs=(ProbeRun(image=32),))
CEILING = replace(SMALL, name="probe-top", role="ceiling")
PROBED: tuple[Probe, ...] = (SMALL, CEILING)


def provider(tmp_path: Path, rate: float = 1e9, **options: object) -> ProbeProvider:
    clocks = Clocks()
    return ProbeProvider(
        runtime=FakeRuntime(clocks, rate), device=with_rates(DEVICE, RATES), dtype="f32", folder=tmp_path, threads=1,
        probes=PROBED, pace=clocks.pace(), limit_s=1e-3, **options,
    )  # fmt: skip


def test_candidates_say_their_class_and_ceilings_come_first(tmp_path: Path):
    found = {each.key: each for each in provider(tmp_path).candidates()}
    assert found["probe-basic-narrow 1 x image 32"].op_class == "convolution"
    assert [each.first for each in found.values()] == [False, True]
    assert all(each.floor_s > 0 and each.seconds > 0 for each in found.values())


def test_a_measured_candidate_gives_points_and_a_whole_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("inferometer.measure.calibrate.probes.provider.fed", lambda _order, session: session)
    made = provider(tmp_path)
    candidate = made.candidates()[0]
    found = made.measure(candidate)
    (step,) = found.steps
    assert step.model == "probe-basic-narrow"
    assert step.image == 32
    assert isclose(sum(p.seconds for p in found.points if p.launches), step.seconds, rel_tol=1e-3)
    assert {point.probe for point in found.points} == {"probe-basic-narrow"}
    assert found.points[0].rates == {"peak:f32": 1e11, "bandwidth:dram": 2e10}


def test_sessions_are_closed_when_another_file_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("inferometer.measure.calibrate.probes.provider.fed", lambda _order, session: session)
    made = provider(tmp_path)
    for candidate in made.candidates():
        made.measure(candidate)
    made.close()
    assert all(session.closed for session in made.runtime.sessions)


def test_the_ceilings_are_the_best_rates_and_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("inferometer.measure.calibrate.probes.provider.fed", lambda _order, session: session)
    clocks = Clocks()
    bare = ProbeProvider(
        runtime=FakeRuntime(clocks, 1e9), device=with_rates(DEVICE, unit_rates("f32")), dtype="f32", folder=tmp_path,
        threads=1, probes=PROBED, pace=clocks.pace(), limit_s=1e-3,
    )  # fmt: skip
    found = measure_ceilings(bare)
    assert isclose(found.flop_per_s, 1e9, rel_tol=0.01)
    assert found.threads == 1


def test_a_device_whose_row_states_its_rates_keeps_them(tmp_path: Path):
    clocks = Clocks()
    made = probe_provider(
        FakeRuntime(clocks, 1e9), with_rates(DEVICE, RATES), "f32", journal=tmp_path, threads=1, folder=tmp_path
    )
    assert float(made.device.peaks["f32"]) == 1e11
    assert not (tmp_path / "ceilings.json").exists()


def test_ceilings_that_were_cut_off_are_an_error_that_says_so(tmp_path: Path):
    assert read_ceilings(tmp_path / "ceilings.json") is None
    (tmp_path / "ceilings.json").write_text('{"flop_per_s": 1')
    with pytest.raises(FormatError, match="holds no ceilings"):
        read_ceilings(tmp_path / "ceilings.json")


def test_an_engine_that_opens_nothing_we_can_make_says_what_it_opens(tmp_path: Path):
    runtime = FakeRuntime(Clocks(), 1e9)
    runtime.formats = frozenset({"pt2"})
    with pytest.raises(DomainError, match="opens pt2"):
        ProbeProvider(
            runtime=runtime, device=DEVICE, dtype="f32", folder=tmp_path, threads=1, pace=Clocks().pace()
        )  # fmt: skip


def test_the_table_ships_with_the_package():
    assert PROBES.is_file()


def test_a_timed_step_keeps_the_slower_of_the_pieces_beside_it():
    clocks = Clocks()
    pace = clocks.pace()

    def step() -> None:
        clocks.work(0.01)
        clocks.piece_s = 3e-4

    found = pace.timed(step)
    assert isclose(found.beside_s, 3e-4)
    assert isclose(found.wall_s, 0.01)
    assert found == Timed(wall_s=found.wall_s, own_s=found.own_s, beside_s=found.beside_s)
