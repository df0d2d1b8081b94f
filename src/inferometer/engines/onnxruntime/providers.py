"""Execution providers: which ones to ask for, on which kind of unit each runs, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError, EngineError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.engines.base import Target

CPU = "CPUExecutionProvider"

# By kind of unit, the first that is there is taken. TensorRT compiles for minutes: it is used where it is named.
_UNITS: Mapping[str, tuple[str, ...]] = {
    "cpu": (CPU,),
    "gpu": (
        "CUDAExecutionProvider", "ROCMExecutionProvider", "MIGraphXExecutionProvider", "DmlExecutionProvider",
        "WebGpuExecutionProvider",
    ),
    "npu": ("QNNExecutionProvider", "VitisAIExecutionProvider", "CANNExecutionProvider", "CoreMLExecutionProvider"),
}  # fmt: skip
_ALSO_GPU = frozenset(
    {"TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider", "JsExecutionProvider", "WebNNExecutionProvider"}
)
_REMOTE = frozenset({"AzureExecutionProvider"})  # calls a service; runs no nodes here


def unit_of(provider: str) -> str:
    """cpu, gpu or npu. A provider that is not known is taken to run on the CPU."""
    if provider in _ALSO_GPU:
        return "gpu"
    return next((unit for unit, names in _UNITS.items() if provider in names), "cpu")


def split_unit(text: str) -> tuple[str, int | None]:
    """`gpu:1` is the second GPU."""
    kind, colon, index = text.partition(":")
    if not colon:
        return kind, None
    if not index.isdecimal():
        raise DomainError(f"The unit {text!r} must be a kind and a number, as in gpu:1.")
    return kind, int(index)


def choose_providers(target: Target, available: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    """Names with their options, the CPU's last: what the others cannot run falls to it."""
    usable = [name for name in available if name not in _REMOTE]
    index = split_unit(target.unit)[1] if target.unit else None
    names = _named(target.providers, usable) if target.providers else _of_unit(target.unit or "cpu", usable)
    chosen = [(name, {"device_id": str(index)} if index and unit_of(name) != "cpu" else {}) for name in names]
    return chosen if CPU in names else [*chosen, (CPU, {})]


def _named(asked: Sequence[str], usable: Sequence[str]) -> list[str]:
    by_short = {name.removesuffix("ExecutionProvider").casefold(): name for name in usable}
    chosen = []
    for name in asked:
        full = by_short.get(name.removesuffix("ExecutionProvider").casefold())
        if full is None:
            raise UnknownNameError("execution provider", name, usable, listing=f"Here: {', '.join(usable)}.")
        chosen.append(full)
    return chosen


def _of_unit(asked: str, usable: Sequence[str]) -> list[str]:
    kind, index = split_unit(asked)
    if kind not in _UNITS:
        raise UnknownNameError("kind of unit", kind, _UNITS, listing=f"Known: {', '.join(_UNITS)}.")
    if kind == "cpu" and index:
        raise DomainError(f"The unit {asked!r} was asked for; ONNX Runtime sees one cpu.")
    for name in _UNITS[kind]:
        if name in usable:
            return [name]
    raise EngineError(
        f"ONNX Runtime was asked to run on {asked!r}, and this build has no provider for it; "
        f"it has {', '.join(usable)} (units: {', '.join(sorted({unit_of(name) for name in usable}))}).",
        remedy=f"Install a build with one of {', '.join(_UNITS[kind])}, or choose another unit.",
    )


def placement_notes(asked: Sequence[str], got: Sequence[str], placed: Mapping[str, int]) -> tuple[str, ...]:
    """In words, what ran elsewhere than it was asked to."""
    lost = [name for name in asked if name not in got]
    notes = [f"{name} was asked for, and the engine dropped it." for name in lost]
    first = asked[0]
    total, there = sum(placed.values()), placed.get(first, 0)
    if not lost and total and there < total and first != CPU:
        elsewhere = ", ".join(f"{count} on {name}" for name, count in sorted(placed.items()) if name != first)
        notes.append(f"Of {total} nodes {there} were placed on {first}, {elsewhere}.")
    return tuple(notes)
