"""The audit log: who did what, when and from where. A row is written with the very transaction it tells of."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select

from inferometer.core.frozen import frozen
from inferometer.store import names
from inferometer.store.finding import value_of
from inferometer.store.tables import audit, projects, runs
from inferometer.store.values import AuditEntry

MOST_ENTRIES = 10_000
_PROJECT_OF_RUN = (
    select(projects.c.name).join(runs, runs.c.project_id == projects.c.id).where(runs.c.id == bindparam("run"))
)


@frozen
class Deed:
    """What somebody is about to do. `subject` may be made of what comes of it: the id of a new run."""

    user: str
    action: str
    project: str | None = None
    subject: str | Callable[[Any], str] | None = None
    detail: str | None = None
    token: str | None = None
    session: str | None = None
    address: str | None = None


@frozen
class AuditFilter:
    """Which entries: each given field narrows. `projects`: only of these, by name; those of none are left out."""

    projects: frozenset[str] | None = None
    user: str | None = None
    action: str | None = None
    since: float | None = None
    before: int | None = None  # the number of an entry: older ones


def record(connection: Connection, deed: Deed, result: Any, *, now_us: int) -> None:
    subject = deed.subject(result) if callable(deed.subject) else deed.subject
    name, project = deed.project, None
    if name is None and deed.action.startswith("run."):  # it is where the run is
        name = connection.execute(_PROJECT_OF_RUN, {"run": subject}).scalar()
    if name is not None:  # no number where it was just deleted: its name is kept
        project = connection.execute(select(projects.c.id).where(projects.c.name == name)).scalar()
    row = {
        "at_us": now_us,
        "user": deed.user[:100],
        "token_id": deed.token,
        "session_id": deed.session,
        "address": names.clean(deed.address, most=100),
        "action": deed.action,
        "project_id": project,
        "project": names.clean(name, most=100),
        "subject": names.clean(subject, most=500),
        "detail": names.clean(deed.detail, most=2000),
    }
    connection.execute(insert(audit), [row])


def listed(connection: Connection, wanted: AuditFilter, *, limit: int = 100) -> tuple[AuditEntry, ...]:
    """Entries, the newest first. A project that was renamed is asked for by the name it has now."""
    query = select(audit).order_by(audit.c.id.desc()).limit(min(limit, MOST_ENTRIES))
    if wanted.projects is not None:
        query = query.where(audit.c.project_id.in_(select(projects.c.id).where(projects.c.name.in_(wanted.projects))))
    for column, value in ((audit.c.user, wanted.user), (audit.c.action, wanted.action)):
        if value is not None:
            query = query.where(column == value)
    if wanted.since is not None:
        query = query.where(audit.c.at_us >= round(wanted.since * 1e6))
    if wanted.before is not None:
        query = query.where(audit.c.id < wanted.before)
    return tuple(value_of(AuditEntry, row, number=row["id"]) for row in connection.execute(query).mappings())


def forget(connection: Connection, *, before_us: int) -> int:
    """Entries go when they are old, and in no other way."""
    return int(connection.execute(delete(audit).where(audit.c.at_us < before_us)).rowcount)
