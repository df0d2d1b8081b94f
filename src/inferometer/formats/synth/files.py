"""Files that are complete or absent: written under another name in the same folder, renamed at the end."""

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from inferometer.core.cache import keep_to_limit
from inferometer.core.errors import DomainError, InferometerError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.core.settings import cache_folder
from inferometer.core.units import format_quantity

# What is to be written, and where.


@frozen
class Order:
    """`config` says what the graph need not know (the numbers of norms and rotations); `sizes` fixes symbols."""

    graph: Graph
    path: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    weights: str = "f32"
    seed: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    overwrite: bool = False


def epsilon_of(config: Mapping[str, Any]) -> float:
    """What a norm adds under its root: configs have five names for it."""
    names = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
    return next((float(config[name]) for name in names if config.get(name) is not None), 1e-5)


def rope_theta_of(config: Mapping[str, Any], *others: str) -> float:
    """The base of a rotation's angles, also under the names of `others`."""
    inside = config.get("rope_parameters")
    merged = {**(inside if isinstance(inside, Mapping) else {}), **config}
    return float(next((merged[name] for name in ("rope_theta", *others) if name in merged), 10_000.0))


def require_sizes(order: Order) -> None:
    """Sizes must be of symbols that the graph has, and whole numbers."""
    known = order.graph.symbols
    for name, size in order.sizes.items():
        if name not in known:
            listing = f"Its sizes: {', '.join(sorted(known)) or 'none'}."
            raise UnknownNameError(f"open size of {order.graph.name}", name, known, listing=listing)
        if isinstance(size, bool) or size < 1:
            raise DomainError(f"The size {name} must be a whole number of 1 or more, and is {size!r}.")


@contextmanager
def landing(*paths: Path, overwrite: bool, needs_bytes: int) -> Iterator[tuple[Path, ...]]:
    """Temporary names for files that belong together; they take their own names when the body has ended well.

    The last path is the one a reader opens: it is renamed last. Whatever goes wrong, nothing partial is left.
    """
    for path in paths:
        if path.is_dir():
            raise InferometerError(f"{str(path)!r} is a folder.", remedy="Give the name of a file.")
        if path.exists() and not overwrite:
            raise _exists(path)
    folder = paths[-1].parent
    require_room(folder, needs_bytes)
    partial = tuple(path.with_name(f".{path.name}.{os.getpid()}.partial") for path in paths)
    try:
        yield partial
        for temporary, path in zip(partial, paths, strict=True):
            temporary.replace(path)
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        for temporary in partial:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


@contextmanager
def landing_folder(path: Path, *, overwrite: bool, needs_bytes: int) -> Iterator[Path]:
    """A temporary name for a folder that is made whole; an earlier one is there until the new one is."""
    if path.exists() and not overwrite:
        raise _exists(path)
    require_room(path.parent, needs_bytes)
    partial, before = (path.with_name(f".{path.name}.{os.getpid()}.{word}") for word in ("partial", "before"))
    try:
        yield partial
        if path.exists():
            path.replace(before)
        partial.replace(path)
    except OSError as error:
        raise _unwritable(path.parent, error) from error
    finally:
        if before.exists() and not path.exists():
            before.replace(path)
        for left in (partial, before):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def _exists(path: Path) -> InferometerError:
    return InferometerError(
        f"{str(path)!r} exists already.", remedy="Give another name, or overwrite it with --overwrite."
    )


def require_room(folder: Path, needs_bytes: int) -> None:
    """Refuse before writing what will not fit; a folder that is missing is made, and the cache kept to its limit."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if cache_folder() in (folder, *folder.parents):
            keep_to_limit()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise _unwritable(folder, error) from None
    if needs_bytes > free:
        needed, there = format_quantity(needs_bytes, "B"), format_quantity(free, "B")
        raise InferometerError(
            f"{needed} do not fit in {str(folder)!r}: {there} are free.",
            remedy="Choose another folder, or a smaller format of the weights.",
        )


def _unwritable(folder: Path, error: OSError) -> InferometerError:
    if error.errno == errno.ENOSPC:
        return InferometerError(
            f"The disk of {str(folder)!r} is full.", remedy="Choose another folder, or a smaller format of the weights."
        )
    reason = error.strerror or str(error)
    return InferometerError(
        f"Nothing can be written in {str(folder)!r}: {reason}.", remedy="Choose a folder you may write to."
    )
