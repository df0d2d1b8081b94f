"""Time, throughput and latency: execution time, pipelines, percentiles, tails and speed-up."""

from typing import Any

import numpy as np

from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.elementwise import greatest, least, whole_above
from inferometer.known.formulas.registry import formula, require

_HENNESSY = "Hennessy & Patterson, Computer Architecture: A Quantitative Approach, ch. 1"
_HYNDMAN = "Hyndman & Fan 1996, Sample Quantiles in Statistical Packages"


@formula(
    row="3.1 Execution time (CPI)",
    source=_HENNESSY,
    example={"instructions": 8e9, "cpi": 0.625, "frequency": 3.2e9},
    answer=1.5625,
)
def execution_time_cpi(*, instructions: q.Instructions, cpi: q.CyclesPerInstruction, frequency: q.Hertz) -> q.Seconds:
    """The time a program runs, from its instructions and their mean cost.

    Derivation: instr × cycle/instr = cycles; cycles ÷ cycle/s = seconds.
    Units: instr, cycle/instr and Hz → s.
    Ignores: time off the core (I/O, the scheduler, waiting for a device), which retires no instructions.
    """
    return instructions * cpi / frequency


@formula(
    row="3.1 Execution time (IPC)",
    source=_HENNESSY,
    example={"instructions": 8e9, "ipc": 1.6, "frequency": 3.2e9},
    answer=1.5625,
)
def execution_time_ipc(*, instructions: q.Instructions, ipc: q.InstructionsPerCycle, frequency: q.Hertz) -> q.Seconds:
    """The time a program runs, from its instructions and how many retire per cycle.

    Derivation: the CPI form with CPI = 1/IPC.
    Units: instr, instr/cycle and Hz → s.
    Ignores: time off the core, as the CPI form does.
    """
    return execution_time_cpi(instructions=instructions, cpi=1.0 / ipc, frequency=frequency)


@formula(row="3.2 Throughput", source="definition", example={"work": 1200, "time": 60.0}, answer=20.0)
def throughput(*, work: q.Amount, time: q.SomeSeconds) -> q.Rate:
    """Work done per second.

    Derivation: a count over the time in which it was completed.
    Units: anything countable and s → 1/s.
    Ignores: work begun and not finished, and the warm-up, unless the caller leaves both out.
    """
    return work / time


@formula(row="3.3 Throughput (serial server)", source="definition", example={"latency": 0.05}, answer=20.0)
def throughput_serial(*, latency: q.SomeSeconds) -> q.SomeRate:
    """The throughput of a server that takes one request at a time.

    Derivation: the next request starts when the last one ends, so one completes every `latency` seconds. The source
    calls this the fully pipelined case. It is the opposite: a pipeline has several requests in flight and completes
    one per slowest stage (`throughput_pipeline`). In general throughput = requests in flight/latency (Little).
    Units: s → 1/s.
    Ignores: idle time. It is the rate under constant demand.
    """
    return throughput(work=1, time=latency)


@formula(row="3.3 Throughput (pipeline)", source=_HENNESSY, example={"stages": [0.010, 0.020, 0.005]}, answer=50.0)
def throughput_pipeline(*, stages: q.SecondsList) -> q.SomeRate:
    """The throughput of a full pipeline.

    Derivation: each stage works on another request, and all hand on together; the slowest stage sets the beat, so one
    request completes every max(stage) seconds. The latency is still the sum of the stages.
    Units: a list of s → 1/s.
    Ignores: filling and draining, queues between stages, and stages that share one device.
    """
    slowest = np.max(stages, axis=-1)
    require(slowest > 0, "stages must hold a time greater than 0", stages=stages)
    return throughput(work=1, time=slowest)


@formula(
    row="3.4 Percentile (nearest rank)",
    source=f"{_HYNDMAN}, definition 1",
    example={"samples": list(range(1, 101)), "p": 0.95},
    answer=95.0,
)
def percentile_nearest_rank(*, samples: q.SampleList, p: q.Fraction) -> q.Instant:
    """The smallest sample that at least a share `p` of all samples do not exceed.

    Derivation: of n sorted samples the r-th (from 1) has r samples at or below it; r/n ≥ p first holds for r = ⌈p·n⌉.
    A rank of ⌊p·n⌋ counted from 0 is one too high: of 100 samples it takes the 96th for the 95th percentile.
    Units: the samples' own unit (seconds unless stated otherwise) and a fraction → that unit.
    Ignores: how few samples there are. A 99th percentile of 20 samples is their maximum.
    """
    rank = greatest(whole_above(p * np.shape(samples)[-1]), 1)
    return _at(samples, rank - 1)


@formula(
    row="3.4 Percentile (linear, numpy)",
    source=f"{_HYNDMAN}, definition 7",
    example={"samples": list(range(1, 101)), "p": 0.95},
    answer=95.05,
)
def percentile_linear(*, samples: q.SampleList, p: q.Fraction) -> q.Instant:
    """The percentile that interpolates between the two nearest samples: numpy's default.

    Derivation: lay the n sorted samples at 0, 1, … n−1 and read at h = (n−1)·p: x[⌊h⌋] + (h−⌊h⌋)·(x[⌊h⌋+1] − x[⌊h⌋]).
    Units: the samples' own unit (seconds unless stated otherwise) and a fraction → that unit.
    Ignores: how few samples there are, and that no sample may have the value it gives.
    """
    last = np.shape(samples)[-1] - 1
    position = last * p
    below = np.floor(position)
    low, high = _at(samples, below), _at(samples, least(below + 1, last))
    return low + (position - below) * (high - low)


def _at(samples: Any, rank: Any) -> Any:
    """The sample of a rank (from 0) in sorted order; ranks and rows of samples broadcast."""
    ordered, ranks = np.sort(samples, axis=-1), np.asarray(rank, dtype=np.intp)
    shape = np.broadcast_shapes(ranks.shape, ordered.shape[:-1])
    rows = np.broadcast_to(ordered, (*shape, ordered.shape[-1]))
    return np.take_along_axis(rows, np.broadcast_to(ranks, shape)[..., None], axis=-1)[..., 0]


@formula(
    row="3.4 Fan-out tail probability",
    source="Dean & Barroso 2013, The Tail at Scale",
    example={"p": 0.01, "n": 100},
    answer=0.6339676587267709,
)
def fanout_tail_probability(*, p: q.Probability, n: q.Count) -> q.Probability:
    """The chance that a request which asks `n` servers meets at least one slow one.

    Derivation: a server is fast with 1−p; all n are fast with (1−p)ⁿ; the rest is 1 − (1−p)ⁿ. Computed through
    logarithms, so that a tiny p does not vanish against 1.
    Units: a probability and a count → a probability.
    Ignores: servers that are slow together (a shared disk, network or garbage collection). They must be independent.
    """
    with np.errstate(divide="ignore", over="ignore"):  # log(0) = −∞ is right for p = 1: the tail is certain
        return -np.expm1(n * np.log1p(-p))


@formula(row="3.5 Speedup", source="definition", example={"before": 2.744, "after": 1.27}, answer=2.1606299212598428)
def speedup(*, before: q.SomeSeconds, after: q.SomeSeconds) -> q.SomeRatio:
    """How many times faster the second time is.

    Derivation: the same work at rates W/T₁ and W/T₂; their ratio is T₁/T₂.
    Units: s and s → 1.
    Ignores: noise. One pair of times is no verdict; compare samples.
    """
    return before / after
