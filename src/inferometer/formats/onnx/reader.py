"""The reader itself: a path in, a Graph out. Files are mapped, never loaded."""

import mmap
from pathlib import Path

from inferometer.core.errors import FormatError
from inferometer.core.graph import Graph
from inferometer.formats.base import Peek
from inferometer.formats.onnx.detect import confidence
from inferometer.formats.onnx.faults import Fault


class OnnxReader:
    """ONNX models, read without the `onnx` package and without their weights."""

    name = "onnx"
    formats = frozenset({"onnx"})

    def match(self, peek: Peek) -> float:
        return 0.0 if peek.is_folder else confidence(peek.head, peek.size)

    def read(self, path: Path) -> Graph:
        path = Path(path)
        try:
            with path.open("rb") as file:
                if file.seek(0, 2) == 0:
                    return read_bytes(path, b"")  # nothing to map, and nothing to read
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    return read_bytes(path, data)
        except Fault as fault:
            raise FormatError(
                f"{str(path)!r} cannot be read as ONNX: {fault}.",
                remedy="The file may be cut short, damaged or of another format; `onnx.checker` may tell more.",
            ) from None
        except (OSError, ValueError) as error:
            raise FormatError(f"{str(path)!r} cannot be opened: {error}.") from None


def read_bytes(path: Path, data: bytes | mmap.mmap) -> Graph:
    """The graph of a file's bytes; `path` says where external data would lie."""
    from inferometer.formats.onnx.assemble import assemble  # noqa: PLC0415 - matching a file needs none of it

    return assemble(path, data)
