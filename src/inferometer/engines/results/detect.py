"""Choosing the importer of a file by its content, and importing it."""

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.errors import FormatError, InferometerError, UnknownNameError
from inferometer.core.json_text import parse_json
from inferometer.core.plugins import usable
from inferometer.core.profile import DeviceFacts, Profile
from inferometer.core.units import format_quantity
from inferometer.engines.results.base import GROUP, Document, Importer

# Reading a result file: the edge of this package. Gzip is unpacked, UTF-16 is taken for what it is.

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
    if data.startswith(_UTF16):
        data = data.decode("utf-16", errors="replace").encode()
    else:
        data = data.removeprefix(_UTF8_MARK)
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


_SHOWN_KEYS = 8
_SHOWN_TEXT = 40


def import_file(  # noqa: PLR0913 - what the file cannot say, and what tests swap
    path: Path | str,
    *,
    source: str | None = None,
    model: str | None = None,
    device: str | None = None,
    importers: Iterable[Importer] | None = None,
    now: Callable[[], str] | None = None,
    limit: int = SIZE_LIMIT,
) -> tuple[Profile, ...]:
    """The results in another tool's file. `source` names the tool; without it, the content decides."""
    document = load_document(Path(path), limit=limit)
    importer = choose_importer(document, source=source, importers=importers)
    try:
        profiles = importer.read(document)
    except InferometerError as error:
        name = str(document.path)
        if name in error.message:
            raise
        message = f"{name!r} cannot be imported from {importer.title}: {error.message}"
        raise FormatError(message, remedy=error.remedy) from None
    return tuple(_named(profile, model, device, (now or _now)()) for profile in profiles)


def choose_importer(
    document: Document, *, source: str | None = None, importers: Iterable[Importer] | None = None
) -> Importer:
    """The importer whose file this is. None, or several, is an error that says what was found."""
    known, broken = installed() if importers is None else (tuple(importers), ())
    matching = [importer for importer in known if importer.matches(document)]
    if source is not None:
        by_name = {importer.name: importer for importer in known}
        if source not in by_name:
            raise UnknownNameError("importer", source, by_name, listing=f"Known: {', '.join(by_name) or 'none'}.")
        asked = by_name[source]
        if asked in matching:
            return asked
        like = f"It looks like {matching[0].title}; leave --as out." if matching else "Check the file."
        raise FormatError(
            f"{str(document.path)!r} was to be read as {source}, and is not a result of {asked.title}: "
            f"it is {_describe(document)}.",
            remedy=like,
        )
    if len(matching) == 1:
        return matching[0]
    seen = f"{str(document.path)!r} is {_describe(document)}"
    if matching:
        names = " or ".join(importer.name for importer in matching)
        raise FormatError(f"{seen}; it could be from {names}.", remedy="Say which with `--as NAME`.")
    own = _own_document(document)
    if own is not None:
        raise FormatError(f"{str(document.path)!r} is {own[0]} of Inferometer's own.", remedy=own[1])
    titles = ", ".join(f"{importer.name} ({importer.title})" for importer in known) or "none"
    remedy = " ".join((f"Formats that are known: {titles}.", *broken))
    raise FormatError(f"No importer knows this file: {seen}.", remedy=remedy)


def _own_document(document: Document) -> tuple[str, str] | None:
    """What kind of our own documents it is, and the command for it; None if it is none."""
    value = document.json
    schema = value.get("schema") if isinstance(value, dict) else None
    if not isinstance(schema, str) or not schema.startswith("inferometer."):
        return None
    kind = schema.removeprefix("inferometer.").partition("/")[0]
    ways = f"`inferometer import {document.path}` stores it, `inferometer explain {document.path}` explains it."
    return (
        ("a profile", ways)
        if kind == "profile"
        else ("a run", ways)
        if kind == "run"
        else (f"a {kind}", "It needs no import.")
    )


def installed() -> tuple[tuple[Importer, ...], tuple[str, ...]]:
    """The importers that load, and the error messages of the others."""
    return usable(GROUP)


def _describe(document: Document) -> str:
    """What a person sees at first sight of the file."""
    if not document.data.strip():
        return "an empty file"
    if document.flaw is not None:
        return f"JSON that cannot be read: {document.flaw}"
    value = document.json if document.json is not None or not document.records else document.records[0]
    many = len(document.records) > 1
    if isinstance(value, dict):
        return f"{len(document.records)} lines of JSON with {_keys(value)}" if many else f"JSON with {_keys(value)}"
    if isinstance(value, list):
        first = value[0] if value else None
        inside = f", the first with {_keys(first)}" if isinstance(first, dict) else ""
        return f"a JSON list of {len(value)}{inside}"
    start = document.text.lstrip()[:_SHOWN_TEXT]
    return f"{len(document.data)} bytes that begin with {start!r}"


def _keys(value: dict[str, object]) -> str:
    if not value:
        return "no keys"
    shown = ", ".join(key[:_SHOWN_TEXT] for key in list(value)[:_SHOWN_KEYS])
    return f"the keys {shown}{', …' if len(value) > _SHOWN_KEYS else ''}"


def _named(profile: Profile, model: str | None, device: str | None, now: str) -> Profile:
    if model is not None:
        profile = replace(profile, model=replace(profile.model, name=model))
    if device is not None:
        profile = replace(profile, device=DeviceFacts(name=device, count=profile.device.count))
    provenance = profile.provenance
    if provenance is not None and not provenance.created:
        profile = replace(profile, provenance=replace(provenance, created=now))
    return profile


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
