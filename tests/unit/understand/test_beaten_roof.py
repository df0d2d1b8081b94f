"""A run that beats its floor proves the roof wrong: no timing here, roofs and readings are made up."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.device import Memory, Sourced
from inferometer.core.profile import Environment, OpTime, Phase
from inferometer.core.roof import Roof
from inferometer.core.workload import Precision, Workload
from inferometer.known import device
from inferometer.predict.basis.roof import MAIN_MEMORY, raised, with_roof
from inferometer.understand.beaten_roof import beaten, unbeaten_roof
from inferometer.understand.roofline import roofline_of
from unit.understand.explain_cases import CPU, profile
from unit.understand.explain_cases import judged_on as judged_by

FLOPS, BYTES = 8e9, 1e8  # of the run
CACHE = 10e6


def rate(value, origin="measured"):
    return Sourced(value=value, origin=origin, source="numpy", date="2026-11-18")


def roof(f32=100e9, memory=10e9, i8=None):
    return Roof(
        machine="m", created="2026-11-18T12:00:00+00:00", bandwidth_bytes_per_s=rate(memory),
        peaks={"f32": rate(f32), "i8": rate(4 * f32 if i8 is None else i8, "prior")},
    )  # fmt: skip


LOCAL = replace(
    CPU, name="local", peaks={},
    memories=(Memory(level="dram"), Memory(level="l3", capacity_bytes=rate(CACHE))),
)  # fmt: skip


class Machine:
    """One that reads `readings` of its roof, one after the other, and keeps what it is given."""

    def __init__(self, *readings):
        self.readings, self.kept = list(readings), []

    def again(self, _device, _before):
        self.kept.append(self.readings.pop(0))
        return self.kept[-1]

    def keep(self, _device, kept):
        self.kept.append(kept)


def a_run(seconds, *, flops=FLOPS, moved=BYTES, form="f32", disturbed=False):
    """Judges a run of a product and of an addition, which took `seconds` in all, by a roof."""

    def judge(roof):
        on = with_roof(LOCAL, roof)
        floors = flops / float(on.peaks[form]), moved / float(on.memory.bandwidth_bytes_per_s)
        ops = tuple(
            OpTime(name=name, kind=kind, time_s=seconds / 2, bound=bound, floor_s=floor, flops=work, bytes=0.0)
            for name, kind, bound, floor, work in (
                ("fc", "linear", "compute", floors[0], flops), ("add", "elementwise", "memory", floors[1], 0.0)
            )
        )  # fmt: skip
        phase = Phase(
            name="forward", time_s=seconds, floor_s=sum(floors), flops=flops, bytes=moved, ops=ops, statistic="median"
        )
        ran = replace(
            profile(phase), workload=Workload(precision=Precision(weights=form, activations=form)),
            environment=Environment(disturbed=disturbed),
        )  # fmt: skip
        return (judged_by(ran, on),)

    return judge


def stands_under(judge, before, machine):
    return unbeaten_roof(LOCAL, before, judge(before), judge, again=machine.again, keep=machine.keep)


def test_a_run_above_its_floor_measures_nothing_and_says_nothing():
    machine = Machine()
    assert stands_under(a_run(1.0), roof(), machine) == (roof(), ())
    assert machine.kept == []


def test_a_beaten_roof_is_measured_again_and_the_better_reading_is_what_the_run_is_judged_by():
    machine, better = Machine(roof(f32=200e9)), roof(f32=200e9)  # 80 ms and 10 ms at first, 40 ms and 10 ms then
    found, (note,) = stands_under(a_run(0.06), roof(), machine)
    assert found == better == machine.kept[-1]
    assert "f32 100 GFLOP/s → 200 GFLOP/s" in note
    assert "measured again" in note


def test_a_disturbed_run_is_as_good_a_proof():
    found, _ = stands_under(a_run(0.06, disturbed=True), roof(), Machine(roof(f32=200e9)))
    assert float(found.peaks["f32"]) == 200e9


@pytest.mark.parametrize(("form", "others"), [("f32", "i8"), ("i8", "f32")])
def test_where_the_second_reading_is_as_low_the_run_itself_says_what_the_machine_does(form, others):
    """Bytes that stand on f32 rise with it; bytes alone say nothing of f32."""
    before = roof(i8=100e9)
    machine = Machine(before)
    judge = a_run(0.06, form=form)
    found, (note,) = stands_under(judge, before, machine)
    assert float(found.peaks[form]) == pytest.approx(FLOPS / 0.05)  # what is left of 60 ms beside 10 of memory
    assert float(found.peaks[others]) == pytest.approx(160e9 if form == "f32" else 100e9)
    assert found == machine.kept[-1]
    assert judge(found)[0].phases[0].above_floor == pytest.approx(1.0)
    assert "what this run did" in note
    assert found.peaks[form].source == "numpy; raised by a run: forward in 60 ms"


def test_memory_is_raised_where_it_led_and_arithmetic_stays():
    machine = Machine(roof())
    found, _ = stands_under(a_run(0.06, flops=1e9, moved=8e8), roof(), machine)
    assert float(found.bandwidth_bytes_per_s) == pytest.approx(8e8 / 0.05)
    assert found.peaks == roof().peaks


def test_what_caches_may_hold_tells_nothing_of_main_memory():
    machine = Machine(roof())
    found, (note,) = stands_under(a_run(1e-3, flops=1e6, moved=2 * CACHE), roof(), machine)
    assert found == roof() == machine.kept[-1]
    assert "came from a cache" in note


def test_more_than_twice_what_was_measured_is_work_that_was_not_done():
    machine = Machine(roof(), roof())
    found, (note,) = stands_under(a_run(0.03), roof(), machine)
    assert found == roof() == machine.kept[-1]
    assert len(machine.readings) == 1  # measured once more, and no oftener
    assert "less work than is counted" in note


def test_a_calibrations_own_peaks_are_not_the_roofs_and_end_the_search():
    judge, machine = a_run(0.06), Machine(roof())
    found, (note,) = unbeaten_roof(
        LOCAL, roof(), judge(roof()), lambda _: judge(roof()), again=machine.again, keep=machine.keep
    )
    assert found == roof() == machine.kept[-1]
    assert "a calibration is of a slower moment" in note


def test_another_device_has_no_roof_that_is_ours():
    machine = Machine()
    there = device("raspberry-pi-5")
    assert unbeaten_roof(there, roof(), a_run(1e-3)(roof()), a_run(1e-3), again=machine.again)[1] == ()


@given(seconds=st.floats(0.02, 0.2), flops=st.floats(1e6, 1e10), moved=st.floats(1e6, 1e9), again=st.floats(0.5, 2.0))
def test_whatever_was_run_no_roof_falls_none_doubles_and_no_utilisation_is_above_one(seconds, flops, moved, again):
    judge, read = a_run(seconds, flops=flops, moved=moved), roof(f32=100e9 * max(again, 1.0))
    machine = Machine(read)
    found, notes = stands_under(judge, roof(), machine)
    for name in ("f32", "i8"):
        assert float(roof().peaks[name]) <= float(found.peaks[name]) <= 2 * float(read.peaks[name]) * 1.001
    assert 10e9 <= float(found.bandwidth_bytes_per_s) <= 20e9 * 1.001
    run = judge(found)
    assert beaten(run) is None or "Nothing is said of its utilisation" in notes[0]
    points = [roofline_of(profile).phases[0].point for profile in run]
    shares = [share for point in points for share in (point.compute_utilisation, point.bandwidth_utilisation)]
    assert all(share is None or share <= 1 for share in shares)


def test_a_rate_that_was_raised_twice_says_so_once():
    twice = raised(raised(roof(), MAIN_MEMORY, 1.5, by="a"), MAIN_MEMORY, 1.1, by="b").bandwidth_bytes_per_s
    assert (float(twice), twice.source) == (pytest.approx(16.5e9), "numpy; raised by b")
