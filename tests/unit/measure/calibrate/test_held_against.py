"""No calibration makes predictions worse than what was known before it: noisy ones leave it as it is, and say so."""

import os
import shutil
import signal
from dataclasses import replace
from functools import cache
from math import exp, log
from statistics import fmean
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from fakes.full_disk import full_disk
from inferometer.cli.commands import calibrate as door
from inferometer.core.errors import EngineError
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate import here
from inferometer.measure.calibrate.fitting.held_against import held_against
from inferometer.measure.calibrate.fitting.points import OpPoint, StepPoint, measured_point, works_of
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject, plan_of
from inferometer.measure.calibrate.job import (
    UNGUARDED_NOTE,
    CalibrationJob,
    PreparedEngine,
    calibrate,
    serving_from_elsewhere,
)
from inferometer.measure.calibrate.probes.models import SEES, read_probes
from inferometer.measure.calibrate.run import CalibrationJournal, CandidateResult, ProbeCandidate
from inferometer.predict.basis.files import files_in, read_calibration
from inferometer.predict.request import step_sizes

CPU = device("intel-emerald-rapids-1-vcpu")
RUNTIME = require_effects("onnxruntime")
SUBJECT = CalibrationSubject(device=CPU, runtime=RUNTIME, dtype="f32", created="2026-11-17")
SLOWER = {"convolution": 1.6, "linear": 1.3, "depthwise": 0.8}  # the machine, over what the prior says of each class


def ops_and_step(probe, run):
    """Every op of a probe with what the prior says of it, and its step without seconds."""
    return _ops_and_step(probe.name, run)


@cache
def _ops_and_step(name, run):
    probe = next(probe for probe in PROBES if probe.name == name)  # its config cannot be hashed
    step = StepPoint(
        model=probe.name, phase="forward", seconds=1.0, dtype="f32", config=dict(probe.config), batch=run.batch,
        image=run.image,
    )  # fmt: skip
    plan = plan_of(SUBJECT, step)
    sizes = step_sizes([(1, 0)], run.batch)
    priced = plan.step(sizes, "forward").priced.time_s
    prior = {entry.name: float(priced[entry.row].item()) for entry in plan.prepared.entries}
    return [(work, prior[work.name]) for work in works_of(plan, sizes, "forward")], step


PROBES = [probe for probe in read_probes() if probe.kind == SEES and probe.role == "shape"]
CASES = [(probe, run) for probe in PROBES for run in probe.runs[:1]]
MEASURED, UNSEEN = CASES[::2][:7], CASES[1::2][:6]


class Noisy:
    """A machine whose classes of op are slower than the prior says by `SLOWER`, seen through noise."""

    def __init__(self, noise, seed=0):
        self.random, self.noise = np.random.default_rng(seed), noise

    def candidates(self):
        return [ProbeCandidate(key=f"{probe.name} {run.words}", op_class="convolution") for probe, run in MEASURED]

    def measure(self, candidate):
        probe, run = next(case for case in MEASURED if f"{case[0].name} {case[1].words}" == candidate.key)
        ops, step = ops_and_step(probe, run)

        def seen(seconds, noise=self.noise):
            return seconds * exp(self.random.normal(0.0, noise))

        points = [
            measured_point(work, seen(SLOWER.get(work.classes[-1], 1.0) * prior), dtype="f32", probe=probe.name,
                           workload=run.words)
            for work, prior in ops
            if prior > 0
        ]  # fmt: skip
        whole_s = seen(true_seconds(probe, run), self.noise / 5)  # long steps meet much of the noise, and average it
        return CandidateResult(points=tuple(points), steps=(replace(step, seconds=whole_s),))


def true_seconds(probe, run):
    ops, _ = ops_and_step(probe, run)
    return sum(work.count * SLOWER.get(work.classes[-1], 1.0) * prior for work, prior in ops)


def job(folder):
    return CalibrationJob(device=CPU, runtime="onnxruntime", dtype="f32", budget_s=3600.0, folder=folder)


def off_by(calibration):
    """What unseen models are off by on average, as a logarithm; from the prior without a calibration."""
    errors = []
    for probe, run in UNSEEN:
        _, step = ops_and_step(probe, run)
        priced = plan_of(SUBJECT, step, calibration).step(step_sizes([(1, 0)], run.batch), "forward")
        errors.append(abs(log(true_seconds(probe, run) / float(priced.total("time_s").sum()))))
    return fmean(errors)


@pytest.fixture(scope="module")
def off_before():
    return off_by(None)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    """What was found of a machine and the folder it is in, which nobody may change: it takes a second or two."""

    @cache
    def calibrated(noise, seed):
        folder = tmp_path_factory.mktemp("calibrated")
        return calibrate(job(folder), PreparedEngine(provider=Noisy(noise, seed)), calls=lambda: 1e-7), folder

    return calibrated


@pytest.mark.parametrize(("noise", "seed"), [(0.02, 0), (0.3, 1), (1.0, 2), (2.5, 8)])
def test_however_noisy_the_machine_unseen_models_come_out_no_worse_than_before(calibrated, off_before, noise, seed):
    found, _ = calibrated(noise, seed)
    assert off_by(found.calibration) <= off_before + 0.02
    assert (found.path is None) == (found.kept is not None)


def test_a_quiet_machine_is_learned(calibrated, off_before):
    found, _ = calibrated(0.02, 0)
    assert off_by(found.calibration) < 0.25 * off_before
    assert any("Models that were left out are off by" in note and "before:" in note for note in found.calibration.notes)


def test_steps_in_another_format_and_of_a_phase_that_was_not_fitted_judge_nothing(calibrated):
    found, _ = calibrated(0.02, 0)
    made, steps = found.calibration, found.outcome.steps
    alone = held_against(CPU, SUBJECT, made, steps, None)
    assert alone.now.keys() == {"forward"}
    strangers = [replace(step, dtype="i8", seconds=100 * step.seconds) for step in steps]
    assert held_against(CPU, SUBJECT, made, [*steps, *strangers], None) == alone
    unfitted = replace(made, residuals={name: far for name, far in made.residuals.items() if name != "step.forward"})
    assert held_against(CPU, SUBJECT, unfitted, steps, None).now == {}


def test_a_class_whose_points_scatter_more_than_its_prior_is_off_is_left_to_the_prior(tmp_path):
    class OneClass(Noisy):
        def measure(self, candidate):
            result = super().measure(candidate)
            wild = [
                replace(point, seconds=point.seconds * exp(self.random.normal(0.0, 2.0)))
                if point.classes[-1] == "vector"
                else point
                for point in result.points
            ]
            return replace(result, points=tuple(wild))

    made = calibrate(job(tmp_path), PreparedEngine(provider=OneClass(0.02)), calls=lambda: 1e-7).calibration
    assert made.table("vector") is None
    assert "vector" not in made.residuals
    assert made.table("convolution") is not None
    assert any(note.startswith("Left to the prior") and "vector (" in note for note in made.notes)


def test_a_run_that_nobody_guarded_says_so_until_all_is_measured_again(tmp_path):
    def notes(**asked):
        return calibrate(replace(job(tmp_path), **asked), PreparedEngine(provider=Noisy(0.02)), calls=lambda: 1e-7)

    assert UNGUARDED_NOTE in notes(guarded=False).calibration.notes
    went_on = notes()
    assert UNGUARDED_NOTE in went_on.calibration.notes  # the same cases
    assert UNGUARDED_NOTE in read_calibration(went_on.path).notes
    assert UNGUARDED_NOTE not in notes(fresh=True).calibration.notes


def test_what_is_not_written_is_said_and_shown(tmp_path, calibrated, monkeypatch):
    monkeypatch.setattr(here, "installed_engines", tuple)
    monkeypatch.setattr(here, "device_named", lambda _: CPU)
    found, folder = calibrated(2.5, 8)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    assert found.kept is not None
    assert files_in([tmp_path]) == ()
    shown = CliRunner().invoke(door.command, ["--folder", str(tmp_path), "--show"], catch_exceptions=False)
    assert "What was known before is nearer, so it stays" in " ".join(shown.output.split())
    job(tmp_path).journal.clear()
    assert calibrate(job(tmp_path), PreparedEngine(provider=Noisy(0.02)), calls=lambda: 1e-7).path is not None
    assert job(tmp_path).journal.kept() is None


def test_what_no_whole_models_can_judge_replaces_nothing(tmp_path):
    class Few(Noisy):
        def candidates(self):
            return super().candidates()[:2]

    few = calibrate(job(tmp_path), PreparedEngine(provider=Few(0.02)), calls=lambda: 1e-7)
    assert few.path is None
    assert few.kept.startswith("Fewer than 3 whole models were measured")
    more = calibrate(job(tmp_path), PreparedEngine(provider=Noisy(0.02)), calls=lambda: 1e-7)
    assert more.path is not None  # it continues from there


def test_it_must_beat_what_serves_the_machine_until_then_though_it_does_not_start_from_it(tmp_path, calibrated):
    """A calibration of another core is often nearer than the priors: to be better than these is not enough."""
    good, _ = calibrated(0.02, 0)
    noisy, alone, beside = 0.6, tmp_path / "alone", tmp_path / "beside"
    found = calibrate(job(alone), PreparedEngine(provider=Noisy(noisy, 3)), calls=lambda: 1e-7)
    assert found.path is not None  # better than the priors
    serving = PreparedEngine(provider=Noisy(noisy, 3), serving=good.calibration)
    assert calibrate(job(beside), serving, calls=lambda: 1e-7).kept.endswith("so it stays: nothing was written.")
    quiet = PreparedEngine(provider=Noisy(0.0), serving=found.calibration)
    made = calibrate(job(tmp_path), quiet, calls=lambda: 1e-7).calibration
    assert "started_from" not in made.environment


def test_what_serves_this_machine_from_elsewhere_is_asked_for_its_cpu_alone(tmp_path, monkeypatch):
    there = SimpleNamespace(calibration="of another core")
    monkeypatch.setattr("inferometer.measure.calibrate.job.shipped_for", lambda *_: there)
    here_ = replace(job(tmp_path), device=replace(CPU, name="local"))
    assert serving_from_elsewhere(here_) == "of another core"
    assert serving_from_elsewhere(replace(here_, device=replace(CPU, name="local:gpu", unit="gpu"))) is None
    assert serving_from_elsewhere(job(tmp_path)) is None  # a device of the catalog has its own


POINT = OpPoint(classes=("linear",), axes={"rows": 1.0}, seconds=1.0, floor_s=0.5, dtype="f32", probe="p", op="x")


def test_a_disk_that_is_full_keeps_what_was_whole_and_nothing_else(tmp_path):
    journal = CalibrationJournal(folder=tmp_path)
    journal.add(ProbeCandidate(key="whole", op_class="linear"), CandidateResult(points=(POINT, POINT)))
    size = (tmp_path / "points.jsonl").stat().st_size
    with full_disk(size + size // 2 + 40), pytest.raises(EngineError, match=r"cannot be kept.*File too large"):
        journal.add(ProbeCandidate(key="cut", op_class="linear"), CandidateResult(points=(POINT, POINT)))
    assert (journal.points(), journal.done()) == ((POINT, POINT), {"whole": 1})
    journal.add(ProbeCandidate(key="cut", op_class="linear"), CandidateResult(points=(POINT,)))
    assert (len(journal.points()), journal.done()) == (3, {"whole": 1, "cut": 1})


def test_a_process_that_is_killed_between_two_files_leaves_nothing_that_counts(tmp_path):
    journal = CalibrationJournal(folder=tmp_path)
    journal.add(ProbeCandidate(key="whole", op_class="linear"), CandidateResult(points=(POINT,)))
    child = os.fork()
    if child == 0:  # it dies where its points are written and its key is not
        with (tmp_path / "points.jsonl").open("ab") as file:
            file.write((tmp_path / "points.jsonl").read_bytes())
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    journal.mend()
    assert journal.points() == (POINT,)
    assert journal.done() == {"whole": 1}


def test_a_key_that_was_cut_off_does_not_count(tmp_path):
    journal = CalibrationJournal(folder=tmp_path)
    for key in ("one", "two"):
        journal.add(ProbeCandidate(key=key, op_class="linear"), CandidateResult(points=(POINT,)))
    done = tmp_path / "done.txt"
    os.truncate(done, done.stat().st_size - 3)
    journal.mend()
    assert (journal.done(), len(journal.points())) == ({"one": 1}, 1)
