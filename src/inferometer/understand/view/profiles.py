"""A measured profile for people: the headline with its statistic, the phases, the layers that take the time.

The sums are printed, so that a reader can see that they close.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from inferometer.core.machine import instructions_per_cycle
from inferometer.core.profile import OpTime, Phase, Profile, Verification
from inferometer.core.request import UNATTRIBUTED, op_count, ops_by, outside_layers, summed_samples
from inferometer.core.units import counted, format_capacity, format_quantity
from inferometer.measure.bench.statistics import summarise
from inferometer.understand.view.cards import Card, Fact, View
from inferometer.understand.view.measured import percentile_fact
from inferometer.understand.view.phrases import (
    TIMES,
    counter_fact,
    energy_fact,
    fraction,
    other_tool,
    profile_notes,
    profile_title,
    sizes_of,
    sustained_fact,
    time_remarks,
    uncounted_words,
)
from inferometer.understand.view.table import Bars, Column, ReportTable, columns, filled

# How the time of ops changes over the steps of a phase: whether attention takes longer the longer the cache is.

_LEAST = 10  # steps that a trend needs
_SURE = 2.576  # standard deviations of Mann–Kendall's score: a trend that chance makes once in a hundred


def growths(rows: Sequence[Sequence[float] | None]) -> list[float | None]:
    """For each row of samples its change from the first step to the last, as a share of its median step.

    Theil–Sen's slope, which a few interrupted steps do not move; None where Mann–Kendall's test finds no trend, and for
    less than ten steps.
    """
    import numpy as np  # noqa: PLC0415 - only where steps were kept

    found: list[float | None] = [None] * len(rows)
    places = [index for index, row in enumerate(rows) if row is not None and len(row) >= _LEAST]
    lengths = {len(rows[place] or ()) for place in places}
    for count in lengths:  # one for all ops of a phase
        mine = [place for place in places if len(rows[place] or ()) == count]
        data = np.asarray([rows[place] for place in mine], dtype=np.float64)
        first, second = np.triu_indices(count, k=1)
        rises = data[:, second] - data[:, first]
        slopes = np.median(rises / (second - first), axis=1)
        middles = np.median(data, axis=1)
        scores = np.abs(np.sign(rises).sum(axis=1)) - 1
        sure = (scores > _SURE * np.sqrt(count * (count - 1) * (2 * count + 5) / 18)) & (middles > 0)
        for place, slope, middle, is_sure in zip(mine, slopes, middles, sure, strict=True):
            found[place] = float(slope * (count - 1) / middle) if is_sure else None
    return found


_TOP = 12
_NAME, _SHORTER, _KERNEL = 40, 28, 24  # letters of a layer's and a kernel's name that fit into a hundred columns
_BARS = Bars(length="time_s", line="predicted_s", dot="floor_s")
_SHORT = {"median over generations of the mean step": "median of means"}
_PHASES = columns(
    Column(key="name", heading="phase"),
    "time_s", "statistic", "runs", "predicted_s", "floor_s", "flops", "bytes", "energy_j",
)  # fmt: skip
_LAYERS = columns(
    Column(key="name", heading="layer"),
    "count", "kind", "unit", "time_s", "share",
    Column(key="device_s", heading="on device", unit="s"),
    Column(key="min_s", heading="least", unit="s"),
    Column(key="max_s", heading="most", unit="s"),
    Column(key="growth", heading="growth", signed=True),
    Column(key="cumulative", heading="running sum", share=True),
    Column(key="ipc", heading="IPC"),
    "predicted_s", "floor_s",
    Column(key="efficiency", heading="of floor", share=True),
    "bound",
    Column(key="kernel", heading="ran as", letters=_KERNEL),
)  # fmt: skip
_LENGTHS = columns("test", "tokens_per_s", "time_s", "low_s", "high_s", "runs")
_EVERY_OP = columns("model", "phase", Column(key="name", heading="op", label="op"), "kind", "count", "unit", "time_s")
_EVERY_PHASE = columns(
    "model", "phase", "time_s", "statistic",
    Column(key="samples", heading="samples", exact=True),
    Column(key="ops", heading="ops", exact=True),
    Column(key="unattributed_s", heading="unattributed", unit="s"),
)  # fmt: skip
_OP_NAMES = tuple(entry.name for entry in fields(OpTime) if entry.name not in {"samples_s", "layers"})
_OP_COLUMNS = columns("phase", *_OP_NAMES)
_NUMBER = re.compile(r"(?<=[._/])\d+(?=[._/])")
_LAST = re.compile(r"(?:_token)?[_:]\d+$")  # at the end of an engine's own name
_OF_MODEL = "peak of the model, without Python"
_MEASURED = ("forward", "decode", "prefill")


def measured_view(profile: Profile, percentiles: Sequence[float] = ()) -> View:
    """The headline, the phases, and the layers of each phase whose kernels were measured."""
    layers = (layer_table(profile, phase=phase) for phase in profile.phases if phase.ops)
    return View(card=profile_card(profile, percentiles), tables=(measured_phase_table(profile), *layers))


def profile_card(profile: Profile, percentiles: Sequence[float] = ()) -> Card:
    facts = (*_times(profile), *_percentiles(profile, percentiles), *_circumstances(profile))
    count = profile.environment.threads if profile.environment else None
    threads = counted(count, "thread") if count else ""
    by, sizes = "measured", sizes_of(profile)
    if tool := other_tool(profile):
        by = f"measured by {tool}"
        sizes = sizes.removeprefix("batch 1").removeprefix(", ")  # 1 is also what a file says that names no batch
    title, subtitle = profile_title(profile), " · ".join(filter(None, (by, profile.runtime, threads, sizes)))
    return Card(title=title, subtitle=subtitle, facts=facts, sources=profile_notes(profile))


def _times(profile: Profile) -> Iterator[Fact]:
    summary = profile.summary
    for label, key, name in TIMES:
        value, phase = getattr(summary, key), profile.phase(name) if name else None
        if value is not None:
            summed = "its phases, each as often as it runs" if name is None else ""
            remark = _how(profile, key, phase) if phase else summed
            yield label, format_quantity(value, "s"), remark
    if summary.tokens_per_s is not None:
        all_of = ", of all sequences together" if profile.workload.batch > 1 else ""
        yield "tokens/s", format_quantity(summary.tokens_per_s, "1"), f"after the first{all_of}"
    if summary.latency_s and profile.phase("forward") is not None and other_tool(profile) is None:
        batch = profile.workload.batch
        batches = f"{format_quantity(1 / summary.latency_s, '1')} batches/s" if batch > 1 else ""
        yield "inputs/s", format_quantity(batch / summary.latency_s, "1"), batches
    yield from _between_tokens(profile)
    for name in ("load", "compile", "first_run"):
        phase = profile.phase(name)
        if phase is not None:
            yield name.replace("_", " "), format_quantity(phase.time_s, "s"), "once"


def _percentiles(profile: Profile, percentiles: Sequence[float]) -> Iterator[Fact]:
    """Those that were asked for, of every phase that was measured more than once."""
    for phase in profile.phases:
        for asked in percentiles if phase.name in _MEASURED and phase.samples_s else ():
            yield percentile_fact(phase.samples_s or (), asked, "" if phase.name == "forward" else phase.name)


def _between_tokens(profile: Profile) -> Iterator[Fact]:
    """The distribution of single steps, as far as there are enough of them, and what the cache grows by."""
    decode = profile.phase("decode")
    steps = decode.samples_s if decode else None
    if steps and len(steps) > 1:
        summary = summarise(steps, name="decode")
        ranks = (("p50", summary.median), ("p90", summary.p90), ("p99", summary.p99))
        known = ", ".join(f"{name} {format_quantity(value, 's')}" for name, value in ranks if value is not None)
        yield "between tokens", known, f"of {summary.count} steps, at most {format_quantity(summary.max, 's')}"
    token_bytes, workload = profile.model.kv_bytes_per_token, profile.workload
    if token_bytes and workload.prompt is not None:
        before = workload.context or 0
        ends = (before + workload.prompt, before + workload.prompt + (workload.generate or 0))
        first, last = (format_quantity(token_bytes * tokens * workload.batch, "B") for tokens in ends)
        yield "cache", f"{first} to {last}", f"{ends[0]} to {ends[1]} tokens, {format_quantity(token_bytes, 'B')} each"


def _how(profile: Profile, key: str, phase: Phase) -> str:
    count, statistic = len(phase.samples_s or ()), phase.statistic or ""
    if count:
        statistic += f", {counted(count, 'step')}" if phase.name == "decode" else f" of {count}"
    remarks = time_remarks(profile, key.removesuffix("_s"), phase)
    if other_tool(profile):
        remarks = [remark for remark in remarks if remark != uncounted_words(phase)]
    return ", ".join(filter(None, (statistic, *remarks)))


def _circumstances(profile: Profile) -> Iterator[Fact]:
    summary, environment = profile.summary, profile.environment
    if summary.peak_memory_bytes is not None:
        yield "memory", format_capacity(summary.peak_memory_bytes), "peak" if other_tool(profile) else _OF_MODEL
    yield from energy_fact(profile)
    yield from sustained_fact(profile.sustained)
    yield from counter_fact(profile.steady)
    if summary.top_unit is not None:
        yield "top unit", summary.top_unit, f"by time; {_by_count(profile)}"
    if profile.verification is not None:
        yield "outputs", profile.verification.status, _checked(profile)
    if environment is not None:
        placed = environment.host.get("placed")
        if placed:
            yield "ran on", ", ".join(f"{name} {count}" for name, count in placed.items()), "by the engine's own count"
        quiet = {True: "disturbed", False: "quiet", None: "unknown"}[environment.disturbed]
        if environment.disturbed is not None or other_tool(profile) is None:  # other tools never say
            yield "machine", quiet, environment.disturbance


def _by_count(profile: Profile) -> str:
    unit, count = profile.summary.top_unit_by_count, op_count(profile)
    if not count or unit is None:
        return f"{unit} by the number of ops"
    return f"{unit} by the number of ops, {ops_by(profile, 'unit').get(unit, 0)} of {count}"


def _checked(profile: Profile) -> str:
    check = profile.verification
    if check is None or check.status == "unchecked":
        return (check and check.reason) or "`--verify RUNTIME` compares them"
    numbers = {"max error": check.max_rel, "cosine": check.cosine, "same best": check.top_1, "NLL": check.nll_drift}
    known = ", ".join(f"{name} {value:.3g}" for name, value in numbers.items() if value is not None)
    return f"against {check.reference}: {check.reason or known}"


def verification_card(model: str, check: Verification) -> Card:
    """The verdict first, then the numbers it rests on."""
    numbers = (
        ("max error", check.max_abs, "absolute"),
        ("max error", check.max_rel, "of an output's largest value"),
        ("RMS error", check.rms_rel, "of an output's size"),
        ("cosine", check.cosine, "the least of all outputs"),
        ("same best", check.top_1, "share of positions"),
        ("best five", check.top_k, "mean share in common"),
        ("NLL drift", check.nll_drift, "nats a token"),
    )
    facts: list[Fact] = [("outputs", check.status, check.reason or "")]
    facts += [(label, f"{value:.4g}", remark) for label, value, remark in numbers if value is not None]
    if check.tolerance:
        facts.append(("allowed", "", check.tolerance))
    return Card(title=model, subtitle=f"against {check.reference}", facts=tuple(facts))


def measured_phase_table(profile: Profile) -> ReportTable:
    rows = tuple(phase_rows(profile))
    parts = "\n".join(f"{phase.name}: {_parts(phase)}" for phase in profile.phases if len(phase.parts) > 1)
    return ReportTable(columns=filled(_PHASES, rows), rows=rows, note=parts or None)


def phase_rows(profile: Profile) -> Iterator[dict[str, Any]]:
    """Every phase with all that is shown of one; a page has room for more of its columns than a terminal."""
    for phase in profile.phases:
        yield {
            **{column.key: getattr(phase, column.key, None) for column in _PHASES},
            "statistic": _SHORT.get(phase.statistic or "", phase.statistic),
            "runs": len(phase.samples_s or ()) or None,
            "rest_s": outside_layers(phase).get(UNATTRIBUTED, 0.0) if phase.ops else phase.unattributed_s,
            "bound": phase.bound,
            "parts": _parts(phase) or None,
        }


def _parts(phase: Phase) -> str:
    """Each part with its time, and with what was predicted of it where anything was."""

    def told(name: str, seconds: float) -> str:
        predicted = phase.predicted_parts.get(name)
        beside = "" if predicted is None else f" (predicted {format_quantity(predicted, 's')})"
        return f"{name} {format_quantity(seconds, 's')}{beside}"

    return ", ".join(told(name, seconds) for name, seconds in phase.parts.items())


def layer_table(profile: Profile, *, phase: Phase | None = None, most: int | None = _TOP) -> ReportTable:
    """The layers that take the most time; with `most` None all of them, in the order of execution."""
    chosen = phase or next((named for name in _MEASURED if (named := profile.phase(name)) and named.ops), None)
    if chosen is None:
        return ReportTable(columns=_LAYERS, rows=())
    # Another tool does not say which of its rows are layers of the model: `conv` and `conv_1` may well be two of them.
    whole = most is None or other_tool(profile) is not None
    folded = chosen.ops if whole else fold_layers(chosen.ops, own=chosen.name == "forward")
    ops = folded if most is None else tuple(sorted(folded, key=lambda op: -op.time_s)[:most])
    rows: list[dict[str, Any]] = []
    so_far = 0.0
    for op, growth in zip(ops, growths([op.samples_s for op in ops]), strict=True):
        so_far += op.time_s
        rows.append(_layer_row(op, chosen, so_far, growth))
    if most is not None:
        rows = [_for_people(row, chosen, units={op.unit for op in folded}) for row in rows]
    left = len(folded) - len(rows)
    letters = _NAME if chosen.predicted_s is None else _SHORTER
    return ReportTable(
        columns=filled((replace(_LAYERS[0], letters=letters), *_LAYERS[1:]), rows),
        rows=tuple(rows),
        title=f"Where {chosen.name} goes",
        note=closing_line(chosen),
        left=counted(left, "more layer") if left > 0 else None,
        bars=_BARS,
    )


def _for_people(row: dict[str, Any], phase: Phase, *, units: set[str | None]) -> dict[str, Any]:
    """What fits into a hundred columns: one unit for all not repeated, predictions before running sums.

    Where steps differ, how each layer did in them stands in the place of its floor and the engine's name for it.
    """
    predicted, stepped = phase.predicted_s is not None, phase.op_context is not None
    away = ["cumulative"] * predicted + ["unit"] * (len(units) == 1)
    away += ["floor_s", "kernel"] if stepped else ["min_s", "max_s", "growth"]
    return {**row, **dict.fromkeys(away)}


def fold_layers(ops: Sequence[OpTime], *, own: bool = False) -> tuple[OpTime, ...]:
    """Ops that differ only in the number of their layer as one row: `layers.*.mlp.up_proj`, as often as it stands.

    With `own` only those that belong to no layer: an engine numbers its layout changes, `ReorderInput_token_12`.
    """
    groups: dict[tuple[str, str], list[OpTime]] = {}
    for op in ops:
        name = op.name if own else _NUMBER.sub("*", op.name)
        if op.block is None:
            name = _LAST.sub("", name)
        groups.setdefault((name, op.kind), []).append(op)
    return tuple(group[0] if len(group) == 1 else _together(name, group) for (name, _), group in groups.items())


def _together(name: str, ops: Sequence[OpTime]) -> OpTime:
    def total(key: str) -> float | None:
        known = [value for op in ops if (value := getattr(op, key)) is not None]
        return sum(known) if len(known) == len(ops) else None

    summed: dict[str, Any] = {key: total(key) for key in ("device_s", "predicted_s", "floor_s", "flops", "bytes")}
    longest = max(ops, key=lambda op: op.time_s)
    time_s, count = sum(op.time_s for op in ops), sum(op.count for op in ops)
    samples = summed_samples(ops)  # of all of them in each step
    return replace(longest, name=name, time_s=time_s, count=count, kernel=None, layers=(), samples_s=samples, **summed)


def _layer_row(op: OpTime, phase: Phase, so_far: float, growth: float | None) -> dict[str, Any]:
    return {
        "name": op.name if len(op.layers) < 2 else f"{op.name} + {len(op.layers) - 1}",
        "kind": op.kind,
        "count": op.count if op.count > 1 else None,
        "unit": op.unit,
        "time_s": op.time_s,
        "share": fraction(op.time_s, phase.time_s),
        "device_s": op.device_s,  # the rest of its time the device waited for the host
        "min_s": min(op.samples_s) if op.samples_s else None,
        "max_s": max(op.samples_s) if op.samples_s else None,
        "growth": growth if phase.op_context is not None else None,
        "cumulative": fraction(so_far, phase.time_s),
        "ipc": instructions_per_cycle(op.counters),
        "predicted_s": op.predicted_s,
        "floor_s": op.floor_s,
        "efficiency": fraction(op.floor_s, op.time_s) if op.floor_s is not None else None,
        "bound": op.bound,
        "kernel": op.kernel if op.kernel != op.name else None,
    }


def closing_line(phase: Phase) -> str:
    """The sum that closes: layers, what the engine does around them, and the unattributed rest are the clean run."""
    outside = outside_layers(phase)
    terms = [f"{format_quantity(sum(op.time_s for op in phase.ops), 's')} in layers"]
    terms += [f"{format_quantity(seconds, 's')} {name}" for name, seconds in outside.items() if name != UNATTRIBUTED]
    terms.append(f"{format_quantity(outside.get(UNATTRIBUTED, 0.0), 's')} unattributed")
    return f"{' + '.join(terms)} = {format_quantity(phase.clean_s or phase.time_s, 's')} of the clean run."


def length_table(profiles: Sequence[Profile]) -> ReportTable:
    """Rows as llama-bench names them: pp512 reads a prompt of 512, tg128 makes 128 tokens, @ d512 after 512 others."""
    return ReportTable(columns=_LENGTHS, rows=tuple(row for profile in profiles for row in _length_rows(profile)))


def _length_rows(profile: Profile) -> Iterator[dict[str, Any]]:
    workload = profile.workload
    depth = f" @ d{workload.context}" if workload.context else ""
    prefill, decode = profile.phase("prefill"), profile.phase("decode")
    if prefill is not None and workload.prompt:
        rate = workload.batch * workload.prompt / prefill.time_s
        yield _length_row(f"pp{workload.prompt}{depth}", prefill, rate, len(prefill.samples_s or ()))
    if decode is not None and workload.generate:
        generations = len(decode.samples_s or ()) // max(workload.generate - 1, 1)
        yield _length_row(f"tg{workload.generate}{depth}", decode, workload.batch / decode.time_s, generations)


def _length_row(test: str, phase: Phase, rate: float, runs: int) -> dict[str, Any]:
    times = {key: getattr(phase, key) for key in ("time_s", "low_s", "high_s")}
    return {"test": test, "tokens_per_s": rate, **times, "runs": runs}


def every_op_table(profiles: Sequence[Profile]) -> ReportTable:
    """All ops of all phases; the phases themselves where no profile has ops."""
    of_phases = [
        ({"model": profile.model.name, "phase": phase.name}, phase) for profile in profiles for phase in profile.phases
    ]
    if any(phase.ops for _, phase in of_phases):
        names = ("name", "kind", "count", "unit", "time_s")
        ops = (
            {**named, **{name: getattr(op, name) for name in names}} for named, phase in of_phases for op in phase.ops
        )
        return ReportTable(columns=_EVERY_OP, rows=tuple(ops))
    rows = (
        {
            **named,
            "time_s": phase.time_s,
            "statistic": phase.statistic,
            "samples": len(phase.samples_s) if phase.samples_s else None,
            "ops": None,
            "unattributed_s": phase.unattributed_s,
        }
        for named, phase in of_phases
    )
    return ReportTable(columns=_EVERY_PHASE, rows=tuple(rows))


def record_table(profile: Profile) -> ReportTable:
    """What a file has a line of: every op, or every request of a load test, with the columns of a trace first."""
    if profile.served is not None:
        from inferometer.understand.view.load_tests import REQUEST_COLUMNS, request_rows  # noqa: PLC0415 - numpy, for these alone

        return ReportTable(columns=columns(*REQUEST_COLUMNS), rows=tuple(request_rows(profile.served)))
    rows = tuple(
        {"phase": phase.name, **{name: getattr(op, name) for name in _OP_NAMES}}
        for phase in profile.phases
        for op in phase.ops
    )
    return ReportTable(columns=_OP_COLUMNS, rows=rows)
