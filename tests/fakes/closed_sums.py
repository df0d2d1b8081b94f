"""Does a profile add up? Every sum that its numbers promise, and each that does not close.

Every profile that a test makes passes through `unclosed`: a prediction, a measurement, an import.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from inferometer.core import statistics
from inferometer.core.request import (
    OVERLAPPING,
    op_count,
    ops_by,
    pace,
    repeats,
    request_s,
    request_shares,
    sampled_steps,
    summed_samples,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.core.profile import OpTime, Phase, Profile

_CLOSE = 1e-6  # relative: sums of a thousand floating-point numbers are far better
_TICK_S = 1e-6  # other tools print microseconds
_TO_FIRST = ("tokenise", "encode", "prefill", "sampling")
_GENERATIONS = "median over generations of the mean step"


def unclosed(profile: Profile) -> tuple[str, ...]:
    """A sentence for each sum that does not close; none for a profile that adds up."""
    return (
        *(wrong for phase in profile.phases for wrong in _phase(phase, profile)),
        *_headline(profile),
        *_breakdowns(profile),
    )


def _phase(phase: Phase, profile: Profile) -> Iterator[str]:
    predicted, rounding_s = profile.kind == "predicted", _TICK_S if _imported(profile) else 0.0
    inside_s = fsum(op.time_s for op in phase.ops)
    if phase.ops and phase.unattributed_s is not None:
        yield from _differ(phase, "ops and the unattributed rest", inside_s + phase.unattributed_s, phase.time_s)
    if parts := phase.parts:
        yield from _differ(phase, "parts", fsum(parts.values()), phase.time_s)
    statistic_s = _statistic(phase)
    if statistic_s is not None and abs(statistic_s - phase.time_s) > rounding_s:
        yield from _differ(phase, f"the {phase.statistic} of its samples", statistic_s, phase.time_s)
    if phase.context is not None and len(phase.context) != len(phase.samples_s or ()):
        yield f"{phase.name}: {len(phase.samples_s or ())} samples, and {len(phase.context)} contexts."
    yield from _samples(phase)
    for what in ("floor_s", "predicted_s"):
        yield from _known_sum(phase, what, exact=predicted)
    if predicted:
        yield from _beaten(phase, phase)
        for op in phase.ops:
            yield from _beaten(phase, op)


def _differ(phase: Phase, what: str, found_s: float, expected_s: float) -> Iterator[str]:
    if not _equal(found_s, expected_s):
        yield f"{phase.name}: {what} come to {found_s:.6g} s, and the phase takes {expected_s:.6g} s."


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= _CLOSE * max(abs(one), abs(other)) + 1e-12


def _statistic(phase: Phase) -> float | None:
    """What its statistic says of the samples; None where it has none, or one that is not known here."""
    samples = phase.samples_s
    if not samples:
        return None
    if phase.statistic == _GENERATIONS:
        return statistics.median([statistics.mean(group) for group in _generations(phase)])
    if phase.statistic in {"median", "mean"}:
        return statistics.median(samples) if phase.statistic == "median" else statistics.mean(samples)
    return samples[0] if phase.statistic == "single" else None


def _generations(phase: Phase) -> list[list[float]]:
    """The samples of each generation: a new one begins where the cache is no longer than before."""
    groups: list[list[float]] = []
    last: int | None = None
    for context, seconds in zip(phase.context or (), phase.samples_s or (), strict=False):
        if last is None or context <= last:
            groups.append([])
        groups[-1].append(seconds)
        last = context
    return groups or [list(phase.samples_s or ())]


def _samples(phase: Phase) -> Iterator[str]:
    """An op's samples come to its time, and the ops' samples of each step to no more than the step."""
    of_phase = pace(phase)
    for op in phase.ops:
        mean_s = of_phase * statistics.mean(op.samples_s) if op.samples_s else op.time_s
        if not _equal(mean_s, op.time_s):
            yield f"{phase.name}: the samples of {op.name} come to {mean_s:.6g} s, and it takes {op.time_s:.6g} s."
    steps, together = sampled_steps(phase), summed_samples(phase.ops)
    if steps is None or together is None:
        return
    if len(steps) != len(together):
        yield f"{phase.name}: its ops have {len(together)} samples of {len(steps)} steps."
        return
    for context, step_s, ops_s in zip(phase.op_context or (), steps, together, strict=True):
        if ops_s > step_s * (1 + _CLOSE):
            yield f"{phase.name}: at {context} tokens its ops come to {ops_s:.6g} s of a step of {step_s:.6g} s."


def _known_sum(phase: Phase, what: str, *, exact: bool) -> Iterator[str]:
    """The ops' floors, or predictions, add up to the phase's; in a measurement to no more, for ops may be missing."""
    whole, parts = getattr(phase, what), [getattr(op, what) for op in phase.ops]
    known = [part for part in parts if part is not None]
    if whole is None or not known:
        return
    summed = fsum(known)
    if exact and len(known) == len(parts) and what == "floor_s":
        if not _equal(summed, whole):
            yield f"{phase.name}: the floors of its ops come to {summed:.6g} s, and its own is {whole:.6g} s."
    elif summed > whole * (1 + _CLOSE):
        yield f"{phase.name}: {what} of its ops comes to {summed:.6g} s, more than its own {whole:.6g} s."


def _beaten(phase: Phase, op: Phase | OpTime) -> Iterator[str]:
    if op.floor_s is not None and op.time_s < op.floor_s * (1 - _CLOSE):
        yield f"{phase.name}: {op.name} takes {op.time_s:.6g} s, less than its floor of {op.floor_s:.6g} s."


def _headline(profile: Profile) -> Iterator[str]:
    """The times at the top are those of the phases below, each as often as a request runs it."""
    summary, times = profile.summary, repeats(profile)
    seconds = {phase.name: phase.time_s for phase in profile.phases}
    expected: dict[str, float | None] = dict.fromkeys(("latency_s", "ttft_s", "tpot_s", "e2e_s"))
    request = fsum(times[name] * seconds[name] for name in times)
    if "forward" in seconds:
        expected["latency_s"] = times["forward"] * seconds["forward"] + seconds.get("around", 0.0)
    if "prefill" in seconds:
        expected["ttft_s"] = fsum(seconds[name] for name in _TO_FIRST if name in seconds)
        expected["e2e_s"] = None if _imported(profile) else request
    steps = (profile.workload.generate or 0) - 1
    if "prefill" in seconds and "decode" in seconds and steps > 0 and profile.kind == "predicted":
        expected["tpot_s"] = (request - (expected["ttft_s"] or 0.0)) / steps
    elif "decode" in seconds and profile.kind == "measured":
        expected["tpot_s"] = seconds["decode"]
    for name, value in expected.items():
        stated = getattr(summary, name)
        if value is not None and stated is not None and not _equal(stated, value):
            yield f"The headline says {name} {stated:.6g}, and the phases say {value:.6g}."


def _imported(profile: Profile) -> bool:
    """Another tool's request is its own statistic, over requests of several lengths: it need not be the phases' sum."""
    return profile.provenance is not None and not profile.provenance.tool.startswith("inferometer")


def _breakdowns(profile: Profile) -> Iterator[str]:
    """Kinds and units come to the request, and their ops to the number of ops."""
    if not any(phase.ops for phase in profile.phases):
        return
    whole_s, count = request_s(profile), op_count(profile)
    for by in ("kind", "unit"):
        shares = request_shares(profile, by)
        if not _equal(fsum(shares.values()), whole_s):
            yield f"By {by} a request comes to {fsum(shares.values()):.6g} s of {whole_s:.6g} s."
        negative = [name for name, value in shares.items() if value < -_CLOSE * whole_s and name != OVERLAPPING]
        if negative:
            yield f"By {by} a request has less than no time in {', '.join(negative)}."
        if sum(ops_by(profile, by).values()) != count:
            yield f"By {by} there are {sum(ops_by(profile, by).values())} ops of {count}."
