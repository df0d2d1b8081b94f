"""Recorded time. Spans keep the clock's own integer nanoseconds: no reading is rounded."""

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen


@frozen
class Segment:
    """A part of a span, such as write, run and read of one accelerator call."""

    name: str
    start_ns: int
    end_ns: int

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) * 1e-9


@frozen
class Span:
    """One stretch of time. `device_s` is how long a device worked for it, beginning at `device_start_ns`."""

    name: str
    start_ns: int
    end_ns: int
    kind: str | None = None
    unit: str | None = None
    phase: str | None = None
    layer: int | None = None
    token: int | None = None
    process: int | None = None
    thread: int | None = None
    task: str | None = None
    parent: int | None = None  # index of the enclosing span in the trace
    bytes: float | None = None
    flops: float | None = None
    tokens: int | None = None
    context: int | None = None  # tokens in the cache before it
    device_start_ns: int | None = None
    device_s: float | None = None
    energy_j: float | None = None
    memory_delta_bytes: int | None = None
    memory_peak_bytes: int | None = None
    failed: bool = False
    segments: tuple[Segment, ...] = ()

    def __post_init__(self) -> None:
        if self.end_ns < self.start_ns:
            raise DomainError(f"Span {self.name!r} ends before it starts ({self.end_ns} < {self.start_ns}).")

    @property
    def duration_s(self) -> float:
        return (self.end_ns - self.start_ns) * 1e-9


@frozen
class Trace:
    """Spans in the order they began. `dropped` counts those a bounded recorder had to let go."""

    spans: tuple[Span, ...] = ()
    clock: str = "perf_counter_ns"
    started_at: str | None = None
    dropped: int = 0

    @property
    def duration_s(self) -> float:
        if not self.spans:
            return 0.0
        return (max(span.end_ns for span in self.spans) - min(span.start_ns for span in self.spans)) * 1e-9
