"""The measuring loop, with a clock that only moves when a run takes time. Nothing here waits."""

from itertools import chain, repeat

import pytest

from inferometer.core.errors import DomainError
from inferometer.measure.bench.loop import collect
from inferometer.measure.bench.plan import Plan
from unit.measure.bench.fakes import FakeClock, FakeWatch, Scripted


def collected(script, plan, *, watch=None, clock=None, progress=None):
    clock = clock or FakeClock()
    subject = Scripted(clock, script)
    (found,) = collect(
        [subject], plan, watch=watch or FakeWatch(), clock=clock, sleep=clock.sleep, progress=progress
    )  # fmt: skip
    return found, clock, subject


def test_at_least_so_many_runs_and_so_many_seconds():
    many, *_ = collected(repeat(0.01), Plan(warmup=0, runs=5, seconds=1.0))
    assert len(many.samples_s) == 100
    assert sum(many.samples_s) == pytest.approx(1.0)
    few, *_ = collected(repeat(2.0), Plan(warmup=0, runs=5, seconds=1.0))
    assert few.samples_s == (2.0,) * 5
    assert many.complete
    assert few.complete


def test_at_most_so_many_runs_or_seconds_whichever_is_first():
    runs, *_ = collected(repeat(0.001), Plan(warmup=0, runs=5, seconds=1.0, runs_at_most=20))
    assert len(runs.samples_s) == 20
    assert not runs.complete
    seconds, *_ = collected(repeat(1.0), Plan(warmup=0, runs=50, seconds=1.0, seconds_at_most=10.0))
    assert len(seconds.samples_s) == 10
    assert not seconds.complete


def test_warm_up_runs_are_never_counted():
    found, *_ = collected(chain([9.0, 9.0, 9.0], repeat(1.0)), Plan(warmup=3, runs=4, seconds=0))
    assert found.warmup_s == (9.0, 9.0, 9.0)
    assert found.samples_s == (1.0,) * 4
    assert found.runs == 7
    assert found.settled is None


def test_warm_up_goes_on_until_the_times_are_steady():
    falling = [2.0**-step for step in range(8)]
    script = chain((1 + fall for fall in falling), repeat(1.0))
    found, *_ = collected(script, Plan(runs=5, seconds=0, warmup_seconds_at_most=100.0))
    assert found.settled
    assert 10 <= len(found.warmup_s) <= 20
    assert found.samples_s == (1.0,) * 5


def test_warm_up_that_never_settles_ends_at_its_limit_and_says_so():
    found, *_ = collected((2.0**step for step in range(60)), Plan(runs=1, seconds=0, warmup_at_most=12))
    assert found.settled is False
    assert len(found.warmup_s) <= 12
    by_time, *_ = collected(chain([6.0, 5.0], repeat(1.0)), Plan(runs=1, seconds=0, warmup_seconds_at_most=10.0))
    assert by_time.warmup_s == (6.0, 5.0)


def test_memory_is_looked_at_while_warming_up_only():
    found, _, subject = collected(repeat(1.0), Plan(warmup=2, runs=3, seconds=0))
    assert subject.watched == [True, True, False, False, False]
    assert found.peak_memory_bytes == 1000


def test_a_failed_run_is_kept_as_an_error_and_gives_no_sample():
    found, *_ = collected([1.0, "boom", 1.0, "bang", 1.0], Plan(warmup=0, runs=3, seconds=0))
    assert found.samples_s == (1.0, 1.0, 1.0)
    assert [(failure.run, failure.reason) for failure in found.failures] == [(2, "boom"), (4, "bang")]
    assert found.runs == 5


def test_failures_in_a_row_end_it():
    found, *_ = collected(repeat("boom"), Plan(warmup=0, runs=3, seconds=0, failures_at_most=4))
    assert found.samples_s == ()
    assert len(found.failures) == 4


def test_failures_while_warming_up_end_it_too():
    found, *_ = collected(repeat("boom"), Plan(runs=3, seconds=0, failures_at_most=4))
    assert len(found.failures) == 4


def test_a_process_that_was_lost_is_warmed_up_again():
    script = [5.0, 5.0, 1.0, ("killed",), 5.0, 5.0, 1.0, 1.0]
    found, *_ = collected(script, Plan(warmup=2, runs=3, seconds=0))
    assert found.samples_s == (1.0, 1.0, 1.0)
    assert found.warmup_s == (5.0, 5.0)
    assert found.failures[0].reason == "killed"


def test_a_process_lost_while_warming_up_starts_the_warm_up_anew():
    found, *_ = collected([5.0, ("killed",), 5.0, 5.0, 1.0], Plan(warmup=2, runs=1, seconds=0))
    assert found.samples_s == (1.0,)
    assert found.warmup_s == (5.0, 5.0)


def test_a_disturbed_stretch_is_thrown_away_and_repeated():
    watch = FakeWatch("a backup ran")
    script = chain(repeat(9.0, 2), repeat(1.0))
    found, clock, _ = collected(script, Plan(warmup=0, runs=2, seconds=0, window_s=10.0), watch=watch)
    assert found.samples_s == (1.0, 1.0)
    assert found.discarded == 2
    assert found.disturbances == ()
    assert clock.slept == [10.0]


def test_what_stays_disturbed_is_kept_and_marked_with_how_often():
    watch = FakeWatch(*["a backup ran"] * 9)
    plan = Plan(warmup=0, runs=4, seconds=0, window_s=0.5, retries=2)
    found, *_ = collected(repeat(1.0), plan, watch=watch)
    assert found.discarded == 2
    assert len(found.samples_s) == 4
    (disturbance,) = found.disturbances
    assert disturbance.times == 4
    assert str(disturbance) == "during the runs, 4 times: a backup ran (cpu-busy)"


def test_no_stretch_is_thrown_away_when_there_is_no_time_to_repeat_it():
    watch = FakeWatch(*["a backup ran"] * 9)
    plan = Plan(warmup=0, runs=4, seconds=0, seconds_at_most=3.0, window_s=10.0)
    found, *_ = collected(repeat(1.0), plan, watch=watch)
    assert found.samples_s == (1.0, 1.0, 1.0)
    assert found.disturbances


def test_each_run_waits_for_the_cooldown():
    _, clock, _ = collected(repeat(1.0), Plan(warmup=1, runs=3, seconds=0, cooldown_s=0.25))
    assert clock.slept == [0.25] * 3


def pair(plan, first, second):
    clock, log = FakeClock(), []
    subjects = [Scripted(clock, first, "a", log), Scripted(clock, second, "b", log)]
    return collect(subjects, plan, watch=FakeWatch(), clock=clock, sleep=clock.sleep), log


def test_two_subjects_run_in_turns_in_an_order_drawn_by_the_seed():
    plan = Plan(warmup=0, runs=20, seconds=0)
    (a, b), log = pair(plan, repeat(1.0), repeat(2.0))
    rounds = ["".join(log[index : index + 2]) for index in range(0, 40, 2)]
    assert set(rounds) == {"ab", "ba"}
    assert a.samples_s == (1.0,) * 20
    assert b.samples_s == (2.0,) * 20
    assert pair(plan, repeat(1.0), repeat(2.0))[1] == log
    assert pair(Plan(warmup=0, runs=20, seconds=0, seed=1), repeat(1.0), repeat(2.0))[1] != log


def test_a_round_in_which_one_failed_gives_no_sample_to_either():
    (a, b), _ = pair(Plan(warmup=0, runs=3, seconds=0), [1.0, 1.1, 1.2, 1.3], [2.0, "boom", 2.2, 2.3])
    assert a.samples_s == (1.0, 1.2, 1.3)
    assert b.samples_s == (2.0, 2.2, 2.3)
    assert len(b.failures) == 1


def test_without_interleaving_one_is_done_before_the_other_begins():
    _, log = pair(Plan(warmup=0, runs=3, seconds=0, interleave=False), repeat(1.0), repeat(1.0))
    assert "".join(log) == "aaabbb"


def test_progress_tells_the_stage_and_never_goes_back():
    steps = []
    collected(repeat(0.5), Plan(warmup=2, runs=4, seconds=1.0), progress=steps.append)
    assert [step.stage for step in steps] == ["warm-up"] * 2 + ["runs"] * 4
    shares = [step.share for step in steps]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"runs": 0}, "runs must be a whole number of 1 or more"),
        ({"runs": 2.5}, "runs must be a whole number"),
        ({"runs": True}, "runs must be a whole number"),
        ({"warmup": -1}, "warmup must be a whole number of 0 or more"),
        ({"seconds": -1.0}, "seconds must be 0 s or more"),
        ({"seconds": float("nan")}, "seconds must be"),
        ({"timeout_s": 0.0}, "timeout_s must be more than 0 s"),
        ({"memory_bytes": 0}, "memory_bytes must be"),
        ({"runs": 100, "runs_at_most": 10}, "at least 100 runs and at most 10"),
        ({"seconds": 100.0, "seconds_at_most": 10.0}, "at least 100 seconds and at most 10"),
    ],
)
def test_a_plan_that_cannot_be_kept_is_refused(wrong, words):
    with pytest.raises(DomainError, match=words):
        Plan(**wrong)


def test_ctrl_c_keeps_the_whole_rounds_so_far():
    clock = FakeClock()
    first = Scripted(clock, [1.0, 1.0, 1.0, KeyboardInterrupt()], "first")
    second = Scripted(clock, repeat(2.0), "second")
    plan = Plan(warmup=0, runs=10, seconds=0, window_s=100.0)
    watch = FakeWatch("a browser")
    found = collect(
        [first, second], plan, watch=watch, clock=clock, sleep=clock.sleep, keep_interrupted=True
    )  # fmt: skip
    assert [one.samples_s for one in found] == [(1.0,) * 3, (2.0,) * 3]
    assert all(one.interrupted and not one.complete and one.discarded == 0 for one in found)
    assert [str(disturbance.found) for disturbance in found[0].disturbances] == ["a browser"]


@pytest.mark.parametrize(("script", "keep"), [([KeyboardInterrupt()], True), ([1.0, KeyboardInterrupt()], False)])
def test_ctrl_c_before_the_first_run_or_in_a_program_of_ones_own_is_an_exception(script, keep):
    clock = FakeClock()
    with pytest.raises(KeyboardInterrupt):
        collect(
            [Scripted(clock, script)], Plan(warmup=0), watch=FakeWatch(), clock=clock, sleep=clock.sleep,
            keep_interrupted=keep,
        )  # fmt: skip
