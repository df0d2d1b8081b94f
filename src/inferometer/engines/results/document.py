"""Reading a result file: the edge of this package. Gzip is unpacked, UTF-16 is taken for what it is."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.errors import FormatError
from inferometer.core.json_text import parse_json
from inferometer.core.units import format_quantity
from inferometer.engines.results.base import Document

SIZE_LIMIT = 512 << 20  # bytes, unpacked; decoded JSON takes several times as much
_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")  # what `tool > file` writes in PowerShell
_UTF8_MARK = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_BROKEN = (msgspec.DecodeError, ValueError, RecursionError)  # ValueError: json's own error, and numbers of 5,000 digits


def load_document(path: Path, *, limit: int = SIZE_LIMIT) -> Document:
    """The file, unpacked and parsed. What cannot be read is an error that names it."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
        if data.startswith(_GZIP):
            with gzip.open(path) as file:
                data = file.read(limit + 1)
    except FileNotFoundError:
        raise FormatError(f"There is no file {str(path)!r}.", remedy="Check the path.") from None
    except IsADirectoryError:
        raise FormatError(f"{str(path)!r} is a folder.", remedy="Name the result file in it.") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise FormatError(f"{str(path)!r} cannot be read: {error}.") from None
    if len(data) > limit:
        raise FormatError(
            f"{str(path)!r} is larger than {format_quantity(limit, 'B')}, the most that is read.",
            remedy="Profile fewer runs, or cut the trace to a few of them.",
        )
    return parse_document(path, data)


def parse_document(path: Path, data: bytes) -> Document:
    """The document in these bytes: one JSON value, one a line, or text."""
    data = _as_utf8(data)
    start = data.lstrip(_BLANK)[:1]
    if start not in {b"{", b"["}:
        return Document(path=path, data=data)
    try:
        value = _decode(data)
    except _BROKEN as error:
        records = tuple(_lines(data))
        flaw = None if records else _why(error)
        return Document(path=path, data=data, records=records, flaw=flaw)
    return Document(path=path, data=data, json=value, records=(value,))


def _as_utf8(data: bytes) -> bytes:
    if data.startswith(_UTF16):
        return data.decode("utf-16", errors="replace").encode()
    return data.removeprefix(_UTF8_MARK)


def _decode(data: bytes) -> Any:
    """The fast parser first; json's own also takes NaN and Infinity, which Python tools write.

    Numbers are checked where they are used, so that the error can say which one it is.
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        if b"NaN" not in data and b"Infinity" not in data:
            raise
        return parse_json(data)


def _lines(data: bytes) -> Iterator[Any]:
    """The values of a file with one a line, or nothing at all where any line is broken or only one is there."""
    lines = [line for line in data.splitlines() if line.strip()]
    if len(lines) < 2:
        return
    values = []
    for line in lines:
        try:
            values.append(_decode(line))
        except _BROKEN:
            return
    yield from values


def _why(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error)
