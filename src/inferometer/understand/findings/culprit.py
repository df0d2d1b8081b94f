"""One op that takes much of a phase by itself, and an engine that was told not to optimise."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from inferometer.core.finding import Finding
from inferometer.understand.case import Case, at_most, at_stake, command_option, evidence, phase_words, times_words

if TYPE_CHECKING:
    from inferometer.core.graph import Graph, Op
    from inferometer.core.profile import OpTime, Phase

_MOST = 0.3  # of a phase, for one op; `findings.toml` says the same in words
_FEWEST_OPS = 4  # among which one can dominate
_FAR = 3.0  # times its floor from which on an op is slow for its work
_NUMBER = re.compile(r"\d+")
_KINDS = {"linear": "matrix product", "matmul": "product of two activations", "moe_experts": "product of experts"}
_BOUND = {"compute": "arithmetic", "memory": "moving bytes", "overhead": "starting it"}


def op_dominates(case: Case) -> Finding | None:
    """The op that costs a request the most, if it alone takes a large part of its phase."""
    candidates = [
        (phase, op)
        for phase in case.repeating
        if len(phase.ops) >= _FEWEST_OPS
        for op in phase.ops
        if op.count == 1 and op.kind != "collective" and op.time_s >= _MOST * phase.time_s
    ]
    if not candidates:
        return None
    phase, op = max(candidates, key=lambda pair: case.stake(pair[0], pair[1].time_s))
    share = op.time_s / phase.time_s
    above = op.time_s / op.floor_s if op.floor_s else None
    return Finding(
        code="op.dominates",
        title=f"{op.name}, {_article(_shape_words(op, case.graph))}, takes {share:.0%} of {phase_words(phase)}",
        evidence=evidence(
            share=share,
            time_s=op.time_s,
            floor_s=op.floor_s,
            times_its_floor=above,
            work_share=_work_share(op, phase),
            speedup_at_most=at_most(share),
        ),
        advice=f"{_why(case, phase, op, above)} {_do(above)}",
        **at_stake(case, phase, op.time_s),
    )


def _shape_words(op: OpTime, graph: Graph | None) -> str:
    """What the op is, with its shape where the model is at hand: `7×7 convolution, 3 → 64 channels`."""
    behind = _behind(op, graph)
    kind = _KINDS.get(op.kind, op.kind.replace("_", " "))
    shape = behind.weights[0].shape if behind is not None and behind.weights else ()
    sizes = [size for size in shape if isinstance(size, int)]
    if behind is None or len(sizes) != len(shape) or len(sizes) < 2:
        return kind
    if behind.kind == "convolution" and len(sizes) > 2:
        inputs = sizes[1] * behind.get("groups", 1)
        return f"{'×'.join(map(str, sizes[2:]))} {kind}, {inputs} → {sizes[0]} channels"
    return f"{kind}, {sizes[1]} → {sizes[0]}" if behind.kind == "linear" else kind


def _behind(op: OpTime, graph: Graph | None) -> Op | None:
    """The model's op of that name; a layer of a stack is named with its number, and the graph has it once."""
    if graph is None:
        return None
    names = {op.name, *op.layers[:1]}
    stacked = {_NUMBER.sub("{}", name) for name in names}
    return next((one for _, one in graph.ops() if one.name in names or one.name in stacked), None)


def _article(words: str) -> str:
    return f"{'an' if words[0] in 'aeio' or words.startswith(('8', '11')) else 'a'} {words}"


def _work_share(op: OpTime, phase: Phase) -> float | None:
    works = [one.flops for one in phase.ops]
    if op.flops is None or any(work is None for work in works):
        return None
    total = sum(work or 0.0 for work in works)
    return op.flops / total if total > 0 else None


def _why(case: Case, phase: Phase, op: OpTime, above: float | None) -> str:
    """Whether it has as much to do, or is slow for what it has to do."""
    work = _work_share(op, phase)
    did = f"It has {work:.0%} of the arithmetic of {phase_words(phase)}" if work is not None else "It stands out"
    regime = next((point.regime for point in case.roof.ops if (point.phase, point.name) == (phase.name, op.name)), None)
    bound = f" and is bound by {_BOUND[regime]}" if regime in _BOUND else ""
    floor = f", at {times_words(above)} times its floor" if above is not None else ""
    return f"{did}{bound}{floor}."


def _do(above: float | None) -> str:
    if above is not None and above < _FAR:
        return "It runs near what the device can do: a smaller or cheaper layer in its place is what helps."
    return (
        "Its kernel is far from what the device can do: try another runtime, number format or layout for this layer, "
        "or replace it by a cheaper one."
    )


def optimisation_off(case: Case) -> Finding | None:
    """A measured run whose engine was told to leave the graph as it is."""
    if case.profile.kind != "measured" or command_option(case, "--optimisation") != "none":
        return None
    return Finding(
        code="optimisation.off",
        severity="warning",
        title="The engine was told not to optimise the graph (--optimisation none)",
        evidence=evidence(ops=sum(op.count for phase in case.repeating for op in phase.ops) or None),
        advice="Measure it with --optimisation all, which is the default: without it ops are not fused, and layouts "
        "are not chosen for the kernels. A prediction expects both.",
        stake_s=case.request_s or 0.0,
        changes=("optimisation=all",),
    )
