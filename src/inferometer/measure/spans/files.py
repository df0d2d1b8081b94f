"""Spans on disk: a header, batches of columns, a last line; one JSON document a line.

A file is written as the run goes on, so a run that is killed leaves what it had. Such a file, or one cut short by a
copy or a full disk, is read as far as it goes, and a note says what is missing. Words (names, units, phases) are
written once and then by number.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.codec import Schema, decode, require_schema
from inferometer.core.errors import FormatError, InferometerError, SchemaError
from inferometer.core.trace import Trace
from inferometer.measure.spans.batch import WORDS, SpanBatch

SCHEMA = Schema(name="inferometer.spans", version=1)
_WANTED = f"Open a recording ({SCHEMA}, as `Profiler.save` writes it) or an inferometer.trace document."
_ROWS_A_LINE = 4096
_encoder = msgspec.json.Encoder()


class SpanWriter:
    """Writes batches to one file as they come. Its folder is made if it is not there."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path, self.spans = path, 0
        self._words: dict[str, int] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb")
            self._line({"schema": str(SCHEMA), **header})
            self._file.flush()
        except OSError as error:
            raise write_failed(path, error) from error

    def write(self, batch: SpanBatch) -> None:
        """One batch, on the disk when this returns."""
        new: list[str] = []
        columns = {
            name: self._numbers(column, new) if name in WORDS else column for name, column in batch.columns.items()
        }
        try:
            self._line({"spans": batch.count, "words": new, "columns": columns})
            self._file.flush()
        except OSError as error:
            raise write_failed(self.path, error) from error
        self.spans += batch.count

    def _numbers(self, column: list[str | None], new: list[str]) -> list[int | None]:
        for word in dict.fromkeys(column):
            if word is not None and word not in self._words:
                self._words[word] = len(self._words)
                new.append(word)
        return [None if word is None else self._words[word] for word in column]

    def finish(self, last: dict[str, Any]) -> None:
        try:
            self._line({"end": True, "spans": self.spans, **last})
            self._file.close()
        except OSError as error:
            raise write_failed(self.path, error) from error

    def abandon(self) -> None:
        """Close without the last line; what is there stays readable."""
        with suppress(OSError):
            self._file.close()

    def _line(self, document: dict[str, Any]) -> None:
        self._file.write(_encoder.encode(document) + b"\n")


def write_batches(path: Path, header: dict[str, Any], batches: Iterable[SpanBatch], last: dict[str, Any]) -> None:
    """A whole recording, in lines short enough that a cut costs little; there whole or not at all."""
    beside = _beside(path)
    writer = SpanWriter(beside, header)
    try:
        for batch in batches:
            for first in range(0, batch.count, _ROWS_A_LINE):
                rows = slice(first, first + _ROWS_A_LINE)
                columns = {name: column[rows] for name, column in batch.columns.items()}
                writer.write(SpanBatch(count=len(columns["start"]), columns=columns))
        writer.finish(last)
        beside.replace(path)
    except (OSError, InferometerError) as error:
        writer.abandon()
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        cause = error if isinstance(error, OSError) else error.__cause__
        raise write_failed(path, cause if isinstance(cause, OSError) else OSError(str(error))) from error


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def write_whole(path: Path, chunks: Iterable[bytes]) -> None:
    """A file that is there whole or not at all: written beside its place and then moved there."""
    beside = _beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            file.writelines(chunks)
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise write_failed(path, error) from error


def write_failed(path: Path, error: OSError) -> InferometerError:
    remedies = {
        errno.ENOSPC: "Free some space, or write to another disk; what was recorded is still in memory.",
        errno.EDQUOT: "Your quota is used up: free some space, or write elsewhere.",
        errno.EACCES: "Choose a folder you may write to.",
        errno.EROFS: "Choose a folder that can be written to.",
    }
    reason = error.strerror or type(error).__name__
    return InferometerError(f"{path} cannot be written: {reason}.", remedy=remedies.get(error.errno or 0))


@dataclass(slots=True)
class SpanFile:
    """A file being read. `notes` and `last` are complete once the batches have been gone through."""

    path: Path
    header: dict[str, Any]
    last: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    trace: Trace | None = None

    @classmethod
    def open(cls, path: Path) -> "SpanFile":
        """Look at the first line. An `inferometer.trace` document is as good as a recording."""
        try:
            with path.open("rb") as file:
                first = file.readline()
                if b'"inferometer.trace/' in first or b'"schema"' not in first:
                    return cls(path, {}, trace=decode(first + file.read(), Trace))
        except OSError as error:
            raise FormatError(f"{path} cannot be read: {error.strerror}.") from None
        except SchemaError as error:
            raise SchemaError(f"{path}: {error.message}", remedy=_WANTED) from None
        try:
            header = msgspec.json.decode(first)
            require_schema(header, SCHEMA)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise FormatError(f"{path} is cut in its first line: nothing of it can be read.") from None
        except SchemaError as error:
            raise SchemaError(f"{path}: {error.message}", remedy=error.remedy or _WANTED) from None
        return cls(path, header)

    def batches(self) -> Iterator[SpanBatch]:
        words: list[str] = []
        spans = 0
        with self.path.open("rb") as file:
            file.readline()
            for number, line in enumerate(file, start=2):
                document = self._document(line, number)
                if document is None:
                    continue
                if document.get("end"):
                    self.last = document
                    break
                words += document["words"]
                batch = self._batch(document, words, number)
                if batch is not None:
                    spans += batch.count
                    yield batch
        self._say_what_is_missing(spans)

    def _document(self, line: bytes, number: int) -> dict[str, Any] | None:
        try:
            document = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            document = None
        if not isinstance(document, dict) or not (document.get("end") or _is_batch(document)):
            cut = "is cut short" if not line.endswith(b"\n") else "cannot be read"
            self.notes.append(f"{self.path.name}: line {number} {cut}; the spans in it are lost.")
            return None
        return document

    def _batch(self, document: dict[str, Any], words: list[str], number: int) -> SpanBatch | None:
        count, columns = document["spans"], document["columns"]
        if any(not isinstance(column, list) or len(column) != count for column in columns.values()):
            self.notes.append(f"{self.path.name}: line {number} has columns of different lengths; its spans are lost.")
            return None
        try:
            for name in WORDS:
                if name in columns:
                    columns[name] = [None if index is None else words[index] for index in columns[name]]
        except (IndexError, TypeError):
            self.notes.append(f"{self.path.name}: line {number} uses a name of a line that is lost; so are its spans.")
            return None
        return SpanBatch(count=count, columns=columns)

    def _say_what_is_missing(self, spans: int) -> None:
        if not self.last:
            self.notes.append(f"{self.path.name} has no last line: its run did not finish, or the file was cut.")
        elif (lost := self.last.get("spans", spans) - spans) > 0:
            self.notes.append(f"{self.path.name}: {lost} of {self.last['spans']} spans could not be read.")


def _is_batch(document: dict[str, Any]) -> bool:
    return (
        isinstance(document.get("spans"), int)
        and isinstance(document.get("words"), list)
        and isinstance(document.get("columns"), dict)
        and {"name", "start", "end"} <= document["columns"].keys()
    )
