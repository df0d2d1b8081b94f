"""The environment guard: whether the machine was quiet before, during and after, and if not, who or what disturbed.

Before and after it looks with the doctor's checks (`catalog.health`). During the runs it compares the counters at both
ends of each stretch, and leaves our own use of the CPU out: only what others use disturbs. What cannot be read on a
system is not judged.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inferometer.bench.loop import Mark
from inferometer.bench.processes import OwnUse, own_use
from inferometer.catalog.detect import Host, LocalMachine, Machine, detect_host
from inferometer.catalog.health import CHECKS, Absent, Check, Readings, judge, overall, take
from inferometer.catalog.health.readings import Counters, State
from inferometer.core.profile import Environment

__all__ = ["Disturbance", "Guard", "NoGuard", "disturbances", "host_record"]

_INTERVAL_S = 0.5
_OTHERS_MUCH = 0.30  # of all CPUs: caches, memory bandwidth and power are shared even where a CPU is free
_OTHERS_SOME = 0.10  # enough to disturb where the CPUs are all in use
_FULL = 0.90
_CLOCK_FELL = 0.90
_CHECKED_DURING = ("cpu-steal", "memory-pressure", "swapping", "cpu-throttled", "container-limits")
_CHECKED_AFTER = ("cpu-throttled", "gpu-throttled", "temperature-high", "on-battery")
_LAGGING = ("load-high", "cpu-pressure")  # averages that remember what has ended, perhaps our own last measurement
_PAST = ("kernel-errors",)  # worth knowing, but no disturbance of these runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """`when` is before, during or after; the sentence is for people and for the record."""

    when: str
    code: str
    found: str
    remedy: str | None = None

    def __str__(self) -> str:
        words = f"{self.when} the runs: {self.found} ({self.code})"
        return f"{words}. {self.remedy}" if self.remedy else words


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    at: float
    counters: Counters
    own: OwnUse


class Guard:
    """One measurement's guard: `before`, then `mark` and `since` for each stretch, then `after` and `environment`."""

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
        self._begun = clock()
        self._first: Readings | None = None
        self._last: Counters | None = None
        self._quiet: bool | None = None
        self._reservations: tuple[str, ...] = ()
        self._found: list[Disturbance] = []

    def before(self, *, retries: int = 0) -> tuple[Disturbance, ...]:
        """Look whether it is quiet; look again, up to `retries` times, while it is not."""
        for left in range(retries, -1, -1):
            self._first = take(
                self.machine, self.host, interval_s=self._interval_s, sleep=self._sleep, clock=self._clock
            )
            checks = judge(self._first)
            found = disturbances(checks)
            seen = overall(checks)
            self._quiet = seen.quiet
            self._reservations = tuple(
                f"{check.title}: {check.found}" for check in checks if check.code in seen.reservations
            )
            if not found or left == 0:
                break
            self._sleep(self._interval_s)
        self._found += found
        return found

    def mark(self) -> Mark:
        return _Look(at=self._clock(), counters=_counters(self.machine, self.host), own=self._own())

    def since(self, mark: Mark) -> tuple[str, ...]:
        """What disturbed since the mark, in words. Our own use of the CPU is no disturbance."""
        if not isinstance(mark, _Look):
            return ()
        now = _Look(at=self._clock(), counters=_counters(self.machine, self.host), own=self._own())
        self._last = now.counters
        readings = Readings(
            host=self.host,
            before=mark.counters,
            after=now.counters,
            elapsed_s=max(now.at - mark.at, 0.0),
            state=self._state(),
            pid=self.machine.pid,
        )
        found = [_bad(CHECKS[code](readings), "during") for code in _CHECKED_DURING]
        found.append(_others(readings, mark.own, now.own))
        return tuple(str(each) for each in found if each is not None)

    def after(self) -> tuple[Disturbance, ...]:
        """The state once more, and the counters over the whole measurement."""
        if self._first is None:
            return ()
        state = _state(self.machine, self.host)
        end = _counters(self.machine, self.host)
        self._last = end
        readings = Readings(
            host=self.host,
            before=self._first.after,
            after=end,
            elapsed_s=max(self._clock() - self._begun, 0.0),
            state=state,
            pid=self.machine.pid,
        )
        found = [_bad(CHECKS[code](readings), "after") for code in _CHECKED_AFTER]
        found.append(_clock_fell(self._first.state, state))
        kept = tuple(each for each in found if each is not None)
        self._found += kept
        return kept

    def environment(self, during: tuple[str, ...] = ()) -> Environment:
        """What goes into the profile. `disturbed` is None where nothing that would tell could be read."""
        reasons = (
            *(str(each) for each in self._found if each.when == "before"),
            *during,
            *(str(each) for each in self._found if each.when == "after"),
        )
        packages = self._first.state.packages if self._first else {}
        return Environment(
            versions=dict(packages) | ({"python": self.host.python} if self.host.python else {}),
            load_before=_load(self._first.after if self._first else None),
            load_after=_load(self._last),
            disturbed=True if reasons else None if self._quiet is None else False,
            reasons=reasons,
            host={**host_record(self.host), **_setting(self.machine, self._reservations)},
        )

    def _state(self) -> State:
        if self._first is None:
            self.before()
        if self._first is None:
            raise AssertionError("before() takes a first reading")
        return self._first.state


class NoGuard:
    """For those who do not want to look: nothing is read, and whether it was quiet stays unknown."""

    def mark(self) -> Mark:
        return None

    def since(self, mark: Mark) -> tuple[str, ...]:  # noqa: ARG002 - the seam's signature
        return ()


def disturbances(checks: tuple[Check, ...]) -> tuple[Disturbance, ...]:
    """The checks that say: do not measure now. An average that lags counts only where nothing more direct is known."""
    known = {check.code: check for check in checks}
    busy = known.get("cpu-busy")
    direct = busy is not None and busy.verdict in {"good", "warn"}
    left_out = {*_PAST, *(_LAGGING if direct else ())}
    named = overall(checks).disturbed_by
    found = [_bad(known[code], "before") for code in named if code not in left_out]
    return tuple(each for each in found if each is not None)


def _bad(check: Check, when: str) -> Disturbance | None:
    if check.verdict != "bad":
        return None
    return Disturbance(when=when, code=check.code, found=f"{check.title}: {check.found}", remedy=check.remedy)


def _others(readings: Readings, own_before: OwnUse, own_after: OwnUse) -> Disturbance | None:
    """What other programs used of the CPUs, and whether it mattered.

    Where the system tells only of processes that live (Windows), those seen at both ends are summed instead.
    """
    before, after = readings.before.cpu, readings.after.cpu
    if isinstance(before, Absent) or isinstance(after, Absent):
        return None
    busy, idle = after.busy_s - before.busy_s, after.idle_s - before.idle_s
    whole = busy + idle + max((after.steal_s or 0.0) - (before.steal_s or 0.0), 0.0)
    if whole <= 0:
        return None
    rivals = _busiest(readings, own_after.pids)
    if own_before.cpu_s is None or own_after.cpu_s is None:
        used = sum(share for _, share in rivals) * readings.elapsed_s
    else:
        used = busy - (own_after.cpu_s - own_before.cpu_s)
    others = max(used, 0.0) / whole
    if others < _OTHERS_SOME or (others < _OTHERS_MUCH and busy / whole < _FULL):
        return None
    who = ", ".join(f"{name} {share:.0%} of a CPU" for name, share in rivals[:3])
    named = f": {who}" if who else ""
    return Disturbance(
        when="during",
        code="cpu-busy",
        found=f"other programs used {others:.0%} of all CPUs{named}",
        remedy="Stop them, or wait until they have ended.",
    )


def _busiest(readings: Readings, ours: frozenset[int]) -> list[tuple[str, float]]:
    """Other processes by their use of a CPU; those that we started are not among them."""
    before, after = readings.before.processes, readings.after.processes
    if isinstance(before, Absent) or isinstance(after, Absent) or readings.elapsed_s <= 0:
        return []
    used = [
        (f"{process.name} (pid {pid})", (process.cpu_s - before[pid].cpu_s) / readings.elapsed_s)
        for pid, process in after.items()
        if pid in before and pid not in ours
    ]
    return sorted([pair for pair in used if pair[1] >= 0.05], key=lambda pair: -pair[1])


def _clock_fell(before: State, after: State) -> Disturbance | None:
    first, last = _top_clock(before), _top_clock(after)
    if first is None or last is None or last >= _CLOCK_FELL * first:
        return None
    found = f"CPU clock: the highest allowed fell to {last / first:.0%} of what it was"
    return Disturbance(when="after", code="cpu-clock-capped", found=found, remedy=CHECKS["cpu-clock-capped"].remedy)


def _top_clock(state: State) -> float | None:
    """The allowed clock: the current one follows the load, and would fall by itself when the runs end."""
    if isinstance(state.clocks, Absent):
        return None
    return max((policy.allowed_hz for policy in state.clocks if policy.allowed_hz), default=None)


def _load(counters: Counters | None) -> float | None:
    if counters is None or isinstance(counters.load, Absent):
        return None
    return counters.load.one


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
    told: dict[str, Any] = {"reservations": list(reservations)} if reservations else {}
    return told if turbo is None else {**told, "turbo": turbo}


def _counters(machine: Machine, host: Host) -> Counters:
    if machine.system == "Linux":
        from inferometer.catalog.health.linux import linux_counters  # noqa: PLC0415 - one system of three is needed

        return linux_counters(machine, host)
    from inferometer.catalog.health.portable import portable_counters  # noqa: PLC0415 - as above

    return portable_counters(machine)


def _state(machine: Machine, host: Host) -> State:
    if machine.system == "Linux":
        from inferometer.catalog.health.linux_state import linux_state  # noqa: PLC0415 - as above

        return linux_state(machine, host)
    from inferometer.catalog.health.portable import portable_state  # noqa: PLC0415 - as above

    return portable_state(machine)
