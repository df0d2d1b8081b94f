"""A verdict on two samples: faster, slower, same, or undecided with what would decide it.

The rule, in words:

- **same**: the whole interval of the ratio lies within `threshold` of 1;
- **faster / slower**: the interval of the ratio excludes 1, and so does the rank test: its p-value is below `alpha`
  (after correction, where several things are compared at once);
- **undecided**: anything else. No difference is shown, and the reason says how many runs could show one.

Runs taken in turns are compared pair by pair: what slowed both slows neither in the comparison. Two samples taken one
after the other also differ by what changed in between, which no statistic of theirs can see: such a verdict is `sure`
enough for a gate only if its whole interval is `threshold` away from 1.

Runs that follow each other are alike, and n of them say less than n independent ones. The interval is widened for it
(`statistics.widening`), and the p-value is then that of the widened interval.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import NormalDist, median
from typing import Literal

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.units import counted
from inferometer.measure.bench.ranks import (
    Ratio,
    Readings,
    least_runs,
    mann_whitney,
    paired_ratio,
    ratio,
    signed_rank,
    two_sided,
)
from inferometer.measure.bench.statistics import autocorrelation_time, minimum_detectable_effect, runs_needed, widening

Call = Literal["faster", "slower", "same", "undecided", "less", "more"]  # the last two are of memory
_RUNS_WORTH_NAMING = 1_000_000


@frozen
class Criteria:
    """What counts as a difference, and how sure to be of it."""

    threshold: float = 0.01
    alpha: float = 0.005
    power: float = 0.8

    def __post_init__(self) -> None:
        for name in ("threshold", "alpha", "power"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise DomainError(f"{name} must lie between 0 and 1, and is {value!r}.")


@frozen
class Evidence:
    """What two samples say: B over A. None is what they cannot say."""

    ratio: float
    low: float | None
    high: float | None
    p_value: float | None
    test: str
    in_turns: bool = False
    effect: float | None = None  # Cliff's delta, −1 … 1
    detectable: float | None = None  # smallest relative difference these samples would find
    runs: int | None = None  # of the smaller side
    runs_needed: int | None = None  # per side, to find the threshold


@frozen
class Judgement:
    """`sure`: not only shown by the samples, but beyond what may have changed between them."""

    verdict: Call
    reason: str
    evidence: Evidence
    sure: bool = True


def judge(a: Readings, b: Readings, *, paired: bool = False, criteria: Criteria | None = None) -> Judgement:
    """Whether B is slower than A, from the times of their runs."""
    criteria = criteria or Criteria()
    return decide(weigh(a, b, paired=paired, criteria=criteria), criteria)


def weigh(a: Readings, b: Readings, *, paired: bool, criteria: Criteria) -> Evidence:
    """The evidence in two samples of times. `paired`: a[i] and b[i] were taken in the same round."""
    if len(a) == 0 or len(b) == 0 or min(a) <= 0 or min(b) <= 0:
        raise DomainError("Two samples of times above 0 s are needed for a verdict.")
    if paired and len(a) != len(b):
        raise DomainError(f"Runs taken in turns come in pairs, and there are {len(a)} and {len(b)}.")
    confidence = 1 - criteria.alpha
    if paired:
        logs = [math.log(second) - math.log(first) for first, second in zip(a, b, strict=True)]
        alike = autocorrelation_time(logs)
        estimate, test = paired_ratio(a, b, confidence=confidence), signed_rank(logs)
    else:
        n, m = len(a), len(b)
        alike = (m * autocorrelation_time(a) + n * autocorrelation_time(b)) / (n + m)
        estimate, test = ratio(a, b, confidence=confidence), mann_whitney(a, b)
    evidence = Evidence(
        ratio=estimate.ratio,
        low=None,
        high=None,
        p_value=test.p_value,
        test=test.name,
        in_turns=paired,
        effect=test.delta,
        runs=min(len(a), len(b)),
        runs_needed=least_runs(criteria.alpha, paired=paired),
    )
    if not estimate.bounded:
        return evidence
    return _bounded(evidence, estimate.widened(widening(evidence.runs or 0, alike, confidence=confidence)), criteria)


def _bounded(evidence: Evidence, estimate: Ratio, criteria: Criteria) -> Evidence:
    """With the interval, what it would find, and the p-value that agrees with it."""
    z = NormalDist().inv_cdf(1 - criteria.alpha / 2)
    error = (math.log(estimate.high) - math.log(estimate.low)) / (2 * z)
    runs, least = evidence.runs or 0, evidence.runs_needed or 0
    needed = runs_needed(runs, error, criteria.threshold, alpha=criteria.alpha, power=criteria.power)
    nearer = estimate.low if estimate.ratio > 1 else estimate.high
    reach = abs(math.log(estimate.ratio) - math.log(nearer)) / z
    p_value = two_sided(math.log(estimate.ratio) / reach) if reach > 0 else 0.0
    return replace(
        evidence,
        low=estimate.low,
        high=estimate.high,
        p_value=max(evidence.p_value or 0.0, p_value),
        detectable=minimum_detectable_effect(error, alpha=criteria.alpha, power=criteria.power),
        runs_needed=max(needed, least),
    )


def weigh_intervals(a: tuple[float, float, float], b: tuple[float, float, float], *, coverage: float) -> Evidence:
    """The evidence in two estimates (low, middle, high), taken as normal on the logarithm; for want of samples."""
    z = NormalDist().inv_cdf((1 + coverage) / 2)
    error = math.hypot(*((math.log(high) - math.log(low)) / (2 * z) for low, _, high in (a, b)))
    middle = math.log(b[1]) - math.log(a[1])
    p_value = two_sided(middle / error) if error > 0 else float(middle == 0)
    return Evidence(
        ratio=math.exp(middle),
        low=math.exp(middle - z * error),
        high=math.exp(middle + z * error),
        p_value=p_value,
        test="intervals",
    )


def decide(evidence: Evidence, criteria: Criteria, *, p_value: float | None = None) -> Judgement:
    """Apply the rule. `p_value` is the corrected one, where several things are compared at once."""
    p = evidence.p_value if p_value is None else p_value
    if _within(evidence, criteria.threshold):
        reason = f"{_bounds(evidence)}: any difference is below the {_percent(criteria.threshold)} that counts"
        return Judgement(verdict="same", reason=reason, evidence=evidence)
    if p is not None and p < criteria.alpha and _excludes_one(evidence):
        verdict: Call = "slower" if evidence.ratio > 1 else "faster"
        sure = _away(evidence, criteria.threshold)
        reason = f"{_bounds(evidence)}, p = {p:.2g}"
        if not sure:
            reason += f"; perhaps by less than the {_percent(criteria.threshold)} that counts"
        return Judgement(verdict=verdict, reason=reason, evidence=evidence, sure=sure)
    return Judgement(verdict="undecided", reason=_doubt(evidence, criteria), evidence=evidence)


def _excludes_one(evidence: Evidence) -> bool:
    """Pairs that all point one way may have no interval: there the test alone decides."""
    if evidence.low is None or evidence.high is None:
        return evidence.in_turns
    return evidence.low > 1 or evidence.high < 1


def _away(evidence: Evidence, threshold: float) -> bool:
    """The ratio, or for samples not taken in turns the end of its interval nearer to 1, is `threshold` away from 1."""
    nearest = evidence.ratio
    if not evidence.in_turns:
        if evidence.low is None or evidence.high is None:
            return False
        nearest = evidence.low if evidence.ratio > 1 else evidence.high
    factor = nearest if evidence.ratio > 1 else 1 / nearest
    return factor >= 1 + threshold


def _within(evidence: Evidence, threshold: float) -> bool:
    if evidence.low is None or evidence.high is None:
        return False
    return 1 / (1 + threshold) <= evidence.low and evidence.high <= 1 + threshold


def _bounds(evidence: Evidence) -> str:
    if evidence.low is None or evidence.high is None:
        return f"ratio {evidence.ratio:.4g}"
    return f"ratio {evidence.ratio:.4g} ({evidence.low:.4g} to {evidence.high:.4g})"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _doubt(evidence: Evidence, criteria: Criteria) -> str:
    """Why the sample cannot decide, and what would."""
    if evidence.low is None and evidence.runs is not None:
        few = (
            f"{counted(evidence.runs, 'run')} per side {'is' if evidence.runs == 1 else 'are'} too few for any verdict"
        )
        return f"{few} at p < {criteria.alpha:g}: take {evidence.runs_needed} or more"
    counts = _percent(criteria.threshold)
    if evidence.detectable is not None:
        why = f"a difference below {_percent(evidence.detectable)} could hide in this noise"
    else:
        why = "the intervals overlap"
    return f"{_bounds(evidence)}: {why}{_more_runs(evidence, counts)}"


def _more_runs(evidence: Evidence, counts: str) -> str:
    needed = evidence.runs_needed
    if needed is None or evidence.runs is None or needed <= evidence.runs:
        return ""
    if needed > _RUNS_WORTH_NAMING:
        return f"; no sensible number of runs would find {counts}: quieten the machine first"
    return f"; about {needed:,} runs per side would find {counts}"


# Where a series of times went to another level.

_NEIGHBOURS = 10  # times on either side of a change that it is judged by


def change_points(times: Sequence[float], *, threshold: float = 0.02, least: int = 5) -> tuple[int, ...]:
    """Where a series went to another level: the first run of each, found by halving, judged as `compare` judges.

    Of all places that leave `least` runs on either side, the one whose two levels are nearest to all runs is judged by
    the rank test on the runs next to it: further away there may be levels more. A part with no such place is one level.
    """
    return tuple(sorted(_splits(times, 0, Criteria(threshold=threshold, alpha=0.001), least)))


def _splits(times: Sequence[float], start: int, criteria: Criteria, least: int) -> Iterator[int]:
    places = range(least, len(times) - least + 1)
    if not places:
        return
    logs = [math.log(time) for time in times]

    def left(place: int) -> float:
        """How far the times lie from two levels that meet here: from medians, so that one far off moves neither."""
        sides = (logs[:place], logs[place:])
        return sum(abs(log - middle) for side in sides for middle in (median(side),) for log in side)

    place = min(places, key=left)
    near = slice(max(0, place - _NEIGHBOURS), place), slice(place, place + _NEIGHBOURS)
    found, counts = judge(*(times[side] for side in near), criteria=criteria), math.log1p(criteria.threshold)
    if found.verdict not in {"faster", "slower"} or abs(math.log(found.evidence.ratio)) < counts:
        return
    yield start + place
    yield from _splits(times[:place], start, criteria, least)
    yield from _splits(times[place:], start + place, criteria, least)
