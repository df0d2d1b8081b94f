"""Whether this machine has the memory that a run will need, before it is run.

A run that does not fit takes the machine down with it: the kernel kills the engine after minutes of swapping, or
something else. The estimate counts weights, cache and the most results that are alive at once, each as the graph has
them; what an engine adds is not in it, so a run that is let through may still be too large.
"""

from collections.abc import Mapping
from typing import Any

from inferometer.core.errors import DomainError
from inferometer.core.units import format_quantity
from inferometer.known.machine.detect import detect_host
from inferometer.predict import Footprint


def available_bytes() -> int | None:
    """Memory that a new process can have; None where the system does not tell."""
    host = detect_host()
    known = [size for size in (host.memory.available_bytes, host.limits.memory_bytes) if size is not None]
    return min(known) if known else None


def require_room(name: str, needed: Footprint, sizes: Mapping[str, Any], available: int | None) -> None:
    """Refuse a run whose estimate is more than what is available, with both figures."""
    if available is None or needed.peak_bytes <= available:
        return
    parts = (
        ("weights", needed.weights_bytes),
        ("cache", needed.kv_bytes),
        ("activations", needed.activations_bytes),
        ("workspace", needed.workspace_bytes),
    )
    made_of = ", ".join(f"{part} {format_quantity(size, 'B')}" for part, size in parts if size)
    at = ", ".join(f"{size} {value}" for size, value in sizes.items())
    raise DomainError(
        f"{name}{f' at {at}' if at else ''} needs about {format_quantity(needed.peak_bytes, 'B')} of memory "
        f"({made_of}), and {format_quantity(available, 'B')} are available.",
        remedy="Ask for smaller sizes or a smaller batch; --ignore-memory runs it all the same.",
    )
