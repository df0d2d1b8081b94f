"""Where it ran: on the CPU instead of the accelerator, or on too few or too many threads."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from inferometer.core.finding import Finding
from inferometer.explain.case import Case, at_most, at_stake, command_option, evidence, graded, phase_words

if TYPE_CHECKING:
    from inferometer.core.profile import OpTime, Phase

_SOME = 0.02  # of the time: less is shapes and indices, which belong on the CPU


def placement_fallback(case: Case) -> Finding | None:
    wanted = _accelerator(case)
    if wanted is None:
        return None
    fallen = [(phase, ops) for phase in case.repeating if (ops := _fallen(case, phase))]
    if not fallen:
        return None
    phase, ops = max(fallen, key=lambda pair: case.stake(pair[0], fsum(op.time_s for op in pair[1])))
    seconds = fsum(op.time_s for op in ops)
    share = seconds / phase.time_s
    if share < _SOME:
        return None
    kinds = ", ".join(dict.fromkeys(op.kind for op in sorted(ops, key=lambda op: -op.time_s)))
    everything = len(ops) == len(phase.ops)
    return Finding(
        code="placement.fallback",
        title=f"Nothing ran on the {wanted.upper()}: every op fell back to the CPU"
        if everything
        else f"{_counted(ops)} ran on the CPU instead of the {wanted.upper()}: {share:.0%} of {phase_words(phase)}",
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
        **at_stake(case, phase, seconds),
        changes=() if everything else ("unit=cpu",),
    )


def _accelerator(case: Case) -> str | None:
    """The accelerator it was meant to run on: some ops did, `--unit` named it, or the device is one."""
    units = {op.unit.partition(":")[0] for phase in case.profile.phases for op in phase.ops if op.unit}
    accelerators = sorted(units - {"cpu"}) or [unit for unit in _meant(case) if unit != "cpu"]
    return accelerators[0] if accelerators else None


def _counted(ops: list[OpTime]) -> str:
    count = sum(op.count for op in ops)
    return f"{count} ops" if count > 1 else "1 op"


def _meant(case: Case) -> list[str]:
    option = command_option(case, "--unit")
    return [unit.partition(":")[0] for unit in (option, case.device.unit if case.device else None) if unit]


def _fallen(case: Case, phase: Phase) -> list[OpTime]:
    """Ops that ran on the CPU and should not have. A host op that has a device's time only starts the kernel.

    PyTorch's CPU ops beside a GPU's kernels are the dispatch of those kernels.
    """
    mixed = any(op.unit not in {None, "cpu"} for op in phase.ops)
    if case.profile.kind != "measured" or (mixed and (case.profile.runtime or "").startswith("torch")):
        return []
    return [op for op in phase.ops if op.unit == "cpu" and op.device_s is None]


def threads_too_many(case: Case) -> Finding | None:
    threads, cpus = case.threads, case.cpus
    if threads is None or cpus is None or threads <= cpus:
        return None
    return Finding(
        code="threads.too-many",
        severity="warning",
        title=f"{threads} threads share {cpus:g} CPUs",
        evidence=evidence(threads=threads, cpus=cpus),
        advice=f"Use {cpus:g} threads: more than there are CPUs wait for each other at the end of every op.",
        stake_s=case.request_s or 0.0,
        changes=(f"threads={int(cpus)}",),
    )


def threads_too_few(case: Case) -> Finding | None:
    threads, cpus = case.threads, case.cpus
    if threads is None or cpus is None or threads > cpus / 2:
        return None
    phase = case.steady
    memory_share = case.regimes(phase).get("memory", 0.0) if phase else 0.0
    stake = (case.request_s or 0.0) * (1 - threads / cpus)
    return Finding(
        code="threads.too-few",
        severity=graded(case.share(stake)),
        title=f"It runs on {threads} of {cpus:g} CPUs",
        evidence=evidence(threads=threads, cpus=cpus, speedup_at_most=cpus / threads, memory_share=memory_share),
        advice=f"Use {cpus:g} threads, or as many as there are physical cores. What is bound by arithmetic gains most; "
        "what is bound by memory stops gaining once the memory is busy.",
        stake_s=stake,
        changes=(f"threads={int(cpus)}",),
    )
