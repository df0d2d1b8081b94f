"""Where it ran, and whether it fits: another unit than was meant, too few or too many threads, too little memory."""

from collections.abc import Iterable, Mapping, Sequence
from math import fsum

from inferometer.core.device import UNITS
from inferometer.core.finding import Finding
from inferometer.core.profile import OpTime, Phase
from inferometer.core.units import counted, format_capacity
from inferometer.known.engines import engine_or_ideal
from inferometer.understand.case import Case, at_most, at_stake, command_option, evidence, faster, graded, phase_words

_SOME = 0.02  # of the time: less is shapes and indices, which belong on the CPU


def placement_fallback(case: Case) -> Finding | None:
    wanted = _wanted(case)
    if wanted is None:
        return None
    phases = [(phase, ops) for phase in case.repeating if (ops := _fallen(case, phase, wanted))]
    if not phases:
        return None
    phase, ops = max(phases, key=lambda pair: case.stake(pair[0], fsum(op.time_s for op in pair[1])))
    seconds = fsum(op.time_s for op in ops)
    share = seconds / phase.time_s
    if share < _SOME:
        return None
    shares = {unit: part / phase.time_s for unit, part in _seconds(ops).items()}
    reached = _seconds(phase.ops).get(wanted, 0.0) / phase.time_s
    kinds = ", ".join(dict.fromkeys(op.kind for op in sorted(ops, key=lambda op: -op.time_s)))
    nothing = not reached
    return Finding(
        code="placement.fallback",
        title=f"Nothing ran on the {wanted.upper()}: every op fell back to the {_named(shares)}"
        if nothing
        else f"{_counted(ops)} ran on the {_named(shares)} instead of the {_named({wanted: reached})}: "
        f"{share:.0%} of {phase_words(phase)}",
        evidence=evidence(
            share=share,
            time_s=seconds,
            fallen_ops=sum(op.count for op in ops),
            ops=sum(op.count for op in phase.ops),
            speedup_at_most=None if nothing else at_most(share),
            **{f"{unit}_share": part for unit, part in ({wanted: reached} | shares).items()},
        ),
        advice=f"The engine has no kernel for these ops on the {wanted.upper()}, or was not built for it: {kinds}. "
        "Replace or re-export them, use a newer engine or another provider, or run all of it on the CPU to save the "
        "copies.",
        **at_stake(case, phase, seconds),
        changes=() if nothing else ("unit=cpu",),
    )


def _wanted(case: Case) -> str | None:
    """The accelerator that it was meant to run on, if any.

    The one that `--unit` named; else the one with the most time, because an op or two on another is no choice of
    anyone's; else, where nothing ran on an accelerator, the device's own unit.
    """
    asked = (command_option(case, "--unit") or "").partition(":")[0]
    if asked in UNITS:
        return None if asked == "cpu" else asked
    seconds = _seconds([op for phase in case.profile.phases for op in phase.ops])
    accelerators = [unit for unit in seconds if unit != "cpu"]
    if accelerators:
        return accelerators[0]
    return case.device.unit if case.device and case.device.unit != "cpu" else None


def _seconds(ops: Iterable[OpTime]) -> dict[str, float]:
    """The time on each kind of unit, the longest first."""
    seconds: dict[str, float] = {}
    for op in ops:
        if op.unit is not None:
            unit = op.unit.partition(":")[0]
            seconds[unit] = seconds.get(unit, 0.0) + op.time_s
    return dict(sorted(seconds.items(), key=lambda pair: -pair[1]))


def _named(shares: Mapping[str, float]) -> str:
    return " and the ".join(f"{unit.upper()} ({share:.0%})" for unit, share in shares.items())


def _counted(ops: Sequence[OpTime]) -> str:
    count = sum(op.count for op in ops)
    return counted(count, "op")


def _fallen(case: Case, phase: Phase, wanted: str) -> list[OpTime]:
    """Ops that ran on another unit than they should have. A host op that has a device's time only starts the kernel.

    PyTorch's CPU ops beside a GPU's kernels are the dispatch of those kernels.
    """
    mixed = any(op.unit not in {None, "cpu"} for op in phase.ops)
    if case.profile.kind != "measured" or (mixed and (case.profile.runtime or "").startswith("torch")):
        return []
    return [op for op in phase.ops if op.unit and op.unit.partition(":")[0] != wanted and op.device_s is None]


def _cpus(number: float) -> str:
    return "1 CPU" if number == 1 else f"{number:g} CPUs"


def _threads(number: float) -> str:
    return counted(max(int(number), 1), "thread")


def threads_too_many(case: Case) -> Finding | None:
    threads, cpus = case.threads, case.cpus
    if threads is None or cpus is None or threads <= cpus:
        return None
    return Finding(
        code="threads.too-many",
        severity="warning",
        title=f"{threads} threads share {_cpus(cpus)}",
        evidence=evidence(threads=threads, cpus=cpus),
        advice=f"Use {_threads(cpus)}: more than there are CPUs wait for each other at the end of every op.",
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
        advice=f"Use {_threads(cpus)}, or as many as there are physical cores. What is bound by arithmetic gains most; "
        "what is bound by memory stops gaining once the memory is busy.",
        stake_s=stake,
        changes=(f"threads={int(cpus)}",),
    )


# Memory: whether it fits, how nearly, and what fills it.

_NEARLY = 0.9
_LIGHTER = "Use fewer bits a weight, a shorter context, a smaller batch, or more devices"


def memory_does_not_fit(case: Case) -> Finding | None:
    """The prediction's own finding; for a measured or imported profile, its peak against the device's capacity."""
    noticed = next((finding for finding in case.profile.findings if finding.code == "memory.does-not-fit"), None)
    if noticed is not None:
        return noticed
    summary, capacity = case.profile.summary, case.capacity_bytes
    used = summary.peak_memory_bytes
    over = used is not None and capacity is not None and used > capacity
    if summary.fits is not False and not over:
        return None
    return Finding(
        code="memory.does-not-fit",
        severity="critical",
        title=f"{case.profile.model.name} does not fit into the memory of {_name(case)}",
        evidence=evidence(needed_bytes=used, capacity_bytes=capacity),
        advice=f"{_LIGHTER}; the times are those it would have if it fitted.",
        stake_s=case.request_s,
    )


def memory_nearly_full(case: Case) -> Finding | None:
    used, capacity = case.profile.summary.peak_memory_bytes, case.capacity_bytes
    if used is None or not capacity or case.profile.summary.fits is False or not _NEARLY <= used / capacity <= 1:
        return None
    return Finding(
        code="memory.nearly-full",
        severity="warning",
        title=f"{used / capacity:.0%} of the memory of {_name(case)} is in use",
        evidence=evidence(used_bytes=used, capacity_bytes=capacity, free_bytes=capacity - used, share=used / capacity),
        advice=f"{_LIGHTER} before the context or the batch grows: what does not fit is swapped, offloaded or refused.",
    )


def memory_kv_cache(case: Case) -> Finding | None:
    """The cache at the end of the request, against the weights."""
    model, workload = case.profile.model, case.profile.workload
    tokens = max(workload.context or 0, (workload.prompt or 0) + (workload.generate or 0))
    if not model.kv_bytes_per_token or not model.weight_bytes or not tokens:
        return None
    cache = model.kv_bytes_per_token * tokens * workload.batch
    if cache < model.weight_bytes:
        return None
    phase = case.profile.phase("decode")
    form = f"kv={engine_or_ideal(case.profile.runtime).small.kv}"
    gain = case.price(form, "decode") if phase else None
    read = cache / (phase.bytes or cache + model.weight_bytes) if phase else 0.0
    return Finding(
        code="memory.kv-cache",
        severity="info",
        title=f"The cache takes {format_capacity(cache)}, the weights {format_capacity(model.weight_bytes)}",
        evidence=evidence(
            kv_bytes=cache,
            weight_bytes=model.weight_bytes,
            kv_bytes_per_token=model.kv_bytes_per_token,
            tokens=tokens,
            batch=workload.batch,
        ),
        advice="Store the cache in 8 bits, limit the context (a sliding window, or fewer kept tokens), share the cache "
        "of common prefixes, or choose a model with fewer key-value heads. It grows with every token.",
        **faster(gain),
        phase="decode" if phase else None,
        stake_s=case.stake(phase, min(read, 1.0) * phase.time_s) if phase else None,
        changes=(form,),
    )


def _name(case: Case) -> str:
    return case.device.title if case.device else case.profile.device.title or case.profile.device.name
