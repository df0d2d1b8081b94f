"""What can be wrong with a file, before it is known which file it is, and the bounds within which one is read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from inferometer.core.errors import FormatError

# The bounds that keep a hostile file cheap to refuse. Each lies far above what real models need.

MAX_FIELDS = 20_000_000  # protobuf fields read in one file: some ten seconds' work
MAX_NODES = 200_000  # nodes looked at, those of inlined functions and repeated loop bodies included
MAX_NESTING = 48  # graphs within graphs, types within types, functions that call functions
MAX_RANK = 64
MAX_TEXT = 1 << 14  # bytes of a name; longer ones are no names
MAX_PREFIX = 2000  # characters before a name in a nested graph; longer ones are cut and numbered
MAX_ITEMS = 4096  # elements of a constant whose values are read
MAX_FOLLOWED = 4_000_000  # elements followed in all, some seconds' work; then constants are not looked into any more
MAX_NUMBER = (1 << 63) - 1
MAX_DIM_PARTS = 160  # symbols and operators in one size expression; above it the size is called unknown
MAX_NOTES = 50  # examples kept of each remark; all are counted


class Fault(Exception):  # noqa: N818 - the reader turns it into a FormatError that names the file
    """Something the file says that cannot be: why, and where (a byte offset, a node, a tensor)."""

    of_sizes = False  # whether it is about sizes that do not fit, as a rule inferred them

    def __init__(self, reason: str, *, offset: int | None = None, where: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
        self.where = where

    def at(self, where: str) -> "Fault":
        """The same fault, located from one level further out."""
        self.where = where if self.where is None else f"{where}, {self.where}"
        return self

    @property
    def in_words(self) -> str:
        """Without the byte: of a format whose layers are only written as ONNX's nodes, it is none of the file."""
        return self.reason if self.where is None else f"{self.reason} ({self.where})"

    def __str__(self) -> str:
        index = [] if self.where is None else [self.where]
        if self.offset is not None:
            index.append(f"byte {self.offset:,}")
        return f"{self.reason} ({', '.join(index)})" if index else self.reason


class WrongAttribute(Fault):
    """An input or attribute that an operator does not have, or of another kind: no sizes could mend it."""


class UncoveredError(Exception):
    """A node whose work cannot be counted. The message becomes the reason on the custom op that stands for it."""


class UnknownShapeError(Exception):
    """A shape that cannot be inferred from the file. Not the user's error: the tensor is reported as unknown."""


@contextmanager
def reading(path: Path, what: str, *, remedy: str, by_byte: bool = True) -> Iterator[None]:
    """What is wrong with a file, or keeps it from being opened, as an error that names it."""
    try:
        yield
    except Fault as fault:
        words = str(fault) if by_byte else fault.in_words
        raise FormatError(f"{str(path)!r} cannot be read as {what}: {words}.", remedy=remedy) from None
    except FileNotFoundError:
        raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.") from None
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise FormatError(f"{str(path)!r} cannot be opened: {error}.") from None
