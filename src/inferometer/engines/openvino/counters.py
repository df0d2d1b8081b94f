"""The engine's counters into one sample a step.

On the CPU a counter is the mean over all steps since the model was compiled, in whole microseconds, rounded down. So
the total of the steps between two readings is known to half a microsecond a step, and what each took is not: every step
gets their mean. Other devices give the last step's times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inferometer.core.frozen import frozen


@frozen
class CounterReading:
    """Counters by kernel after so many steps, seconds."""

    steps: int = 0
    means_s: Mapping[str, float] = field(default_factory=dict)


def mean_between(before: CounterReading, after: CounterReading, *, tick_s: float = 1e-6) -> dict[str, float]:
    """Mean seconds a step from one reading to the other, by kernel. Half a tick makes up for rounding down."""
    count = after.steps - before.steps
    if count <= 0:
        return {}
    means: dict[str, float] = {}
    for name, mean_s in after.means_s.items():
        total = after.steps * (mean_s + tick_s / 2)
        earlier = before.means_s.get(name)
        spent = total - (before.steps * (earlier + tick_s / 2) if earlier is not None else 0.0)
        means[name] = max(0.0, spent / count)
    return means


@dataclass(slots=True)
class Means:
    """Readings of running means, one after the other."""

    last: CounterReading = field(default_factory=CounterReading)

    def take(self, after: CounterReading) -> dict[str, tuple[float, ...]]:
        """By kernel, a sample for every step since the last reading."""
        count = after.steps - self.last.steps
        samples = {name: (mean_s,) * count for name, mean_s in mean_between(self.last, after).items()}
        self.last = after
        return samples
