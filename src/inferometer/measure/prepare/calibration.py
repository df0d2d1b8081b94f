"""Inputs by which a quantiser finds the ranges of activations: a user's files, or random numbers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from inferometer.core.errors import DomainError, FormatError
from inferometer.core.graph import Graph, Tensor
from inferometer.engines.base import Port
from inferometer.measure.run.inputs import index_limits, make_inputs

Array = np.ndarray[Any, Any]

RANDOM = "random"
_SETS = 16  # of random inputs: their ranges hardly change beyond
_KINDS = {"f": "float", "i": "int", "u": "uint"}


def numpy_type(tensor: Tensor) -> str:
    """Numpy's name for the format of an input; of a graph that names none, token ids are int64 and others float32."""
    name = tensor.dtype or ("i64" if tensor.role == "index" else "f32")
    return f"{_KINDS[name[0]]}{name[1:]}" if name[0] in _KINDS and name[1:].isdecimal() else name


def ports_of(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Port, ...]:
    """The inputs at the sizes that were asked for."""
    return tuple(
        Port(name=tensor.name, dtype=numpy_type(tensor), shape=shapes[tensor.name])
        for tensor in graph.inputs
        if tensor.name in shapes
    )


def write_calibration(
    graph: Graph, shapes: Mapping[str, tuple[int, ...]], given: Sequence[str], folder: Path, *, seed: int = 0
) -> tuple[Path, ...]:
    """One .npz for each set of inputs. What does not fit the model is refused, with the file and what it should be."""
    ports = ports_of(graph, shapes)
    if not given or list(given) == [RANDOM]:
        limits = index_limits(graph)
        # the outputs are verified with the inputs of `seed` itself: those are not looked at here
        sets: Iterable[Mapping[str, Array]] = (
            make_inputs(ports, sizes={}, limits=limits, seed=seed + 1 + number) for number in range(_SETS)
        )
    else:
        sets = (_loaded(path, ports) for path in _files(given))
    written = []
    for number, arrays in enumerate(sets):
        path = folder / f"calibration-{number:04d}.npz"
        np.savez(path, allow_pickle=False, **dict(arrays))
        written.append(path)
    return tuple(written)


def _files(given: Sequence[str]) -> list[Path]:
    """The files that were named, and those in the folders that were."""
    found: list[Path] = []
    for text in given:
        path = Path(text)
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix in {".npy", ".npz"})
            if not inside:
                raise DomainError(f"The folder {text!r} has no .npy or .npz file in it.", remedy=_SAVE)
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise DomainError(f"There is no file {text!r} to calibrate with.", remedy=_SAVE)
    return found


_SAVE = (
    "Save inputs as the model gets them, images too, with numpy.save or numpy.savez, or write --calibrate-with random."
)


def _loaded(path: Path, ports: Sequence[Port]) -> dict[str, Array]:
    try:
        stored: Any = np.load(path, allow_pickle=False)
        arrays: dict[str, Array] | None = None
        if hasattr(stored, "files"):
            with stored:  # an archive stays open until it is closed
                arrays = {name: stored[name] for name in stored.files}
    except (ValueError, EOFError, BadZipFile):
        raise FormatError(f"{str(path)!r} holds no array that numpy.save or numpy.savez wrote.", remedy=_SAVE) from None
    except OSError as error:
        raise FormatError(f"{str(path)!r} cannot be read: {error}.", remedy=_SAVE) from None
    if arrays is None:
        if len(ports) != 1:
            names = ", ".join(port.name for port in ports)
            raise DomainError(
                f"{str(path)!r} holds one array, and the model takes {names}.", remedy="Save all by numpy.savez."
            )
        arrays = {ports[0].name: stored}
    for port in ports:
        _require_fit(path, port, arrays.get(port.name))
    return {port.name: arrays[port.name] for port in ports}


def _require_fit(path: Path, port: Port, array: Array | None) -> None:
    wanted = f"{port.dtype} {list(port.shape)}"
    if array is None:
        raise DomainError(f"{str(path)!r} has nothing for the input {port.name!r}, {wanted}.", remedy=_SAVE)
    if array.shape != port.shape or array.dtype != np.dtype(port.dtype):
        raise DomainError(
            f"The input {port.name!r} takes {wanted}; {str(path)!r} holds {array.dtype} {list(array.shape)}.",
            remedy="Save arrays of that type and shape, or say the sizes they have with --batch, --image or --size.",
        )
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        raise DomainError(
            f"{str(path)!r} holds numbers that are not finite for the input {port.name!r}, and no range can be found.",
            remedy="Save inputs as the model gets them in use.",
        )
