"""Parallel speed-up: Amdahl, Gustafson, Karp–Flatt, balance and scaling efficiency."""

import numpy as np

from inferometer.known.formulas import latency
from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.registry import formula, require

_AMDAHL = "Amdahl 1967, Validity of the Single Processor Approach"


@formula(row="5.1 Amdahl (general)", source=_AMDAHL, example={"fraction": 0.9, "speedup": 4}, answer=40 / 13)
def amdahl(*, fraction: q.Fraction, speedup: q.SomeRatio) -> q.SomeRatio:
    """The speed-up of the whole when a fraction of it gets faster.

    Derivation: of a time of 1, the part 1−f stays and the part f becomes f/s. Speed-up = 1/((1−f) + f/s).
    Units: a fraction of the old time and a ratio → a ratio.
    Ignores: what the change costs elsewhere, and that `fraction` is of time, not of code or of operations.
    """
    return 1.0 / ((1.0 - fraction) + fraction / speedup)


@formula(row="5.1 Amdahl (N cores)", source=_AMDAHL, example={"fraction": 0.95, "n": 8}, answer=160 / 27)
def amdahl_cores(*, fraction: q.Fraction, n: q.Count) -> q.SomeRatio:
    """The speed-up of `n` cores on a program whose parallel part is `fraction`.

    Derivation: the general form with s = n: the parallel part is shared out evenly.
    Units: a fraction of the one-core time and a count → a ratio.
    Ignores: communication, imbalance, shared bandwidth, and clocks that fall as more cores wake up.
    """
    return amdahl(fraction=fraction, speedup=n)


@formula(row="5.1 Amdahl limit", source=_AMDAHL, example={"fraction": 0.95}, answer=20.0)
def amdahl_limit(*, fraction: q.PartFraction) -> q.SomeRatio:
    """The speed-up that no number of cores can pass.

    Derivation: f/s → 0 as s → ∞, so the speed-up → 1/(1−f).
    Units: a fraction of the one-core time → a ratio.
    Ignores: problems that grow with the machine; see Gustafson. A fraction of 1 has no limit and is refused.
    """
    return 1.0 / (1.0 - fraction)


@formula(
    row="5.2 Gustafson",
    source="Gustafson 1988, Reevaluating Amdahl's Law",
    example={"fraction": 0.95, "n": 8},
    answer=7.65,
)
def gustafson(*, fraction: q.Fraction, n: q.Count) -> q.SomeRatio:
    """The scaled speed-up: how much longer one core would take for what `n` cores did.

    Derivation: on n cores a time of 1 has a serial part 1−f and a parallel part f. One core needs (1−f) + n·f for it.
    Units: a fraction of the n-core time and a count → a ratio. (Amdahl's fraction is of the one-core time.)
    Ignores: communication, and whether a larger problem is wanted at all.
    """
    return (1.0 - fraction) + n * fraction


@formula(row="5.3 Parallel efficiency", source="definition", example={"speedup": 160 / 27, "n": 8}, answer=20 / 27)
def parallel_efficiency(*, speedup: q.SomeRatio, n: q.Count) -> q.SomeRatio:
    """Speed-up per worker.

    Derivation: n workers could give n; the share reached is S/n.
    Units: a ratio and a count → 1.
    Ignores: the reason. Values above 1 are real where the parts fit into a cache that the whole does not.
    """
    return speedup / n


@formula(
    row="5.3 Karp–Flatt serial fraction",
    source="Karp & Flatt 1990, Measuring Parallel Processor Performance",
    example={"speedup": 160 / 27, "n": 8},
    answer=0.05,
)
def karp_flatt(*, speedup: q.SomeRatio, n: q.Several) -> q.Real:
    """The serial fraction that a measured speed-up betrays.

    Derivation: Amdahl for n cores is 1/S = e + (1−e)/n; solved for e it is (1/S − 1/n)/(1 − 1/n).
    Units: a ratio and a count of 2 or more → 1.
    Ignores: nothing that costs time: overheads are in it. If it grows with n, overhead grows; if it stays, the program
    is serial there. It is negative where the speed-up is above n.
    """
    return (1.0 / speedup - 1.0 / n) / (1.0 - 1.0 / n)


@formula(row="5.4 Load balance", source="definition", example={"times": [8, 9, 10, 9]}, answer=0.9)
def load_balance(*, times: q.SecondsList) -> q.SomeFraction:
    """How evenly workers are loaded: 1 is perfect.

    Derivation: all wait for the slowest, so n·max(T) worker-seconds are paid and ΣT are used; the share is mean/max.
    Units: a list of s → 1.
    Ignores: when the work is done. Workers that wait for each other in the middle look balanced.
    """
    slowest = np.max(times, axis=-1)
    require(slowest > 0, "times must hold a time greater than 0", times=times)
    return np.mean(times, axis=-1) / slowest


@formula(
    row="5.5 Strong-scaling efficiency",
    source="definition",
    example={"time_one": 100.0, "n": 8, "time_n": 15.625},
    answer=0.8,
)
def strong_scaling_efficiency(*, time_one: q.SomeSeconds, n: q.Count, time_n: q.SomeSeconds) -> q.SomeRatio:
    """Parallel efficiency for a problem of fixed size.

    Derivation: speed-up T₁/Tₙ over n workers = T₁/(n·Tₙ).
    Units: s, a count and s → 1.
    Ignores: that one worker may run other code. T₁ is the best serial time, not the parallel code on one worker.
    """
    return parallel_efficiency(speedup=latency.speedup(before=time_one, after=time_n), n=n)


@formula(
    row="5.5 Weak-scaling efficiency",
    source="definition",
    example={"time_one": 100.0, "time_n": 110.0},
    answer=10 / 11,
)
def weak_scaling_efficiency(*, time_one: q.SomeSeconds, time_n: q.SomeSeconds) -> q.SomeRatio:
    """Efficiency where the problem grows with the workers.

    Derivation: each of n workers has the work that one had, so ideally Tₙ = T₁; the share kept is T₁/Tₙ.
    Units: s and s → 1.
    Ignores: whether the work per worker really stayed the same, which is the caller's to see to.
    """
    return latency.speedup(before=time_one, after=time_n)
