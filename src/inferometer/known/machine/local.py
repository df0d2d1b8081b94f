"""The machine at hand as a `Device`: its best unit, or a named one (`local:cpu`, `local:gpu`, `local:gpu:1`).

A GPU with a row in the catalog is that row, with all that is known of it. Other units have what the operating system
reports; their peaks are unknown until they are measured, so they are absent.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache

from inferometer.core.device import LOCAL, Device, Memory, Sourced
from inferometer.core.errors import UnknownNameError
from inferometer.known.files import rows_with
from inferometer.known.load import CatalogRow
from inferometer.known.machine.detect import Host, detect_host
from inferometer.known.machine.detect.host import Cpu, Gpu

# Words in the name of a card that do not tell it from others: makers, brands, and the size and kind of its memory.
_SAYS_LITTLE = frozenset({
    "nvidia", "amd", "intel", "apple", "qualcomm", "geforce", "tesla", "instinct", "radeon", "graphics", "generation",
    "integrated", "developer", "kit", "gpu", "hbm2", "hbm2e", "hbm3", "hbm3e", "edition", "engineering", "reference",
})  # fmt: skip
_SIZE = re.compile(r"\d+gb")
_ABOUT = 0.14  # how far the memory that a driver reports is from the data sheet's: GB or GiB, less what it reserves


def local_device(name: str = LOCAL, host: Host | None = None) -> Device:
    """The unit of this machine with that name; without one its best: a GPU that engines use, otherwise the CPU."""
    host = host or detect_host()
    date = datetime.now(tz=UTC).date().isoformat()
    asked, _, index = name.removeprefix(LOCAL).removeprefix(":").partition(":")
    gpus = [gpu for gpu in host.gpus if _used(gpu, host)] if not asked else list(host.gpus)
    if asked == "cpu" or (not asked and not gpus):
        return device_of_host(host, date=date)
    number = int(index) if index.isdecimal() else 0
    if asked not in {"", "gpu"} or not number < len(gpus):
        raise UnknownNameError("unit of this machine", name, _units(host), listing=f"Known: {', '.join(_units(host))}.")
    row = row_for_gpu(gpus[number], host.board)
    return _device_named(row) if row else _device_of_gpu(gpus[number], number, date)


def _units(host: Host) -> list[str]:
    several = len(host.gpus) > 1
    gpus = [f"{LOCAL}:gpu:{number}" if several else f"{LOCAL}:gpu" for number in range(len(host.gpus))]
    return [LOCAL, f"{LOCAL}:cpu", *gpus]


def _used(gpu: Gpu, host: Host) -> bool:
    """Whether engines run on it by default: one with a row, or one with memory of its own. Not a display adapter."""
    own_memory = bool(gpu.memory_bytes) and gpu.shared_memory is False
    return gpu.vendor == "NVIDIA" or own_memory or row_for_gpu(gpu, host.board) is not None


def device_of_host(host: Host, *, date: str) -> Device:
    """The CPU of a detected machine: what the operating system reports, and nothing else."""
    cpu = host.cpu
    return Device(
        name=LOCAL,
        title=host.board or cpu.model or "This machine",
        vendor=cpu.vendor or "unknown",
        unit="cpu",
        family=cpu.architecture,
        memories=(
            Memory(level="dram", capacity_bytes=_found(host.usable_memory_bytes, date)),
            *(Memory(level=f"l{level}", capacity_bytes=_found(size, date)) for level, size in _caches(host).items()),
        ),
        cores=_found(cpu.physical_cores, date),
        clock_hz=_found(cpu.max_hz, date),
        vector_bits=_vector_bits(cpu),
        notes="Detected on this machine. Peaks and bandwidths are unknown until they are measured.",
    )


def _vector_bits(cpu: Cpu) -> int | None:
    """Xeons with AVX-512 have two units for it; others that have it compute in halves, or with one: nothing is said."""
    return 512 if cpu.has("avx512f") and "xeon" in (cpu.model or "").casefold() else None


def _found(value: float | None, date: str) -> Sourced | None:
    return None if value is None else Sourced(value=value, origin="measured", source="operating system", date=date)


def _caches(host: Host) -> dict[int, int]:
    """Bytes of each level for data, all cores together, far to near. P and E cores each have their own."""
    totals: dict[int, int] = {}
    for cached in sorted(host.cpu.caches, key=lambda cached: -cached.level):
        if cached.kind != "instruction" and cached.total_bytes is not None:
            totals[cached.level] = totals.get(cached.level, 0) + cached.total_bytes
    return totals


def _device_of_gpu(gpu: Gpu, number: int, date: str) -> Device:
    return Device(
        name=f"{LOCAL}:gpu" if number == 0 else f"{LOCAL}:gpu:{number}",
        title=gpu.name or "The GPU of this machine",
        vendor=gpu.vendor or "unknown",
        unit="gpu",
        kind="desktop",
        memories=(Memory(level="dram", capacity_bytes=_found(gpu.memory_bytes, date)),),
        clock_hz=_found(gpu.max_hz, date),
        power_w=_found(gpu.power_limit_w, date),
        notes="Detected on this machine; the catalog has no row for it. Peaks are unknown until they are measured.",
    )


# ── the row of a card ───────────────────────────────────────────────────────────────────────────────────────────────


def row_for_gpu(gpu: Gpu, board: str | None = None) -> str | None:
    """The catalog's name for a card as its driver names it; None if there is none, or more than one it could be.

    A GPU that shares the board's memory, as on a Jetson, is known by its board.
    """
    said = [name for name in (gpu.name, board if gpu.shared_memory else None) if name]
    for name in said:
        exact = _exact_rows().get(_slug(name)) or _exact_rows().get(_slug(name).partition("-")[2])
        if exact is not None:
            return exact
        fitting = [row for row, (words, size) in _gpu_rows().items() if words == _words(name) and _near(size, gpu)]
        if len(fitting) == 1:
            return fitting[0]
    return None


def _near(size: float | None, gpu: Gpu) -> bool:
    """Memory that a board shares is what the buyer chose, so it only has to fit into the row's."""
    if size is None or not gpu.memory_bytes:
        return True
    least = 0.0 if gpu.shared_memory else size * (1 - _ABOUT)
    return least <= gpu.memory_bytes <= size * (1 + _ABOUT)


def _slug(name: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def _words(name: str) -> frozenset[str]:
    """What tells a card from others: `NVIDIA GeForce RTX 4070 Ti` is rtx, 4070 and ti. Text in brackets is left out."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"\(.*?\)", " ", name.lower()))
    return frozenset(word for word in words if word not in _SAYS_LITTLE and not _SIZE.fullmatch(word))


@cache
def _exact_rows() -> Mapping[str, str]:
    return {known: row.name for row in _gpus_of_catalog() for known in (row.name, *row.names("aliases"))}


@cache
def _gpu_rows() -> Mapping[str, tuple[frozenset[str], float | None]]:
    rows = {}
    for row in _gpus_of_catalog():
        size = next((memory.number("capacity", "B") for memory in row.inners("memory")), None)
        rows[row.name] = (_words(row.required_text("title")), None if size is None else size.value)
    return rows


@cache
def _gpus_of_catalog() -> Sequence[CatalogRow]:
    """Rows, not devices: there are many, and only names and sizes are asked for."""
    return [row for row in rows_with("devices", '"gpu"').by_name.values() if row.text("unit") == "gpu"]


def _device_named(name: str) -> Device:
    from inferometer.known.hardware import device  # noqa: PLC0415 - which asks here for this machine

    return device(name)
