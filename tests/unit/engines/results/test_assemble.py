import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.profile import OpTime
from inferometer.engines.results.assemble import most, op_means, remainder, tokens


def op(name="a", time_s=1.0, unit="cpu", count=1):
    return OpTime(name=name, kind="custom", time_s=time_s, unit=unit, count=count)


def by_time(entry):
    return entry.time_s


def test_the_top_unit_has_the_most_time():
    assert most([op(time_s=1), op(time_s=2, unit="gpu"), op(time_s=0.5)], by_time) == "gpu"


def test_a_tie_has_no_top_unit():
    assert most([op(), op(unit="gpu")], by_time) is None


def test_ops_of_an_unknown_unit_could_overturn_it():
    assert most([op(time_s=3), op(time_s=1, unit="gpu"), op(time_s=1.5, unit=None)], by_time) == "cpu"
    assert most([op(time_s=3), op(time_s=1, unit="gpu"), op(time_s=2, unit=None)], by_time) is None


def test_the_remainder_closes_the_sum_and_rounding_is_no_overlap():
    notes = []
    assert remainder(3.0, [op(), op()], notes) == 1.0
    assert remainder(2.0 - 1.5e-6, [op(), op()], notes) == 0.0
    assert remainder(2.0 + 1e-13, [op(), op()], notes) == 0.0
    assert remainder(1.0, [], notes) is None
    assert notes == []


def test_ops_that_take_longer_than_the_whole_overlapped():
    notes = []
    assert remainder(1.5, [op(), op()], notes) is None
    assert "overlapped" in notes[0]


@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 10)), min_size=1), min_size=1, max_size=5))
def test_means_of_runs_add_up_to_the_mean_of_their_sums(runs):
    ops = op_means([[op(name, time) for name, time in run] for run in runs])
    whole = sum(time for run in runs for _, time in run) / len(runs)
    assert sum(entry.time_s for entry in ops) == pytest.approx(whole)


def test_an_op_called_twice_a_run_is_one_row():
    (row,) = op_means([[op(time_s=1), op(time_s=2)], [op(time_s=3)]])
    assert (row.count, row.time_s, row.samples_s) == (2, 3.0, (3.0, 3.0))


def test_mean_tokens_are_rounded_aloud_and_absurd_ones_dropped():
    notes = []
    assert tokens(256.0, "prompt", notes) == 256
    assert notes == []
    assert tokens(100.4, "prompt", notes) == 100
    assert "100.4" in notes[0]
    for absurd in (None, 0, 0.4, 1e300):
        assert tokens(absurd, "prompt", notes) is None
