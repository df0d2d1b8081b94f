"""Putting the prediction and the floor beside each measured op."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import fsum

from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.core.profile import Bound, OpTime, Phase, Profile
from inferometer.core.request import BARE, RUN

_SOME = 0.05  # of a phase's time: less is not worth a remark


@frozen
class _Expected:
    time_s: float
    floor_s: float | None  # None: its work is not known
    bound: Bound | None
    rung: str | None


def with_prediction(measured: Profile, predicted: Profile, graph: Graph) -> Profile:
    """The measured profile with `predicted_s`, its `rung`, `floor_s` and the bound of each op that the prediction has.

    A kernel that fused several layers is compared with the sum of theirs; its rung is that of the longest. Where a
    sensor was looked for and none answered, the predicted joules stand with the reason.
    """
    environment = measured.environment
    bare = environment is not None and environment.host.get("loop") == "bare"
    expected = {phase.name: without_loop(phase) if bare else phase for phase in predicted.phases}
    phases = tuple(_phase(phase, expected.get(phase.name), graph) for phase in measured.phases)
    if environment is not None and environment.energy is not None and not environment.energy.sensors:
        joules = {phase.name: phase.energy_j for phase in predicted.phases if phase.energy_j is not None}
        environment = replace(environment, energy=replace(environment.energy, predicted_j=joules))
    return replace(measured, phases=phases, environment=environment)


def without_loop(phase: Phase) -> Phase:
    """A predicted phase as passes alone take it: what a loop writes, reads and does between them is left out."""
    around_s = fsum(seconds for name, seconds in phase.parts.items() if name not in BARE)
    if not around_s:
        return phase
    parts = {name: seconds for name, seconds in phase.parts.items() if name in BARE}
    return replace(phase, time_s=phase.time_s - around_s, parts=parts)


def _phase(phase: Phase, predicted: Phase | None, graph: Graph) -> Phase:
    if predicted is None or predicted.time_s <= 0:  # a load of 0 s is one that nothing is known about
        return phase
    expected = _by_layer(predicted, graph)
    ops = tuple(_op(op, expected) for op in phase.ops)
    whole_s = None if predicted.high_s is None else predicted.time_s  # a part of it is no prediction of the whole
    return replace(
        phase, ops=ops, predicted_s=whole_s, floor_s=predicted.floor_s, bound=phase.bound or predicted.bound,
        predicted_parts={} if whole_s is None else _predicted_parts(phase.parts, predicted.parts),
    )  # fmt: skip


def _predicted_parts(measured: Mapping[str, float], predicted: Mapping[str, float]) -> dict[str, float]:
    """The prediction of each part that was measured; what the engine's clock does not tell apart is in its run."""
    if RUN not in measured:
        return {}
    inside = fsum(seconds for name, seconds in predicted.items() if name == RUN or name not in measured)
    return {name: inside if name == RUN else predicted[name] for name in measured if name == RUN or name in predicted}


def _by_layer(predicted: Phase, graph: Graph) -> Mapping[str, _Expected]:
    """Each repetition under its own name: a prediction lists equal layers once."""
    templates = {block.full_name(op.name): (block, op) for block, op in graph.ops()}
    by_name: dict[str, _Expected] = {}
    for op in predicted.ops:
        floor_s = None if op.floor_s is None else op.floor_s / op.count
        expected = _Expected(time_s=op.time_s / op.count, floor_s=floor_s, bound=op.bound, rung=op.rung)
        if op.name not in templates:
            by_name[op.name] = expected
            continue
        block, template = templates[op.name]
        for repetition in range(block.count):
            by_name[block.full_name(template.name, repetition)] = expected
    return by_name


def _op(op: OpTime, expected: Mapping[str, _Expected]) -> OpTime:
    known = [expected[name] for name in (op.layers or (op.name,)) if name in expected]
    if not known:
        return op
    floors = [layer.floor_s for layer in known if layer.floor_s is not None]
    longest = max(known, key=lambda layer: layer.time_s)
    return replace(
        op,
        predicted_s=sum(layer.time_s for layer in known),
        floor_s=sum(floors) if floors else None,
        bound=longest.bound,
        rung=longest.rung,
    )


def remarks(profile: Profile, *, cores: int | None) -> Iterator[str]:
    """Remarks on floors: one that counts more cores than the engine had, and ops that beat theirs."""
    threads = profile.environment.threads if profile.environment else None
    if threads is not None and cores is not None and threads < cores:
        yield f"The floor counts all {cores} cores; the engine had {threads} thread{'s' if threads > 1 else ''}."
    for phase in profile.phases:
        quick = [op for op in phase.ops if op.floor_s is not None and op.time_s < op.floor_s]
        share = sum(op.time_s for op in quick) / phase.time_s if phase.time_s > 0 else 0.0
        if share > _SOME:
            yield f"{phase.name}: {len(quick)} layers, {share:.0%} of the time, beat their floor: {_why(quick)}."


def _why(quick: Sequence[OpTime]) -> str:
    """Floors count main memory, not caches, and use a roof that was measured at another moment."""
    memory = sum(1 for op in quick if op.bound == "memory")
    reasons = []
    if memory:
        reasons.append(f"{memory} are bound by memory, and what they read was still in the caches")
    if memory < len(quick):
        reasons.append(
            f"{len(quick) - memory} are bound by compute, and did better than the roof, which is numpy's best in f32: "
            f"the engine has better instructions, an algorithm with fewer operations, or fewer bits"
        )
    return "; ".join(reasons)
