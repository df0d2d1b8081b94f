"""Export runs to archives, and import them."""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, Row, insert, select, text, update

from inferometer.core.errors import DomainError, FormatError, UnknownNameError
from inferometer.core.profile import Artifact, Run
from inferometer.store import archive, files, finding, names, writing
from inferometer.store.archive import ArchiveLimits, Packed, Story
from inferometer.store.engine import Database
from inferometer.store.errors import ConflictError, StoreError
from inferometer.store.finding import LIST_COLUMNS, artifacts_of, in_sight, resolve, rows_of, run_of, value_of
from inferometer.store.opened import OpenedStore, Owner, gone
from inferometer.store.run_writing import RunWriting
from inferometer.store.tables import OPEN_ONLY, devices, metrics, runs, tags
from inferometer.store.values import Attachment, Filter, Metric, Page, RunRow, StoredDevice

# The half of the store that reads runs. The first reader marks the runs whose process is gone.

# Mark runs whose process was killed: it could not do so itself, so the next reader does.

STALE_S = 86_400  # a run on a machine that cannot be seen from here is given up a day after its last sign of life
_LOOKED_AT = ("id", "status", "heartbeat_us", "host", "boot", "space", "pid", "born")


def reaped(database: Database, here: Owner, now_us: int) -> tuple[str, ...]:
    """Nothing is written where no run has died; a read-only store is left as it is."""
    query = select(*(runs.c[name] for name in _LOOKED_AT)).where(text(OPEN_ONLY))
    with database.reading() as connection:
        running = [row for row in connection.execute(query) if row.status == "running"]  # a pending one has no process
    dead = {row.id: reason for row in running if (reason := _reason(row, here, now_us)) is not None}
    if not dead or database.read_only:
        return ()
    return database.write(lambda connection: _marked(connection, dead))


def _reason(row: "Row[tuple[object, ...]]", here: Owner, now_us: int) -> str | None:
    if row.host is None:
        return None
    owner = Owner(host=row.host, boot=row.boot or "", space=row.space or "", pid=row.pid or 0, born=row.born)
    ended = gone(owner, here)
    if ended:
        return f"Its process ({owner.pid} on {owner.host}) ended without a word."
    if ended is None and now_us - (row.heartbeat_us or 0) > STALE_S * 1_000_000:
        return f"Its process ({owner.pid} on {owner.host}) has given no sign of life for a day."
    return None


def _marked(connection: Connection, dead: dict[str, str]) -> tuple[str, ...]:
    """Only what still runs: it may have ended by itself since we looked. It ended when it last gave a sign."""
    marked = []
    for run, reason in dead.items():
        changed = connection.execute(
            update(runs)
            .where(runs.c.id == run, runs.c.status == "running")
            .values(status="killed", reason=reason, ended_us=runs.c.heartbeat_us)
        )
        if changed.rowcount:
            marked.append(run)
    return tuple(marked)


class RunReading(OpenedStore):
    def reap(self) -> tuple[str, ...]:
        """Mark the runs whose process is gone as killed; gives their ids."""
        return reaped(self.database, self._owner(), self._now())

    def _tidy(self) -> None:
        """Before a look. That a dead run cannot be marked, on a full disk, is no reason not to show what is there."""
        with suppress(StoreError):
            self.reap()

    def resolve(self, run: str) -> str:
        return self._read(resolve, run, self.sight)

    def get(self, run: str) -> Run:
        """The run with its profile, parameters and files."""
        self._tidy()
        return self._read(lambda connection: run_of(connection, resolve(connection, run, self.sight)))

    def row(self, run: str) -> RunRow:
        """The run as a list shows it, with its times and why it ended."""
        self._tidy()

        def work(connection: Connection) -> RunRow:
            query = select(*LIST_COLUMNS).where(runs.c.id == resolve(connection, run, self.sight))
            return rows_of(connection, [connection.execute(query).mappings().one()])[0]

        return self._read(work)

    def list(
        self, wanted: Filter | None = None, *, sort: str = "-created", limit: int = 50, after: str | None = None
    ) -> Page:
        self._tidy()
        return self._read(finding.page, wanted or Filter(), self.sight, sort=sort, limit=limit, after=after)

    def count(self, wanted: Filter | None = None) -> int:
        return self._read(finding.count, wanted or Filter(), self.sight)

    def known(self, what: str) -> tuple[str, ...]:
        """Every model, device, machine, runtime, kind or tag that some run has."""
        column = tags.c.tag if what == "tag" else runs.c[what]
        query = select(column).where(column.is_not(None)).distinct().order_by(column)
        if self.sight is not None:
            mine = select(runs.c.id).where(*in_sight(self.sight))
            query = query.where(tags.c.run_id.in_(mine) if what == "tag" else runs.c.id.in_(mine))
        return tuple(self._read(lambda connection: connection.execute(query).scalars().all()))

    def metrics(self, run: str, name: str | None = None) -> tuple[Metric, ...]:
        def work(connection: Connection) -> tuple[Metric, ...]:
            query = select(metrics).where(metrics.c.run_id == resolve(connection, run, self.sight))
            if name is not None:
                query = query.where(metrics.c.name == name)
            rows = connection.execute(query.order_by(metrics.c.name, metrics.c.step))
            return tuple(value_of(Metric, row) for row in rows.mappings())

        return self._read(work)

    def artifact(self, run: str, name: str) -> Path:
        """Where a run's file lies. It is shared with other runs: read it, never write it."""
        hashes = {artifact.name: artifact.sha256 for artifact in self.get_artifacts(run)}
        if name not in hashes:
            raise UnknownNameError("file of this run", name, list(hashes))
        return files.read(self.location.artifacts, hashes[name])

    def get_artifacts(self, run: str) -> tuple[Artifact, ...]:
        return self._read(lambda connection: artifacts_of(connection, resolve(connection, run, self.sight)))

    def devices(self) -> tuple[StoredDevice, ...]:
        query = select(devices).order_by(devices.c.name)
        if self.sight is not None:
            query = query.where(devices.c.name.in_(select(runs.c.device).where(*in_sight(self.sight)).distinct()))
        rows = self._read(lambda connection: connection.execute(query).mappings().all())
        return tuple(value_of(StoredDevice, row) for row in rows)


# What does not change once a run has ended.
_LASTING = ("profile", "status", "created", "parameters", "artifacts")


class StoreExchange(RunReading, RunWriting):
    def export(self, run: str, to: Path) -> Path:
        """Write a run with its files into one archive."""
        exported, row = self.get(run), self.row(run)
        if row.status in {"pending", "running"}:
            raise DomainError(f"Run {exported.id} is {row.status}: it can be exported when it has ended.")
        story = Story(
            kind=row.kind, started=row.started, ended=row.ended, reason=row.reason, author=row.author, note=row.note,
            metrics=self.metrics(exported.id),
        )  # fmt: skip
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
        self,
        path: Path,
        *,
        project: str | None = None,
        new_id: bool = False,
        limits: ArchiveLimits | None = None,
        author: str | None = None,
    ) -> str:
        """Take in an archive, or a bare document of a run or profile. A run that is here already is not doubled.

        `author` is who brings it, where that is known for certain; without it, the archive's own word is taken.
        """
        return self.take_in(path, project=project, new_id=new_id, limits=limits, author=author)[0]

    def take_in(  # noqa: PLR0913 - as `import_`, and where it may go
        self,
        path: Path,
        *,
        project: str | None = None,
        new_id: bool = False,
        limits: ArchiveLimits | None = None,
        author: str | None = None,
        admit: Callable[[Self, str], Self] = lambda store, _project: store,
    ) -> tuple[str, bool]:
        """As `import_`; gives also whether the run is new here.

        `admit` raises if nothing may go into a project, and gives the store that it is written with.
        """
        with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
            packed = archive.read_archive(path, Path(folder), limits)
            if packed.profile is not None:
                into = admit(self, project or "default")
                return into.add(packed.profile, project or "default", kind="import", author=author), True
            run = _whole(packed.run)
            if not new_id and self._has(run, packed.story, path):
                return run.id, False
            into = admit(self, project or run.project)
            story = packed.story if author is None else replace(packed.story, author=author)
            told = replace(packed, story=story)
            return into._take(run, told, None if new_id else run.id, project), True  # noqa: SLF001 - the same kind

    def _has(self, run: Run, story: Story, path: Path) -> bool:
        """Whether this very run is here. Its name, tags, project and note may have been changed since; no more."""

        def work(connection: Connection) -> Run | None:
            there = connection.execute(select(runs.c.project_id).where(runs.c.id == run.id)).first()
            if there is not None and self.sight is not None and there.project_id not in self.sight.projects:
                raise ConflictError(f"{path}: run {run.id} cannot be stored here.", remedy="Give it a new id.")
            return None if there is None else run_of(connection, run.id)

        here = self._read(work)
        if here is None:
            return False
        changed = next((name for name in _LASTING if getattr(here, name) != getattr(run, name)), None)
        if changed is None and _points(self.metrics(run.id)) != _points(story.metrics):
            changed = "metrics"
        if changed is not None:
            other = {"metrics": "other metrics", "parameters": "other parameters", "artifacts": "other files"}
            raise ConflictError(
                f"{path}: run {run.id} is in the store already, with {other.get(changed, f'another {changed}')}.",
                remedy="Take it in beside the other with --new-id.",
            )
        return True

    def _take(self, run: Run, packed: Packed, wanted: str | None, project: str | None) -> str:
        story, now = packed.story, self._now()
        draft = writing.RunDraft(
            project=project or run.project, name=run.name, kind=story.kind, tags=run.tags, parameters=run.parameters,
            author=story.author,
        ).checked()  # fmt: skip
        named = [Attachment(name=a.name, source=packed.files[a.sha256], media_type=a.media_type) for a in run.artifacts]
        brought = self._ready(run.profile, named)
        columns = {**_columns(run, story), "note": names.clean(story.note, most=names.MOST_NOTE), **brought.headline}

        def work(connection: Connection) -> str:
            parent = self._parent(connection, run.parent)
            chosen = wanted or names.new_id(columns["created_us"] / 1e6)
            if not writing.begin(connection, chosen, draft, {**columns, "parent": parent}):
                twice = f"Run {chosen} was added to the store by another program at the same moment."
                raise StoreError(twice, told=twice)
            writing.keep(connection, chosen, brought, now)
            rows = [_metric(chosen, metric, now) for metric in story.metrics]
            if rows:
                connection.execute(insert(metrics), rows)
            return chosen

        return self._write(work)

    def _parent(self, connection: Connection, parent: str | None) -> str | None:
        """A parent that did not come along is left out: a run may stand alone, but not point at nothing."""
        return connection.execute(select(runs.c.id).where(runs.c.id == parent, *in_sight(self.sight))).scalar()


def _points(metrics: Iterable[Metric]) -> dict[tuple[str, int], float]:
    return {(metric.name, metric.step): metric.value for metric in metrics}


def _whole(run: Run | None) -> Run:
    if run is None or len(run.id) != names.ID_LENGTH or names.normal_id(run.id) != run.id:
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
