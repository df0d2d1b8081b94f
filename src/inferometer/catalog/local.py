"""The machine we run on as a `Device`. Its peaks are not known until they are measured, so they are absent."""

from datetime import UTC, datetime

from inferometer.catalog.detect import Host, detect_host
from inferometer.core.device import Device, Memory, Sourced

__all__ = ["device_of_host", "local_device"]


def local_device() -> Device:
    return device_of_host(detect_host(), date=datetime.now(tz=UTC).date().isoformat())


def device_of_host(host: Host, *, date: str) -> Device:
    """The CPU of a detected machine: what the operating system said, and nothing it did not."""

    def found(value: float | None) -> Sourced | None:
        return None if value is None else Sourced(value=value, origin="measured", source="operating system", date=date)

    cpu = host.cpu
    usable = host.limits.memory_bytes or host.memory.total_bytes
    caches = [cache for cache in sorted(cpu.caches, key=lambda c: -c.level) if cache.kind != "instruction"]
    return Device(
        name="local",
        title=cpu.model or "This machine",
        vendor=cpu.vendor or "unknown",
        unit="cpu",
        family=cpu.architecture,
        memories=(
            Memory(level="dram", capacity_bytes=found(usable)),
            *(Memory(level=f"l{cache.level}", capacity_bytes=found(cache.total_bytes)) for cache in caches),
        ),
        cores=found(cpu.physical_cores),
        clock_hz=found(cpu.max_hz),
        notes="Detected on this machine. Peaks and bandwidths are unknown until they are measured.",
    )
