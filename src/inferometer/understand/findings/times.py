"""The times themselves: a tail, a drift, noise, one-time costs; and whether the outputs are right."""

from __future__ import annotations

import re
from math import fsum
from typing import TYPE_CHECKING

from inferometer.core import statistics as plain
from inferometer.core.finding import Finding
from inferometer.measure.bench.statistics import drift
from inferometer.predict.price.priors import storage_prior
from inferometer.understand.attribution import one_time
from inferometer.understand.case import Case, evidence, level_samples, phase_words, times_words

if TYPE_CHECKING:
    from collections.abc import Sequence

_TAIL = 1.5  # times the median
_PERCENTILES = (0.99, 0.95, 0.90)  # the first one that the sample supports
_DRIFT, _SURE, _RUNS = 0.05, 0.01, 10  # a drift's least share, its greatest p-value, and the runs it needs
_SCATTER = 0.15  # of the median
_FEW = 5  # runs below which nothing is said about scatter
_ONCE_REQUESTS, _ONCE_S = 5.0, 1.0  # one-time costs of this many requests, and this many seconds
_NORMAL = 1.4826  # of normal readings the standard deviation is this many median absolute deviations
_NEAR = 0.5  # of the slowest such disk: a slower load waits for something else
_CODE = re.compile(r" \([a-z]+(?:-[a-z]+)*\)$")
_WHEN = ("before the runs", "during the runs", "after the runs")
_HOT = re.compile(r"throttl|temperature|thermal|clock", re.IGNORECASE)


def latency_tail(case: Case) -> Finding | None:
    phase = case.steady
    samples = sorted(level_samples(phase)) if phase else []
    level = next((p for p in _PERCENTILES if plain.supported(p, len(samples))), None)
    if phase is None or level is None:
        return None
    middle, high = plain.percentile_of(samples, 0.5), plain.percentile_of(samples, level)
    if middle <= 0 or high < _TAIL * middle:
        return None
    stake, times = case.stake(phase, max(plain.mean(samples) - middle, 0.0)), times_words(high / middle)
    return Finding(
        code="latency.tail",
        severity="warning",
        title=f"The {100 * level:.0f}th percentile of {phase_words(phase)} is {times} times the median",
        evidence=evidence(**{f"p{level * 100:.0f}_s": high}, p50_s=middle, ratio=high / middle, runs=len(samples)),
        advice="Look for what comes and goes: garbage collection, threads that compete for a core, other programs, "
        "power saving, allocations inside the loop. Pin threads, allocate once, and watch the slow runs in a trace.",
        phase=phase.name,
        stake_s=stake,
    )


def latency_drift(case: Case) -> Finding | None:
    phase = case.steady
    samples = level_samples(phase) if phase else ()
    trend = drift(samples) if len(samples) >= _RUNS else None
    if phase is None or trend is None or trend.p_value > _SURE or trend.share < _DRIFT:
        return None
    environment = case.profile.environment
    hot = [reason for reason in environment.reasons if _HOT.search(reason)] if environment else []
    stake = case.stake(phase, trend.share * phase.time_s / 2)
    return Finding(
        code="latency.drift",
        severity="warning",
        title=f"Runs got {trend.share:.0%} slower from the first to the last" + (": it throttles" if hot else ""),
        evidence=evidence(
            drift_share=trend.share,
            drift_per_run_s=trend.per_run,
            p_value=trend.p_value,
            runs=len(samples),
            throttled=float(bool(hot)),
        ),
        advice="Check cooling and power mode (`inferometer doctor`), let the device rest between runs, and measure for "
        "as long as it will work; memory that leaks or a cache that grows look the same.",
        phase=phase.name,
        stake_s=stake,
    )


def environment_noisy(case: Case) -> Finding | None:
    environment, phase = case.profile.environment, case.steady
    disturbed = bool(environment and environment.disturbed)
    samples = level_samples(phase) if phase else ()
    # The spread of the usual runs over their median. Rare slow runs are the tail's.
    scatter = (_NORMAL * plain.mad(samples) / plain.median(samples)) if len(samples) >= _FEW else None
    if not disturbed and (scatter is None or scatter < _SCATTER):
        return None
    reasons = environment.reasons if environment else ()
    return Finding(
        code="environment.noisy",
        severity="warning",
        title=_disturbed_by(reasons) if disturbed else f"The times scatter by {scatter:.0%} of their median",
        evidence=evidence(
            disturbed=float(disturbed),
            variation=scatter,
            runs=len(samples) or None,
            load_before=environment.load_before if environment else None,
            load_after=environment.load_after if environment else None,
        ),
        advice="Quieten the machine (`inferometer doctor` says what to do) and measure again before acting on small "
        "differences: every number here is in doubt by about as much.",
        phase=phase.name if phase else None,
        stake_s=case.request_s,
    )


def _disturbed_by(reasons: Sequence[str]) -> str:
    """The first reason without its remedy and its code. The guard's reasons begin with when it happened."""
    if not reasons:
        return "The machine was not quiet while it was measured"
    first = _CODE.sub("", reasons[0].partition(". ")[0].rstrip("."))
    return f"The measurement was disturbed{'' if first.startswith(_WHEN) else ':'} {first}"


def load_dominates(case: Case) -> Finding | None:
    phases, request = one_time(case.profile), case.request_s
    once = fsum(phase.time_s for phase in phases)
    if not request or once < _ONCE_S or once < _ONCE_REQUESTS * request:
        return None
    longest = max(phases, key=lambda phase: phase.time_s)
    return Finding(
        code="load.dominates",
        severity="info",
        title=f"Before the first answer it takes as long as {once / request:.3g} requests",
        evidence=evidence(
            once_s=once,
            request_s=request,
            requests_to_repay=once / request,
            **{f"{phase.name}_s": phase.time_s for phase in phases},
        ),
        advice=f"Most of it is {longest.name.replace('_', ' ')}. Keep the process warm for many requests; "
        "keep compiled models and optimised graphs in a file; map weights instead of copying them; load fewer bits.",
        phase=longest.name,
        stake_s=once,
    )


def load_storage_bound(case: Case) -> Finding | None:
    """A load bound by storage: according to the prediction, or because the weights came at a disk's rate."""
    phase = case.profile.phase("load")
    if phase is None or phase.time_s < _ONCE_S:
        return None
    size = phase.bytes or case.profile.model.weight_bytes
    rate = size / phase.time_s if size else None
    prior = storage_prior(case.device.kind) if case.device else None
    slowest, fastest = (float(prior.low_bytes_per_s), float(prior.high_bytes_per_s)) if prior else (None, None)
    alike = rate is not None and slowest is not None and fastest is not None and _NEAR * slowest <= rate <= fastest
    if phase.bound != "storage" and (phase.bound is not None or not alike):
        return None
    return Finding(
        code="load.storage-bound",
        severity="info",
        title="Loading waits for the storage",
        evidence=evidence(
            load_s=phase.time_s,
            bytes=size,
            rate_bytes_per_s=rate,
            storage_low_bytes_per_s=slowest,
            storage_high_bytes_per_s=fastest,
        ),
        advice="Put the model on a faster disk (NVMe) or keep it in the page cache, store fewer bits a weight, read "
        "it in parallel; a format that can be mapped starts before all of it is read.",
        phase="load",
        stake_s=phase.time_s,
    )


def outputs_wrong(case: Case) -> Finding | None:
    checked = case.profile.verification
    if checked is None or checked.status != "failed":
        return None
    return Finding(
        code="outputs.wrong",
        severity="critical",
        title=f"The outputs are not those of {checked.reference or 'the reference'}",
        evidence=evidence(
            max_abs=checked.max_abs,
            max_rel=checked.max_rel,
            cosine=checked.cosine,
            same_best=checked.top_1,
            nll_drift_nats=checked.nll_drift,
        ),
        advice="Find the format or the op that changes them before looking at speed: try f32, another provider, and "
        "`inferometer verify` layer by layer.",
        stake_s=case.request_s,
    )
