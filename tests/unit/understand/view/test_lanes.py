"""Which lane of a trace a span is drawn in: viewers draw what nests, and drop what overlaps in part."""

import pytest

from inferometer.understand.view.traces import _Lanes, _on_devices


def drawn(*spans, titles=None):
    """The lane of each span of one thread, in the order given."""
    lanes = _Lanes(titles or {}, process=1)
    return [lanes.thread(1, 7, None, start, end) for start, end in spans]


@pytest.mark.parametrize(
    ("spans", "wanted"),
    [
        ([(0, 10), (10, 20)], [1, 1]),  # one after the other
        ([(2, 4), (0, 10)], [1, 1]),  # the inner one ends first
        ([(0, 10), (2, 4)], [1, 1]),
        ([(0, 10), (0, 10)], [1, 1]),  # the same
        ([(0, 5), (0, 10)], [1, 1]),  # they begin together
        ([(5, 10), (0, 10)], [1, 1]),  # they end together
        ([(0, 10), (5, 15)], [1, 2]),  # in part, from behind
        ([(5, 15), (0, 10)], [1, 2]),  # in part, from before
        ([(0, 10), (5, 15), (12, 20)], [1, 2, 1]),  # what overlaps the overlapping one fits into the first
        ([(0, 10), (5, 15), (8, 20)], [1, 2, 3]),
        ([(0, 10), (5, 15), (20, 30), (25, 35)], [1, 2, 1, 2]),
        ([(1, 2), (3, 4), (0, 10), (2, 3)], [1, 1, 1, 1]),
        ([(1, 2), (4, 5), (3, 6), (5, 7)], [1, 1, 1, 2]),  # the inner one is over, the one around it is not
    ],
)
def test_what_overlaps_in_part_goes_into_the_next_lane_that_it_fits(spans, wanted):
    assert drawn(*spans) == wanted


def test_a_span_that_does_not_fit_leaves_its_lane_as_it_was():
    lanes = _Lanes({}, process=1)
    assert [lanes.thread(1, 7, None, *span) for span in ((0, 4), (6, 10), (2, 8), (3, 7))] == [1, 1, 2, 2]
    assert lanes.thread(1, 7, None, 9, 12) == 2, "the first still has 6 to 10"


def test_lanes_are_named_once_by_thread_task_and_turn():
    lanes = _Lanes({(1, 7): "Main"}, process=1)
    for thread, start, end in ((7, 0, 10), (7, 5, 15), (7, 8, 20), (8, 0, 10)):
        lanes.thread(1, thread, None, start, end)
    said = "".join(lanes.announced())
    for title in ('"Main"', '"Main, overlapping"', '"Main, overlapping 2"', '"thread 8"'):
        assert said.count(title) == 1
    assert lanes.announced() == []
    lanes.thread(2, 7, None, 0, 10)
    assert '"process 2"' in "".join(lanes.announced()), "another process is named with its first lane"


def test_threads_and_processes_do_not_share_lanes():
    lanes = _Lanes({}, process=1)
    assert len({lanes.thread(process, thread, task, 0, 10) for process, thread, task in
                ((1, 7, None), (1, 8, None), (2, 7, None), (1, 7, 3))}) == 4  # fmt: skip


def test_only_spans_that_ran_on_a_device_are_drawn_there():
    columns = {"name": ["host", "kernel"], "device_start": [None, 5], "device_end": [None, 9]}
    drawn_there = _on_devices(columns, [1, 1], _Lanes({}, process=1))
    assert '"kernel"' in drawn_there
    assert '"host"' not in drawn_there
