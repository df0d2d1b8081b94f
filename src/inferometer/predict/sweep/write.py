"""Sweeps that go to a file while they run, and rows that are written after they were made."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, fields, is_dataclass, replace
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.predict.sweep.columns import columns_with
from inferometer.predict.sweep.engines import engine_for
from inferometer.predict.sweep.evaluate import evaluate_chunk
from inferometer.predict.sweep.formats import form_of
from inferometer.predict.sweep.grid import CHUNK_ROWS, SHARED_ROWS, Study, SweepChunk, Tile
from inferometer.predict.sweep.sinks import Sink, discard, partial_of, sink_for
from inferometer.predict.sweep.table import SweepTable
from inferometer.version import __version__

# The journal beside an unfinished file: of which sweep it is, and how far it is for certain.
#
# A line is added when a chunk has reached the disk. After a kill the last whole line holds, and what the file has
# beyond it is dropped.


@frozen
class SweepProgress:
    """How far a sweep is: chunks and rows done, those of them that cannot be, and the sink's mark behind them."""

    chunks: int = 0
    rows: int = 0
    impossible: int = 0
    mark: int = 0


_KEYS = {entry.name for entry in fields(SweepProgress)}


def journal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.journal")


class Journal:
    def __init__(self, path: Path, standing: SweepProgress) -> None:
        self._path, self.standing = path, standing
        self._file = path.open("a", encoding="utf-8")

    def add(self, *, rows: int, impossible: int, mark: int) -> SweepProgress:
        before = self.standing
        standing = SweepProgress(
            chunks=before.chunks + 1, rows=before.rows + rows, impossible=before.impossible + impossible, mark=mark
        )
        self._file.write(json.dumps(asdict(standing)) + "\n")
        self._file.flush()
        self.standing = standing  # and not before: a full disk may have no room for the line
        return standing

    def close(self) -> None:
        with suppress(OSError):  # a line that found no room, which was told when it was added
            self._file.close()

    def remove(self) -> None:
        self.close()
        self._path.unlink(missing_ok=True)


def open_journal(path: Path, study: Study, form: str, *, resume: bool) -> Journal:
    """The journal of a file. One that is there is of an unfinished sweep: it is continued only if that is asked for."""
    file, mark = journal_of(path), fingerprint(study, form)
    # A journal whose rows are gone says nothing any more: the sweep begins anew.
    if not file.exists() or (resume and not partial_of(path).exists()):
        try:
            file.write_text(json.dumps({"inferometer": __version__, "sweep": mark}) + "\n", encoding="utf-8")
        except OSError:
            file.unlink(missing_ok=True)  # an empty one would ask for --resume next time
            raise
        return Journal(file, SweepProgress())
    if not resume:
        raise DomainError(
            f"{path} has an unfinished sweep beside it ({file.name}).",
            remedy=f"Continue it with --resume, or remove {file.name} to begin again.",
        )
    whole = [line for line in file.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    head, *lines = _decoded(file, whole)
    if head.get("sweep") != mark:
        raise DomainError(
            f"The unfinished sweep of {path} is another one than is asked for now.",
            remedy=f"Ask for the same, or remove {file.name} to begin again.",
        )
    file.write_text("".join(whole), encoding="utf-8")  # without what a kill left of a last line
    return Journal(file, SweepProgress(**lines[-1]) if lines else SweepProgress())


def _decoded(file: Path, lines: list[str]) -> list[dict[str, Any]]:
    try:
        found = [json.loads(line) for line in lines]
        if all(isinstance(line, dict) for line in found) and all(line.keys() == _KEYS for line in found[1:]):
            return found or [{}]
    except ValueError:
        pass
    raise DomainError(f"{file} is no journal of a sweep.", remedy="Remove it to begin again.")


def fingerprint(study: Study, form: str) -> str:
    """The same for the same sweep in any process: questions, calibrations, lists and form, by what is in them."""
    return digest_of(f"{__version__} {form}", study)


def digest_of(head: str, value: Any) -> str:
    """The same for what has the same values in it."""
    digest = hashlib.sha256(head.encode())
    _add(digest, value, {})
    return digest.hexdigest()[:32]  # 128 bits: no two meet by chance


_PLAIN = frozenset({str, int, float, bool, type(None)})  # most of what there is, so looked at first


def _add(digest: Any, value: Any, known: dict[int, bytes]) -> None:
    """Values of any depth. Sets have no order of their own, so theirs is made.

    Of dataclasses the digest is `known` by identity: a graph is large, and stands in a question for every device.
    """
    kind = type(value)
    if kind in _PLAIN:
        # With its type, since True is 1 and "1" is written like it.
        digest.update(f"{kind.__name__}:{value!r},".encode())
    elif is_dataclass(value):
        if id(value) not in known:
            own = hashlib.sha256(kind.__name__.encode())
            for entry in fields(value):
                _add(own, getattr(value, entry.name), known)
            known[id(value)] = own.digest()
        digest.update(known[id(value)])
    elif isinstance(value, Mapping):
        digest.update(b"{")
        for key in sorted(value, key=str):  # in whatever order they were put in
            _add(digest, key, known)
            _add(digest, value[key], known)
    elif isinstance(value, set | frozenset):
        _add(digest, sorted(value, key=str), known)
    # Brackets around it: [[a], [b]] and [[a, b]] are two sweeps.
    elif isinstance(value, list | tuple | range | np.ndarray):
        plain = value.tolist() if isinstance(value, np.ndarray) else [*value]
        if {*map(type, plain)} <= _PLAIN:  # as a list is written, with every value's type to be seen
            digest.update(f"{plain!r},".encode())
            return
        digest.update(b"[")
        for inner in value:
            _add(digest, inner, known)
        digest.update(b"]")
    else:
        digest.update(f"{kind.__name__}:{value!r},".encode())


@frozen
class Progress:
    """How far a sweep is. `kept` rows were there before it began, and say nothing about its speed."""

    done: int
    total: int
    kept: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows a second."""
        return (self.done - self.kept) / self.seconds if self.seconds > 0 else 0.0

    @property
    def remaining_s(self) -> float | None:
        return (self.total - self.done) / self.rate if self.rate else None


@frozen
class Written:
    """The counts of a complete file: its rows, the rows of an earlier run among them, and the impossible ones."""

    path: Path
    rows: int
    kept: int
    impossible: int
    seconds: float


def stream(  # noqa: PLR0913 - where to, how, and what to tell
    study: Study,
    path: Path,
    *,
    engine: str = "local",
    resume: bool = False,
    progress: Callable[[Progress], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Written:
    """Compute a study and write its rows as they come; memory does not grow with the grid.

    Rows go to `FILE.part` and the place reached to `FILE.journal`; both are gone when the file is complete. After a
    kill, `resume` goes on behind the last chunk that the journal has.
    """
    form = form_of(path)
    if form == "parquet":  # text takes longer to write than rows to compute
        study = replace(study, chunk_rows=_chunk_rows(study, SHARED_ROWS if engine == "local" else _SENT_ROWS))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InferometerError(f"The folder {path.parent} cannot be made: {error.strerror or error}.") from None
    start = clock()
    with engine_for(engine, study) as run, _writing(path, study, form, resume=resume) as (journal, sink):
        standing = journal.standing
        kept = standing.rows
        for done in run(islice(study.chunks(), standing.chunks, None), form):
            standing = journal.add(rows=done.rows, impossible=done.impossible, mark=sink.add(done.payload))
            if progress is not None:
                progress(Progress(done=standing.rows, total=len(study), kept=kept, seconds=clock() - start))
        sink.finish()
        journal.remove()
    seconds = clock() - start
    return Written(path=path, rows=standing.rows, kept=kept, impossible=standing.impossible, seconds=seconds)


_SENT_ROWS = 1 << 19  # of a chunk that travels between processes: several stand in memory until it is their turn


def _chunk_rows(study: Study, shared: int) -> int:
    """More at once than was left open, unless rows are predicted one by one: a row of each combination tells.

    Details take ten times the room of what rows are without them.
    """
    if study.chunk_rows != CHUNK_ROWS or study.details or prod(study.sizes.shape) <= CHUNK_ROWS:
        return study.chunk_rows
    first = Tile(ranges=((0, 1),) * len(study.sizes.shape))
    parts = evaluate_chunk(study, SweepChunk(number=0, combinations=range(study.combinations), tile=first))
    return CHUNK_ROWS if any(isinstance(part, SweepTable) for part in parts) else shared


@contextmanager
def _writing(path: Path, study: Study, form: str, *, resume: bool) -> Iterator[tuple[Journal, Sink]]:
    """The journal and the sink, where they stand. What holds nothing yet when something goes wrong is taken away."""
    journal = None
    try:
        with ExitStack() as ends:  # each of them, even where a full disk lets another one fail again
            journal = open_journal(path, study, form, resume=resume)
            ends.callback(_end, path, journal)
            sink = sink_for(path, form, columns_with(details=study.details), resume=journal.standing.chunks > 0)
            ends.callback(sink.close)
            sink.rewind(journal.standing.mark)
            yield journal, sink
    except (OSError, sqlite3.Error) as error:
        kept = 0 if journal is None else journal.standing.rows
        raise InferometerError(
            f"{path} cannot be written: {getattr(error, 'strerror', None) or error}.",
            remedy=f"Its first {kept:,} rows are kept: make room, and continue with --resume." if kept else None,
        ) from None


def _end(path: Path, journal: Journal) -> None:
    """What holds no chunk would only ask for --resume next time."""
    if not journal.standing.chunks:
        journal.remove()
        discard(path)
    journal.close()
