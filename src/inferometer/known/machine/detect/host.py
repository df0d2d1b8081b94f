"""The facts detected about a machine. Unknown is None (or an empty tuple), never a guess.

Host
├── cpu: Cpu              model, instruction sets, cores, clocks, caches
├── memory: MemoryFacts   bytes, swap, NUMA nodes
├── gpus: Gpu …           whatever can be asked
├── limits: Limits        what a container, a virtual machine or an affinity mask leaves of it
└── sensors: PowerSensor … which energy readings there are, and why not
"""

from typing import Literal

from inferometer.core.frozen import frozen

CacheKind = Literal["data", "instruction", "unified"]
CoreKind = Literal["performance", "middle", "efficiency"]


@frozen
class Cache:
    """One kind of cache. `size_bytes` is one instance, `total_bytes` all `count` of them.

    `shared_by` counts the logical CPUs that share one. Windows knows the total alone.
    """

    level: int
    kind: CacheKind
    size_bytes: int | None = None
    shared_by: int | None = None
    count: int | None = None
    total_bytes: int | None = None


@frozen
class HostCores:
    """Cores of one design: all of them on most machines, P and E cores apart where there are both."""

    name: str | None = None
    kind: CoreKind | None = None
    cores: int | None = None
    logical_cores: int | None = None
    max_hz: float | None = None


@frozen
class Cpu:
    """`flags` are instruction sets known to be present, `flags_absent` those known to be missing.

    A flag in neither is one the system did not report. The names are Linux's; see `isa.FLAGS`.
    """

    model: str | None = None
    vendor: str | None = None
    architecture: str | None = None
    flags: tuple[str, ...] = ()
    flags_absent: tuple[str, ...] = ()
    physical_cores: int | None = None
    logical_cores: int | None = None
    performance_cores: int | None = None
    efficiency_cores: int | None = None
    sockets: int | None = None
    base_hz: float | None = None
    max_hz: float | None = None
    caches: tuple[Cache, ...] = ()
    groups: tuple[HostCores, ...] = ()

    def has(self, flag: str) -> bool | None:
        """Whether the instruction set is there; None where the system did not report it."""
        if flag in self.flags:
            return True
        return False if flag in self.flags_absent else None


@frozen
class NumaNode:
    index: int
    cpus: tuple[int, ...]
    memory_bytes: int | None


@frozen
class MemoryFacts:
    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    numa_nodes: tuple[NumaNode, ...] = ()


@frozen
class Gpu:
    """`shared_memory`: the memory is the host's own, as on a phone, a Jetson or a Mac.

    `cuda` is the newest CUDA version that the driver runs; `source` says where this was read.
    """

    name: str | None = None
    vendor: str | None = None
    memory_bytes: int | None = None
    shared_memory: bool | None = None
    driver: str | None = None
    cuda: str | None = None
    compute_capability: str | None = None
    cores: int | None = None
    max_hz: float | None = None
    power_limit_w: float | None = None
    source: str


@frozen
class OperatingSystem:
    name: str | None = None
    version: str | None = None
    kernel: str | None = None


@frozen
class HostLimits:
    """What this process may use of the machine. `quota_cpus` is the cgroup's CPU time per wall time."""

    affinity_cpus: int | None = None
    cpuset_cpus: int | None = None
    quota_cpus: float | None = None
    memory_bytes: int | None = None
    cgroup_version: Literal[1, 2] | None = None
    container: str | None = None
    virtualised: bool | None = None
    hypervisor: str | None = None


@frozen
class PowerSensor:
    """A source of energy or power readings: what it would measure, and if it cannot be used, why."""

    name: str
    available: bool
    why: str | None
    domains: tuple[str, ...]


@frozen
class Host:
    board: str | None
    cpu: Cpu
    memory: MemoryFacts
    gpus: tuple[Gpu, ...]
    os: OperatingSystem
    python: str | None
    limits: HostLimits
    sensors: tuple[PowerSensor, ...]

    @property
    def usable_cpus(self) -> float | None:
        """The smallest of: logical CPUs, affinity, cpuset, quota."""
        limits = self.limits
        known = (self.cpu.logical_cores, limits.affinity_cpus, limits.cpuset_cpus, limits.quota_cpus)
        return min((cpus for cpus in known if cpus is not None), default=None)

    @property
    def usable_memory_bytes(self) -> int | None:
        """The smaller of the memory there is and the memory the cgroup allows."""
        known = (self.memory.total_bytes, self.limits.memory_bytes)
        return min((size for size in known if size is not None), default=None)
