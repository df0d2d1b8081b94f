"""What a runtime does to a graph, as rows: `runtimes.toml`.

A runtime is described by what it fuses, how many kernels an op takes, what starting one costs, the arithmetic it uses
for each number format, how it attends to a prompt and how it moves the cache. The rows are data with sources; a
runtime that is not there can be given as a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from inferometer.catalog.load import CatalogRow as Row
from inferometer.catalog.load import read_rows
from inferometer.core.device import UNITS, Sourced
from inferometer.core.dtype import dtype
from inferometer.core.frozen import frozen
from inferometer.errors import DomainError, UnknownNameError

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.core.graph import Graph, Op

__all__ = [
    "AttentionPath", "CachePath", "Fusion", "LogitsPath", "Overheads", "RuntimeEffects", "default_runtime",
    "require_effects", "runtime_effects",
]  # fmt: skip

Fusion = Literal["none", "chains", "epilogues"]
AttentionPath = Literal["flash", "masked", "materialised"]
CachePath = Literal["direct", "repeated"]
LogitsPath = Literal["prompt", "chunk"]

_FILE = Path(__file__).parent / "runtimes.toml"
_KEYS = (
    "title", "fusion", "fused", "attention", "cache", "cache_moves", "repeat_moves", "passes", "arithmetic", "instead",
    "expanded", "logits", "first_run", "notes", *UNITS,
)  # fmt: skip


@frozen
class Overheads:
    """Seconds that are spent on no op's work, on one kind of unit. What is not known counts nothing.

    `kernel_s` is spent on the device for each kernel. `host_s` is spent by the host to start one, while the device
    works on those before it: it shows only where the device runs dry, and not in phases that are `captured` and
    replayed as a whole. `step_s` is spent once a step, in the open.
    """

    kernel_s: Sourced | None = None
    host_s: Sourced | None = None
    step_s: Sourced | None = None
    captured: frozenset[str] = frozenset()
    reserve_bytes: Sourced | None = None  # memory that the runtime itself takes


@frozen
class RuntimeEffects:
    """See `docs` of each field in `runtimes.toml`; the defaults are those of an ideal runtime.

    `fused` names op kinds (`norm`, or `norm:batch` for one of its forms) that run inside their neighbours, wherever
    they stand or, as `convolution+activation:relu`, only in a group that begins with such an op: `chains` joins them
    with each other, `epilogues` also with the product before them. `passes` says how many kernels an op of
    a kind or form takes, each of which moves its activations once. `arithmetic` lists, for a number format (or
    `convolution:f32`, for one kind of op, or `gpu:q4_0`, on one kind of unit), the formats it is computed in, the
    preferred one first; `instead` lists those that stand in for a format that the device has no peak for. Weights
    in an `expanded` format are written out in the format of the activations before they are used. `logits` are
    needed of a prompt's last token only; a runtime that reads it in chunks may compute them once a `prompt`, or
    after each `chunk`.
    """

    name: str
    title: str
    fusion: Fusion = "none"
    fused: frozenset[str] = frozenset()
    attention: AttentionPath = "flash"
    cache: CachePath = "direct"
    cache_moves: Sourced | None = None  # how often the cache passes through memory in a step; absent: once
    repeat_moves: Sourced | None = None  # the same of a cache repeated for every query head; absent: written and read
    passes: Mapping[str, int] = field(default_factory=dict)
    arithmetic: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    instead: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    expanded: frozenset[str] = frozenset()
    logits: LogitsPath = "prompt"
    overheads: Mapping[str, Overheads] = field(default_factory=dict)
    first_run: Sourced | None = None
    notes: str | None = None

    def fuses(self, op: Op, into: str | None = None) -> bool:
        """Whether it runs inside its neighbours; `into` is the kind of op that their group begins with."""
        if self.fusion == "none":
            return False
        return not self.fused.isdisjoint({op.kind, _form(op), f"{into}+{_form(op)}"})

    def kernels(self, op: Op) -> int:
        return self.passes.get(_form(op), self.passes.get(op.kind, 1))

    def candidates(self, kind: str, name: str) -> tuple[str, ...]:
        """The formats that numbers of one format may be computed in, for an op kind: where none is stated its own."""
        stated = self.arithmetic.get(f"{kind}:{name}") or self.arithmetic.get(name) or (name,)
        return tuple(dict.fromkeys((*stated, *self.instead.get(name, ()))))

    def on(self, unit: str) -> Overheads:
        return self.overheads.get(unit, Overheads())


def _form(op: Op) -> str:
    """An op's kind with its form: `norm:rms`, `elementwise:add`."""
    return f"{op.kind}:{op.get('norm') or op.get('function')}"


def runtime_effects(name: str) -> RuntimeEffects:
    """The runtime of that name, matched exactly."""
    rows = _every()
    if name not in rows:
        raise UnknownNameError("runtime", name, rows, listing=f"Known: {', '.join(rows)}.")
    return rows[name]


def default_runtime(device: Device, graph: Graph | None = None) -> str:
    """What such a model mostly runs in on such a device.

    Compiled PyTorch on a data centre's or a desk's GPU, but not on Apple's, which has no CUDA graphs. Elsewhere
    llama.cpp for models that make tokens and ONNX Runtime for others; an NPU or TPU, whose software has no row, is
    taken as ideal.
    """
    if device.unit == "gpu" and device.vendor != "Apple" and device.kind in {"server", "workstation", "desktop"}:
        return "torch-compile"
    if device.unit not in {"cpu", "gpu"}:
        return "ideal"
    makes_tokens = graph is None or any(op.kind == "attention" and op.get("cached") for _, op in graph.ops())
    return "llamacpp" if makes_tokens else "onnxruntime"


@cache
def _every() -> dict[str, RuntimeEffects]:
    return {name: _effects(row) for name, row in read_rows([_FILE], "runtimes").by_name.items()}


def _effects(row: Row) -> RuntimeEffects:
    row.allow(*_KEYS)
    return RuntimeEffects(
        name=row.name,
        title=row.required_text("title"),
        fusion=_one_of(row, "fusion", Fusion, "none"),
        fused=frozenset(row.names("fused")),
        attention=_one_of(row, "attention", AttentionPath, "flash"),
        cache=_one_of(row, "cache", CachePath, "direct"),
        cache_moves=row.number("cache_moves", "1"),
        repeat_moves=row.number("repeat_moves", "1"),
        passes=_passes(row.inner("passes")),
        arithmetic=_arithmetic(row.inner("arithmetic")),
        instead=_arithmetic(row.inner("instead")),
        expanded=frozenset(dtype(name).name for name in row.names("expanded")),
        logits=_one_of(row, "logits", LogitsPath, "prompt"),
        overheads={unit: _overheads(row.inner(unit)) for unit in UNITS if unit in row.fields},
        first_run=row.number("first_run", "s"),
        notes=row.text("notes"),
    )


def _one_of(row: Row, key: str, allowed: object, default: str) -> Any:
    stated = row.text(key) or default
    if stated not in get_args(allowed):
        raise row.place.at(key).error(f"is {stated!r}.", remedy=f"Known: {', '.join(get_args(allowed))}.")
    return stated


def _passes(row: Row) -> dict[str, int]:
    return {key: row.whole(key) or 1 for key in row.fields if key != "source"}


def _arithmetic(row: Row) -> dict[str, tuple[str, ...]]:
    found = {}
    for key in row.fields:
        if key == "source":
            continue
        kind, _, name = key.rpartition(":")
        full = f"{kind}:{dtype(name).name}" if kind else dtype(name).name
        found[full] = tuple(dtype(entry).name for entry in row.names(key))
    return found


def _overheads(row: Row) -> Overheads:
    row.allow("kernel", "host", "step", "captured", "reserve")
    return Overheads(
        kernel_s=row.number("kernel", "s"),
        host_s=row.number("host", "s"),
        step_s=row.number("step", "s"),
        captured=frozenset(row.names("captured")),
        reserve_bytes=row.number("reserve", "B"),
    )


def require_effects(runtime: RuntimeEffects | str) -> RuntimeEffects:
    if isinstance(runtime, RuntimeEffects):
        return runtime
    if not isinstance(runtime, str):
        raise DomainError(f"A runtime is a name or a RuntimeEffects, and {runtime!r} is neither.")
    return runtime_effects(runtime)
