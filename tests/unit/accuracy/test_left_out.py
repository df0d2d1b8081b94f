"""Devices left out in turn: nothing of a device's own cases is in its prediction."""

from collections import Counter
from math import exp, isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.accuracy.cases import AccuracyCase, read_cases
from inferometer.accuracy.judge import Judged, ask_like, error_summary, judge_cases
from inferometer.accuracy.left_out import HOW, device_errors, has_datasheet, leave_devices_out, left_out, unseen
from inferometer.catalog import device as device_named

PUBLISHED = tuple(case for case in read_cases() if "http" in case.source)


def a_case(device: str, seconds: float, **changes: object) -> AccuracyCase:
    stated: dict[str, object] = {
        "model": "m", "device": device, "runtime": "r", "dtype": "f16", "phase": "decode", "batch": 1,
        "seconds": seconds, "source": "s",
    }  # fmt: skip
    return AccuracyCase(**(stated | changes))  # type: ignore[arg-type]


def predicted(device: str, seconds: float, time_s: float = 1.0, how: str = "priors", **changes: object) -> Judged:
    case = a_case(device, seconds, **changes)
    return Judged(case=case, time_s=time_s, low_s=time_s / 2, high_s=time_s * 2, how=how)


def of(found, device):
    return next(each for each in found if each.device == device)


PART = ("gpu", "r", "decode")


def test_the_other_devices_say_what_the_priors_are_off_by_and_each_of_them_once():
    many = [predicted("b", 4.0) for _ in range(20)]
    found = left_out([predicted("a", 1.0), *many, predicted("c", 2.0), predicted("d", 2.0)], lambda _: "gpu")
    mine = of(found, "a")
    assert mine.others == {PART: 3}
    assert mine.factors[PART] == pytest.approx(2.0)  # of 4, 2 and 2, not of twenty fours
    assert [each.time_s for each in mine.judged] == pytest.approx([2.0])
    assert (mine.judged[0].low_s, mine.judged[0].high_s) == pytest.approx((1.0, 4.0))
    assert mine.judged[0].how == HOW


@given(st.floats(0.01, 100.0))
def test_a_devices_own_times_are_not_in_its_prediction(seconds):
    others = [predicted("b", 3.0), predicted("c", 0.5)]
    with_it = of(left_out([predicted("a", seconds), *others], lambda _: "gpu"), "a")
    assert isclose(with_it.judged[0].time_s, exp(0.5 * 0.4054651081081644), rel_tol=1e-9)  # √1.5, whatever it took


def test_units_runtimes_and_phases_are_kept_apart():
    judged = [
        predicted("a", 1.0), predicted("b", 8.0, phase="prefill"), predicted("c", 8.0, runtime="other"),
        predicted("d", 8.0),
    ]  # fmt: skip
    found = left_out(judged, lambda name: "cpu" if name == "d" else "gpu")
    assert of(found, "a").factors == {PART: 1.0}
    assert of(found, "a").others == {PART: 0}


def test_a_device_counts_only_where_others_can_speak_in_its_place():
    judged = [
        predicted("a", 1.0, how="seen"), predicted("b", 1.0), predicted("c", 1.0, how="seen", runtime="alone"),
        predicted("d", 1.0, runtime="lonely"),
    ]  # fmt: skip
    found = left_out(judged, lambda _: "gpu")
    assert [each.case.device for each in unseen(found)] == ["a", "b"]
    assert set(device_errors(found)) == {
        ("gpu", "a", HOW), ("gpu", "b", HOW), ("gpu", "c", "seen"), ("gpu", "d", "priors"),
    }  # fmt: skip


def test_a_device_without_a_datasheet_says_nothing_of_datasheets():
    assert has_datasheet("nvidia-h200")
    assert all(has_datasheet(case.device) for case in PUBLISHED)
    measured = {case.device for case in read_cases() if not has_datasheet(case.device)}
    found, _ = leave_devices_out([case for case in read_cases() if case.device in measured])
    assert found == ()


def test_no_cases_are_no_devices():
    assert leave_devices_out(()) == ((), ())


def test_published_cases_are_cited_and_of_the_catalog():
    devices = Counter(case.device for case in PUBLISHED)
    assert len(PUBLISHED) >= 60
    assert len(devices) >= 12
    assert {device_named(name).unit for name in devices} == {"cpu", "gpu"}
    assert {(case.role, case.used_for) for case in PUBLISHED} == {("test", ("priors",))}
    assert (
        max(Counter((*case.key, case.runtime, case.dtype, case.weights, case.source) for case in PUBLISHED).values())
        == 1
    )


def test_no_published_case_is_faster_than_its_device_can_be():
    """A time below the roofline's floor would be a wrong citation or a wrong datasheet.

    GeForce multiplies f16 twice as fast as its rows say where the sums are kept in f16 too, as llama.cpp keeps them.
    """
    for case in PUBLISHED:
        phase = ask_like(case, None).phase(case.phase)
        doubled = "rtx" in case.device and case.phase == "prefill" and case.weights is None
        assert case.seconds > sum(op.floor_s for op in phase.ops) / (2 if doubled else 1), case


def test_the_aim_for_devices_that_nobody_measured():
    found, refused = leave_devices_out(PUBLISHED)
    assert not refused
    reached = error_summary(unseen(found))
    assert reached["n"] == len(PUBLISHED)
    assert reached["median"] <= 0.25
    assert 0.70 <= reached["covered"] <= 0.90
    assert reached["width"] <= 1.0


def test_leaving_devices_out_is_no_easier_than_having_them():
    judged, _ = judge_cases(PUBLISHED, priors=True)
    found, _ = leave_devices_out(PUBLISHED)
    assert error_summary(unseen(found))["n"] == error_summary(judged)["n"]
    assert all(1 / 6 < factor < 6 for each in found for factor in each.factors.values())
