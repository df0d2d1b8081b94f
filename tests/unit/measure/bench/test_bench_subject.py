"""Timing a function: how many calls make a run, and what a failing one gives."""

import pytest

from inferometer.core.errors import InferometerError
from inferometer.measure.bench.subject import Stopwatch, calls_for, name_of


class Ticking:
    """A clock in nanoseconds, and a function that moves it."""

    def __init__(self, step_ns):
        self.now, self.step_ns, self.called = 0, step_ns, 0

    def clock(self):
        return self.now

    def work(self):
        self.called += 1
        self.now += self.step_ns


def runs(step_ns, calls, count):
    ticking = Ticking(step_ns)
    watch = Stopwatch(ticking.work, calls, clock_ns=ticking.clock)
    return [watch.run() for _ in range(count)], ticking


def test_a_run_is_as_many_calls_as_asked_and_its_time_is_of_one():
    outcomes, ticking = runs(1000, 7, 2)
    assert [outcome.seconds for outcome in outcomes] == pytest.approx([1e-6, 1e-6])
    assert ticking.called == 14


def test_a_short_function_is_called_until_a_run_is_long_against_the_clock():
    outcomes, _ = runs(100, None, 3)
    assert [outcome.calls for outcome in outcomes] == [1, 1000, 1000]
    assert outcomes[-1].seconds == pytest.approx(1e-7)


def test_a_long_function_is_called_once():
    outcomes, ticking = runs(50_000, None, 4)
    assert {outcome.calls for outcome in outcomes} == {1}
    assert ticking.called == 4


def test_the_number_of_calls_stays_after_the_first_runs():
    ticking = Ticking(100)
    watch = Stopwatch(ticking.work, None, clock_ns=ticking.clock)
    for _ in range(5):
        last = watch.run()
    ticking.step_ns = 10
    assert watch.run().calls == last.calls


def test_with_too_little_warm_up_to_find_the_number_each_run_is_one_call():
    assert calls_for(None, 0) == 1
    assert calls_for(None, 10) is None
    assert calls_for(None, None) is None
    assert calls_for(5, 0) == 5


def test_an_error_is_kept_with_its_kind():
    def broken():
        raise ValueError("no such layer")

    outcome = Stopwatch(broken, 1).run()
    assert outcome.seconds is None
    assert outcome.error == "ValueError: no such layer"


def test_a_run_during_which_the_clock_went_back_is_a_failed_run():
    outcomes, _ = runs(-1000, 1, 1)
    assert outcomes[0].seconds is None
    assert outcomes[0].error == "RuntimeError: the clock went back by 1000 ns during the run, which gives no time"


def test_an_asynchronous_function_is_refused_since_calling_it_does_nothing():
    async def forward():
        return 1

    with pytest.raises(InferometerError, match=r"asynchronous.*asyncio\.run"):
        Stopwatch(forward, 1).run()


def test_names_are_what_a_person_would_call_them():
    assert name_of(lambda: None).endswith("lambda")
    assert name_of(test_names_are_what_a_person_would_call_them) == "test_names_are_what_a_person_would_call_them"
    assert name_of(print) == "print"
