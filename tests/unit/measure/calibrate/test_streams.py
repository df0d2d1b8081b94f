"""Engines without timers: whole steps of known numbers, from which a fit has to find them again."""

from __future__ import annotations

from dataclasses import replace
from math import isclose, log
from typing import TYPE_CHECKING

from inferometer.core.workload import Precision, Workload
from inferometer.known import device
from inferometer.known.engines import engine
from inferometer.measure.calibrate.fitting.assemble import (
    assemble_calibration,
    works_of_step,
)
from inferometer.measure.calibrate.fitting.points import StepPoint
from inferometer.measure.calibrate.fitting.steps import WholeStep
from inferometer.measure.calibrate.fitting.streams import StreamFit, fit_streams, left_out_fit, points_from
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject, graph_of_step
from inferometer.measure.calibrate.probes.models import WRITES, read_probes
from inferometer.predict.options import Options
from inferometer.predict.ready import make_ready
from inferometer.predict.request import step_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

SUBJECT = CalibrationSubject(
    device=device("arm-neoverse-n1-2-cores"), runtime=engine("ctranslate2").effects, dtype="i8", created="2026-11-16"
)
TRUTH = StreamFit(
    times={
        "linear/compute": 3.0, "linear/weights": 9.0, "linear/activations": 2.0, "attention.decode/cache": 12.0,
        "attention.prefill/compute": 20.0, "vector/activations": 4.0,
    },
    overheads={"kernel": 4e-6, "step": 3e-5},
)  # fmt: skip


def truly_taken(step: StepPoint, number: int = 0) -> StepPoint:
    """The step with the seconds of the known numbers, some two in a hundred more or less."""
    seconds = TRUTH.explained(works_of_step(SUBJECT, step).apart())
    return replace(step, seconds=seconds * (1 + 0.02 * (-1) ** number))


def steps_of_probes() -> list[StepPoint]:
    steps = [
        StepPoint(
            model=probe.name, phase=phase, seconds=1.0, dtype="i8", config=probe.config, query=query, context=context
        )
        for probe in read_probes()
        if probe.kind == WRITES and probe.role == "shape"
        for run in probe.runs
        for phase, query, context in (("prefill", run.prompt, 0), ("decode", 1, run.prompt), ("decode", 1, run.context))
    ]  # fmt: skip
    return [truly_taken(step, number) for number, step in enumerate(steps)]


STEPS = steps_of_probes()


def test_whole_steps_tell_what_ops_of_each_class_take():
    found = fit_streams([works_of_step(SUBJECT, step) for step in STEPS], {})
    assert found.overheads["kernel"] < 4 * TRUTH.overheads["kernel"]
    for step in (max(STEPS, key=lambda step: step.context), max(STEPS, key=lambda step: step.query)):
        for work in works_of_step(SUBJECT, step).works:
            if work.classes[-1] in {"linear", "attention"}:
                off = log(found.seconds(work) / TRUTH.seconds(work))
                assert abs(off) < 0.2, f"{step.phase} {work.name}"


def test_the_ops_of_a_step_take_together_what_it_took():
    step = max(STEPS, key=lambda step: step.context)
    known = works_of_step(SUBJECT, step)
    counts = {work.name: work.count for work in known.works}
    points = [point for point in points_from(replace(TRUTH, steps=(known,)), {}) if point.floor_s > 0]
    taken = sum(counts[point.op] * point.seconds for point in points)
    assert isclose(taken, step.seconds - TRUTH.overheads["step"], rel_tol=0.01)


def test_a_model_that_no_step_was_of_is_predicted_from_the_others():
    """Through the tables and factors that every calibration has."""
    model = "probe-decoder-768"
    calibration = assemble_calibration(SUBJECT, (), [step for step in STEPS if step.model != model])
    assert set(calibration.factors.values()) == {1.0}, "nothing but whole steps was measured"
    assert 0.02 <= calibration.residuals["step.prefill"] < 0.15
    assert not calibration.notes
    reached = assemble_calibration(
        replace(SUBJECT, reached=True), (), [step for step in STEPS if step.model != model]
    )  # fmt: skip
    assert max(max(table.values) for table in reached.tables) == 1.0, "its best ops reach the peaks that it has"
    same = [calibrated.peaks["i8"].value * calibrated.tables[0].values[0] for calibrated in (reached, calibration)]
    assert isclose(*same, rel_tol=1e-9), "and it predicts the same"
    for step in STEPS:
        if step.model == model:
            workload = Workload(prompt=step.query, precision=Precision(weights="i8"))
            ready = make_ready(
                graph_of_step(step), SUBJECT.device, effects=SUBJECT.runtime, workload=workload, options=Options(),
                calibration=calibration,
            )  # fmt: skip
            sizes = step_sizes(step.passes(ready.effects), 1)
            predicted = float(ready.plan.step(sizes, step.phase).total("time_s").sum())
            assert abs(log(step.seconds / predicted)) < 0.12, f"{step.phase} {step.query} + {step.context}"


def test_whole_steps_of_language_models_tell_more_than_timers_that_mislead():
    """Kernels that were timed alone took a third in prompts of some widths: no factor of a class mends that."""
    steps = [step for step in STEPS if step.model != "probe-decoder-1536"]  # three models tell it as four do
    told = points_from(replace(TRUTH, steps=tuple(works_of_step(SUBJECT, step) for step in steps)), {})
    alone = [
        replace(point, seconds=point.seconds / 3)
        if point.axes.get("rows", 1) > 1 and point.probe in {"probe-decoder-768", "probe-decoder-1280"}
        else point
        for point in told
    ]
    by_steps = assemble_calibration(SUBJECT, alone, steps)
    assert by_steps.environment["ops_told_by"] == "whole steps"
    one = [step for step in steps if step.model == "probe-decoder-768"]
    assert "ops_told_by" not in assemble_calibration(SUBJECT, alone, one).environment, "no other model tells"
    again = assemble_calibration(SUBJECT, alone, steps, by_steps)
    assert again.environment["ops_told_by"] == "whole steps", "as the calibration that it starts from"


def test_the_last_token_of_a_prompt_is_a_step_of_its_own_where_the_engine_reads_it_so():
    step = replace(STEPS[0], query=24)
    works = works_of_step(SUBJECT, step).works
    heads = [work for work in works if work.axes.get("out_features") == step.config["vocab_size"]]
    assert [work.axes["rows"] for work in heads] == [1], "the head is needed once"
    assert {work.axes["rows"] for work in works if work.classes[-1] == "linear"} == {23, 1}
    whole = replace(SUBJECT, runtime=replace(SUBJECT.runtime, prompt="whole", sets={}))
    assert {work.axes["rows"] for work in works_of_step(whole, step).works if work.classes[-1] == "linear"} == {24, 1}


def test_a_model_is_off_by_what_tables_of_the_others_make_of_it():
    """Those of all steps hold what a model takes beyond the numbers, and would not be off."""
    told = fit_streams([works_of_step(SUBJECT, step) for step in STEPS], {})

    def tabled(found: StreamFit, left: Sequence[StepPoint]) -> list[WholeStep]:
        (model,) = {step.model for step in left}
        assert {known.step.model for known in found.steps} == {step.model for step in STEPS} - {model}
        return [
            WholeStep(
                model=model, phase=step.phase, seconds=step.seconds + found.overheads["step"],
                parts={"linear": step.seconds / 1.1 + found.overheads["step"] * (1 / 1.1 - 1)}, launches=0,
            )
            for step in left
        ]  # fmt: skip

    fit = left_out_fit(told, tabled)
    assert fit.measured == len(STEPS)
    assert {round(error, 9) for _, error in fit.errors} == {round(log(1.1), 9)}
    assert fit.residuals["step.prefill"] > log(1.1) / 1.29


def test_probes_of_one_name_are_told_apart_by_their_configs():
    deeper = replace(STEPS[0], config={**STEPS[0].config, "num_hidden_layers": 11})
    assert graph_of_step(deeper).parameters > graph_of_step(STEPS[0]).parameters
