"""The files of runs, each kept once under the hash of what is in it.

A file is written beside its place, synced and moved there whole. Rows that name it are committed after it stands.
"""

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.store.errors import StoreError

MOST_BYTES = 2_000_000_000  # of one file
_CHUNK = 1 << 20
_GRACE_S = 600.0  # a file touched so recently may belong to a run that is about to be committed


@frozen
class KeptFile:
    sha256: str
    size_bytes: int


@contextlib.contextmanager
def whole(to: Path, *, mode: int = 0o600) -> Iterator[IO[bytes]]:
    """A file to write that is there whole or not at all: it is written beside its place and moved there."""
    to.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{to.name}.", dir=to.parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(mode)
        partial.replace(to)
    finally:
        partial.unlink(missing_ok=True)


def path_of(folder: Path, sha256: str) -> Path:
    return folder / sha256[:2] / sha256


def keep(folder: Path, source: Path | bytes | Iterator[bytes], *, most: float = MOST_BYTES) -> KeptFile:
    """Copy a file in, or find it already there. It is on the disk when this returns."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(prefix="incoming-", dir=folder)
    except OSError as error:
        raise _unwritable(folder, error) from None
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            kept = _copy(source, file, most)
            file.flush()
            os.fsync(file.fileno())
        _move(partial, path_of(folder, kept.sha256))
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        partial.unlink(missing_ok=True)
    return kept


def _copy(source: Path | bytes | Iterator[bytes], file: IO[bytes], most: float) -> KeptFile:
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(source):
        size += len(chunk)
        if size > most:
            name = str(source) if isinstance(source, Path) else "The file"
            raise DomainError(f"{name} is larger than the {most:,} bytes that a run's file may have.")
        digest.update(chunk)
        file.write(chunk)
    return KeptFile(sha256=digest.hexdigest(), size_bytes=size)


def _chunks(source: Path | bytes | Iterator[bytes]) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    if not isinstance(source, Path):
        yield from source
        return
    try:
        with source.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise DomainError(f"{source} cannot be read ({error.strerror or error}).") from None


def _move(partial: Path, place: Path) -> None:
    place.parent.mkdir(exist_ok=True, mode=0o700)
    if place.exists():
        os.utime(place)  # young again: nobody drops it before our row stands
        return
    partial.replace(place)
    # the name must last as well as the bytes; Windows keeps names by itself and opens no folders
    with contextlib.suppress(OSError):
        handle = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read(folder: Path, sha256: str) -> Path:
    """Where the file is; damaged or lost, it is an error and never another file."""
    place = path_of(folder, sha256)
    if not place.is_file():
        raise StoreError(
            f"The file {sha256[:12]}… is not in {folder}.",
            remedy="Choose the folder it was kept in with INFEROMETER_ARTIFACTS.",
            told=f"The file {sha256[:12]}… is not there any more.",
        )
    return place


def drop(folder: Path, sha256: str, *, grace_s: float = _GRACE_S, now: float | None = None) -> bool:
    """Remove a file that no row names; one that was touched a moment ago stays until the next time."""
    place = path_of(folder, sha256)
    try:
        if (time.time() if now is None else now) - place.stat().st_mtime < grace_s:
            return False
        place.unlink()
    except OSError:
        return False
    return True


def all_of(folder: Path) -> Iterator[str]:
    """The hashes of every file that is kept."""
    for place in folder.glob("??/*"):
        if len(place.name) == 64 and place.name.startswith(place.parent.name):
            yield place.name


def _unwritable(folder: Path, error: OSError) -> StoreError:
    return StoreError(
        f"A file of the run could not be kept in {folder} ({error.strerror or error}).",
        remedy="Make room, or choose another folder with INFEROMETER_ARTIFACTS.",
        told=f"A file of the run could not be kept ({error.strerror or 'the disk reports an error'}).",
    )
