"""Sweeps that go to a file while they run, and rows that are written after they were made."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.predict.sweep.columns import column_named, columns_with
from inferometer.predict.sweep.engines import engine_for
from inferometer.predict.sweep.formats import form_of, require_parquet
from inferometer.predict.sweep.grid import CHUNK_ROWS
from inferometer.predict.sweep.resume import open_journal
from inferometer.predict.sweep.sinks import ENCODERS, discard, sink_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from inferometer.predict.sweep.grid import Study
    from inferometer.predict.sweep.resume import Journal
    from inferometer.predict.sweep.rows import Part, Rows
    from inferometer.predict.sweep.sinks import Sink

_COLUMN_ROWS = 1 << 17  # of a chunk of columns, which take a tenth of the room of text: rows share more in a larger one


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
    """A file that is complete: its rows, those that stood there already, and those that cannot be."""

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
    if form == "parquet" and study.chunk_rows == CHUNK_ROWS:
        study = replace(study, chunk_rows=_COLUMN_ROWS)
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


@contextmanager
def _writing(path: Path, study: Study, form: str, *, resume: bool) -> Iterator[tuple[Journal, Sink]]:
    """The journal and the sink, where they stand. What holds nothing yet when something goes wrong is taken away."""
    journal = open_journal(path, study, form, resume=resume)
    sink = None
    try:
        sink = sink_for(path, form, columns_with(details=study.details), resume=journal.standing.chunks > 0)
        sink.rewind(journal.standing.mark)
        yield journal, sink
    except OSError as error:
        raise InferometerError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        if sink is not None:
            sink.close()
        if not journal.standing.chunks:
            journal.remove()
            discard(path)
        journal.close()


def write_rows(rows: Rows, path: str | Path, form: str) -> None:
    """Rows that are there already, some parts at a time."""
    if form == "parquet":
        require_parquet()
    sink = sink_for(Path(path), form, {name: column_named(name) for name in rows.columns})
    try:
        for parts in _together(rows.parts):
            sink.add(ENCODERS[form](parts))
        sink.finish()
    finally:
        sink.close()


def _together(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Parts in groups of about a chunk's rows."""
    group: list[Part] = []
    for part in parts:
        if group and sum(map(len, group)) + len(part) > CHUNK_ROWS:
            yield group
            group = []
        group.append(part)
    if group:
        yield group
