"""What a load asks for: shares spread evenly, turns one after the other, parts that keep who waits for whom."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import (
    Agents,
    Demand,
    Sharing,
    is_taken_back,
    made_up,
    open_demand,
    trace_demand,
)
from inferometer.core.traffic.lengths import Lengths
from inferometer.core.traffic.spreads import weighted_spread
from inferometer.core.traffic.traces import RequestTrace, part_of, scaled, trace_document


@given(share=st.floats(0.05, 0.95), start=st.integers(0, 10_000))
def test_whoever_goes_away_is_the_share_that_was_asked_for_in_any_stretch(share, start):
    gone = sum(is_taken_back(number, share) for number in range(start, start + 1000))
    assert abs(gone - 1000 * share) < 10


def test_of_ten_requests_three_in_ten_are_taken_back_by_the_multiples_of_a_root():
    """n·√2 less its whole part: 0, .41, .83, .24, .66, .07, .49, .90, .31, .73."""
    assert [number for number in range(10) if is_taken_back(number, 0.3)] == [0, 3, 5]


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


def plain(value):
    """Each field of a value, arrays as lists."""
    told = {entry.name: getattr(value, entry.name) for entry in fields(value)}
    return {name: field.tolist() if isinstance(field, np.ndarray) else field for name, field in told.items()}


COLUMNS = {
    "input_tokens": np.array([5, 6, 7]), "output_tokens": np.array([8, 9, 10]), "session": np.array([0, 1, 0]),
    "turn": np.array([0, 0, 1]), "after": ((), (), (0,)), "wait_s": np.array([0.0, 0.25, 2.5]),
    "pieces": (((1, 5),), ((2, 6),), ((1, 5), (3, 2))), "messages": (({"a": 1},), ({"b": 2},), ({"c": 3},)),
}  # fmt: skip
KEPT = {  # of the first and the third, which waits for it
    "input_tokens": [5, 7], "output_tokens": [8, 10], "session": [0, 0], "turn": [0, 1], "after": ((), (0,)),
    "wait_s": [0.0, 2.5], "pieces": (((1, 5),), ((1, 5), (3, 2))), "messages": (({"a": 1},), ({"c": 3},)),
}  # fmt: skip


def test_a_part_has_every_column_of_its_requests_and_all_that_is_said_of_the_whole():
    said = {"sharing": Sharing(prefix_tokens=2, groups=6), "seed": 9, "answers": 2}
    whole = Demand(
        **COLUMNS, due_s=np.array([0.1, 0.2, 0.3]), group=np.array([3, 4, 5]), continues=np.array([-1, -1, 0]), **said
    )
    part = {**KEPT, **said, "due_s": [0.1, 0.3], "group": [3, 5], "continues": [-1, 0]}
    assert plain(whole.part(0, 2)) == part
    assert whole.part(1, 2).input_tokens.tolist() == [6]


TRACE = RequestTrace(
    name="t", form="f", arrival_s=np.array([0.5, 1.0, np.nan]), **COLUMNS, skipped=4, estimated=True
)  # fmt: skip


def test_a_part_of_a_trace_has_every_column_of_its_requests_at_its_own_speed():
    part = plain(part_of(TRACE, start_s=0.5, speed=2.0, duration_s=0.25))
    assert np.isnan(part["arrival_s"].pop())
    told = {"name": "t", "form": "f", "skipped": 4, "estimated": True}
    assert part == {**KEPT, **told, "arrival_s": [0.0], "wait_s": [0.0, 1.25]}
    assert scaled(TRACE, 0.5).input_tokens.tolist() == [5, 7], "the second session is not of the first half"


def test_a_trace_told_in_figures():
    told = {
        "schema": "inferometer.traffic/1", "name": "t", "form": "f", "requests": 3, "sessions": 2, "seconds": 1.0,
        "requests_per_s": 3.0, "input_tokens": 6.0, "output_tokens": 9.0, "repeated_share": 5 / 18,
        "longest_prompt": 7, "skipped": 4, "estimated": True,
    }  # fmt: skip
    assert trace_document(TRACE) == told
    untimed = RequestTrace(name="t", form="f", arrival_s=np.array([0.5, np.nan]), input_tokens=np.array([5, 6]),
                           output_tokens=np.array([8, 9]))  # fmt: skip
    document = trace_document(untimed)
    assert (document["seconds"], document["requests_per_s"], document["sessions"]) == (None, None, 2)


def test_a_trace_is_asked_for_as_it_came_or_at_a_rate_or_as_places_allow():
    demand = plain(trace_demand(TRACE, seed=3))
    columns = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in COLUMNS.items()}
    assert demand == {
        **columns, "due_s": [0.5, 1.0, 0.0], "group": [0, 0, 0], "continues": [-1, -1, -1], "sharing": Sharing(),
        "seed": 3, "answers": 1,
    }  # fmt: skip
    slow = trace_demand(TRACE, arrivals=Arrivals(rate_per_s=0.5, process="constant"))
    assert slow.due_s.tolist() == [0.0, 2.0, 0.0], "whoever waits for somebody comes by no clock"
    assert not trace_demand(TRACE, timed=False).is_open


def test_a_load_by_hand():
    """Five requests in sessions of two are three sessions, which begin every half second."""
    sharing = Sharing(prefix_tokens=4, turns=2, think_s=1.5)
    lengths = Lengths(kind="fixed", mean=7), Lengths(kind="fixed", mean=3)
    load = plain(open_demand(Arrivals(rate_per_s=2.0, process="constant"), *lengths, count=5, sharing=sharing, seed=8))
    assert load == {
        "input_tokens": [7] * 6, "output_tokens": [3] * 6, "due_s": [0.0, 0.0, 0.5, 0.5, 1.0, 1.0],
        "session": [0, 0, 1, 1, 2, 2], "turn": [0, 1] * 3, "group": [0] * 6, "after": ((), (0,), (), (2,), (), (4,)),
        "wait_s": [1.5] * 6, "continues": [-1, 0, -1, 2, -1, 4], "pieces": (), "messages": (), "sharing": sharing,
        "seed": 8, "answers": 1,
    }  # fmt: skip
    alone = open_demand(Arrivals(rate_per_s=2.0, process="constant"), *lengths, count=2)
    assert (alone.sharing, alone.due_s.tolist(), alone.after) == (Sharing(), [0.0, 0.5], ())


def test_agents_by_hand():
    """Of two calls the first is followed by two helpers of one call each, and the second waits for all three."""
    fixed = {
        name: Lengths(kind="fixed", mean=mean)
        for name, mean in (("task", 50), ("calls", 2), ("answer", 10), ("result", 20), ("tool_s", 4))
    }
    trace = plain(made_up(Agents(sessions=1, system=100, delegated=1.0, context=1000, **fixed)))
    assert np.isfinite(trace["arrival_s"]).tolist() == [True, False, False, False]
    assert {name: trace[name] for name in ("input_tokens", "output_tokens", "turn", "after", "wait_s")} == {
        "input_tokens": [150, 150, 150, 180], "output_tokens": [10] * 4, "turn": [0, 0, 0, 1],
        "after": ((), (0,), (0,), (0, 1, 2)), "wait_s": [0.0, 0.0, 0.0, 4.0],
    }  # fmt: skip
    assert [[size for _, size in pieces] for pieces in trace["pieces"]] == [[100, 50]] * 3 + [[100, 50, 10, 20]]
    first, helper, other, second = ([name for name, _ in pieces] for pieces in trace["pieces"])
    assert first == second[:2]
    assert len({first[0], helper[0], other[0]}) == 1, "what all agents begin with"
    assert len({first[1], helper[1], other[1]}) == 3, "each has its own task"
