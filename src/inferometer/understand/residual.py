"""Explaining the residual: why a measured time differs from its prediction.

Each op of a measured profile has its prediction beside it. Summed by kind, they show where the difference lies, and
that points to a cause. If all kinds are off by one factor, it is the device (clock, memory, power limit). If it is the
ops with little work and the time between ops, it is the runtime (launches, threads, fusion). If it is one kind or one
layer, the model does something there that was not priced.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from math import exp, log
from typing import Any, Literal

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.profile import OpTime, Phase, Profile

Blame = Literal["device", "runtime", "model", "none"]
_NEAR = 0.10  # a phase this near to its prediction needs no explanation
_ALIKE = 0.15  # kinds whose logarithms of measured over predicted lie this near to each other are off alike
_MAINLY = 0.5  # of the difference: one cause explains it
_BESIDE = "beside the layers"
_SMALL_S = 20e-6  # an op predicted to take less is mostly launch


@frozen
class KindGap:
    """One kind of op: seconds measured and predicted, and its share of all kinds' differences, positive if slower."""

    kind: str
    measured_s: float
    predicted_s: float
    share: float
    ops: int


@frozen
class ResidualStory:
    """One phase: how far off it is, where the difference lies, and its likely cause."""

    phase: str
    measured_s: float
    predicted_s: float
    kinds: tuple[KindGap, ...]
    blame: Blame
    sentence: str


def residual_documents(profile: Profile) -> list[dict[str, Any]]:
    """How the measurement differs from the prediction beside it, by phase; empty if there is no prediction."""
    if profile.kind != "measured" or not any(phase.predicted_s and phase.ops for phase in profile.phases):
        return []
    return [asdict(story) for story in explain_residual(profile)]


def explain_residual(profile: Profile) -> tuple[ResidualStory, ...]:
    """A story for each measured phase that has a prediction beside it."""
    stories = tuple(_story(phase) for phase in profile.phases if phase.predicted_s and phase.ops)
    if not stories:
        raise DomainError(
            f"The profile of {profile.model.name} has no prediction beside its measured ops.",
            remedy="Measure with `inferometer profile --predict`.",
        )
    return stories


def _story(phase: Phase) -> ResidualStory:
    predicted = phase.predicted_s or 0.0
    gap = phase.time_s - predicted
    compared = [op for op in phase.ops if op.predicted_s]
    kinds = _kinds(phase, compared)
    blame, sentence = _blame(phase, compared, kinds, gap)
    return ResidualStory(
        phase=phase.name,
        measured_s=phase.time_s,
        predicted_s=predicted,
        kinds=kinds,
        blame=blame,
        sentence=sentence,
    )


def _kinds(phase: Phase, ops: Sequence[OpTime]) -> tuple[KindGap, ...]:
    """The largest difference first. The time beside the ops that have a prediction is a kind of its own."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for op in ops:
        total = sums[op.kind]
        total[0] += op.time_s
        total[1] += op.predicted_s or 0.0
        total[2] += op.count
    covered = [sum(total[place] for total in sums.values()) for place in (0, 1)]
    sums[_BESIDE] = [phase.time_s - covered[0], (phase.predicted_s or 0.0) - covered[1], 0.0]
    moved = sum(abs(measured - predicted) for measured, predicted, _ in sums.values()) or 1.0
    gaps = [
        KindGap(
            kind=kind,
            measured_s=measured,
            predicted_s=predicted,
            share=(measured - predicted) / moved,
            ops=int(count),
        )
        for kind, (measured, predicted, count) in sums.items()
    ]
    return tuple(sorted(gaps, key=lambda kind_gap: -abs(kind_gap.measured_s - kind_gap.predicted_s)))


def _blame(phase: Phase, ops: Sequence[OpTime], kinds: tuple[KindGap, ...], gap: float) -> tuple[Blame, str]:
    predicted = phase.predicted_s or 0.0
    ratio = phase.time_s / predicted
    way = f"{abs(ratio - 1):.0%} {'slower' if gap > 0 else 'faster'} than predicted"
    if abs(ratio - 1) <= _NEAR:
        return "none", f"The {phase.name} phase is within {abs(ratio - 1):.0%} of its prediction."
    slower = gap > 0
    small = _small_share(phase, ops, kinds) * (1 if slower else -1)
    if small > _MAINLY:
        return "runtime", (
            f"The {phase.name} phase is {way}, and {small:.0%} of the difference is in ops of little work and between "
            "ops: the runtime's launches, threads or fusion are not what its row says."
        )
    if _alike(kinds, phase.time_s):
        return "device", (
            f"The {phase.name} phase is {way}, and all kinds of op are off alike: the device runs at another rate than "
            "its row or calibration says (clock, memory, power limit, other load)."
        )
    worst = next(kind for kind in kinds if (kind.share > 0) == slower)
    if worst.kind == _BESIDE:
        return "runtime", (
            f"The {phase.name} phase is {way}, and {abs(worst.share):.0%} of the difference is beside the layers: "
            "launches, copies and kernels of the engine's own, which a prediction does not list."
        )
    return "model", (
        f"The {phase.name} phase is {way}, and {abs(worst.share):.0%} of the difference is in {worst.kind}, which took "
        f"{worst.measured_s / max(worst.predicted_s, 1e-12):.2g} times its prediction: what the model does there is "
        f"not what was priced{_worst_layer(ops, worst.kind)}."
    )


def _small_share(phase: Phase, ops: Sequence[OpTime], kinds: Sequence[KindGap]) -> float:
    """The share of all differences in ops whose floor is a small part of their time, and between ops."""
    own = [op for op in ops if (op.predicted_s or 0.0) / op.count < _SMALL_S and (op.floor_s or 0.0) < 0.3 * op.time_s]
    between = (phase.time_s - sum(op.time_s for op in ops)) - (
        (phase.predicted_s or 0.0) - sum(op.predicted_s or 0.0 for op in ops)
    )
    moved = sum(abs(kind.measured_s - kind.predicted_s) for kind in kinds)
    return (sum(op.time_s - (op.predicted_s or 0.0) for op in own) + between) / moved if moved else 0.0


def _alike(kinds: tuple[KindGap, ...], time_s: float) -> bool:
    """Whether the kinds that matter, at least two, are off by nearly the same factor."""
    log_ratios = [
        log(gap.measured_s / gap.predicted_s)
        for gap in kinds
        if gap.kind != _BESIDE and min(gap.measured_s, gap.predicted_s) > 0.05 * time_s
    ]
    return (
        len(log_ratios) > 1
        and max(log_ratios) - min(log_ratios) < 2 * _ALIKE
        and exp(min(map(abs, log_ratios))) > 1 + _NEAR / 2
    )


def _worst_layer(ops: Sequence[OpTime], kind: str) -> str:
    """Names the layer that alone has most of its kind's difference, if there is one."""
    gaps = {op.name: op.time_s - (op.predicted_s or 0.0) for op in ops if op.kind == kind}
    if len(gaps) < 2:
        return ""
    total = sum(gaps.values())
    name = max(gaps, key=lambda layer: abs(gaps[layer]))
    return f" (most of it in {name})" if abs(gaps[name]) > _MAINLY * abs(total) else ""
