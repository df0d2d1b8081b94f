"""Projects: named groups of runs."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from inferometer.core.errors import DomainError
from inferometer.store import members, names, upserts
from inferometer.store.errors import NotAllowedError
from inferometer.store.finding import in_sight, project_id, value_of
from inferometer.store.tables import artifacts, fleet_jobs, projects, runs
from inferometer.store.values import Project, Sight

MOST_PRIORITY = 100


def listed(connection: Connection, sight: Sight | None = None) -> tuple[Project, ...]:
    counted = (
        select(runs.c.project_id, func.count().label("runs"), func.max(runs.c.created_us).label("last_us"))
        .where(*in_sight(sight))
        .group_by(runs.c.project_id)
        .subquery()
    )
    query = (
        select(projects, func.coalesce(counted.c.runs, 0).label("runs"), counted.c.last_us)
        .outerjoin(counted, counted.c.project_id == projects.c.id)
        .order_by(projects.c.name)
    )
    if sight is not None:
        query = query.where(projects.c.id.in_(sight.projects))
    return tuple(value_of(Project, row) for row in connection.execute(query).mappings())


def named(connection: Connection, sight: Sight | None = None) -> tuple[str, ...]:
    """Their names alone: to count the runs of each goes through all runs."""
    query = select(projects.c.name).order_by(projects.c.name)
    return tuple(connection.scalars(query if sight is None else query.where(projects.c.id.in_(sight.projects))))


def create(
    connection: Connection, name: str, *, description: str | None, owner: str | None = None, now_us: int
) -> None:
    kept = names.valid_name("project", name)
    row = {"name": kept, "description": names.clean(description, most=2000), "created_us": now_us}
    try:
        connection.execute(insert(projects), [row])
    except IntegrityError:
        raise _taken(name) from None
    if owner is not None:
        members.put(connection, kept, owner, "owner", now_us=now_us)


def found(connection: Connection, name: str, owner: str, *, now_us: int) -> bool:
    """Make a project that is not there yet; gives whether it was made now, and not by the same user a moment ago."""
    if upserts.put_new(connection, "projects", {"name": name, "created_us": now_us}):
        members.put(connection, name, owner, "owner", now_us=now_us)
        return True
    require_no_strangers(connection, name, owner)
    return False


def require_no_strangers(connection: Connection, name: str, user: str) -> None:
    """A project of that name is one that the user may write to, or there is none."""
    query = select(projects.c.id).where(projects.c.name == name)
    if connection.execute(query).first() is None:
        return
    if not any(member.user == user and member.role != "reader" for member in members.listed(connection, name)):
        raise NotAllowedError(
            f"{user} may not write to a project {name!r}.",
            remedy="Name a project of yours with --project, or ask its owner to add you.",
        )


def change(connection: Connection, name: str, values: Mapping[str, Any]) -> None:
    """Whether everybody may read it (`open`), and how high its members' priorities may be."""
    for key in ("writer_priority", "owner_priority"):
        if not -MOST_PRIORITY <= values.get(key, 0) <= MOST_PRIORITY:
            raise DomainError(f"A priority is from {-MOST_PRIORITY} to {MOST_PRIORITY}, and not {values[key]}.")
    project = project_id(connection, name)
    if values:
        connection.execute(update(projects).where(projects.c.id == project).values(**values))


def rename(connection: Connection, name: str, to: str) -> None:
    project = project_id(connection, name)
    try:
        connection.execute(
            update(projects).where(projects.c.id == project).values(name=names.valid_name("project", to))
        )
    except IntegrityError:
        raise _taken(to) from None


def remove(connection: Connection, name: str, *, with_runs: bool) -> list[str]:
    """Remove a project; the hashes of the files its runs had come back."""
    project = project_id(connection, name)
    own = select(runs.c.id).where(runs.c.project_id == project)
    held = int(connection.execute(select(func.count()).select_from(own.subquery())).scalar_one())
    if held and not with_runs:
        raise DomainError(
            f"Project {name!r} has {held} {'run' if held == 1 else 'runs'}.",
            remedy="Delete them first, or the project with all of them: --with-runs.",
        )
    files = list(connection.execute(select(artifacts.c.sha256).where(artifacts.c.run_id.in_(own)).distinct()).scalars())
    # The record of its jobs goes with a project; one that has not ended is in the way.
    jobs = fleet_jobs.c.project_id == project
    waiting = select(func.count()).select_from(fleet_jobs).where(jobs, fleet_jobs.c.ended_us.is_(None))
    if count := connection.execute(waiting).scalar_one():
        raise DomainError(
            f"Project {name!r} has {count} {'job' if count == 1 else 'jobs'} in the queue.",
            remedy="Cancel them, or wait for their end.",
        )
    connection.execute(delete(fleet_jobs).where(jobs))
    connection.execute(delete(runs).where(runs.c.project_id == project))
    connection.execute(delete(projects).where(projects.c.id == project))
    return files


def _taken(name: str) -> DomainError:
    return DomainError(f"There is a project named {name!r} already.", remedy="Choose another name.")
