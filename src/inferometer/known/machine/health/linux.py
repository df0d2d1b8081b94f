"""Linux: the checks' readings from /proc and /sys. Parsers take text; `counters` and `state` ask the machine."""

import re
from collections.abc import Mapping

from inferometer.known.machine.detect.fields import lines_of, number, pairs, scaled, stripped, whole
from inferometer.known.machine.detect.host import Host
from inferometer.known.machine.detect.limits import Cgroup, find_cgroup
from inferometer.known.machine.detect.linux import parse_meminfo
from inferometer.known.machine.detect.machine import Machine
from inferometer.known.machine.detect.sensors import hwmon_inputs
from inferometer.known.machine.health.gpu_state import gpu_states
from inferometer.known.machine.health.readings import (
    Absent,
    BoardThrottle,
    ClockPolicy,
    Counters,
    CpuTime,
    KernelEvent,
    LinkCounts,
    Load,
    MemoryState,
    Paging,
    Pressure,
    ProcessTime,
    QuotaCounts,
    RunQueue,
    State,
    Supply,
    TcpCounts,
    Temperature,
    installed_packages,
)

# Linux: the state that is read once: clocks, temperatures, kernel log, board warnings, power supply.

# Lines of the kernel's log that mean trouble, as a table of patterns.

PATTERNS: Mapping[str, re.Pattern[str]] = {
    "out of memory": re.compile(r"Out of memory: Kill|oom-kill:|Memory cgroup out of memory"),
    "hardware error": re.compile(r"\[Hardware Error\]|Machine check events logged|EDAC .*\b[CU]E\b"),
    "too hot": re.compile(
        r"temperature above threshold|thermal throttling|critical temperature reached", re.IGNORECASE
    ),
    "low voltage": re.compile(r"under-?voltage detected", re.IGNORECASE),
    "over current": re.compile(r"soctherm: OC ALARM|over-current (change|condition)"),
    "I/O error": re.compile(r"\bI/O error\b|(EXT4|XFS|BTRFS)[^:]*error|nvme.*: I/O .*timeout|critical medium error"),
    "GPU error": re.compile(r"NVRM: Xid|amdgpu.*(GPU reset|ring .* timeout)|i915.*GPU HANG"),
    "hung": re.compile(r"blocked for more than \d+ seconds|soft lockup|hard LOCKUP|rcu.* detected .*stall"),
    "PCIe error": re.compile(r"PCIe Bus Error"),
}

_STAMP = re.compile(r"\[\s*([0-9]{1,12}\.[0-9]{1,9})\]\s?")
_TEXT_AT_MOST = 160


def parse_kernel_log(text: str | None, uptime_s: float | None) -> tuple[KernelEvent, ...]:
    """The lines of `dmesg` that match a pattern, oldest first; each under the first kind that fits."""
    events = []
    for line in lines_of(text):
        kind = next((kind for kind, pattern in PATTERNS.items() if pattern.search(line)), None)
        if kind is None:
            continue
        stamp = _STAMP.search(line)
        at = number(stamp[1]) if stamp else None
        age = max(uptime_s - at, 0.0) if uptime_s is not None and at is not None else None
        events.append(KernelEvent(kind=kind, age_s=age, text=_STAMP.sub("", line).strip()[:_TEXT_AT_MOST]))
    return tuple(events)


_ZONES = "/sys/class/thermal"
_SUPPLY = "/sys/class/power_supply"
_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

# Bits of the Raspberry Pi firmware's get_throttled; the same sixteen higher say "since boot".
_PI_BITS: Mapping[int, str] = {
    0: "under-voltage",
    1: "clock capped",
    2: "throttled",
    3: "soft temperature limit",
}


def linux_state(machine: Machine, host: Host) -> State:
    monitors = []
    for _, name, path in hwmon_inputs(machine, r"(temp[0-9]{1,3})_input"):
        stem, celsius = path.removesuffix("_input"), scaled(machine.read(path), 1e-3)
        if celsius is not None:
            high, critical = (scaled(machine.read(f"{stem}_{limit}"), 1e-3) for limit in ("max", "crit"))
            monitors.append(Temperature(name=name, celsius=celsius, high_c=high, critical_c=critical))
    readings = [*_zones(machine), *monitors]
    # An unconnected sensor reads -55, 0 or 127 °C and more; none of them is a temperature of a running machine.
    real = tuple(reading for reading in readings if 1.0 <= reading.celsius <= 125.0)
    temperatures = real or Absent("no temperature sensor is shown (usual in a VM)")
    return State(
        clocks=_clocks(machine, host),
        temperatures=temperatures,
        gpus=gpu_states(machine),
        kernel=_kernel(machine),
        board=_board(machine, host),
        supply=_supply(machine),
        disks=machine.disks() or Absent("the file systems do not say how much room they have"),
        clock_source=stripped(machine.read(_SOURCE)) or Absent("the kernel does not name its clock source"),
        packages=installed_packages(machine),
    )


def _clocks(machine: Machine, host: Host) -> tuple[ClockPolicy, ...] | Absent:
    cpus = (re.fullmatch(r"cpu([0-9]{1,5})", name, re.ASCII) for name in machine.names(_CPU))
    policies = [_policy(machine, index) for index in sorted(int(match[1]) for match in cpus if match)]
    known = tuple(policy for policy in policies if policy.governor or policy.max_hz)
    if known:
        return known
    return Absent("no cpufreq in this VM" if host.limits.virtualised else "this kernel shows no cpufreq")


def _policy(machine: Machine, index: int) -> ClockPolicy:
    folder = f"{_CPU}/cpu{index}/cpufreq"
    return ClockPolicy(
        cpu=index,
        governor=stripped(machine.read(f"{folder}/scaling_governor")),
        driver=stripped(machine.read(f"{folder}/scaling_driver")),
        current_hz=scaled(machine.read(f"{folder}/scaling_cur_freq"), 1e3),
        allowed_hz=scaled(machine.read(f"{folder}/scaling_max_freq"), 1e3),
        max_hz=scaled(machine.read(f"{folder}/cpuinfo_max_freq"), 1e3),
    )


def _zones(machine: Machine) -> list[Temperature]:
    zones = []
    for name in machine.names(_ZONES):
        folder = f"{_ZONES}/{name}"
        celsius = scaled(machine.read(f"{folder}/temp"), 1e-3) if name.startswith("thermal_zone") else None
        if celsius is None:
            continue
        trips: dict[str, float] = {}
        for file in machine.names(folder):
            if match := re.fullmatch(r"trip_point_([0-9]{1,3})_type", file, re.ASCII):
                limit = scaled(machine.read(f"{folder}/trip_point_{match[1]}_temp"), 1e-3)
                kind = stripped(machine.read(f"{folder}/{file}"))
                if kind and limit and limit > 20:
                    trips[kind] = min(limit, trips.get(kind, limit))
        label = stripped(machine.read(f"{folder}/type")) or name
        high = trips.get("hot") or trips.get("passive")
        zones.append(Temperature(name=label, celsius=celsius, high_c=high, critical_c=trips.get("critical")))
    return zones


def _kernel(machine: Machine) -> tuple[KernelEvent, ...] | Absent:
    text = machine.run("dmesg") if machine.which("dmesg") else None
    if text is None:
        restricted = whole(machine.read("/proc/sys/kernel/dmesg_restrict")) == 1
        return Absent("not permitted (kernel.dmesg_restrict is 1)" if restricted else "dmesg cannot be run here")
    first = lines_of(machine.read("/proc/uptime"))[:1]
    uptime = scaled(first[0].split(" ")[0], 1.0) if first else None
    return parse_kernel_log(text, uptime)


def parse_get_throttled(text: str | None) -> BoardThrottle | None:
    """`throttled=0x50000` of `vcgencmd get_throttled`."""
    bits = whole(pairs(text, "=").get("throttled"))
    if bits is None:
        return None
    return BoardThrottle(
        now=tuple(name for bit, name in _PI_BITS.items() if bits >> bit & 1),
        since_boot=tuple(name for bit, name in _PI_BITS.items() if bits >> (bit + 16) & 1),
    )


def _board(machine: Machine, host: Host) -> BoardThrottle | Absent:
    if not (host.board or "").startswith("Raspberry Pi"):
        return Absent("this board's firmware does not report it")
    if machine.which("vcgencmd") is None:
        return Absent("vcgencmd is not installed")
    return parse_get_throttled(machine.run("vcgencmd", "get_throttled")) or Absent("vcgencmd get_throttled failed")


def _supply(machine: Machine) -> Supply:
    """Mains and batteries of the machine itself: a mouse's battery has the scope Device."""
    mains: list[bool] = []
    states: list[str] = []
    charge: float | None = None
    for name in machine.names(_SUPPLY):
        folder = f"{_SUPPLY}/{name}"
        kind = stripped(machine.read(f"{folder}/type"))
        if stripped(machine.read(f"{folder}/scope")) == "Device":
            continue
        online = whole(machine.read(f"{folder}/online"))
        if kind in {"Mains", "USB"} and online is not None:
            mains.append(online != 0)
        elif kind == "Battery":
            states.append(stripped(machine.read(f"{folder}/status")) or "Unknown")
            charge = scaled(machine.read(f"{folder}/capacity"), 1e-2) if charge is None else charge
    if not states:
        return Supply(has_battery=False, on_mains=None, charge=None)
    return Supply(has_battery=True, on_mains=any(mains) if mains else "Discharging" not in states, charge=charge)


_TICKS = 100.0  # USER_HZ, the unit of /proc/stat: 100 on every architecture we run on
_CPU = "/sys/devices/system/cpu"


def linux_counters(machine: Machine, host: Host) -> Counters:
    stat = machine.read("/proc/stat")
    total, single = parse_stat(stat)
    cgroup = find_cgroup(machine)
    read = {name: parse_pressure(machine.read(f"/proc/pressure/{name}")) for name in ("cpu", "memory", "io")}
    pressures = {name: value for name, value in read.items() if value is not None}
    pressure = pressures or Absent("this kernel has no pressure information (CONFIG_PSI, or booted with psi=0)")
    # Intel's counters of thermal throttling, the cores' and the packages' together
    counts = []
    for name in machine.names(_CPU):
        if re.fullmatch(r"cpu[0-9]{1,5}", name, re.ASCII):
            folder = f"{_CPU}/{name}/thermal_throttle"
            counts += [whole(machine.read(f"{folder}/{kind}_throttle_count")) for kind in ("core", "package")]
    known = [count for count in counts if count is not None]
    return Counters(
        load=parse_loadavg(machine.read("/proc/loadavg")) or Absent("there is no /proc/loadavg"),
        queue=_queue(stat),
        pressure=pressure,
        cpu=total or Absent("there is no /proc/stat"),
        cpus=single,
        processes=_processes(machine),
        memory=_memory(machine, cgroup, host.limits.memory_bytes),
        paging=parse_vmstat(machine.read("/proc/vmstat"), machine.page_bytes)
        or Absent("/proc/vmstat counts no swapping"),
        links=parse_net_dev(machine.read("/proc/net/dev")) or Absent("there is no network interface but loopback"),
        tcp=parse_snmp(machine.read("/proc/net/snmp")) or Absent("there is no /proc/net/snmp"),
        disk_busy_s=_disks(machine),
        throttle_events=sum(known) if known else Absent("this CPU shows no thermal_throttle counters"),
        quota=_quota(machine, cgroup, host.limits.quota_cpus),
    )


def parse_loadavg(text: str | None) -> Load | None:
    values = [number(word) for word in (text or "").split()[:3]]
    known = [value for value in values if value is not None and value >= 0]
    return Load(one=known[0], five=known[1], fifteen=known[2]) if len(known) == 3 else None


def parse_stat(text: str | None) -> tuple[CpuTime | None, tuple[CpuTime, ...]]:
    """(all CPUs together, each CPU) of /proc/stat."""
    total: CpuTime | None = None
    single: list[CpuTime] = []
    for line in lines_of(text):
        words = line.split()
        if not words or not re.fullmatch(r"cpu[0-9]{0,5}", words[0], re.ASCII):
            continue
        time = _cpu_time([whole(word) for word in words[1:]])
        if time is None:
            continue
        if words[0] == "cpu":
            total = time
        else:
            single.append(time)
    return total, tuple(single)


def _cpu_time(ticks: list[int | None]) -> CpuTime | None:
    """In the order of /proc/stat; guest time, which comes last, is counted in user already."""
    known = [tick for tick in ticks if tick is not None and tick >= 0]
    if len(known) != len(ticks) or len(known) < 4:
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = (*known[:8], 0, 0, 0, 0)[:8]
    return CpuTime(
        busy_s=(user + nice + system + irq + softirq) / _TICKS,
        idle_s=(idle + iowait) / _TICKS,
        steal_s=steal / _TICKS if len(known) >= 8 else None,
    )


def _queue(stat: str | None) -> RunQueue | Absent:
    counts = pairs(stat, " ")
    running = whole(counts.get("procs_running"))
    if running is None:
        return Absent("/proc/stat does not count running tasks")
    return RunQueue(running=running, blocked=whole(counts.get("procs_blocked")))


def parse_pressure(text: str | None) -> Pressure | None:
    """`some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, and the same for `full`; the averages are percents."""
    rows = {line.split(" ")[0]: dict(re.findall(r"(\w+)=([0-9.]+)", line)) for line in lines_of(text) if line}
    some = rows.get("some", {})
    avg10, total = scaled(some.get("avg10"), 1e-2), scaled(some.get("total"), 1e-6)
    if avg10 is None or total is None:
        return None
    return Pressure(some_avg10=avg10, stalled_s=total)


def parse_process(text: str | None) -> ProcessTime | None:
    """/proc/PID/stat: the name stands in brackets and may hold anything, brackets too."""
    opened, closed = (text or "").find("("), (text or "").rfind(")")
    if text is None or not 0 <= opened < closed:
        return None
    after = text[closed + 1 :].split()
    if len(after) < 13:
        return None
    user, system = whole(after[11]), whole(after[12])
    if user is None or system is None:
        return None
    return ProcessTime(name=text[opened + 1 : closed][:64], cpu_s=(user + system) / _TICKS)


def _processes(machine: Machine) -> Mapping[int, ProcessTime] | Absent:
    pids = [int(name) for name in machine.names("/proc") if re.fullmatch(r"[0-9]{1,9}", name, re.ASCII)]
    read = {pid: parse_process(machine.read(f"/proc/{pid}/stat")) for pid in pids}
    processes = {pid: process for pid, process in read.items() if process is not None}
    return processes or Absent("no process can be seen in /proc")


def _memory(machine: Machine, cgroup: Cgroup, limit_bytes: int | None) -> MemoryState | Absent:
    """The host's memory; inside a limited cgroup, what is left of the limit if that is less."""
    info = parse_meminfo(machine.read("/proc/meminfo"))
    total, available = info.get("MemTotal"), info.get("MemAvailable")
    if not total or available is None:
        return Absent("/proc/meminfo does not give MemTotal and MemAvailable")
    used = _cgroup_used(machine, cgroup) if limit_bytes else None
    if limit_bytes and used is not None and limit_bytes < total:
        total, available = limit_bytes, max(min(available, limit_bytes - used), 0)
    swap = info.get("SwapTotal", 0)
    return MemoryState(
        total_bytes=total,
        available_bytes=available,
        swap_total_bytes=swap,
        swap_used_bytes=max(swap - info.get("SwapFree", swap), 0),
    )


def _cgroup_used(machine: Machine, cgroup: Cgroup) -> int | None:
    """Bytes in use less the file cache that the kernel would give back."""
    name = "memory.current" if cgroup.version == 2 else "memory.usage_in_bytes"
    cache = "inactive_file" if cgroup.version == 2 else "total_inactive_file"
    for folder in cgroup.memory:
        used = whole(machine.read(f"{folder}/{name}"))
        if used is not None:
            reclaimable = whole(pairs(machine.read(f"{folder}/memory.stat"), " ").get(cache)) or 0
            return max(used - reclaimable, 0)
    return None


def parse_vmstat(text: str | None, page_bytes: int) -> Paging | None:
    counts = pairs(text, " ")
    pages_in, pages_out = whole(counts.get("pswpin")), whole(counts.get("pswpout"))
    if pages_in is None or pages_out is None:
        return None
    return Paging(in_bytes=pages_in * page_bytes, out_bytes=pages_out * page_bytes)


def parse_net_dev(text: str | None) -> dict[str, LinkCounts]:
    """/proc/net/dev without loopback: received and sent together."""
    links = {}
    for line in lines_of(text):
        name, mark, rest = line.partition(":")
        counts = [whole(word) for word in rest.split()]
        known = [count for count in counts if count is not None]
        if mark and name.strip() != "lo" and len(known) >= 12 and len(known) == len(counts):
            links[name.strip()] = LinkCounts(
                packets=known[1] + known[9], errors=known[2] + known[10], drops=known[3] + known[11]
            )
    return links


def parse_snmp(text: str | None) -> TcpCounts | None:
    """/proc/net/snmp: a line of names and a line of numbers for each protocol."""
    lines = [line.split() for line in lines_of(text) if line.startswith("Tcp:")]
    if len(lines) != 2:
        return None
    counts = dict(zip(lines[0], lines[1], strict=False))
    sent, again = whole(counts.get("OutSegs")), whole(counts.get("RetransSegs"))
    return TcpCounts(sent=sent, retransmitted=again) if sent is not None and again is not None else None


def parse_diskstats(text: str | None) -> dict[str, float]:
    """Seconds since boot in which each block device had something to do."""
    busy_s = {}
    for line in lines_of(text):
        words = line.split()
        busy = scaled(words[12], 1e-3) if len(words) >= 14 else None
        if busy is not None:
            busy_s[words[2]] = busy
    return busy_s


def _disks(machine: Machine) -> Mapping[str, float] | Absent:
    """Whole devices only: partitions and loop devices would count the same work again."""
    devices = {name for name in machine.names("/sys/block") if not name.startswith(("loop", "ram", "zram", "dm-"))}
    read = parse_diskstats(machine.read("/proc/diskstats"))
    disks = {name: busy for name, busy in read.items() if name in devices}
    return disks or Absent("no block device is shown in /sys/block and /proc/diskstats")


def _quota(machine: Machine, cgroup: Cgroup, quota_cpus: float | None) -> QuotaCounts | Absent:
    if quota_cpus is None:
        return Absent("there is no CPU quota")
    for folder in cgroup.cpu:
        stops = whole(pairs(machine.read(f"{folder}/cpu.stat"), " ").get("nr_throttled"))
        if stops is not None:
            return QuotaCounts(stops=stops)
    return Absent(f"cpu.stat cannot be read ({stripped(' '.join(cgroup.cpu[:1])) or 'no cpu cgroup'})")
