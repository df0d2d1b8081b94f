"""The environment guard: whether the machine was quiet before, during and after the runs, and what disturbed it.

Before and after it looks with the doctor's checks (`known.machine.health`). During the runs it compares the counters at
both ends of each stretch, and leaves our own use of the CPU out: only what others use disturbs. What cannot be read on
a system is not judged.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.core.profile import Environment
from inferometer.known.machine.detect import Host, LocalMachine, Machine, detect_host
from inferometer.known.machine.detect.identity import machine_facts, named_by_user
from inferometer.known.machine.health import (
    CHECKS,
    Absent,
    Check,
    Counters,
    Readings,
    State,
    UnreadableError,
    cpu_seconds,
    judge,
    overall,
    process_shares,
    read_counters,
    read_state,
    take,
)
from inferometer.measure.bench.loop import Disturbance, Mark, When
from inferometer.measure.bench.processes import OwnUse, own_use

_INTERVAL_S = 0.5
_OTHERS_MUCH = 0.30  # of all CPUs: caches, memory bandwidth and power are shared even where a CPU is free
_OTHERS_SOME = 0.10  # enough to disturb where the CPUs are all in use
_FULL = 0.90
_CLOCK_FELL = 0.90
_CHECKED_DURING = ("cpu-steal", "memory-pressure", "swapping", "cpu-throttled", "container-limits")
_CHECKED_AFTER = ("cpu-throttled", "gpu-throttled", "temperature-high", "on-battery")
_LAGGING = ("load-high", "cpu-pressure")  # averages that remember what has ended, perhaps our own last measurement
_BUSY = ("cpu-hog", "cpu-busy", "run-queue-long", "cpu-pressure", "load-high")  # the one that names who comes first
_PAST = ("kernel-errors",)  # worth knowing, but no disturbance of these runs


@frozen
class FirstLook:
    """The machine before the runs. `quiet` is None where nothing that would show it could be read."""

    readings: Readings
    quiet: bool | None
    disturbances: tuple[Disturbance, ...]
    reservations: tuple[str, ...]


@frozen
class _Look:
    at: float
    counters: Counters
    own: OwnUse


class Guard:
    """`before`, then `mark` and `since` for each stretch of runs, then `after`, and `environment` to keep it all."""

    def __init__(  # noqa: PLR0913 - the seams: machine, clocks, readers
        self,
        machine: Machine | None = None,
        host: Host | None = None,
        *,
        interval_s: float = _INTERVAL_S,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        own: Callable[[], OwnUse] = own_use,
    ) -> None:
        self.machine = machine or LocalMachine()
        self.host = host or detect_host(self.machine)
        self._interval_s, self._clock, self._sleep, self._own = interval_s, clock, sleep, own
        self._seen: State | None = None

    def before(self, *, retries: int = 0) -> FirstLook:
        """Look whether it is quiet; look again, up to `retries` times, while it is not."""
        look = self._first_look()
        for _ in range(retries):
            if not look.disturbances:
                break
            self._sleep(self._interval_s)
            look = self._first_look()
        return look

    def _first_look(self) -> FirstLook:
        readings = take(self.machine, self.host, interval_s=self._interval_s, sleep=self._sleep, clock=self._clock)
        self._seen = readings.state
        checks = judge(readings)
        seen = overall(checks)
        named = tuple(f"{check.title}: {check.found}" for check in checks if check.code in seen.reservations)
        return FirstLook(
            readings=readings, quiet=seen.quiet, disturbances=disturbances(checks), reservations=named
        )  # fmt: skip

    def mark(self) -> Mark:
        return self._look()

    def _look(self) -> _Look:
        return _Look(at=self._clock(), counters=read_counters(self.machine, self.host), own=self._own())

    def since(self, mark: Mark) -> tuple[Disturbance, ...]:
        """What disturbed since the mark. Our own use of the CPU is no disturbance."""
        if not isinstance(mark, _Look):
            return ()
        now = self._look()
        if self._seen is None:
            self._seen = read_state(self.machine, self.host)
        readings = self._between(mark.counters, now.counters, now.at - mark.at, self._seen)
        return _known(
            *(_bad(CHECKS[code](readings), "during") for code in _CHECKED_DURING), _others(readings, mark.own, now.own)
        )

    def after(self, first: FirstLook) -> tuple[Disturbance, ...]:
        """The state once more, and what the counters say of the whole time since the first look."""
        state, end = read_state(self.machine, self.host), read_counters(self.machine, self.host)
        readings = self._between(first.readings.after, end, 0.0, state)  # no rate is judged here
        return _known(
            *(_bad(CHECKS[code](readings), "after") for code in _CHECKED_AFTER),
            _clock_fell(first.readings.state, state),
        )

    def environment(
        self, first: FirstLook, during: Iterable[Disturbance] = (), after: Iterable[Disturbance] = ()
    ) -> Environment:
        """What goes into the profile. `disturbed` is None where nothing that would show it could be read."""
        reasons = tuple(map(str, (*first.disturbances, *during, *after)))
        versions = dict(first.readings.state.packages)
        end = read_counters(self.machine, self.host)
        return Environment(
            versions=versions | ({"python": self.host.python} if self.host.python else {}),
            load_before=_load(first.readings.after),
            load_after=_load(end),
            disturbed=True if reasons else None if first.quiet is None else False,
            reasons=reasons,
            host={**host_record(self.host), **_setting(self.machine, first.reservations)},
            machine=named_by_user(machine_facts(self.machine, self.host)),
        )

    def _between(self, before: Counters, after: Counters, elapsed_s: float, state: State) -> Readings:
        return Readings(
            host=self.host,
            before=before,
            after=after,
            elapsed_s=max(elapsed_s, 0.0),
            state=state,
            pid=self.machine.pid,
        )


class NoGuard:
    """For those who do not want to look: nothing is read, and whether it was quiet stays unknown."""

    def mark(self) -> Mark:
        return None

    def since(self, mark: Mark) -> tuple[Disturbance, ...]:  # noqa: ARG002 - the seam's signature
        return ()


def disturbances(checks: tuple[Check, ...]) -> tuple[Disturbance, ...]:
    """The checks that say: do not measure now.

    Several checks notice a busy CPU: the most specific one stands for all of them. An average that lags counts only
    where nothing more direct could be read.
    """
    known = {check.code: check for check in checks}
    named = [code for code in overall(checks).disturbed_by if code not in _PAST]
    direct = known["cpu-busy"].verdict != "unknown" if "cpu-busy" in known else False
    busy = [code for code in _BUSY if code in named and not (direct and code in _LAGGING)]
    kept = [code for code in named if code not in _BUSY] + busy[:1]
    return _known(*(_bad(known[code], "before") for code in kept))


def _known(*disturbances: Disturbance | None) -> tuple[Disturbance, ...]:
    return tuple(disturbance for disturbance in disturbances if disturbance is not None)


def _bad(check: Check, when: When) -> Disturbance | None:
    if check.verdict != "bad":
        return None
    return Disturbance(when=when, code=check.code, found=f"{check.title}: {check.found}", remedy=check.remedy)


def _others(readings: Readings, own_before: OwnUse, own_after: OwnUse) -> Disturbance | None:
    """What other programs used of the CPUs, and whether it mattered.

    Where the system reports only live processes (Windows), those seen at both ends are summed instead.
    """
    try:
        busy, _, total = cpu_seconds(readings.before.cpu, readings.after.cpu)
    except UnreadableError:
        return None
    rivals = _rivals(readings, own_after.pids)
    if own_before.cpu_s is None or own_after.cpu_s is None:
        used = sum(share for share, _ in rivals) * readings.elapsed_s
    else:
        used = busy - (own_after.cpu_s - own_before.cpu_s)
    others = max(used, 0.0) / total
    if others < _OTHERS_SOME or (others < _OTHERS_MUCH and busy / total < _FULL):
        return None
    names = ", ".join(f"{name} {share:.0%} of a CPU" for share, name in rivals[:3])
    return Disturbance(
        when="during",
        code="cpu-busy",
        found=f"other programs used {others:.0%} of all CPUs{f': {names}' if names else ''}",
        remedy="Stop them, or wait until they have ended.",
    )


def _rivals(readings: Readings, ours: frozenset[int]) -> list[tuple[float, str]]:
    """Other processes that used a CPU, the busiest first, without the ones that we started."""
    try:
        return [(share, name) for share, name in process_shares(readings, ours) if share >= 0.05]
    except UnreadableError:
        return []


def _clock_fell(before: State, after: State) -> Disturbance | None:
    first, last = _top_clock(before), _top_clock(after)
    if first is None or last is None or last >= _CLOCK_FELL * first:
        return None
    fell = f"CPU clock: the highest allowed fell to {last / first:.0%} of what it was"
    return Disturbance(when="after", code="cpu-clock-capped", found=fell, remedy=CHECKS["cpu-clock-capped"].remedy)


def _top_clock(state: State) -> float | None:
    """The allowed clock: the current one follows the load, and would fall by itself when the runs end."""
    if isinstance(state.clocks, Absent):
        return None
    return max((policy.allowed_hz for policy in state.clocks if policy.allowed_hz), default=None)


def _load(counters: Counters) -> float | None:
    return None if isinstance(counters.load, Absent) else counters.load.one


def host_record(host: Host) -> Mapping[str, Any]:
    """What a result should say of its machine."""
    known = {
        "cpu": host.cpu.model,
        "architecture": host.cpu.architecture,
        "logical_cores": host.cpu.logical_cores,
        "usable_cpus": host.usable_cpus,
        "memory_bytes": host.usable_memory_bytes,
        "system": " ".join(filter(None, (host.os.name, host.os.version))) or None,
        "container": host.limits.container,
        "hypervisor": host.limits.hypervisor,
        "gpus": [gpu.name for gpu in host.gpus if gpu.name] or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _setting(machine: Machine, reservations: tuple[str, ...]) -> Mapping[str, Any]:
    """What colours every run alike: governor, caps, limits in the doctor's words, and whether the clock may boost."""
    boost = {"1": True, "0": False}.get((machine.read("/sys/devices/system/cpu/cpufreq/boost") or "").strip())
    barred = {"1": False, "0": True}.get((machine.read("/sys/devices/system/cpu/intel_pstate/no_turbo") or "").strip())
    turbo = boost if boost is not None else barred
    return {
        **({"reservations": list(reservations)} if reservations else {}),
        **({} if turbo is None else {"turbo": turbo}),
    }
