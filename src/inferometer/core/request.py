"""One request of a profile: how often each phase runs in it, which ops it has, and where its time goes.

Every breakdown that spans phases is weighed here, so that charts, tables and headlines name the same numbers.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Literal

from inferometer.core.statistics import median

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from inferometer.core.profile import Kind, OpTime, Phase, Profile
    from inferometer.core.workload import Workload

By = Literal["phase", "kind", "unit"]
RUN = "run"  # the part of a phase in which the engine runs the model's layers
BETWEEN = "between"  # … and what is between the parts that an engine names: the loop around it
PARTS = ("write", "launch", RUN, "sample", "read", BETWEEN)  # of a step, predicted and measured, in their order
BARE = frozenset({"launch", RUN})  # … those that are left where nothing is written, read or done between the passes
HOST, UNATTRIBUTED, OVERLAPPING, UNKNOWN = "host", "unattributed", "overlapping", "unknown"
# Clocks of one stretch of time: how long the host worked in it, how long it waited, how long the device worked. They
# run side by side, so they are no parts of it.
BUSY = frozenset({"host", "wait", "device"})
_DUST = 1e-9  # of a whole: the error of adding floating-point numbers
_EACH_STEP = frozenset({"decode", "draft"})
_HOST_STEPS = frozenset({"sampling", "detokenise"})  # of one token, in a prediction


def phase_repeats(phases: Iterable[Phase], workload: Workload, kind: Kind) -> dict[str, float]:
    """How often each phase runs in one request, by name; one-time costs run in none and are left out.

    A request of n tokens makes the first with the prefill and the others in n − 1 steps. A decode step without a
    prefill is asked about by itself, and runs once. A prediction counts sampling and detokenising by the token; a
    measurement times the detokenising of the whole answer at once.
    """
    phases = [phase for phase in phases if not phase.once]
    prefilled = any(phase.name == "prefill" for phase in phases)
    steps = max(workload.generate - 1.0, 0.0) if workload.generate and prefilled else 1.0
    times: dict[str, float] = {}
    for phase in phases:
        if phase.repeats is not None:
            times[phase.name] = phase.repeats
        elif phase.name in _EACH_STEP:
            times[phase.name] = steps
        elif phase.name in _HOST_STEPS and kind == "predicted":
            first = 1.0 if phase.name == "sampling" and prefilled and workload.generate else 0.0
            times[phase.name] = steps + first
        else:
            times[phase.name] = 1.0
    return times


def repeats(profile: Profile) -> dict[str, float]:
    return phase_repeats(profile.phases, profile.workload, profile.kind)


def request_s(profile: Profile) -> float:
    """Seconds of one request: what the headline says, or else the sum of its phases."""
    summary = profile.summary
    stated = (value for value in (summary.e2e_s, summary.latency_s) if value is not None and value > 0)
    return next(stated, summed_request_s(profile))


def summed_request_s(profile: Profile) -> float:
    times = repeats(profile)
    return fsum(times[phase.name] * phase.time_s for phase in profile.phases if phase.name in times)


def outside_layers(phase: Phase) -> dict[str, float]:
    """What of a phase with ops is in none of them, by name: sampling, reading … and what no one accounts for.

    If the ops' times are a device's, the host's parts lie beside them, not around them, and name nothing; nor do parts
    that are longer than what is left, as a launch that the ops of a prediction wait for.
    """
    rest_s = phase.time_s - fsum(op.time_s for op in phase.ops)
    timed_by_device = any(op.device_s is not None for op in phase.ops)
    parts = {} if timed_by_device else phase.parts
    named = {name: seconds for name, seconds in parts.items() if name != RUN} if RUN in parts else {}
    if fsum(named.values()) > rest_s + _DUST * phase.time_s:
        named = {}
    return _with_rest(named, rest_s - fsum(named.values()), phase.time_s)


def _with_rest(shares: dict[str, float], left_s: float, whole_s: float) -> dict[str, float]:
    """The shares and what is left of the whole; less than nothing, where ops ran at the same time."""
    if abs(left_s) <= _DUST * whole_s:
        return shares
    name = UNATTRIBUTED if left_s > 0 else OVERLAPPING
    return {**shares, name: shares.get(name, 0.0) + left_s}


def phase_shares(phase: Phase, by: By) -> dict[str, float]:
    """Seconds of one run of a phase, by kind or by unit; they add up to it."""
    if by == "phase":
        return {phase.name: phase.time_s}
    if not phase.ops:
        return {phase.name if by == "kind" else HOST: phase.time_s}
    shares: dict[str, float] = {}
    for op in phase.ops:
        name = op.kind if by == "kind" else op.unit or UNKNOWN
        shares[name] = shares.get(name, 0.0) + op.time_s
    for part, seconds in outside_layers(phase).items():
        name = part if by == "kind" else unit_of_part(part)
        shares[name] = shares.get(name, 0.0) + seconds
    return shares


def unit_of_part(part: str) -> str:
    """The unit that does what is in no layer: the host, unless nobody knows."""
    return part if part in {UNATTRIBUTED, OVERLAPPING} else HOST


def request_shares(profile: Profile, by: By) -> dict[str, float]:
    """Seconds of one request, by phase, kind or unit; they add up to `request_s`."""
    times = repeats(profile)
    shares: dict[str, float] = {}
    for phase in profile.phases:
        for name, seconds in phase_shares(phase, by).items() if phase.name in times else ():
            shares[name] = shares.get(name, 0.0) + times[phase.name] * seconds
    whole_s = request_s(profile)
    return _with_rest(shares, whole_s - fsum(shares.values()), whole_s)


def numbered_ops(phase: Phase) -> Iterator[tuple[tuple[str, int], OpTime]]:
    """Each op of a phase with its name and which of that name it is: ops of one phase may share a name."""
    seen: dict[str, int] = {}
    for op in phase.ops:
        seen[op.name] = seen.get(op.name, 0) + 1
        yield (op.name, seen[op.name]), op


def distinct_ops(phases: Iterable[Phase]) -> dict[tuple[str, int], OpTime]:
    """The ops of the model, in the order of execution: one that runs in several phases is one op.

    Their `op_count` is the number of ops wherever one is told.
    """
    known: dict[tuple[str, int], OpTime] = {}
    for phase in phases:
        for key, op in numbered_ops(phase):
            known.setdefault(key, op)
    return known


def op_count(profile: Profile) -> int:
    return sum(op.count for op in distinct_ops(profile.phases).values())


def ops_by(profile: Profile, by: By) -> dict[str, int]:
    """The number of ops by kind or by unit; they add up to `op_count`."""
    counts: dict[str, int] = {}
    for op in distinct_ops(profile.phases).values():
        name = op.kind if by == "kind" else op.unit or UNKNOWN
        counts[name] = counts.get(name, 0) + op.count
    return counts


# A phase whose steps differ: the time of each, and of an op in each.
#
# **Which steps are kept.** An op has a sample for each instrumented step of its phase, at most `KEPT_STEPS` of them:
# the first, the last and others evenly between, so that a model of 1,000 ops keeps 40,000 numbers however long it
# generates. `Phase.op_context` says how many tokens were in the cache before each.

KEPT_STEPS = 40


def kept_steps(count: int, most: int = KEPT_STEPS) -> tuple[int, ...]:
    """Which of `count` steps are kept: all, or the first, the last and others evenly between."""
    if count <= most:
        return tuple(range(count))
    return tuple(round(index * (count - 1) / (most - 1)) for index in range(most))


def step_times(phase: Phase) -> dict[int, float]:
    """Seconds of the step at each context: the median over the generations, in the order of the contexts."""
    readings: dict[int, list[float]] = {}
    for context, seconds in zip(phase.context or (), phase.samples_s or (), strict=False):
        readings.setdefault(context, []).append(seconds)
    return {context: median(seconds) for context, seconds in sorted(readings.items())}


def sampled_steps(phase: Phase) -> tuple[float, ...] | None:
    """The clean time of each step that the ops have a sample of; None where the steps are not told apart."""
    if not phase.op_context:
        return None
    times = step_times(phase)
    if any(context not in times for context in phase.op_context):
        return None
    return tuple(times[context] for context in phase.op_context)


def pace(phase: Phase) -> float:
    """The phase's time over the mean of its sampled steps: it has more steps than its ops have samples."""
    steps = sampled_steps(phase)
    return 1.0 if not steps else phase.time_s * len(steps) / fsum(steps)


def summed_samples(ops: Iterable[OpTime]) -> tuple[float, ...] | None:
    """The time of several ops together in each step; None where one has no samples, or of other steps."""
    columns = [op.samples_s for op in ops]
    if not columns or any(column is None or len(column) != len(columns[0] or ()) for column in columns):
        return None
    return tuple(fsum(step) for step in zip(*(column or () for column in columns), strict=True))
