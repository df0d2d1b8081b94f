"""What is done before, between and after the cases of a calibration, with made-up engines."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from inferometer.cli.commands import calibrate as door
from inferometer.core.device import Device
from inferometer.core.errors import DomainError, EngineError
from inferometer.core.profile import OpTime
from inferometer.engines.base import Event, Kernel
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate import job as jobs
from inferometer.measure.calibrate.fitting.points import StepPoint, overhead
from inferometer.measure.calibrate.job import CalibrationJob, PreparedEngine, calibrate
from inferometer.measure.calibrate.probes import pace as paces
from inferometer.measure.calibrate.probes.decoders import DecoderProvider, _once, generation_kernels
from inferometer.measure.calibrate.probes.models import WRITES
from inferometer.measure.calibrate.probes.pace import Flood, MachinePace
from inferometer.measure.calibrate.probes.points import ProbeTimes, ops_of, run_in_turns
from inferometer.measure.calibrate.probes.provider import _sizes, _timed, ceiling_runs
from inferometer.measure.calibrate.run import CalibrationJournal, CalibrationOutcome, CandidateResult, ProbeCandidate
from inferometer.measure.calibrate.torch.kernels import KernelSizes
from inferometer.measure.calibrate.torch.models import TINY
from inferometer.measure.calibrate.torch.provider import TorchReadings, torch_provider
from inferometer.measure.calibrate.torch.timing import Clock
from inferometer.measure.run.order import TextOrder
from unit.measure.run.test_profiles_told import names, subject

CPU = Device(name="local", title="L", vendor="v", unit="cpu", kind="desktop")


def asked(tmp_path, **given):
    return CalibrationJob(
        **{"device": CPU, "runtime": "onnxruntime", "dtype": "f32", "budget_s": 60.0, "folder": tmp_path} | given
    )


# A job.


@pytest.fixture
def engine(monkeypatch):
    """An engine that is made up, and what was asked of it."""
    seen = SimpleNamespace(quiet=[], probed=[], closed=[])
    provider = SimpleNamespace(device=CPU, close=lambda: seen.closed.append(1), candidates=list)

    def engine_provider(probed, known, base):
        seen.probed.append((probed, known, base))
        return provider

    where = "inferometer.measure.calibrate.engines"
    monkeypatch.setattr(f"{where}.engine_provider", engine_provider)
    monkeypatch.setattr(f"{where}.require_quiet_machine", seen.quiet.append)
    monkeypatch.setattr(f"{where}.disturbed_by", lambda _guard: "disturbed")
    monkeypatch.setattr(f"{where}.circumstances", lambda _guard: {"cpu": "x"})
    monkeypatch.setattr("inferometer.measure.bench.guard.Guard", lambda: "guard")
    monkeypatch.setattr("inferometer.measure.run.child.runtime_named", lambda name: f"runtime {name}")
    monkeypatch.setattr(jobs, "host_setup", lambda _name: SimpleNamespace(versions={"e": "1"}))
    monkeypatch.setattr(jobs, "begin_journal", lambda *given: seen.__setattr__("journal", given))
    return seen


def test_a_guarded_job_looks_first_and_between(engine, tmp_path):
    ticks = iter([10.0, 13.0])
    found = jobs._probed(asked(tmp_path, threads=3), lambda: next(ticks))
    assert (engine.quiet, found.disturbed, found.spent_s) == (["guard"], "disturbed", 3.0)
    assert (found.threads, found.rounds, found.versions, found.environment) == (3, 6, {"e": "1"}, {"cpu": "x"})
    (probed, known, base), *_ = engine.probed
    assert (probed.runtime, probed.threads, probed.dtype, probed.limit_s) == ("runtime onnxruntime", 3, "f32", 0.25)
    assert (known, base, engine.journal[0].threads) == ((), None, 3)
    found.release()
    assert engine.closed == [1]


def test_an_unguarded_job_does_not_look(engine, tmp_path):
    found = jobs._probed(asked(tmp_path, threads=1, guarded=False, budget_s=1e4), lambda: 0.0)
    assert (engine.quiet, found.disturbed) == ([], None)
    assert engine.probed[0][0].limit_s == 1.0
    jobs._probed(asked(tmp_path, threads=1, budget_s=2.0), lambda: 0.0)
    assert engine.probed[1][0].limit_s == 0.1


def test_a_fresh_job_forgets_its_ceilings(engine, tmp_path):
    ceilings = asked(tmp_path, threads=1).journal.folder / "ceilings.json"
    ceilings.parent.mkdir(parents=True)
    ceilings.write_text("{}")
    jobs._probed(asked(tmp_path, threads=1), lambda: 0.0)
    assert ceilings.exists()
    jobs._probed(asked(tmp_path, threads=1, fresh=True), lambda: 0.0)
    assert not ceilings.exists()


def test_a_job_is_guarded_and_resumes_unless_asked_otherwise(tmp_path):
    job = asked(tmp_path)
    assert (job.guarded, job.fresh, job.out, job.threads) == (True, False, None, None)
    asked(tmp_path, budget_s=1.0)
    for budget in (0.9, float("nan")):
        with pytest.raises(DomainError):
            asked(tmp_path, budget_s=budget)


def test_an_interrupted_run_writes_nothing_and_lets_go(monkeypatch, tmp_path):
    seen, released = [], []

    def run(_provider, journal, **given):
        seen.append((journal, given))
        return CalibrationOutcome(points=(), steps=(), done=1, left=2, interrupted=True)

    monkeypatch.setattr(jobs, "calibrate_with", run)
    prepared = PreparedEngine(provider=None, spent_s=10.0, rounds=4, disturbed="d", release=lambda: released.append(1))
    found = calibrate(asked(tmp_path), prepared, watch="w")
    assert (found.calibration, found.path, released) == (None, None, [1])
    with pytest.raises(KeyboardInterrupt) as stopped:  # which ends with 130 or 143, as Ctrl-C or SIGTERM was it
        door._print_outcome(asked(tmp_path), found)
    assert stopped.value.__notes__[0].startswith("Kept: 0 points and 0 steps.")
    ((_, given),) = seen
    assert given == {"budget_s": pytest.approx(0.94 * 60 - 10), "watch": "w", "disturbed": "d", "rounds": 4}
    seen[0][0].folder.mkdir(parents=True)
    calibrate(asked(tmp_path), replace(prepared, spent_s=1e6))
    assert "stopped after 1 case, which are kept" in seen[0][0].kept()
    assert seen[1][1]["budget_s"] == 1.0


def test_what_models_share_is_left_out_of_the_judgement_only_where_they_teach_it(monkeypatch, tmp_path):
    """Without the guard none is kept. A prior 77 % off was said to be nearer, and predictions stayed there."""
    seen = []

    def judged(*_given, taught):
        seen.append(taught)
        return SimpleNamespace(is_worse=True, now={"forward": 0.1})

    monkeypatch.setattr(
        jobs, "calibrate_with", lambda *_, **__: CalibrationOutcome(points=(), steps=(), done=1, left=0)
    )
    monkeypatch.setattr(jobs, "assemble_calibration", lambda *_: None)
    monkeypatch.setattr(jobs, "held_against", judged)
    monkeypatch.setattr(jobs, "_let_learn", lambda *_: None)
    monkeypatch.setattr(jobs, "learns", lambda: True)
    for guarded in (True, False):
        here = asked(tmp_path, device=replace(CPU, name="local"), guarded=guarded)
        calibrate(here, PreparedEngine(provider=None), calls=lambda: 1e-7)
    assert seen == [True, False]


def test_a_gpu_that_others_use_is_refused_and_one_that_is_free_is_prepared(monkeypatch, tmp_path):
    where = "inferometer.measure.calibrate.torch.provider"
    asked_for, used = [], [None]
    monkeypatch.setattr(import_module("inferometer.engines.torch.engine"), "import_torch", lambda: "torch")
    monkeypatch.setattr(f"{where}.require_cuda", lambda _torch: None)
    monkeypatch.setattr(f"{where}.others_on", lambda _torch: used[0])
    monkeypatch.setattr(f"{where}.torch_environment", lambda _torch: ({"torch": "2"}, {"driver": "5"}))
    monkeypatch.setattr(f"{where}.now_and_then", lambda look, every_s, _now: (look(), every_s))
    monkeypatch.setattr(f"{where}.torch_provider", lambda *given, limit_s: asked_for.append((given, limit_s)) or "p")
    monkeypatch.setattr(jobs, "begin_journal", lambda _job, versions, environment: (versions, environment))
    job = asked(tmp_path, runtime="torch-graph", dtype="bf16", budget_s=120.0)
    found = jobs._kernels(job, "effects")
    assert (found.provider, found.versions, found.environment) == ("p", {"torch": "2"}, {"driver": "5"})
    assert (found.base, found.disturbed) == (({"torch": "2"}, {"driver": "5"}), (None, 10.0))
    jobs._kernels(replace(job, budget_s=1.0), "effects")
    jobs._kernels(replace(job, budget_s=1e4), "effects")
    assert [limit for _, limit in asked_for] == [2.0, 0.5, 3.0]
    assert asked_for[0][0] == ("torch", CPU, "effects", "bf16")
    used[0] = "someone"
    with pytest.raises(EngineError, match="The GPU is shared: someone"):
        jobs._kernels(job, "effects")


def test_a_journal_keeps_points_steps_and_what_is_done(tmp_path):
    journal = CalibrationJournal(folder=tmp_path / "deep" / "down")
    point = overhead("kernel", 1.0, dtype="f32", probe="o")
    step = StepPoint(model="m", phase="decode", seconds=2.0, dtype="f32")
    assert (journal.points(), journal.steps(), journal.done().total()) == ((), (), 0)
    for key, result in (("a", CandidateResult(points=(point,))), ("b", CandidateResult(steps=(step,))),
                        ("a", CandidateResult(points=(point,), steps=(step,)))):  # fmt: skip
        journal.add(ProbeCandidate(key=key, op_class="c"), result)
    assert (journal.points(), journal.steps(), dict(journal.done())) == ((point, point), (step, step), {"a": 2, "b": 1})
    assert journal.base(lambda: "chosen") is None, "a journal that was begun without a base has none"
    journal.clear()
    assert (journal.points(), journal.steps(), journal.done().total()) == ((), (), 0)


def test_torch_is_a_provider_of_readings_kernels_and_models():
    torch = SimpleNamespace(float32=SimpleNamespace(itemsize=4))
    sizes = KernelSizes(rows=(1,), weights=((3, 5),), biased=(), heads=(), batches=(), queries=(), contexts=(),
                        elements=(64,), images=(), planes=(), patches=(), lookup=(9, 4))  # fmt: skip
    together = torch_provider(torch, device("nvidia-l4"), require_effects("torch-eager"), "f32", place="cpu",
                              limit_s=7.0, sizes=sizes, probes=TINY, most=300)  # fmt: skip
    readings, kernels, models = together.providers
    assert all(each.clock == Clock(torch=torch, place="cpu", limit_s=7.0) for each in together.providers)
    assert [type(each.provider).__name__ for each in together.providers] == ["TorchReadings", "Kernels", "ProbeModels"]
    assert (readings.provider.dtype, kernels.provider.dtype, models.provider.dtype) == ("f32", "f32", "f32")
    assert (models.provider.most, models.provider.probes, kernels.provider.sizes) == (300, TINY, sizes)
    keys = [candidate.key for candidate in together.candidates()]
    assert keys[0] == "overhead kernel"
    assert "linear 1x3x5" in keys


# Probes.


def test_an_event_is_timed_by_its_own_clock_a_token():
    own = iter([0.0, 1.0, 10.0, 14.0, 20.0, 20.0])
    pieces = iter([0.1, 0.3, 0.2, 0.1, 0.5])
    pace = SimpleNamespace(own=lambda: next(own), beside=lambda: next(pieces), clock=lambda: 0.0)
    events = [Event(kind="prefill", start_ns=10**9, end_ns=3 * 10**9, tokens=5, context=0),
              Event(kind="token", start_ns=4 * 10**9, end_ns=7 * 10**9, tokens=2, context=5)]  # fmt: skip

    def timed(depth):
        return _once(SimpleNamespace(generate=lambda _request: events), SimpleNamespace(depth=depth), pace)

    (first, at, prompt), (second, later, step) = timed(0)
    assert (first, at, prompt.wall_s, prompt.own_s, prompt.beside_s) == ("prefill", 0, 2.0, 1.0, 0.3)
    assert (second, later, step.wall_s, step.own_s, step.beside_s) == ("decode", 5, 1.5, 2.0, 0.2)
    own, pieces = iter([0.0, 9.0, 10.0, 14.0, 20.0, 20.0]), iter([0.1, 0.3, 0.2, 0.1, 0.5])
    assert timed(3)[0][2].own_s == 2.0, "its clock also ran while the cache was filled"
    clock = iter([1.0, 5.0, 6.0, 8.0, 9.0, 9.0])
    own, pieces = iter([0.0, 1.0, 10.0, 14.0, 20.0, 20.0]), iter([0.1, 0.3, 0.2, 0.1, 0.5])
    pace.clock = lambda: next(clock)
    assert [step.own_s for _, _, step in timed(0)] == [1.0, 2.0], "who is interrupted between two steps took no less"
    clock = iter([0.0, 8.0, 8.0, 8.0, 9.0, 9.0])
    own, pieces = iter([0.0, 4.0, 10.0, 10.0, 20.0, 20.0]), iter([0.1, 0.3, 0.2, 0.1, 0.5])
    assert [step.own_s for _, _, step in timed(0)] == [1.0, 0.75], "one call made both, half of it the process's own"
    pace.clock = lambda: 0.0
    own, pieces = iter([0.0, 9.0, 10.0, 14.0, 20.0, 20.0]), iter([0.1, 0.3, 0.2, 0.1, 0.5])
    events = [msgspec.structs.replace(event, own_s=0.5) for event in events]
    assert [step.own_s for _, _, step in timed(0)] == [0.5, 0.25], "told by an engine that ran both in one call"


def test_a_piece_of_work_is_as_many_rounds_as_asked(monkeypatch):
    rounds = []
    monkeypatch.setattr(paces.np, "exp", lambda _x, out: (out.fill(1.0), rounds.append(out)))
    work = paces._piece()
    work(3)
    assert len(rounds) == 3


def test_without_a_probe_for_ceilings_there_are_none():
    probes = [SimpleNamespace(role="ceiling", kind=kind, runs=[f"{kind} run"]) for kind in ("writes", "sees")]
    probes.append(SimpleNamespace(role="shape", kind="sees", runs=["no"]))
    probes[0].kind = WRITES
    assert [run for _, run in ceiling_runs(probes, writes=True)] == ["writes run"]
    assert [run for _, run in ceiling_runs(probes, writes=False)] == ["sees run"]
    with pytest.raises(DomainError, match="no probe for the ceilings"):
        ceiling_runs(probes[2:], writes=False)
    ops = [OpTime(name="a", kind="k", time_s=0.0), OpTime(name="b", kind="k", time_s=1.0)]
    assert [op.name for op in _timed(ops)] == ["b"]
    run = SimpleNamespace(batch=3, prompt=None)
    assert _sizes(run) == {"batch": 3, "query": 1, "context": 0, "logits": 1}


def test_what_timing_costs_is_taken_out_of_a_probes_kernels():
    made = subject(batch=1, prompt=4)
    sizes = {"batch": 1, "query": 4, "context": 0, "logits": 1}
    found = [Kernel(name=name, kind="MatMul", samples_s=(2.0,), layers=(name,)) for name in names("q_proj", "o_proj")]

    def times(clean_s, cost_s):
        ran = ProbeTimes(clean_s=clean_s, kernels=tuple(found), cost_s=cost_s, runs=1, steady=1)
        return [op.time_s for op in ops_of(made.graph, made.workload, sizes, ran)]

    assert times(8.0, None) == pytest.approx([2.0] * 4)
    assert times(4.0, None) == pytest.approx([1.0] * 4)
    uneven = [replace(found[0], samples_s=(5.0,)), *found[1:]]
    found[:] = uneven
    assert times(7.0, 1.0) == pytest.approx([4.0, 1.0, 1.0, 1.0]), (
        "eleven seconds of readings, a second each for timing"
    )


def test_a_generation_is_warmed_up_before_its_kernels_are_read():
    def asked_of(**order):
        seen, read, floods = [], [], []
        session = SimpleNamespace(
            vocabulary=600, kernels=lambda: read.append(len(seen)) or {"decode": len(read)},
            generate=lambda request: seen.append((request.generate, request.depth, len(request.prompt))) or [1, 2],
        )  # fmt: skip
        result = generation_kernels(session, TextOrder(prompt=5, **order), lambda: floods.append(1))
        return seen, read, len(floods), result

    assert asked_of(generate=9) == ([(1, 0, 5), (6, 0, 5)], [0, 1, 2], 4, {"decode": 3})
    assert asked_of(generate=4, depth=30) == ([(4, 30, 5)], [0, 1], 2, {"decode": 2})


def test_a_flood_reads_as_much_as_the_largest_cache_holds_and_writes_nothing():
    """Lines that it wrote would go back to memory while the next step reads its weights."""
    flood, small = Flood(160e6), Flood(1e6)
    assert (flood.nbytes, small.nbytes) == (160_000_000, 128_000_000)
    small()
    small._water.flags.writeable = False
    small()
    assert small._water.nbytes == small.nbytes
    assert set(small._water[:: 1 << 16].tolist()) == {1.0}  # zeros would all be one page


def test_decoders_are_flooded_beyond_the_caches_of_their_device():
    machine = device("arm-neoverse-n1-2-cores")
    held = replace(machine.memory, level="l3", capacity_bytes=replace(machine.memory.capacity_bytes, value=300e6))
    runtime = SimpleNamespace(title="x", formats=frozenset({"gguf"}))
    provider = DecoderProvider(
        runtime=runtime, device=replace(machine, memories=(machine.memory, held)), weights="q8_0", folder=Path(),
        threads=1, pace=MachinePace(fastest_s=1.0),
    )  # fmt: skip
    assert provider.flood.nbytes == 300_000_000


def test_a_sustained_rate_is_the_first_fifth_over_the_last():
    class Square:
        made = 0

        def __matmul__(self, _other):
            Square.made += 1

    now = [0.0]

    def once(call):
        call()
        now[0] += 1.0 + Square.made / 10
        return float(Square.made)

    torch = SimpleNamespace(randn=lambda *_, **__: Square(), bfloat16="b",
                            cuda=SimpleNamespace(power_draw=lambda: 250_000))  # fmt: skip
    clock = SimpleNamespace(torch=torch, place="cuda", cuda=True, now=lambda: now[0], once=once, limit_s=21.0)
    (point,) = TorchReadings(clock=clock, dtype="bf16").measure(SimpleNamespace(key="sustained product")).points
    taken = list(range(2, Square.made + 1))
    some = max(1, len(taken) // 5)
    assert point.rates == {"sustained:bf16": pytest.approx(np.sum(taken[:some]) / np.sum(taken[-some:])),
                           "power:watts": 250.0}  # fmt: skip
    assert (point.seconds, len(taken) > 5, point.classes) == (float(taken[-1]), True, ("reading",))


# Two sessions in turns.


class Spinning:
    """A process whose other threads use CPUs for `awake_s` after each step: a step meanwhile takes twice its time."""

    def __init__(self, awake_s):
        self.now, self.used, self.until, self.last, self.awake_s, self.seen = 0.0, 0.0, 0.0, None, awake_s, []

    def pass_(self, seconds):
        self.used += max(0.0, min(self.until, self.now + seconds) - self.now)
        self.now += seconds

    def session(self, name):
        def step():
            others = self.last not in {None, name} and self.now < self.until
            self.seen.append((name, others))
            self.used += 4e-3
            self.now += 2e-3 if others else 1e-3
            self.last, self.until = name, self.now + self.awake_s

        kernels = {"forward": ()}
        return SimpleNamespace(step=step, kernels=lambda: kernels, opened=SimpleNamespace(versions={}))

    def pace(self):
        return paces.MachinePace(
            piece=lambda _rounds: None, clock=lambda: self.now, own=lambda: self.used, thread=lambda: 1.0,
            sleep=self.pass_,
        )  # fmt: skip


@pytest.mark.parametrize("awake_s", [0.0, 0.02])
def test_no_session_is_stepped_while_the_threads_of_the_other_still_spin(awake_s):
    machine = Spinning(awake_s)
    ran = run_in_turns(machine.session("plain"), machine.session("timed"), machine.pace(), limit_s=0.3, threads=4)
    assert [name for name, others in machine.seen[2:] if others] == []  # beyond the first step of each, which warms up
    assert ran.clean_s == pytest.approx(1e-3)


def test_threads_that_never_rest_are_waited_for_no_longer_than_a_moment():
    machine = Spinning(1e9)
    machine.until = 1e9
    machine.pace().rest()
    assert machine.now < 0.2


def test_steps_before_threads_that_slept_have_a_cpu_each_do_not_count():
    """Of turns of two steps none was any faster."""
    machine, since = Spinning(0.0), [0.0]
    session, pace = machine.session("plain"), machine.pace()
    rest = pace.rest

    def step():
        session.step()
        if machine.now - since[0] < 0.02:
            machine.now += 1e-3

    def rested():
        rest()
        since[0] = machine.now

    watched = SimpleNamespace(rest=rested, timed=pace.timed, clock=pace.clock, own=pace.own, is_fast=lambda _step: True)
    slow = SimpleNamespace(step=step, kernels=session.kernels, opened=session.opened)
    ran = run_in_turns(slow, machine.session("timed"), watched, limit_s=0.3, threads=4)
    assert ran.clean_s == pytest.approx(1e-3)


def test_the_step_that_wakes_its_threads_up_does_not_count():
    machine, waking = Spinning(0.0), []
    session = machine.session("plain")

    def step():
        session.step()
        if not waking or machine.now - waking[-1] > 0.002:  # it slept meanwhile
            machine.now += 5e-3
        waking.append(machine.now)

    slow = SimpleNamespace(step=step, kernels=session.kernels, opened=session.opened)
    ran = run_in_turns(slow, machine.session("timed"), machine.pace(), limit_s=0.3, threads=4)
    assert ran.clean_s == pytest.approx(1e-3)
