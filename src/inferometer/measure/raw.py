"""What a measuring child said, before anything is made of it. Whatever it still got to say is kept if it dies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from inferometer.bench.loop import Collected
from inferometer.core.profile import Environment
from inferometer.measure.order import TextOrder
from inferometer.measure.watch import Resident
from inferometer.runtimes.base import Event, Kernel, Opened

Ended = Literal["done", "refused", "failed", "crashed", "hung", "too-big", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The instrumented steps of one phase: what ran, and how long each whole step took with the instruments on.

    `paired_s` are clean steps taken in turns with them: they tell how the machine went meanwhile. `cost_s` is what the
    engine's timers add inside each kernel's own time, `idle_s` what it takes of a step outside of all kernels. `order`
    is the length it was made at, of a language model.
    """

    phase: str
    kernels: tuple[Kernel, ...]
    walls_s: tuple[float, ...]
    paired_s: tuple[float, ...] = ()
    cost_s: float | None = None
    idle_s: float | None = None
    order: TextOrder | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Of the process: before the model was opened, after, and at its most while it ran; and of the accelerator."""

    before_bytes: int | None = None
    opened_bytes: int | None = None
    peak_bytes: int | None = None
    device_peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One answer of a language model. `first` is the first after loading; `disturbed` says by what, if it was."""

    order: TextOrder
    events: tuple[Event, ...]
    first: bool = False
    tokenise_s: float | None = None
    detokenise_s: float | None = None
    disturbed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    ended: Ended
    opened: Opened | None = None
    first_s: float | None = None
    clean: Collected | None = None
    partial_s: tuple[float, ...] = ()  # of the clean run, told while it went on: all there is where it ended early
    generations: tuple[Generation, ...] = ()
    shapes: tuple[Shape, ...] = ()
    memory: Memory = field(default_factory=Memory)
    resident: Resident = field(default_factory=Resident)
    environment: Environment | None = None
    kept: Mapping[str, str] = field(default_factory=dict)  # files the child wrote, by what is in them
    error: str | None = None
    remedy: str | None = None
    log: str = ""  # what the engine printed
