from dataclasses import replace
from math import log

import numpy as np
import pytest

from inferometer.core.calibration import Calibration
from inferometer.measure.calibrate.fitting.steps import (
    WholeStep,
    explained_seconds,
    fit_steps,
    leave_one_out,
    whole_fit,
)

START = {"kernel": 1e-6, "step": 2e-5}


def steps(factors, kernel=1e-6, *, host=0.0, noise=0.0, models=4):
    random = np.random.default_rng(1)
    found = []
    for model in range(models):
        for size in (1, 4, 16, 64):
            parts = {"linear.decode": 1e-4 * size * (1 + model), "vector.decode": 3e-5 * size**0.5 * (4 - model)}
            launches = 100.0 * (1 + model)
            overheads = {"kernel": kernel, "step": 2e-5, "host": host}
            bare = WholeStep(model=f"m{model}", phase="decode", seconds=1.0, parts=parts, launches=launches,
                             queued=launches if host else 0.0)  # fmt: skip
            seconds = explained_seconds(bare, factors, overheads) * np.exp(random.normal(0, noise))
            found.append(WholeStep(model=bare.model, phase="decode", seconds=float(seconds), parts=parts,
                                   launches=launches, queued=bare.queued))  # fmt: skip
    return found


def test_factors_that_made_the_steps_are_found_again():
    factors, _ = fit_steps(steps({"linear.decode": 1.2, "vector.decode": 0.7}), START)
    assert factors["linear.decode"] == pytest.approx(1.2, rel=0.02)
    assert factors["vector.decode"] == pytest.approx(0.7, rel=0.08)


def test_where_nothing_is_off_nothing_moves():
    factors, overheads = fit_steps(steps({}), START)
    assert factors == pytest.approx({"linear.decode": 1.0, "vector.decode": 1.0}, abs=1e-3)
    assert overheads == pytest.approx(START, rel=1e-3)


def test_one_step_that_is_far_off_moves_little():
    found = steps({"linear.decode": 1.1})
    found[5] = WholeStep(model=found[5].model, phase="decode", seconds=10 * found[5].seconds, parts=found[5].parts,
                         launches=found[5].launches)  # fmt: skip
    factors, _ = fit_steps(found, START)
    assert factors["linear.decode"] == pytest.approx(1.1, rel=0.1)


def test_the_host_is_found_from_the_steps_that_wait_for_it():
    factors, overheads = fit_steps(steps({}, host=2e-5), {**START, "host": 5e-6})
    assert overheads["host"] == pytest.approx(2e-5, rel=0.05)
    assert factors["linear.decode"] == pytest.approx(1.0, rel=0.05)


def test_a_model_is_left_out_whole():
    found = steps({})
    odd = [WholeStep(model="m0", phase="decode", seconds=3 * s.seconds, parts=s.parts, launches=s.launches)
           if s.model == "m0" else s for s in found]  # fmt: skip
    errors = {step.model: error for step, error, _ in leave_one_out(odd, START)}
    assert errors["m0"] == pytest.approx(log(3), rel=0.05)  # nothing of it is in its own fit


def test_the_residual_of_whole_steps_is_what_left_out_models_are_off_by():
    fitted = whole_fit(steps({"linear.decode": 1.2}, noise=0.05), START)
    assert 0.02 < fitted.residuals["step.decode"] < 0.12
    assert "host" not in fitted.residuals


def test_what_was_found_goes_into_the_calibration_with_what_it_began_with():
    bare = Calibration(device="d", runtime="r", dtype="bf16", created="2026-11-15", residuals={"linear": 0.1})
    made = whole_fit(steps({"linear.decode": 1.2}), START).applied_to(bare, source="s", date="2026-11-15")
    assert made.fitted_on == ("m0", "m1", "m2", "m3")
    assert made.steps == 16
    assert made.factors["linear.decode"] == pytest.approx(1.2, rel=0.02)
    assert made.overheads["alone.kernel"].value == 1e-6
    assert made.residuals["linear"] == 0.1


def moved(name, factor, *, phase="forward"):
    """Steps of another phase, in which one class takes so many times what it does alone."""
    found = []
    for model in range(4):
        for size in (1, 4, 16, 64):
            parts = {f"linear.{phase}": 1e-4 * size, name: 1e-4 * (1 + model) * size**0.5}
            bare = WholeStep(model=f"e{model}", phase=phase, seconds=1.0, parts=parts, launches=10.0)
            found.append(replace(bare, seconds=explained_seconds(bare, {name: factor}, START)))
    return found


def test_a_phase_that_no_belief_explains_is_left_out_and_does_not_move_the_others():
    plain = whole_fit(steps({"linear.decode": 1.2}), START)
    fitted = whole_fit([*steps({"linear.decode": 1.2}), *moved("indexing.forward", 20.0)], START)
    assert fitted.left == ("forward",)
    assert fitted.factors == pytest.approx(dict(plain.factors))
    assert fitted.residuals["step.forward"] > 1, "and what ops alone say of it is known to be far off"
    bare = Calibration(device="d", runtime="r", dtype="bf16", created="2026-11-15")
    made = fitted.applied_to(bare, source="s", date="2026-11-15")
    assert any("forward" in note for note in made.notes)


def test_a_phase_that_is_off_by_little_is_kept():
    fitted = whole_fit([*steps({}), *moved("indexing.forward", 1.5)], START)
    assert fitted.left == ()
    assert fitted.factors["indexing.forward"] == pytest.approx(1.5, rel=0.05)


def test_where_kernels_would_take_many_times_what_they_do_alone_no_phase_is_believed():
    fitted = whole_fit(steps({}, kernel=2e-4), START)
    assert fitted.left == ("decode",)
    assert fitted.factors == {}
    assert fitted.overheads == START


def test_a_factor_takes_no_part_below_its_least():
    found = [replace(step, least=dict(step.parts)) for step in steps({"linear.decode": 0.8})]
    assert explained_seconds(found[0], {"linear.decode": 0.5}, START) == explained_seconds(found[0], {}, START)


def forward_steps(factors, **parts):
    """Forward steps of four models whose classes take `factors` times their parts."""
    found = []
    for model, size in enumerate((1.0, 3.0, 10.0, 30.0)):
        shares = {f"{name}.forward": seconds * size * (1 + 0.3 * model) for name, seconds in parts.items()}
        bare = WholeStep(model=f"m{model}", phase="forward", seconds=1.0, parts=shares, launches=20.0)
        found.append(replace(bare, seconds=explained_seconds(bare, factors, START)))
    return found


def test_a_small_class_that_strays_is_dropped_and_the_phase_is_kept():
    """It takes the blame for what others take: its factor is not kept, theirs are."""
    made = [
        replace(step, parts={**step.parts, "indexing.forward": 1e-4}, seconds=step.seconds + 3e-3)
        for step in forward_steps({"linear.forward": 1.2}, linear=1e-3)
    ]
    fitted = whole_fit(made, START)
    assert fitted.left == ()
    assert set(fitted.factors) == {"linear.forward"}
    assert 1.1 < fitted.factors["linear.forward"] < 1.4


def test_a_fit_that_predicts_left_out_models_worse_than_ops_alone_is_not_kept():
    """Each model is off another way, so that what three of them say of the fourth is worse than nothing."""
    made = [
        replace(step, seconds=step.seconds * factor)
        for step, factor in zip(forward_steps({}, linear=1e-3), (1.3, 0.8, 1.3, 0.8), strict=True)
    ]
    assert whole_fit(made, START).left == ("forward",)


def test_a_factor_that_is_at_its_bound_strays_no_further_than_the_bound():
    made = [
        replace(step, least={"linear.forward": 0.75 * step.parts["linear.forward"]})
        for step in forward_steps({"linear.forward": 0.75, "vector.forward": 0.4}, linear=1e-3, vector=1e-4)
    ]
    assert whole_fit(made, START).left == ()
