"""The closed form: for every configuration, what a replica takes within the objectives, over all loads at once.

A replica with n sequences under way makes a token of each in a step, and every sequence brings one prompt in the time
it takes to make its answer. So the load that keeps n sequences under way is n over the time that a request stays, and
one array of n gives the whole curve from load to latency. It has no queues: what it lets through is simulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.predict.served.steady import SteadyTimes, Traffic, kernel_parts, steady_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.served import Objective
    from inferometer.predict.served.question import ServedReplica

_POINTS = 48
_SPARED = 0.97  # of a replica's steps: what is busy all the time has an endless queue


@frozen
class LoadCurve:
    """A replica's latencies over its load: requests a second, and what an average request sees at each."""

    sequences: Any
    rate_per_s: Any
    ttft_s: Any
    tpot_s: Any

    def within(self, objectives: Sequence[Objective]) -> Any:
        """At which points an average request meets every objective; a percentile is never below the mean here."""
        met = np.ones(len(self.rate_per_s), bool)
        for goal in objectives:
            met &= self.figure(goal.metric) <= goal.limit_s
        return met

    def figure(self, metric: str) -> Any:
        if metric == "ttft":
            return self.ttft_s
        if metric == "e2e":
            return self.sequences / np.maximum(self.rate_per_s, 1e-12)
        return self.tpot_s

    def capacity(self, objectives: Sequence[Objective]) -> float:
        """The most requests a second within the objectives; 0 where not even one at a time is."""
        met = self.within(objectives)
        return float(self.rate_per_s[met].max()) * _SPARED if met.any() else 0.0

    def at(self, rate_per_s: float) -> tuple[float, float, float]:
        """TTFT, TPOT and sequences under way at a load."""
        rates = np.maximum.accumulate(self.rate_per_s)
        return tuple(
            float(np.interp(rate_per_s, rates, values)) for values in (self.ttft_s, self.tpot_s, self.sequences)
        )  # type: ignore[return-value] # three of them


def load_curve(what: ServedReplica, traffic: Traffic, most: int) -> LoadCurve:
    """`most` sequences at once, or as many as the cache holds."""
    memory = what.memory
    held = most if memory is None else min(most, memory.sequences_of(traffic.prompt + traffic.generate // 2))
    held = max(1, held)
    count = np.unique(np.rint(np.geomspace(1, held, _POINTS)).astype(int)).astype(float)
    context = traffic.prompt + traffic.generate / 2
    decode_s = what.step.decode_seconds(count, context)
    if what.stages > 1:  # sequences share out among the stages of a pipeline, and wait for the slowest
        decode_s = np.array([float(_times(what, traffic, int(each)).decode) for each in count])
    one, full = _times(what, traffic, 1), _times(what, traffic, int(count[-1]))
    share = (count - 1) / max(1.0, count[-1] - 1)
    own_s = one.own + share * (full.own - one.own)
    extra_s = np.minimum(one.extra + share * (full.extra - one.extra), full.share)
    tpot_s = decode_s + count * extra_s / traffic.generate
    ttft_s = own_s + decode_s / 2
    stay_s = ttft_s + (traffic.generate - 1) * tpot_s
    return LoadCurve(sequences=count, rate_per_s=count / stay_s, ttft_s=ttft_s, tpot_s=tpot_s)


def _times(what: ServedReplica, traffic: Traffic, sequences: int) -> SteadyTimes:
    parts = kernel_parts(
        what.step, what.rules, what.limits, traffic, sequences=sequences, users=sequences, stages=what.stages
    )
    return steady_times(parts, what.step.costs)
