"""Whether what is fed to a model fits its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from inferometer.runtimes.base import Port


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
