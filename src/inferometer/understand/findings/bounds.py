"""What bounds it: memory, arithmetic, a batch too small for the ridge; or it is slower than either explains."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, fsum, log2

from inferometer.core.device import UNITS
from inferometer.core.finding import Finding
from inferometer.core.profile import COUNTED, OpTime, Phase
from inferometer.core.units import counted, format_capacity
from inferometer.known.engines import engine_or_ideal
from inferometer.predict.gains import Gain
from inferometer.understand.case import (
    Case,
    at_most,
    at_stake,
    command_option,
    evidence,
    faster,
    graded,
    more,
    phase_words,
    times_words,
)

_MOST = 0.5
_LEAST = 0.3
_BYTE = 9.0  # bits per weight: an 8-bit format with its scales has a little over 8
_NARROW = 6.0  # bits per weight below which few formats save more
_FEW_MORE = 4  # times the batch, if nothing else is left to try
_WORTH_BATCHING, _WORTH_TRYING = 1.2, 1.05  # gains below these are not worth the advice
_BATCH_STEP = 32  # times that the batch is raised at most
_SLOWER, _ABOVE_FLOOR = 1.5, 3.0  # times the prediction and the floor from which on a phase is slow
_FASTER_PEAK = 1.5  # times the peak that another format must have to be advised
_TOGETHER = "batch requests, so that each read of them serves several"
_FORMATS = ("bf16", "f16", "i8", "f8e4m3")  # arithmetic to move to, the safest first


def memory_bound(case: Case) -> Finding | None:
    phase = _most_in(case, "memory")
    if phase is None:
        return None
    share = case.regimes(phase)["memory"]
    weights = _weight_share(case, phase)
    changes, way = _lighter(case, weights)
    # A larger batch gains throughput, a smaller format latency.
    change = changes[0]
    if change.startswith("batch="):
        gained = more(case.throughput(change, phase))
    else:
        gained = faster(case.price(change, phase.name))
    if gained and gained["gain"] < _WORTH_TRYING:
        gained, changes = {}, ()
    return Finding(
        code="memory.bound",
        severity="info",
        title=f"{_capitalised(phase)} is bound by memory: {share:.0%} of it is moving bytes",
        evidence=evidence(
            memory_share=share, **_indicators(case, phase), weight_bits=case.weight_bits, weight_share=weights
        ),
        advice=f"{way}. Reuse data in caches, fuse ops that only pass it on, or take a device with more bandwidth.",
        **gained,
        phase=phase.name,
        stake_s=case.stake(phase, share * phase.time_s),
        changes=changes,
    )


def compute_bound(case: Case) -> Finding | None:
    phase = _most_in(case, "compute")
    if phase is None:
        return None
    share = case.regimes(phase)["compute"]
    changes = _faster_formats(case)
    gain = case.price(changes[0], phase.name) if changes else None
    wider = case.throughput(f"batch={2 * case.profile.workload.batch}", phase)
    way = (
        f"Compute in {changes[0].partition('=')[2]}, which this device does faster" if changes else "Do less arithmetic"
    )
    return Finding(
        code="compute.bound",
        severity="info",
        title=f"{_capitalised(phase)} is bound by arithmetic: {share:.0%} of it is computing",
        evidence=evidence(
            compute_share=share,
            **_indicators(case, phase),
            throughput_at_twice_the_batch=wider.throughput_gain if wider else None,
        ),
        advice=f"{way}: lower precision, a smaller or pruned model, a shorter prompt or image, vectorised kernels "
        "(BLAS, oneDNN) and all cores. A larger batch will not help.",
        **faster(gain),
        phase=phase.name,
        stake_s=case.stake(phase, share * phase.time_s),
        changes=changes,
    )


def batch_small(case: Case) -> Finding | None:
    """A phase left of the ridge whose intensity grows with the batch."""
    phase, ridge = case.steady, case.roof.ridge
    phase_roof = case.roof_of(phase) if phase else None
    if phase is None or phase_roof is None or ridge is None or phase_roof.point.intensity is None:
        return None
    intensity, batch = phase_roof.point.intensity, case.profile.workload.batch
    if intensity <= 0 or intensity >= _MOST * ridge or phase_roof.point.regime != "memory":
        return None
    best = _largest_batch(case, phase, min(ridge / intensity, _BATCH_STEP))
    if best is not None and best.throughput_gain < _WORTH_BATCHING:
        return None  # its bytes are activations, which grow with the batch
    target = f" of {best.change.partition('=')[2]}" if best else ""
    return Finding(
        code="batch.small",
        severity="info",
        title=f"A batch of {batch} leaves arithmetic waiting: {intensity:.3g} FLOP a byte, the ridge is at {ridge:.3g}",
        evidence=evidence(
            batch=batch,
            intensity_flop_per_byte=intensity,
            ridge_flop_per_byte=ridge,
            batch_at_ridge=batch * ridge / intensity,
            step_s=best.after_s if best else None,
        ),
        advice=f"Serve several requests at once (continuous batching): a batch{target} gives more tokens or images in "
        "the same time, and each waits a little longer.",
        **more(best),
        phase=phase.name,
        stake_s=case.stake(phase, (1 - intensity / ridge) * case.regimes(phase).get("memory", 0.0) * phase.time_s),
        changes=(best.change,) if best else (f"batch={batch * 8}",),
    )


def _largest_batch(case: Case, phase: Phase, times: float) -> Gain | None:
    """The gain of a batch `times` as large, halved until it fits."""
    batch = case.profile.workload.batch
    powers = range(ceil(log2(times)), 0, -1)
    gains = (case.throughput(f"batch={batch * 2**power}", phase) for power in powers)
    return next((gain for gain in gains if gain is not None), None)


def utilisation_low(case: Case) -> Finding | None:
    """A measured phase that takes much longer than predicted: the one that costs a request most."""
    if case.profile.kind != "measured":
        return None
    worst: tuple[float, Phase, float] | None = None
    for phase in case.repeating:
        expected = (phase.predicted_s or _predicted(case, phase) or 0.0) * _idle_cpus(case)
        if not expected or phase.time_s < _SLOWER * expected:
            continue
        if phase.counted < COUNTED:
            continue  # what is not counted is not in the prediction
        if phase.floor_s and phase.time_s < _ABOVE_FLOOR * phase.floor_s:
            continue
        if phase.time_s <= (_expected_bounds(case, phase, expected)[1] or 0.0):
            continue  # within the prediction's own interval
        stake = case.stake(phase, phase.time_s - expected)
        if worst is None or stake > worst[0]:
            worst = stake, phase, expected
    if worst is None:
        return None
    _, phase, expected = worst
    low, high = _expected_bounds(case, phase, expected)
    times = times_words(phase.time_s / expected)
    return Finding(
        code="utilisation.low",
        title=f"{_capitalised(phase)} takes {times} times what this device should take for it",
        evidence=evidence(
            time_s=phase.time_s,
            expected_s=expected,
            floor_s=phase.floor_s,
            share_of_floor=phase.floor_s / phase.time_s if phase.floor_s else None,
            **_indicators(case, phase),
        ),
        advice=f"Look at {_slowest(phase)} first; check threads, power mode, the build of the engine (does it use this "
        "machine's instructions?) and its graph optimisation level, and measure on a quiet machine.",
        gain=phase.time_s / expected,
        gain_low=phase.time_s / high if high else None,
        gain_high=phase.time_s / low if low else None,
        gain_of="latency",
        **at_stake(case, phase, phase.time_s - expected),
        changes=("optimisation=all",) if command_option(case, "--optimisation") not in {None, "all"} else (),
    )


def _most_in(case: Case, regime: str) -> Phase | None:
    """Of the phases led by a regime, the one that spends the most seconds of a request in it."""
    fitting = [phase for phase in case.repeating if _leads(case, phase, regime)]
    return max(
        fitting, key=lambda phase: case.stake(phase, case.regimes(phase)[regime] * phase.time_s), default=None
    )  # fmt: skip


def _leads(case: Case, phase: Phase, regime: str) -> bool:
    """Whether a regime has more than half of the work's time and much of the phase's: gaps are another finding."""
    shares = case.regimes(phase)
    working = sum(shares.get(name, 0.0) for name in ("compute", "memory", "link"))
    return shares.get(regime, 0.0) >= max(_MOST * working, _LEAST) and working > 0


def _indicators(case: Case, phase: Phase) -> dict[str, float | None]:
    """What tells memory-bound from compute-bound: how busy arithmetic and memory are, and the intensity."""
    phase_roof = case.roof_of(phase)
    if phase_roof is None:
        return {}
    return {
        "compute_utilisation": phase_roof.point.compute_utilisation,
        "bandwidth_utilisation": phase_roof.point.bandwidth_utilisation,
        "intensity_flop_per_byte": phase_roof.point.intensity,
        "ridge_flop_per_byte": case.roof.ridge,
    }


def _weight_share(case: Case, phase: Phase) -> float | None:
    """The weights' share of the bytes that a phase moves, each weight read once."""
    phase_roof = case.roof_of(phase)
    moved, weights = phase_roof.point.bytes if phase_roof else None, case.profile.model.weight_bytes
    return min(weights / moved, 1.0) if moved and weights else None


def _lighter(case: Case, weights: float | None) -> tuple[tuple[str, ...], str]:
    """Changes that move fewer bytes, and the advice in words."""
    bits, small = case.weight_bits, engine_or_ideal(case.profile.runtime).small
    batch = (f"batch={_FEW_MORE * case.profile.workload.batch}",)
    if weights is not None and weights < _MOST:
        form = case.profile.workload.precision.activations
        changes = ("precision=f16",) if form == "f32" else batch
        return changes, "Most of the bytes are activations: keep them in a smaller format"
    if bits is None or bits <= _NARROW:
        return batch, f"Its weights are small already: {_TOGETHER}"
    words = f"Quantise the weights from {bits:.3g} bits each to fewer, and {_TOGETHER}"
    if case.profile.phase("decode") is None:
        return ((f"weights={small.byte}",) if bits > _BYTE else batch), words
    narrow, byte = f"weights={small.narrow}", f"weights={small.byte}"
    return ((narrow, byte) if bits > _BYTE else (narrow,)), words


def _faster_formats(case: Case) -> tuple[str, ...]:
    peak = case.roof.peak
    if peak is None or case.device is None:
        return ()
    count = case.profile.device.count
    faster = [
        name
        for name in _FORMATS
        if name in case.device.peaks and count * case.device.peaks[name].value >= _FASTER_PEAK * peak.value
    ]
    return tuple(f"precision={name}" for name in faster)


def _predicted(case: Case, phase: Phase) -> float | None:
    predicted = case.predicted.phase(phase.name) if case.predicted else None
    return predicted.time_s if predicted and predicted.time_s > 0 else None


def _expected_bounds(case: Case, phase: Phase, expected: float) -> tuple[float | None, float | None]:
    """The prediction's interval, scaled to what is expected here."""
    predicted = case.predicted.phase(phase.name) if case.predicted else None
    if predicted is None or not predicted.low_s or not predicted.high_s or predicted.time_s <= 0:
        return None, None
    return predicted.low_s / predicted.time_s * expected, predicted.high_s / predicted.time_s * expected


def _idle_cpus(case: Case) -> float:
    """How much longer a prediction may take: it is for all CPUs, and the run had fewer threads."""
    threads, cpus = case.threads, case.cpus
    return cpus / threads if threads and cpus and threads < cpus else 1.0


def _slowest(phase: Phase) -> str:
    """The op that is furthest above its prediction, in seconds."""
    known = [op for op in phase.ops if op.predicted_s is not None]
    if not known:
        return "its longest ops"
    return max(known, key=lambda op: op.time_s - (op.predicted_s or 0.0)).name


def _capitalised(phase: Phase) -> str:
    """The name of a phase at the beginning of a sentence."""
    words = phase_words(phase)
    return f"{words[0].upper()}{words[1:]}"


# Where it ran, and whether it fits: another unit than was meant, too few or too many threads, too little memory.

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
