"""Inputs for a model that was given none: random numbers of the right shapes, and integers it accepts."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.core.binding import Binding
from inferometer.core.dims import evaluate
from inferometer.core.errors import DomainError, FormatError, UnknownNameError
from inferometer.core.graph import Graph
from inferometer.engines.base import Port

Array = np.ndarray[Any, Any]

_FEW = 2  # an integer of unknown meaning is 0 or 1: a valid index, flag or type everywhere
# Names that inputs have which say how long another is: `x_lengths`, `waveforms_lens`, `length`.
_LENGTH = re.compile(r"(.*?)[_.]?(?:lens?|lengths?)(?:[_.:]?\d+)?")
_RATE = re.compile(r"sr|sample_?rate|sampling_?rate")
_RATE_HZ = 16_000  # what models of speech are made for
_SCALE = re.compile(r".*(scales?|speed|temperature)")
_LOOKUPS = frozenset({"embedding", "gather"})


def make_inputs(  # noqa: PLR0913 - all that is known of the inputs
    ports: Iterable[Port],
    *,
    sizes: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    limits: Mapping[str, int] | None = None,
    given: Mapping[str, str] | None = None,
    seed: int = 0,
) -> dict[str, Array]:
    """An array for each input. `shapes` fill in sizes that the file leaves open; `given` are numbers or .npy files."""
    declared, given = tuple(ports), given or {}
    ports = tuple(_closed(port, (shapes or {}).get(port.name)) for port in declared)
    names = {port.name for port in ports}
    for name in given:
        if name not in names:
            raise UnknownNameError("input", name, names, listing=f"The inputs are {', '.join(sorted(names))}.")
    random = np.random.default_rng(seed)
    arrays = {
        port.name: _given(port, given[port.name], sizes)
        if port.name in given
        else _made(port, _shape(port, sizes), (limits or {}).get(port.name), random)
        for port in ports
    }
    for port in ports:
        if port.name not in given and (length := _length_of(port, declared, arrays)) is not None:
            arrays[port.name] = np.full(arrays[port.name].shape, length, port.dtype)
    return arrays


def _length_of(port: Port, declared: Iterable[Port], arrays: Mapping[str, Array]) -> int | None:
    """What an input is that says how long another one is: the size of that one's axis. None if it says no such thing.

    The other is the one whose name it has (`x_lengths` of `x`), else the first with more than one axis. Its axis is the
    one that the file leaves open beside the batch, else the second.
    """
    found = _LENGTH.fullmatch(port.name.casefold())
    if found is None or np.dtype(port.dtype).kind not in "iu" or len(port.shape) > 1:
        return None
    others = [other for other in declared if len(other.shape) > 1 and not _LENGTH.fullmatch(other.name.casefold())]
    own = [other for other in others if other.name.casefold().rstrip("s") in {found[1].rstrip("s"), found[1]}]
    for other in (*own, *others):
        axes = [axis for axis, dim in enumerate(other.shape) if axis and not isinstance(dim, int)]
        return int(arrays[other.name].shape[axes[0] if axes else 1])
    return None


def _closed(port: Port, shape: tuple[int, ...] | None) -> Port:
    """The port with the workload's sizes in place of open ones."""
    if shape is None or len(shape) != len(port.shape):
        return port
    pairs = zip(port.shape, shape, strict=True)
    return replace(port, shape=tuple(dim if isinstance(dim, int) else size for dim, size in pairs))


def index_limits(graph: Graph) -> dict[str, int]:
    """For each input that indexes a table: how many rows the table has."""
    limits: dict[str, int] = {}
    names = {tensor.name for tensor in graph.inputs}
    for _, op in graph.ops():
        rows = [tensor.shape[0] for tensor in op.weights if tensor.shape]
        if op.kind not in _LOOKUPS or not rows or not isinstance(rows[0], int):
            continue
        for tensor in op.inputs:
            if tensor.name in names:
                limits[tensor.name] = min(rows[0], limits.get(tensor.name, rows[0]))
    return limits


def input_shapes(graph: Graph, binding: Binding) -> dict[str, tuple[int, ...]]:
    """The inputs' shapes at the workload's sizes, for those whose sizes are all known."""
    return {
        tensor.name: tuple(int(evaluate(dim, binding.sizes)) for dim in tensor.shape)
        for tensor in graph.inputs
        if tensor.symbols <= binding.sizes.keys()
    }


def _shape(port: Port, sizes: Mapping[str, int]) -> tuple[int, ...]:
    open_dims = [dim for dim in port.shape if not isinstance(dim, int)]
    unknown = [dim for dim in open_dims if dim not in sizes]
    if unknown:
        named = [dim for dim in unknown if dim]
        raise DomainError(
            f"The input {port.name!r} has the shape {_written(port.shape)}, which leaves a size open.",
            remedy=f"Say {' '.join(f'--size {name}=N' for name in named)}." if named else "Give the input as a file.",
        )
    return tuple(dim if isinstance(dim, int) else sizes[dim or ""] for dim in port.shape)


def _written(shape: tuple[int | str | None, ...]) -> str:
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"


def _made(port: Port, shape: tuple[int, ...], limit: int | None, random: np.random.Generator) -> Array:
    kind = np.dtype(port.dtype)
    if kind.kind == "b":
        return np.ones(shape, kind)
    if kind.kind in "iu":
        return _integers(port, shape, limit, random).astype(kind)
    if kind.kind == "f" and _SCALE.fullmatch(port.name.casefold()) and len(shape) < 2:
        return np.ones(shape, kind)  # a factor: a random one may be negative
    if kind.kind == "f":
        return random.standard_normal(shape, np.float32).astype(kind)
    raise DomainError(
        f"The input {port.name!r} holds {port.dtype}, for which no values can be generated.",
        remedy=f"Give it as a file: --input {port.name}=FILE.npy.",
    )


def _integers(port: Port, shape: tuple[int, ...], limit: int | None, random: np.random.Generator) -> Array:
    """Masks are all ones, positions count up, a rate is that of speech, and indices stay inside their table."""
    name = port.name.casefold()
    if "mask" in name:
        return np.ones(shape, np.int64)
    if _RATE.fullmatch(name):
        return np.full(shape, _RATE_HZ)
    if "position" in name:
        return np.broadcast_to(np.arange(shape[-1] if shape else 1), shape)
    if np.dtype(port.dtype).itemsize == 1 and limit is None:
        info = np.iinfo(port.dtype)
        return random.integers(int(info.min), int(info.max) + 1, shape)  # an image, or quantised numbers
    return random.integers(0, limit or _FEW, shape)


def _given(port: Port, text: str, sizes: Mapping[str, int]) -> Array:
    try:
        value = float(text)
    except ValueError:
        path = Path(text)
        try:
            array: Array = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error).rstrip(".")
            raise FormatError(
                f"The input {port.name!r} was to come from {str(path)!r}, which cannot be read: {why}.",
                remedy="Give a number, or a file that numpy.save wrote.",
            ) from None
        return _fitting(port, array, text)
    return np.full(_shape(port, sizes), value).astype(port.dtype)


def _fitting(port: Port, array: Array, path: str) -> Array:
    """The array, if the model accepts it as it is: another type is never converted silently."""
    fits = len(array.shape) == len(port.shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(port.shape, array.shape, strict=True)
    )
    if fits and array.dtype == np.dtype(port.dtype):
        return array
    raise DomainError(
        f"The input {port.name!r} takes {port.dtype} {_written(port.shape)}; {path!r} holds "
        f"{array.dtype} {list(array.shape)}.",
        remedy="Save an array of that type and shape, or say the sizes it has with --batch or --size.",
    )
