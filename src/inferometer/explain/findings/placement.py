"""Where it ran: on the CPU instead of the accelerator, or on too few or too many threads."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from inferometer.core.finding import Finding
from inferometer.explain.case import Case, asked_of, at_most, evidence, graded, named

if TYPE_CHECKING:
    from inferometer.core.profile import OpTime, Phase

_SOME = 0.02  # of the time on the CPU: shapes and indices are computed there for good reasons
_HALF = 0.5


def placement_fallback(case: Case) -> Finding | None:
    wanted = _accelerator(case)
    if wanted is None:
        return None
    found = [(phase, _fallen(case, phase)) for phase in case.repeating]
    found = [(phase, ops) for phase, ops in found if ops]
    if not found:
        return None
    phase, ops = max(found, key=lambda pair: case.stake(pair[0], fsum(op.time_s for op in pair[1])))
    seconds = fsum(op.time_s for op in ops)
    share = seconds / phase.time_s
    if share < _SOME:
        return None
    kinds = ", ".join(dict.fromkeys(op.kind for op in sorted(ops, key=lambda op: -op.time_s)))
    everything = len(ops) == len(phase.ops)
    return Finding(
        code="placement.fallback",
        severity=graded(case.share(case.stake(phase, seconds))),
        title=f"Nothing ran on the {wanted.upper()}: every op fell back to the CPU"
        if everything
        else f"{_counted(ops)} ran on the CPU instead of the {wanted.upper()}: {share:.0%} of {named(phase)}",
        evidence=evidence(
            share=share,
            time_s=seconds,
            cpu_ops=sum(op.count for op in ops),
            ops=sum(op.count for op in phase.ops),
            speedup_at_most=None if everything else at_most(share),
        ),
        advice=f"The engine has no kernel for these ops on the {wanted.upper()}, or was not built for it: {kinds}. "
        "Replace or re-export them, use a newer engine or another provider, or run all of it on the CPU to save the "
        "copies.",
        phase=phase.name,
        stake_s=case.stake(phase, seconds),
        changes=() if everything else ("unit=cpu",),
    )


def _accelerator(case: Case) -> str | None:
    """What it was meant to run on, where that is not the CPU: some ops did, it was asked for, or the device is one."""
    units = {op.unit.partition(":")[0] for phase in case.profile.phases for op in phase.ops if op.unit}
    found = sorted(units - {"cpu"}) or [unit for unit in _meant(case) if unit != "cpu"]
    return found[0] if found else None


def _counted(ops: list[OpTime]) -> str:
    count = sum(op.count for op in ops)
    return f"{count} ops" if count > 1 else "1 op"


def _meant(case: Case) -> list[str]:
    asked = asked_of(case, "--unit")
    return [unit.partition(":")[0] for unit in (asked, case.device.unit if case.device else None) if unit]


def _fallen(case: Case, phase: Phase) -> list[OpTime]:
    """Ops on the CPU that should not be there. A host op with a device's time beside it only starts the kernel.

    What PyTorch lists under the CPU beside a GPU's kernels is the dispatch of those.
    """
    mixed = any(op.unit not in {None, "cpu"} for op in phase.ops)
    if case.profile.kind != "measured" or (mixed and (case.profile.runtime or "").startswith("torch")):
        return []
    return [op for op in phase.ops if op.unit == "cpu" and op.device_s is None]


def threads_too_many(case: Case) -> Finding | None:
    threads, cpus = case.threads, case.cpus
    if threads is None or cpus is None or threads <= cpus:
        return None
    stake = case.request_s or 0.0
    return Finding(
        code="threads.too-many",
        severity="warning",
        title=f"{threads} threads share {cpus:g} CPUs",
        evidence=evidence(threads=threads, cpus=cpus),
        advice=f"Use {cpus:g} threads: more than there are CPUs wait for each other at the end of every op.",
        stake_s=stake,
        changes=(f"threads={int(cpus)}",),
    )


def threads_too_few(case: Case) -> Finding | None:
    threads, cpus = case.threads, case.cpus
    if threads is None or cpus is None or threads > _HALF * cpus:
        return None
    phase = case.steady
    computing = case.regimes(phase).get("memory", 0.0) if phase else 0.0
    stake = (case.request_s or 0.0) * (1 - threads / cpus)
    return Finding(
        code="threads.too-few",
        severity=graded(case.share(stake)),
        title=f"It runs on {threads} of {cpus:g} CPUs",
        evidence=evidence(threads=threads, cpus=cpus, speedup_at_most=cpus / threads, memory_share=computing),
        advice=f"Use {cpus:g} threads, or as many as there are physical cores. What is bound by arithmetic gains most; "
        "what is bound by memory stops gaining once the memory is busy.",
        stake_s=stake,
        changes=(f"threads={int(cpus)}",),
    )
