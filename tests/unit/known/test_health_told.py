"""What each check says, word for word and number for number, at its limits and just inside them."""

from dataclasses import replace
from math import nextafter

import pytest

from inferometer.core.box import Means
from inferometer.known.machine.detect import Disk
from inferometer.known.machine.health import CHECKS, Absent, Overall, overall, take
from inferometer.known.machine.health.readings import (
    BoardThrottle,
    CpuTime,
    KernelEvent,
    LinkCounts,
    Load,
    MemoryState,
    Paging,
    Pressure,
    ProcessTime,
    RunQueue,
    Supply,
    TcpCounts,
    Temperature,
)
from unit.known.test_health import (
    COUNTERS,
    GIB,
    GPU,
    LATER,
    POLICY,
    QUIET,
    after,
    checks_of,
    clocks,
    gpu,
    heat,
    limited,
    memory,
    room,
    state,
    stopped,
)


def below(value):
    return nextafter(value, 0.0)


def longer(readings, seconds):
    return replace(readings, elapsed_s=seconds)


def loaded(one):
    return after(load=Load(one=one, five=2.5, fifteen=3.25))


def load_told(one, share):
    return (
        f"load {one:.2f} on 16 CPUs ({share:.2f} a CPU), 2.50 over 5 min",
        {"load_1min": one, "load_5min": 2.5, "load_15min": 3.25, "per_cpu": share},
    )


def pressed(resource, avg10, stalled_s, seconds=4.0):
    return longer(after(pressure={resource: Pressure(some_avg10=avg10, stalled_s=10.0 + stalled_s)}), seconds)


def pressure_told(avg10, now):
    return f"tasks waited {avg10:.1%} of the last 10 s, {now:.1%} just now", {"avg10": avg10, "now": now}


def used(busy, idle, steal=0.0, cpus=()):
    """Seconds that passed, all CPUs together."""
    return after(cpu=CpuTime(busy_s=100.0 + busy, idle_s=900.0 + idle, steal_s=steal), cpus=cpus)


def queued(before, now, blocked=None):
    readings = after(queue=RunQueue(running=now, blocked=blocked))
    first = Absent("x") if before is None else RunQueue(running=before, blocked=None)
    return replace(readings, before=replace(COUNTERS, queue=first))


def queue_told(others, blocked=0):
    return (
        f"{others:.1f} other tasks ready on 16 CPUs, {blocked} waiting for a disk",
        {"ready": others, "per_cpu": others / 16, "blocked": float(blocked)},
    )


def processes(seconds=2.0, **used_s):
    """Each by the name and number of its process; they had used a second before."""
    rows = {int(name[1:]): ProcessTime(name=name, cpu_s=1.0 + used) for name, used in used_s.items()}
    first = {pid: ProcessTime(name=row.name, cpu_s=1.0) for pid, row in rows.items() if pid != 99}
    readings = longer(after(processes=rows), seconds)
    return replace(readings, before=replace(COUNTERS, processes=first))


def swapped(moved_in, moved_out, seconds=2.0):
    readings = longer(after(paging=Paging(in_bytes=10**9 + moved_in, out_bytes=10**9 + moved_out)), seconds)
    return replace(readings, before=replace(COUNTERS, paging=Paging(in_bytes=10**9, out_bytes=10**9)))


def swap_told(moved_in, moved_out, words):
    return words, {"in_bytes_per_s": moved_in, "out_bytes_per_s": moved_out}


def spun(seconds=2.0, **busy_s):
    return longer(after(disk_busy_s={name: 5.0 + busy for name, busy in busy_s.items()} | {"new": 99.0}), seconds)


def spinning(readings, *names):
    return replace(readings, before=replace(COUNTERS, disk_busy_s=dict.fromkeys(names, 5.0)))


def linked(first, last):
    """Packets, errors and drops of two links, before and after."""
    return replace(
        after(links={"a": LinkCounts(**last), "b": LinkCounts(packets=100, errors=1, drops=2)}),
        before=replace(COUNTERS, links={"a": LinkCounts(**first), "b": LinkCounts(packets=100, errors=1, drops=2)}),
    )


def counts(packets, errors, drops):
    return {"packets": packets, "errors": errors, "drops": drops}


def link_told(now, errors, drops, share):
    return (
        f"{now} errors and drops just now, {errors} errors and {drops} drops since boot ({share:.2%})",
        {"now": float(now), "errors": float(errors), "drops": float(drops), "share": share},
    )


def sent(first, last):
    return replace(
        after(tcp=TcpCounts(sent=last[0], retransmitted=last[1])),
        before=replace(COUNTERS, tcp=TcpCounts(sent=first[0], retransmitted=first[1])),
    )


def throttled(before, now, board=None):
    return replace(
        QUIET,
        before=replace(COUNTERS, throttle_events=before),
        after=replace(LATER, throttle_events=now),
        state=replace(QUIET.state, board=board or Absent("no board")),
    )


def hot(*rows):
    sensors = tuple(
        Temperature(name=name, celsius=celsius, high_c=high, critical_c=critical)
        for name, celsius, high, critical in rows
    )
    return state(temperatures=sensors, gpus=Absent("none"))


def events(*ages):
    return state(
        kernel=tuple(
            KernelEvent(kind="hung" if n % 2 else "too hot", age_s=age, text=f"line {n}") for n, age in enumerate(ages)
        )
    )


def capped(*shares_and_tops, now=(2e9, 3e9)):
    return state(
        clocks=tuple(
            replace(POLICY, allowed_hz=share * top, max_hz=top, current_hz=current)
            for (share, top), current in zip(shares_and_tops, now, strict=True)
        )
    )


GB = 10**9
TOLD = [
    ("load-high", loaded(0.3 * 16), "warn", *load_told(4.8, 0.3)),
    ("load-high", loaded(below(0.3 * 16)), "good", *load_told(below(4.8), below(4.8) / 16)),
    ("load-high", loaded(12.8), "bad", *load_told(12.8, 0.8)),
    ("load-high", loaded(12.5), "warn", *load_told(12.5, 0.78125)),
    # What is worse of the last ten seconds and of the interval, which no task can wait longer than.
    ("cpu-pressure", pressed("cpu", 0.05, 0.0), "warn", *pressure_told(0.05, 0.0)),
    ("cpu-pressure", pressed("cpu", below(0.05), 0.125), "good", *pressure_told(below(0.05), 0.03125)),
    ("cpu-pressure", pressed("cpu", 0.2, -3.0), "bad", *pressure_told(0.2, 0.0)),
    ("cpu-pressure", pressed("cpu", 0.0, 0.5), "warn", *pressure_told(0.0, 0.125)),
    ("cpu-pressure", pressed("cpu", 0.0, 9.0), "bad", *pressure_told(0.0, 1.0)),
    ("cpu-pressure", pressed("cpu", 0.0, 9.0, seconds=0.0), "good", *pressure_told(0.0, 0.0)),
    ("memory-pressure", pressed("memory", 0.005, 0.0), "warn", *pressure_told(0.005, 0.0)),
    ("memory-pressure", pressed("memory", below(0.005), 0.0), "good", *pressure_told(below(0.005), 0.0)),
    ("memory-pressure", pressed("memory", 0.05, 0.0), "bad", *pressure_told(0.05, 0.0)),
    ("io-pressure", pressed("io", 0.05, 0.0), "warn", *pressure_told(0.05, 0.0)),
    ("io-pressure", pressed("io", 0.2, 0.0), "bad", *pressure_told(0.2, 0.0)),
    ("cpu-busy", used(1.0, 7.0, 2.0), "warn", "10% of all CPUs in use, the busiest 10%",
     {"busy": 0.1, "busiest": 0.1}),
    ("cpu-busy", used(3.0, 7.0), "bad", "30% of all CPUs in use, the busiest 30%", {"busy": 0.3, "busiest": 0.3}),
    ("cpu-busy", used(1.0, 15.0, cpus=(CpuTime(busy_s=59.0, idle_s=451.0, steal_s=0.0), COUNTERS.cpus[0])), "good",
     "6% of all CPUs in use, the busiest 90%", {"busy": 0.0625, "busiest": 0.9}),  # one CPU alone was counted
    ("cpu-busy", used(1.0, 15.0, cpus=(CpuTime(busy_s=59.0, idle_s=451.0, steal_s=0.0),
                                       CpuTime(busy_s=50.0, idle_s=451.0, steal_s=0.0))), "warn",
     "6% of all CPUs in use, the busiest 90%", {"busy": 0.0625, "busiest": 0.9}),
    ("cpu-steal", used(1.0, 98.0, 1.0), "warn", "1.0% stolen on a real machine", {"steal": 0.01}),
    ("cpu-steal", used(0.0, 95.0, 5.0), "bad", "5.0% stolen on a real machine", {"steal": 0.05}),
    ("run-queue-long", queued(9, 9), "warn", *queue_told(8.0)),
    ("run-queue-long", queued(8, 9, blocked=3), "good", *queue_told(7.5, 3)),
    ("run-queue-long", queued(None, 17), "bad", *queue_told(16.0)),
    ("run-queue-long", queued(0, 0), "good", *queue_told(0.0)),
    ("cpu-hog", processes(p1=0.2, p2=1.0, p3=0.1, p4=0.4, p9=8.0, p99=8.0), "bad",
     "p2 (pid 2) 50%, p4 (pid 4) 20%, p1 (pid 1) 10%", {"top": 0.5}),  # itself, and who came since, are left out
    ("cpu-hog", processes(seconds=10.0, p1=1.0, p2=0.4375), "warn", "p1 (pid 1) 10%", {"top": 0.1}),
    ("cpu-hog", processes(seconds=10.0, p1=0.5, p2=-5.0), "good", "p1 (pid 1) 5%", {"top": 0.05}),
    ("cpu-hog", processes(p1=0.09, p2=0.0), "good", "none of 2 processes uses a CPU", {"top": 0.0}),
    ("memory-low", memory(3.25), "good", "3.49 GB of 17.2 GB available (20%)",
     {"available_bytes": 3.25 * GIB, "total_bytes": 16.0 * GIB}),
    ("memory-low", memory(3.125), "warn", "3.36 GB of 17.2 GB available (20%)",
     {"available_bytes": 3.125 * GIB, "total_bytes": 16.0 * GIB}),
    ("memory-low", memory(1.5), "bad", "1.61 GB of 17.2 GB available (9%)",
     {"available_bytes": 1.5 * GIB, "total_bytes": 16.0 * GIB}),
    ("memory-low", after(memory=MemoryState(total_bytes=0, available_bytes=0, swap_total_bytes=0, swap_used_bytes=0)),
     "bad", "0 B of 0 B available (0%)", {"available_bytes": 0.0, "total_bytes": 0.0}),
    ("swap-in-use", memory(12, swap_used=0.16), "good", "172 MB of 2.15 GB in use",
     {"used_bytes": float(int(0.16 * GIB)), "total_bytes": 2.0 * GIB}),
    ("swap-in-use", memory(12, swap_used=0.1640625), "warn", "176 MB of 2.15 GB in use",
     {"used_bytes": 0.1640625 * GIB, "total_bytes": 2.0 * GIB}),
    ("swap-in-use", after(memory=replace(COUNTERS.memory, swap_total_bytes=0)), "good", "there is no swap",
     {"used_bytes": 0.0, "total_bytes": 0.0}),
    ("swapping", swapped(10**6, 10**6), "bad", *swap_told(5e5, 5e5, "500 kB/s in, 500 kB/s out")),
    ("swapping", swapped(10**6, 10**6 - 2), "warn", *swap_told(5e5, 5e5 - 1, "500 kB/s in, 500 kB/s out")),
    ("swapping", swapped(0, 2000), "warn", *swap_told(0.0, 1000.0, "0 B/s in, 1 kB/s out")),
    ("swapping", swapped(-5, 0), "good", *swap_told(0.0, 0.0, "nothing moved")),
    ("disk-space-low", state(disks=(Disk(name="a", total_bytes=1, free_bytes=9 * GB),
                                    Disk(name="b", total_bytes=1, free_bytes=5 * GB))), "warn",
     "9 GB free in the a, 5 GB free in the b", {"free_bytes": 5e9}),
    ("disk-space-low", room(5e9 + 1), "good", "5 GB free in the working folder", {"free_bytes": 5e9 + 1}),
    ("disk-space-low", room(1e9), "bad", "1 GB free in the working folder", {"free_bytes": 1e9}),
    ("disk-busy", spinning(spun(sda=0.4, sdb=0.1), "sda", "sdb"), "warn", "sda busy 20% of the time", {"busiest": 0.2}),
    ("disk-busy", spinning(spun(sda=0.1, sdb=1.2), "sda", "sdb"), "bad", "sdb busy 60% of the time", {"busiest": 0.6}),
    ("disk-busy", spinning(spun(sda=9.0), "sda"), "bad", "sda busy 100% of the time", {"busiest": 1.0}),
    ("disk-busy", spinning(spun(sda=-1.0), "sda"), "good", "no disk is busy", {"busiest": 0.0}),
    ("network-errors", linked(counts(500, 3, 4), counts(900, 5, 5)), "warn", *link_told(3, 6, 7, 0.013)),
    ("network-errors", linked(counts(500, 3, 4), counts(1900, 3, 4)), "good", *link_told(0, 4, 6, 0.005)),
    ("network-errors", linked(counts(500, 3, 4), counts(900, 3, 4)), "warn", *link_told(0, 4, 6, 0.01)),
    ("network-errors", linked(counts(9900, 9, 9), counts(9900, 3, 10)), "warn", *link_told(1, 4, 12, 0.0016)),
    ("network-errors", linked(counts(9900, 3, 9), counts(9900, 3, 4)), "good", *link_told(0, 4, 6, 0.001)),
    ("network-errors", after(links={"a": LinkCounts(packets=0, errors=0, drops=0)}), "good", *link_told(0, 0, 0, 0.0)),
    ("tcp-retransmits", sent((1000, 50), (1100, 51)), "warn", "1.00% of 100 segments sent again just now",
     {"share": 0.01, "sent": 100.0}),
    ("tcp-retransmits", sent((1000, 50), (1099, 55)), "bad", "5.00% of 1099 segments sent again since boot",
     {"share": 55 / 1099, "sent": 1099.0}),
    ("tcp-retransmits", sent((1000, 50), (2000, 100)), "bad", "5.00% of 1000 segments sent again just now",
     {"share": 0.05, "sent": 1000.0}),
    ("tcp-retransmits", sent((1000, 50), (2000, 40)), "good", "0.00% of 1000 segments sent again just now",
     {"share": 0.0, "sent": 1000.0}),
    ("tcp-retransmits", sent((0, 0), (99, 99)), "good", "99 segments sent since boot, too few to judge",
     {"sent": 99.0}),
    ("tcp-retransmits", sent((500, 0), (100, 0)), "good", "0.00% of 100 segments sent again since boot",
     {"share": 0.0, "sent": 100.0}),
    ("cpu-governor", state(clocks=(POLICY, replace(POLICY, governor="schedutil"), POLICY)), "warn",
     "performance on 2 CPUs, schedutil on 1 CPUs", {"cpus": 3.0, "performance": 2.0}),
    ("cpu-governor", state(clocks=(POLICY, replace(POLICY, governor=None))), "good", "performance on 1 CPUs",
     {"cpus": 1.0, "performance": 1.0}),
    ("cpu-governor", clocks(governor="powersave", driver="amd-pstate-epp"), "warn", "powersave on 1 CPUs",
     {"cpus": 1.0, "performance": 0.0}),
    ("cpu-governor", clocks(governor="powersave", driver=None), "bad", "powersave on 1 CPUs: the lowest clock, always",
     {"cpus": 1.0, "performance": 0.0}),
    ("cpu-clock-capped", capped((0.95, 2e9), (1.0, 4e9)), "good", "95% of 2 GHz allowed, now up to 3 GHz",
     {"allowed": 0.95, "max_hz": 2e9, "current_hz": 3e9}),
    ("cpu-clock-capped", capped((0.75, 2e9), (0.75, 4e9)), "warn", "75% of 4 GHz allowed, now up to 3 GHz",
     {"allowed": 0.75, "max_hz": 4e9, "current_hz": 3e9}),
    ("cpu-clock-capped", capped((0.7, 2e9), (1.0, 4e9), now=(None, None)), "warn", "70% of 2 GHz allowed",
     {"allowed": 0.7, "max_hz": 2e9}),
    ("cpu-clock-capped", capped((0.6875, 2e9), (0.75, 4e9)), "bad", "69% of 2 GHz allowed, now up to 3 GHz",
     {"allowed": 0.6875, "max_hz": 2e9, "current_hz": 3e9}),
    ("cpu-clock-capped", clocks(allowed_hz=None), "unknown",
     "not measurable here: no CPU reports its highest clock", {}),
    ("cpu-throttled", throttled(5, 8), "bad", "now: 3 events in the interval", {"now": 3.0, "since_boot": 8.0}),
    ("cpu-throttled", throttled(8, 8), "warn", "since boot: 8 events; not now", {"now": 0.0, "since_boot": 8.0}),
    ("cpu-throttled", throttled(8, 5), "warn", "since boot: 5 events; not now", {"now": 0.0, "since_boot": 5.0}),
    ("cpu-throttled", throttled(0, 0), "good", "none since boot", {"now": 0.0, "since_boot": 0.0}),
    ("cpu-throttled", throttled(Absent("x"), 8), "warn", "since boot: 8 events; not now",
     {"now": 0.0, "since_boot": 8.0}),
    ("cpu-throttled", throttled(2, 3, BoardThrottle(now=("a", "b"), since_boot=("c",))), "bad", "now: a, b",
     {"now": 3.0, "since_boot": 4.0}),
    ("cpu-throttled", throttled(Absent("x"), Absent("x"), BoardThrottle(now=(), since_boot=("c", "d"))), "warn",
     "since boot: c, d; not now", {"now": 0.0, "since_boot": 2.0}),
    ("cpu-throttled", throttled(0, Absent("no counters")), "unknown", "not measurable here: no counters; no board", {}),
    ("gpu-throttled", state(gpus=(replace(GPU, throttle=0x4 | 0x10), replace(GPU, throttle=0x4),
                                  replace(GPU, throttle=None))), "warn", "power cap, sync boost", {"reasons": 3.0}),
    ("gpu-throttled", state(gpus=(replace(GPU, throttle=0x1), replace(GPU, throttle=0))), "good", "no reason on 2 GPUs",
     {"reasons": 0.0}),
    ("gpu-throttled", gpu(throttle=0x1), "good", "no reason on 1 GPU", {"reasons": 0.0}),
    ("gpu-throttled", gpu(throttle=0x20 | 0x2), "bad", "application clocks are set, software thermal slowdown",
     {"reasons": 2.0}),
    ("gpu-busy", gpu(busy=0.3), "bad", "the busiest 30% in use, the fullest 0% of its memory",
     {"busy": 0.3, "memory": 1e8 / 24e9}),
    ("gpu-busy", gpu(busy=0.05), "warn", "the busiest 5% in use, the fullest 0% of its memory",
     {"busy": 0.05, "memory": 1e8 / 24e9}),
    ("gpu-busy", state(gpus=(replace(GPU, busy=0.0625), replace(GPU, busy=None, memory_used_bytes=12e9))), "warn",
     "the busiest 6% in use, the fullest 50% of its memory", {"busy": 0.0625, "memory": 0.5}),
    ("gpu-busy", gpu(busy=None, memory_used_bytes=4.8e9), "warn",
     "the busiest 0% in use, the fullest 20% of its memory", {"busy": 0.0, "memory": 0.2}),
    ("gpu-busy", gpu(busy=below(0.05), memory_total_bytes=0), "good",
     "the busiest 5% in use, the fullest 0% of its memory", {"busy": below(0.05), "memory": 0.0}),
    ("temperature-high", hot(("a", 80.0, 100.0, None), ("b", 60.0, 65.0, None)), "warn",
     "b 60 °C, 5 °C below its limit", {"hottest_c": 80.0, "margin_c": 5.0}),
    ("temperature-high", hot(("a", 80.0, 100.0, None), ("b", 60.0, 70.0, None)), "good",
     "a 80 °C, the hottest of 2 sensors", {"hottest_c": 80.0, "margin_c": 10.0}),
    ("temperature-high", heat(80.0), "good", "cpu 80 °C", {"hottest_c": 80.0, "margin_c": 10.0}),
    ("temperature-high", heat(100.0, high_c=100.0, critical_c=110.0), "bad", "cpu 100 °C, at its limit",
     {"hottest_c": 100.0, "margin_c": 0.0}),
    ("temperature-high", heat(85.0, high_c=40.0, critical_c=100.0), "good", "cpu 85 °C",
     {"hottest_c": 85.0, "margin_c": 10.0}),  # a limit of 40 °C and less is none
    ("temperature-high", heat(85.0, high_c=41.0, critical_c=100.0), "bad", "cpu 85 °C, at its limit",
     {"hottest_c": 85.0, "margin_c": -44.0}),
    ("temperature-high", heat(81.0, critical_c=40.0), "warn", "cpu 81 °C, 9 °C below its limit",
     {"hottest_c": 81.0, "margin_c": 9.0}),
    ("temperature-high", state(gpus=(replace(GPU, celsius=84.0), replace(GPU, celsius=None))), "warn",
     "GPU 84 °C, 6 °C below its limit", {"hottest_c": 84.0, "margin_c": 6.0}),
    ("temperature-high", state(temperatures=Absent("no sensors")), "good", "GPU 40 °C",
     {"hottest_c": 40.0, "margin_c": 50.0}),
    ("clock-source", state(clock_source="xen"), "warn", "xen, whose cost is not known", {}),
    ("kernel-errors", events(9000.0, 3600.0, None, 20.0), "bad",
     "hung (2), too hot (1) in the last hour; the last: line 3", {"events": 4.0, "recent": 3.0}),
    ("kernel-errors", events(9000.0, 3601.0, 8000.0), "warn", "too hot (2), hung (1), none in the last hour",
     {"events": 3.0, "recent": 0.0}),
    ("kernel-errors", events(), "good", "no line about a failure", {"events": 0.0, "recent": 0.0}),
    ("on-battery", state(supply=Supply(has_battery=True, on_mains=True, charge=0.5)), "good",
     "on mains, battery at 50%", {"charge": 0.5}),
    ("on-battery", state(supply=Supply(has_battery=True, on_mains=False, charge=None)), "bad", "on battery", {}),
    ("on-battery", state(supply=Supply(has_battery=True, on_mains=None, charge=0.5)), "unknown",
     "not measurable here: the system does not say whether it is plugged in, battery at 50%", {}),
    ("container-limits", QUIET, "good", "all 16 CPUs may be used", {"usable_cpus": 16}),
    ("container-limits", stopped(-3), "warn", "only 2 of 16 CPUs, by a quota of 2", {"usable_cpus": 2.0}),
    ("container-limits", stopped(3), "bad", "stopped 3 times by the quota: 2 of 16 CPUs, by a quota of 2",
     {"usable_cpus": 2.0, "stops": 3.0}),
    ("container-limits", limited(memory_bytes=GIB, container="docker"), "warn", "only 1.07 GB of memory in docker",
     {"usable_cpus": 16}),
    ("container-limits", limited(memory_bytes=10**15, container="docker"), "good",
     "all 16 CPUs may be used in docker", {"usable_cpus": 16}),
    ("versions", state(packages={"numpy": "2", "onnxruntime": "1"}), "good",
     f"Python {QUIET.host.python}, numpy 2, onnxruntime 1", {"engines": 1.0}),
    ("versions", state(packages={"numpy": "2"}), "warn",
     f"Python {QUIET.host.python}, numpy 2; no inference engine is installed", {"engines": 0.0}),
    ("host-speed", QUIET, "good", "1.6 µs a call from Python", {"call_s": 1.6e-6}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "readings", "verdict", "found", "numbers"),
    TOLD,
    ids=[f"{row[0]}-{row[2]}-{place}" for place, row in enumerate(TOLD)],
)
def test_a_check_says_what_it_saw(code, readings, verdict, found, numbers):
    check = CHECKS[code](readings)
    assert (check.verdict, check.found) == (verdict, found)
    assert check.numbers == {name: pytest.approx(value, rel=1e-12) for name, value in numbers.items()}
    assert {name: type(value) for name, value in check.numbers.items()} == {
        name: type(value) for name, value in numbers.items()
    }


@pytest.mark.parametrize("code", ["swapping", "disk-busy", "cpu-hog"])
def test_without_time_between_the_readings_there_is_no_rate(code):
    assert CHECKS[code](longer(QUIET, 0.0)).found == "not measurable here: no time passed between the two readings"


def test_a_first_reading_that_failed_is_said():
    gone = replace(QUIET, before=replace(COUNTERS, links=Absent("no"), cpu=Absent("no"), pressure=Absent("no")))
    for code in ("network-errors", "cpu-busy"):
        assert CHECKS[code](gone).found == "not measurable here: it could not be read the first time"
    assert CHECKS["cpu-pressure"](gone).verdict == "good", "the kernel's own average is enough"


def test_stolen_time_is_told_of_the_kind_of_machine():
    readings = used(1.0, 98.0, 1.0)
    for virtual, where in ((True, "a virtual machine"), (False, "a real machine"), (None, "this machine")):
        host = replace(readings.host, limits=replace(readings.host.limits, virtualised=virtual))
        assert CHECKS["cpu-steal"](replace(readings, host=host)).found == f"1.0% stolen on {where}"


def test_the_whole_names_what_disturbs_before_what_only_colours():
    both = replace(QUIET, state=clocks(governor="powersave").state, after=loaded(16.0).after)
    assert overall(checks_of(both)) == Overall(
        verdict="bad", quiet=False, found="not quiet enough to measure: load-high", disturbed_by=("load-high",),
        reservations=("cpu-governor",),
    )  # fmt: skip
    warned = replace(QUIET, state=clocks(governor="schedutil").state, after=loaded(8.0).after)
    assert overall(checks_of(warned)) == Overall(
        verdict="warn", quiet=True, found="quiet enough to measure, with reservations: load-high, cpu-governor",
        disturbed_by=(), reservations=("load-high", "cpu-governor"),
    )  # fmt: skip
    silent = after(load=Absent("x"), pressure=Absent("x"), cpu=Absent("x"))
    assert overall(checks_of(replace(silent, state=clocks(governor="schedutil").state))).reservations == (
        "cpu-governor",
    )
    for told in ("load", "pressure", "cpu"):
        known = {name: Absent("x") for name in ("load", "pressure", "cpu") if name != told}
        assert overall(checks_of(after(**known))).quiet is True, "one of them is enough"


def test_readings_are_as_far_apart_as_the_clock_says(monkeypatch):
    order = []
    monkeypatch.setattr("inferometer.known.machine.health.read_state", lambda *_: order.append("state") or QUIET.state)
    monkeypatch.setattr(
        "inferometer.known.machine.health.read_counters", lambda *_: order.append("counters") or COUNTERS
    )
    times = iter([5.0, 7.5])

    class Machine:
        pid = 9

    found = take(
        Machine(), QUIET.host, interval_s=2.0, sleep=order.append, clock=lambda: next(times),
        calls=lambda: 3e-6, box=lambda: Means(landlock=4),
    )  # fmt: skip
    assert order == ["state", "counters", 2.0, "counters"]
    assert (found.elapsed_s, found.pid, found.call_s, found.box) == (2.5, 9, 3e-6, Means(landlock=4))
    backwards = iter([5.0, 4.0])
    again = take(
        Machine(), QUIET.host, interval_s=3599.0, sleep=lambda _: None, clock=lambda: next(backwards), calls=lambda: 1.0
    )
    assert (again.elapsed_s, again.box) == (0.0, Absent("it was not tried"))
