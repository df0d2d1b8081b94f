"""Which devices a model is put on, and what the engine's log says of where it went."""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError, EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

Devices = ctypes.Array[ctypes.c_void_p]  # handles, and an empty one at the end
_ACCELERATORS = frozenset({1, 2})  # a card of its own, or one that shares the host's memory
_ALL = 999
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers")


def choose_devices(
    asked: str | None, layers: int | None, devices: Sequence[tuple[str, int, int]]
) -> tuple[str, Devices, int]:
    """The unit, the devices to use beside the CPU, and how many layers to put on them."""
    gpus = [(name, handle) for name, kind, handle in devices if kind in _ACCELERATORS and name != "BLAS"]
    unit = asked or ("gpu" if gpus else "cpu")
    kind, _, index = unit.partition(":")
    there = ["cpu", *(f"gpu:{index} ({name})" for index, (name, _) in enumerate(gpus))]
    if kind not in {"cpu", "gpu"} or (index and not index.isdigit()):
        raise EngineError(f"llama.cpp has no unit {unit!r}.", remedy=f"There are: {', '.join(there)}.")
    if kind == "cpu":
        if layers:
            raise DomainError(f"{layers} layers were asked for on an accelerator, and the unit cpu.")
        return "cpu", (ctypes.c_void_p * 1)(None), 0
    chosen = gpus if not index else gpus[int(index) : int(index) + 1]
    if not chosen:
        raise EngineError(
            f"llama.cpp sees no {unit} here.",
            remedy=f"There are: {', '.join(there)}. Builds for accelerators are packages of their own.",
        )
    handles = (ctypes.c_void_p * (len(chosen) + 1))(*(handle for _, handle in chosen), None)
    return unit, handles, _ALL if layers is None else layers


def placed_by_log(lines: Sequence[str], layers: int, unit: str) -> tuple[dict[str, int], tuple[str, ...]]:
    """Layers by where they are (the output counts as one), and a note where not all are where they were asked for."""
    match = next((found for line in lines if (found := _OFFLOADED.search(line))), None)
    there, total = (int(match[1]), int(match[2])) if match else (0, layers)
    placed = {name: count for name, count in (("gpu", there), ("cpu", total - there)) if count}
    if unit != "cpu" and there < total:
        return placed, (f"{total - there} of {total} layers run on the CPU.",)
    return placed, ()
