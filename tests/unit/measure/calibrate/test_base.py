"""A calibration that starts from an earlier one: never worse for little time, and moved by what is really different."""

from dataclasses import replace
from math import log

import numpy as np
import pytest

from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.device import Sourced
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting.assemble import assemble_calibration
from inferometer.measure.calibrate.fitting.base import (
    base_note,
    base_overheads,
    beyond_chance,
    bounded,
    clearly_better,
    factors_of,
    on_base,
    unbounded,
    with_peaks_of,
)
from inferometer.measure.calibrate.fitting.fit import fit_points
from inferometer.measure.calibrate.fitting.points import StepPoint, measured_point, overhead
from inferometer.measure.calibrate.fitting.single import linear, vector, work_of_single
from inferometer.measure.calibrate.fitting.steps import (
    StepBase,
    WholeStep,
    alone_note,
    explained_seconds,
    fit_steps,
    whole_fit,
)
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject
from inferometer.measure.calibrate.job import CalibrationJob, PreparedEngine, begin_journal, calibrate
from inferometer.measure.calibrate.probes.provider import Ceilings, spanning, with_rates
from inferometer.measure.calibrate.run import CandidateResult, ProbeCandidate
from inferometer.predict.basis.calibrations import WIDER_VERSION
from inferometer.predict.basis.files import sealed, write_calibration
from inferometer.predict.price.utilisation import interpolate

H200 = device("nvidia-h200")
GRAPHS = require_effects("torch-graph")
SUBJECT = CalibrationSubject(device=H200, runtime=GRAPHS, dtype="bf16", created="2026-11-16")
SINGLES = [
    linear(rows, size, wide) for rows in (1, 16, 256, 4096) for size in (512, 2048, 4096) for wide in (512, 4096)
]
SINGLES += [vector("elementwise", 2**power, inputs=2) for power in range(12, 28, 2)]
WORKS = [work_of_single(single, H200, runtime=GRAPHS, dtype="bf16") for single in SINGLES]
KERNEL_S = 1e-6
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 8192,
    "max_position_embeddings": 4096, "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip


def truth(work):
    """What an op reaches of its floor: more, the larger it is."""
    return 0.2 + 0.6 * min(1.0, log(1 + work.floor_s / 1e-7) / log(1e4))


def measured(works=WORKS, *, seed=0, slower=1.0, noise=0.1):
    """The machine as it is, `slower` than another, each reading with its noise."""
    random = np.random.default_rng(seed)
    points = [overhead("kernel", KERNEL_S, dtype="bf16", probe="o")]
    for work in works:
        seconds = work.launches * KERNEL_S + slower * work.floor_s / truth(work) * np.exp(random.normal(0, noise))
        points.append(measured_point(work, float(seconds), dtype="bf16", probe=work.name))
    return points


def some(share, seed):
    random = np.random.default_rng(seed)
    return [
        WORKS[place] for place in sorted(random.choice(len(WORKS), max(2, round(share * len(WORKS))), replace=False))
    ]


def errors(calibration, slower=1.0):
    """log(predicted / true) of every op, all of them and not only those that were measured."""
    tables = {table.op_class: table for table in calibration.tables}
    return np.array(
        [log(truth(work) / interpolate(tables[work.classes[-1]], work.axes) / slower) for work in WORKS
         if work.classes[-1] in tables]
    )  # fmt: skip


BASE = assemble_calibration(SUBJECT, measured(seed=99))


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 1.0])
def test_whatever_the_budget_no_calibration_is_worse_than_the_one_it_starts_from(share):
    median, most = (float(np.quantile(np.abs(errors(BASE)), q)) for q in (0.5, 0.9))
    for seed in range(5):
        made = assemble_calibration(SUBJECT, measured(some(share, seed), seed=seed), (), BASE)
        assert np.quantile(np.abs(errors(made)), 0.5) < median + 0.015
        assert np.quantile(np.abs(errors(made)), 0.9) < most + 0.02
        for op_class in ("linear", "vector"):
            assert made.residuals[op_class] > 0.8 * BASE.residuals[op_class], "intervals stay as wide as errors are"


def test_points_alone_would_be_worse():
    """Otherwise the test above proves nothing."""
    alone = [assemble_calibration(SUBJECT, measured(some(0.1, seed), seed=seed)) for seed in range(5)]
    worst = max(float(np.quantile(np.abs(errors(made)), 0.9)) for made in alone)
    assert worst > 3 * np.quantile(np.abs(errors(BASE)), 0.9)


@pytest.mark.parametrize("slower", [0.6, 1.5, 3.0])
def test_a_machine_that_is_really_different_is_followed(slower):
    before = float(np.median(np.abs(errors(BASE, slower))))
    few, all_of_it = (
        assemble_calibration(SUBJECT, measured(some(share, 1), seed=1, slower=slower), (), BASE) for share in (0.3, 1.0)
    )
    assert np.median(np.abs(errors(few, slower))) < 0.35 * before
    assert np.median(np.abs(errors(all_of_it, slower))) < 0.2 * before
    assert ("slower" if slower > 1 else "faster") in few.notes[0]


def test_a_class_that_was_not_measured_stays_as_it_was():
    made = assemble_calibration(SUBJECT, measured([work for work in WORKS if work.classes[-1] == "linear"]), (), BASE)
    assert made.table("vector") == BASE.table("vector")
    assert made.residuals["vector"] == BASE.residuals["vector"]
    assert made.valid["vector"] == BASE.valid["vector"]
    assert "Not measured again: vector." in made.notes[0]


def test_a_calibration_says_what_it_started_from():
    made = assemble_calibration(SUBJECT, measured(some(0.3, 0)), (), BASE)
    assert made.notes[0].startswith(f"Started from the calibration of 2026-11-16 ({BASE.points} ops, 0 whole steps). ")
    assert made.environment["started_from"] == BASE.content_hash
    assert made.points == BASE.points + 1 + len(some(0.3, 0))


def entry(points, base, name="linear"):
    fitted = fit_points(points, kernel_s=KERNEL_S)
    return next(e for e in on_base(base, fitted, points, kernel_s=KERNEL_S) if e.fitted.table.op_class == name)


def flat(calibration, *, share=0.1, residual=0.3, **given):
    """A base that says nothing true: every op at the same share of its floor."""
    tables = tuple(
        replace(table, values=tuple(share for _ in table.values), residual=residual) for table in calibration.tables
    )
    return replace(calibration, tables=tables, residuals=dict.fromkeys(calibration.residuals, residual), **given)


def test_a_table_of_the_new_points_takes_the_place_of_one_that_is_clearly_worse():
    made = entry(measured(noise=0.02), flat(BASE))
    assert made.new
    assert made.fitted.residual < 0.2
    assert np.median(np.abs(errors(Calibration(device="d", runtime="r", dtype="bf16", created="",
                                               tables=(made.fitted.table,))))) < 0.1  # fmt: skip


def test_it_does_not_where_it_spans_only_a_part_of_the_range():
    small = [work for work in WORKS if work.classes[-1] == "linear" and work.axes["rows"] < 100]
    made = entry(measured(small, noise=0.02), flat(BASE))
    assert not made.new
    assert made.fitted.table.grid == BASE.table("linear").grid
    assert made.shift < 0, "but the whole table moves"
    assert made.fitted.valid["rows"] == (1.0, 4096.0)


def test_a_new_table_leaves_what_it_says_together_with_the_factors_of_whole_steps():
    """Here no shift is beyond the base's doubt, so that models take on average what they took."""
    base = flat(BASE, share=0.25, residual=1.0, factors={"linear.decode": 2.0})
    made = assemble_calibration(SUBJECT, measured(noise=0.02), (), base)
    assert made.table("linear").values != base.table("linear").values
    factor = factors_of(made)["linear.decode"]
    linears = [work for work in WORKS if work.classes[-1] == "linear"]
    moved = [log(factor / interpolate(made.table("linear"), work.axes) / (2.0 / 0.25)) for work in linears]
    assert np.mean(moved) == pytest.approx(0.0, abs=0.15)


def test_chance_moves_nothing_and_evidence_moves_all():
    assert beyond_chance(0.1, 0.05) == 0.0
    assert beyond_chance(-0.1, 0.06) == 0.0
    assert beyond_chance(1.0, 0.05) == pytest.approx(0.99)
    assert beyond_chance(-1.0, 0.05) == pytest.approx(-0.99)
    assert beyond_chance(0.0, 0.0) == 0.0


def test_the_more_a_fit_rests_on_the_less_better_it_has_to_be():
    assert clearly_better(0.4, 1.0, count=1, count_before=1000)
    assert not clearly_better(0.6, 1.0, count=1, count_before=1000)
    assert clearly_better(0.8, 1.0, count=90, count_before=10)
    assert not clearly_better(0.4, 1.0, count=1, count_before=9, known=False)
    assert not clearly_better(1.0, 1.0, count=1000, count_before=1)


def test_the_better_of_two_rates_is_kept():
    reached = {"bf16": Sourced(value=5.0, origin="calibrated", source="s", date="d")}
    points = [replace(point, rates={"peak:bf16": 3.0, "bandwidth:hbm": 2.0}) for point in measured(some(0.2, 0))]
    slow = {"hbm": replace(reached["bf16"], value=1.0), "h2d": replace(reached["bf16"], value=0.5)}
    made = assemble_calibration(SUBJECT, points, (), replace(BASE, peaks=reached, bandwidths=slow))
    assert made.peaks["bf16"].value == 5.0
    assert {name: rate.value for name, rate in made.bandwidths.items()} == {"hbm": 2.0, "h2d": 0.5}


# Overheads


def overheads(**seconds):
    return {name.replace("_", "."): Sourced(value=value, origin="calibrated", source="s", date="d")
            for name, value in seconds.items()}  # fmt: skip


def test_one_reading_moves_an_overhead_little_and_many_move_it_there():
    base = replace(BASE, overheads=overheads(kernel=2e-6, alone_kernel=1e-6))
    assert base_overheads(base, {"kernel": [1.5e-6]}) == ({"kernel": 1e-6}, {"kernel": 2e-6})
    alone, inside = base_overheads(base, {"kernel": [3e-6] * 50, "step": [1e-5]})
    assert alone == pytest.approx({"kernel": 3e-6, "step": 1e-5}, rel=0.05)
    assert inside == pytest.approx({"kernel": 6e-6, "step": 1e-5}, rel=0.05)


# Whole steps

START = {"kernel": 1e-6, "step": 2e-5, "host": 1e-5}
BEFORE = StepBase(
    factors={"linear.decode": 1.3, "vector.decode": 0.5, "linear.prefill": 1.1},
    residuals={"step.decode": 0.1, "step.prefill": 0.1, "host": 0.2},
    steps=20.0,
)


def whole(factors, *, models=4, phase="decode", queued=False, host=1e-5, seed=0, noise=0.05):
    random = np.random.default_rng(seed)
    steps = []
    for model in range(models):
        parts = {f"linear.{phase}": 4e-4 * (1 + model), f"vector.{phase}": 1e-4 * (4 - model)}
        launches = 50.0 * (1 + model) * (3 if queued else 1)
        step = WholeStep(model=f"m{model}", phase=phase, seconds=1.0, parts=parts, launches=launches,
                         queued=launches if queued else 0.0)  # fmt: skip
        seconds = explained_seconds(step, factors, {**START, "host": host}) * np.exp(random.normal(0, noise))
        steps.append(replace(step, seconds=float(seconds)))
    return steps


@pytest.mark.parametrize("seed", range(4))
def test_few_steps_that_agree_with_the_base_change_none_of_its_factors(seed):
    made = whole_fit(whole(BEFORE.factors, models=2, seed=seed), START, BEFORE)
    assert dict(made.factors) == dict(BEFORE.factors)
    assert {name: made.overheads[name] for name in START} == START


def test_steps_that_say_something_else_move_the_factors_of_their_phase_only():
    slower = {name: 1.3 * factor for name, factor in BEFORE.factors.items()}
    made = whole_fit(whole(slower, noise=0.0), START, BEFORE)
    assert made.left == ()
    assert made.factors["linear.decode"] == pytest.approx(1.69, rel=0.1)
    assert made.factors["linear.prefill"] == 1.1
    older = replace(BASE, fitted_on=("m1", "older"))
    assert made.applied_to(older, source="s", date="d").fitted_on == ("m0", "m1", "m2", "m3", "older")


def test_a_phase_that_the_base_could_not_explain_is_not_explained_by_a_few_steps():
    steps = whole({"linear.forward": 1.25, "vector.forward": 1.25}, phase="forward", noise=0.05)
    assert whole_fit(steps, START, replace(BEFORE, steps=200.0)).left == ("forward",)
    assert whole_fit(steps, START, replace(BEFORE, steps=0.1)).left == ()


def test_residuals_pool_the_steps_of_both():
    steps = [StepPoint(model=f"m{n}", phase="decode", seconds=1e-3 * (1 + n), dtype="bf16", config=CONFIG, context=64)
             for n in range(4)]  # fmt: skip
    base = replace(
        BASE, residuals={**BASE.residuals, "step.decode": 0.1, "step.prefill": 0.2}, steps=400, fitted_on=("old",)
    )
    made = assemble_calibration(SUBJECT, measured(some(0.3, 0)), steps, base)
    assert made.residuals["step.prefill"] == 0.2
    assert "old" in made.fitted_on
    assert 0.1 < made.residuals["step.decode"] < 0.4, "four steps that are far off, beside two hundred that were not"
    assert made.steps == 404


@pytest.mark.parametrize("host", [4e-6, 3e-5])
def test_the_host_of_another_machine_is_found(host):
    steps = [step for seed in range(5) for step in whole(BEFORE.factors, queued=True, host=3e-5, seed=seed)]
    _, overheads = fit_steps(steps, {**START, "host": host}, BEFORE)
    assert overheads["host"] == pytest.approx(3e-5, rel=0.1)


def test_a_host_that_some_steps_beat_and_most_do_not_stands():
    steps = [step for seed in range(9) for step in whole(BEFORE.factors, queued=True, host=3e-5, seed=seed, noise=0.3)]
    fast = float(np.quantile([(step.seconds - START["step"]) / step.queued for step in steps], 0.15))
    assert fit_steps(steps, {**START, "host": fast}, BEFORE)[1]["host"] == fast


def test_a_disturbed_step_or_two_are_no_slower_host():
    steps = whole(BEFORE.factors, queued=True, host=3e-5, models=2, noise=0.0)
    disturbed = [replace(step, seconds=1.5 * step.seconds) for step in steps]
    assert fit_steps(disturbed, {**START, "host": 3e-5}, BEFORE)[1]["host"] == 3e-5


def test_a_phase_that_is_left_out_is_said_in_plain_words_unless_the_base_knows_it():
    assert alone_note("prefill") == (
        "What whole models took in prefill does not follow from what their ops take, "
        "so prefill is predicted from ops that were measured one by one."
    )
    fit = whole_fit(whole(BEFORE.factors, models=2), START, BEFORE)
    known = replace(BASE, residuals={**BASE.residuals, **BEFORE.residuals})
    assert fit.left == ("decode",)
    assert fit.applied_to(known, source="s", date="d").notes == known.notes
    assert alone_note("decode") in fit.applied_to(BASE, source="s", date="d").notes


# Tables with factors in them, and peaks that were raised


def table(name, *values):
    return Utilisation(op_class=name, stream="floor", axes=("rows",), grid=((1.0, 10.0, 100.0),), values=values,
                       residual=0.1)  # fmt: skip


def test_factors_that_were_written_into_tables_are_read_back():
    bare = Calibration(
        device="d", runtime="r", dtype="bf16", created="",
        tables=(table("linear", 0.2, 0.4, 0.5), table("vector", 0.1, 0.1, 0.2)),
        factors={"linear.decode": 0.6, "vector.decode": 1.4},
    )  # fmt: skip
    assert factors_of(bounded(bare)) == pytest.approx({"linear.decode": 0.6, "vector.decode": 1.4})


def test_fused_ops_have_a_table_of_their_own_whatever_factors_there_are():
    tables = (
        table("vector", 0.1, 0.2, 0.3),
        table("vector.fused", 0.2, 0.2, 0.2),
        table("vector.decode", 0.2, 0.3, 0.3),
    )
    both = Calibration(device="d", runtime="r", dtype="bf16", created="", tables=tables, factors={"vector.fused": 0.6})
    assert [kept.op_class for kept in unbounded(both).tables] == ["vector", "vector.fused"]


def test_a_base_on_raised_peaks_predicts_the_same():
    cpu = replace(device("local"), peaks={})
    rate = {"origin": "calibrated", "source": "s", "date": "d"}
    level = cpu.memories[0].level
    base = Calibration(
        device="local", runtime="onnxruntime", dtype="f32", created="", tables=(table("linear", 0.2, 0.4, 1.0),),
        peaks={"f32": Sourced(value=1e11, **rate)},
        bandwidths={level: Sourced(value=1e10, **rate), "storage": Sourced(value=1e9, **rate)},
    )  # fmt: skip
    now = Ceilings(flop_per_s=9e10, bytes_per_s=2e10, dtype="f32", threads=1, source="s", date="d")
    raised = spanning(now, cpu, base)
    assert (raised.flop_per_s, raised.bytes_per_s) == (2e11, 2e10), "the memory is twice as fast: both are raised alike"
    assert spanning(now, cpu, None) == now
    assert spanning(replace(now, bytes_per_s=9e9), cpu, base).flop_per_s == 1e11, "a slower moment lowers none"
    moved = with_peaks_of(with_rates(cpu, raised), base)
    assert moved.table("linear").values == (0.1, 0.2, 0.5)
    assert (moved.peaks["f32"].value, moved.bandwidths[level].value) == (2e11, 2e10)
    assert moved.bandwidths["storage"].value == 1e9
    assert with_peaks_of(with_rates(cpu, raised), replace(base, peaks={})) is None


# A job

LOCAL = device("local")
HERE = {"cpu": "A 100"}


def local(**given):
    made = Calibration(
        device="local", runtime="onnxruntime", dtype="f32", created="2026-11-15T10:00:00+00:00", threads=2,
        tables=(table("linear", 0.2, 0.4, 1.0),), versions={"onnxruntime": "1.2"}, environment=HERE,
    )  # fmt: skip
    return sealed(replace(made, **given))


def job(folder, **given):
    values = {"device": LOCAL, "runtime": "onnxruntime", "dtype": "f32", "budget_s": 30.0, "threads": 2}
    return CalibrationJob(folder=folder, **values | given)


def base_of(folder, versions=None, environment=HERE, **given):
    return begin_journal(job(folder, **given), {"onnxruntime": "1.2"} if versions is None else versions, environment)


def test_a_run_starts_from_the_calibration_that_the_device_has(tmp_path):
    write_calibration(local(), tmp_path)
    assert base_of(tmp_path) == local()


def test_other_threads_another_format_or_another_processor_are_another_machine(tmp_path):
    write_calibration(local(), tmp_path)
    assert base_of(tmp_path, threads=4) is None
    assert base_of(tmp_path, dtype="f16") is None
    assert base_of(tmp_path, runtime="openvino") is None
    assert base_of(tmp_path, environment={"cpu": "B 200"}) is None


def test_a_base_of_another_version_is_a_base_and_less_certain(tmp_path):
    write_calibration(local(), tmp_path)
    base = base_of(tmp_path, versions={"onnxruntime": "1.3"})
    assert base.table("linear").residual == pytest.approx(WIDER_VERSION * 0.1)
    assert base.content_hash == local().content_hash
    assert base_of(tmp_path, versions={"onnxruntime": "1.3"}) == base, "and a resumed run widens it once, not twice"


def test_a_resumed_run_starts_where_its_journal_did_and_a_fresh_one_from_what_there_is_now(tmp_path):
    first = local()
    write_calibration(first, tmp_path)
    assert base_of(tmp_path) == first
    later = local(created="2026-11-16T10:00:00+00:00")
    write_calibration(later, tmp_path)
    assert base_of(tmp_path) == first, "the later one may be of this very journal"
    assert base_of(tmp_path, fresh=True) == later


def test_a_journal_that_was_begun_with_nothing_goes_on_with_nothing(tmp_path):
    assert base_of(tmp_path) is None
    job(tmp_path).journal.add(ProbeCandidate(key="a", op_class="linear"), CandidateResult())
    write_calibration(local(), tmp_path)
    assert base_of(tmp_path) is None


def test_a_gpu_starts_from_its_shipped_calibration_whatever_its_driver(tmp_path):
    gpu = {"device": H200, "runtime": "torch-compile", "dtype": "bf16", "threads": None}
    base = base_of(tmp_path, versions={"driver": "1.0"}, environment={"cpu": "B 200", "gpu": "NVIDIA H200 NVL"}, **gpu)
    assert base.points > 500


def test_a_job_hands_its_base_to_the_fit(tmp_path):
    class Few:
        def candidates(self):
            return [ProbeCandidate(key="all", op_class="linear")]

        def measure(self, _):
            return CandidateResult(points=tuple(measured(some(0.2, 0))))

    asked = CalibrationJob(device=H200, runtime="torch-graph", dtype="bf16", budget_s=60.0, folder=tmp_path)
    made = calibrate(asked, PreparedEngine(provider=Few(), base=BASE)).calibration
    assert made.environment["started_from"] == BASE.content_hash


@pytest.mark.parametrize("few", [False, True])
def test_a_form_follows_a_slower_machine_as_its_class_does(few):
    """Its table prices such ops, so a shift of the class alone would change nothing. Few points have no table."""
    fitted = fit_points(measured(), kernel_s=KERNEL_S)
    vectors, form = next(fit for fit in fitted if fit.table.op_class == "vector"), "vector.elementwise"
    base = replace(
        BASE, tables=(*BASE.tables, replace(vectors.table, op_class=form)),
        residuals={**BASE.residuals, form: vectors.residual}, valid={**BASE.valid, form: dict(vectors.valid)},
    )  # fmt: skip
    points = measured([work for work in WORKS if "vector" in work.classes], slower=2.0, noise=0.02)
    now = fit_points(points, kernel_s=KERNEL_S)
    own = () if few else (*now, replace(now[0], table=replace(now[0].table, op_class=form)))
    found = {entry.fitted.table.op_class: entry for entry in on_base(base, own, points, kernel_s=KERNEL_S)}
    assert found[form].shift == pytest.approx(log(2.0), abs=0.1)
    assert found["linear"].shift == 0.0
    assert found[form].fitted.valid == vectors.valid
    assert base_note(base, tuple(found.values())).endswith(" Not measured again: linear.")
