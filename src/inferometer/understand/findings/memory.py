"""Memory: whether it fits, how nearly, and what fills it."""

from __future__ import annotations

from inferometer.core.finding import Finding
from inferometer.core.units import format_capacity
from inferometer.known.engines import engine_or_ideal
from inferometer.understand.case import Case, evidence, faster

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
