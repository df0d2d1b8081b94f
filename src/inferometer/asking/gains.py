"""What a change would gain: the same question asked again with one thing changed."""

from __future__ import annotations

from math import exp, hypot, log
from typing import TYPE_CHECKING

from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from inferometer.core.profile import Phase, Profile


@frozen
class Gain:
    """`gain` is before over after. `throughput_gain` counts sequences: it differs where the batch does.

    The interval treats the errors of the two predictions as independent. They share most of them, so it is wider than
    it needs to be, never narrower.
    """

    change: str
    phase: str
    before_s: float
    after_s: float
    gain: float
    low: float
    high: float
    throughput_gain: float
    fits: bool | None = None
    bound: str | None = None

    @property
    def throughput_low(self) -> float:
        return self.throughput_gain * self.low / self.gain

    @property
    def throughput_high(self) -> float:
        return self.throughput_gain * self.high / self.gain


def gain_of(change: str, phase: str, before: Profile, after: Profile) -> Gain | None:
    """The gain in one phase; None if either prediction has no time for it."""
    old, new = before.phase(phase), after.phase(phase)
    if old is None or new is None or old.time_s <= 0 or new.time_s <= 0:
        return None
    ratio = old.time_s / new.time_s
    half_width = hypot(_half_width(old), _half_width(new))
    return Gain(
        change=change,
        phase=phase,
        before_s=old.time_s,
        after_s=new.time_s,
        gain=ratio,
        low=ratio * exp(-half_width),
        high=ratio * exp(half_width),
        throughput_gain=ratio * after.workload.batch / before.workload.batch,
        fits=after.summary.fits,
        bound=new.bound,
    )


def _half_width(phase: Phase) -> float:
    """Half the width of the interval, in logarithms."""
    low, high = phase.low_s, phase.high_s
    return (log(high) - log(low)) / 2 if low and high and 0 < low <= high else 0.0
