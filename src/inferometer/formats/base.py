"""The contract of a reader: a file or folder goes in, one `Graph` comes out.

A reader says by a file's content how sure it is that the file is one of its own, and reads it without loading weights.
Readers are found through the entry points of the group `inferometer.readers`; ours come through the same door.
"""

from pathlib import Path
from typing import Protocol, runtime_checkable

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph

__all__ = ["GROUP", "HEAD_BYTES", "LISTING_LIMIT", "Peek", "Reader", "look"]

GROUP = "inferometer.readers"
HEAD_BYTES = 64 * 1024
LISTING_LIMIT = 10_000


@frozen
class Peek:
    """What may be seen of a file before a reader is chosen. A folder has names instead of bytes."""

    path: Path
    size: int = 0
    head: bytes = b""  # at most HEAD_BYTES
    is_folder: bool = False
    names: tuple[str, ...] = ()  # of a folder: what lies in it, sorted


@runtime_checkable
class Reader(Protocol):
    """`match` looks only at the peek and never raises: 0 is "not mine", 1 is "certainly mine".

    By convention a magic number gives 1, a text whose keys are known 0.8, a guess less than 0.5. A suffix alone is no
    evidence. `read` raises only InferometerErrors, which name the file.
    """

    @property
    def name(self) -> str: ...

    @property
    def formats(self) -> frozenset[str]: ...

    def match(self, peek: Peek) -> float: ...

    def read(self, path: Path) -> Graph: ...


def look(path: Path) -> Peek:
    """Peek at a file or folder: its size and first bytes, or the names in it."""
    try:
        if path.is_dir():
            names = sorted(entry.name for entry, _ in zip(path.iterdir(), range(LISTING_LIMIT), strict=False))
            return Peek(path=path, is_folder=True, names=tuple(names))
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        return Peek(path=path, size=path.stat().st_size, head=head)
    except FileNotFoundError:
        raise FormatError(f"There is no file or folder {str(path)!r}.", remedy="Check the path.") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{str(path)!r} cannot be opened: {error}.") from None
