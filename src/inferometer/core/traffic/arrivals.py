"""When requests arrive: at a constant rate, as a Poisson process, in gamma bursts; at one rate or along a ramp."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen

Process = Literal["constant", "poisson", "gamma"]
PROCESSES: tuple[Process, ...] = ("constant", "poisson", "gamma")

# Requests a second: one in eleven days, and more than all of the world's services answer.
LEAST_RATE, MOST_RATE = 1e-6, 1e8
Times = NDArray[np.float64]


@frozen
class Arrivals:
    """Requests a second, and how the gaps between them vary. `to_per_s` makes the rate a ramp, linear in time.

    The gaps of a gamma process have the shape `burstiness`: 1 is Poisson, less comes in bursts, more is more even.
    Their coefficient of variation is 1/√burstiness.
    """

    rate_per_s: float
    process: Process = "poisson"
    burstiness: float = 1.0
    to_per_s: float | None = None

    def __post_init__(self) -> None:
        rates = (self.rate_per_s,) if self.to_per_s is None else (self.rate_per_s, self.to_per_s)
        if not all(LEAST_RATE <= rate <= MOST_RATE for rate in rates):
            raise DomainError(
                f"A rate is of {LEAST_RATE:g} to {MOST_RATE:,.0f} requests a second, and not of {min(rates)!r}."
            )
        if not 0.01 <= self.burstiness <= 100:
            raise DomainError(
                f"The burstiness must lie between 0.01 and 100, and is {self.burstiness!r}.",
                remedy="1 is Poisson, less than 1 comes in bursts, more than 1 is more even.",
            )

    def __str__(self) -> str:
        rate = f"{self.rate_per_s:g}" if self.to_per_s is None else f"{self.rate_per_s:g} to {self.to_per_s:g}"
        shape = f" with burstiness {self.burstiness:g}" if self.process == "gamma" else ""
        return f"{self.process}{shape}, {rate} requests/s"


def arrival_times(
    arrivals: Arrivals, rng: np.random.Generator, *, count: int | None = None, duration_s: float | None = None
) -> Times:
    """Seconds from the start: `count` of them, or as many as there are before `duration_s`, or whichever ends first.

    A ramp needs the duration that it takes, or a count, whose mean rate then gives the duration.
    """
    if count is None and duration_s is None:
        raise DomainError("Arrivals need a number of requests or a duration.")
    if arrivals.to_per_s is None:
        return _steady(arrivals, rng, count=count, duration_s=duration_s)
    mean_rate = (arrivals.rate_per_s + arrivals.to_per_s) / 2
    if duration_s is not None:
        whole_s = duration_s
    else:
        assert count is not None  # noqa: S101 - the check above, for the type checker
        whole_s = count / mean_rate
    # A process of rate 1 in the time Λ(t) = a·t + (b − a)·t²/2T, turned back into t: Λ is the expected number until t.
    unit = Arrivals(rate_per_s=1.0, process=arrivals.process, burstiness=arrivals.burstiness)
    expected = _steady(unit, rng, count=count, duration_s=mean_rate * whole_s)
    slope = (arrivals.to_per_s - arrivals.rate_per_s) / whole_s
    if abs(slope) < 1e-12:
        return expected / arrivals.rate_per_s
    return (np.sqrt(arrivals.rate_per_s**2 + 2 * slope * expected) - arrivals.rate_per_s) / slope


def _steady(arrivals: Arrivals, rng: np.random.Generator, *, count: int | None, duration_s: float | None) -> Times:
    rate = arrivals.rate_per_s
    if arrivals.process == "constant":
        limits = [count, None if duration_s is None else math.ceil(duration_s * rate - 1e-9)]
        return np.arange(min(limit for limit in limits if limit is not None)) / rate
    if duration_s is None:
        return np.cumsum(_gaps(arrivals, rng, count or 0)) if count else np.empty(0)
    times: list[Times] = []
    reached, left = 0.0, count
    while reached < duration_s and (left is None or left > 0):
        wanted = int((duration_s - reached) * rate * 1.1) + 16
        wanted = wanted if left is None else min(wanted, left)
        piece = reached + np.cumsum(_gaps(arrivals, rng, wanted))
        times.append(piece)
        reached, left = float(piece[-1]), None if left is None else left - wanted
    whole = np.concatenate(times) if times else np.empty(0)
    return whole[whole < duration_s]


def _gaps(arrivals: Arrivals, rng: np.random.Generator, count: int) -> Times:
    shape = arrivals.burstiness if arrivals.process == "gamma" else 1.0
    return rng.gamma(shape, 1 / (shape * arrivals.rate_per_s), count)
