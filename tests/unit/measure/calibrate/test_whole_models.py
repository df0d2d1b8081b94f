"""Whole models judge a calibration of probes: they move no class of op, and say what all models share."""

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.assemble import assemble_calibration
from inferometer.measure.calibrate.fitting.held_against import held_against
from inferometer.measure.calibrate.fitting.points import StepPoint, measured_point, works_of
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject, plan_of
from inferometer.measure.calibrate.fitting.whole_models import (
    FEWEST,
    errors_by_model,
    models_apart,
    with_shared,
    without_shared,
)
from inferometer.measure.calibrate.probes.models import SEES, read_probes
from inferometer.predict.request import step_sizes

CPU = device("intel-emerald-rapids-1-vcpu")
SUBJECT = CalibrationSubject(device=CPU, runtime=require_effects("onnxruntime"), dtype="f32", created="2026-11-18")
PROBES = [probe for probe in read_probes() if probe.kind == SEES and probe.role == "shape"][:8]
MEASURED = ("mobilenet-v2", "resnet18", "densenet121", "squeezenet1.1")
UNSEEN = ("resnet34", "alexnet", "efficientnet-b0", "vgg16")
SLOWER = 1.3  # than the prior, as probes find it
MORE = 1.4  # times that, that whole models take


def step_of(name, config=None, image=None):
    return StepPoint(model=name, phase="forward", seconds=1.0, dtype="f32", config=config or {}, image=image)


def priced(step):
    plan = plan_of(SUBJECT, step)
    priced = plan.step(step_sizes([(1, 0)], 1), "forward")
    seconds = {entry.name: float(priced.priced.time_s[entry.row].item()) for entry in plan.prepared.entries}
    return seconds, works_of(plan, step_sizes([(1, 0)], 1), "forward"), float(priced.total("time_s").sum())


def taking(step, times):
    return replace(step, seconds=times * priced(step)[2])


@pytest.fixture(scope="module")
def probed():
    """Ops and whole steps of probes on a machine that is slower than its prior."""
    points, steps = [], []
    for probe in PROBES:
        run = probe.runs[0]
        step = step_of(probe.name, dict(probe.config), run.image)
        seconds, works, _ = priced(step)
        points += [
            measured_point(work, SLOWER * seconds[work.name], dtype="f32", probe=probe.name, workload=run.words)
            for work in works
            if seconds[work.name] > 0
        ]
        steps.append(taking(step, SLOWER))
    return points, steps


def models(names, spread=0.0, more=MORE):
    random = np.random.default_rng(4)
    return [taking(step_of(name), SLOWER * more * exp(random.normal(0.0, spread))) for name in names]


@pytest.fixture(scope="module")
def calibrated(probed):
    points, steps = probed
    return assemble_calibration(SUBJECT, points, [*steps, *models(MEASURED, 0.05)])


def off(calibration, steps):
    return errors_by_model(SUBJECT, calibration, steps)["forward"]


def test_what_whole_models_share_is_a_factor_of_the_phase_and_moves_no_class(probed, calibrated):
    points, steps = probed
    alone = assemble_calibration(SUBJECT, points, steps)
    assert calibrated.tables == alone.tables
    moved = {calibrated.factors[name] / factor for name, factor in alone.factors.items()}
    assert max(moved) / min(moved) == pytest.approx(1.0)
    assert min(moved) == pytest.approx(MORE, rel=0.1)
    assert (alone.steps, calibrated.steps) == (len(steps), len(steps) + len(MEASURED))
    assert set(calibrated.fitted_on) == {*alone.fitted_on, *MEASURED}


def test_models_that_nobody_measured_are_nearer_and_in_their_interval(probed, calibrated):
    points, steps = probed
    alone, unseen = assemble_calibration(SUBJECT, points, steps), models(UNSEEN, 0.05)
    before, errors = off(alone, unseen), off(calibrated, unseen)
    assert min(before.values()) > 0.2
    assert all(abs(errors[name]) < 0.6 * before[name] for name in errors)
    assert sum(abs(error) < 0.1 for error in errors.values()) >= 3
    inside = [abs(error) < 1.2816 * calibrated.residuals["step.forward"] for error in errors.values()]
    assert sum(inside) >= 3


@pytest.mark.parametrize("spread", [0.02, 0.3])
def test_the_interval_is_as_wide_as_models_differ(probed, spread):
    points, steps = probed
    made = assemble_calibration(SUBJECT, points, [*steps, *models((*MEASURED, *UNSEEN), spread)])
    assert 0.5 * spread < made.residuals["step.forward"] < 0.06 + 2 * spread


def test_models_judge_a_calibration_of_ops_alone(probed):
    points, _ = probed
    made = assemble_calibration(SUBJECT, points, models(MEASURED, 0.05))
    assert max(map(abs, off(made, models(UNSEEN)).values())) < 0.2
    assert held_against(CPU, SUBJECT, made, models(MEASURED, 0.05), None).now.keys() == {"forward"}


def test_two_models_change_nothing(probed):
    points, steps = probed
    alone = assemble_calibration(SUBJECT, points, steps)
    assert assemble_calibration(SUBJECT, points, [*steps, *models(MEASURED[: FEWEST - 1])]) == alone


def test_a_fit_starts_from_the_probes_of_its_base_and_keeps_the_base_s_factor_until_models_are_measured(
    probed, calibrated
):
    points, steps = probed
    plain, alone = without_shared(calibrated), assemble_calibration(SUBJECT, points, steps)
    assert off(plain, models(UNSEEN)) == pytest.approx(off(alone, models(UNSEEN)), rel=1e-5)
    again = with_shared(SUBJECT, plain, [], calibrated)
    assert {name: again.factors[name] for name in calibrated.factors} == pytest.approx(dict(calibrated.factors))
    resumed = assemble_calibration(SUBJECT, points, steps, calibrated)
    assert max(map(abs, off(resumed, models(UNSEEN)).values())) < 0.12
    measured = assemble_calibration(SUBJECT, points, [*steps, *models(MEASURED, more=1.0)], calibrated)
    assert max(map(abs, off(measured, models(UNSEEN, more=1.0)).values())) < 0.12


def test_models_judge_a_calibration_without_what_they_all_share_where_that_is_taught_anyway(probed, calibrated):
    _, steps = probed
    measured = [*steps, *models(MEASURED, 0.05)]
    raw, taught = (held_against(CPU, SUBJECT, calibrated, measured, None, taught=taught) for taught in (False, True))
    assert raw.now == taught.now
    assert raw.before["forward"] == pytest.approx(log(SLOWER * MORE), rel=0.2)
    assert taught.before["forward"] < 0.1
    assert not raw.is_worse


@pytest.mark.parametrize("spread", [0.05, 0.4])
def test_each_model_judges_what_the_others_make_of_the_probes(probed, spread):
    """It is left out of what they share too: its own share of that would flatter the calibration."""
    points, steps = probed
    measured = models(MEASURED, spread)
    alone = assemble_calibration(SUBJECT, points, steps)
    unseen = [
        off(with_shared(SUBJECT, alone, [other for other in measured if other is not one]), [one])[one.model]
        for one in measured
    ]
    judged = held_against(CPU, SUBJECT, with_shared(SUBJECT, alone, measured), [*steps, *measured], None)
    assert judged.now["forward"] == pytest.approx(np.sqrt(np.mean(np.square(unseen))), rel=0.15)


def test_on_a_gpu_or_alone_models_are_what_is_fitted():
    probe, model = step_of("probe", {"architectures": []}), step_of("resnet18")
    gpu = replace(SUBJECT, device=device("nvidia-h200"))
    assert models_apart(SUBJECT, [probe, model], timed=False) == ([probe], [model])
    assert models_apart(gpu, [probe, model], timed=True) == ([probe, model], [])
    assert models_apart(SUBJECT, [model], timed=False) == ([model], [])
    assert models_apart(SUBJECT, [model], timed=True) == ([], [model])
