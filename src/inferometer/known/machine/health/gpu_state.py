"""The state of the GPUs: temperature, utilisation, memory and throttling, by NVML, nvidia-smi or AMD's sysfs."""

import re
from typing import Any

from inferometer.known.machine.detect.fields import scaled, stripped, whole
from inferometer.known.machine.detect.gpus import ask, nvml_session, query_nvidia_smi
from inferometer.known.machine.detect.machine import Machine
from inferometer.known.machine.health.readings import Absent, GpuState

_COMMON = ("name", "temperature.gpu", "utilization.gpu", "memory.used", "memory.total")
# Driver 535 renamed the throttle reasons to event reasons; older ones know the old name alone.
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
STATE_FIELDS = tuple((*_COMMON, reasons) for reasons in _REASONS)
_MIB = 2**20


def gpu_states(machine: Machine) -> tuple[GpuState, ...] | Absent:
    nvml = machine.module("pynvml")
    states = nvml_session(nvml, _nvml_state) if nvml is not None else ()
    if not states and machine.which("nvidia-smi"):
        states = tuple(
            GpuState(
                name=row.get("name", "NVIDIA GPU"),
                celsius=scaled(row.get("temperature.gpu"), 1.0),
                busy=scaled(row.get("utilization.gpu"), 1e-2),
                memory_used_bytes=scaled(row.get("memory.used"), _MIB),
                memory_total_bytes=scaled(row.get("memory.total"), _MIB),
                throttle=next((whole(row[name]) for name in _REASONS if name in row), None),
            )
            for row in query_nvidia_smi(machine, STATE_FIELDS)
        )
    states += tuple(_amd_states(machine))
    return states or Absent("no GPU here whose driver can be asked")


def _nvml_state(nvml: Any, handle: Any) -> GpuState:
    def times(value: Any, factor: float) -> float | None:
        return None if value is None else float(value) * factor

    name = ask(nvml, "nvmlDeviceGetName", handle)
    memory = ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    use = ask(nvml, "nvmlDeviceGetUtilizationRates", handle)
    reasons = ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:
        reasons = ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return GpuState(
        name=(name.decode("utf-8", "replace") if isinstance(name, bytes) else name) or "NVIDIA GPU",
        celsius=times(ask(nvml, "nvmlDeviceGetTemperature", handle, 0), 1.0),  # 0: the GPU's own sensor
        busy=None if use is None else times(use.gpu, 1e-2),
        memory_used_bytes=None if memory is None else float(memory.used),
        memory_total_bytes=None if memory is None else float(memory.total),
        throttle=None if reasons is None else int(reasons),
    )


def _amd_states(machine: Machine) -> list[GpuState]:
    states = []
    for card in machine.names("/sys/class/drm"):
        folder = f"/sys/class/drm/{card}/device"
        if not re.fullmatch(r"card[0-9]+", card, re.ASCII) or stripped(machine.read(f"{folder}/vendor")) != "0x1002":
            continue
        monitor = next((f"{folder}/hwmon/{name}" for name in machine.names(f"{folder}/hwmon")), folder)
        name = stripped(machine.read(f"{folder}/product_name"))
        states.append(
            GpuState(
                name=name or f"AMD GPU {stripped(machine.read(f'{folder}/device')) or card}",
                celsius=scaled(machine.read(f"{monitor}/temp1_input"), 1e-3),
                busy=scaled(machine.read(f"{folder}/gpu_busy_percent"), 1e-2),
                memory_used_bytes=scaled(machine.read(f"{folder}/mem_info_vram_used"), 1.0),
                memory_total_bytes=scaled(machine.read(f"{folder}/mem_info_vram_total"), 1.0),
            )
        )
    return states
