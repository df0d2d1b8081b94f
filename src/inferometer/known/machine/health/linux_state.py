"""Linux: the state that is read once: clocks, temperatures, kernel log, board warnings, power supply."""

import re
from collections.abc import Mapping

from inferometer.known.machine.detect.fields import lines_of, number, pairs, scaled, stripped, whole
from inferometer.known.machine.detect.host import Host
from inferometer.known.machine.detect.machine import Machine
from inferometer.known.machine.detect.sensors import hwmon_inputs
from inferometer.known.machine.health.gpu_state import gpu_states
from inferometer.known.machine.health.readings import (
    Absent,
    BoardThrottle,
    ClockPolicy,
    KernelEvent,
    State,
    Supply,
    Temperature,
    installed_packages,
)

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


_CPU = "/sys/devices/system/cpu"
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
    readings = [*_zones(machine), *_monitors(machine)]
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


def _monitors(machine: Machine) -> list[Temperature]:
    monitors = []
    for _, name, path in hwmon_inputs(machine, r"(temp[0-9]{1,3})_input"):
        stem, celsius = path.removesuffix("_input"), scaled(machine.read(path), 1e-3)
        if celsius is not None:
            high, critical = (scaled(machine.read(f"{stem}_{limit}"), 1e-3) for limit in ("max", "crit"))
            monitors.append(Temperature(name=name, celsius=celsius, high_c=high, critical_c=critical))
    return monitors


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
