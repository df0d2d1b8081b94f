"""Export runs to archives, and import them."""

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select

from inferometer.core.run import Run
from inferometer.errors import DomainError, FormatError
from inferometer.store import archive, files, ids, names, writing
from inferometer.store.archive import Limits, Packed, Story
from inferometer.store.errors import StoreError
from inferometer.store.finding import run_of
from inferometer.store.run_reading import RunReading
from inferometer.store.run_writing import RunWriting
from inferometer.store.tables import metrics, runs
from inferometer.store.values import Attachment


class Exchange(RunReading, RunWriting):
    def export(self, run: str, to: Path) -> Path:
        """Write a run with its files into one archive."""
        exported, row = self.get(run), self.row(run)
        if row.status in {"pending", "running"}:
            raise DomainError(f"Run {exported.id} is {row.status}: it can be exported when it has ended.")
        story = Story(
            kind=row.kind, started=row.started, ended=row.ended, reason=row.reason, metrics=self.metrics(exported.id)
        )
        for artifact in exported.artifacts:
            files.read(self.location.artifacts, artifact.sha256)
        try:
            archive.write_archive(exported, story, self.location.artifacts, to)
        except OSError as error:
            raise StoreError(
                f"Run {exported.id} could not be exported to {to} ({error.strerror or error}).",
                remedy="Make room, or choose another folder.",
            ) from None
        return to

    def import_(
        self, path: Path, *, project: str | None = None, new_id: bool = False, limits: Limits | None = None
    ) -> str:
        """Take in an archive, or a bare document of a run or profile. A run that is here already is not doubled."""
        with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
            packed = archive.read_archive(path, Path(folder), limits)
            if packed.profile is not None:
                return self.add(packed.profile, project or "default", kind="import")
            run = _whole(packed.run)
            if not new_id and self._has(run, path):
                return run.id
            return self._take(run, packed, None if new_id else run.id, project)

    def _has(self, run: Run, path: Path) -> bool:
        def work(connection: Connection) -> Run | None:
            there = connection.execute(select(runs.c.id).where(runs.c.id == run.id)).first()
            return None if there is None else run_of(connection, run.id)

        here = self._read(work)
        if here is not None and here.profile != run.profile:
            raise StoreError(
                f"{path}: run {run.id} is in the store already, with another profile.",
                remedy="Take it in beside the other with --new-id.",
            )
        return here is not None

    def _take(self, run: Run, packed: Packed, wanted: str | None, project: str | None) -> str:
        story, now = packed.story, self._now()
        draft = writing.Draft(
            project=project or run.project, name=run.name, kind=story.kind, tags=run.tags, parameters=run.parameters
        ).checked()
        named = [Attachment(name=a.name, source=packed.files[a.sha256], media_type=a.media_type) for a in run.artifacts]
        brought = self._ready(run.profile, named)
        columns = {**_columns(run, story), **brought.headline}

        def work(connection: Connection) -> str:
            parent = self._parent(connection, run.parent)
            chosen = wanted or ids.new_id(columns["created_us"] / 1e6)
            if not writing.begin(connection, chosen, draft, {**columns, "parent": parent}):
                raise StoreError(f"Run {chosen} was added to the store by another program at the same moment.")
            writing.keep(connection, chosen, brought, now)
            rows = [_metric(chosen, metric, now) for metric in story.metrics]
            if rows:
                connection.execute(insert(metrics), rows)
            return chosen

        return self._write(work)

    @staticmethod
    def _parent(connection: Connection, parent: str | None) -> str | None:
        """A parent that did not come along is left out: a run may stand alone, but not point at nothing."""
        return connection.execute(select(runs.c.id).where(runs.c.id == parent)).scalar()


def _whole(run: Run | None) -> Run:
    if run is None or len(run.id) != ids.LENGTH or ids.normal(run.id) != run.id:
        raise FormatError(f"{run.id[:50] if run else None!r} is not the id of a run.")
    if run.status in {"pending", "running"}:
        raise FormatError(f"Run {run.id} is {run.status}: its process is not here.")
    return run


def _columns(run: Run, story: Story) -> Mapping[str, Any]:
    try:
        moment = datetime.fromisoformat(run.created)
    except ValueError:
        raise FormatError(f"{run.created[:50]!r} is not the time at which a run was created.") from None
    created = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e6)
    return {
        "status": run.status,
        "reason": names.clean(story.reason, most=2000),
        "created_us": created,
        "started_us": _micros(story.started),
        "ended_us": _micros(story.ended),
    }


def _micros(seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not 0 <= seconds < 1e11:
        raise FormatError(f"{seconds!r} is not a time.")
    return round(seconds * 1e6)


def _metric(run: str, metric: Any, now_us: int) -> dict[str, Any]:
    step = metric.step
    if not -(2**63) <= step < 2**63:
        raise FormatError(f"Metric {metric.name[:50]!r} has the step {step}, which is too large.")
    at = _micros(metric.at)
    return {
        "run_id": run,
        "name": names.valid_name("metric", metric.name),
        "step": step,
        "value": metric.value,
        "at_us": now_us if at is None else at,
    }
