"""What is said of a change of formats: which ops and kinds change and by how much, or why so little."""

from types import SimpleNamespace

import pytest

from inferometer.core.profile import OpTime, Phase
from inferometer.measure.prepare.foretell import OpChange, _changes, _kinds, _unchanged


def change(name, before_s, after_s, kind="linear"):
    return OpChange(name=name, kind=kind, count=1, before_s=before_s, after_s=after_s)


def test_ops_that_both_have_are_told_by_how_much_they_change():
    def phase(**times):
        ops = tuple(OpTime(name=name, kind="linear", time_s=time_s, count=3) for name, time_s in times.items())
        return Phase(name="forward", time_s=sum(times.values()), ops=ops)

    found = _changes(phase(a=1.0, b=5.0, gone=9.0, c=2.0), phase(a=1.5, come=7.0, b=4.0, c=2.0))
    assert found == tuple(
        OpChange(name=name, kind="linear", count=3, before_s=before, after_s=after)
        for name, before, after in (("b", 5.0, 4.0), ("a", 1.0, 1.5), ("c", 2.0, 2.0))
    )


def test_kinds_are_told_where_they_change_by_a_part_of_the_whole_the_largest_first():
    ops = (change("a", 30.0, 20.0), change("b", 10.0, 15.0), change("c", 20.0, 29.0, "norm"),
           change("d", 9.0, 7.0, "pool"), change("e", 9.0, 6.9, "copy"))  # fmt: skip
    assert _kinds(ops, 100.0) == ("norm loses 9% of the time, linear gains 5% of the time, copy gains 2% of the time.",)
    assert _kinds(ops[3:4], 100.0) == ()


@pytest.mark.parametrize(
    ("after_s", "says"), [(99.91, "No op changes: E holds"), (99.89, "No kind of op changes by more")]
)
def test_nothing_changes_or_too_little(after_s, says):
    assert _unchanged(SimpleNamespace(title="E"), (change("a", 100.0, after_s),)).startswith(says)
    both = (change("a", 50.0, 49.5), change("b", 50.0, 50.5))
    assert _unchanged(SimpleNamespace(title="E"), both).startswith("No kind")
