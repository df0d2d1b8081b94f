"""What several reports say in the same words: the title of a profile, its sizes, its headline, shares and intervals."""

from collections.abc import Iterator

from inferometer.core.machine import MachineFacts, branch_miss_share, cache_miss_share, instructions_per_cycle
from inferometer.core.profile import COUNTED, Environment, Headline, Phase, Profile, Sustained
from inferometer.core.units import format_capacity, format_quantity
from inferometer.understand.view.table import share_text

_SOME = 0.05  # of the parameters: a format that fewer have is not named in a title

# Label, field of the summary, and the phase that it is the time of.
TIMES = (
    ("latency", "latency_s", "forward"),
    ("first token", "ttft_s", "prefill"),
    ("each token", "tpot_s", "decode"),
    ("whole request", "e2e_s", None),
)


def profile_title(profile: Profile) -> str:
    return f"{profile.model.name} on {place_of(profile)}"


def place_of(profile: Profile) -> str:
    """Where it ran, or would run: `ubuntu-box · Intel Xeon Platinum 8592+ · 2 cores`, `4 × NVIDIA H200`."""
    machine = profile.environment.machine if profile.environment else None
    if machine is not None:
        return machine.title(profile.device.title)
    count = f"{profile.device.count} × " if profile.device.count > 1 else ""
    return f"{count}{profile.device.title or profile.device.name}"


def machine_facts_text(machine: MachineFacts) -> Iterator[str]:
    """What is known of a machine besides its name, processor and cores."""
    yield f"id {machine.id}"
    if machine.board:
        yield machine.board
    if machine.memory_bytes is not None:
        yield format_capacity(machine.memory_bytes)
    yield from (*machine.gpus, *machine.accelerators)
    yield from filter(None, (machine.system, machine.container))
    if machine.virtualised:
        yield f"virtual machine ({machine.hypervisor})" if machine.hypervisor else "virtual machine"


def other_tool(profile: Profile) -> str | None:
    """Who measured it, where we did not: its file knows no work of an op, and not what a peak of memory leaves out."""
    tool = profile.provenance.tool if profile.provenance else ""
    return tool if tool and not tool.startswith("inferometer") else None


def profile_notes(profile: Profile) -> tuple[str, ...]:
    """Critical findings as warnings (`explain` has the others), then what the profile's maker noted."""
    critical = (finding for finding in profile.findings if finding.severity == "critical")
    warnings = (
        f"! {finding.title}: {finding.advice}" if finding.advice else f"! {finding.title}" for finding in critical
    )
    notes = profile.provenance.notes if profile.provenance else ()
    return (*warnings, *notes, *energy_notes(profile.environment), *counter_notes(profile.environment))


def energy_notes(environment: Environment | None) -> Iterator[str]:
    """Which sensors the energy is of and what they include; or, once, why there is none."""
    facts = environment.energy if environment else None
    if facts is None:
        return
    if not facts.sensors:
        yield f"Energy is not measured: {facts.reason}."
        return
    covered = ", ".join(dict.fromkeys(sensor.covers for sensor in facts.sensors))
    names = ", ".join(sensor.name for sensor in facts.sensors)
    spans = " and ".join(f"{format_quantity(seconds, 's')} of {name}" for name, seconds in facts.window_s.items())
    over = f"; measured over {spans}" if spans else ""
    yield f"Energy is of {covered} ({names}) and includes the draw at rest{over}."
    if facts.reason:
        yield f"Energy is not measured of everything: {facts.reason}."


def counter_notes(environment: Environment | None) -> Iterator[str]:
    """Why the processor's counters were not read, where somebody looked for them."""
    reason = environment.host.get("counters") if environment else None
    if reason:
        yield f"Cycles, instructions and misses are not measurable here: {reason}."


def counter_fact(phase: Phase | None) -> Iterator[tuple[str, str, str]]:
    """Instructions a cycle in a phase, and how much missed the last level of cache and the branch predictor."""
    counts = phase.counters if phase else {}
    rate = instructions_per_cycle(counts)
    if rate is None:
        return
    shares = {"cache misses": cache_miss_share(counts), "branch misses": branch_miss_share(counts)}
    known = (f"{share:.1%} {name}" for name, share in shares.items() if share is not None)
    amount = f"{counts['instructions'] / 1e6:,.0f} million instructions"
    yield "IPC", f"{rate:.2f}", ", ".join((amount, *known))


def energy_fact(profile: Profile) -> Iterator[tuple[str, str, str]]:
    """Joules of a measured inference or request, and of a token or input; beside them what the machine draws at rest.

    Where nothing was measured, the prediction for a step, said to be one.
    """
    joules, facts = profile.summary.energy_j, profile.environment.energy if profile.environment else None
    decode, steady = profile.phase("decode"), profile.steady
    rest = f"{format_quantity(facts.idle_w, 'W')} at rest" if facts and facts.idle_w is not None else None
    each = _each_energy(profile)
    if joules is not None:
        what = "a request" if decode else "a run"
        yield "energy", format_quantity(joules, "J"), ", ".join(filter(None, (what, each, rest)))
    elif each is not None:
        yield "energy", each, rest or ""
    elif facts and steady is not None and (predicted := facts.predicted_j.get(steady.name)):
        what = "a token" if decode else "an input"
        yield "energy", format_quantity(predicted / profile.workload.batch, "J"), f"{what}, predicted and not measured"


def sustained_fact(sustained: Sustained | None) -> Iterator[tuple[str, str, str]]:
    """What a step takes in the end of a long run, since when, and how that is to the beginning."""
    if sustained is None:
        return
    share, span = sustained.slower, duration_text(sustained.span_s)
    if not sustained.span_s:
        yield "sustained", format_quantity(sustained.steady_s, "s"), _foretold_heat(sustained)
        return
    if not sustained.changes_s:
        told = [f"for all of {span}"]
    else:
        word = "slower" if share > 0 else "faster"
        first = format_quantity(sustained.first_s, "s")
        told = [
            f"from {duration_text(sustained.steady_after_s)} on, of {span}",
            f"{abs(share):.0%} {word} than {first}",
        ]
    if sustained.clock_hz:
        told.append("clock {} to {}".format(*(format_quantity(hz, "Hz", digits=2) for hz in sustained.clock_hz)))
    if sustained.temperature_c:
        told.append("{:.0f} to {:.0f} °C".format(*sustained.temperature_c))
    if sustained.power_w:
        told.append("{} to {}".format(*(format_quantity(watts, "W", digits=2) for watts in sustained.power_w)))
    yield "sustained", format_quantity(sustained.steady_s, "s"), ", ".join(told)


def _foretold_heat(sustained: Sustained) -> str:
    """Of a prediction: how much slower it becomes, when, and what it draws beside what is taken away."""
    drawn, taken = (format_quantity(watts, "W", digits=3) for watts in sustained.power_w)
    if not sustained.changes_s:
        return f"for good: it draws {drawn}, and its cooling takes that away"
    ends = interval_text(sustained.low_s or 0.0, sustained.high_s or 0.0, "s")
    since = f"from {duration_text(sustained.steady_after_s)} on, " if sustained.steady_after_s else ""
    cause = f"it would draw {drawn}, and {taken} are taken away"
    return f"{ends}, {since}{sustained.slower:.0%} slower than {format_quantity(sustained.first_s, 's')}: {cause}"


def energy_remarks(profile: Profile) -> list[str]:
    """What stands beside the predicted energy of a request: its ends, and what a token or an input of it takes."""
    summary = profile.summary
    low, high = summary.energy_low_j, summary.energy_high_j
    ends = [] if low is None or high is None else [interval_text(low, high, "J")]
    each = _each_energy(profile)
    return ["of the whole request" if profile.phase("decode") else "of a pass", *ends, *([each] if each else [])]


def _each_energy(profile: Profile) -> str | None:
    """Joules of a token; of a model that makes none, of an input, where it had several at once."""
    joules, batch = profile.summary.energy_j, profile.workload.batch
    if profile.phase("decode") is not None:
        if (energy := token_energy(profile)) is None:
            return None
        each, low, high = energy
        between = "" if low is None or high is None else f" ({interval_text(low, high, 'J')})"
        return f"{format_quantity(each, 'J')} a token{between}"
    return None if joules is None or batch < 2 else f"{format_quantity(joules / batch, 'J')} an input"


def token_energy(profile: Profile) -> tuple[float, float | None, float | None] | None:
    """Joules of a token that is written, and both ends: those of the request's energy, whose errors are the token's."""
    summary, decode = profile.summary, profile.phase("decode")
    if decode is None or decode.energy_j is None:
        return None
    each, whole = decode.energy_j / profile.workload.batch, summary.energy_j
    low, high = (
        None if end is None or not whole else each * end / whole
        for end in (summary.energy_low_j, summary.energy_high_j)
    )
    return each, low, high


def sizes_of(profile: Profile) -> str:
    names = ("batch", "prompt", "generate", "context", "image")
    asked = {name: size for name in names if (size := getattr(profile.workload, name)) is not None}
    return ", ".join(f"{name} {size}" for name, size in (asked | dict(profile.sizes)).items())


def formats_of(profile: Profile) -> str:
    """The formats as they are counted: of the weights, of the activations, and what matrix products are computed in.

    One word where all are the same. Formats of few weights (norms, a router) are left out.
    """
    precision, model = profile.workload.precision, profile.model
    stored = [name for name, share in model.weight_formats.items() if share >= _SOME]
    weights, activations = "+".join(stored) or precision.weights or "", precision.activations
    computed = "/".join(profile.arithmetic)
    parts = [f"{weights} weights" if weights else None]
    if activations != weights:
        parts.append(f"{activations} activations" if activations else None)
    if precision.kv not in {None, activations}:
        parts.append(f"{precision.kv} cache")
    if computed not in {"", activations}:
        parts.append(f"computed in {computed}")
    known = [part for part in parts if part]
    return weights if len(known) == 1 and weights == activations else ", ".join(known)


def duration_text(seconds: float) -> str:
    """A long time as people say it: 2.82 h, 3.5 days."""
    for unit, length in (("days", 86_400.0), ("h", 3600.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}" if seconds < 999.5 * length else f"{seconds / length:,.0f} {unit}"
    return format_quantity(seconds, "s")


def headline_figures(summary: Headline) -> Iterator[tuple[str, str]]:
    """Label and value of each number in the summary that is known."""
    for label, value, unit in (
        ("latency", summary.latency_s, "s"),
        ("first token", summary.ttft_s, "s"),
        ("each token", summary.tpot_s, "s"),
        ("tokens/s", summary.tokens_per_s, "1"),
        ("peak memory", summary.peak_memory_bytes, "B"),
        ("energy", summary.energy_j, "J"),
    ):
        if value is not None:
            yield label, format_quantity(value, unit)


def time_remarks(profile: Profile, time: str, phase: Phase | None) -> list[str]:
    """What stands beside a time of the headline: its interval, and what is known of the phase that it is the time of.

    Where more than the phase is in the time (an encoder, a draft model, tokenising) what holds for the phase alone is
    left out, and the interval is that of the sum, if it is known.
    """
    if phase is not None and _is_whole(profile, time, phase):
        return phase_remarks(phase)
    interval = time_interval(profile, time, phase)
    low = getattr(profile.summary, f"{time}_low_s")
    return [*_interval(low, None)] if interval is None else [interval_text(*interval)]


def time_interval(profile: Profile, time: str, phase: Phase | None) -> tuple[float, float] | None:
    """The interval of a time of the headline: its own, else that of the phase that it is the whole time of."""
    interval = profile.summary.interval(time)
    if interval is not None or phase is None or phase.low_s is None or phase.high_s is None:
        return interval
    return (phase.low_s, phase.high_s) if _is_whole(profile, time, phase) else None


def _is_whole(profile: Profile, time: str, phase: Phase) -> bool:
    """Whether nothing but the phase is in the time."""
    seconds: float = getattr(profile.summary, f"{time}_s")
    return abs(seconds - phase.time_s) <= 1e-9 * seconds


def interval_text(low: float, high: float, unit: str = "s") -> str:
    return f"{format_quantity(low, unit)} to {format_quantity(high, unit)}"


def _interval(low: float | None, high: float | None) -> Iterator[str]:
    """Both ends, or the low one alone: where an op's work is not known, nobody can say how long it takes at most."""
    if low is not None:
        yield f"at least {format_quantity(low, 's')}" if high is None else interval_text(low, high)


def phase_remarks(phase: Phase) -> list[str]:
    """The interval of its time, the prediction beside it, how far above the floor it is, and what bounds it."""
    remarks = [*_interval(phase.low_s, phase.high_s)]
    if phase.predicted_s:
        remarks.append(f"predicted {format_quantity(phase.predicted_s, 's')}")
    if (times := phase.above_floor) is not None:
        remarks.append(f"{times:,.0f} × its floor" if times >= 100 else f"{times:.2g} × its floor")
    if phase.counted < COUNTED:
        remarks.append(uncounted_words(phase))
    elif phase.bound:
        remarks.append(f"bound by {phase.bound}")
    return remarks


def uncounted_words(phase: Phase) -> str:
    """The remark about uncounted work, which stands in place of a floor and a bound."""
    what = "of the time is in ops" if phase.statistic is not None else "of the ops are ones"
    return f"{1 - phase.counted:.0%} {what} whose work is not known"


def percent(part: float, total: float) -> str | None:
    return share_text(part / total) if total > 0 else None


def fraction(part: float, total: float) -> float | None:
    return part / total if total > 0 else None


def percent_number(part: float, total: float) -> float | None:
    return round(100 * part / total, 2) if total else None
