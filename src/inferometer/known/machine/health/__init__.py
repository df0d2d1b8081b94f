"""Is this machine fit to measure on? The one-minute checklist as checks, each with a verdict and a remedy.

`take(machine, host)` reads twice, an interval apart; `judge` makes a `Check` of it for every row of `CHECKS`; `overall`
says whether it is quiet enough.
"""

import time
from collections.abc import Callable, Iterable, Mapping

from inferometer.core.box import Means
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.known.machine.detect.host import Host
from inferometer.known.machine.detect.machine import Machine
from inferometer.known.machine.health import clocks, cpu, resources, surroundings
from inferometer.known.machine.health.check import Bearing, Check, Topic, Verdict
from inferometer.known.machine.health.cpu import cpu_seconds, process_shares
from inferometer.known.machine.health.host_calls import host_call_s
from inferometer.known.machine.health.readings import Absent, Counters, Readings, State, UnreadableError

__all__ = [
    "CHECKS",
    "Absent",
    "Check",
    "Counters",
    "Overall",
    "Readings",
    "State",
    "Topic",
    "UnreadableError",
    "Verdict",
    "cpu_seconds",
    "host_call_s",
    "judge",
    "overall",
    "process_shares",
    "read_counters",
    "read_state",
    "take",
]

CHECKS: Mapping[str, Topic] = {
    topic.code: topic for topic in (*cpu.TOPICS, *resources.TOPICS, *clocks.TOPICS, *surroundings.TOPICS)
}

INTERVAL_S = 1.0
_TELLING = ("load-high", "cpu-pressure", "cpu-busy")  # without one of these, quiet cannot be distinguished from busy


@frozen
class Overall:
    """`quiet`: measure now, or not; None where nothing that would show it could be read."""

    verdict: Verdict
    quiet: bool | None
    found: str
    disturbed_by: tuple[str, ...]
    reservations: tuple[str, ...]


def take(  # noqa: PLR0913 - what is read, and with which clocks
    machine: Machine,
    host: Host,
    *,
    interval_s: float = INTERVAL_S,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.perf_counter,
    calls: Callable[[], float] = host_call_s,
    box: Callable[[], Means] | None = None,
) -> Readings:
    """Read the counters, wait, read them again; the state, which takes longer, comes before both, the calls after."""
    if not 0 < interval_s < 3600:
        raise DomainError(
            f"The interval between the two readings cannot be {interval_s:g} s.",
            remedy="Give a time above 0 and below an hour, such as 1 s.",
        )
    state = read_state(machine, host)
    started = clock()
    before = read_counters(machine, host)
    sleep(interval_s)
    elapsed = clock() - started
    after = read_counters(machine, host)
    return Readings(
        host=host,
        before=before,
        after=after,
        elapsed_s=max(elapsed, 0.0),
        state=state,
        pid=machine.pid,
        call_s=calls(),
        **({} if box is None else {"box": box()}),
    )


def judge(readings: Readings) -> tuple[Check, ...]:
    """Every check, in the order of the checklist."""
    return tuple(topic(readings) for topic in CHECKS.values())


def overall(checks: Iterable[Check]) -> Overall:
    """Quiet enough: nothing that disturbs a measurement is bad, and at least one reading of the load could be had."""
    verdicts = {check.code: check.verdict for check in checks}
    disturbing = tuple(code for code, verdict in verdicts.items() if verdict == "bad" and _bearing(code) == "disturbs")
    others = tuple(
        code
        for code, verdict in verdicts.items()
        if verdict in {"warn", "bad"} and code not in disturbing and _bearing(code) != "none"
    )
    if disturbing:
        return Overall(
            verdict="bad",
            quiet=False,
            found=f"not quiet enough to measure: {', '.join(disturbing)}",
            disturbed_by=disturbing,
            reservations=others,
        )
    if all(verdicts.get(code, "unknown") == "unknown" for code in _TELLING):
        why = "cannot tell whether it is quiet: neither load nor CPU use can be read here"
        return Overall(verdict="unknown", quiet=None, found=why, disturbed_by=(), reservations=others)
    text = f"quiet enough to measure, with reservations: {', '.join(others)}" if others else "quiet enough to measure"
    return Overall(verdict="warn" if others else "good", quiet=True, found=text, disturbed_by=(), reservations=others)


def _bearing(code: str) -> Bearing:
    return CHECKS[code].bearing if code in CHECKS else "none"


def read_counters(machine: Machine, host: Host) -> Counters:
    """What counts up since boot; two readings of it show what happened in between."""
    if machine.system == "Linux":
        from inferometer.known.machine.health.linux import linux_counters  # noqa: PLC0415 - one system of three is needed

        return linux_counters(machine, host)
    from inferometer.known.machine.health.portable import portable_counters  # noqa: PLC0415 - as above

    return portable_counters(machine)


def read_state(machine: Machine, host: Host) -> State:
    """What is read once: clocks, temperatures, the supply, the kernel's log."""
    if machine.system == "Linux":
        from inferometer.known.machine.health.linux import linux_state  # noqa: PLC0415 - as above

        return linux_state(machine, host)
    from inferometer.known.machine.health.portable import portable_state  # noqa: PLC0415 - as above

    return portable_state(machine)
