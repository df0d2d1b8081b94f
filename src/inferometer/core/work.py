"""Work: what must be computed and moved, whatever the machine.

Work is additive: the work of two ops is the sum of their work, the work of 32 equal layers is 32 × one layer's. Counts
are plain numbers (Python's ints stay exact) or numpy arrays when many workloads are counted at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from inferometer.core.frozen import frozen


@frozen
class Work:
    """Floating-point operations by arithmetic format, and bytes by stream."""

    flops: Mapping[str, Any] = field(default_factory=dict)
    weights: Any = 0  # parameters read
    reads: Any = 0  # activations in
    writes: Any = 0  # activations out
    kv_reads: Any = 0
    kv_writes: Any = 0
    link: Any = 0  # bytes that cross to another device

    @property
    def total_flops(self) -> Any:
        return sum(self.flops.values())

    @property
    def bytes(self) -> Any:
        """Bytes through this device's memory: every stream but the link."""
        return self.weights + self.reads + self.writes + self.kv_reads + self.kv_writes

    def __add__(self, other: Work) -> Work:
        if not isinstance(other, Work):
            return NotImplemented
        flops = {name: self.flops.get(name, 0) + other.flops.get(name, 0) for name in {**self.flops, **other.flops}}
        return Work(flops=flops, **{name: getattr(self, name) + getattr(other, name) for name in STREAMS})

    def __radd__(self, other: object) -> Work:
        """`sum()` starts from 0."""
        return self if other == 0 else NotImplemented

    def __mul__(self, times: Any) -> Work:
        if isinstance(times, Work):
            return NotImplemented
        flops = {name: times * count for name, count in self.flops.items()}
        return Work(flops=flops, **{name: times * getattr(self, name) for name in STREAMS})

    __rmul__ = __mul__


STREAMS = tuple(f.name for f in fields(Work) if f.name != "flops")
