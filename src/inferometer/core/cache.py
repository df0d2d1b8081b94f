"""Files that are there whole or not at all; those that can be made again, and how much of the disk they may take.

Models with random weights, probes, what converters make and the tables of engines take long to make, so they are kept
in the cache folder, each as one entry. When something is added and they are above the limit together, what was not
used for the longest goes. What was used within the last hour stays, however large: somebody may be at it.
"""

import errno
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.settings import cache_folder, value_of
from inferometer.core.units import parse_quantity

_KINDS = ("engine-tables", "models", "prepared", "probes")
_HELD_S = 3600.0
_SMALL_BYTES = 1_000_000  # notes on where files come from, and configs, are not worth it


def write_whole(path: Path, chunks: bytes | Iterable[bytes]) -> None:
    """Written beside its place, under a name that no other process or thread writes to, and then moved there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{get_ident()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            file.writelines([chunks] if isinstance(chunks, bytes) else chunks)
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def write_asked_for(path: Path, chunks: bytes | Iterable[bytes]) -> None:
    """A file that the user asked for, there whole or not at all; if it cannot be written, a sentence says why."""
    try:
        write_whole(path, chunks)
    except OSError as error:
        raise not_written(path, error) from error


def not_written(path: Path, error: Exception, beside: str = "") -> InferometerError:
    """`beside`: what a user whose disk is full would ask next."""
    full = f"Free some space, or write to another disk{beside}."
    remedies = {
        errno.ENOSPC: full,
        errno.EDQUOT: "Your quota is used up: free some space, or write elsewhere.",
        errno.EACCES: "Choose a folder you may write to.",
        errno.EROFS: "Choose a folder that can be written to.",
    }
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    remedy = remedies.get(getattr(error, "errno", None) or 0)
    return InferometerError(f"{path} cannot be written: {reason}.", remedy=remedy)


def write_among(path: Path, data: bytes, *, most: int) -> None:
    """Written whole into a folder that has no more than so many files: the oldest make room."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = sorted(path.parent.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    for old in files[: max(0, len(files) + 1 - most)]:
        old.unlink(missing_ok=True)
    write_whole(path, data)


@contextmanager
def held_alone(lock: Path) -> Iterator[bool]:
    """Whether no other process holds this lock. It ends with its process; only POSIX keeps processes apart."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl  # noqa: PLC0415 - POSIX only
    except ImportError:
        yield True
        return
    with lock.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except OSError:
            alone = False
        yield alone


def is_kept(path: Path) -> bool:
    """Whether it was made before. To be asked for counts as use; when it was made stays as it is."""
    try:
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    except FileNotFoundError:
        return False
    except OSError:  # somebody else's, which we may read
        return path.exists()
    return True


def keep_to_limit() -> int:
    """Remove what was not used for the longest, down to the limit; the bytes that were removed."""
    entries = sorted(_entries(), key=lambda entry: entry.used_s)
    over = sum(entry.bytes for entry in entries) - _limit()
    removed = 0
    for entry in entries:
        if removed >= over or entry.used_s > time.time() - _HELD_S:
            break
        if entry.bytes >= _SMALL_BYTES:
            entry.remove()
            removed += entry.bytes
    return removed


def _limit() -> float:
    text = value_of("INFEROMETER_CACHE_LIMIT") or ""
    try:
        return parse_quantity(text, "B")
    except InferometerError as error:
        raise InferometerError(
            f"INFEROMETER_CACHE_LIMIT is {text!r}, which is no size.", remedy="Write one as 10 GB."
        ) from error


@frozen
class _Entry:
    paths: tuple[Path, ...]
    bytes: int
    used_s: float

    def remove(self) -> None:
        """A folder vanishes as a whole, so that nobody finds half of it."""
        from shutil import rmtree  # noqa: PLC0415 - little is ever taken away

        for path in self.paths:
            gone = path.with_name(f".removed-{os.getpid()}-{path.name}")
            with suppress(OSError):  # another process was first
                path.replace(gone)
                rmtree(gone) if gone.is_dir() else gone.unlink()


def _entries() -> Iterator[_Entry]:
    for kind in _KINDS:
        together: dict[str, list[Path]] = {}
        with suppress(OSError):
            for path in (cache_folder() / kind).iterdir():
                together.setdefault(path.name.removesuffix(".data"), []).append(path)  # a model's weights beside it
        for paths in together.values():
            with suppress(OSError):  # another process removed it meanwhile
                # Not of folders: to look into them is no use of theirs, though the system takes it for one.
                members = [file for path in paths for file in (path, *path.rglob("*")) if file.is_file()]
                found = [file.stat() for file in members]
                yield _Entry(
                    paths=tuple(paths),
                    bytes=sum(facts.st_size for facts in found),
                    used_s=max((max(facts.st_atime, facts.st_mtime) for facts in found), default=0.0),
                )
