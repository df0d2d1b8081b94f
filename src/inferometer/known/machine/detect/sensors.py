"""Which energy and power sensors can be read, and why the others cannot."""

import re
from collections.abc import Iterable, Iterator, Sequence

from inferometer.known.machine.detect.fields import stripped
from inferometer.known.machine.detect.host import Gpu, PowerSensor
from inferometer.known.machine.detect.machine import Machine

_POWERCAP = "/sys/class/powercap"
_HWMON = "/sys/class/hwmon"
_SUPPLY = "/sys/class/power_supply"


def linux_sensors(machine: Machine, board: str | None, gpus: Sequence[Gpu]) -> tuple[PowerSensor, ...]:
    inputs = hwmon_inputs(machine, r"(power[0-9]+)_(?:input|average)")
    names = {path.rpartition("_")[0]: name for _, name, path in inputs}  # a channel may have both files
    rails = [label for label, _, _ in ina3221_rails(machine)]
    return (
        _rapl(machine),
        _sensor("hwmon", names.values(), None if names else f"no chip in {_HWMON} has a power input"),
        _sensor("ina3221", rails, None if rails else f"no INA3221 in {_HWMON}"),
        nvidia_sensor(gpus),
        _pmic(machine, board),
        _battery(machine),
    )


def macos_sensors(machine: Machine, *, battery: bool) -> tuple[PowerSensor, ...]:
    there = machine.which("powermetrics") is not None
    why = None
    if not there:
        why = "there is no powermetrics here"
    elif not machine.privileged:
        why = "powermetrics needs root: run with sudo"
    return (
        _sensor("powermetrics", ("CPU", "GPU", "ANE"), why),
        _sensor("battery", ("battery",), None if battery else "there is no battery"),
    )


def windows_sensors(gpus: Sequence[Gpu], *, battery: bool) -> tuple[PowerSensor, ...]:
    return (
        _sensor("rapl", (), "Windows gives programs no energy counters of the CPU without a driver"),
        nvidia_sensor(gpus),
        _sensor("battery", ("battery",), None if battery else "there is no battery"),
    )


def nvidia_sensor(gpus: Sequence[Gpu]) -> PowerSensor:
    answering = [gpu for gpu in gpus if gpu.vendor == "NVIDIA" and gpu.source in {"nvml", "nvidia-smi"}]
    names = tuple(gpu.name or "GPU" for gpu in answering if gpu.power_limit_w is not None)
    if names:
        return _sensor("nvml", names, None)
    why = "the NVIDIA driver gives no power readings here" if answering else "no NVIDIA GPU whose driver answers"
    return _sensor("nvml", (), why)


def rapl_zones(machine: Machine) -> list[tuple[str, str]]:
    """(folder, name) of each of Intel's and AMD's energy counters; both are called intel-rapl."""
    zones = [zone for zone in machine.names(_POWERCAP) if re.fullmatch(r"intel-rapl(:[0-9]+)+", zone, re.ASCII)]
    return [(f"{_POWERCAP}/{zone}", stripped(machine.read(f"{_POWERCAP}/{zone}/name")) or zone) for zone in zones]


def hwmon_inputs(machine: Machine, pattern: str) -> Iterator[tuple[str, str, str]]:
    """(chip, name, path) of each file of a hardware monitor that fits: the pattern's group begins its sister files."""
    for folder, chip in _hwmon_chips(machine):
        for file in machine.names(folder):
            if match := re.fullmatch(pattern, file, re.ASCII):
                label = stripped(machine.read(f"{folder}/{match[1]}_label"))
                yield chip, f"{chip} {label}" if label else chip, f"{folder}/{file}"


def _hwmon_chips(machine: Machine) -> list[tuple[str, str]]:
    folders = (f"{_HWMON}/{name}" for name in machine.names(_HWMON))
    return [(folder, stripped(machine.read(f"{folder}/name")) or "unnamed") for folder in folders]


def ina3221_rails(machine: Machine) -> list[tuple[str, str, str]]:
    """The rails of a Jetson: a label, and the files of its millivolts and milliamperes."""
    rails = []
    for folder, chip in _hwmon_chips(machine):
        files = set(machine.names(folder)) if chip.startswith("ina3221") else set()
        for channel in (1, 2, 3):
            label = stripped(machine.read(f"{folder}/in{channel}_label"))
            if {f"in{channel}_input", f"curr{channel}_input"} <= files and label not in {None, "NC"}:
                rails.append((str(label), f"{folder}/in{channel}_input", f"{folder}/curr{channel}_input"))
    return rails


def batteries(machine: Machine) -> list[str]:
    """The names of the batteries that measure their power."""
    names = []
    for name in machine.names(_SUPPLY):
        files = set(machine.names(f"{_SUPPLY}/{name}"))
        measures = "power_now" in files or {"current_now", "voltage_now"} <= files
        if measures and stripped(machine.read(f"{_SUPPLY}/{name}/type")) == "Battery":
            names.append(name)
    return names


def _sensor(name: str, domains: Iterable[str], why: str | None) -> PowerSensor:
    return PowerSensor(name=name, available=why is None, why=why, domains=tuple(domains))


def _rapl(machine: Machine) -> PowerSensor:
    zones = rapl_zones(machine)
    if not zones:
        return _sensor("rapl", (), f"there is no intel-rapl zone in {_POWERCAP}")
    readable = tuple(name for folder, name in zones if machine.read(f"{folder}/energy_uj") is not None)
    if readable:
        return _sensor("rapl", readable, None)
    closed = f"{zones[0][0]}/energy_uj is readable by root only"
    allow = f"`sudo chmod a+r {_POWERCAP}/intel-rapl*/energy_uj` allows it until the next start"
    return _sensor("rapl", (name for _, name in zones), f"{closed}; {allow}")


def _pmic(machine: Machine, board: str | None) -> PowerSensor:
    """The Raspberry Pi 5's power chip measures its own rails; earlier boards measure none."""
    if not (board or "").startswith("Raspberry Pi 5"):
        return _sensor("pmic", (), "not a Raspberry Pi 5")
    there = machine.which("vcgencmd") is not None
    return _sensor("pmic", ("rails",), None if there else "vcgencmd is not installed")


def _battery(machine: Machine) -> PowerSensor:
    names = batteries(machine)
    return _sensor("battery", names, None if names else f"no battery that measures power in {_SUPPLY}")
