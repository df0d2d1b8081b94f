import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.errors import EngineError
from inferometer.measure.calibrate.fitting.points import OpPoint, StepPoint
from inferometer.measure.calibrate.run import (
    CalibrationJournal,
    CalibrationProgress,
    CandidateResult,
    ProbeCandidate,
    calibrate_with,
    line_of,
)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Bench:
    """A provider whose ops take what a law says; measuring one takes time on its clock."""

    def __init__(self, clock, sizes=tuple(range(10)), *, takes=1.0, slow=1.0, steps=0):
        self.clock, self.takes, self.slow, self.order = clock, takes, slow, []
        self.all = {f"copy {n}": ProbeCandidate(key=f"copy {n}", op_class="vector", axes={"bytes": 10.0**n},
                                           seconds=takes, floor_s=10.0**n / 1e12) for n in sizes}  # fmt: skip
        self.all["kernel"] = ProbeCandidate(key="kernel", op_class="overhead", first=True)
        for n in range(steps):
            self.all[f"step {n}"] = ProbeCandidate(
                key=f"step {n}", op_class="step.decode", seconds=takes, probe=f"m{n % 2}"
            )

    def candidates(self):
        return list(self.all.values())

    def measure(self, candidate):
        self.order.append(candidate.key)
        self.clock.now += self.takes
        if candidate.op_class == "step.decode":
            return CandidateResult(steps=(StepPoint(model=candidate.probe, phase="decode", seconds=1.0, dtype="f32"),))
        return CandidateResult(points=(self.point(candidate),))

    def point(self, candidate):
        floor = candidate.floor_s
        return OpPoint(classes=(candidate.op_class,), axes=candidate.axes, seconds=1e-6 + self.slow * floor,
                     floor_s=floor, dtype="f32", probe=candidate.key, op=candidate.key)  # fmt: skip


def run(bench, folder, **given):
    return calibrate_with(bench, CalibrationJournal(folder=folder), clock=bench.clock, **{"budget_s": 1e6, **given})


def test_everything_is_measured_where_there_is_time(tmp_path):
    bench = Bench(Clock())
    found = run(bench, tmp_path)
    assert (found.done, found.left, len(found.points)) == (11, 0, 11)
    assert bench.order[0] == "kernel"  # what all fits subtract comes first


def test_the_first_of_a_class_is_its_smallest(tmp_path):
    bench = Bench(Clock())
    run(bench, tmp_path)
    assert bench.order[1] == "copy 0"


def test_the_next_is_far_from_what_is_known(tmp_path):
    bench = Bench(Clock())
    run(bench, tmp_path)
    assert bench.order[2] == "copy 9"


def test_it_stops_at_the_budget(tmp_path):
    bench = Bench(Clock())
    found = run(bench, tmp_path, budget_s=5.5)
    assert (found.done, found.left) == (5, 6)


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    clock = Clock()
    first = run(Bench(clock), tmp_path, budget_s=4.5)
    bench = Bench(clock)
    second = run(bench, tmp_path)
    assert first.done == 4
    assert second.done == 11
    assert len(second.points) == 11
    assert len(bench.order) == 7  # nothing is measured twice


def test_ctrl_c_keeps_what_is_there(tmp_path):
    bench = Bench(Clock())
    measure = bench.measure

    def stops(candidate):
        if len(bench.order) == 3:
            raise KeyboardInterrupt
        return measure(candidate)

    bench.measure = stops
    found = run(bench, tmp_path)
    assert found.interrupted
    assert len(CalibrationJournal(folder=tmp_path).points()) == len(found.points) == 3


def test_a_format_that_is_slow_does_not_eat_the_budget(tmp_path):
    """Three hundred times slower than the floor and beyond: the large cases are not begun."""
    bench = Bench(Clock(), sizes=tuple(range(15)), slow=1e4)
    run(bench, tmp_path, budget_s=100.0)
    assert "copy 8" in bench.order
    assert "copy 12" not in bench.order  # 10¹² B at 1 TB/s, ten thousand times slower: hours


def test_one_that_cannot_be_measured_is_left_out_and_said(tmp_path):
    bench = Bench(Clock())
    measure = bench.measure

    def fails(candidate):
        if candidate.key == "copy 3":
            raise EngineError("out of memory")
        return measure(candidate)

    bench.measure = fails
    found = run(bench, tmp_path)
    assert found.skipped == ("copy 3: out of memory",)
    assert found.done == 10


def test_a_disturbed_case_is_measured_again(tmp_path):
    reasons = iter(["somebody compiles"])
    bench = Bench(Clock())
    found = run(bench, tmp_path, disturbed=lambda: next(reasons, None))
    assert bench.order.count(bench.order[0]) == 2
    assert found.done == 11


def test_a_case_that_stays_disturbed_waits_until_the_others_are_done(tmp_path):
    bench, readings = Bench(Clock()), iter(["somebody compiles"] * 3)
    found = run(bench, tmp_path, disturbed=lambda: next(readings, None))
    assert bench.order[:3] == [bench.order[0]] * 3
    assert bench.order[-1] == bench.order[0]
    assert (found.done, found.left, found.disturbed) == (11, 0, ("somebody compiles",))


def test_a_machine_that_stays_disturbed_ends_the_run_and_what_is_there_is_kept(tmp_path):
    bench, answers = Bench(Clock()), iter([None, None])
    found = run(bench, tmp_path, disturbed=lambda: next(answers, "somebody compiles"))
    assert (found.done, found.left, len(found.disturbed)) == (2, 9, 4)
    assert len(CalibrationJournal(folder=tmp_path).points()) == 2


def test_a_machine_on_which_nothing_can_be_measured_is_refused(tmp_path):
    with pytest.raises(EngineError, match="disturbed, and still is after 12 readings: somebody compiles"):
        run(Bench(Clock()), tmp_path, disturbed=lambda: "somebody compiles")


def test_whole_steps_take_half_of_the_time_and_probes_take_turns(tmp_path):
    bench = Bench(Clock(), sizes=tuple(range(30)), steps=30)
    run(bench, tmp_path, budget_s=21.0)
    steps = [key for key in bench.order if key.startswith("step")]
    assert 8 <= len(steps) <= 12
    assert abs(sum(int(key.split()[1]) % 2 for key in steps) - len(steps) / 2) <= 1


def test_every_probe_is_measured_once_before_any_is_measured_again(tmp_path):
    """However near its shapes are to what is known: here all but one probe are far from everything."""
    bench = Bench(Clock())
    for n in range(6):
        for workload in range(3):
            key = f"probe {n} {workload}"
            axes = {"rows": 8.0 * 9.0**n, "weight_bytes": 1e6}
            bench.all[key] = ProbeCandidate(
                key=key, op_class="linear", axes=axes, floor_s=1e-6 * 9.0**n, probe=f"probe {n}"
            )
    del bench.all["probe 3 1"], bench.all["probe 3 2"]
    run(bench, tmp_path)
    probes = [key.split()[1] for key in bench.order if key.startswith("probe")]
    assert sorted(probes[:6]) == list("012345")
    assert sorted(probes[6:11]) == list("01245")


def test_a_fresh_start_forgets(tmp_path):
    run(Bench(Clock()), tmp_path)
    journal = CalibrationJournal(folder=tmp_path)
    journal.clear()
    assert (journal.points(), journal.done()) == ((), {})


def test_progress_says_how_long_still():
    line = line_of(CalibrationProgress(done=3, of=10, spent_s=30.0, budget_s=120.0, current="linear 1x4096x4096"))
    assert "25%" in line
    assert "90 s left" in line
    assert "3 of 10" in line


def test_what_time_is_left_goes_into_another_round(tmp_path):
    bench = Bench(Clock(), sizes=(0, 1, 2))
    found = run(bench, tmp_path, rounds=3)
    assert (found.done, found.left) == (12, 0)
    assert sorted(bench.order[:4]) == sorted(bench.order[4:8]) == sorted(bench.order[8:])


def test_a_round_that_is_cut_short_is_taken_up_again(tmp_path):
    bench = Bench(Clock(), sizes=(0, 1, 2))
    assert run(bench, tmp_path, rounds=2, budget_s=6.5).done == 6
    found = run(bench, tmp_path, rounds=2)
    assert (found.done, found.left) == (8, 0)
    assert {key: bench.order.count(key) for key in bench.order} == dict.fromkeys(bench.all, 2)
    assert run(bench, tmp_path, rounds=2).done == 8, "often enough"


def test_what_cannot_be_measured_is_tried_once_and_stops_no_round(tmp_path):
    bench = Bench(Clock(), sizes=(0, 1))
    usual = bench.measure

    def measure(candidate):
        if candidate.key == "copy 1":
            bench.order.append(candidate.key)
            raise EngineError("no such kernel")
        return usual(candidate)

    bench.measure = measure
    found = run(bench, tmp_path, rounds=2)
    assert bench.order.count("copy 1") == 1
    assert (found.done, found.left, found.skipped) == (4, 0, ("copy 1: no such kernel",))


def test_a_case_that_takes_much_of_the_budget_is_measured_once_nothing_smaller_is_left(tmp_path):
    bench = Bench(Clock(), sizes=range(3))
    bench.all["long"] = ProbeCandidate(key="long", op_class="vector", axes={"bytes": 1e9}, seconds=40.0, floor_s=1e-3)
    found = run(bench, tmp_path, budget_s=100.0)
    assert (found.done, found.left, bench.order[-1]) == (5, 0, "long")


def test_a_model_that_was_asked_for_comes_first_however_much_of_the_budget_it_takes(tmp_path):
    bench = Bench(Clock(), sizes=range(3), steps=2)
    bench.all["model"] = ProbeCandidate(key="model", op_class="step.asked", seconds=40.0, first=True)
    run(bench, tmp_path, budget_s=100.0)
    assert set(bench.order[:2]) == {"kernel", "model"}


def test_one_that_does_not_fit_any_more_keeps_no_other_from_being_measured_again(tmp_path):
    bench = Bench(Clock(), sizes=range(3))
    bench.all["never"] = ProbeCandidate(key="never", op_class="vector", axes={"bytes": 1e9}, seconds=1e3, floor_s=1e-3)
    found = run(bench, tmp_path, budget_s=100.0, rounds=6)
    assert (found.done, found.left) == (24, 1)
    assert found.unspent_s == 76.0


@given(
    costs=st.lists(st.floats(min_value=0.2, max_value=60.0), min_size=1, max_size=8),
    budget_s=st.floats(min_value=5.0, max_value=120.0),
)
def test_a_run_ends_only_when_nothing_unmeasured_fits_what_is_left(tmp_path_factory, costs, budget_s):
    bench = Bench(Clock(), sizes=(), takes=0.1)
    for place, cost in enumerate(costs):
        bench.all[f"case {place}"] = ProbeCandidate(
            key=f"case {place}", op_class="vector", axes={"bytes": 10.0**place}, seconds=cost, floor_s=1e-9
        )
    found = run(bench, tmp_path_factory.mktemp("run"), budget_s=budget_s)
    left = [cost for place, cost in enumerate(costs) if f"case {place}" not in bench.order]
    assert all(cost > found.unspent_s for cost in left)


def test_two_runs_do_not_write_to_one_journal(tmp_path):
    pytest.importorskip("fcntl")
    journal = CalibrationJournal(folder=tmp_path / "journal")
    with journal.held(), pytest.raises(EngineError, match="Another calibration writes to"), journal.held():
        pass
    with journal.held():
        pass
