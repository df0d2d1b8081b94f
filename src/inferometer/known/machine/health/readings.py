"""What the checks look at: counters, read twice an interval apart, and a state, read once.

Whatever could not be read is an `Absent` with the reason, which the check repeats. Units are SI; shares are of 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from inferometer.core.box import Means
from inferometer.core.frozen import frozen
from inferometer.known.engines import engines
from inferometer.known.machine.detect.host import Host
from inferometer.known.machine.detect.machine import Disk, Machine

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Absent:
    """A reading that is not there, and why: "no cpufreq in this VM"."""

    why: str


class UnreadableError(Exception):
    """A reading that a check needs is not there: the check is then unknown, for this reason."""


def known(reading: T | Absent) -> T:
    if isinstance(reading, Absent):
        raise UnreadableError(reading.why)
    return reading


def both(before: T | Absent, after: T | Absent) -> tuple[T, T]:
    """A counter at both ends of the interval."""
    last = known(after)
    return known(Absent("it could not be read the first time") if isinstance(before, Absent) else before), last


@frozen
class Load:
    """Averages of runnable tasks (on Linux also of tasks waiting for a disk) over 1, 5 and 15 minutes."""

    one: float
    five: float
    fifteen: float


@frozen
class RunQueue:
    running: int
    blocked: int | None


@frozen
class Pressure:
    """Share of time in which some task waited for the resource; `stalled_s` counts up since boot."""

    some_avg10: float
    stalled_s: float


@frozen
class CpuTime:
    """Seconds since boot. `steal_s` is what a hypervisor gave to others; None where the system does not count it."""

    busy_s: float
    idle_s: float
    steal_s: float | None


@frozen
class ProcessTime:
    name: str
    cpu_s: float


@frozen
class MemoryState:
    total_bytes: int
    available_bytes: int
    swap_total_bytes: int
    swap_used_bytes: int


@frozen
class Paging:
    """Bytes swapped in and out since boot."""

    in_bytes: int
    out_bytes: int


@frozen
class LinkCounts:
    packets: int
    errors: int
    drops: int


@frozen
class TcpCounts:
    sent: int
    retransmitted: int


@frozen
class QuotaCounts:
    """How often the cgroup's CPU quota stopped this container."""

    stops: int


@frozen
class Counters:
    load: Load | Absent
    queue: RunQueue | Absent
    pressure: Mapping[str, Pressure] | Absent
    cpu: CpuTime | Absent
    cpus: tuple[CpuTime, ...]
    processes: Mapping[int, ProcessTime] | Absent
    memory: MemoryState | Absent
    paging: Paging | Absent
    links: Mapping[str, LinkCounts] | Absent
    tcp: TcpCounts | Absent
    disk_busy_s: Mapping[str, float] | Absent
    throttle_events: int | Absent
    quota: QuotaCounts | Absent


@frozen
class ClockPolicy:
    """How one CPU's clock is chosen: by whom, and up to where."""

    cpu: int
    governor: str | None
    driver: str | None
    current_hz: float | None
    allowed_hz: float | None
    max_hz: float | None


@frozen
class Temperature:
    name: str
    celsius: float
    high_c: float | None
    critical_c: float | None


@frozen
class GpuState:
    """A GPU now. `throttle` are NVML's clock event reasons, a set of bits."""

    name: str
    celsius: float | None
    busy: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    throttle: int | None = None


@frozen
class KernelEvent:
    """A line of the kernel's log that should not be there. `age_s` is None where the line has no time."""

    kind: str
    age_s: float | None
    text: str


@frozen
class BoardThrottle:
    """What a board's firmware or a system's thermal control says about the clock, now and since boot."""

    now: tuple[str, ...]
    since_boot: tuple[str, ...]


@frozen
class Supply:
    """`charge` is the battery's, as a share."""

    has_battery: bool
    on_mains: bool | None
    charge: float | None


@frozen
class State:
    clocks: tuple[ClockPolicy, ...] | Absent
    temperatures: tuple[Temperature, ...] | Absent
    gpus: tuple[GpuState, ...] | Absent
    kernel: tuple[KernelEvent, ...] | Absent
    board: BoardThrottle | Absent
    supply: Supply | Absent
    disks: tuple[Disk, ...] | Absent
    clock_source: str | Absent
    packages: Mapping[str, str]


@frozen
class Readings:
    """Everything a check may look at."""

    host: Host
    before: Counters
    after: Counters
    elapsed_s: float
    state: State
    pid: int | None = None
    call_s: float | Absent = Absent("it was not timed")
    box: Means | Absent = Absent("it was not tried")

    @property
    def seconds(self) -> float:
        """Between the two readings; a check that needs a rate is unknown without any."""
        return known(self.elapsed_s if self.elapsed_s > 0 else Absent("no time passed between the two readings"))


# The installed packages that decide what a measurement means, looked up without importing one of them.

_BESIDE = ("inferometer", "numpy", "psutil", "nvidia-ml-py")
_UNDESCRIBED = ("tflite-runtime", "llama-cpp-python", "mlx")  # engines that no descriptor names


def engine_packages() -> tuple[str, ...]:
    """Distributions that are engines, plug-ins' too."""
    described = (package for each in engines().values() for package in each.packages)
    return tuple(dict.fromkeys((*described, *_UNDESCRIBED)))


def installed_packages(machine: Machine) -> dict[str, str]:
    """Name → version of each installed package."""
    versions = {name: machine.installed(name) for name in (*_BESIDE, *engine_packages())}
    return {name: version for name, version in versions.items() if version is not None}
