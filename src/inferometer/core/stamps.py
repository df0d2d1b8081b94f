"""What tells that files were changed, without reading them: when, how large, and which."""

import os
from binascii import crc32
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

_STORE = ("runs.", "artifacts")  # in the data folder: no prediction depends on runs


def stamp_of(path: Path | str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def stamp_of_tree(folder: Path, *, leave: Sequence[str] = (), most: float = float("inf")) -> tuple[int, int, int]:
    """How many files lie below a folder, how large they are together, and a sum over when each was changed.

    More than `most` files are an OverflowError.
    """
    count, size, check = 0, 0, 0
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            entries = sorted(os.scandir(waiting.pop()), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.name == "__pycache__" or entry.name.startswith(tuple(leave)):
                continue
            if entry.is_dir():
                waiting.append(entry.path)
                continue
            with suppress(OSError):  # a link to nowhere
                found = entry.stat()
                count, size = count + 1, size + found.st_size
                stamp = f"{entry.path} {found.st_mtime_ns} {found.st_ino}"
                check = crc32(stamp.encode(errors="surrogateescape"), check)
            if count > most:
                raise OverflowError
    return count, size, check


def stamp_of_data(folder: Path) -> tuple[int, int, int]:
    """Of the data folder, without the store of runs, on which no prediction depends."""
    return stamp_of_tree(folder, leave=_STORE)


@cache
def stamp_of_ours() -> tuple[int, int, int]:
    """Of this package's own files, once a process: what is loaded does not change any more."""
    return stamp_of_tree(Path(__file__).parent.parent)


@cache
def stamp_of_packages(path: tuple[str, ...]) -> tuple[int, int]:
    """Of what is installed along `sys.path`, once a process. A folder may have other files, which come and go."""
    count, check = 0, 0
    for folder in path:
        try:
            entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
        except OSError:  # an archive, which is replaced as a whole, or nothing
            entries = []
            check = crc32(repr(stamp_of(folder)).encode(), check)
        for entry in entries:
            if entry.name.endswith((".dist-info", ".egg-info", ".pth")):
                count += 1
                check = crc32(f"{entry.path} {entry.stat().st_mtime_ns}".encode(errors="surrogateescape"), check)
    return count, check
