"""What a change would gain: the same question asked again with one thing changed."""

from __future__ import annotations

from math import exp, isclose, log, sqrt
from typing import TYPE_CHECKING

from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from inferometer.core.profile import Phase, Profile

# How the errors of two predictions for one device and engine correlate: published pairs of a model in f32 and in i8 on
# one device have 0.47 to 0.6 with ncnn (216), and 0.9 with OpenVINO (82). Eight in ten of their gains were within a
# factor of 1.7 of what was predicted, on devices that the priors know: no gain of other arithmetic is surer.
_SHARED = 0.47
_OTHER_ARITHMETIC = log(1.7)
_SAME_KERNELS = log(1.05)  # one computation in two files: addresses, alignment, and when each was measured


@frozen
class Gain:
    """`gain` is before over after. `throughput_gain` counts sequences: it differs where the batch does.

    Predictions for one device and one engine share part of their errors, which a ratio of them does not have; of ops
    that take as long as before, all. Others count as independent. What is computed in another format is no surer than
    published gains of such.
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
    half_width = _apart(_half_width(old), _half_width(new), _SHARED if _alike(before, after) else 0.0)
    if half_width and _computed(before) != _computed(after):
        half_width = max(half_width, _OTHER_ARITHMETIC)
    if half_width and _alike(before, after):
        half_width = max(_SAME_KERNELS, half_width * _changed(old, new))
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


def _alike(before: Profile, after: Profile) -> bool:
    return (before.device.name, before.runtime) == (after.device.name, after.runtime)


def _computed(profile: Profile) -> tuple[frozenset[str], str | None, int | None]:
    """What products are computed in, and what they read: bytes computed in floats have kernels of their own."""
    return frozenset(profile.arithmetic), profile.workload.precision.activations, profile.model.weight_bytes


def _changed(old: Phase, new: Phase) -> float:
    """The share of the time that is in ops which take another time than before, on the side that has more of it."""
    before = {op.name: op.time_s for op in old.ops}
    if not before or before.keys() != {op.name for op in new.ops}:
        return 1.0
    same = sum(op.time_s for op in new.ops if isclose(op.time_s, before[op.name], rel_tol=1e-3))
    return max(1 - same / old.time_s, 1 - same / new.time_s, 0.0)


def _apart(old: float, new: float, correlation: float) -> float:
    """Half the width of a difference of two logarithms whose errors correlate."""
    return sqrt(max(0.0, old * old + new * new - 2 * correlation * old * new))


def _half_width(phase: Phase) -> float:
    """Half the width of the interval, in logarithms."""
    low, high = phase.low_s, phase.high_s
    return (log(high) - log(low)) / 2 if low and high and 0 < low <= high else 0.0
