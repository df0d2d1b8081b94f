"""Grades: from the references beside a device's jobs."""

import pytest

from inferometer.store.queue.fleet import grade
from inferometer.store.queue.values import LeaseCheck


def checks(*pairs):
    return [
        LeaseCheck(before_s=before, after_s=after, moved=abs(after / before - 1) > 0.05) for before, after in pairs
    ]  # fmt: skip


def test_a_grade_needs_some_leases():
    found = grade(checks((1.0, 1.0), (1.0, 1.0)))
    assert (found.grade, found.why) == ("ungraded", "It has had 2 of the 5 leases that a grade needs.")


@pytest.mark.parametrize(
    ("pairs", "wanted"),
    [
        ([(1.0, 1.002)] * 10, "A"),
        ([(1.0, 1.002)] * 9 + [(1.0, 1.5)], "A"),  # one in ten may be anything
        ([(1.0, 1.002)] * 8 + [(1.0, 1.5)] * 2, "C"),
        ([(1.0, 1.01)] * 10, "B"),
        ([(1.0, 1.0), (1.3, 1.3)] * 5, "C"),  # steady in each lease, and another device each time
    ],
)
def test_a_grade_is_how_well_it_repeats(pairs, wanted):
    found = grade(checks(*pairs))
    assert found.grade == wanted, found
    assert f"{found.references.typical:.1%}" in found.why
    assert ("moved by more than 5%" in found.why) == (found.moved > 0)


def test_repeats_of_the_same_job_count_as_much_as_the_reference():
    steady = checks(*[(1.0, 1.001)] * 10)
    found = grade(steady, [[1.0, 1.0, 1.0, 1.2, 1.2], [5.0]])  # the second was measured once: it says nothing
    assert (found.grade, found.repeats.count) == ("C", 5)
    assert "; 5 repeats of jobs by 0.0% and 20.0%. B allows 2.0% and 10%." in found.why
    assert grade(steady, [[1.0, 1.2]]).grade == "A"  # too few to count
