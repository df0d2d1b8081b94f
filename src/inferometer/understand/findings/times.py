"""The times: the op that takes most, a tail, a drift, noise, one-time costs; and whether the outputs are right."""

import re
from collections.abc import Sequence
from math import fsum

from inferometer.core import statistics as plain
from inferometer.core.finding import Finding
from inferometer.core.graph import Graph, Op
from inferometer.core.profile import OpTime, Phase
from inferometer.measure.bench.statistics import drift
from inferometer.predict.price.priors import storage_prior
from inferometer.understand.attribution import one_time
from inferometer.understand.case import (
    Case,
    at_most,
    at_stake,
    command_option,
    evidence,
    level_samples,
    phase_words,
    times_words,
)

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
        "`inferometer profile --verify` layer by layer.",
        stake_s=case.request_s,
    )


# One op that takes much of a phase by itself, and an engine that was told not to optimise.

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
