"""A grade for a device: how well what is measured there repeats.

Before and after each lease an agent runs the same short reference. Two kinds of difference count: between the two of
one lease (it changed while a job was measured), and of one lease from the median of all (it is not the device of
yesterday). Jobs that were measured there more than once say it of themselves: each time from the median of that job.
The grade is the worse of references and repeats. The limits of grade A are what repeats of the same job on a commercial
device cloud show.
"""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Literal

from inferometer.core.frozen import frozen
from inferometer.store.queue.values import LeaseCheck

Grade = Literal["A", "B", "C", "ungraded"]
LEASES = 5  # that a grade needs
LIMITS: tuple[tuple[Grade, float, float], ...] = (("A", 0.005, 0.05), ("B", 0.02, 0.10))  # median and 90th percentile
MOVED = 0.05  # within one lease: the job is marked and measured again


@frozen
class DifferenceSpread:
    """Relative differences: half of them are within `typical`, nine in ten within `p90`."""

    count: int
    typical: float
    p90: float

    def within(self, typical: float, p90: float) -> bool:
        return self.typical <= typical and self.p90 <= p90


@frozen
class Trust:
    grade: Grade
    why: str
    leases: int
    moved: int = 0
    references: DifferenceSpread | None = None
    repeats: DifferenceSpread | None = None


def grade(checks: Sequence[LeaseCheck], repeated: Iterable[Sequence[float]] = ()) -> Trust:
    """`repeated` are the times of each job that was measured there more than once."""
    # Of each time from the median of its job.
    differences = [abs(time_s / median(times) - 1) for times in repeated if len(times) > 1 for time_s in times]
    moved, repeats = sum(check.moved for check in checks), _spread(differences)
    if len(checks) < LEASES:
        why = f"It has had {len(checks)} of the {LEASES} leases that a grade needs."
        return Trust(grade="ungraded", why=why, leases=len(checks), moved=moved, repeats=repeats)
    usual = median(check.before_s for check in checks)
    references = _spread([max(abs(check.change), abs(check.before_s / usual - 1)) for check in checks])
    assert references is not None  # noqa: S101 - there are leases
    spreads = [references, *([repeats] if repeats is not None and repeats.count >= LEASES else [])]
    fitting = (name for name, mid, far in LIMITS if all(spread.within(mid, far) for spread in spreads))
    given: Grade = next(fitting, "C")
    why = _words(references, repeats) + _bar(given)
    if moved:
        why += f" The reference moved by more than {MOVED:.0%} within {moved} of them: those jobs are marked."
    return Trust(grade=given, why=why, leases=len(checks), moved=moved, references=references, repeats=repeats)


def _spread(apart: Sequence[float]) -> DifferenceSpread | None:
    if not apart:
        return None
    ordered = sorted(apart)
    return DifferenceSpread(count=len(ordered), typical=median(ordered), p90=ordered[-(-9 * len(ordered) // 10) - 1])


def _words(references: DifferenceSpread, repeats: DifferenceSpread | None) -> str:
    text = (
        f"Over its last {references.count} leases the reference differed by {references.typical:.1%} typically and "
        f"{references.p90:.1%} in one lease of ten"
    )
    if repeats is None:
        return text
    return text + f"; {repeats.count} repeats of jobs by {repeats.typical:.1%} and {repeats.p90:.1%}"


def _bar(given: Grade) -> str:
    better = {"B": LIMITS[0], "C": LIMITS[1]}.get(given)
    if better is None:
        return "."
    name, mid, far = better
    return f". {name} allows {mid:.1%} and {far:.0%}."
