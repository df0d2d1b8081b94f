"""Where simulated requests come from: in which order, how long, in which class, and what they share."""

import numpy as np
import pytest

from inferometer.core.traffic.demand import Demand, Sharing, class_of, classes_of
from inferometer.serving.simulate.source import TURNAROUND_S, Kinds, RequestSource


def demand(inputs, outputs, *, due=(), turns=1, prefix=0, pieces=(), group=None):
    count = len(inputs)
    return Demand(
        input_tokens=np.array(inputs), output_tokens=np.array(outputs), due_s=np.array(due, float),
        session=np.arange(count) // turns, turn=np.arange(count) % turns,
        group=np.zeros(count, int) if group is None else np.array(group), pieces=pieces,
        sharing=Sharing(turns=turns, think_s=2.0, prefix_tokens=prefix),
    )  # fmt: skip


def taken(source):
    request = source.take()
    return request.number, request.due, request.input_tokens, request.output_tokens


def ended(source, request, at):
    request.last = at
    source.ended(request)


def test_parts_of_a_demand_follow_each_other_in_time_and_number():
    parts = [demand([5, 6], [1, 2], due=[1.0, 3.0]), demand([7], [3], due=[0.5])]
    expected = [(0, 1.0, 5, 1), (1, 3.0, 6, 2), (2, 3.5, 7, 3)]
    source = RequestSource(parts)
    assert not source.follows
    moments = []
    while source.next_s != float("inf"):
        moments.append((source.next_s, taken(source)))
    assert moments == [(row[1], row) for row in expected]
    plain = [(one.number, one.due, one.input_tokens, one.output_tokens) for one in RequestSource(parts).plain()]
    assert plain == expected


@pytest.mark.parametrize(
    ("more", "asked"),
    [({}, {"concurrency": 1}), ({}, {"kinds": Kinds(priorities=(0.5, 0.5))}), ({"turns": 2}, {}), ({"prefix": 3}, {}),
     ({"pieces": (((1, 5),), ((2, 6),))}, {})],
)  # fmt: skip
def test_what_waits_or_shares_or_is_urgent_is_not_plain(more, asked):
    assert RequestSource([demand([5, 6], [1, 2], due=[1.0, 3.0], **more)], **asked).plain() is None


def test_a_place_sends_its_next_request_when_the_last_is_answered():
    source = RequestSource([demand([1, 2, 3, 4], [1, 1, 1, 1])], concurrency=2)
    assert (source.follows, source.next_s) == (True, 0.0)
    first, second = source.take(), source.take()
    assert source.next_s == float("inf")
    ended(source, second, 4.0)
    ended(source, first, 3.0)
    assert source.next_s == 3.0 + TURNAROUND_S  # it is counted from the answer's end, and comes when it has been sent
    assert [taken(source), taken(source)] == [(3, 3.0, 4, 1), (2, 4.0, 3, 1)]
    assert source.next_s == float("inf")


def test_a_turn_comes_after_a_time_to_think_with_all_that_was_said():
    """Of two sessions with three turns each, and a shared prefix of 10 tokens."""
    source = RequestSource(
        [demand([30, 5, 7, 40, 8, 9], [4, 6, 8, 1, 2, 3], due=[0, 0, 0, 1, 1, 1], turns=3, prefix=10, group=[3] * 6)]
    )
    assert source.follows
    one = source.take()
    assert one.pieces == ((("group", 3), 10), (("talk", 0), 20))
    ended(source, one, 5.0)
    other = source.take()  # of the second session, which began at 1
    assert (other.number, other.due, other.input_tokens) == (3, 1.0, 40)
    assert source.next_s == 7.0 + TURNAROUND_S
    one = source.take()
    assert (one.number, one.due, one.input_tokens) == (1, 7.0, 30 + 4 + 5)
    assert one.pieces == (
        (("group", 3), 10), (("talk", 0), 20), (("answer", 0), 4), (("talk", 1), 5),
    )  # fmt: skip
    ended(source, one, 8.0)
    one = source.take()
    assert (one.number, one.due, one.input_tokens) == (2, 10.0, 30 + 4 + 5 + 6 + 7)
    assert one.pieces == (
        (("group", 3), 10), (("talk", 0), 20), (("answer", 0), 4), (("talk", 1), 5), (("answer", 1), 6),
        (("talk", 2), 7),
    )  # fmt: skip
    ended(source, one, 11.0)
    assert source.next_s == float("inf")  # the talk is over


def test_a_turn_that_waited_longest_comes_before_one_by_the_clock():
    source = RequestSource([demand([1, 1, 1, 1], [1, 1, 1, 1], due=[0.0, 0.0, 9.0, 9.0], turns=2)])
    ended(source, source.take(), 3.0)
    assert [taken(source)[:2], taken(source)[:2]] == [(1, 5.0), (2, 9.0)]


def test_a_prompt_shorter_than_its_prefix_shares_all_of_itself():
    assert RequestSource([demand([6], [1], due=[0.0], prefix=10)]).take().pieces == ((("group", 0), 6),)


def test_named_blocks_of_a_trace_are_shared_whole():
    pieces = ((7, 512), (8, 512), (9, 76))
    assert RequestSource([demand([1100], [1], due=[0.0], pieces=(pieces,))]).take().pieces == pieces


@pytest.mark.parametrize("shares", [(0.2, 0.8), (0.5, 0.3, 0.2), (1.0,)])
def test_every_class_has_its_share_and_is_spread_evenly(shares):
    """The golden ratio's multiples lie so evenly that any hundred in a row have each share within three."""
    classes = np.array([class_of(shares, number) for number in range(1000)])
    for order, share in enumerate(shares):
        counts = np.convolve(classes == order, np.ones(100), "valid")
        assert abs(counts - 100 * share).max() <= 3
    assert class_of((0.3, 0.3), 1) == 1  # shares that do not reach 1: the last class takes the rest


@pytest.mark.parametrize("shares", [(1.0,), (0.2, 0.8), (0.5, 0.3, 0.2), (1 / 3, 1 / 3, 1 / 3)])
def test_classes_of_many_requests_are_those_of_each(shares):
    numbers = range(7, 5000)
    assert classes_of(shares, numbers) == [class_of(shares, number) for number in numbers]
    assert classes_of((), range(3)) == [0, 0, 0]
