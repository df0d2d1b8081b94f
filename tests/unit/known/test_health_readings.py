"""Readings from /proc, sysfs, NVML and psutil."""

from dataclasses import fields, replace
from types import SimpleNamespace

import pytest

from fakes.every import every
from fakes.recorded_machine import RecordedMachine
from inferometer.known.machine.detect import detect_host
from inferometer.known.machine.health import linux, portable
from inferometer.known.machine.health.gpu_state import gpu_states
from inferometer.known.machine.health.linux import PATTERNS, linux_state, parse_get_throttled, parse_kernel_log
from inferometer.known.machine.health.readings import Absent, CpuTime, ProcessTime, QuotaCounts

LINUX = RecordedMachine(system="Linux", architecture="x86_64")


def state_of(files: dict[str, str], **facts):
    machine = replace(LINUX, files=files, **facts)
    return linux_state(machine, detect_host(machine))


def counters_of(files: dict[str, str]):
    machine = replace(LINUX, files=files)
    return linux.linux_counters(machine, detect_host(machine))


def test_cpu_times_are_seconds_and_waiting_is_idle():
    total, each = linux.parse_stat("cpu  100 0 50 800 40 5 5 30 20 0\ncpu0 1 0 0 9\nintr 5\n")
    assert total == CpuTime(busy_s=1.6, idle_s=8.4, steal_s=0.3)  # guest time, 20, is in user already
    assert each == (CpuTime(busy_s=0.01, idle_s=0.09, steal_s=None),)


@pytest.mark.parametrize("line", ["cpu  100 0 many 800 40", "cpu  100 0 -5 800 40", "cpu  100 0 50", "cpu"])
def test_times_that_are_no_numbers_are_no_times(line):
    assert linux.parse_stat(line) == (None, ())


def test_a_process_may_have_any_name():
    line = "42 (a) b (c)) S 1 42 42 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 1 0 5 0 0"
    assert linux.parse_process(line) == ProcessTime(name="a) b (c)", cpu_s=2.0)
    assert linux.parse_process("42 no brackets") is None


def test_pressure_is_a_share_of_one_and_its_total_is_seconds():
    found = linux.parse_pressure("some avg10=12.50 avg60=1.00 avg300=0.10 total=2500000\nfull avg10=1.00 total=1\n")
    assert (found.some_avg10, found.stalled_s) == (0.125, 2.5)


def test_loopback_is_no_link():
    lo = "    lo: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0"
    eth = "  eth0: 1 10 1 2 0 0 0 0 5 20 3 4 0 0 0 0"
    [(name, counts)] = linux.parse_net_dev(f"Inter-| x\n{lo}\n{eth}\n").items()
    assert (name, counts.packets, counts.errors, counts.drops) == ("eth0", 30, 4, 6)


def test_partitions_and_loops_are_not_counted_again():
    row = "{} {} {} 1 0 8 1 1 0 8 1 0 {} 3 0 0 0 0"
    files = {
        "/proc/diskstats": "\n".join(
            (row.format(8, 0, "sda", 1500), row.format(8, 1, "sda1", 1500), row.format(7, 0, "loop0", 900))
        ),
        "/sys/block/sda/size": "1",
        "/sys/block/loop0/size": "1",
    }
    assert counters_of(files).disk_busy_s == {"sda": 1.5}


def test_swapped_pages_have_the_machines_page_size():
    assert linux.parse_vmstat("pswpin 2\npswpout 3\n", 16384).out_bytes == 3 * 16384


def test_throttle_counters_of_all_cpus_are_summed():
    cpu = "/sys/devices/system/cpu"
    files = {
        f"{cpu}/cpu{i}/thermal_throttle/{kind}_throttle_count": "2" for i in (0, 1) for kind in ("core", "package")
    }
    assert counters_of(files).throttle_events == 8


def test_how_often_the_quota_stopped_us():
    files = {
        "/proc/self/cgroup": "0::/\n",
        "/sys/fs/cgroup/cpu.max": "100000 100000\n",
        "/sys/fs/cgroup/cpu.stat": "nr_periods 5\nnr_throttled 3\nthrottled_usec 2000000\n",
    }
    assert counters_of(files).quota == QuotaCounts(stops=3)


@pytest.mark.parametrize(
    ("system", "told"), [("Darwin", "macOS"), ("Windows", "Windows"), ("FreeBSD", "FreeBSD"), ("", "this system")]
)
def test_what_a_system_cannot_tell_is_absent_by_its_name(system, told):
    counters = portable.portable_counters(RecordedMachine(system=system, architecture="x86_64"))
    assert counters.tcp == Absent(f"{told} does not report this")
    assert told in counters.queue.why


def test_an_empty_proc_is_absent_with_reasons():
    counters = counters_of({})
    readings = (counters.load, counters.queue, counters.cpu, counters.processes, counters.memory, counters.tcp)
    assert all(isinstance(reading, Absent) and reading.why for reading in readings)


# ── the kernel's log ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("out of memory", "Out of memory: Killed process 4321 (python) total-vm:1kB"),
        ("hardware error", "mce: [Hardware Error]: Machine check events logged"),
        ("too hot", "mce: CPU2: Core temperature above threshold, cpu clock throttled (total events = 2675)"),
        ("low voltage", "hwmon hwmon1: Undervoltage detected!"),
        ("low voltage", "Under-voltage detected! (0x00050005)"),
        ("over current", "soctherm: OC ALARM 0x00000001"),
        ("I/O error", "blk_update_request: I/O error, dev sda, sector 2048"),
        ("I/O error", "EXT4-fs error (device sda1): ext4_lookup:1617: inode #2"),
        ("GPU error", "NVRM: Xid (PCI:0000:01:00): 79, pid=1234, GPU has fallen off the bus."),
        ("hung", "INFO: task kworker/0:1:12 blocked for more than 120 seconds."),
        ("PCIe error", "pcieport 0000:00:1c.0: PCIe Bus Error: severity=Corrected"),
    ],
)
def test_lines_that_tell_of_trouble(kind, line):
    [event] = parse_kernel_log(f"[  100.500000] {line}\n[  101.0] usb 1-1: new device\n", uptime_s=160.5)
    assert (event.kind, event.age_s, event.text) == (kind, 60.0, line[:160])
    assert kind in PATTERNS


@pytest.mark.parametrize(
    "line",
    [
        "EXT4-fs (vda): mounted filesystem r/w without journal. Quota mode: none.",
        "mce: CPU2: Core temperature/speed normal",
        "thermal_sys: Registered thermal governor 'step_wise'",
        "EDAC MC: Ver: 3.0.0",
        "nvme nvme0: 8/0/0 default/read/poll queues",
    ],
)
def test_lines_of_a_healthy_start_are_no_trouble(line):
    assert parse_kernel_log(f"[    1.000000] {line}", uptime_s=10.0) == ()


def test_a_line_without_a_time_has_no_age():
    [event] = parse_kernel_log("NVRM: Xid 79", uptime_s=10.0)
    assert event.age_s is None


# ── the state ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_pis_throttle_bits():
    found = parse_get_throttled("throttled=0x50005\n")
    assert (found.now, found.since_boot) == (("under-voltage", "throttled"), ("under-voltage", "throttled"))
    assert parse_get_throttled("throttled=0x0").now == ()
    assert parse_get_throttled("VCHI initialization failed") is None


def test_sensors_that_are_not_connected_are_no_temperatures():
    files = {
        "/sys/class/hwmon/hwmon0/name": "nct6798",
        "/sys/class/hwmon/hwmon0/temp1_input": "-62000",
        "/sys/class/hwmon/hwmon0/temp2_input": "34000",
        "/sys/class/hwmon/hwmon0/temp3_input": "127500",
    }
    [reading] = state_of(files).temperatures
    assert reading.celsius == 34.0


def test_batteries_and_mains():
    supply = "/sys/class/power_supply"
    battery = {
        f"{supply}/BAT0/type": "Battery",
        f"{supply}/BAT0/status": "Discharging",
        f"{supply}/BAT0/capacity": "40",
    }
    mouse = {
        f"{supply}/mouse/type": "Battery",
        f"{supply}/mouse/scope": "Device",
        f"{supply}/mouse/status": "Discharging",
    }
    assert state_of(battery).supply.on_mains is False
    assert state_of(battery).supply.charge == 0.4
    assert state_of({**battery, f"{supply}/AC/type": "Mains", f"{supply}/AC/online": "1"}).supply.on_mains
    assert state_of(mouse).supply.has_battery is False


def test_a_kernel_log_that_may_not_be_read_says_so():
    assert state_of({"/proc/sys/kernel/dmesg_restrict": "1"}).kernel.why.startswith("not permitted")
    assert state_of({}).kernel.why == "dmesg cannot be run here"


def test_a_board_that_is_a_pi_without_its_tool_says_so():
    assert state_of({"/proc/device-tree/model": "Raspberry Pi 4 Model B"}).board.why == "vcgencmd is not installed"


def test_an_older_driver_knows_the_reasons_by_their_old_name():
    fields = "name,temperature.gpu,utilization.gpu,memory.used,memory.total,clocks_throttle_reasons.active"
    asked = f"nvidia-smi --query-gpu={fields} --format=csv,noheader,nounits"
    answer = "Tesla T4, 61, 99, 14000, 15360, 0x0000000000000004\n"
    [state] = gpu_states(replace(LINUX, commands={asked: answer}))
    assert (state.throttle, state.busy, state.celsius) == (4, 0.99, 61.0)
    assert state.memory_used_bytes == 14000 * 2**20


def test_nvml_is_asked_where_it_is_there():
    class Nvml:
        NVMLError = type("NVMLError", (Exception,), {})
        nvmlInit = nvmlShutdown = staticmethod(lambda: None)  # noqa: N815 - NVML's names
        nvmlDeviceGetCount = staticmethod(lambda: 1)  # noqa: N815 - as above
        nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)  # noqa: N815 - as above
        nvmlDeviceGetName = staticmethod(lambda _: "NVIDIA L4")  # noqa: N815 - as above
        nvmlDeviceGetCurrentClocksThrottleReasons = staticmethod(lambda _: 0x20)  # noqa: N815 - as above
        nvmlDeviceGetUtilizationRates = staticmethod(lambda _: SimpleNamespace(gpu=50))  # noqa: N815 - as above

    [state] = gpu_states(replace(LINUX, modules={"pynvml": Nvml}))
    assert (state.name, state.throttle, state.busy, state.celsius) == ("NVIDIA L4", 0x20, 0.5, None)


# ── psutil, for macOS and Windows ───────────────────────────────────────────────────────────────────────────────────


class Row(SimpleNamespace):
    def _asdict(self):
        return vars(self)


class FakePsutil:
    Error = type("Error", (Exception,), {})

    def getloadavg(self):
        return (1.5, 1.0, 0.5)

    def cpu_times(self, percpu=False):
        row = Row(user=10.0, system=5.0, idle=80.0, interrupt=1.0, dpc=1.0)
        return [row, row] if percpu else row

    def process_iter(self, _):
        times = SimpleNamespace(user=1.0, system=0.5)
        yield SimpleNamespace(info={"pid": 0, "name": "System Idle Process", "cpu_times": times})
        yield SimpleNamespace(info={"pid": 4, "name": "System", "cpu_times": times})
        yield SimpleNamespace(info={"pid": 8, "name": "secret", "cpu_times": None})

    def virtual_memory(self):
        return SimpleNamespace(total=16, available=8)

    def swap_memory(self):
        return SimpleNamespace(total=4, used=1, sin=100, sout=200)

    def net_io_counters(self, **_):
        row = SimpleNamespace(packets_sent=1, packets_recv=2, errin=3, errout=4, dropin=5, dropout=6)
        return {"en0": row, "lo0": row}

    def sensors_battery(self):
        return SimpleNamespace(power_plugged=False, percent=81.0)


MAC = RecordedMachine(system="Darwin", architecture="arm64", modules={"psutil": FakePsutil()})
WINDOWS = replace(MAC, system="Windows")


def test_macos_through_psutil():
    counters, state = portable.portable_counters(MAC), portable.portable_state(MAC)
    assert counters.load.one == 1.5
    assert (counters.cpu.busy_s, counters.cpu.idle_s, counters.cpu.steal_s) == (15.0, 80.0, None)
    assert len(counters.cpus) == 2
    assert counters.processes == {4: ProcessTime(name="System", cpu_s=1.5)}
    assert counters.memory.available_bytes == 8
    assert counters.paging.out_bytes == 200
    assert (counters.links["en0"].errors, len(counters.links)) == (7, 1)
    assert (state.supply.on_mains, state.supply.charge) == (False, 0.81)
    assert isinstance(state.temperatures, Absent)


def test_what_windows_does_not_have_is_absent_with_the_reason():
    counters = portable.portable_counters(WINDOWS)
    assert counters.load == Absent("Windows has no load average")
    assert counters.paging == Absent("psutil does not count swapping on Windows")
    assert isinstance(counters.pressure, Absent)


def test_an_error_of_psutil_is_a_reason():
    class Refusing(FakePsutil):
        def virtual_memory(self):
            raise self.Error

    counters = portable.portable_counters(replace(MAC, modules={"psutil": Refusing()}))
    assert counters.memory == Absent("psutil could not read it (Error)")


def test_a_mac_that_is_slowed_down():
    therm = "Note: x\n2021-05-02 CPU Power notify\n\tCPU_Scheduler_Limit \t= 100\n\tCPU_Speed_Limit \t= 28\n"
    assert portable.parse_pmset_therm(therm).now == ("CPU Speed Limit 28 %",)
    assert portable.parse_pmset_therm("Note: No CPU power status has been recorded") is None


def test_the_real_psutil_fits():
    import psutil

    counters = portable.portable_counters(replace(MAC, modules={"psutil": psutil}))
    assert counters.cpu.idle_s > 0
    assert counters.memory.total_bytes > 0
    assert counters.processes


# ── whole machines, every figure another ────────────────────────────────────────────────────────────────────────────

CPU, ZONES, SUPPLY = "/sys/devices/system/cpu", "/sys/class/thermal", "/sys/class/power_supply"
COUNTED = {
    "/proc/loadavg": "0.25 1.50 2.75 3/400 999\n",
    "/proc/stat": "cpu 1 2 4 8 16 32 64 128 256 512\ncpu1 1 2 4 8 16 32 64\ncpux 1 1 1 1\ncpu2 1 2 -4 8\n"
    "cpu3 1 2 4\nprocs_running 5\nprocs_blocked 7\n",
    "/proc/pressure/cpu": "some avg10=1.00 avg60=9.00 avg300=9.00 total=3000000\n",
    "/proc/pressure/io": "full avg10=1.00 total=3000000\n",
    "/proc/7/stat": "7 (seven) S 1 1 1 0 -1 1 1 1 1 1 300 40 9 9",
    "/proc/8/stat": "8 (eight) S 1 1 1",
    "/proc/x9/stat": "9 (nine) S 1 1 1 0 -1 1 1 1 1 1 300 40 9 9",
    "/proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 600 kB\nSwapTotal: 50 kB\nSwapFree: 30 kB\n",
    "/proc/vmstat": "pswpin 3\npswpout 5\n",
    "/proc/net/dev": "eth0: 0 1 2 3 0 0 0 0 0 10 20 30\nbad0: 0 1 2 3 0 0 0 0 0 10 20\n"
    "odd0: 0 1 2 3 0 x 0 0 0 10 20 30 4\n",
    "/proc/net/snmp": "Tcp: RtoMin OutSegs RetransSegs\nTcp: 200 4000 7\n",
    "/proc/diskstats": "8 0 sda 1 2 3 4 5 6 7 8 9 1500 11\n8 0 sdb 1 2 3 4 5 6 7 8 9 2500\n"
    "8 0 dm-0 1 2 3 4 5 6 7 8 9 99 1\n",
    **{f"/sys/block/{name}/size": "1" for name in ("sda", "sdb", "dm-0", "zram0")},
    f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "2",
    f"{CPU}/cpu0/thermal_throttle/package_throttle_count": "3",
    f"{CPU}/cpufreq/thermal_throttle/core_throttle_count": "50",
}


def test_every_counter_of_linux_is_where_it_belongs():
    found = counters_of(COUNTED)
    assert (found.load.one, found.load.five, found.load.fifteen) == (0.25, 1.5, 2.75)
    assert (found.queue.running, found.queue.blocked) == (5, 7)
    assert {name: (row.some_avg10, row.stalled_s) for name, row in found.pressure.items()} == {"cpu": (0.01, 3.0)}
    assert found.cpu == CpuTime(busy_s=1.03, idle_s=0.24, steal_s=1.28)
    assert found.cpus == (CpuTime(busy_s=1.03, idle_s=0.24, steal_s=None),), "the others are cut short or negative"
    assert found.processes == {7: ProcessTime(name="seven", cpu_s=3.4)}
    memory = found.memory
    assert (memory.total_bytes, memory.available_bytes, memory.swap_total_bytes, memory.swap_used_bytes) == (
        1_024_000, 614_400, 51_200, 20_480,
    )  # fmt: skip
    assert (found.paging.in_bytes, found.paging.out_bytes) == (3 * 4096, 5 * 4096)
    assert {name: (row.packets, row.errors, row.drops) for name, row in found.links.items()} == {"eth0": (11, 22, 33)}
    assert (found.tcp.sent, found.tcp.retransmitted) == (4000, 7)
    assert found.disk_busy_s == {"sda": 1.5}
    assert found.throttle_events == 5
    assert found.quota == Absent("there is no CPU quota")


@pytest.mark.parametrize(
    ("file", "text", "reading"),
    [
        ("/proc/loadavg", "0.25 1.50\n", "load"), ("/proc/loadavg", "0.25 -1.50 2\n", "load"),
        ("/proc/stat", "cpu 1 2 4\n", "cpu"), ("/proc/pressure/cpu", "some avg10=1.00\n", "pressure"),
        ("/proc/pressure/cpu", "some total=1.00\n", "pressure"), ("/proc/vmstat", "pswpin 3\n", "paging"),
        ("/proc/vmstat", "pswpout 3\n", "paging"), ("/proc/meminfo", "MemTotal: 1 kB\n", "memory"),
        ("/proc/meminfo", "MemAvailable: 1 kB\n", "memory"), ("/proc/net/snmp", "Tcp: OutSegs\nTcp: 1\n", "tcp"),
        ("/proc/net/snmp", "Tcp: OutSegs RetransSegs\nTcp: 1 2\nTcp: 1 2\n", "tcp"), ("/proc/net/dev", "", "links"),
        ("/proc/7/stat", "7 (seven) S 1 1 1 0 -1 1 1 1 1 1 x 40", "processes"),
        ("/proc/7/stat", "7 (seven) S 1 1 1 0 -1 1 1 1 1 1 40 x", "processes"),
    ],
)  # fmt: skip
def test_half_a_file_is_no_reading(file, text, reading):
    assert isinstance(getattr(counters_of(COUNTED | {file: text}), reading), Absent)


@pytest.mark.parametrize(
    ("limit", "used", "cache", "total", "available"),
    [("500000", "300000", "100000", 500_000, 300_000), ("500000", "900000", "0", 500_000, 0),
     ("900000", "100000", "0", 900_000, 614_400), ("2000000", "100000", "0", 1_024_000, 614_400),
     ("1024000", "1000000", "0", 1_024_000, 614_400), ("500000", None, "0", 1_024_000, 614_400),
     ("500000", "100000", "900000", 500_000, 500_000), ("500000", "100000", None, 500_000, 400_000)],
)  # fmt: skip
def test_memory_in_a_container_is_what_its_limit_leaves(*, limit, used, cache, total, available):
    group = "/sys/fs/cgroup"
    files = {"/proc/self/cgroup": "0::/\n", f"{group}/memory.max": limit, f"{group}/memory.current": used,
             f"{group}/memory.stat": cache and f"anon 5\ninactive_file {cache}\n"}  # fmt: skip
    found = counters_of(COUNTED | {name: text for name, text in files.items() if text is not None}).memory
    assert (found.total_bytes, found.available_bytes) == (total, available)


def zone(number, temp, kind="cpu", **trips):
    """A thermal zone, with what happens at which of its temperatures."""
    folder = f"{ZONES}/thermal_zone{number}"
    files = {f"{folder}/temp": str(temp), f"{folder}/type": kind}
    for place, (name, limit) in enumerate(trips.items()):
        files |= {f"{folder}/trip_point_{place}_type": name.rstrip("_"), f"{folder}/trip_point_{place}_temp": limit}
    return files


STATED = {
    f"{CPU}/cpu10/cpufreq/scaling_governor": "schedutil\n",
    f"{CPU}/cpu2/cpufreq/scaling_governor": "performance\n",
    f"{CPU}/cpu2/cpufreq/scaling_driver": "acpi-cpufreq\n",
    f"{CPU}/cpu2/cpufreq/scaling_cur_freq": "1000000",
    f"{CPU}/cpu2/cpufreq/scaling_max_freq": "2000000",
    f"{CPU}/cpu2/cpufreq/cpuinfo_max_freq": "3000000",
    f"{CPU}/cpu3/cpufreq/cpuinfo_max_freq": "3500000",
    f"{CPU}/cpu4/cpufreq/scaling_cur_freq": "3500000",
    f"{CPU}/cpufreq/scaling_governor": "x",
    **zone(0, 40000, hot="90000", passive="80000", critical="99000"),
    **zone(1, 41000, passive="85000", passive_="70000", hot="20000"),
    **zone(2, 125001),
    **zone(3, 125000, kind=""),
    **zone(4, 999),
    **zone(5, 1000, kind="cold"),
    f"{ZONES}/cooling_device0/temp": "50000",
    "/sys/class/hwmon/hwmon0/name": "chip",
    "/sys/class/hwmon/hwmon0/temp1_input": "50000",
    "/sys/class/hwmon/hwmon0/temp1_max": "80000",
    "/sys/class/hwmon/hwmon0/temp1_crit": "95000",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
}


def test_the_whole_state_of_a_linux_machine():
    found = state_of(STATED)
    rows = [(row.cpu, row.governor, row.driver, row.current_hz, row.allowed_hz, row.max_hz) for row in found.clocks]
    assert rows == [
        (2, "performance", "acpi-cpufreq", 1e9, 2e9, 3e9), (3, None, None, None, None, 3.5e9),
        (10, "schedutil", None, None, None, None),
    ]  # fmt: skip
    assert [(row.name, row.celsius, row.high_c, row.critical_c) for row in found.temperatures] == [
        ("cpu", 40.0, 90.0, 99.0), ("cpu", 41.0, 70.0, None), ("thermal_zone3", 125.0, None, None),
        ("cold", 1.0, None, None), ("chip", 50.0, 80.0, 95.0),
    ]  # fmt: skip
    assert found.clock_source == "tsc"
    assert state_of({}).clocks == Absent("this kernel shows no cpufreq")


@every([*STATED, *COUNTED])
def test_a_file_that_may_not_be_read_takes_no_other_reading_with_it(path):
    readings, files = (state_of, STATED) if path in STATED else (counters_of, COUNTED)
    whole, found = readings(files), readings({name: text for name, text in files.items() if name != path})
    changed = [field for field in fields(whole) if getattr(found, field.name) != getattr(whole, field.name)]
    assert len(changed) <= 1 or path == "/proc/stat"  # which tells of processors and of what waits


def supplied(**rows):
    return state_of({f"{SUPPLY}/{name}/{key}": text for name, row in rows.items() for key, text in row.items()}).supply


def test_mains_of_any_plug_and_the_first_battery():
    full = {"type": "Battery", "status": "Full", "capacity": "90"}
    low = {"type": "Battery", "status": "Discharging", "capacity": "10"}
    plug, port = {"type": "Mains", "online": "0"}, {"type": "USB", "online": "1"}
    assert (supplied(a=full).on_mains, supplied(a=full, b=low).on_mains) == (True, False)
    assert (supplied(a=full, b=low).charge, supplied(a=low, b=full).charge) == (0.9, 0.1)
    assert supplied(a=full, b=plug).on_mains is False
    assert supplied(a=low, b=plug, c=port).on_mains is True
    assert supplied(a=low, b={"type": "Mains"}).on_mains is False, "a plug that says nothing is none"
    assert supplied(a={"type": "Battery"}).on_mains is True
    assert (supplied(a=plug).has_battery, supplied(a=plug).on_mains) == (False, None)


def test_the_kernels_log_has_ages_by_the_uptime():
    log = "[   90.5] NVRM: Xid 79\n[  200.0] NVRM: Xid 13\n"
    found = state_of({"/proc/uptime": "100.5 400.0\n"}, commands={"dmesg": log}).kernel
    assert [event.age_s for event in found] == [10.0, 0.0], "never younger than now"
    assert [event.age_s for event in state_of({}, commands={"dmesg": log}).kernel] == [None, None]


@pytest.mark.parametrize(
    ("bit", "name"), [(0, "under-voltage"), (1, "clock capped"), (2, "throttled"), (3, "soft temperature limit")]
)
def test_each_bit_of_a_pi_is_now_or_since_boot(bit, name):
    now, past = parse_get_throttled(f"throttled={1 << bit:#x}"), parse_get_throttled(f"throttled={1 << bit + 16:#x}")
    assert (now.now, now.since_boot, past.now, past.since_boot) == ((name,), (), (), (name,))


def test_what_amd_shows_of_its_cards():
    card = "/sys/class/drm/card1/device"
    files = {
        f"{card}/vendor": "0x1002\n", f"{card}/device": "0x744c\n", f"{card}/hwmon/hwmon3/temp1_input": "61000",
        f"{card}/gpu_busy_percent": "25", f"{card}/mem_info_vram_used": "300", f"{card}/mem_info_vram_total": "400",
        "/sys/class/drm/card0/device/vendor": "0x8086\n", "/sys/class/drm/card1-DP-1/device/vendor": "0x1002\n",
    }  # fmt: skip
    (state,) = gpu_states(replace(LINUX, files=files))
    assert (state.name, state.celsius, state.busy, state.memory_used_bytes, state.memory_total_bytes) == (
        "AMD GPU 0x744c", 61.0, 0.25, 300.0, 400.0,
    )  # fmt: skip
    assert gpu_states(replace(LINUX, files=files | {f"{card}/product_name": "RX\n"}))[0].name == "RX"
    assert gpu_states(LINUX) == Absent("no GPU here whose driver can be asked")


def test_what_nvml_tells_is_in_our_units():
    told = {
        "nvmlDeviceGetName": b"L4", "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3, total=7),
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=50, memory=9), "nvmlDeviceGetTemperature": 61,
        "nvmlDeviceGetCurrentClocksEventReasons": 4, "nvmlDeviceGetCurrentClocksThrottleReasons": 8,
        "nvmlDeviceGetCount": 1, "nvmlInit": None, "nvmlShutdown": None, "nvmlDeviceGetHandleByIndex": "card",
    }  # fmt: skip
    nvml = SimpleNamespace(
        NVMLError=type("NVMLError", (Exception,), {}),
        **{name: (lambda *_, answer=answer: answer) for name, answer in told.items()},
    )
    (state,) = gpu_states(replace(LINUX, modules={"pynvml": nvml}))
    assert (state.name, state.celsius, state.busy, state.throttle) == ("L4", 61.0, 0.5, 4)
    assert (state.memory_used_bytes, state.memory_total_bytes) == (3.0, 7.0)


def portable_of(system="Darwin", **answers):
    """Psutil with some answers of its own."""
    ps = FakePsutil()
    for name, answer in answers.items():
        setattr(ps, name, lambda *_, answer=answer, **__: answer)
    machine = replace(MAC, system=system, modules={"psutil": ps})
    return portable.portable_counters(machine), portable.portable_state(machine)


class Counting(FakePsutil):
    def __init__(self, row):
        self.row = row

    def cpu_times(self, percpu=False):
        return [self.row] if percpu else self.row


def test_what_waits_is_idle_and_what_is_inside_others_is_not_counted_twice():
    row = Row(
        user=1.0, nice=2.0, system=4.0, idle=8.0, iowait=16.0, irq=32.0, steal=64.0, guest=128.0, guest_nice=256.0
    )
    counters = portable.portable_counters(replace(MAC, modules={"psutil": Counting(row)}))
    assert counters.cpus == (counters.cpu,)
    assert counters.cpu == CpuTime(busy_s=39.0, idle_s=24.0, steal_s=64.0)


def test_psutils_figures_are_where_they_belong():
    counters, _ = portable_of()
    memory = counters.memory
    assert (memory.total_bytes, memory.available_bytes, memory.swap_total_bytes, memory.swap_used_bytes) == (
        16,
        8,
        4,
        1,
    )
    assert (counters.paging.in_bytes, counters.paging.out_bytes) == (100, 200)
    assert (counters.load.one, counters.load.five, counters.load.fifteen) == (1.5, 1.0, 0.5)
    link = counters.links["en0"]
    assert (link.packets, link.errors, link.drops) == (3, 7, 11)
    times = SimpleNamespace(user=1.0, system=0.5)
    nameless = SimpleNamespace(info={"pid": 5, "name": "", "cpu_times": times})
    counters, _ = portable_of(process_iter=[nameless])
    assert counters.processes == {5: ProcessTime(name="5", cpu_s=1.5)}
    assert portable.portable_counters(replace(MAC, modules={})).cpu == Absent("psutil is not installed")
    assert portable.portable_counters(replace(MAC, modules={})).cpus == ()


def test_psutils_temperatures_and_supplies():
    row = SimpleNamespace(label="core", current=50.0, high=80.0, critical=95.0)
    silent = SimpleNamespace(label="", current=None, high=None, critical=None)
    _, state = portable_of(sensors_temperatures={"chip": [row, silent], "other": []}, sensors_battery=None)
    assert [(each.name, each.celsius, each.high_c, each.critical_c) for each in state.temperatures] == [
        ("chip core", 50.0, 80.0, 95.0)
    ]
    assert (state.supply.has_battery, state.supply.on_mains, state.supply.charge) == (False, None, None)
    _, state = portable_of(sensors_temperatures={"chip": [silent]})
    assert state.temperatures == Absent("macOS shows programs no temperatures")
    assert state.board == Absent("pmset records no CPU speed limit on this Mac")
    assert portable_of("Windows")[1].board == Absent("Windows does not report throttling")
    slow = replace(MAC, commands={"pmset -g therm": "CPU_Speed_Limit = 99\nCPU_Scheduler_Limit = 100\n"})
    assert portable.portable_state(slow).board.now == ("CPU Speed Limit 99 %",)
