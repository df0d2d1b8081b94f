"""Is somebody else using the processor? uptime, vmstat, mpstat, pidstat and pressure of the one-minute checklist."""

from collections.abc import Container
from contextlib import suppress

from inferometer.known.machine.health.check import Outcome, Topic, good, grade, topic, unknown
from inferometer.known.machine.health.readings import Absent, CpuTime, Readings, UnreadableError, both, known

_SHOWN = 3
_WORTH_NAMING = 0.05  # of a CPU


@topic(
    "load-high",
    title="Load average",
    what="The load average of the last minute, divided by the CPUs of the machine.",
    why="Work that waits in line takes turns with the model under test, and every turn lost is latency that is not the "
    "model's. The average lags: it still remembers a minute after a heavy program has ended.",
    remedy="Stop other work, or wait a minute after it has ended.",
    bearing="disturbs",
)
def load_high(readings: Readings) -> Outcome:
    load, cpus = known(readings.after.load), _cpus(readings)
    share = load.one / cpus
    return Outcome(
        verdict=grade(share, 0.3, 0.8),
        found=f"load {load.one:.2f} on {cpus} CPUs ({share:.2f} a CPU), {load.five:.2f} over 5 min",
        numbers={"load_1min": load.one, "load_5min": load.five, "load_15min": load.fifteen, "per_cpu": share},
    )


def _cpus(readings: Readings) -> int:
    return known(readings.host.cpu.logical_cores or Absent("the number of CPUs is not known"))


def pressure_outcome(readings: Readings, resource: str, warn_at: float, bad_at: float) -> Outcome:
    before, after = readings.before.pressure, known(readings.after.pressure)
    if resource not in after:
        return unknown(f"there is no /proc/pressure/{resource}")
    now = after[resource]
    earlier = None if isinstance(before, Absent) else before.get(resource)
    stalled = max(now.stalled_s - earlier.stalled_s, 0.0) if earlier else 0.0
    recent = min(stalled / readings.elapsed_s, 1.0) if readings.elapsed_s > 0 else 0.0
    share = max(recent, now.some_avg10)
    return Outcome(
        verdict=grade(share, warn_at, bad_at),
        found=f"tasks waited {now.some_avg10:.1%} of the last 10 s, {recent:.1%} just now",
        numbers={"avg10": now.some_avg10, "now": recent},
    )


@topic(
    "cpu-pressure",
    title="CPU pressure",
    what="The share of time in which some task was ready to run but had no CPU (pressure stall information).",
    why="It is the direct measure of what load only hints at: while it is above zero, someone waits, and that someone "
    "may be the model under test.",
    remedy="Stop other work, or give the measurement CPUs of its own (taskset, cpusets).",
    bearing="disturbs",
)
def cpu_pressure(readings: Readings) -> Outcome:
    return pressure_outcome(readings, "cpu", 0.05, 0.20)


def cpu_seconds(before: CpuTime | Absent, after: CpuTime | Absent) -> tuple[float, float | None, float]:
    """CPU time that passed between two readings: busy, stolen, and all of it."""
    first, last = both(before, after)
    steal = None if last.steal_s is None else max(last.steal_s - (first.steal_s or 0.0), 0.0)
    busy, idle = max(last.busy_s - first.busy_s, 0.0), max(last.idle_s - first.idle_s, 0.0)
    total = busy + idle + (steal or 0.0)
    if total <= 0:
        raise UnreadableError("the CPU counters did not move")
    return busy, steal, total


@topic(
    "cpu-busy",
    title="CPU use",
    what="The share of CPU time that was used during the interval, over all CPUs and on the busiest one.",
    why="Other programs share caches, memory bandwidth and the power budget even when a CPU is free for the model: a "
    "tenth of the machine in use can cost more than a tenth of the speed.",
    remedy="Find the program with `inferometer doctor` (cpu-hog) or top, and stop it.",
    bearing="disturbs",
)
def cpu_busy(readings: Readings) -> Outcome:
    busy, _, total = cpu_seconds(readings.before.cpu, readings.after.cpu)
    share, single = busy / total, _busy_shares(readings)
    busiest = max(single, default=share)
    found = f"{share:.0%} of all CPUs in use, the busiest {busiest:.0%}"
    verdict = grade(share, 0.10, 0.30)
    if verdict == "good" and busiest >= 0.9 and len(single) > 1:
        verdict = "warn"
    return Outcome(verdict=verdict, found=found, numbers={"busy": share, "busiest": busiest})


def _busy_shares(readings: Readings) -> list[float]:
    """Of each CPU; one whose counters stood still is left out."""
    shares = []
    for before, after in zip(readings.before.cpus, readings.after.cpus, strict=False):
        with suppress(UnreadableError):
            busy, _, total = cpu_seconds(before, after)
            shares.append(busy / total)
    return shares


@topic(
    "cpu-steal",
    title="Stolen CPU time",
    what="The share of CPU time that a hypervisor gave to other guests while this one wanted to run.",
    why="Stolen time stops the model without a trace inside the guest: the clock runs on, the work does not. No "
    "setting inside the guest can mend it.",
    remedy="Use an instance with dedicated CPUs, or repeat the measurement at another time and compare.",
    bearing="disturbs",
)
def cpu_steal(readings: Readings) -> Outcome:
    _, stolen, total = cpu_seconds(readings.before.cpu, readings.after.cpu)
    if stolen is None:
        return unknown("this system does not count stolen time")
    share = stolen / total
    virtual = readings.host.limits.virtualised
    where = "a virtual machine" if virtual else "a real machine" if virtual is False else "this machine"
    return Outcome(verdict=grade(share, 0.01, 0.05), found=f"{share:.1%} stolen on {where}", numbers={"steal": share})


@topic(
    "run-queue-long",
    title="Run queue",
    what="Tasks running or ready to run at the two moments of reading, this process not counted, per CPU.",
    why="It is the load without the lag: more ready tasks than CPUs means that they take turns now.",
    remedy="Stop other work before measuring.",
    bearing="disturbs",
)
def run_queue_long(readings: Readings) -> Outcome:
    before, after, cpus = readings.before.queue, known(readings.after.queue), _cpus(readings)
    samples = [queue.running for queue in (before, after) if not isinstance(queue, Absent)]
    others = max(sum(samples) / len(samples) - 1, 0.0)  # the reader itself runs while it reads
    blocked = after.blocked or 0
    return Outcome(
        verdict=grade(others / cpus, 0.5, 1.0),
        found=f"{others:.1f} other tasks ready on {cpus} CPUs, {blocked} waiting for a disk",
        numbers={"ready": others, "per_cpu": others / cpus, "blocked": float(blocked)},
    )


@topic(
    "cpu-hog",
    title="Processes using the CPU",
    what="The processes that used most CPU time during the interval, this one not counted; 100 % is one CPU.",
    why="It names who is behind the load, so that it can be stopped: a browser tab, an indexer, a forgotten benchmark.",
    remedy="Stop the processes named here, or wait until they have ended.",
    bearing="disturbs",
)
def cpu_hog(readings: Readings) -> Outcome:
    shares = process_shares(readings, {readings.pid})
    top = [(share, name) for share, name in shares[:_SHOWN] if share >= _WORTH_NAMING]
    if not top:
        return good(f"none of {len(shares)} processes uses a CPU", {"top": 0.0})
    names = ", ".join(f"{name} {share:.0%}" for share, name in top)
    return Outcome(verdict=grade(top[0][0], 0.10, 0.50), found=names, numbers={"top": top[0][0]})


def process_shares(readings: Readings, own: Container[int | None]) -> list[tuple[float, str]]:
    """How much of a CPU each process used between the readings, the busiest first. Our `own` are left out."""
    before, after = both(readings.before.processes, readings.after.processes)
    shares = [
        (max(process.cpu_s - before[pid].cpu_s, 0.0) / readings.seconds, f"{process.name} (pid {pid})")
        for pid, process in after.items()
        if pid in before and pid not in own
    ]
    return sorted(shares, reverse=True)


TOPICS: tuple[Topic, ...] = (load_high, cpu_pressure, cpu_busy, run_queue_long, cpu_hog, cpu_steal)
