"""Inputs and outputs: the engine's names for types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import EngineError
from inferometer.engines.base import Port

if TYPE_CHECKING:
    from collections.abc import Sequence

_DTYPES = {
    "float": "float32", "double": "float64", "float16": "float16", "bfloat16": "bfloat16", "bool": "bool",
    "string": "object",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)},
}  # fmt: skip


def to_port(entry: Any, *, fed: bool = True) -> Port:
    """From the engine's `NodeArg`: `tensor(float)` and a shape of numbers, names and nothing.

    A result may be a sequence or a map, as classifiers of scikit-learn give theirs: it has no shape, and is read as
    arrays by `result_arrays`. What is `fed` must be a tensor.
    """
    match = re.fullmatch(r"tensor\((\w+)\)", entry.type)
    if match is None and fed:
        raise EngineError(
            f"The input {entry.name!r} is a {entry.type}; only tensors can be fed.",
            remedy="Export the model with tensors alone as inputs.",
        )
    if match is None:
        return Port(name=entry.name, dtype=entry.type, shape=())
    shape = tuple(_dim(dim) for dim in entry.shape)
    return Port(name=entry.name, dtype=_DTYPES.get(match[1], match[1]), shape=shape)


def result_arrays(name: str, result: Any) -> dict[str, Any]:
    """A result as arrays: itself; a sequence of maps as a table, a row a map and a column a key; any other by parts."""
    if isinstance(result, np.ndarray):
        return {name: result}
    if isinstance(result, dict):
        return result_arrays(name, [result])
    rows = list(result)
    if rows and all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows):
        return {name: np.array([list(row.values()) for row in rows])}
    return {f"{name}.{index}": np.asarray(part) for index, part in enumerate(rows)}


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
