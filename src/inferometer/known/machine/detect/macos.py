"""macOS: sysctl, sw_vers, vm_stat and system_profiler as values."""

import re
from collections.abc import Mapping
from typing import Any

from inferometer.known.machine.detect import isa
from inferometer.known.machine.detect.fields import (
    decoded,
    number,
    pairs,
    rows,
    size_bytes,
    stripped,
    table,
    whole,
    word,
)
from inferometer.known.machine.detect.host import (
    Cache,
    CacheKind,
    CoreKind,
    Cpu,
    Gpu,
    Host,
    HostCores,
    HostLimits,
    MemoryFacts,
    OperatingSystem,
)
from inferometer.known.machine.detect.machine import Machine
from inferometer.known.machine.detect.sensors import macos_sensors

_KINDS: Mapping[str, CoreKind] = {"Performance": "performance", "Super": "performance", "Efficiency": "efficiency"}
_CACHES: tuple[tuple[int, CacheKind, str], ...] = (
    (1, "data", "l1dcachesize"),
    (1, "instruction", "l1icachesize"),
    (2, "unified", "l2cachesize"),
    (3, "unified", "l3cachesize"),
)


def macos_host(machine: Machine) -> Host:
    sysctl = pairs(machine.run("sysctl", "-a"))
    swap_total, swap_free = parse_swap_usage(sysctl.get("vm.swapusage"))
    memory = MemoryFacts(
        total_bytes=whole(sysctl.get("hw.memsize")),
        available_bytes=parse_vm_stat(machine.run("vm_stat")),
        swap_total_bytes=swap_total,
        swap_free_bytes=swap_free,
    )
    cpu = _cpu(machine, sysctl)
    battery = "InternalBattery" in (machine.run("pmset", "-g", "batt") or "")
    displays = table(decoded(machine.run("system_profiler", "SPDisplaysDataType", "-json")))
    return Host(
        board=stripped(sysctl.get("hw.model")),
        cpu=cpu,
        memory=memory,
        gpus=tuple(_gpu(row, memory.total_bytes) for row in rows(displays.get("SPDisplaysDataType"))),
        os=parse_sw_vers(machine.run("sw_vers"), sysctl.get("kern.osrelease")),
        python=machine.python,
        limits=_limits(machine, sysctl),
        sensors=macos_sensors(machine, battery=battery),
    )


def parse_sw_vers(text: str | None, kernel: str | None) -> OperatingSystem:
    fields = pairs(text)
    version, build = stripped(fields.get("ProductVersion")), stripped(fields.get("BuildVersion"))
    return OperatingSystem(
        name=stripped(fields.get("ProductName")) or "macOS",
        version=f"{version} ({build})" if version and build else version,
        kernel=f"Darwin {kernel}" if kernel else None,
    )


def parse_vm_stat(text: str | None) -> int | None:
    """Bytes that a new program can have: free, inactive and speculative pages, as psutil counts them."""
    page = re.search(r"page size of ([0-9]{1,9}) bytes", text or "", re.ASCII)
    fields = pairs(text)
    free, inactive, speculative = (_pages(fields.get(f"Pages {kind}")) for kind in ("free", "inactive", "speculative"))
    if page is None or free is None or inactive is None:
        return None
    return (free + inactive + (speculative or 0)) * int(page[1])


def _pages(text: str | None) -> int | None:
    """A count of pages; vm_stat ends each with a full stop."""
    return whole((text or "").strip().removesuffix("."))


def parse_swap_usage(text: str | None) -> tuple[int | None, int | None]:
    """(total, free) of `total = 2048.00M  used = 1024.00M  free = 1024.00M`."""

    def field(name: str) -> int | None:
        match = re.search(rf"{name} = ([0-9]{{1,12}}(?:\.[0-9]{{1,6}})?)([KMG])", text or "", re.ASCII)
        factor = {"K": 2**10, "M": 2**20, "G": 2**30}
        return int(float(match[1]) * factor[match[2]]) if match else None

    return field("total"), field("free")


def _cpu(machine: Machine, sysctl: Mapping[str, str]) -> Cpu:
    # A Python for Intel under Rosetta calls this x86_64; the chip itself says what it is.
    apple = sysctl.get("hw.optional.arm64") == "1"
    architecture = "arm64" if apple else isa.architecture_name(machine.architecture)
    flags, absent = isa.flags_of_macos(architecture, sysctl)
    groups = tuple(_group(sysctl, level) for level in range(min(whole(sysctl.get("hw.nperflevels")) or 0, 8)))
    kinds = {group.kind: group.cores for group in groups if len(groups) > 1}
    return Cpu(
        model=stripped(sysctl.get("machdep.cpu.brand_string")),
        vendor="Apple" if apple else isa.vendor_name(stripped(sysctl.get("machdep.cpu.vendor"))),
        architecture=architecture,
        flags=flags,
        flags_absent=absent,
        physical_cores=whole(sysctl.get("hw.physicalcpu")),
        logical_cores=whole(sysctl.get("hw.logicalcpu")),
        performance_cores=kinds.get("performance"),
        efficiency_cores=kinds.get("efficiency"),
        sockets=whole(sysctl.get("hw.packages")),
        base_hz=number(sysctl.get("hw.cpufrequency")),
        max_hz=number(sysctl.get("hw.cpufrequency_max")),
        caches=_caches(sysctl, groups),
        groups=groups,
    )


def _group(sysctl: Mapping[str, str], level: int) -> HostCores:
    name = stripped(sysctl.get(f"hw.perflevel{level}.name"))
    return HostCores(
        name=name,
        kind=_KINDS.get(name or ""),
        cores=whole(sysctl.get(f"hw.perflevel{level}.physicalcpu")),
        logical_cores=whole(sysctl.get(f"hw.perflevel{level}.logicalcpu")),
    )


def _caches(sysctl: Mapping[str, str], groups: tuple[HostCores, ...]) -> tuple[Cache, ...]:
    """Each level of performance has caches of its own; an Intel Mac has one set."""
    if not groups:
        return tuple(_cache(*row[:2], whole(sysctl.get(f"hw.{row[2]}")), None, None) for row in _told(sysctl, "hw."))
    caches = []
    for level, group in enumerate(groups):
        prefix = f"hw.perflevel{level}."
        for depth, kind, name in _told(sysctl, prefix):
            sharing = whole(sysctl.get(f"{prefix}cpusperl{depth}")) if depth > 1 else 1
            count = -(-group.logical_cores // sharing) if group.logical_cores and sharing and sharing > 0 else None
            caches.append(_cache(depth, kind, whole(sysctl.get(prefix + name)), sharing, count))
    return tuple(caches)


def _told(sysctl: Mapping[str, str], prefix: str) -> list[tuple[int, CacheKind, str]]:
    return [row for row in _CACHES if (whole(sysctl.get(prefix + row[2])) or 0) > 0]


def _cache(level: int, kind: CacheKind, size: int | None, shared_by: int | None, count: int | None) -> Cache:
    total = size * count if size is not None and count is not None else None
    return Cache(level=level, kind=kind, size_bytes=size, shared_by=shared_by, count=count, total_bytes=total)


def _gpu(row: Mapping[str, Any], memory_bytes: int | None) -> Gpu:
    model, made_by = word(row, "sppci_model"), word(row, "spdisplays_vendor") or ""
    apple = made_by == "sppci_vendor_Apple" or (model or "").startswith("Apple")
    own = size_bytes(word(row, "spdisplays_vram") or word(row, "_spdisplays_vram"))
    vendor = re.sub(r"^sppci_vendor_|\s*\(0x[0-9a-f]+\)$", "", made_by)
    return Gpu(
        name=model or word(row, "_name"),
        vendor="Apple" if apple else vendor or None,
        memory_bytes=memory_bytes if apple else own,
        shared_memory=True if apple else None,
        cores=whole(word(row, "sppci_cores")),
        source="system_profiler",
    )


def _limits(machine: Machine, sysctl: Mapping[str, str]) -> HostLimits:
    virtual = {"1": True, "0": False}.get(sysctl.get("kern.hv_vmm_present", ""))
    return HostLimits(
        affinity_cpus=machine.affinity(),
        virtualised=virtual,
    )
