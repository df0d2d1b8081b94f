"""Time that does not do the model's work: starting ops, moving things about, converting, padding, waiting."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import fsum
from typing import TYPE_CHECKING

from inferometer.catalog.engines import engine_or_ideal
from inferometer.core.finding import Finding
from inferometer.explain.case import Case, at_most, evidence, faster, graded, named

if TYPE_CHECKING:
    from inferometer.core.profile import OpTime, Phase

_LAUNCH, _GAP, _MOVES, _COPIES, _CONVERT, _PAD, _LINK = 0.3, 0.15, 0.1, 0.1, 0.05, 0.15, 0.15
_MANY_OPS = 20
_TILE = 128  # rows that a matrix unit of a GPU takes at once in its large kernels
_ACROSS = re.compile(r"memcpy|h2d|d2h|htod|dtoh|host.?to.?device|device.?to.?host", re.IGNORECASE)
_COPY_PARTS = ("write", "read")
_FUSE = (
    "Fuse them (graph optimisation, torch.compile), capture the step as one graph (CUDA graphs), or give each more to "
    "do with a larger batch."
)
_FUSE_ON_CPU = (
    "Fuse them (graph optimisation, an engine that compiles), try fewer threads, since every op waits for all of them, "
    "or give each more to do with a larger batch."
)


def launch_bound(case: Case) -> Finding | None:
    best = _worst(case, lambda phase: fsum(op.time_s for op in case.in_regime(phase, "overhead")))
    if best is None:
        return None
    phase, seconds = best
    ops = case.in_regime(phase, "overhead")
    count, share = sum(op.count for op in ops), seconds / phase.time_s
    if share < _LAUNCH or count < _MANY_OPS:
        return None
    compiler = engine_or_ideal(case.profile.runtime).compiled_by
    compiled = f"runtime={compiler}" if compiler else None
    gain = case.price(compiled, phase.name) if compiled else None
    limit = at_most(share)
    return Finding(
        code="launch.bound",
        severity=graded(case.share(case.stake(phase, seconds))),
        title=f"{count} small ops take {share:.0%} of {named(phase)}, and have hardly any work",
        evidence=evidence(
            small_ops=count,
            share=share,
            time_s=seconds,
            each_s=seconds / count,
            launch_s=case.device.launch_s.value if case.device and case.device.launch_s else None,
            speedup_at_most=limit,
        ),
        advice=_FUSE_ON_CPU if case.unit in {None, "cpu"} else _FUSE,
        **faster(gain),
        phase=phase.name,
        stake_s=case.stake(phase, seconds),
        changes=(compiled,) if compiled else ("optimisation=all", f"batch={8 * case.profile.workload.batch}"),
    )


def host_gap(case: Case) -> Finding | None:
    """Time in no op: from the remainder, or from the device's own clock where it stands still while ops last."""
    best = _worst(case, _gap_of)
    if best is None:
        return None
    phase, seconds = best
    share, count = seconds / phase.time_s, sum(op.count for op in phase.ops)
    if share < _GAP:
        return None
    return Finding(
        code="host.gap",
        severity=graded(case.share(case.stake(phase, seconds))),
        title=f"{share:.0%} of {named(phase)} is in no op",
        evidence=evidence(
            gap_s=seconds, share=share, gap_per_op_s=seconds / max(count, 1), ops=count, speedup_at_most=at_most(share)
        ),
        advice="See what the host does between ops: Python, locks, logging, waiting for the device, or other programs "
        "on its cores. Capture the step as a graph, keep the loop out of Python, and pin threads.",
        phase=phase.name,
        stake_s=case.stake(phase, seconds),
    )


def _gap_of(phase: Phase) -> float:
    if not phase.ops:
        return 0.0
    idle = [op.time_s - op.device_s for op in phase.ops if op.device_s is not None]
    outside = phase.time_s - fsum(op.time_s for op in phase.ops)
    return max(outside, 0.0) + fsum(max(each, 0.0) for each in idle)


def layout_moves(case: Case) -> Finding | None:
    best = _worst(case, lambda phase: fsum(op.time_s for op in phase.ops if _is_move(op)))
    if best is None:
        return None
    phase, seconds = best
    share, moves = seconds / phase.time_s, [op for op in phase.ops if _is_move(op)]
    if share < _MOVES:
        return None
    casts = fsum(op.time_s for op in moves if op.kind == "cast")
    return Finding(
        code="layout.moves",
        severity=graded(case.share(case.stake(phase, seconds))),
        title=f"Transposes, copies and casts take {share:.0%} of {named(phase)}",
        evidence=evidence(
            share=share,
            time_s=seconds,
            casts_s=casts,
            moves=sum(op.count for op in moves),
            speedup_at_most=at_most(share),
        ),
        advice="Export the model in the layout the engine computes in (NHWC or NCHW, as its kernels want), keep one "
        "number format from end to end, and raise the graph optimisation level, which folds such ops away.",
        phase=phase.name,
        stake_s=case.stake(phase, seconds),
        changes=("optimisation=all",),
    )


def _is_move(op: OpTime) -> bool:
    return op.kind in {"copy", "cast"} and not _crosses(op)


def _crosses(op: OpTime) -> bool:
    """A copy between host and device, by its name."""
    return bool(_ACROSS.search(f"{op.name} {op.kernel or ''}"))


def host_copies(case: Case) -> Finding | None:
    best = _worst(case, _copied)
    if best is None:
        return None
    phase, seconds = best
    share = seconds / phase.time_s
    if share < _COPIES:
        return None
    link = case.device.host_link.bandwidth_bytes_per_s if case.device and case.device.host_link else None
    return Finding(
        code="host.copies",
        severity=graded(case.share(case.stake(phase, seconds))),
        title=f"Copies between host and device take {share:.0%} of {named(phase)}",
        evidence=evidence(
            share=share,
            time_s=seconds,
            link_bytes_per_s=link.value if link else None,
            speedup_at_most=at_most(share),
        ),
        advice="Keep inputs, outputs and the cache on the device (I/O binding), use pinned memory, send smaller types "
        "(uint8 images), and overlap copies with computing.",
        phase=phase.name,
        stake_s=case.stake(phase, seconds),
    )


def _copied(phase: Phase) -> float:
    """By ops that cross, or by the engine's own parts, whichever tells more."""
    across = fsum(op.time_s for op in phase.ops if _crosses(op) or (op.bound == "link" and op.kind != "collective"))
    return max(across, fsum(phase.parts.get(name, 0.0) for name in _COPY_PARTS))


def communication_bound(case: Case) -> Finding | None:
    best = _worst(case, lambda phase: fsum(op.time_s for op in phase.ops if op.kind == "collective"))
    if best is None:
        return None
    phase, seconds = best
    share = seconds / phase.time_s
    if share < _LINK:
        return None
    parallel = case.profile.workload.parallel
    return Finding(
        code="communication.bound",
        severity=graded(case.share(case.stake(phase, seconds))),
        title=f"{parallel.devices} devices exchange results for {share:.0%} of {named(phase)}",
        evidence=evidence(share=share, time_s=seconds, devices=parallel.devices, speedup_at_most=at_most(share)),
        advice="Split over fewer devices, or between layers instead of inside them (pipeline for tensor parallel), use "
        "a faster link, or let communication overlap with computing.",
        phase=phase.name,
        stake_s=case.stake(phase, seconds),
    )


def quantisation_overhead(case: Case) -> Finding | None:
    """Ops that convert, or a runtime that writes the weights out before it uses them."""
    best = _worst(case, lambda phase: fsum(op.time_s for op in phase.ops if op.kind in {"quantize", "dequantize"}))
    phase, seconds = best or (case.steady, 0.0)
    if phase is None:
        return None
    share, expanded = seconds / phase.time_s, _expanded(case)
    if share < _CONVERT and not expanded:
        return None
    wide = case.price("weights=f16", phase.name) if expanded else None
    return Finding(
        code="quantisation.overhead",
        severity=graded(case.share(case.stake(phase, seconds))),
        title=f"Converting number formats takes {share:.0%} of {named(phase)}"
        if seconds
        else f"{case.profile.runtime} writes {case.profile.workload.precision.weights} weights out before it uses them",
        evidence=evidence(
            share=share,
            time_s=seconds,
            weight_bits=case.weight_bits,
            speedup_at_most=at_most(share),
            speedup_in_f16=wide.gain if wide else None,
        ),
        advice="Use a format whose kernels multiply it as it is stored (int8 on this unit, a GGUF block format in "
        "llama.cpp), quantise activations too, or leave the small layers unquantised.",
        phase=phase.name,
        stake_s=case.stake(phase, seconds),
    )


def _expanded(case: Case) -> bool:
    return case.profile.workload.precision.weights in engine_or_ideal(case.profile.runtime).effects.expanded


def padding_waste(case: Case) -> Finding | None:
    """Tokens that a report counts as padding; else rows that fill up the last tile of a GPU's matrix kernels."""
    phase = case.profile.phase("prefill") or case.profile.phase("forward")
    told = _told_padding(case)
    if phase is None or phase.time_s <= 0:
        return None
    real, padded = told or _tiled(case, phase)
    waste = 1 - real / padded if padded > real > 0 else 0.0
    if waste < _PAD:
        return None
    part = 1.0 if told else case.regimes(phase).get("compute", 0.0)
    stake = case.stake(phase, waste * part * phase.time_s)
    return Finding(
        code="padding.waste",
        severity=graded(case.share(stake)),
        title=f"{waste:.0%} of the rows of {named(phase)} are padding",
        evidence=evidence(rows=real, padded_rows=padded, waste=waste, speedup_at_most=at_most(waste * part)),
        advice="Group requests of like length, use buckets or ragged batches, or lengths and batches that are whole "
        f"multiples of {_TILE} where the kernels take that many rows at once.",
        phase=phase.name,
        stake_s=stake,
    )


def _told_padding(case: Case) -> tuple[float, float] | None:
    host: Mapping[str, object] = case.profile.environment.host if case.profile.environment else {}
    told = host.get("padding")
    if not isinstance(told, Mapping):
        return None
    real, padded = told.get("tokens"), told.get("padded_tokens")
    if isinstance(real, int | float) and isinstance(padded, int | float):
        return float(real), float(padded)
    return None


def _tiled(case: Case, phase: Phase) -> tuple[float, float]:
    """Rows of the matrix products, and the rows of whole tiles; of nothing else than a GPU's compute-bound phase."""
    rows = case.profile.workload.batch * (case.profile.workload.prompt or 0)
    if case.unit != "gpu" or phase.name != "prefill" or rows < _TILE:
        return 0.0, 0.0
    if case.regimes(phase).get("compute", 0.0) < 0.5:
        return 0.0, 0.0
    return float(rows), float(-(-rows // _TILE) * _TILE)


def _worst(case: Case, seconds: Callable[[Phase], float]) -> tuple[Phase, float] | None:
    """The phase in which the most seconds of a request are such."""
    found = [(phase, seconds(phase)) for phase in case.repeating]
    found = [(phase, value) for phase, value in found if value > 0]
    return max(found, key=lambda pair: case.stake(*pair), default=None)
