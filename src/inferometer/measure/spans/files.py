"""Spans on disk: a header, batches of columns, a last line; one JSON document a line.

A file is written as the run goes on, so a run that is killed leaves what it had. Such a file, or one cut short by a
copy or a full disk, is read as far as it goes, and a note says what is missing. Words (names, units, phases) are
written once and then by number.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core import cache
from inferometer.core.codec import Schema, decode, require_schema
from inferometer.core.errors import FormatError, InferometerError, SchemaError
from inferometer.core.trace import Trace
from inferometer.measure.spans.build import batches_of, build, from_trace
from inferometer.measure.spans.power import Power
from inferometer.measure.spans.recording import DEVICE, FLAGS, READINGS, WORDS, Recording, RecordingRun, SpanBatch

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
            raise _not_written(path, error) from error

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
            raise _not_written(self.path, error) from error
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
            raise _not_written(self.path, error) from error

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
        raise _not_written(path, cause if isinstance(cause, OSError) else OSError(str(error))) from error


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _not_written(path: Path, error: OSError) -> InferometerError:
    return cache.not_written(path, error, beside="; what was recorded is still in memory")


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
        if not self.last:
            self.notes.append(f"{self.path.name} has no last line: its run did not finish, or the file was cut.")
        elif (lost := self.last.get("spans", spans) - spans) > 0:
            self.notes.append(f"{self.path.name}: {lost} of {self.last['spans']} spans could not be read.")

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


def _is_batch(document: dict[str, Any]) -> bool:
    return (
        isinstance(document.get("spans"), int)
        and isinstance(document.get("words"), list)
        and isinstance(document.get("columns"), dict)
        and {"name", "start", "end"} <= document["columns"].keys()
    )


# Load a recording from a file, or merge those of several processes.


def load(path: str | Path) -> Recording:
    """One file, as `Profiler.save` or a profiler with `file=` wrote it; or an inferometer.trace document."""
    file = SpanFile.open(Path(path))
    if file.trace is not None:
        return from_trace(file.trace)
    return _together([(file, list(_checked(file)))])


def merge(*paths: str | Path) -> Recording:
    """The files of several processes as one recording.

    Processes of one machine share a clock. Those of another machine are shifted by the difference of the machines'
    wall clocks; a note says so, since the result is only as good as they are.
    """
    if not paths:
        raise FormatError("No files were given to merge.")
    files = [SpanFile.open(Path(path)) for path in paths]
    traces = [file.path for file in files if file.trace is not None]
    if traces:
        raise SchemaError(
            f"{traces[0]} is an inferometer.trace document, which does not say what its clock began with.",
            remedy="Merge recordings: what `Profiler.save` writes.",
        )
    held = [(file, list(_checked(file))) for file in files]
    merged = next((file.path for file, batches in held for batch in batches if "parent" in batch.columns), None)
    if merged is not None and len(files) > 1:
        raise SchemaError(f"{merged} is itself the result of a merge.", remedy="Merge all the first files at once.")
    return _together(held)


def save(recording: Recording, path: str | Path) -> Path:
    """Keep a recording (a merged one, say) in a file that `load` reads."""
    target, run = Path(path), recording.run
    header = {"clock": run.clock, "started_at": run.started_at, "process": 0}
    threads = {str(lane.thread): lane.title for lane in recording.lanes if lane.task is None}
    write_batches(target, header, batches_of(recording), {**run_facts(run), "threads": threads})
    return target


def _checked(file: SpanFile) -> Sequence[SpanBatch]:
    sound = []
    for batch in file.batches():
        wrong = next((name for name, column in batch.columns.items() if not _sound(name, column)), None)
        if wrong is None:
            sound.append(batch)
        else:
            file.notes.append(f"{file.path.name}: {batch.count} spans have a {wrong} that cannot be one; lost.")
    return sound


_NEEDED = frozenset({"name", "start", "end"})
_WHOLE = frozenset({"layer", "token", "process", "thread", "task", "link", "above", "parent", *DEVICE})
_NUMBERS = frozenset({"tokens", "context", "flops", "bytes", "energy", *READINGS})


def _sound(name: str, column: Sequence[Any]) -> bool:
    """Whether a column holds what it should: words, whole numbers that 64 bits hold, numbers, or nothing.

    A column that is not known is not read: a later writer may add some.
    """
    held = set(map(type, column)) - (set() if name in _NEEDED else {type(None)})
    if name in WORDS:
        return held <= {str}
    if name in FLAGS:
        return held <= {bool}
    if name not in _NEEDED | _WHOLE | _NUMBERS:
        return True
    if not held <= ({int, float} if name in _NUMBERS else {int}):
        return False
    return all(-(2**63) < number < 2**63 for number in column if type(number) is int)


def _together(files: Sequence[tuple[SpanFile, Sequence[SpanBatch]]]) -> Recording:
    processes = _process_numbers([file for file, _ in files])
    titles: dict[tuple[int, int], str] = {}
    batches: list[SpanBatch] = []
    notes: list[str] = []
    links, first = 0, files[0][0]
    for (file, held), process in zip(files, processes, strict=True):
        shift = _shift_ns(file, first, notes)
        most = 0
        for batch in held:
            batches.append(_placed(batch, process, shift, links))
            most = max([most, *(link for link in batch.column("link") if link is not None)])
        links += most
        notes += [*file.notes, *file.last.get("notes", ())]
        names = file.last.get("threads", {}).items()
        held_by = {process, *(number for batch in held for number in batch.columns.get("process", ()))}
        titles |= {(number, int(thread)): title for number in held_by for thread, title in names}
    run = run_of(first.header, [file.last for file, _ in files])
    return build(batches, run=replace(run, notes=tuple(notes)), titles=titles)


def _process_numbers(files: Sequence[SpanFile]) -> list[int]:
    """Process ids; where two machines gave out the same one, plain numbers."""
    processes = [file.header.get("process") for file in files]
    known = [number for number in processes if isinstance(number, int)]
    return known if len(set(known)) == len(files) else list(range(1, len(files) + 1))


def _shift_ns(file: SpanFile, first: SpanFile, notes: list[str]) -> int:
    keys = ("host", "boot", "clock")
    if file is first or all(file.header.get(key) == first.header.get(key) for key in keys):
        return 0
    mine, theirs = file.header, first.header
    if not all(isinstance(header.get(key), int) for header in (mine, theirs) for key in ("epoch_ns", "started_ns")):
        notes.append(f"{file.path.name} is from another machine and says no time of day: it is not aligned.")
        return 0
    notes.append(f"{file.path.name} is from another machine: aligned by the machines' wall clocks.")
    return int((mine["epoch_ns"] - mine["started_ns"]) - (theirs["epoch_ns"] - theirs["started_ns"]))


def _placed(batch: SpanBatch, process: int, shift: int, links: int) -> SpanBatch:
    columns: dict[str, list[Any]] = {"process": [process] * batch.count, **batch.columns}
    for name in ("start", "end", "device_start", "device_end"):
        if shift and name in columns:
            columns[name] = [None if time is None else time + shift for time in columns[name]]
    for name in ("link", "above"):
        if links and name in columns:
            columns[name] = [None if link is None else link + links for link in columns[name]]
    return SpanBatch(count=batch.count, columns=columns)


def run_facts(run: RecordingRun) -> dict[str, Any]:
    """A run's facts as a file's last line holds them."""
    power = None if run.power is None else msgspec.to_builtins(run.power)
    return {"dropped": run.dropped, "notes": list(run.notes), "span_cost_s": run.span_cost_s, "power": power}


def run_of(header: dict[str, Any], lasts: Sequence[dict[str, Any]]) -> RecordingRun:
    costs = [last["span_cost_s"] for last in lasts if last.get("span_cost_s") is not None]
    powers = [last["power"] for last in lasts if last.get("power")]
    try:
        power = msgspec.convert(powers[0], Power) if powers else None
    except msgspec.ValidationError:
        power = None
    return RecordingRun(
        clock=str(header.get("clock", "perf_counter_ns")),
        started_at=header.get("started_at"),
        dropped=sum(int(last.get("dropped") or 0) for last in lasts),
        span_cost_s=max(costs, default=None),
        power=power,
    )
