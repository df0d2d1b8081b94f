"""Linux: /proc and /sys as values."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from inferometer.core.frozen import frozen
from inferometer.known.machine.detect import isa
from inferometer.known.machine.detect.fields import (
    blocks,
    cpu_list,
    kib,
    pairs,
    scaled,
    size_bytes,
    stripped,
    whole,
)
from inferometer.known.machine.detect.gpus import linux_gpus
from inferometer.known.machine.detect.host import (
    Cache,
    CacheKind,
    CoreKind,
    Cpu,
    Host,
    HostCores,
    MemoryFacts,
    NumaNode,
    OperatingSystem,
)
from inferometer.known.machine.detect.limits import linux_limits
from inferometer.known.machine.detect.machine import Machine
from inferometer.known.machine.detect.sensors import linux_sensors

_CPU = "/sys/devices/system/cpu"
_NODE = "/sys/devices/system/node"
_DMI = "/sys/class/dmi/id"
# What a mainboard maker leaves in DMI when nobody filled it in.
_PLACEHOLDERS = frozenset(
    {"system product name", "system manufacturer", "default string", "to be filled by o.e.m.", "none", "not specified"}
)


@frozen
class CpuInfo:
    """/proc/cpuinfo: one mapping a logical CPU, by its number, and what stands outside them."""

    cpus: Mapping[int, Mapping[str, str]]
    board: Mapping[str, str]


@frozen
class LogicalCpu:
    """One logical CPU, as the kernel describes it."""

    index: int
    core: str
    package: int | None
    design: str | None
    kind: CoreKind | None
    capacity: int | None
    max_hz: float | None


def linux_host(machine: Machine) -> Host:
    info = parse_cpuinfo(machine.read("/proc/cpuinfo"))
    memory = _memory(machine)
    board = _board(machine, info)
    cpu = _cpu(machine, info)
    gpus = linux_gpus(machine, memory.total_bytes)
    release = parse_os_release(machine.read("/etc/os-release") or machine.read("/usr/lib/os-release"))
    version = re.match(r"Linux version (\S{1,200})", machine.read("/proc/version") or "")
    kernel = stripped(machine.read("/proc/sys/kernel/osrelease")) or (version[1] if version else None)
    return Host(
        board=board,
        cpu=cpu,
        memory=memory,
        gpus=gpus,
        os=OperatingSystem(name=release.name or "Linux", version=release.version, kernel=kernel),
        python=machine.python,
        limits=linux_limits(machine, info.cpus.get(min(info.cpus, default=0), {}).get("flags")),
        sensors=linux_sensors(machine, board, gpus),
    )


def parse_cpuinfo(text: str | None) -> CpuInfo:
    cpus: dict[int, Mapping[str, str]] = {}
    board: dict[str, str] = {}
    for block in blocks(text):
        index = whole(block.get("processor"))
        if index is None or index < 0:
            board |= block
        else:
            cpus[index] = block
    return CpuInfo(cpus=cpus, board=board)


def parse_meminfo(text: str | None) -> dict[str, int]:
    """`MemTotal` and the others, in bytes."""
    sizes = {key: kib(value) for key, value in pairs(text).items()}
    return {key: value for key, value in sizes.items() if value is not None}


def parse_os_release(text: str | None) -> OperatingSystem:
    """NAME and VERSION of /etc/os-release; the kernel's version is found elsewhere."""
    fields = {key: value.strip("\"'") for key, value in pairs(text, "=").items()}
    name = stripped(fields.get("NAME")) or stripped(fields.get("PRETTY_NAME"))
    version = stripped(fields.get("VERSION")) or stripped(fields.get("VERSION_ID"))
    return OperatingSystem(name=name, version=version, kernel=None)


def _memory(machine: Machine) -> MemoryFacts:
    info = parse_meminfo(machine.read("/proc/meminfo"))
    return MemoryFacts(
        total_bytes=info.get("MemTotal"),
        available_bytes=info.get("MemAvailable"),
        swap_total_bytes=info.get("SwapTotal"),
        swap_free_bytes=info.get("SwapFree"),
        numa_nodes=tuple(_numa_node(machine, index) for index in _numbered(machine, _NODE, "node")),
    )


def _numa_node(machine: Machine, index: int) -> NumaNode:
    total = re.search(r"MemTotal:\s*([0-9]{1,20}) kB", machine.read(f"{_NODE}/node{index}/meminfo") or "", re.ASCII)
    cpus = cpu_list(machine.read(f"{_NODE}/node{index}/cpulist"))
    return NumaNode(index=index, cpus=cpus, memory_bytes=kib(total[1]) if total else None)


def _numbered(machine: Machine, folder: str, prefix: str) -> list[int]:
    matches = (re.fullmatch(rf"{prefix}([0-9]{{1,5}})", name, re.ASCII) for name in machine.names(folder))
    return sorted(int(match[1]) for match in matches if match)


def _board(machine: Machine, info: CpuInfo) -> str | None:
    """The device tree's model on small boards; vendor and product of DMI on PCs and servers."""
    tree = stripped(machine.read("/proc/device-tree/model")) or stripped(
        machine.read("/sys/firmware/devicetree/base/model")
    )
    if tree:
        return tree
    parts = (stripped(machine.read(f"{_DMI}/{name}")) for name in ("sys_vendor", "product_name"))
    named = [part for part in parts if part and part.lower() not in _PLACEHOLDERS]
    if len(named) == 2 and named[1].startswith(named[0]):  # Google · Google Compute Engine
        return named[1]
    return " ".join(named) or stripped(info.board.get("Model"))


def _cpu(machine: Machine, info: CpuInfo) -> Cpu:
    architecture = isa.architecture_name(machine.architecture)
    first = info.cpus.get(min(info.cpus, default=0), {})
    logical = _logical_cpus(machine, info, architecture)
    groups = _groups(logical)
    vendor, model = _names(first, groups)
    words = (first.get("flags") or first.get("Features") or first.get("features") or "").split()
    flags, absent = isa.flags_of_linux(architecture, words or isa.riscv_letters(first.get("isa")))
    kinds = {group.kind: group.cores for group in groups if group.kind}
    clocks = [cpu.max_hz for cpu in logical if cpu.max_hz is not None]
    # None where neither sysfs nor cpuinfo says which CPUs are threads of one core.
    untold = any(cpu.core.startswith("cpu") for cpu in logical)
    # Older ARM kernels without ACPI write the cluster where the package belongs: several are then not believed
    packages = {cpu.package for cpu in logical if cpu.package is not None and cpu.package >= 0}
    clusters = architecture in {"arm64", "arm"} and "PPTT" not in machine.names("/sys/firmware/acpi/tables")
    return Cpu(
        model=model,
        vendor=vendor,
        architecture=architecture,
        flags=flags,
        flags_absent=absent,
        physical_cores=None if untold or not logical else len({cpu.core for cpu in logical}),
        logical_cores=len(logical) or None,
        performance_cores=kinds.get("performance"),
        efficiency_cores=kinds.get("efficiency"),
        sockets=None if not packages or (clusters and len(packages) > 1) else len(packages),
        base_hz=_base_hz(machine, logical, model),
        max_hz=max(clocks, default=None),
        caches=_caches(machine, [cpu.index for cpu in logical]),
        groups=groups,
    )


def _names(first: Mapping[str, str], groups: Sequence[HostCores]) -> tuple[str | None, str | None]:
    """(vendor, model). An ARM kernel's "model name" says no more than ARMv8, so the core designs are named instead."""
    vendor, design = isa.arm_core(whole(first.get("CPU implementer")), whole(first.get("CPU part")))
    if design is None:
        vendor = isa.vendor_name(stripped(first.get("vendor_id")))
        return vendor, stripped(first.get("model name")) or stripped(first.get("uarch"))
    designs = [group for group in groups if group.name]
    if len({group.name for group in designs}) < 2:
        return vendor, design
    return vendor, " + ".join(f"{group.cores}x {group.name}" for group in designs)


def _logical_cpus(machine: Machine, info: CpuInfo, architecture: str | None) -> list[LogicalCpu]:
    online = cpu_list(machine.read(f"{_CPU}/online")) or tuple(sorted(info.cpus))
    hybrid: dict[int, CoreKind] = dict.fromkeys(cpu_list(machine.read("/sys/devices/cpu_core/cpus")), "performance")
    hybrid |= dict.fromkeys(cpu_list(machine.read("/sys/devices/cpu_atom/cpus")), "efficiency")
    capacities = {} if architecture in {"x86-64", "x86"} else _capacities(machine, online)
    kind_of = _kind_by_capacity(capacities)
    return [
        LogicalCpu(
            index=index,
            core=_core(machine, index, info.cpus.get(index, {})),
            package=whole(machine.read(f"{_CPU}/cpu{index}/topology/physical_package_id")),
            design=_design(info.cpus.get(index, {})),
            kind=hybrid.get(index) or kind_of(capacities.get(index)),
            capacity=capacities.get(index),
            max_hz=scaled(machine.read(f"{_CPU}/cpu{index}/cpufreq/cpuinfo_max_freq"), 1e3),
        )
        for index in online
    ]


def _capacities(machine: Machine, online: Sequence[int]) -> dict[int, int]:
    capacities = {index: whole(machine.read(f"{_CPU}/cpu{index}/cpu_capacity")) for index in online}
    return {index: value for index, value in capacities.items() if value is not None}


def _kind_by_capacity(capacities: Mapping[int, int]) -> Callable[[int | None], CoreKind | None]:
    """The kernel's relative capacity distinguishes big cores from little ones, where there are both."""
    low, high = min(capacities.values(), default=0), max(capacities.values(), default=0)

    def kind(capacity: int | None) -> CoreKind | None:
        if capacity is None or low == high:
            return None
        return "performance" if capacity == high else "efficiency" if capacity == low else "middle"

    return kind


def _core(machine: Machine, index: int, info: Mapping[str, str]) -> str:
    """A text that is the same for the hardware threads of one core, and for no others."""
    siblings = machine.read(f"{_CPU}/cpu{index}/topology/thread_siblings_list")
    if siblings := stripped(siblings):
        return siblings
    package, core = info.get("physical id"), info.get("core id")
    return f"{package}/{core}" if core is not None else f"cpu{index}"


def _design(info: Mapping[str, str]) -> str | None:
    return isa.arm_core(whole(info.get("CPU implementer")), whole(info.get("CPU part")))[1]


def _groups(logical: Sequence[LogicalCpu]) -> tuple[HostCores, ...]:
    """Cores of one design and kind together, the fastest first."""
    groups: dict[tuple[str | None, CoreKind | None], list[LogicalCpu]] = {}
    for cpu in logical:
        groups.setdefault((cpu.design, cpu.kind), []).append(cpu)
    order = [*get_args(CoreKind), None]
    return tuple(
        HostCores(
            name=name,
            kind=kind,
            cores=len({cpu.core for cpu in members}),
            logical_cores=len(members),
            max_hz=max((cpu.max_hz for cpu in members if cpu.max_hz is not None), default=None),
        )
        for (name, kind), members in sorted(groups.items(), key=lambda item: order.index(item[0][1]))
    )


def _base_hz(machine: Machine, logical: Sequence[LogicalCpu], model: str | None) -> float | None:
    for cpu in logical[:1]:
        folder = f"{_CPU}/cpu{cpu.index}"
        hertz = scaled(machine.read(f"{folder}/cpufreq/base_frequency"), 1e3) or scaled(
            machine.read(f"{folder}/acpi_cppc/nominal_freq"), 1e6
        )
        if hertz:
            return hertz
    named = re.search(r"@ ([0-9]{1,2}\.[0-9]{1,3})GHz", model or "", re.ASCII)
    return float(named[1]) * 1e9 if named else None


def _caches(machine: Machine, online: Sequence[int]) -> tuple[Cache, ...]:
    """Every cache once: a CPU whose cache was seen from a sibling is not read again."""
    seen: Counter[tuple[int, CacheKind, int | None, int]] = Counter()
    covered: set[tuple[str, int]] = set()
    for cpu in online:
        folder = f"{_CPU}/cpu{cpu}/cache"
        for name in machine.names(folder):
            if (name, cpu) in covered or not name.startswith("index"):
                continue
            level = whole(machine.read(f"{folder}/{name}/level"))
            kind = _cache_kind(machine.read(f"{folder}/{name}/type"))
            shared = cpu_list(machine.read(f"{folder}/{name}/shared_cpu_list")) or (cpu,)
            covered.update((name, other) for other in shared)
            if level is not None and kind is not None:
                seen[level, kind, size_bytes(machine.read(f"{folder}/{name}/size")), len(shared)] += 1
    return tuple(
        Cache(
            level=level,
            kind=kind,
            size_bytes=size,
            shared_by=shared_by,
            count=count,
            total_bytes=None if size is None else size * count,
        )
        for (level, kind, size, shared_by), count in sorted(seen.items(), key=lambda item: item[0][:2] + item[0][3:])
    )


def _cache_kind(text: str | None) -> CacheKind | None:
    kind = (stripped(text) or "").lower()
    return next((known for known in get_args(CacheKind) if known == kind), None)
