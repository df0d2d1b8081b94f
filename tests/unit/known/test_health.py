"""Each check says good, warn, bad or unknown for the right reasons; the whole says whether to measure."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.every import every
from fakes.recorded_machine import RecordedMachine, load_machine
from inferometer.core.box import Means
from inferometer.core.errors import DomainError
from inferometer.known.machine.detect import Disk, LocalMachine, detect_host
from inferometer.known.machine.health import CHECKS, Absent, Check, Overall, judge, overall, take
from inferometer.known.machine.health.readings import (
    BoardThrottle,
    ClockPolicy,
    Counters,
    CpuTime,
    GpuState,
    KernelEvent,
    LinkCounts,
    Load,
    MemoryState,
    Paging,
    Pressure,
    ProcessTime,
    QuotaCounts,
    Readings,
    RunQueue,
    State,
    Supply,
    TcpCounts,
    Temperature,
)

HOSTS = Path(__file__).parents[2] / "data" / "hosts"
NAMES = sorted(folder.name for folder in HOSTS.iterdir() if folder.is_dir())
QUIET_HOST = detect_host(load_machine(HOSTS / "workstation-rtx4090"))  # 16 logical CPUs
GONE = Absent("not here")
GIB = 2**30
CALM = Pressure(some_avg10=0.0, stalled_s=10.0)

COUNTERS = Counters(
    load=Load(one=0.1, five=0.1, fifteen=0.1),
    queue=RunQueue(running=1, blocked=0),
    pressure={"cpu": CALM, "memory": CALM, "io": CALM},
    cpu=CpuTime(busy_s=100.0, idle_s=900.0, steal_s=0.0),
    cpus=(CpuTime(busy_s=50.0, idle_s=450.0, steal_s=0.0),) * 2,
    processes={7: ProcessTime(name="sshd", cpu_s=1.0), 9: ProcessTime(name="inferometer", cpu_s=3.0)},
    memory=MemoryState(total_bytes=16 * GIB, available_bytes=12 * GIB, swap_total_bytes=2 * GIB, swap_used_bytes=0),
    paging=Paging(in_bytes=0, out_bytes=0),
    links={"eth0": LinkCounts(packets=100_000, errors=0, drops=10)},
    tcp=TcpCounts(sent=10_000, retransmitted=5),
    disk_busy_s={"nvme0n1": 5.0},
    throttle_events=0,
    quota=Absent("there is no CPU quota"),
)
POLICY = ClockPolicy(cpu=0, governor="performance", driver="acpi-cpufreq", current_hz=2e9, allowed_hz=4e9, max_hz=4e9)
GPU = GpuState(
    name="GPU",
    celsius=40.0,
    busy=0.0,
    memory_used_bytes=1e8,
    memory_total_bytes=24e9,
    throttle=0x1,
)
STATE = State(
    clocks=(POLICY,),
    temperatures=(Temperature(name="cpu", celsius=45.0, high_c=100.0, critical_c=105.0),),
    gpus=(GPU,),
    kernel=(),
    board=GONE,
    supply=Supply(has_battery=False, on_mains=None, charge=None),
    disks=(Disk(name="working folder", total_bytes=10**12, free_bytes=10**11),),
    clock_source="tsc",
    packages={"inferometer": "0.1.0", "numpy": "2.2.0", "onnxruntime": "1.20.0"},
)
# One second later on a quiet machine: sixteen idle CPU seconds have passed.
LATER = replace(COUNTERS, cpu=CpuTime(busy_s=100.1, idle_s=915.9, steal_s=0.0))
QUIET = Readings(host=QUIET_HOST, before=COUNTERS, after=LATER, elapsed_s=1.0, state=STATE, pid=9, call_s=1.6e-6)


def after(**changes: Any) -> Readings:
    return replace(QUIET, after=replace(LATER, **changes))


def state(**changes: Any) -> Readings:
    return replace(QUIET, state=replace(STATE, **changes))


def pressed(resource: str, share: float) -> Readings:
    return after(pressure={resource: Pressure(some_avg10=share, stalled_s=10.0)})


def busy(share: float, steal: float = 0.0) -> Readings:
    return after(cpu=CpuTime(busy_s=100.0 + 16 * share, idle_s=900.0 + 16 * (1 - share - steal), steal_s=16 * steal))


def hog(cpu_s: float) -> Readings:
    used = {7: ProcessTime(name="chrome", cpu_s=1.0 + cpu_s), 9: ProcessTime(name="inferometer", cpu_s=99.0)}
    return after(processes=used)


def memory(available: float, swap_used: float = 0.0) -> Readings:
    return after(
        memory=MemoryState(
            total_bytes=16 * GIB,
            available_bytes=int(available * GIB),
            swap_total_bytes=2 * GIB,
            swap_used_bytes=int(swap_used * GIB),
        )
    )


def room(free_bytes: float) -> Readings:
    return state(disks=(Disk(name="working folder", total_bytes=10**12, free_bytes=int(free_bytes)),))


def clocks(**changes: Any) -> Readings:
    return state(clocks=(replace(POLICY, **changes),))


def gpu(**changes: Any) -> Readings:
    return state(gpus=(replace(GPU, **changes),))


def heat(celsius: float, **limits: float) -> Readings:
    reading = Temperature(name="cpu", celsius=celsius, high_c=limits.get("high_c"), critical_c=limits.get("critical_c"))
    return state(temperatures=(reading,), gpus=GONE)


def event(kind: str, age_s: float | None) -> Readings:
    return state(kernel=(KernelEvent(kind=kind, age_s=age_s, text="NVRM: Xid 79"),))


def limited(**changes: Any) -> Readings:
    return replace(QUIET, host=replace(QUIET_HOST, limits=replace(QUIET_HOST.limits, **changes)))


def stopped(stops: int) -> Readings:
    container = limited(quota_cpus=2.0)
    return replace(
        container,
        before=replace(COUNTERS, quota=QuotaCounts(stops=10)),
        after=replace(LATER, quota=QuotaCounts(stops=10 + stops)),
    )


def throttled_before(events: int) -> Readings:
    return replace(
        QUIET, before=replace(COUNTERS, throttle_events=events), after=replace(LATER, throttle_events=events)
    )


CASES = [
    ("load-high", "good", QUIET),
    ("load-high", "warn", after(load=Load(one=6.4, five=1, fifteen=1))),
    ("load-high", "bad", after(load=Load(one=16.0, five=1, fifteen=1))),
    ("load-high", "unknown", after(load=GONE)),
    ("cpu-pressure", "good", QUIET),
    ("cpu-pressure", "warn", pressed("cpu", 0.06)),
    ("cpu-pressure", "bad", pressed("cpu", 0.40)),
    ("cpu-pressure", "bad", after(pressure={"cpu": replace(CALM, stalled_s=10.5)})),  # half of the last second
    ("cpu-pressure", "unknown", after(pressure=GONE)),
    ("cpu-pressure", "unknown", pressed("io", 0.0)),
    ("cpu-busy", "good", QUIET),
    ("cpu-busy", "warn", busy(0.15)),
    ("cpu-busy", "bad", busy(0.80)),
    ("cpu-busy", "unknown", after(cpu=GONE)),
    ("cpu-busy", "unknown", after(cpu=COUNTERS.cpu)),
    ("run-queue-long", "good", QUIET),
    ("run-queue-long", "warn", after(queue=RunQueue(running=21, blocked=None))),
    ("run-queue-long", "bad", after(queue=RunQueue(running=60, blocked=2))),
    ("run-queue-long", "unknown", after(queue=GONE)),
    ("cpu-hog", "good", QUIET),
    ("cpu-hog", "warn", hog(0.2)),
    ("cpu-hog", "bad", hog(0.9)),
    ("cpu-hog", "unknown", after(processes=GONE)),
    ("cpu-steal", "good", QUIET),
    ("cpu-steal", "warn", busy(0.0, steal=0.02)),
    ("cpu-steal", "bad", busy(0.0, steal=0.10)),
    ("cpu-steal", "unknown", after(cpu=replace(LATER.cpu, steal_s=None))),
    ("memory-low", "good", QUIET),
    ("memory-low", "warn", memory(2.4)),
    ("memory-low", "bad", memory(0.5)),
    ("memory-low", "unknown", after(memory=GONE)),
    ("memory-pressure", "good", QUIET),
    ("memory-pressure", "warn", pressed("memory", 0.01)),
    ("memory-pressure", "bad", pressed("memory", 0.06)),
    ("memory-pressure", "unknown", after(pressure=GONE)),
    ("swap-in-use", "good", memory(12, swap_used=0.01)),
    ("swap-in-use", "warn", memory(12, swap_used=1)),
    ("swap-in-use", "unknown", after(memory=GONE)),
    ("swapping", "good", QUIET),
    ("swapping", "warn", after(paging=Paging(in_bytes=4096, out_bytes=0))),
    ("swapping", "bad", after(paging=Paging(in_bytes=10**6, out_bytes=10**6))),
    ("swapping", "unknown", after(paging=GONE)),
    ("disk-space-low", "good", QUIET),
    ("disk-space-low", "warn", room(3e9)),
    ("disk-space-low", "bad", room(3e8)),
    ("disk-space-low", "unknown", state(disks=GONE)),
    ("io-pressure", "good", QUIET),
    ("io-pressure", "warn", pressed("io", 0.06)),
    ("io-pressure", "bad", pressed("io", 0.5)),
    ("io-pressure", "unknown", after(pressure=GONE)),
    ("disk-busy", "good", QUIET),
    ("disk-busy", "warn", after(disk_busy_s={"nvme0n1": 5.3})),
    ("disk-busy", "bad", after(disk_busy_s={"nvme0n1": 5.9})),
    ("disk-busy", "unknown", after(disk_busy_s=GONE)),
    ("disk-busy", "unknown", after(disk_busy_s={"sdb": 1.0})),
    ("network-errors", "good", QUIET),
    ("network-errors", "warn", after(links={"eth0": LinkCounts(packets=100_100, errors=1, drops=10)})),
    ("network-errors", "unknown", after(links=GONE)),
    ("tcp-retransmits", "good", QUIET),
    ("tcp-retransmits", "good", replace(after(tcp=TcpCounts(sent=9, retransmitted=9)), before=COUNTERS)),
    ("tcp-retransmits", "warn", after(tcp=TcpCounts(sent=11_000, retransmitted=25))),
    ("tcp-retransmits", "bad", after(tcp=TcpCounts(sent=11_000, retransmitted=105))),
    ("tcp-retransmits", "unknown", after(tcp=GONE)),
    ("cpu-governor", "good", QUIET),
    ("cpu-governor", "warn", clocks(governor="schedutil")),
    ("cpu-governor", "warn", clocks(governor="powersave", driver="intel_pstate")),
    ("cpu-governor", "bad", clocks(governor="powersave")),
    ("cpu-governor", "unknown", state(clocks=Absent("no cpufreq in this VM"))),
    ("cpu-governor", "unknown", clocks(governor=None)),
    ("cpu-clock-capped", "good", QUIET),
    ("cpu-clock-capped", "warn", clocks(allowed_hz=3e9)),
    ("cpu-clock-capped", "bad", clocks(allowed_hz=1e9)),
    ("cpu-clock-capped", "unknown", clocks(max_hz=None)),
    ("cpu-throttled", "good", QUIET),
    ("cpu-throttled", "warn", throttled_before(3)),
    ("cpu-throttled", "bad", after(throttle_events=2)),
    ("cpu-throttled", "warn", state(board=BoardThrottle(now=(), since_boot=("under-voltage",)))),
    ("cpu-throttled", "bad", state(board=BoardThrottle(now=("throttled",), since_boot=()))),
    ("cpu-throttled", "unknown", after(throttle_events=GONE)),
    ("gpu-throttled", "good", QUIET),
    ("gpu-throttled", "warn", gpu(throttle=0x4)),
    ("gpu-throttled", "bad", gpu(throttle=0x40)),
    ("gpu-throttled", "unknown", gpu(throttle=None)),
    ("gpu-throttled", "unknown", state(gpus=GONE)),
    ("gpu-busy", "good", QUIET),
    ("gpu-busy", "warn", gpu(memory_used_bytes=12e9)),
    ("gpu-busy", "bad", gpu(busy=0.9)),
    ("gpu-busy", "unknown", gpu(busy=None, memory_used_bytes=None)),
    ("temperature-high", "good", QUIET),
    ("temperature-high", "warn", heat(92.0, high_c=100.0)),
    ("temperature-high", "bad", heat(101.0, high_c=100.0)),
    ("temperature-high", "bad", heat(100.0, critical_c=105.0)),
    ("temperature-high", "warn", heat(81.0)),
    ("temperature-high", "unknown", state(temperatures=GONE, gpus=GONE)),
    ("clock-source", "good", QUIET),
    ("clock-source", "warn", state(clock_source="xen")),
    ("clock-source", "bad", state(clock_source="hpet")),
    ("clock-source", "unknown", state(clock_source=GONE)),
    ("kernel-errors", "good", QUIET),
    ("kernel-errors", "warn", event("GPU error", 7200.0)),
    ("kernel-errors", "bad", event("GPU error", 60.0)),
    ("kernel-errors", "bad", event("GPU error", None)),
    ("kernel-errors", "unknown", state(kernel=Absent("not permitted"))),
    ("on-battery", "good", QUIET),
    ("on-battery", "good", state(supply=Supply(has_battery=True, on_mains=True, charge=1.0))),
    ("on-battery", "bad", state(supply=Supply(has_battery=True, on_mains=False, charge=0.4))),
    ("on-battery", "unknown", state(supply=Supply(has_battery=True, on_mains=None, charge=0.4))),
    ("on-battery", "unknown", state(supply=GONE)),
    ("container-limits", "good", QUIET),
    ("container-limits", "warn", limited(affinity_cpus=4)),
    ("container-limits", "warn", limited(memory_bytes=GIB)),
    ("container-limits", "warn", stopped(0)),
    ("container-limits", "bad", stopped(3)),
    ("container-limits", "unknown", replace(QUIET, host=detect_host(RecordedMachine(system="", architecture="")))),
    ("versions", "good", QUIET),
    ("versions", "warn", state(packages={"numpy": "2.2.0"})),
    ("host-speed", "good", QUIET),
    ("host-speed", "unknown", replace(QUIET, call_s=Absent("it was not timed"))),
    ("job-box", "good", replace(QUIET, box=Means(landlock=4, seccomp=True))),
    ("job-box", "warn", replace(QUIET, box=Means(system="darwin"))),
    ("job-box", "unknown", QUIET),
]  # fmt: skip


@pytest.mark.parametrize(("code", "verdict", "readings"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_each_check_has_the_right_verdict(code, verdict, readings):
    check = CHECKS[code](readings)
    assert (check.code, check.verdict) == (code, verdict), check.found
    assert check.title == CHECKS[code].title
    if verdict in {"warn", "bad"}:
        assert check.remedy
    if verdict == "unknown":
        assert check.found.startswith("not measurable here: ")
    if verdict == "good":
        assert check.remedy is None


@every(CHECKS)
def test_every_check_is_seen_good_and_unknown_or_failing(code):
    seen = {verdict for name, verdict, _ in CASES if name == code}
    assert "good" in seen
    assert seen & {"warn", "bad"} or code == "host-speed"  # a figure, and no judgement
    assert "unknown" in seen or code == "versions"


def test_versions_are_unknown_only_where_python_itself_is():
    nobody = replace(state(packages={}), host=replace(QUIET_HOST, python=None))
    assert CHECKS["versions"](nobody).verdict == "unknown"


@every(CHECKS)
def test_every_check_is_documented(code):
    topic = CHECKS[code]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
    assert topic.code == code
    assert all(len(text) > 30 and text.rstrip().endswith(".") for text in (topic.what, topic.why))
    assert topic.remedy.rstrip().endswith((".", ")"))
    assert topic.about == f"{topic.what} {topic.why} {topic.remedy}"
    assert "\n" not in topic.about


def test_the_numbers_behind_a_verdict_are_given():
    check = CHECKS["load-high"](after(load=Load(one=8.0, five=4.0, fifteen=2.0)))
    assert check.numbers == {"load_1min": 8.0, "load_5min": 4.0, "load_15min": 2.0, "per_cpu": 0.5}
    assert check.found == "load 8.00 on 16 CPUs (0.50 a CPU), 4.00 over 5 min"


def test_this_process_is_not_its_own_hog():
    check = CHECKS["cpu-hog"](hog(0.2))
    assert check.found == "chrome (pid 7) 20%"


def test_one_full_cpu_among_many_is_a_warning():
    each = (CpuTime(busy_s=51.0, idle_s=450.0, steal_s=0.0), CpuTime(busy_s=50.0, idle_s=451.0, steal_s=0.0))
    check = CHECKS["cpu-busy"](after(cpus=each))
    assert (check.verdict, check.numbers["busiest"]) == ("warn", 1.0)


def test_counters_that_went_backwards_do_not_alarm():
    check = CHECKS["swapping"](replace(QUIET, before=replace(COUNTERS, paging=Paging(in_bytes=9**9, out_bytes=9**9))))
    assert check.verdict == "good"


def test_the_kernels_refusal_comes_with_a_way_to_look():
    check = CHECKS["kernel-errors"](state(kernel=Absent("not permitted (kernel.dmesg_restrict is 1)")))
    assert check.found == "not measurable here: not permitted (kernel.dmesg_restrict is 1)"
    assert "sudo dmesg" in check.remedy


def test_a_quota_that_stops_the_container_is_named():
    assert CHECKS["container-limits"](stopped(3)).found.startswith("stopped 3 times by the quota: 2 of 16 CPUs")


# ── the whole ───────────────────────────────────────────────────────────────────────────────────────────────────────


def checks_of(readings: Readings) -> tuple[Check, ...]:
    return tuple(topic(readings) for topic in CHECKS.values())


def test_a_quiet_machine_is_quiet():
    whole = overall(checks_of(QUIET))
    assert (whole.verdict, whole.quiet, whole.found) == ("good", True, "quiet enough to measure")


def test_something_that_disturbs_makes_it_unfit():
    whole = overall(checks_of(busy(0.8)))
    assert (whole.verdict, whole.quiet, whole.disturbed_by) == ("bad", False, ("cpu-busy",))
    assert whole.found == "not quiet enough to measure: cpu-busy"


def test_something_that_only_colours_the_result_is_a_reservation():
    whole = overall(checks_of(clocks(governor="powersave")))
    assert (whole.verdict, whole.quiet, whole.reservations) == ("warn", True, ("cpu-governor",))


def test_the_setup_is_no_reservation_about_noise():
    assert overall(checks_of(state(packages={"numpy": "2.2.0"}))).verdict == "good"


def test_where_no_load_can_be_read_nobody_knows():
    silent = after(load=GONE, pressure=GONE, cpu=GONE)
    whole = overall(checks_of(silent))
    assert (whole.verdict, whole.quiet) == ("unknown", None)


def test_no_checks_is_no_knowledge():
    assert overall(()).quiet is None


# ── reading machines ────────────────────────────────────────────────────────────────────────────────────────────────


def clock_of(*times: float):
    ticks = iter(times)
    return lambda: next(ticks)


def examined(name: str) -> dict[str, Check]:
    machine = load_machine(HOSTS / name)
    checks = judge(take(machine, detect_host(machine), sleep=lambda _: None, clock=clock_of(0.0, 1.0)))
    return {check.code: check for check in checks}


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_machine_can_be_examined_and_the_result_written(name):
    found = examined(name)
    assert tuple(found) == tuple(CHECKS)
    checks = tuple(found.values())
    assert msgspec.json.decode(msgspec.json.encode(checks), type=tuple[Check, ...]) == checks
    whole = overall(checks)
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Overall) == whole


def test_a_raspberry_pi_that_was_short_of_voltage():
    found = examined("raspberry-pi-5")
    assert found["cpu-throttled"].found == "since boot: under-voltage, throttled; not now"
    assert found["kernel-errors"].verdict == "warn"
    assert found["cpu-governor"].verdict == "warn"
    assert found["cpu-pressure"].verdict == "unknown"


def test_a_jetson_has_temperatures_but_its_gpu_tells_nothing():
    found = examined("jetson-agx-orin")
    assert found["temperature-high"].verdict == "good"
    assert found["gpu-throttled"].verdict == "unknown"
    assert found["on-battery"].verdict == "good"  # a USB-C port is no battery


def test_a_laptop_in_trouble():
    found = examined("laptop-i7-1260p")
    bad = {code for code, check in found.items() if check.verdict == "bad"}
    assert {"load-high", "cpu-pressure", "on-battery", "cpu-clock-capped", "clock-source", "kernel-errors"} <= bad
    assert overall(found.values()).quiet is False


def test_a_containers_memory_is_its_limit():
    found = examined("container-cgroup-v2")["memory-low"]
    assert found.numbers == {"total_bytes": 4.0 * GIB, "available_bytes": 2.5 * GIB}
    assert examined("container-cgroup-v1")["memory-low"].numbers["total_bytes"] == 2.0 * GIB


def test_a_vm_says_why_it_has_no_governor():
    assert examined("cloud-vm-h200")["cpu-governor"].found == "not measurable here: no cpufreq in this VM"


def test_this_machine_can_be_examined_without_waiting():
    machine = LocalMachine()
    waited = []
    checks = judge(take(machine, detect_host(machine), interval_s=0.25, sleep=waited.append, clock=clock_of(0.0, 0.25)))
    assert waited == [0.25]
    assert {check.code for check in checks} == CHECKS.keys()


@pytest.mark.parametrize("interval", [0.0, -1.0, float("nan"), float("inf")])
def test_an_interval_that_is_none_is_refused(interval):
    machine = load_machine(HOSTS / "aws-graviton2")
    with pytest.raises(DomainError, match="interval"):
        take(machine, detect_host(machine), interval_s=interval, sleep=lambda _: None)


@pytest.mark.parametrize(
    ("bit", "verdict"),
    [(1 << shift, "bad" if shift in {3, 5, 6, 7} else "warn" if shift in {1, 2, 4, 8} else "good")
     for shift in range(10)],
)  # fmt: skip
def test_nvmls_slowdowns_spoil_a_measurement_and_its_other_reasons_do_not(bit, verdict):
    """nvml.h: 1 is an idle GPU, 8, 0x20, 0x40 and 0x80 are hardware and heat; the others are what somebody has set."""
    assert CHECKS["gpu-throttled"](gpu(throttle=bit)).verdict == verdict
