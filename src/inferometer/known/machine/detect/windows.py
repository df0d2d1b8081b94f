"""Windows: one PowerShell call for everything that CIM reports, as values."""

from collections.abc import Iterable, Mapping
from typing import Any

from inferometer.known.machine.detect import isa
from inferometer.known.machine.detect.fields import decoded, rows, table, word
from inferometer.known.machine.detect.gpus import nvidia_gpus
from inferometer.known.machine.detect.host import (
    Cache,
    CacheKind,
    Cpu,
    Gpu,
    Host,
    HostCores,
    HostLimits,
    MemoryFacts,
    OperatingSystem,
)
from inferometer.known.machine.detect.limits import hypervisor_of_dmi
from inferometer.known.machine.detect.machine import Machine
from inferometer.known.machine.detect.sensors import windows_sensors

_CLASSES = {
    "processor": (
        "Win32_Processor",
        "Name,Manufacturer,NumberOfCores,NumberOfLogicalProcessors,MaxClockSpeed,L2CacheSize,L3CacheSize",
    ),
    "cache": ("Win32_CacheMemory", "Level,CacheType,InstalledSize"),
    "os": (
        "Win32_OperatingSystem",
        "Caption,Version,BuildNumber,TotalVisibleMemorySize,FreePhysicalMemory",
    ),
    "system": ("Win32_ComputerSystem", "Manufacturer,Model,TotalPhysicalMemory,HypervisorPresent"),
    "video": ("Win32_VideoController", "Name,AdapterCompatibility,AdapterRAM,DriverVersion"),
    "pagefile": ("Win32_PageFileUsage", "AllocatedBaseSize,CurrentUsage"),
    "battery": ("Win32_Battery", "BatteryStatus,EstimatedChargeRemaining"),
}
# AdapterRAM is a 32-bit number: a card with 4 GiB or more shows this or less. The registry has the whole of it.
_ADAPTER_RAM_FULL = 0xFFF00000
_REGISTRY = r"HKLM:\SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}\0*"


def _script() -> str:
    queries = (
        f"{name}=@(Get-CimInstance {cim} -ErrorAction SilentlyContinue|Select-Object {fields})"
        for name, (cim, fields) in _CLASSES.items()
    )
    registry = (
        f"registry=@(Get-ItemProperty '{_REGISTRY}' -ErrorAction SilentlyContinue|"
        "Select-Object DriverDesc,@{n='MemorySize';e={$_.'HardwareInformation.qwMemorySize'}})"
    )
    return (
        "[Console]::OutputEncoding=[Text.Encoding]::UTF8;"
        f"@{{{';'.join((*queries, registry))}}}|ConvertTo-Json -Depth 3 -Compress"
    )


SCRIPT = _script()
COMMAND = ("powershell", "-NoProfile", "-NonInteractive", "-Command", SCRIPT)

Cim = Mapping[str, list[Mapping[str, Any]]]

_LEVELS = {3: 1, 4: 2, 5: 3}  # CIM counts primary, secondary and tertiary from 3
_KINDS: Mapping[int, CacheKind] = {3: "instruction", 4: "data", 5: "unified"}


def windows_host(machine: Machine) -> Host:
    cim = parse_cim(machine.run(*COMMAND))
    nvidia = nvidia_gpus(machine)
    sizes = {word(row, "DriverDesc"): _count(row, "MemorySize") for row in cim["registry"]}
    others = (_video(row, sizes) for row in cim["video"])
    gpus = (*nvidia, *(gpu for gpu in others if not (nvidia and gpu.vendor == "NVIDIA")))
    system = _first(cim, "system")
    return Host(
        board=" ".join(part for part in (word(system, "Manufacturer"), word(system, "Model")) if part) or None,
        cpu=_cpu(machine, cim),
        memory=_memory(cim),
        gpus=gpus,
        os=_os(cim),
        python=machine.python,
        limits=_limits(machine, cim),
        sensors=windows_sensors(gpus, battery=bool(cim["battery"])),
    )


def parse_cim(text: str | None) -> Cim:
    """The script's JSON: a list of rows for every class, empty where nothing was reported."""
    classes = table(decoded((text or "").lstrip("\ufeff")))
    return {name: rows(classes.get(name)) for name in (*_CLASSES, "registry")}


def _count(row: Mapping[str, Any], key: str) -> int | None:
    value = row.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [value for value in counts if value is not None]
    return sum(known) if known else None


def _first(cim: Cim, name: str) -> Mapping[str, Any]:
    return cim[name][0] if cim[name] else {}


def _os(cim: Cim) -> OperatingSystem:
    system = _first(cim, "os")
    caption = word(system, "Caption")
    return OperatingSystem(
        name=caption.removeprefix("Microsoft ") if caption else "Windows",
        version=word(system, "Version"),
        kernel=word(system, "BuildNumber"),
    )


def _cpu(machine: Machine, cim: Cim) -> Cpu:
    sockets = cim["processor"]
    first = _first(cim, "processor")
    architecture = isa.architecture_name(machine.architecture)
    features = {code: machine.processor_feature(code) for code in isa.windows_codes(architecture)}
    cores = _sum(_count(row, "NumberOfCores") for row in sockets)
    logical = _sum(_count(row, "NumberOfLogicalProcessors") for row in sockets)
    clock = _count(first, "MaxClockSpeed")
    return Cpu(
        model=word(first, "Name"),
        vendor=isa.vendor_name(word(first, "Manufacturer")),
        architecture=architecture,
        flags=isa.flags_of_windows(architecture, features),
        physical_cores=cores,
        logical_cores=logical,
        sockets=len(sockets) or None,
        base_hz=clock * 1e6 if clock else None,  # MaxClockSpeed is the rated clock: turbo is not in it
        caches=_caches(cim),
        groups=(HostCores(cores=cores, logical_cores=logical),) if cores else (),
    )


def _caches(cim: Cim) -> tuple[Cache, ...]:
    """Win32_CacheMemory has the sum over all cores, P and E cores in rows of their own; else the processor's L2, L3."""
    totals: dict[tuple[int, CacheKind], int] = {}
    for row in cim["cache"]:
        level, kind = _LEVELS.get(_count(row, "Level") or 0), _KINDS.get(_count(row, "CacheType") or 0)
        size = _count(row, "InstalledSize")
        if level and kind and size:
            totals[level, kind] = totals.get((level, kind), 0) + size * 1024
    if not totals:
        for level, key in ((2, "L2CacheSize"), (3, "L3CacheSize")):
            if size := _sum(_count(row, key) for row in cim["processor"]):
                totals[level, "unified"] = size * 1024
    return tuple(Cache(level=level, kind=kind, total_bytes=total) for (level, kind), total in sorted(totals.items()))


def _memory(cim: Cim) -> MemoryFacts:
    system = _first(cim, "os")
    visible, free = _count(system, "TotalVisibleMemorySize"), _count(system, "FreePhysicalMemory")
    swap = _sum(_count(row, "AllocatedBaseSize") for row in cim["pagefile"])
    used = _sum(_count(row, "CurrentUsage") for row in cim["pagefile"])
    return MemoryFacts(
        total_bytes=_count(_first(cim, "system"), "TotalPhysicalMemory") or (visible * 1024 if visible else None),
        available_bytes=None if free is None else free * 1024,
        swap_total_bytes=None if swap is None else swap * 2**20,
        swap_free_bytes=None if swap is None or used is None else max(swap - used, 0) * 2**20,
    )


def _video(row: Mapping[str, Any], sizes: Mapping[str | None, int | None]) -> Gpu:
    name = word(row, "Name")
    ram = _count(row, "AdapterRAM")
    small = ram if ram and ram < _ADAPTER_RAM_FULL else None
    vendor = word(row, "AdapterCompatibility")
    known = {"Advanced Micro Devices, Inc.": "AMD", "Intel Corporation": "Intel"}
    return Gpu(
        name=name,
        vendor=known.get(vendor or "", vendor),
        memory_bytes=sizes.get(name) or small,
        driver=word(row, "DriverVersion"),
        source="cim",
    )


def _limits(machine: Machine, cim: Cim) -> HostLimits:
    """A PC that itself runs Hyper-V has a hypervisor too: only its absence, or the model's name, is proof."""
    system = _first(cim, "system")
    kind = hypervisor_of_dmi((word(system, "Model"), word(system, "Manufacturer")))
    absent = system.get("HypervisorPresent") is False
    return HostLimits(
        affinity_cpus=machine.affinity(),
        virtualised=True if kind else False if absent else None,
        hypervisor=kind,
    )
