"""Inputs and outputs: the engine's names for types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import EngineError
from inferometer.engines.base import Port

if TYPE_CHECKING:
    from collections.abc import Sequence

_DTYPES = {
    "float": "float32", "double": "float64", "float16": "float16", "bfloat16": "bfloat16", "bool": "bool",
    "string": "object",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)},
}  # fmt: skip


def to_port(entry: Any) -> Port:
    """From the engine's `NodeArg`: `tensor(float)` and a shape of numbers, names and nothing."""
    match = re.fullmatch(r"tensor\((\w+)\)", entry.type)
    if match is None:
        raise EngineError(
            f"The port {entry.name!r} is a {entry.type}; only tensors can be fed and read.",
            remedy="Export the model with tensors alone as inputs and outputs.",
        )
    shape = tuple(_dim(dim) for dim in entry.shape)
    return Port(name=entry.name, dtype=_DTYPES.get(match[1], match[1]), shape=shape)


def _dim(dim: Any) -> int | str | None:
    if isinstance(dim, int):
        return dim if dim >= 0 else None
    return str(dim) if dim else None


def wrongly_declared(ports: Sequence[Port], given: Sequence[tuple[int, ...]]) -> list[str]:
    """A note for each output whose shape is not what the file declares."""
    notes = []
    for port, shape in zip(ports, given, strict=True):
        fits = len(port.shape) == len(shape) and all(
            dim == size for dim, size in zip(port.shape, shape, strict=True) if isinstance(dim, int)
        )
        if port.shape and not fits:
            declared = ", ".join("?" if dim is None else str(dim) for dim in port.shape)
            notes.append(
                f"The file declares the output {port.name!r} as [{declared}], and it is {list(shape)}: the engine does "
                "not reuse its memory, so every step allocates it anew."
            )
    return notes
