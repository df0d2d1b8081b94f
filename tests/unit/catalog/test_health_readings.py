"""Readings from /proc, sysfs, NVML and psutil."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fakes.recorded_machine import RecordedMachine
from inferometer.catalog.detect import detect_host
from inferometer.catalog.health import linux, portable
from inferometer.catalog.health.gpu_state import gpu_states
from inferometer.catalog.health.kernel_log import PATTERNS, parse_kernel_log
from inferometer.catalog.health.linux_state import linux_state, parse_get_throttled
from inferometer.catalog.health.readings import Absent, CpuTime, ProcessTime, QuotaCounts

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
