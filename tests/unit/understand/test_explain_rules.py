"""The rules of an explanation at their edges: what a request is made of, what is blamed, what bounds an op."""

from dataclasses import replace

import pytest

from inferometer.core.profile import Environment, Headline, OpTime, Phase, Provenance
from inferometer.core.workload import Precision, Workload
from inferometer.understand.attribution import attribution, by_host, by_phase, one_time, repeats, split_phase
from inferometer.understand.case import at_most, at_stake, command_option, evidence, graded, level_samples, phase_words
from inferometer.understand.residual import explain_residual
from inferometer.understand.roofline import drawn_roofs, regime_of
from unit.understand.explain_cases import (
    CPU,
    GPU,
    case_of,
    computing,
    explain,
    forward,
    judged_on,
    moving,
    op,
    profile,
    roofline_of,
    text,
    told,
)

# What a request is made of.


def request(kind="measured", *, generate=5, **summary):
    """A request of six phases, no two of which take as long."""
    phases = (
        Phase(name="load", time_s=100.0),
        Phase(name="tokenise", time_s=0.5),
        Phase(name="prefill", time_s=2.0, flops=10.0, bytes=20.0, floor_s=1.0, predicted_s=1.5),
        Phase(name="decode", time_s=0.25, flops=3.0, bytes=6.0, floor_s=0.125, predicted_s=0.2),
        Phase(name="sampling", time_s=0.03),
        Phase(name="detokenise", time_s=0.07),
    )
    return profile(*phases, kind=kind, summary=Headline(**summary), workload=Workload(prompt=8, generate=generate))


def test_a_phase_counts_as_often_as_a_request_runs_it():
    once = {"tokenise": 1.0, "prefill": 1.0, "sampling": 1.0, "detokenise": 1.0}  # a measurement times them together
    assert repeats(request()) == {**once, "decode": 4.0}
    predicted = repeats(request("predicted"))
    assert (predicted["detokenise"], predicted["sampling"]) == (4.0, 5.0), "a prediction is of a token; the first too"
    assert repeats(request(generate=1))["decode"] == 0.0, "the first token is the prompt's"
    assert repeats(profile(Phase(name="decode", time_s=1.0), workload=Workload(generate=9))) == {"decode": 1.0}
    assert [phase.name for phase in one_time(request())] == ["load"]


def test_a_requests_rows_are_phases_times_how_often_they_run():
    table = by_phase(request(e2e_s=4.0))
    rows = {row.name: row for row in table.rows}
    assert [row.name for row in table.rows] == ["prefill", "decode", "tokenise", "detokenise", "sampling"]
    assert (rows["decode"].time_s, rows["decode"].share, rows["decode"].count) == (1.0, 0.25, 4)
    assert (rows["decode"].flops, rows["decode"].bytes, rows["decode"].floor_s) == (12.0, 24.0, 0.5)
    assert rows["decode"].predicted_s == pytest.approx(0.8)
    assert rows["tokenise"].flops is None
    assert table.whole_s == 4.0
    assert table.remainder_s == pytest.approx(4.0 - 3.6)
    assert table.remainder_share == pytest.approx(0.4 / 4.0)


def test_a_request_is_its_end_to_end_time_then_its_latency_then_its_sum():
    assert by_phase(request(e2e_s=4.0, latency_s=9.0)).whole_s == 4.0
    assert by_phase(request(latency_s=9.0)).whole_s == 9.0
    assert by_phase(request(e2e_s=0.0)).whole_s == pytest.approx(3.6)


def test_a_sum_of_work_is_unknown_if_a_part_is():
    known, unknown = computing(0.2, "a"), replace(moving(0.3, "b"), flops=None)
    (row,) = split_phase(forward(known, unknown), "kind").rows
    assert row.flops is None
    assert row.bytes == known.bytes + unknown.bytes
    assert (row.share, row.count) == (0.5, 2)
    assert split_phase(forward(known, seconds=0.0), "kind").rows[0].share == 0.0


def test_a_device_is_never_busier_than_its_op_took():
    table = by_host(
        forward(op("a", "linear", 0.2, device_s=0.5), op("b", "linear", 0.3, device_s=0.1), op("c", "sort", 0.1))
    )
    rows = {row.name: row for row in table.rows}
    assert rows["device"].time_s == pytest.approx(0.2 + 0.1)
    assert rows["host"].time_s == pytest.approx(0.2 + 0.1)
    assert (rows["device"].count, rows["host"].count) == (2, 3)


def test_units_that_are_not_told_are_neither_host_nor_device():
    table = by_host(forward(op("a", "linear", 0.5, unit="gpu"), op("b", "sort", 0.2, unit=None), op("c", "sort", 0.1)))
    assert {row.name: row.time_s for row in table.rows} == {"device": 0.5, "unknown": 0.2, "host": 0.1}
    assert by_host(forward(op("a", "linear", 0.5, unit=None))) is None


def test_every_phase_with_ops_or_parts_has_its_tables():
    found = profile(forward(computing(0.4), op("x", "norm", 0.1, unit=None, block=None), parts={"run": 0.9}))
    tables = attribution(found, bound=lambda one: one.kind.upper())
    assert [table.by for table in tables] == ["phase", "block", "layer", "kind", "unit", "bound", "parts"]
    named = {table.by: {row.name for row in table.rows} for table in tables}
    assert named["bound"] == {"LINEAR", "NORM"}, "the caller's word, for bounds alone"
    assert named["kind"] == {"linear", "norm"}
    assert named["unit"] == {"cpu", "unknown"}
    assert named["block"] == {"unknown"}
    assert attribution(profile(Phase(name="load", time_s=1.0))) == ()
    mixed = profile(Phase(name="load", time_s=1.0), forward(op("a", "linear", 0.5, unit="npu"), op("b", "sort", 0.2)))
    assert [table.by for table in attribution(mixed)] == ["phase", "block", "layer", "kind", "unit", "bound", "host"]


# Why a prediction was missed.


def priced(name, kind, measured, predicted, *, floor=None, count=1):
    return OpTime(name=name, kind=kind, time_s=measured, predicted_s=predicted, count=count,
                  floor_s=0.8 * predicted if floor is None else floor)  # fmt: skip


def story(*ops, measured=None, predicted=None):
    phase = Phase(name="forward", time_s=sum(each.time_s for each in ops) if measured is None else measured, ops=ops,
                  predicted_s=sum(each.predicted_s for each in ops) if predicted is None else predicted)  # fmt: skip
    (found,) = explain_residual(profile(phase, Phase(name="load", time_s=1.0)))
    return found


def test_a_tenth_in_either_direction_is_near():
    for measured, blame in ((1.0999, "none"), (0.9001, "none"), (1.12, "model"), (0.88, "model")):
        found = story(priced("a", "linear", measured, 1.0))
        assert found.blame == blame
    assert "12% faster than predicted" in found.sentence
    assert (found.measured_s, found.predicted_s) == (0.88, 1.0)


def test_an_op_of_little_work_is_small_by_its_prediction_a_piece_and_its_floor():
    def blame(**small):
        return story(priced("big", "linear", 1e-3, 1e-3), priced("n", "norm", 2e-3, **small)).blame

    assert blame(predicted=19e-6, floor=1e-6) == "runtime"
    assert blame(predicted=21e-6, floor=1e-6) == "model", "predicted to take longer than a launch"
    assert blame(predicted=190e-6, floor=1e-6, count=10) == "runtime", "ten of them"
    assert blame(predicted=19e-6, floor=0.7e-3) == "model", "its floor explains a third of its time"


def test_time_between_ops_counts_as_it_was_predicted():
    ops = (priced("a", "linear", 1e-3, 1e-3), priced("b", "attention", 2e-3, 1e-3))
    assert story(*ops, measured=4.5e-3, predicted=3e-3).blame == "model", "of 1.5 ms half a millisecond is between"
    assert story(*ops, measured=5.5e-3, predicted=2e-3).blame == "runtime"
    found = story(*ops, measured=4.5e-3, predicted=3e-3)
    rows = {gap.kind: gap for gap in found.kinds}
    assert (rows["beside the layers"].measured_s, rows["beside the layers"].predicted_s) == pytest.approx(
        (1.5e-3, 1e-3)
    )
    assert rows["beside the layers"].share == pytest.approx(1 / 3)
    assert rows["attention"].share == pytest.approx(2 / 3)
    assert [gap.kind for gap in found.kinds] == ["attention", "beside the layers", "linear"], (
        "the largest difference first"
    )


def test_kinds_are_off_alike_only_if_two_that_matter_are_and_are_off_at_all():
    assert story(priced("a", "linear", 1.4, 1.0), priced("b", "norm", 0.7, 0.5)).blame == "device"
    assert story(priced("a", "linear", 1.4, 1.0), priced("b", "norm", 0.07, 0.05)).blame == "model", "one that matters"
    assert story(priced("a", "linear", 2.0, 1.0), priced("b", "norm", 0.7, 0.5)).blame == "model", "a third apart"
    assert story(priced("a", "linear", 1.30, 1.0), priced("b", "norm", 1.02, 1.0)).blame == "model", "one is not off"


def test_a_layer_is_named_if_more_than_half_of_its_kinds_difference_is_in_it():
    first, second = priced("a", "attention", 1.0, 0.5), priced("b", "attention", 1.1, 0.5)
    assert "most of it in b" in story(priced("c", "linear", 1.0, 1.0), first, second).sentence
    third = priced("d", "attention", 1.0, 0.5)
    assert "most of it" not in story(priced("c", "linear", 1.0, 1.0), first, second, third).sentence
    assert "most of it" not in story(priced("c", "linear", 1.0, 1.0), priced("a", "attention", 2.0, 0.5)).sentence


def test_a_layer_is_compared_with_those_of_its_kind():
    kinds = (("b", 0.4), ("x", 0.05), ("y", 0.05))
    attention = [priced(name, "attention", 0.1 + off, 0.1) for name, off in kinds]
    found = story(priced("c", "linear", 1.45, 1.0), *attention)
    assert found.kinds[0].kind == "attention"
    assert "most of it in b" in found.sentence


def test_an_op_without_a_prediction_is_time_on_no_op():
    found = story(
        priced("a", "linear", 1.0, 0.5), OpTime(name="x", kind="sort", time_s=0.4), measured=1.5, predicted=0.5
    )
    assert {gap.kind: gap.measured_s for gap in found.kinds} == pytest.approx({"linear": 1.0, "beside the layers": 0.5})


def test_counts_of_ops_are_of_their_kind():
    found = story(priced("a", "linear", 1.0, 0.5, count=3), priced("b", "linear", 1.0, 0.5, count=4))
    assert {gap.kind: gap.ops for gap in found.kinds} == {"linear": 7, "beside the layers": 0}


# What bounds an op.


ROOF = roofline_of(profile(forward(computing(1.0))), CPU)  # 100 GFLOP/s and 20 GB/s


def regime(seconds, *, unit="cpu", kind="measured", **work):
    return regime_of(OpTime(name="x", kind="linear", time_s=seconds, **work), ROOF, unit=unit, kind=kind)


def test_arithmetic_bounds_from_the_ridge_on():
    assert regime(1.0, flops=5e9, bytes=1e9) == "compute"  # 50 ms of each
    assert regime(1.0, flops=4.9e9, bytes=1e9) == "memory"
    assert regime(1.0, flops=5e9) == "unknown"
    assert regime(1.0, bytes=5e9) == "unknown"


def test_a_short_op_whose_floor_is_below_a_tenth_is_overhead():
    assert regime(40e-6, flops=1.0, bytes=1.0, floor_s=3.9e-6) == "overhead"
    assert regime(40e-6, flops=1.0, bytes=1.0, floor_s=4.1e-6) == "memory"
    assert regime(60e-6, flops=1.0, bytes=1.0, floor_s=1e-9) == "memory", "long: merely slow"
    assert regime(120e-6, flops=1.0, bytes=1.0, floor_s=1e-9, count=3) == "overhead", "40 µs each"
    assert regime(40e-6, flops=3.9e5, bytes=1.0) == "overhead", "without a floor, the longer of arithmetic and bytes"
    assert regime(40e-6, flops=4.1e5, bytes=1.0) == "compute"
    assert regime(40e-6, flops=1.0, bytes=8.2e4) == "memory"
    assert regime(14e-6, unit="gpu:1", floor_s=0.0, flops=1.0, bytes=1.0) == "overhead"
    assert regime(16e-6, unit="gpu:1", floor_s=0.0, flops=1.0, bytes=1.0) == "memory"


def test_a_stated_bound_stands_but_a_measured_op_may_be_overhead():
    assert regime(1.0, bound="compute") == "compute"
    assert regime(40e-6, bound="compute", floor_s=1e-9) == "overhead"
    assert regime(40e-6, bound="compute", floor_s=1e-9, kind="predicted") == "compute"
    for told_bound in ("link", "storage", "overhead"):
        assert regime(1.0, bound=told_bound, flops=1e12, bytes=1.0) == told_bound


def test_a_phase_leads_with_what_takes_most_and_its_work_is_summed():
    found = roofline_of(profile(forward(computing(0.2, "a"), moving(0.5, "b"), computing(0.1, "c"))), CPU)
    (phase,) = found.phases
    assert phase.point.regime == "memory"
    assert phase.regimes == pytest.approx({"compute": 0.3, "memory": 0.5, "overhead": 0.2})
    assert phase.point.flops == pytest.approx(0.3 * 50e9 + 0.5 * 10e9)
    assert phase.point.bytes == pytest.approx(0.3 * 0.5e9 + 0.5 * 10e9)
    assert [point.share for point in found.ops] == pytest.approx([0.2, 0.5, 0.1])
    assert found.phase("decode") is None
    stated = roofline_of(profile(forward(computing(0.2), flops=7.0, bytes=3.0)), CPU).phases[0].point
    assert (stated.flops, stated.bytes) == (7.0, 3.0)
    unknown = roofline_of(profile(forward(computing(0.2), op("x", "sort", 0.1))), CPU).phases[0].point
    assert (unknown.flops, unknown.intensity) == (None, None)


def test_without_a_bandwidth_nothing_is_attainable_but_the_peak_is_known():
    (point,) = roofline_of(profile(forward(computing(1.0))), replace(CPU, memories=())).ops
    assert (point.attainable_flop_per_s, point.efficiency, point.bandwidth_utilisation) == (None, None, None)
    assert point.compute_utilisation == pytest.approx(0.5)


def test_an_explanation_splits_by_what_the_roofline_says_of_each_phase():
    two = profile(Phase(name="load", time_s=1.0, ops=(op("l", "copy", 1.0, bound="storage"),)),
                  Phase(name="prefill", time_s=1.0, ops=(computing(0.5, "a"), moving(0.25, "b"))),
                  Phase(name="decode", time_s=1.0, ops=(moving(0.5, "a"), computing(0.25, "b"))),
                  workload=Workload(generate=3, precision=Precision(weights="f32", activations="f32")))  # fmt: skip
    tables = {table.phase: {row.name: row.time_s for row in table.rows}
              for table in explain(two, CPU).tables if table.by == "bound"}  # fmt: skip
    assert tables == {"load": {"storage": 1.0}, "prefill": {"compute": 0.5, "memory": 0.25},
                      "decode": {"memory": 0.5, "compute": 0.25}}  # fmt: skip


def test_samples_that_are_no_times_are_left_out():
    odd = (0.5, float("nan"), 0.0, float("inf"), -1.0, 0.25)
    assert level_samples(Phase(name="forward", time_s=1.0, samples_s=odd)) == (0.5, 0.25)


def test_ops_that_overlap_leave_no_overhead():
    (phase,) = roofline_of(profile(forward(computing(0.8), moving(0.7))), CPU).phases
    assert phase.regimes == pytest.approx({"compute": 8 / 15, "memory": 7 / 15})


def test_a_phase_without_ops_is_bound_by_its_work():
    for flops, nbytes, wanted in (
        (5e9, 1e9, "compute"),
        (4.9e9, 1e9, "memory"),
        (None, 1e9, "unknown"),
        (0.0, 0.0, "unknown"),
    ):
        (phase,) = roofline_of(profile(forward(flops=flops, bytes=nbytes)), CPU).phases
        assert phase.regimes == {wanted: 1.0}
    (phase,) = roofline_of(profile(forward(flops=5e9, bytes=1e9, bound="link")), CPU).phases
    assert phase.regimes == {"link": 1.0}


def test_a_point_has_its_floor_and_what_it_reaches_of_each_roof():
    one = op("x", "linear", 0.5, flops=1e9, bytes=1e9, floor_s=0.05)
    (point,) = roofline_of(profile(forward(one, seconds=2.0)), CPU).ops
    assert (point.share, point.floor_share) == (0.25, 0.1)
    assert (point.flop_per_s, point.bytes_per_s) == (2e9, 2e9)
    assert point.attainable_flop_per_s == 20e9
    assert point.efficiency == pytest.approx(0.1)
    assert (point.compute_utilisation, point.bandwidth_utilisation) == pytest.approx((0.02, 0.1))
    assert roofline_of(profile(forward(op("x", "linear", 1.0, flops=1.0, bytes=0.0))), CPU).ops[0].intensity is None


def test_the_devices_own_peak_stands_before_what_a_calibration_reached():
    reached = {"f32": told(70e9), "dram": told(15e9)}
    found = roofline_of(profile(forward(computing(1.0))), CPU, reached=reached)
    assert (found.peak.value, found.memory.value, found.ridge) == (100e9, 20e9, 5.0)
    only = roofline_of(profile(forward(computing(1.0))), replace(CPU, peaks={}), reached=reached)
    assert only.peak.value == 70e9
    drawn = drawn_roofs(judged_on(profile(forward(computing(1.0))), CPU, reached=reached).judged_by)
    assert set(drawn.peaks) == {"f32", "f32, calibrated"}
    assert [memory.level for memory in drawn.memories] == ["dram", "l2", "dram, calibrated"]


# What findings are made from.


def test_a_stake_is_of_the_whole_request():
    found = case_of(text(1.0, 0.1, generate=11), CPU)
    prefill, decode = found.profile.phases
    assert found.request_s == pytest.approx(2.0)
    assert at_stake(found, decode, 0.03) == {"severity": "warning", "phase": "decode", "stake_s": pytest.approx(0.3)}
    assert at_stake(found, prefill, 0.03)["severity"] == "info"
    assert (graded(0.1), graded(0.0999)) == ("warning", "info")
    assert found.share(0.5) == pytest.approx(0.25)
    assert [phase.name for phase in found.repeating] == ["prefill", "decode"]


def test_what_a_run_could_use_comes_from_its_host_before_its_device():
    base = profile(forward(computing(1.0)))

    def on(device=CPU, kind="measured", threads=4, **host):
        return case_of(replace(base, kind=kind, environment=Environment(threads=threads, host=host)), device)

    assert on(usable_cpus=3, logical_cores=16).cpus == 3
    assert on(logical_cores=16).cpus == 16
    assert on(usable_cpus=0.5, logical_cores="many").cpus == 8, "the device's own"
    assert case_of(replace(base, summary=Headline()), GPU).cpus is None
    assert on().threads == 4
    assert on(kind="predicted").threads is None
    assert on(threads=0).threads is None
    gpu = replace(base, summary=Headline(top_unit="gpu:1"), environment=Environment(threads=4))
    assert (case_of(gpu, GPU).threads, case_of(gpu, GPU).unit) == (None, "gpu")
    assert case_of(replace(base, summary=Headline()), GPU).unit == "gpu"
    assert on().weight_bits == 32.0
    assert on().capacity_bytes == 16e9


def test_ops_of_a_regime_are_of_their_own_phase():
    two = profile(Phase(name="prefill", time_s=1.0, ops=(computing(0.5, "a"), moving(0.5, "b"))),
                  Phase(name="decode", time_s=1.0, ops=(moving(0.5, "c"), computing(0.5, "d"))),
                  workload=Workload(generate=3, precision=Precision(weights="f32", activations="f32")))  # fmt: skip
    found = case_of(two, CPU)
    assert [one.name for one in found.in_regime(two.phases[0], "memory")] == ["b"]
    assert [one.name for one in found.in_regime(two.phases[1], "memory")] == ["c"]
    assert found.regimes(two.phases[1]) == pytest.approx({"memory": 0.5, "compute": 0.5})


@pytest.mark.parametrize(
    ("line", "value"),
    [("inferometer profile m --threads 4 --runs 9", "4"), ("x --threads=6", "6"), ("x --threads", None),
     ("x --runs 9", None), ("x 'unclosed --threads 4", None), (None, None), ("x --threadsafe=1 --threads=2", "2")],
)  # fmt: skip
def test_an_option_is_read_from_the_command_line_of_the_measurement(line, value):
    base = profile(forward(computing(1.0)))
    said = replace(base, provenance=Provenance(tool="t", version="1", created="2026-01-01", command=line))
    assert command_option(case_of(said, CPU), "--threads") == value


def test_words_and_numbers_of_a_finding():
    assert phase_words(Phase(name="decode", time_s=1.0)) == "decoding"
    assert phase_words(Phase(name="warm", time_s=1.0)) == "the phase warm"
    assert evidence(a=1, b=None, c=float("inf"), d=float("nan"), e=0.0) == {"a": 1.0, "e": 0.0}
    assert (at_most(0.75), at_most(0.0), at_most(1.0), at_most(-0.1)) == (4.0, 1.0, None, None)
