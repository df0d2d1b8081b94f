"""TFLite (LiteRT) models: `.tflite` flatbuffers, and bundles of them (`.task`).

Opening TFLite files and bundles of them.
"""

import io
import mmap
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from inferometer.core.errors import FormatError
from inferometer.core.graph import Graph
from inferometer.formats.base import Peek
from inferometer.formats.tflite.graph import merged, tflite_graph
from inferometer.formats.tflite.model import parse_model
from inferometer.formats.tflite.schema import IDENTIFIER

_ZIP = b"PK\x03\x04"
_MANY_MEMBERS = 1024
_MEMBER_LIMIT = 1 << 28  # bytes that a compressed member may have once it is unpacked
# What zipfile lets through of a damaged archive, encryption and unknown methods included.
_BROKEN = (
    zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError, ArithmeticError, LookupError,
    RuntimeError,
)  # fmt: skip
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BUNDLED = (".tflite", ".task", "TF_LITE")  # how members that are models or bundles end


class TfliteReader:
    name = "tflite"
    formats = frozenset({"tflite", "task"})

    def match(self, peek: Peek) -> float:
        """The flatbuffer's identifier; or a zip whose first member is a model."""
        if peek.head[4:8] == IDENTIFIER:
            return 1.0
        if peek.head[:4] == _ZIP and len(peek.head) >= 30:
            (length,) = struct.unpack_from("<H", peek.head, 26)
            first = peek.head[30 : 30 + length].decode("utf-8", errors="replace")
            return 0.9 if first.endswith(_BUNDLED) else 0.0
        return 0.0

    def read(self, path: Path) -> Graph:
        return read_tflite(path)


def read_tflite(path: Path, *, signature: str | None = None) -> Graph:
    """The graph of a model, or of all models of a bundle. `signature` chooses among a model's entry points."""
    path = Path(path)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:4] == _ZIP:
                return _bundle(path)
            model = parse_model(data, path)
    except FileNotFoundError:
        raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.") from None
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise FormatError(f"{str(path)!r} cannot be read as a TFLite file: {error}.") from None
    return tflite_graph(model, name=path.stem, label=str(path), signature=signature)


def _bundle(path: Path) -> Graph:
    try:
        with zipfile.ZipFile(path) as archive:
            graphs = list(_members(archive, path, prefix="", depth=0))
    except _BROKEN as error:
        raise FormatError(f"{str(path)!r} is not a sound zip file: {error}.") from None
    if not graphs:
        raise FormatError(f"The bundle {str(path)!r} holds no TFLite model.")
    return graphs[0] if len(graphs) == 1 else merged(graphs, name=path.stem)


def _members(archive: zipfile.ZipFile, path: Path, *, prefix: str, depth: int) -> Iterator[Graph]:
    """Each member that is a model. A bundle may hold bundles, one level deep."""
    entries = archive.infolist()
    if len(entries) > _MANY_MEMBERS:
        raise FormatError(f"The bundle {str(path)!r} holds {len(entries):,} members; {_MANY_MEMBERS:,} are read.")
    for entry in entries:
        label = f"{path}:{prefix}{entry.filename}"
        if not entry.filename.endswith(_BUNDLED):
            continue
        # A member's bytes, and never more of them than the limit, whatever its header says.
        if entry.compress_type not in _METHODS:
            raise FormatError(
                f"{label!r} is packed by method {entry.compress_type}; only plain and deflated ones are read."
            )
        with archive.open(entry) as file:
            data = file.read(_MEMBER_LIMIT + 1)
        if len(data) > _MEMBER_LIMIT:
            raise FormatError(
                f"{label!r} unpacks to more than {_MEMBER_LIMIT:,} bytes.",
                remedy="Unpack the bundle and read its members.",
            )
        name = prefix + entry.filename.replace("{}", "{ }")
        if data[4:8] == IDENTIFIER:
            yield tflite_graph(parse_model(data, path, label=label), name=name, label=label, prefix=f"{name}/")
        elif data[:4] == _ZIP and depth == 0:
            with zipfile.ZipFile(io.BytesIO(data)) as inner:
                yield from _members(inner, path, prefix=f"{name}/", depth=1)


__all__ = ["TfliteReader", "read_tflite", "reader"]

reader = TfliteReader()
