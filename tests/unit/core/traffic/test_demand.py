"""What a load asks for: shares spread evenly, turns one after the other, parts that keep who waits for whom."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.traffic.demand import Demand, Sharing, is_taken_back
from inferometer.core.traffic.spreads import weighted_spread


@given(share=st.floats(0.05, 0.95), start=st.integers(0, 10_000))
def test_whoever_goes_away_is_the_share_that_was_asked_for_in_any_stretch(share, start):
    gone = sum(is_taken_back(number, share) for number in range(start, start + 1000))
    assert abs(gone - 1000 * share) < 10


def sessions(turns, count):
    numbers = np.arange(turns * count)
    return Demand(
        input_tokens=numbers + 1, output_tokens=numbers + 1, session=numbers // turns, turn=numbers % turns,
        group=0 * numbers, sharing=Sharing(turns=turns, think_s=2.0),
    )  # fmt: skip


@pytest.mark.parametrize(("turns", "count"), [(2, 3), (3, 2), (5, 1)])
def test_a_turn_waits_for_the_one_before_it_and_begins_with_it(turns, count):
    demand = sessions(turns, count)
    before = [number - 1 if number % turns else -1 for number in range(turns * count)]
    assert demand.continues.tolist() == before
    assert demand.after == tuple((one,) if one >= 0 else () for one in before)
    assert demand.wait_s.tolist() == [2.0] * (turns * count)


@given(counts=st.lists(st.integers(0, 3), min_size=1, max_size=20))
def test_times_that_came_so_often_spread_as_if_each_were_written_down(counts):
    times = np.arange(1.0, len(counts) + 1)
    plain = np.repeat(times, counts)
    found = weighted_spread(times, np.array(counts))
    assert found == (weighted_spread(plain, np.ones(len(plain), np.int64)) if len(plain) else None)


@pytest.mark.parametrize("of", [1, 2, 3])
def test_parts_are_whole_sessions_that_wait_within_the_part_and_together_are_all(of):
    whole = sessions(3, 6)
    parts = [whole.part(number, of) for number in range(of)]
    assert sorted(tokens for part in parts for tokens in part.input_tokens.tolist()) == whole.input_tokens.tolist()
    for part in parts:
        for index, earlier in enumerate(part.continues.tolist()):
            assert (earlier == -1) == (part.turn[index] == 0)
            assert part.after[index] == (() if earlier == -1 else (earlier,))
            assert earlier == -1 or part.input_tokens[earlier] == part.input_tokens[index] - 1
