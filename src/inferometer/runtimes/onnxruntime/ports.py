"""Inputs and outputs: the engine's names for types, and whether what is fed fits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from inferometer.errors import DomainError, EngineError
from inferometer.runtimes.base import Port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

__all__ = ["require_fitting", "to_port"]

_DTYPES = {
    "float": "float32", "double": "float64", "float16": "float16", "bfloat16": "bfloat16", "bool": "bool",
    "string": "object",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)},
}  # fmt: skip


def to_port(entry: Any) -> Port:
    """From the engine's `NodeArg`: `tensor(float)` and a shape of numbers, names and nothing."""
    found = re.fullmatch(r"tensor\((\w+)\)", entry.type)
    if found is None:
        raise EngineError(
            f"The port {entry.name!r} is a {entry.type}; only tensors can be fed and read.",
            remedy="Export the model with tensors alone as inputs and outputs.",
        )
    shape = tuple(_dim(dim) for dim in entry.shape)
    return Port(name=entry.name, dtype=_DTYPES.get(found[1], found[1]), shape=shape)


def _dim(dim: Any) -> int | str | None:
    if isinstance(dim, int):
        return dim if dim >= 0 else None
    return str(dim) if dim else None


def require_fitting(ports: Sequence[Port], inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Names, types, ranks and fixed sizes; one name for two open sizes means that they are equal."""
    names = [port.name for port in ports]
    missing = [name for name in names if name not in inputs]
    extra = [name for name in inputs if name not in names]
    if missing or extra:
        words = [f"{', '.join(map(repr, missing))} missing"] if missing else []
        words += [f"{', '.join(map(repr, extra))} not among them"] if extra else []
        raise DomainError(f"The model takes the inputs {', '.join(map(repr, names))}: {'; '.join(words)}.")
    sizes: dict[str, int] = {}
    for port in ports:
        _require_port(port, inputs[port.name], sizes)


def _require_port(port: Port, array: np.ndarray[Any, Any], sizes: dict[str, int]) -> None:
    expected = f"{port.dtype} [{', '.join('?' if dim is None else str(dim) for dim in port.shape)}]"
    given = f"{array.dtype.name} {list(array.shape)}"
    fits = array.dtype.name == port.dtype and array.ndim == len(port.shape)
    if not fits or not all(_matches(dim, size) for dim, size in zip(port.shape, array.shape, strict=True)):
        raise DomainError(f"The input {port.name!r} must be {expected}, and is {given}.")
    for dim, size in zip(port.shape, array.shape, strict=True):
        if isinstance(dim, str) and dim != "?" and sizes.setdefault(dim, size) != size:
            raise DomainError(
                f"The input {port.name!r} must be {expected}, and is {given}: {dim} is {sizes[dim]} in another input."
            )


def _matches(dim: int | str | None, size: int) -> bool:
    return not isinstance(dim, int) or dim == size
