"""Verdicts, on samples whose truth is known."""

import json
from dataclasses import replace

import pytest

from inferometer.core.errors import DomainError
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import Environment, Provenance
from inferometer.measure.bench.compare import compare, comparison_document
from inferometer.measure.bench.measurement import TOOL, turns_of
from inferometer.measure.bench.verdict import Criteria, judge
from unit.measure.bench.profiles import noisy, op, phase, profile, run_of

OLD = noisy(1.0, seed=1)


def slower(share, *, count=50, spread=0.01, seed=2):
    return noisy(1.0 + share, count, spread=spread, seed=seed)


def test_a_planted_slow_down_of_5_percent_is_caught():
    found = judge(OLD, slower(0.05))
    assert found.verdict == "slower"
    assert found.evidence.low < 1.05 < found.evidence.high
    assert found.evidence.p_value < 0.005
    assert found.evidence.effect > 0.9


def test_a_planted_speed_up_is_caught():
    assert judge(OLD, slower(-0.05)).verdict == "faster"


def test_a_noisy_equal_pair_is_undecided_and_says_how_many_runs_would_tell():
    found = judge(noisy(1.0, spread=0.2, seed=3), noisy(1.0, spread=0.2, seed=4))
    assert found.verdict == "undecided"
    assert found.evidence.runs_needed > 1000
    assert f"about {found.evidence.runs_needed:,} runs per side would find 1 %" in found.reason
    assert found.evidence.detectable > 0.05


def test_a_quiet_equal_pair_is_the_same():
    found = judge(noisy(1.0, spread=0.003, seed=5), noisy(1.0, spread=0.003, seed=6))
    assert found.verdict == "same"
    assert "below the 1 % that counts" in found.reason


def test_a_real_difference_too_small_to_count_is_the_same():
    found = judge(noisy(1.0, 2000, spread=0.003, seed=5), noisy(1.003, 2000, spread=0.003, seed=6))
    assert found.evidence.p_value < 1e-6
    assert found.verdict == "same"


def test_a_difference_that_may_or_may_not_count_is_shown_and_not_sure():
    found = judge(noisy(1.0, 300, seed=5), noisy(1.009, 300, seed=6))
    assert (found.verdict, found.sure) == ("slower", False)
    assert "perhaps by less than the 1 % that counts" in found.reason


def test_too_few_runs_say_what_would_be_enough():
    found = judge([1.0, 1.01, 1.02], [2.0, 2.01, 2.02])
    assert found.verdict == "undecided"
    assert found.reason == "3 runs per side are too few for any verdict at p < 0.005: take 6 or more"
    assert found.evidence.low is None
    in_turns = judge([1.0, 1.01, 1.02], [2.0, 2.01, 2.02], paired=True)
    assert "take 9 or more" in in_turns.reason


def test_runs_without_any_noise_are_decided():
    assert judge([1.0] * 20, [1.1] * 20).verdict == "slower"
    assert judge([1.0] * 20, [1.0] * 20).verdict == "same"


def test_drift_that_both_share_hides_a_difference_unless_they_ran_in_turns():
    drift = [1 + 0.02 * index for index in range(60)]
    old = [level * noise for level, noise in zip(drift, noisy(1.0, 60, seed=8), strict=True)]
    new = [1.05 * level * noise for level, noise in zip(drift, noisy(1.0, 60, seed=9), strict=True)]
    assert judge(old, new).verdict == "undecided"
    found = judge(old, new, paired=True)
    assert found.verdict == "slower"
    assert found.evidence.ratio == pytest.approx(1.05, rel=0.01)


def test_runs_alike_because_they_follow_each_other_count_for_less():
    steps = [1.0 if index // 20 % 2 else 1.2 for index in range(80)]
    alike = [step * noise for step, noise in zip(steps, noisy(1.0, 80, seed=8), strict=True)]
    mixed = [alike[index * 37 % 80] for index in range(80)]  # the same readings in another order
    found, independent = (judge(runs, [1.02 * taken for taken in runs]).evidence for runs in (alike, mixed))
    assert found.ratio == pytest.approx(independent.ratio)
    assert found.detectable > 1.5 * independent.detectable
    assert found.p_value > independent.p_value


@pytest.mark.parametrize("wrong", [{"threshold": 0}, {"alpha": 1.0}, {"power": -0.1}])
def test_criteria_lie_between_0_and_1(wrong):
    with pytest.raises(DomainError, match="between 0 and 1"):
        Criteria(**wrong)


def test_the_document_has_what_other_programs_rely_on():
    document = comparison_document(compare(run_of(OLD), run_of(slower(0.05))))
    assert document["verdict"] == "slower"
    assert 1.04 < document["low"] < document["ratio"] < document["high"] < 1.06
    assert 0 <= document["p_value"] < 0.005
    assert isinstance(document["reason"], str)
    assert document["ops"] == []
    assert document["metric"] == "latency"
    json.dumps(document, allow_nan=False)


def test_a_document_without_bounds_is_still_json():
    document = comparison_document(compare(run_of((1.0, 1.1)), run_of((1.0, 1.2))))
    assert (document["low"], document["high"]) == (None, None)
    json.dumps(document, allow_nan=False)


def test_a_file_compared_with_itself_is_the_same():
    one = run_of(noisy(1.0, spread=0.5))
    assert compare(one, one).main.verdict == "same"


def test_runs_taken_in_turns_are_compared_pair_by_pair():
    drift = [1 + 0.02 * index for index in range(60)]
    old = run_of(tuple(drift), turns="t")
    new = run_of(tuple(1.05 * level for level in drift), turns="t")
    assert turns_of(old) == "t"
    found = compare(old, new).main
    assert (found.verdict, found.test) == ("slower", "Wilcoxon signed-rank")
    apart = compare(old, run_of(new.phases[0].samples_s, turns="u")).main
    assert (apart.verdict, apart.test) == ("undecided", "Mann–Whitney")


def test_a_disturbed_measurement_is_not_sure_unless_both_ran_in_turns():
    why = "during the runs: a backup ran (cpu-busy). Stop it."
    old = run_of(OLD, disturbed=True, reasons=[why])
    found = compare(old, run_of(slower(0.05)))
    assert (found.main.verdict, found.main.sure) == ("slower", False)
    assert "A was disturbed during the runs: a backup ran" in found.main.reason
    assert "--against" in found.main.reason
    assert any("A was disturbed" in note for note in found.notes)
    turns = compare(run_of(OLD, disturbed=True, turns="t"), run_of(slower(0.05), disturbed=True, turns="t"))
    assert (turns.main.verdict, turns.main.sure) == ("slower", True)


def test_ops_are_compared_by_their_intervals_and_corrected_for_their_number():
    many = [op(f"op{index}", 1.0, 0.99, 1.01) for index in range(40)]
    changed = [op(f"op{index}", 1.1 if index == 7 else 1.0, 0.99, 1.11) for index in range(40)]
    changed[7] = op("op7", 1.1, 1.09, 1.11)
    found = compare(profile(phase("forward", OLD, ops=many)), profile(phase("forward", OLD, ops=changed)))
    assert [each.name for each in found.ops if each.verdict == "slower"] == ["op7"]
    assert len(found.ops) == 40
    (seventh,) = [each for each in found.ops if each.name == "op7"]
    assert seventh.phase == "forward"
    alone = compare(
        profile(phase("forward", OLD, ops=[op("x", 1.0, 0.98, 1.02)])),
        profile(phase("forward", OLD, ops=[op("x", 1.05, 1.03, 1.07)])),
    ).ops[0]
    assert seventh.p_value is not None
    assert alone.p_value is not None


def test_the_correction_makes_each_of_many_harder_to_call():
    rows = [op(f"op{index}", 1.0, 0.985, 1.015) for index in range(200)]
    others = [op(f"op{index}", 1.03, 1.015, 1.045) for index in range(200)]
    one = compare(profile(phase("run", OLD, ops=rows[:1])), profile(phase("run", OLD, ops=others[:1]))).ops[0]
    many = compare(profile(phase("run", OLD, ops=rows)), profile(phase("run", OLD, ops=others))).ops[0]
    assert many.p_value == pytest.approx(min(1.0, 200 * one.p_value))


def test_an_op_with_one_number_a_side_has_a_ratio_and_no_verdict():
    found = compare(profile(phase("run", OLD, ops=[op("x", 1.0)])), profile(phase("run", OLD, ops=[op("x", 2.0)])))
    (row,) = found.ops
    assert (row.verdict, row.ratio, row.p_value) == ("undecided", 2.0, None)
    assert "one number per side" in row.reason


def test_ops_of_the_same_name_are_told_apart_and_those_of_one_side_are_noted():
    old = profile(phase("run", OLD, ops=[op("add", 1.0), op("add", 2.0), op("gone", 1.0)]))
    new = profile(phase("run", OLD, ops=[op("add", 1.0), op("add", 2.0), op("come", 1.0)]))
    found = compare(old, new)
    assert [row.name for row in found.ops] == ["add", "add #2"]
    assert "Only A has the op gone." in found.notes
    assert "Only B has the op come." in found.notes


def test_a_time_of_zero_has_no_ratio():
    found = compare(profile(phase("run", time_s=0.0)), profile(phase("run", time_s=1.0)))
    assert found.main.verdict == "undecided"
    assert found.main.ratio is None


def test_two_predictions_have_no_noise():
    old = profile(phase("forward", time_s=1.0, low_s=0.5, high_s=2.0), kind="predicted")
    new = profile(phase("forward", time_s=1.05, low_s=0.5, high_s=2.0), kind="predicted")
    assert compare(old, new).main.verdict == "slower"
    assert compare(old, old).main.verdict == "same"
    assert compare(new, old).main.verdict == "faster"


def test_the_verdict_on_a_language_model_is_that_on_its_decode():
    old = profile(phase("load", time_s=3.0), phase("prefill", noisy(0.2)), phase("decode", noisy(0.01)))
    new = profile(phase("load", time_s=3.0), phase("prefill", noisy(0.2, seed=3)), phase("decode", noisy(0.012)))
    found = compare(old, new)
    assert found.metric == "decode"
    assert found.main.verdict == "slower"
    assert [metric.name for metric in found.metrics] == ["load", "prefill", "decode"]


@pytest.mark.parametrize(("peak", "wanted"), [(1300, "more"), (900, "less"), (1019, "same"), (1000, "same")])
def test_memory_is_judged_with_its_direction_and_throughput_is_told(peak, wanted):
    old = run_of(OLD, peak_memory_bytes=1000, tokens_per_s=50.0)
    new = run_of(OLD, peak_memory_bytes=peak, tokens_per_s=50.1)
    found = {metric.name: metric for metric in compare(old, new).metrics}
    assert (found["memory"].verdict, found["memory"].ratio) == (wanted, peak / 1000)
    assert wanted == "same" or wanted in found["memory"].reason
    assert (found["tokens_per_s"].verdict, found["tokens_per_s"].better) == ("same", "higher")


def test_profiles_without_a_common_phase_are_undecided():
    found = compare(profile(phase("prefill", OLD)), profile(phase("load", OLD)))
    assert found.main.verdict == "undecided"
    assert found.main.reason == "the two have no phase in common"
    assert compare(profile(), profile()).main.verdict == "undecided"


def test_what_else_differs_is_noted():
    old = run_of(OLD, model="one")
    new = run_of(OLD, model="two")
    assert "The model differs: one and two." in compare(old, new).notes


def test_two_machines_are_a_difference_and_two_names_of_one_are_none():
    def on(machine_id, name):
        machine = MachineFacts(id=machine_id, name=name, cpu="Cortex-A76", physical_cores=4)
        return replace(run_of(OLD), environment=Environment(machine=machine))

    assert compare(on("1", "pi"), on("1", "desk")).notes == ()
    assert (
        "The machine differs: pi · Cortex-A76 · 4 cores and box · Cortex-A76 · 4 cores."
        in compare(on("1", "pi"), on("2", "box")).notes
    )


def test_the_names_of_two_functions_or_commands_are_no_difference_of_models():
    bench = Provenance(tool=TOOL, version="1", created="2026-01-01T00:00:00+00:00")
    old, new = (replace(run_of(OLD, model=name), provenance=bench) for name in ("sleep 1", "sleep 2"))
    assert compare(old, new).notes == ()


def test_whoever_asks_for_no_ops_is_told_the_same_of_the_whole():
    a = profile(phase("run", OLD, ops=(op("one", 1.0), op("two", 2.0))))
    b = profile(phase("run", slower(0.05), ops=(op("one", 1.1),)))
    found, whole = compare(a, b, ops=False), compare(a, b)
    assert (found.main, found.metrics, found.ops) == (whole.main, whole.metrics, ())
    assert len(whole.ops) == 1
    assert found.notes == tuple(note for note in whole.notes if "has the op" not in note) != whole.notes
