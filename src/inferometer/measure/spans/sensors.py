"""The sensors of this machine as channels to sample: RAPL, hwmon, INA3221, NVML, AMD SMI, powermetrics, the clocks.

All files and programs come through `Machine`, so a Jetson's or a workstation's sensors are tested from text. A sensor
that is not there, or that only root may read, says so; it is never read as zero.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial

from inferometer.core.frozen import frozen
from inferometer.core.settings import visible_gpus
from inferometer.known.machine.detect import Machine
from inferometer.known.machine.detect.fields import scaled, stripped, whole
from inferometer.known.machine.detect.gpus import ask
from inferometer.known.machine.detect.sensors import batteries, hwmon_inputs, ina3221_rails, linux_sensors, rapl_zones
from inferometer.measure.spans.power import Quantity

_CPU = "/sys/devices/system/cpu"
_SUPPLY = "/sys/class/power_supply"
_POWERMETRICS = re.compile(r"^(CPU|GPU|ANE) Power: ([0-9]+) mW", re.MULTILINE)
_PMIC = {kind: re.compile(rf"(\w+)_{kind} \w+\([0-9]+\)=([0-9.]+){kind}") for kind in ("A", "V")}
_MAC_BATTERY = re.compile(r'"(Voltage|InstantAmperage|ExternalConnected)" = (\w+)')
_WHOLE_BOARD = frozenset({"VDD_IN", "POM_5V_IN", "POM_5V_SYS"})  # rails that feed all the others of a Jetson


@frozen
class Channel:
    """One number that can be read. `counted` ones add up to the machine's power without overlap.

    `covers` says what draws the power, and `whole` that it is all of the machine. `unit` is the accelerator it belongs
    to (`gpu:1`, or `gpu` for any). Its value changes every `update_s`. A meter that is `named` by the user may keep a
    `log`, which has its readings between two moments, and say what `trouble` that had.
    """

    name: str
    quantity: Quantity
    read: Callable[[], float | None]
    counted: bool = False
    range_j: float | None = None
    covers: str = ""
    whole: bool = False
    unit: str | None = None
    update_s: float = 0.1
    named: bool = False
    log: Callable[[int, int], list[tuple[int, float]]] | None = None
    trouble: Callable[[], str | None] = lambda: None


@frozen
class Sensors:
    """`why_none` is what to say where no channel measures energy."""

    channels: tuple[Channel, ...]
    missing: dict[str, str]
    close: Callable[[], None]
    why_none: str = "no sensor of energy answers"


def find_sensors(machine: Machine, *, kinds: frozenset[str] | None = None) -> Sensors:
    """Every channel that answers now, of these kinds or of all, and of each kind that has none, why."""
    missing: dict[str, str] = {}
    channels: list[Channel] = []
    nvml, amd = _Nvml(machine), _AmdSmi(machine)
    whys = {sensor.name: sensor.why for sensor in linux_sensors(machine, None, ())}
    looked_for: tuple[tuple[str, Iterator[Channel], str | None], ...] = (
        ("rapl", _rapl(machine), whys["rapl"]),
        ("amdsmi", amd.channels(), "no AMD GPU whose library (amdsmi, which ROCm brings) answers"),
        ("hwmon", _hwmon(machine, amd), whys["hwmon"]),
        ("ina3221", _ina3221(machine), whys["ina3221"]),
        ("nvml", nvml.channels(), nvml.why),
        ("powermetrics", _powermetrics(machine), _why_no_powermetrics(machine)),
        ("pmic", _pmic(machine), "no power chip of a Raspberry Pi 5 answers"),
        ("battery", _battery(machine), _why_no_battery(machine)),
        ("cpu clock", _clocks(machine), f"no clock in {_CPU}"),
        ("cpu use", _cpu_use(machine), "there is no /proc/stat"),
    )
    for kind, candidates, why in looked_for:
        if kinds is not None and kind not in kinds:
            continue
        answering = [channel for channel in candidates if channel.read() is not None]
        channels += answering
        if not answering:
            missing[kind] = why or "it does not answer"

    def close() -> None:
        nvml.close()
        amd.close()

    return Sensors(channels=tuple(channels), missing=missing, close=close, why_none=_why_none(machine, missing))


def _why_none(machine: Machine, missing: dict[str, str]) -> str:
    """The sensor that such a machine would have, and why it does not answer."""
    if machine.system == "Windows":
        return "Windows gives programs no energy counters of the CPU without a driver"
    kind = "powermetrics" if machine.system == "Darwin" else "rapl" if "86" in machine.architecture else "ina3221"
    battery = missing.get("battery", "")
    return "; ".join(filter(None, (missing.get(kind), battery if "discharge" in battery else None))) or "none answers"


def _rapl(machine: Machine) -> Iterator[Channel]:
    """Packages and memory are counted; `core` and `uncore` are inside a package, and `psys` around it."""
    for folder, name in rapl_zones(machine):
        yield Channel(
            name=f"rapl {name}",
            quantity="energy",
            read=_file(machine, f"{folder}/energy_uj", 1e-6),
            counted=name.startswith("package") or name == "dram",
            range_j=scaled(machine.read(f"{folder}/max_energy_range_uj"), 1e-6),
            covers="memory" if name == "dram" else "CPU package",
            update_s=1e-3,
        )


def _file(machine: Machine, path: str, factor: float) -> Callable[[], float | None]:
    return lambda: scaled(machine.read(path), factor)


def _hwmon(machine: Machine, amd: "_AmdSmi") -> Iterator[Channel]:
    """Chips of all kinds; of them a GPU's power counts, where its own library does not count it already."""
    for chip, name, path in hwmon_inputs(machine, r"(power[0-9]+|temp[0-9]+)_(?:input|average)"):
        if not chip.startswith("ina3221"):
            power = "/power" in path
            yield Channel(
                name=name,
                quantity="power" if power else "temperature",
                read=_file(machine, path, 1e-6 if power else 1e-3),
                counted=power and chip == "amdgpu" and not amd.answers,
                covers="GPU board",
                unit="gpu" if chip == "amdgpu" else None,
            )


def _ina3221(machine: Machine) -> Iterator[Channel]:
    """A Jetson's rails: millivolts times milliamperes. Where one rail feeds the rest, it alone is counted."""
    rails = ina3221_rails(machine)
    whole_board = {label for label, *_ in rails} & _WHOLE_BOARD
    for label, volts, amperes in rails:
        yield Channel(
            name=f"ina3221 {label}",
            quantity="power",
            read=_product(machine, volts, amperes),
            counted=label in whole_board if whole_board else True,
            covers="whole board" if label in whole_board else f"rail {label}",
        )


def _product(machine: Machine, millivolts: str, milliamperes: str) -> Callable[[], float | None]:
    def read() -> float | None:
        volts, amperes = scaled(machine.read(millivolts), 1e-3), scaled(machine.read(milliamperes), 1e-3)
        return None if volts is None or amperes is None else volts * amperes

    return read


class _Nvml:
    """NVIDIA's driver, kept open while it is sampled."""

    def __init__(self, machine: Machine) -> None:
        self._nvml = machine.module("pynvml")
        self.why = "no NVIDIA GPU whose driver answers"
        if self._nvml is None:
            self._nvml = machine.module("inferometer.measure.spans.nvml")
        if self._nvml is None:
            return
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError:
            self._nvml = None

    def channels(self) -> Iterator[Channel]:
        count = ask(self._nvml, "nvmlDeviceGetCount") or 0 if self._nvml is not None else 0
        for index in range(count):
            handle = ask(self._nvml, "nvmlDeviceGetHandleByIndex", index)
            if handle is not None:
                yield from self._device(f"gpu {index}", _cuda_unit(index, count), handle)

    def _device(self, name: str, unit: str, handle: object) -> Iterator[Channel]:
        def asked(function: str, factor: float, *more: int) -> Callable[[], float | None]:
            def read() -> float | None:
                value = ask(self._nvml, function, handle, *more)
                return None if value is None else float(value) * factor

            return read

        def busy() -> float | None:
            rates = ask(self._nvml, "nvmlDeviceGetUtilizationRates", handle)
            return None if rates is None else float(rates.gpu) * 1e-2

        energy = asked("nvmlDeviceGetTotalEnergyConsumption", 1e-3)
        counter = energy() is not None  # from Volta on; it misses nothing between readings
        board = "GPU board"
        if counter:
            yield Channel(name=name, quantity="energy", read=energy, counted=True, covers=board, unit=unit)
        watts = asked("nvmlDeviceGetPowerUsage", 1e-3)
        yield Channel(name=name, quantity="power", read=watts, counted=not counter, covers=board, unit=unit)
        yield Channel(name=name, quantity="temperature", read=asked("nvmlDeviceGetTemperature", 1.0, 0))
        yield Channel(name=name, quantity="clock", read=asked("nvmlDeviceGetClockInfo", 1e6, 1))
        yield Channel(name=name, quantity="use", read=busy)

    def close(self) -> None:
        if self._nvml is not None:
            ask(self._nvml, "nvmlShutdown")
            self._nvml = None


class _AmdSmi:
    """AMD's library for its GPUs, kept open while it is sampled. What a card does not say is the text `N/A`."""

    def __init__(self, machine: Machine) -> None:
        self._smi = machine.module("amdsmi")
        self.answers = False  # whether a card's power is counted here
        if self._smi is not None:
            try:
                self._smi.amdsmi_init()
            except self._smi.AmdSmiException:
                self._smi = None

    def _asked(self, function: str, *keys: str, handle: object = None) -> float | None:
        """The first of these keys of an answer that is a number."""
        try:
            answer = getattr(self._smi, function)(handle)
        except (AttributeError, self._smi.AmdSmiException):
            return None
        return next((float(answer[key]) for key in keys if isinstance(answer.get(key), int | float)), None)

    def channels(self) -> Iterator[Channel]:
        handles = [] if self._smi is None else self._smi.amdsmi_get_processor_handles()
        for index, handle in enumerate(handles):
            name, unit = f"amd gpu {index}", "gpu" if len(handles) == 1 else f"gpu:{index}"

            def joules(handle: object = handle) -> float | None:
                count = self._asked("amdsmi_get_energy_count", "energy_accumulator", "power", handle=handle)
                each_uj = self._asked("amdsmi_get_energy_count", "counter_resolution", handle=handle)
                return count * each_uj * 1e-6 if count and each_uj else None

            def watts(handle: object = handle) -> float | None:
                keys = ("current_socket_power", "average_socket_power", "socket_power")
                return self._asked("amdsmi_get_power_info", *keys, handle=handle)

            def busy(handle: object = handle) -> float | None:
                percent = self._asked("amdsmi_get_gpu_activity", "gfx_activity", handle=handle)
                return None if percent is None else percent * 1e-2

            counter, board = joules() is not None, "GPU board"
            self.answers |= counter or watts() is not None
            if counter:
                yield Channel(name=name, quantity="energy", read=joules, counted=True, covers=board, unit=unit)
            yield Channel(name=name, quantity="power", read=watts, counted=not counter, covers=board, unit=unit)
            yield Channel(name=name, quantity="use", read=busy)

    def close(self) -> None:
        if self._smi is not None:
            self._smi.amdsmi_shut_down()
            self._smi = None


def _cuda_unit(index: int, count: int) -> str:
    """What programs call a GPU: CUDA_VISIBLE_DEVICES hides some from them and counts the others anew."""
    visible = visible_gpus()
    if visible is None or count == 1:
        return f"gpu:{index}"
    return f"gpu:{visible.index(str(index))}" if str(index) in visible else f"gpu:hidden-{index}"


def _powermetrics(machine: Machine) -> Iterator[Channel]:
    """macOS: one run of a program for all domains, which itself averages over 100 ms."""
    if machine.which("powermetrics") is None or not machine.privileged:
        return
    printed: dict[str, float | None] = {}

    def reader(domain: str) -> Callable[[], float | None]:
        def read() -> float | None:
            if domain not in printed:
                text = machine.run("powermetrics", "-n", "1", "-i", "100", "--samplers", "cpu_power,gpu_power") or ""
                printed.update((name, scaled(watts, 1e-3)) for name, watts in _POWERMETRICS.findall(text))
            return printed.pop(domain, None)  # each run of the program reports a domain once

        return read

    for domain, unit in (("CPU", None), ("GPU", "gpu"), ("ANE", "npu")):
        yield Channel(
            name=domain.lower(), quantity="power", read=reader(domain), counted=True, covers=domain, unit=unit,
            update_s=0.2,
        )  # fmt: skip


def _why_no_powermetrics(machine: Machine) -> str:
    if machine.system != "Darwin":
        return "not macOS"
    return "powermetrics needs root: run with sudo" if machine.which("powermetrics") else "there is no powermetrics"


def _pmic(machine: Machine) -> Iterator[Channel]:
    """A Raspberry Pi 5's power chip: amperes times volts of each of its rails. What USB draws is not among them."""

    def read() -> float | None:
        text = machine.run("vcgencmd", "pmic_read_adc") or ""
        rails = {kind: dict(_PMIC[kind].findall(text)) for kind in ("A", "V")}
        known = rails["A"].keys() & rails["V"].keys()
        return sum(float(rails["A"][rail]) * float(rails["V"][rail]) for rail in known) if known else None

    if machine.which("vcgencmd") is not None:
        yield Channel(name="pmic", quantity="power", read=read, counted=True, covers="board without USB")


def _battery(machine: Machine) -> Iterator[Channel]:
    if machine.system == "Darwin":
        yield Channel(
            name="battery", quantity="power", read=partial(_mac_battery_watts, machine), covers="whole machine",
            whole=True, update_s=2.0,
        )  # fmt: skip
    for name in batteries(machine):
        yield Channel(
            name=f"battery {name}",
            quantity="power",
            read=_battery_watts(machine, f"{_SUPPLY}/{name}"),
            covers="whole machine",
            whole=True,
            update_s=2.0,  # fuel gauges average over a second or more
        )


def _mac_battery_watts(machine: Machine) -> float | None:
    """Volts times amperes of a battery that discharges. Its current is written as an unsigned number of 64 bits."""
    facts = dict(_MAC_BATTERY.findall(machine.run("ioreg", "-rw0", "-c", "AppleSmartBattery") or ""))
    volts, current = (whole(facts.get(name)) for name in ("Voltage", "InstantAmperage"))
    if facts.get("ExternalConnected") != "No" or not volts or not current:
        return None
    return volts * abs(current - 2**64 if current >= 2**63 else current) * 1e-6  # mV and mA


def _why_no_battery(machine: Machine) -> str:
    if machine.system != "Darwin" and not batteries(machine):
        return "no battery measures power here"
    return "the battery does not discharge: on the mains its sensor measures the charger"


def _battery_watts(machine: Machine, folder: str) -> Callable[[], float | None]:
    def read() -> float | None:
        if (stripped(machine.read(f"{folder}/status")) or "Discharging") != "Discharging":
            return None
        watts = scaled(machine.read(f"{folder}/power_now"), 1e-6)
        if watts is not None:
            return abs(watts)
        volts, amperes = (scaled(machine.read(f"{folder}/{file}_now"), 1e-6) for file in ("voltage", "current"))
        return None if volts is None or amperes is None else abs(volts * amperes)

    return read


def _clocks(machine: Machine) -> Iterator[Channel]:
    """The mean clock of all CPUs: reading each as a channel of its own would cost more than it is worth."""
    files = [
        f"{_CPU}/{name}/cpufreq/scaling_cur_freq"
        for name in machine.names(_CPU)
        if re.fullmatch(r"cpu[0-9]+", name, re.ASCII)
    ]

    def read() -> float | None:
        clocks = [hertz for file in files[:64] if (hertz := scaled(machine.read(file), 1e3)) is not None]
        return sum(clocks) / len(clocks) if clocks else None

    yield Channel(name="cpu", quantity="clock", read=read)


def _cpu_use(machine: Machine) -> Iterator[Channel]:
    """The share of all CPUs' time since the last reading that was not idle."""
    last: list[tuple[int, int]] = []

    def read() -> float | None:
        line = (machine.read("/proc/stat") or "").partition("\n")[0].split()
        ticks = [value for value in map(whole, line[1:9]) if value is not None]
        if len(ticks) < 5 or line[0] != "cpu":
            return None
        idle, all_ticks = ticks[3] + ticks[4], sum(ticks)
        before = last[-1] if last else (idle, all_ticks)
        last[:] = [(idle, all_ticks)]
        passed = all_ticks - before[1]
        return 1 - (idle - before[0]) / passed if passed > 0 else 0.0

    yield Channel(name="cpu", quantity="use", read=read)
