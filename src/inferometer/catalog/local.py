"""The local machine as a `Device`. Its peaks are unknown until they are measured, so they are absent."""

from datetime import UTC, datetime

from inferometer.catalog.detect import Host, detect_host
from inferometer.core.device import Device, Memory, Sourced


def local_device() -> Device:
    return device_of_host(detect_host(), date=datetime.now(tz=UTC).date().isoformat())


def device_of_host(host: Host, *, date: str) -> Device:
    """The CPU of a detected machine: what the operating system reports, and nothing else."""

    def found(value: float | None) -> Sourced | None:
        return None if value is None else Sourced(value=value, origin="measured", source="operating system", date=date)

    cpu = host.cpu
    return Device(
        name="local",
        title=host.board or cpu.model or "This machine",
        vendor=cpu.vendor or "unknown",
        unit="cpu",
        family=cpu.architecture,
        memories=(
            Memory(level="dram", capacity_bytes=found(host.usable_memory_bytes)),
            *(Memory(level=f"l{level}", capacity_bytes=found(size)) for level, size in _caches(host).items()),
        ),
        cores=found(cpu.physical_cores),
        clock_hz=found(cpu.max_hz),
        notes="Detected on this machine. Peaks and bandwidths are unknown until they are measured.",
    )


def _caches(host: Host) -> dict[int, int]:
    """Bytes of each level for data, all cores together, far to near. P and E cores each have their own."""
    totals: dict[int, int] = {}
    for cache in sorted(host.cpu.caches, key=lambda cache: -cache.level):
        if cache.kind != "instruction" and cache.total_bytes is not None:
            totals[cache.level] = totals.get(cache.level, 0) + cache.total_bytes
    return totals
