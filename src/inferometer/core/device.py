"""Devices: peaks, memories, links, power and price, each number with where it comes from.

Unknown is `None`, never a guess. Derived figures (operations per watt, the ridge point) are computed from these.
"""

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Literal, get_args

from inferometer.core.dtypes import dtype
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.lazy import late

Origin = Literal["datasheet", "prior", "calibrated", "measured"]
ORIGINS: tuple[Origin, ...] = get_args(Origin)
Unit = Literal["cpu", "gpu", "npu", "tpu"]
UNITS: tuple[Unit, ...] = get_args(Unit)

LOCAL = "local"  # this machine, and the name of its CPU; its units without a row are `local:gpu`, `local:gpu:1` …


def is_local(name: str) -> bool:
    """Whether a device's name means the machine at hand, which is another one wherever it is read."""
    return name.partition(":")[0] == LOCAL


@frozen
class Sourced:
    """A number in SI base units, with its origin, source and date."""

    value: float
    origin: Origin
    source: str
    date: str
    note: str | None = None

    def __float__(self) -> float:
        return float(self.value)


@frozen
class Memory:
    """One level of memory. `level` is its place (hbm, dram, l2 …), `kind` its make (HBM3e, LPDDR5 …).

    `capacity_bytes` is the label's; `usable_bytes` what the driver or the operating system shows of it, which is less:
    error correction, firmware and a display take their share.
    """

    level: str
    kind: str | None = None
    capacity_bytes: Sourced | None = None
    usable_bytes: Sourced | None = None
    bandwidth_bytes_per_s: Sourced | None = None
    latency_s: Sourced | None = None

    @property
    def room(self) -> Sourced | None:
        """What a program can fill: the usable bytes, or the label's where nobody has said how many are usable."""
        return self.usable_bytes or self.capacity_bytes


@frozen
class CoreGroup:
    """Cores of one design at one clock: the big ones of a phone, the multiprocessors of a GPU."""

    core: str
    count: int
    clock_hz: float
    ops_per_cycle: Mapping[str, float]  # dense operations of one core in a cycle, by arithmetic format

    def peak(self, name: str, count: int | None = None) -> float:
        """Operations per second of all its cores, or of `count` of them; 0 in a format that they do not compute."""
        return (self.count if count is None else count) * self.clock_hz * self.ops_per_cycle.get(name, 0.0)


@frozen
class Link:
    """A connection. Bandwidth is per direction and per device, whatever the vendor's total says.

    `devices` is how many it joins at most, where that is not as many as a machine has.
    """

    name: str
    title: str
    kind: str
    topology: str | None = None
    bandwidth_bytes_per_s: Sourced | None = None
    latency_s: Sourced | None = None
    devices: int | None = None


@frozen
class DeviceShares:
    """What a device reaches of its own peaks, as its row states it: of arithmetic, memory, storage and links.

    They stand in place of the class priors where nothing was measured. `host` is the host link, `network` what lies
    between devices.
    """

    compute: Sourced | None = None
    memory: Sourced | None = None
    storage: Sourced | None = None
    host: Sourced | None = None
    network: Sourced | None = None


_INSTRUCTION_SETS = {
    "x86": re.compile(r"zen|lake|cove|mont|rapids|haswell|broadwell|knights|^x86"),
    "apple": re.compile(r"apple|firestorm"),
    "risc-v": re.compile(r"sifive|spacemit|xuantie|^riscv"),
    "loongarch": re.compile(r"^la\d|gs464|^loongarch"),
}  # by the names of cores; the others are Arm's
_ENGINE_SETS = {"apple": "arm"}  # Apple's cores are Arm's to an engine
ENGINE_SETS = ("x86", "arm", "risc-v", "loongarch")


@frozen
class Device:
    """One compute unit with its memory. A chip with several units is several devices that share a `chip` name."""

    name: str
    title: str
    vendor: str
    unit: Unit
    kind: str | None = None
    family: str | None = None
    chip: str | None = None
    aliases: tuple[str, ...] = ()
    year: int | None = None
    peaks: Mapping[str, Sourced] = field(default_factory=dict)  # dense operations per second, by arithmetic format
    memories: tuple[Memory, ...] = ()  # main memory first, then the caches, far to near
    flash_bytes: Sourced | None = None  # of a microcontroller: where weights stay, and are read in place
    host_link: Link | None = None
    peer_link: Link | None = None
    network_link: Link | None = None  # to devices elsewhere
    storage_bytes_per_s: Sourced | None = None  # what models are loaded from
    shares: DeviceShares = DeviceShares()
    cores: Sourced | None = None
    core_groups: tuple[CoreGroup, ...] = ()  # the fastest cores first
    clock_hz: Sourced | None = None
    vector_bits: int | None = None  # of a CPU: the registers that its f32 peak needs, where that is known
    launch_s: Sourced | None = None  # host cost of starting one kernel
    call_s: Sourced | None = None  # of a CPU: one call from Python into compiled code, as `inferometer doctor` reads it
    power_w: Sourced | None = None
    busy_w: Sourced | None = None  # while it runs networks, as measured or as its maker calls typical: no limit
    idle_w: Sourced | None = None
    cooling_w: Sourced | None = None  # what its cooling takes away for good: drawing more, it slows down when warm
    warms_s: Sourced | None = None  # the time constant of its warming: 63 % of the way to its last temperature
    battery_j: Sourced | None = None
    joules_per_flop: Sourced | None = None  # in place of power; both or none
    joules_per_byte: Sourced | None = None
    price_usd: Sourced | None = None
    notes: str | None = None

    @property
    def shares_power(self) -> bool:
        """Whether `power_w` is the whole chip's: no ratio of this unit's figures to it says anything of the unit."""
        return self.chip is not None

    @property
    def memory(self) -> Memory | None:
        """Main memory."""
        return self.memories[0] if self.memories else None

    @property
    def streams_weights(self) -> bool:
        """Whether all its memory is on the chip and its host sends what that does not hold, as to a USB accelerator."""
        on_chip = self.memory is not None and self.memory.level == "sram"
        return on_chip and self.host_link is not None and self.host_link.bandwidth_bytes_per_s is not None

    @property
    def instruction_set(self) -> str | None:
        """Of a CPU, by the name of its cores or, of a machine that was detected, of its architecture."""
        core = self.core_groups[0].core if self.core_groups else self.family
        if self.unit != "cpu" or core is None:
            return None
        known = (name for name, pattern in _INSTRUCTION_SETS.items() if pattern.search(core))
        return next(known, "arm")

    @property
    def engine_set(self) -> str | None:
        """The instruction set as engines are built for them."""
        return _ENGINE_SETS.get(self.instruction_set or "", self.instruction_set)

    def peak(self, name: str) -> Sourced:
        """The peak for one arithmetic format; one the device has no figure for is an error that names those it has."""
        canonical = dtype(name).name
        if canonical not in self.peaks:
            known = ", ".join(self.peaks) or "none"
            raise DomainError(f"{self.name} has no peak for {canonical} (it has: {known}).")
        return self.peaks[canonical]

    @property
    def is_bare(self) -> bool:
        """Whether programs run on it without an operating system."""
        return self.kind == "microcontroller"

    def peak_of_threads(self, name: str, threads: int) -> float:
        """Operations per second of a number of threads, one a core, on the fastest cores first.

        Threads beyond the cores add nothing. A device whose cores are not known shares its peak evenly among the cores
        it counts, and gives all of it where it counts none.
        """
        whole = self.peak(name).value
        canonical, left, reached = dtype(name).name, threads, 0.0
        for group in self.core_groups:
            used = min(left, group.count)
            reached += group.peak(canonical, used)
            left -= used
        if reached:
            return min(reached, whole)
        return whole * min(1.0, threads / self.cores.value) if self.cores and self.cores.value else whole

    def even_peak(self, name: str, threads: int) -> float:
        """Operations per second of threads that get even shares: each waits for the slowest core in use."""
        left, slowest, used = threads, float("inf"), 0
        for group in self.core_groups:
            if left > 0 and group.count and group.peak(name, 1) > 0:
                taken = min(left, group.count)
                slowest, used, left = min(slowest, group.peak(name, 1)), used + taken, left - taken
        return self.peak_of_threads(name, threads) if not used else min(used * slowest, self.peak(name).value)

    def __repr__(self) -> str:
        return f"<device {self.name}: {self.title}>"

    def _repr_html_(self) -> str:
        return str(late("notebook", "view_html")(self))

    def level(self, name: str) -> Memory:
        for memory in self.memories:
            if memory.level == name:
                return memory
        raise UnknownNameError("memory level", name, [memory.level for memory in self.memories])


# The best a machine has shown, for one that no datasheet describes.


@frozen
class Roof:
    """Measured by one method, kept, and stored with every run that is judged by it.

    `peaks` are operations per second by arithmetic format; `bandwidth_bytes_per_s` is of main memory. `call_s` is what
    a CPU takes for one call from Python into compiled code. `threads` copied memory at once, one for each CPU that may
    be used. `busy` says that other programs used the machine meanwhile, so that it may do better. `power_w`, `idle_w`,
    `cooling_w` and `warms_s` are there once `calibrate --cooling` has fitted a long run with a power meter.
    """

    machine: str
    created: str
    peaks: Mapping[str, Sourced]
    bandwidth_bytes_per_s: Sourced
    call_s: Sourced | None = None
    threads: int = 1
    busy: bool = False
    power_w: Sourced | None = None
    idle_w: Sourced | None = None
    cooling_w: Sourced | None = None
    warms_s: Sourced | None = None
