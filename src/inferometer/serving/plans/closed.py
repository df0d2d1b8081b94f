"""The closed form: for every configuration, what a replica takes within the objectives, over all loads at once.

A replica with n sequences under way makes a token of each in a step, and every sequence brings one prompt in the time
it takes to make its answer. So the load that keeps n sequences under way is n over the time that a request stays, and
one array of n gives the whole curve from load to latency. It has no queues: what it lets through is simulated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.predict.served.steady import SteadyTimes, Traffic, held_tokens, kernel_parts, steady_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.served import Objective
    from inferometer.predict.served.question import ServedReplica

_POINTS, _FEW = 48, 12
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


@frozen
class PoolTimes:
    """Replicas of two pools: one only reads prompts, the other only makes answers.

    A prompt takes `read_s` by itself, and `share_s` of a reader's time where steps are full of them.
    """

    read_s: float
    share_s: float
    writing: LoadCurve

    def ttft_s(self, rate_per_s: float) -> float:
        """Prompts come at any time, and wait as behind one server that is busy so much of the time."""
        busy = min(_SPARED, rate_per_s * self.share_s)
        return self.read_s + busy / (2 * (1 - busy)) * self.share_s

    def reads_per_s(self, objectives: Sequence[Objective]) -> float:
        """The most prompts a second within the objectives; 0 where not even one by itself is."""
        waits = min((goal.limit_s - self.read_s for goal in objectives if goal.metric == "ttft"), default=float("inf"))
        if waits < 0:
            return 0.0
        busy = _SPARED if waits == float("inf") else 2 * waits / (2 * waits + self.share_s)
        return min(_SPARED, busy) / self.share_s


def pool_times(what: ServedReplica, traffic: Traffic, most: int) -> PoolTimes:
    """As `load_curve`, of pools apart."""
    count = _counts(what, traffic, most)
    one = _times(what, traffic, 1)
    tpot_s = _decode_seconds(what, traffic, count) / _gained(traffic)
    writing = LoadCurve(
        sequences=count,
        rate_per_s=count / (max(1, traffic.generate - 1) * tpot_s),
        ttft_s=np.zeros(len(count)),
        tpot_s=tpot_s,
    )
    return PoolTimes(read_s=float(one.alone), share_s=float(one.share), writing=writing)


def _counts(what: ServedReplica, traffic: Traffic, most: int) -> Any:
    memory = what.memory
    held = most if memory is None else min(most, memory.sequences_of(held_tokens(what.limits, traffic)))
    return np.unique(np.rint(np.geomspace(1, max(1, held), _POINTS)).astype(int)).astype(float)


def load_curve(what: ServedReplica, traffic: Traffic, most: int) -> LoadCurve:
    """`most` sequences at once in each copy of attention, or as many as its cache holds."""
    count = _counts(what, traffic, most)
    decode_s = _decode_seconds(what, traffic, count)
    one, full = _times(what, traffic, 1), _times(what, traffic, int(count[-1]))
    share = (count - 1) / max(1.0, count[-1] - 1)
    own_s = one.own + share * (full.own - one.own)
    extra_s = np.minimum(one.extra + share * (full.extra - one.extra), full.share)
    tpot_s = decode_s / _gained(traffic) + count * extra_s / traffic.generate
    ttft_s = own_s + decode_s / 2
    stay_s = ttft_s + (traffic.generate - 1) * tpot_s
    whole = what.replicas * count  # all copies of attention together, each with as many
    return LoadCurve(sequences=whole, rate_per_s=whole / stay_s, ttft_s=ttft_s, tpot_s=tpot_s)


def _gained(traffic: Traffic) -> float:
    """Tokens of a sequence that a step makes."""
    return traffic.drafts.gained if traffic.drafts else 1.0


def _decode_seconds(what: ServedReplica, traffic: Traffic, count: Any) -> Any:
    """Steps that only decode: what `steady_times` has, for all loads at once.

    Where sequences share out among stages of a pipeline and wait for the slowest, it is asked at a few loads, and lies
    on a line between their logarithms in between.
    """
    context, drafts = traffic.prompt + traffic.generate / 2, traffic.drafts
    if what.stages > 1:
        some = np.unique(count[np.linspace(0, len(count) - 1, _FEW).round().astype(int)])
        seconds = [float(_times(what, traffic, int(each)).decode) for each in some]
        return np.exp(np.interp(np.log(count), np.log(some), np.log(seconds)))
    if drafts is None:
        return what.step.decode_seconds(count, context)
    costs = what.step.costs
    drafting = 0.0 if drafts.step is None else drafts.length * drafts.step.decode_seconds(count, context)
    kernels = what.step.decode_kernels(count, context, verified=1 + drafts.length) + drafting
    return costs.kernels.value * kernels + costs.step_s.value + count * costs.sequence_s.value


def _times(what: ServedReplica, traffic: Traffic, sequences: int) -> SteadyTimes:
    parts = kernel_parts(
        what.step, what.rules, what.limits, traffic, sequences=sequences, users=sequences, stages=what.stages
    )
    return steady_times(parts, what.step.costs)
