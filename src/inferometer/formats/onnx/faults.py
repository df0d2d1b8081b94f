"""What can be wrong with a file, before it is known which file it is."""


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
