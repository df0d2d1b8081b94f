"""Which energy and power readings there are, and of those that are missing, why."""

import re
from collections.abc import Iterable, Sequence

from inferometer.catalog.detect.fields import stripped
from inferometer.catalog.detect.host import Gpu, PowerSensor
from inferometer.catalog.detect.machine import Machine

__all__ = ["hwmon_folders", "linux_sensors", "macos_sensors", "windows_sensors"]

_POWERCAP = "/sys/class/powercap"
_HWMON = "/sys/class/hwmon"
_SUPPLY = "/sys/class/power_supply"


def linux_sensors(machine: Machine, board: str | None, gpus: Sequence[Gpu]) -> tuple[PowerSensor, ...]:
    return (
        _rapl(machine),
        _hwmon(machine),
        _ina3221(machine),
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


def hwmon_folders(machine: Machine) -> list[tuple[str, str]]:
    """(folder, chip name) of every hardware monitor."""
    folders = (f"{_HWMON}/{name}" for name in machine.names(_HWMON))
    return [(folder, stripped(machine.read(f"{folder}/name")) or "unnamed") for folder in folders]


def _sensor(name: str, domains: Iterable[str], why: str | None) -> PowerSensor:
    return PowerSensor(name=name, available=why is None, why=why, domains=tuple(domains))


def _rapl(machine: Machine) -> PowerSensor:
    """Intel's and AMD's energy counters; both are called intel-rapl."""
    zones = [name for name in machine.names(_POWERCAP) if re.fullmatch(r"intel-rapl(:[0-9]+)+", name, re.ASCII)]
    if not zones:
        return _sensor("rapl", (), f"there is no intel-rapl zone in {_POWERCAP}")
    named = [(zone, stripped(machine.read(f"{_POWERCAP}/{zone}/name")) or zone) for zone in zones]
    readable = tuple(name for zone, name in named if machine.read(f"{_POWERCAP}/{zone}/energy_uj") is not None)
    if readable:
        return _sensor("rapl", readable, None)
    return _sensor("rapl", (name for _, name in named), f"{_POWERCAP}/{zones[0]}/energy_uj is readable by root only")


def _hwmon(machine: Machine) -> PowerSensor:
    inputs_found = []
    for folder, chip in hwmon_folders(machine):
        inputs = (re.fullmatch(r"(power[0-9]+)_(input|average)", name, re.ASCII) for name in machine.names(folder))
        for channel in sorted({match[1] for match in inputs if match}):
            label = stripped(machine.read(f"{folder}/{channel}_label"))
            inputs_found.append(f"{chip} {label}" if label else chip)
    return _sensor("hwmon", inputs_found, None if inputs_found else f"no chip in {_HWMON} has a power input")


def _ina3221(machine: Machine) -> PowerSensor:
    """The rails of a Jetson: volts and amperes a channel."""
    rails = []
    for folder, chip in hwmon_folders(machine):
        if not chip.startswith("ina3221"):
            continue
        files = set(machine.names(folder))
        for channel in (1, 2, 3):
            label = stripped(machine.read(f"{folder}/in{channel}_label"))
            if {f"in{channel}_input", f"curr{channel}_input"} <= files and label not in {None, "NC"}:
                rails.append(str(label))
    return _sensor("ina3221", rails, None if rails else f"no INA3221 in {_HWMON}")


def _pmic(machine: Machine, board: str | None) -> PowerSensor:
    """The Raspberry Pi 5's power chip measures its own rails; earlier boards measure none."""
    if not (board or "").startswith("Raspberry Pi 5"):
        return _sensor("pmic", (), "not a Raspberry Pi 5")
    there = machine.which("vcgencmd") is not None
    return _sensor("pmic", ("rails",), None if there else "vcgencmd is not installed")


def _battery(machine: Machine) -> PowerSensor:
    batteries = []
    for name in machine.names(_SUPPLY):
        files = set(machine.names(f"{_SUPPLY}/{name}"))
        measures = "power_now" in files or {"current_now", "voltage_now"} <= files
        if stripped(machine.read(f"{_SUPPLY}/{name}/type")) == "Battery" and measures:
            batteries.append(name)
    return _sensor("battery", batteries, None if batteries else f"no battery that measures power in {_SUPPLY}")
