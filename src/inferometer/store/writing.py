"""Changes to runs. Each function works in the transaction it is given."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field
from typing import Any

from sqlalchemy import Connection, delete, func, select, update

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Artifact, Profile
from inferometer.store import names
from inferometer.store.errors import StoreError
from inferometer.store.headline import columns_of, packed, words_of
from inferometer.store.opened import Owner
from inferometer.store.tables import OPEN, metrics, projects, runs, tags
from inferometer.store.upserts import put, put_new

_SEARCHED = ("model", "device", "runtime", "machine", "author")
_MOST_AUTHOR = 100
_MOST_SUBJECT = 200


@frozen
class RunDraft:
    """A run to be: what is known when it begins."""

    project: str = "default"
    name: str | None = None
    kind: str = "profile"
    tags: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    parent: str | None = None
    author: str | None = None
    subject: Mapping[str, Any] = field(default_factory=dict)  # model and runtime, before there is a profile

    def checked(self) -> "RunDraft":
        return RunDraft(
            project=names.valid_name("project", self.project),
            name=None if self.name is None else names.valid_name("run", self.name),
            kind=names.valid_name("kind", self.kind),
            tags=tuple(sorted({names.valid_name("tag", tag) for tag in self.tags})),
            parameters={
                names.valid_name("parameter", k): names.clean(str(v)) or "" for k, v in self.parameters.items()
            },
            parent=self.parent,
            author=names.clean(self.author, most=_MOST_AUTHOR),
            subject={name: names.clean(text, most=_MOST_SUBJECT) for name, text in self.subject.items()},
        )


@frozen
class Belongings:
    """What comes with a run, made ready: what lists show of its profile, the packed document, files on the disk."""

    headline: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None  # of the device
    document: tuple[bytes, int] | None = None
    artifacts: tuple[Artifact, ...] = ()


def belongings(profile: Profile | None, artifacts: tuple[Artifact, ...]) -> Belongings:
    if profile is None:
        return Belongings(artifacts=artifacts)
    title = names.clean(profile.device.title, most=200)
    return Belongings(headline=columns_of(profile), title=title, document=packed(profile), artifacts=artifacts)


def ensure_project(connection: Connection, name: str, now_us: int) -> int:
    wanted = select(projects.c.id).where(projects.c.name == name)
    project = connection.execute(wanted).scalar()
    if project is None:
        put_new(connection, "projects", {"name": name, "created_us": now_us})
        project = connection.execute(wanted).scalar_one()
    return int(project)


def begin(connection: Connection, run: str, draft: RunDraft, columns: Mapping[str, Any]) -> bool:
    """Insert the run; False where its id is taken. `columns` holds its times, status and owner, and what is known."""
    columns = {"author": draft.author, **draft.subject, **columns}
    shown = (columns.get(name) for name in _SEARCHED)
    row = {
        "id": run,
        "project_id": ensure_project(connection, draft.project, columns["created_us"]),
        "parent": draft.parent,
        "name": draft.name,
        "kind": draft.kind,
        "words": words_of(run, draft.name, *shown, tags=draft.tags),
        **columns,
    }
    if not put_new(connection, "runs", row):
        return False
    if draft.tags:
        put_new(connection, "tags", [{"run_id": run, "tag": tag} for tag in draft.tags])
    if draft.parameters:
        given = [{"run_id": run, "name": name, "value": value} for name, value in draft.parameters.items()]
        put_new(connection, "parameters", given)
    return True


def owned_by(owner: Owner) -> dict[str, Any]:
    return {"host": owner.host, "boot": owner.boot, "space": owner.space, "pid": owner.pid, "born": owner.born}


def end(connection: Connection, run: str, outcome: Mapping[str, Any], brought: Belongings) -> None:
    """A run that ended stays as it ended; only one that was taken for dead may come back and end by itself.

    `outcome` holds its status, when it ended and why.
    """
    wanted = select(runs.c.status, runs.c.name, runs.c.author).where(runs.c.id == run).with_for_update()
    row, now_us = connection.execute(wanted).first(), outcome["ended_us"]
    if row is None or row.status not in {*OPEN, "killed"}:
        was = row.status if row else "not there any more"
        raise StoreError(
            f"Run {run} is {was}: it cannot end once more as {outcome['status']}.", remedy="Begin a new run."
        )
    started = func.coalesce(runs.c.started_us, now_us)
    values = {**outcome, "heartbeat_us": now_us, "started_us": started, **brought.headline}
    if brought.headline:
        values["words"] = _words(connection, run, row.name, {**brought.headline, "author": row.author})
    connection.execute(update(runs).where(runs.c.id == run).values(values))
    keep(connection, run, brought, now_us)


def keep(connection: Connection, run: str, brought: Belongings, now_us: int) -> None:
    """Write what comes with the run, besides what the run's own row shows of it."""
    kept = [{"run_id": run, **asdict(artifact)} for artifact in brought.artifacts]
    if kept:
        put(connection, "artifacts", kept, over=("sha256", "size_bytes", "media_type"))
    if brought.document is None:
        return
    document = {"run_id": run, "document": brought.document[0], "size_bytes": brought.document[1]}
    put(connection, "profiles", document, over=("document", "size_bytes"))
    # Last: all runs of a device write this row, and wait for each other from here to the end of the transaction.
    seen = {"name": brought.headline["device"], "title": brought.title, "first_us": now_us, "last_us": now_us}
    put(connection, "devices", seen, over=("last_us",), unless_null="title")


def add_metrics(connection: Connection, run: str, values: Mapping[str, float], step: int | None, now_us: int) -> int:
    """Write values of one step, over what that step had. Without a step, it is the next one."""
    if step is None:
        wanted = select(func.max(metrics.c.step)).where(metrics.c.run_id == run, metrics.c.name.in_(list(values)))
        last = connection.execute(wanted).scalar()
        step = 0 if last is None else last + 1
    _put_metrics(connection, run, [(name, step, value) for name, value in values.items()], now_us)
    connection.execute(update(runs).where(runs.c.id == run).values(heartbeat_us=now_us))
    return step


def add_series(connection: Connection, run: str, name: str, points: Mapping[int, float], now_us: int) -> None:
    _put_metrics(connection, run, [(name, step, value) for step, value in points.items()], now_us)


def _put_metrics(connection: Connection, run: str, points: list[tuple[str, int, float]], now_us: int) -> None:
    for name, _, value in points:
        names.valid_name("metric", name)
        if not math.isfinite(value):
            raise DomainError(f"Metric {name!r} is {value}, which is not a finite number.")
    rows = [{"run_id": run, "name": n, "step": step, "value": float(v), "at_us": now_us} for n, step, v in points]
    if rows:
        put(connection, "metrics", rows, over=("value", "at_us"))


def retag(connection: Connection, run: str, *, add: Iterable[str], remove: Iterable[str]) -> None:
    gone = [names.valid_name("tag", tag) for tag in remove]
    if gone:
        connection.execute(delete(tags).where(tags.c.run_id == run, tags.c.tag.in_(gone)))
    rows = [{"run_id": run, "tag": names.valid_name("tag", tag)} for tag in add]
    if rows:
        put_new(connection, "tags", rows)
    reword(connection, run)


def reword(connection: Connection, run: str) -> None:
    """What a search looks in, anew."""
    wanted = select(runs.c.name, *(runs.c[name] for name in _SEARCHED)).where(runs.c.id == run)
    named = connection.execute(wanted).mappings().one()
    words = _words(connection, run, named["name"], named)
    connection.execute(update(runs).where(runs.c.id == run).values(words=words))


def _words(connection: Connection, run: str, name: str | None, shown: Mapping[Any, Any]) -> str:
    tagged = connection.execute(select(tags.c.tag).where(tags.c.run_id == run)).scalars()
    return words_of(run, name, *(shown[column] for column in _SEARCHED), tags=tagged)
