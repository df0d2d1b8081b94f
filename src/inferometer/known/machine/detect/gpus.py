"""GPUs: NVML if its Python module is there, else nvidia-smi; sysfs for AMD and Intel; the device tree for Jetsons."""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from inferometer.core.frozen import frozen
from inferometer.known.machine.detect.fields import decoded, number, scaled, stripped, table, whole
from inferometer.known.machine.detect.host import Gpu
from inferometer.known.machine.detect.machine import Machine

# Asked in this order; the first list that the installed nvidia-smi knows entirely is taken.
GPU_FIELDS = (
    ("name", "memory.total", "driver_version", "compute_cap", "power.limit", "clocks.max.sm"),
    ("name", "memory.total", "driver_version", "power.limit", "clocks.max.sm"),
)

_MIB = 2**20
T = TypeVar("T")
_PCI = {"0x1002": "AMD", "0x8086": "Intel", "0x10de": "NVIDIA"}


@frozen
class Tegra:
    """A Jetson's chip: what its GPU is called and which CUDA compute capability it has."""

    name: str
    compute_capability: str


# By the device tree's name for the chip. Capabilities: NVIDIA's list of CUDA GPUs.
TEGRA: Mapping[str, Tegra] = {
    "nvidia,tegra264": Tegra(name="Thor integrated GPU (Blackwell)", compute_capability="11.0"),
    "nvidia,tegra234": Tegra(name="Orin integrated GPU (Ampere)", compute_capability="8.7"),
    "nvidia,tegra194": Tegra(name="Xavier integrated GPU (Volta)", compute_capability="7.2"),
    "nvidia,tegra186": Tegra(name="TX2 integrated GPU (Pascal)", compute_capability="6.2"),
    "nvidia,tegra210": Tegra(name="Tegra X1 integrated GPU (Maxwell)", compute_capability="5.3"),
}


def linux_gpus(machine: Machine, memory_bytes: int | None) -> tuple[Gpu, ...]:
    jetson = _jetson(machine, memory_bytes)
    if jetson is not None:
        # Its driver answers NVML too, but with nothing; a card in its slot has memory of its own.
        return (jetson, *(gpu for gpu in nvidia_gpus(machine) if gpu.memory_bytes))
    nvidia = nvidia_gpus(machine)
    return (*nvidia, *_drm(machine, skip_nvidia=bool(nvidia)))


def nvidia_gpus(machine: Machine) -> tuple[Gpu, ...]:
    """What the NVIDIA driver reports, by NVML or nvidia-smi; empty without either."""
    nvml = machine.module("pynvml")
    if nvml is not None and (gpus := nvml_session(nvml, _nvml_gpu)):
        return gpus
    if machine.which("nvidia-smi") is None:
        return ()
    rows = query_nvidia_smi(machine, GPU_FIELDS)
    cuda = parse_cuda_version(machine.run("nvidia-smi")) if rows else None
    return tuple(_smi_gpu(row, cuda) for row in rows)


# ── NVML ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def nvml_session(nvml: Any, read: Callable[[Any, Any], T]) -> tuple[T, ...]:
    """`read(nvml, handle)` for every GPU, between NVML's init and shutdown; empty if the driver is not there."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()
    try:
        count = ask(nvml, "nvmlDeviceGetCount") or 0
        handles = (ask(nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(count))
        return tuple(read(nvml, handle) for handle in handles if handle is not None)
    finally:
        ask(nvml, "nvmlShutdown")


def ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """One NVML call; None where this GPU, driver or module does not support it."""
    call = getattr(nvml, function, None)
    if call is None:
        return None
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _nvml_gpu(nvml: Any, handle: Any) -> Gpu:
    memory = ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
    capability = ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle)
    cuda = ask(nvml, "nvmlSystemGetCudaDriverVersion")
    limit_mw = ask(nvml, "nvmlDeviceGetPowerManagementLimit", handle)
    clock_mhz = ask(nvml, "nvmlDeviceGetMaxClockInfo", handle, 1)  # 1: the SM clock
    return Gpu(
        name=_text(ask(nvml, "nvmlDeviceGetName", handle)),
        vendor="NVIDIA",
        memory_bytes=None if memory is None else int(memory.total),
        shared_memory=None if memory is None else False,
        driver=_text(ask(nvml, "nvmlSystemGetDriverVersion")),
        cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        max_hz=None if clock_mhz is None else clock_mhz * 1e6,
        power_limit_w=None if limit_mw is None else limit_mw / 1e3,
        source="nvml",
    )


def _text(value: Any) -> str | None:
    """Older modules give bytes."""
    return stripped(value.decode("utf-8", "replace") if isinstance(value, bytes) else value)


# ── nvidia-smi ──────────────────────────────────────────────────────────────────────────────────────────────────────


def query_nvidia_smi(machine: Machine, choices: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """One row a GPU, with the first of the field lists that this version of nvidia-smi accepts."""
    for fields in choices:
        text = machine.run("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
        if text is not None:
            return parse_nvidia_smi(text, fields)
    return []


def parse_nvidia_smi(text: str | None, fields: Sequence[str]) -> list[dict[str, str]]:
    """CSV without a header → one mapping a GPU. Fields that it does not support are left out."""
    lines = [line for line in (text or "").replace("\0", "").splitlines() if line.strip()]
    gpus = []
    for cells in csv.reader(lines, skipinitialspace=True):
        if len(cells) == len(fields):
            row = {field: cell.strip() for field, cell in zip(fields, cells, strict=True)}
            gpus.append({field: cell for field, cell in row.items() if cell and not cell.startswith(("[", "N/A"))})
    return gpus


def parse_cuda_version(text: str | None) -> str | None:
    """The CUDA version in the head of plain `nvidia-smi`."""
    match = re.search(r"CUDA(?: \w+)? Version\s*:\s*([0-9]{1,3}\.[0-9]{1,3})", text or "", re.ASCII)
    return match[1] if match else None


def _smi_gpu(row: Mapping[str, str], cuda: str | None) -> Gpu:
    memory = scaled(row.get("memory.total"), _MIB)
    return Gpu(
        name=row.get("name"),
        vendor="NVIDIA",
        memory_bytes=None if memory is None else int(memory),
        shared_memory=None if memory is None else False,
        driver=row.get("driver_version"),
        cuda=cuda,
        compute_capability=row.get("compute_cap"),
        max_hz=scaled(row.get("clocks.max.sm"), 1e6),
        power_limit_w=number(row.get("power.limit")),
        source="nvidia-smi",
    )


# ── Jetson ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def parse_l4t_release(text: str | None) -> str | None:
    """`# R36 (release), REVISION: 4.3, …` → L4T 36.4.3."""
    match = re.match(r"# R([0-9]{1,3}) \(release\), REVISION: ([0-9.]{1,10})", text or "", re.ASCII)
    return f"L4T {match[1]}.{match[2]}" if match else None


def _jetson(machine: Machine, memory_bytes: int | None) -> Gpu | None:
    compatible = machine.read("/proc/device-tree/compatible") or ""
    chip = next((tegra for name, tegra in TEGRA.items() if name in compatible), None)
    if chip is None:
        return None
    cuda = table(table(decoded(machine.read("/usr/local/cuda/version.json"))).get("cuda")).get("version")
    names = [name for name in machine.names("/sys/class/devfreq") if re.search(r"gpu|ga10b|gv11b|gp10b|gm20b", name)]
    clocks = (scaled(machine.read(f"/sys/class/devfreq/{name}/max_freq"), 1.0) for name in names)
    return Gpu(
        name=chip.name,
        vendor="NVIDIA",
        memory_bytes=memory_bytes,
        shared_memory=True,
        driver=parse_l4t_release(machine.read("/etc/nv_tegra_release")),
        cuda=stripped(cuda) if isinstance(cuda, str) else None,
        compute_capability=chip.compute_capability,
        max_hz=max((clock for clock in clocks if clock), default=None),
        source="device-tree",
    )


# ── sysfs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _drm(machine: Machine, *, skip_nvidia: bool) -> list[Gpu]:
    cards = [name for name in machine.names("/sys/class/drm") if re.fullmatch(r"card[0-9]+", name, re.ASCII)]
    gpus: list[Gpu] = []
    for card in sorted(cards, key=lambda name: int(name[4:])):
        folder = f"/sys/class/drm/{card}/device"
        vendor = _PCI.get(stripped(machine.read(f"{folder}/vendor")) or "")
        if vendor and not (vendor == "NVIDIA" and skip_nvidia):
            gpus.append(_card(machine, folder, vendor))
    names = _rocm_names(machine) if any(gpu.vendor == "AMD" for gpu in gpus) else []
    return _named(gpus, names)


def _card(machine: Machine, folder: str, vendor: str) -> Gpu:
    """A card as PCI shows it: without a name, its vendor and device number are the name."""
    device = stripped(machine.read(f"{folder}/device"))
    numbered = f"{vendor} GPU {device}" if device else f"{vendor} GPU"
    monitors = [f"{folder}/hwmon/{name}" for name in machine.names(f"{folder}/hwmon")]
    limits = (scaled(machine.read(f"{monitor}/power1_cap"), 1e-6) for monitor in monitors)
    module = {"AMD": "amdgpu", "Intel": "i915", "NVIDIA": "nvidia"}[vendor]
    memory = whole(machine.read(f"{folder}/mem_info_vram_total"))
    return Gpu(
        name=stripped(machine.read(f"{folder}/product_name")) or numbered,
        vendor=vendor,
        memory_bytes=memory,
        shared_memory=None,  # an APU's part of the host memory and a card's own look alike here
        driver=stripped(machine.read(f"/sys/module/{module}/version")),
        power_limit_w=next((limit for limit in limits if limit), None),
        source="sysfs",
    )


def _rocm_names(machine: Machine) -> list[str]:
    if machine.which("rocm-smi") is None:
        return []
    cards = table(decoded(machine.run("rocm-smi", "--showproductname", "--json")))
    names = []
    for _, card in sorted(cards.items()):
        fields = {str(key).lower(): value for key, value in table(card).items()}
        name = fields.get("card series") or fields.get("card model")
        if isinstance(name, str) and name.strip():
            names.append(name.strip())
    return names


def _named(gpus: Sequence[Gpu], names: Sequence[str]) -> list[Gpu]:
    """AMD cards with rocm-smi's names, where it lists as many as there are."""
    amd = [gpu for gpu in gpus if gpu.vendor == "AMD"]
    if len(amd) != len(names):
        return list(gpus)
    given = iter(names)
    return [replace(gpu, name=next(given)) if gpu.vendor == "AMD" else gpu for gpu in gpus]
