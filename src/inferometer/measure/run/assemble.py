"""Raw → Profile: phases with their statistics, ops that add up, the headline, and notes for the reader."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import fsum
from statistics import fmean, median
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.core.profile import (
    DeviceFacts,
    Environment,
    Headline,
    ModelFacts,
    OpTime,
    Phase,
    Profile,
    Provenance,
    Verification,
)
from inferometer.core.request import BETWEEN, PARTS, RUN, distinct_ops, phase_repeats
from inferometer.core.sizes import bind
from inferometer.core.structure import structure_of
from inferometer.core.units import format_quantity
from inferometer.core.workload import Workload
from inferometer.engines.base import Event, Kernel
from inferometer.measure.bench.statistics import summarise
from inferometer.measure.run.correct import Corrected, correct, rest_of, steady_mean
from inferometer.measure.run.layers import Layers, graph_layers
from inferometer.measure.run.ops import measured_ops, with_steps
from inferometer.measure.run.order import TextOrder
from inferometer.measure.run.raw import Generation, Raw, Shape, event_seconds, memory_over_time
from inferometer.version import __version__

# Generations → the phases of a request with their times and parts; the ops come later.
#
# One statistic holds for a phase and its parts: the parts are those of the very generation whose time is the median (of
# the two in the middle, if their number is even), so they add up to the phase.


def first_phase(generations: Iterable[Generation]) -> list[Phase]:
    """The prefill of the first generation after loading, and the encoder before it, which are in no statistic."""
    for generation in generations:
        if generation.first and generation.events:
            before = [event for event in generation.events if event.kind == "encode"]
            first = [event for event in generation.events if event.kind != "encode"][:1]
            return [_timed("first_run", (fsum(map(event_seconds, before + first)),), "single")]
    return []


def tokenise_phase(kept: Iterable[Generation]) -> list[Phase]:
    return _known("tokenise", (generation.tokenise_s for generation in kept))


def detokenise_phase(kept: Sequence[Generation]) -> list[Phase]:
    """The whole answer at once; an engine that turns each token into text as it comes has done so in its steps."""
    if any("detokenise" in event.parts for generation in kept for event in generation.events):
        return []
    return _known("detokenise", (generation.detokenise_s for generation in kept))


def _known(name: str, seconds: Iterable[float | None]) -> list[Phase]:
    known = tuple(value for value in seconds if value is not None)
    return [_timed(name, known, "median")] if known else []


def _timed(name: str, samples_s: tuple[float, ...], statistic: str) -> Phase:
    return Phase(name=name, time_s=median(samples_s), statistic=statistic, samples_s=samples_s)


def pass_phase(kept: Iterable[Generation], name: str) -> Phase | None:
    """What runs once a generation: the encoder, or reading the prompt."""
    events = [event for generation in kept for event in generation.events if event.kind == name]
    if not events:
        return None
    seconds = tuple(event_seconds(event) for event in events)
    summary = summarise(seconds, name=name)
    interval = summary.median_interval
    return Phase(
        name=name,
        time_s=summary.median,
        low_s=interval.low if interval else None,
        high_s=interval.high if interval else None,
        statistic="median",
        samples_s=seconds,
        clean_s=summary.median,
        context=tuple(event.context for event in events),
        parts=_parts([[events[place]] for place in middle(seconds)], summary.median),
    )


def decode_phase(kept: Iterable[Generation]) -> Phase | None:
    """The time is the median over generations of their mean step. Samples are single tokens, in order."""
    steps = [(generation, _steps(generation)) for generation in kept]
    steps = [(generation, events) for generation, events in steps if events]
    if not steps:
        return None
    intervals = [token for generation, _ in steps for token in _tokens(generation)]
    means = [mean_step(generation) or 0.0 for generation, _ in steps]
    time_s = median(means)
    return Phase(
        name="decode",
        time_s=time_s,
        low_s=min(means) if len(means) > 1 else None,
        high_s=max(means) if len(means) > 1 else None,
        statistic="median over generations of the mean step",
        samples_s=tuple(seconds for seconds, _ in intervals),
        context=tuple(context for _, context in intervals),
        clean_s=time_s,
        parts=_parts([steps[place][1] for place in middle(means)], time_s),
    )


def mean_step(generation: Generation) -> float | None:
    """Seconds per token after the first: (end − first token) / (tokens − 1)."""
    tokens = _tokens(generation)
    return fsum(seconds for seconds, _ in tokens) / len(tokens) if tokens else None


def _steps(generation: Generation) -> list[Event]:
    return [event for event in generation.events if event.kind == "token"]


def _tokens(generation: Generation) -> list[tuple[float, int]]:
    """For each token after the first: the seconds since the one before it, and the tokens in the cache.

    Tokens that come in one chunk share its time.
    """
    steps = _steps(generation)
    before = [event.end_ns for event in generation.events if event.kind == "prefill"][-1:]
    last_ns = before[0] if before else steps[0].start_ns if steps else 0
    tokens: list[tuple[float, int]] = []
    for event in steps:
        seconds = (event.end_ns - last_ns) * 1e-9 / event.tokens
        tokens += [(seconds, event.context + index) for index in range(event.tokens)]
        last_ns = event.end_ns
    return tokens


def middle(values: Sequence[float]) -> tuple[int, ...]:
    """The places of the readings whose mean is the median: one, or two of an even number."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    half = len(order) // 2
    return (order[half],) if len(order) % 2 else (order[half - 1], order[half])


def _parts(groups: Sequence[Sequence[Event]], time_s: float) -> dict[str, float]:
    """Seconds a token of each part, the mean of the groups; what no part accounts for is a part too.

    An engine that is not asked for its parts has one: it runs.
    """
    told = dict.fromkeys(name for events in groups for event in events for name in event.parts)
    if not told:
        return {RUN: time_s}
    seconds = {name: fsum(_a_token(events, name) for events in groups) / len(groups) for name in told}
    if "detokenise" in seconds:  # the token is read as text
        seconds["read"] = seconds.get("read", 0.0) + seconds.pop("detokenise")
    parts = {name: seconds[name] for name in PARTS if name in seconds}
    left_s = time_s - fsum(parts.values())
    return {**parts, BETWEEN: left_s} if left_s > 1e-9 * time_s else parts


def _a_token(events: Sequence[Event], name: str) -> float:
    """A prefill reads all its tokens in one step; a later step makes some."""
    made = sum(event.tokens if event.kind == "token" else 1 for event in events)
    return fsum(event.parts.get(name, 0.0) for event in events) / made


_SMALL = 0.05  # a share of the time above this is worth a note
_FEW = 0.01  # … and a share of the work above this that no kernel did


@frozen
class MeasuredSubject:
    """The measured model as its reader sees it. `notes` say what was done to it first: random weights, for example."""

    graph: Graph
    workload: Workload
    runtime: str
    sizes: Mapping[str, int]
    facts: ModelFacts
    notes: tuple[str, ...] = ()
    command: str | None = None


def assemble_profile(
    subject: MeasuredSubject, raw: Raw, *, case: TextOrder | None = None, now: datetime | None = None
) -> Profile:
    """The profile of a measurement. `case` chooses one of several lengths of a language model."""
    notes = [*subject.notes, *(raw.opened.notes if raw.opened else ())]
    phases = [*_once(raw)]
    if case is not None:
        raw = replace(
            raw,
            shapes=tuple(shape for shape in raw.shapes if shape.order in {None, case}),
            generations=tuple(generation for generation in raw.generations if generation.order == case),
        )
    if raw.generations or case is not None:
        phases += _text_phases(subject, raw, notes)
        headline = _text_headline(phases, raw, subject.workload)
    else:
        phases += _array_phases(subject, raw, notes)
        headline = _array_headline(phases, raw, subject.workload)
    if raw.ended != "done":
        notes.insert(0, f"Not complete ({raw.ended}): {raw.error or 'it ended early'}")
    binding = bind(subject.graph, subject.workload, subject.sizes, complete=False)
    return Profile(
        kind="measured",
        model=subject.facts,
        device=_device(raw),
        workload=subject.workload,
        phases=tuple(phases),
        summary=headline,
        runtime=subject.runtime,
        environment=_environment(raw),
        provenance=Provenance(
            tool="inferometer profile",
            version=__version__,
            created=(now or datetime.now(UTC)).isoformat(timespec="seconds"),
            command=subject.command,
            notes=tuple(dict.fromkeys(notes)),
        ),
        verification=Verification(status="unchecked"),
        sizes=dict(subject.sizes),
        structure=structure_of(subject.graph, binding) if any(phase.ops for phase in phases) else None,
    )


def _once(raw: Raw) -> Iterable[Phase]:
    """Costs paid once are phases of their own, and part of no other phase."""
    for stage in raw.opened.stages if raw.opened else ():
        yield Phase(name=stage.name, time_s=stage.seconds, statistic="single", samples_s=(stage.seconds,))
    if raw.first_s is not None:
        yield Phase(name="first_run", time_s=raw.first_s, statistic="single", samples_s=(raw.first_s,))


def _array_phases(subject: MeasuredSubject, raw: Raw, notes: list[str]) -> list[Phase]:
    if raw.clean is None or not raw.clean.samples_s:
        return []
    layers = graph_layers(subject.graph, bind(subject.graph, subject.workload, subject.sizes), _stored_names(raw))
    summary = summarise(raw.clean.samples_s, name="forward")
    interval = summary.median_interval
    forward = Phase(
        name="forward",
        time_s=summary.median,
        low_s=interval.low if interval else None,
        high_s=interval.high if interval else None,
        statistic="median",
        samples_s=tuple(raw.clean.samples_s),
        clean_s=summary.median,
    )
    launch_s = min(raw.launch_s or 0.0, forward.time_s)
    parts = {RUN: forward.time_s} if raw.launch_s is None else {"launch": launch_s, RUN: forward.time_s - launch_s}
    phase = _with_ops(replace(forward, parts=parts), raw.shapes, layers, notes)
    return [replace(phase, counters=dict(raw.counters.counts)) if raw.counters else phase]


def _with_ops(phase: Phase, shapes: Sequence[Shape], layers: Layers, notes: list[str]) -> Phase:
    """The phase with its ops. Its work is counted from the model's graph, not from what the engine ran."""
    flops, moved = (sum(getattr(layer, key) for layer in layers.by_name.values()) for key in ("flops", "bytes"))
    phase = replace(phase, flops=flops, bytes=moved)
    shape = next((shape for shape in shapes if shape.phase == phase.name), None)
    if shape is None or not shape.kernels or phase.clean_s is None:
        return phase
    phase, kernels = _on_device(phase, shape.kernels)
    # The part of the phase that its kernels fill: the engine's run of the layers, if it says how long that is. A
    # device may still work while the host samples and reads, so its kernels may fill all of the phase.
    by_host = all(kernel.device_s is None for kernel in kernels)
    run_s = phase.parts.get(RUN, phase.time_s) if by_host else phase.time_s
    corrected = correct(
        kernels,
        clean_s=run_s,
        walls_s=shape.walls_s,
        paired_s=shape.paired_s,
        cost_s=shape.cost_s,
        idle_s=shape.idle_s,
    )
    notes += _correction_notes(phase.name, run_s, corrected, len(kernels))
    notes += _own_kernel_notes(phase, corrected, kernels)
    phase = replace(phase, op_context=shape.context if phase.name == "decode" and shape.context else None)
    ops = with_steps(phase, measured_ops(kernels, corrected, layers), shape.walls_s)
    notes += _mismatch_notes(phase, ops, layers)
    return replace(phase, ops=ops, unattributed_s=rest_of(phase.time_s, fsum(op.time_s for op in ops)))


def _on_device(phase: Phase, kernels: Sequence[Kernel]) -> tuple[Phase, Sequence[Kernel]]:
    """If a device works beside the host, the phase's ops are the device's kernels, and the host's time is one part.

    The host runs ahead of the device, so the two overlap: where the clean run is longer than the device's time, the
    device waited.
    """
    device = [kernel for kernel in kernels if kernel.device_s is not None]
    if not device:
        return phase, kernels
    host_s = sum(steady_mean(kernel.samples_s) for kernel in kernels if kernel.kind != "wait")
    device_s = sum(steady_mean(kernel.device_s or ()) for kernel in device)
    return replace(phase, clocks={"host": host_s, "device": device_s}), device


def _correction_notes(name: str, clean: float, corrected: Corrected, kernels: int) -> Iterable[str]:
    over = corrected.raw_s / clean - 1
    if over > _SMALL:
        cost = f"{format_quantity(corrected.cost_s, 's')} of timing were taken out of each of {kernels} kernels"
        scaled = f"times were scaled by {corrected.scale:.2f}"
        done = " and ".join(words for words, so in ((cost, corrected.cost_s > 0), (scaled, corrected.scale < 1)) if so)
        yield f"{name}: the engine's timers add up to {over:.0%} more than the clean run; {done}."
    if corrected.unattributed_s > _SMALL * clean:
        yield f"{name}: {corrected.unattributed_s / clean:.0%} of the clean run is in no kernel (unattributed)."


def _own_kernel_notes(phase: Phase, corrected: Corrected, kernels: Sequence[Kernel]) -> Iterable[str]:
    """The engine's own work for a layer is time that another layout or precision would save."""
    own = [(kernel.kind, time_s) for kernel, time_s in zip(kernels, corrected.times_s, strict=True) if kernel.own]
    seconds, total = sum(time_s for _, time_s in own), sum(corrected.times_s)
    if seconds > _SMALL * total:
        kinds = _most(kind for kind, _ in own)
        yield (
            f"{phase.name}: {seconds / total:.0%} of the time in kernels is in {len(own)} of the engine's own, which "
            f"lay out or convert a layer's inputs ({kinds}); each is listed under its layer's name."
        )


def _most(kinds: Iterable[str]) -> str:
    return ", ".join(kind for kind, _ in Counter(kinds).most_common(2))


def _mismatch_notes(phase: Phase, ops: Sequence[OpTime], layers: Layers) -> Iterable[str]:
    """Kernels that belong to no layer, and work that no kernel did, if there is more than a little of either."""
    own = [op for op in ops if op.block is None]
    seconds, total = sum(op.time_s for op in own), sum(op.time_s for op in ops)
    if seconds > _SMALL * total:
        kinds = _most(op.kind for op in own)
        yield (
            f"{phase.name}: {seconds / total:.0%} of the time in kernels is in {len(own)} of the engine's own, which "
            f"belong to no layer of the model ({kinds})."
        )
    ran = {name for op in ops for name in (op.layers or (op.name,))}
    left = [layer for name, layer in layers.by_name.items() if name not in ran and layer.flops > 0]
    share = sum(layer.flops for layer in left) / phase.flops if phase.flops else 0.0
    if share > _FEW:
        example = max(left, key=lambda layer: layer.flops).name
        yield (
            f"{phase.name}: {share:.1%} of the work, in {len(left)} layers such as {example}, is in no kernel: the "
            f"engine merged equal layers, or computed them when it loaded the model."
        )


def _text_phases(subject: MeasuredSubject, raw: Raw, notes: list[str]) -> list[Phase]:
    kept = [generation for generation in raw.generations if not generation.first]
    phases = [*first_phase(raw.generations), *tokenise_phase(kept)]
    encode, prefill, decode = pass_phase(kept, "encode"), pass_phase(kept, "prefill"), decode_phase(kept)
    if encode is not None:
        layers = _layers(subject, raw, query=1, context=0, once=True)
        phases.append(_with_ops(encode, raw.shapes, layers, notes))
    if prefill is not None:
        (event, *_) = (event for generation in kept for event in generation.events if event.kind == "prefill")
        layers = _layers(subject, raw, query=event.tokens, context=event.context)
        phases.append(_with_ops(prefill, raw.shapes, layers, notes))
    if decode is not None:
        middle = round(fmean(decode.context or (0,)))
        phases.append(_with_ops(decode, raw.shapes, _layers(subject, raw, query=1, context=middle), notes))
    return phases + detokenise_phase(kept)


def _layers(subject: MeasuredSubject, raw: Raw, *, query: int, context: int, once: bool = False) -> Layers:
    """The layers of a step; `once`: those of the encoder, which run once a request."""
    sizes = {"query": query, "context": context, "batch": subject.workload.batch}
    known = {name: size for name, size in sizes.items() if name in subject.graph.symbols}
    binding = bind(subject.graph, subject.workload, {**subject.sizes, **known})
    return graph_layers(subject.graph, binding, _stored_names(raw), once=once)


def _stored_names(raw: Raw) -> Mapping[str, str]:
    return raw.opened.stored_names if raw.opened else {}


def _array_headline(phases: Sequence[Phase], raw: Raw, workload: Workload) -> Headline:
    forward = next((phase for phase in phases if phase.name == "forward"), None)
    if forward is None:
        return Headline(peak_memory_bytes=_peak(raw))
    return Headline(
        latency_s=forward.time_s,
        peak_memory_bytes=_peak(raw),
        unattributed_s=forward.unattributed_s,
        **_top_units(phases, workload, raw),
    )


def _text_headline(phases: Sequence[Phase], raw: Raw, workload: Workload) -> Headline:
    """The request is the sum of its phases, each as often as it runs: the parts of the headline close like the rest."""
    by_name = {phase.name: phase for phase in phases}
    prefill, decode = by_name.get("prefill"), by_name.get("decode")
    before_s = fsum(by_name[name].time_s for name in ("tokenise", "encode") if name in by_name)
    times = phase_repeats(phases, workload, "measured")
    step = decode.time_s if decode else None
    rest = [phase.unattributed_s for phase in (prefill, decode) if phase and phase.unattributed_s is not None]
    return Headline(
        ttft_s=prefill.time_s + before_s if prefill else None,
        tpot_s=step,
        e2e_s=fsum(times[phase.name] * phase.time_s for phase in phases if phase.name in times) if prefill else None,
        tokens_per_s=workload.batch / step if step else None,
        peak_memory_bytes=_peak(raw),
        unattributed_s=sum(rest) if rest else None,
        **_top_units(phases, workload, raw),
    )


def _top_units(phases: Sequence[Phase], workload: Workload, raw: Raw) -> dict[str, Any]:
    """By time and by count, which may differ: a hundred tiny ops on one unit, a long one on another."""
    times = phase_repeats(phases, workload, "measured")
    seconds: dict[str, float] = {}
    for phase in phases:
        for op in phase.ops:
            seconds[op.unit or "cpu"] = seconds.get(op.unit or "cpu", 0.0) + times.get(phase.name, 0.0) * op.time_s
    if not seconds:
        unit = raw.opened.unit if raw.opened else None
        return {"top_unit": unit, "top_unit_by_count": unit}
    count = Counter(op.unit or "cpu" for op in distinct_ops(phases).values())
    return {"top_unit": max(seconds, key=lambda unit: seconds[unit]), "top_unit_by_count": count.most_common(1)[0][0]}


def _peak(raw: Raw) -> int | None:
    """The model's memory at its peak: the accelerator's if it runs there, else the process's."""
    memory = raw.memory
    return memory.of_model(memory.peak_bytes) if memory.device_peak_bytes is None else memory.device_peak_bytes


def _device(raw: Raw) -> DeviceFacts:
    host = raw.environment.host if raw.environment else {}
    unit = raw.opened.unit if raw.opened else "cpu"
    gpus = host.get("gpus") or ()
    title = gpus[0] if unit.startswith("gpu") and gpus else host.get("cpu")
    return DeviceFacts(name="local", title=title)


def _environment(raw: Raw) -> Environment:
    environment = raw.environment or Environment()
    if raw.opened is None:
        return environment
    uncounted = raw.counters.reason if raw.counters else None
    # The process before and after the model was opened and at its peak; and the model's own part of it over time.
    levels = {name: getattr(raw.memory, name) for name in ("before_bytes", "opened_bytes", "peak_bytes")}
    memory: dict[str, Any] = {name: value for name, value in levels.items() if value is not None}
    if series := memory_over_time(raw):
        memory |= {"at_s": list(series), "model_bytes": list(series.values())}
    details = {
        "placed": dict(raw.opened.placed), "memory": memory, "counters": uncounted, "call_s": raw.host_call_s,
        "module_s": raw.host_module_s,
    }  # fmt: skip
    host = {**environment.host, **{name: value for name, value in details.items() if value}}
    return replace(
        environment, versions={**environment.versions, **raw.opened.versions}, threads=raw.opened.threads, host=host
    )
