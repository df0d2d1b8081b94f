"""Fair shares: of projects that wait, the one that uses the fewest devices now, then the least time lately."""

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Connection, func, literal_column, select

from inferometer.core.frozen import frozen
from inferometer.store.tables import HELD_ONLY, fleet_jobs, fleet_shares, projects
from inferometer.store.upserts import put

_HALVED_US = 3_600_000_000  # what was used counts half after an hour


@frozen
class Turn:
    """A project that waits: its highest priority, the devices it has now, and the time it has used lately."""

    project: int
    priority: int
    held: int
    used_s: float


def turns(
    connection: Connection, conditions: Sequence[ColumnElement[bool]], now_us: int, only: Collection[int] | None
) -> list[Turn]:
    """The projects with a job under these conditions, each at its highest priority. `only` limits it to some projects.

    Where a project's jobs of that priority are all being given away at this moment, its lower ones wait for the next
    look.
    """
    mine = [fleet_jobs.c.project_id == projects.c.id, *conditions]
    top = select(func.max(fleet_jobs.c.priority)).where(*mine).correlate(projects).scalar_subquery()
    held = (
        select(fleet_jobs.c.project_id, func.count().label("jobs"))
        .where(literal_column(HELD_ONLY))
        .group_by(fleet_jobs.c.project_id)
        .subquery()
    )
    query = (
        select(projects.c.id, top.label("top"), held.c.jobs, fleet_shares.c.used_s, fleet_shares.c.at_us)
        .outerjoin(held, held.c.project_id == projects.c.id)
        .outerjoin(fleet_shares, fleet_shares.c.project_id == projects.c.id)
    )
    if only is not None:
        query = query.where(projects.c.id.in_(only))
    return [
        Turn(
            project=row.id, priority=row.top, held=row.jobs or 0,
            used_s=_now(row.used_s or 0.0, row.at_us or 0, now_us),
        )
        for row in connection.execute(query)
        if row.top is not None
    ]  # fmt: skip


def used(connection: Connection, now_us: int) -> dict[str, tuple[int, float]]:
    """The projects by name: the number of each, and the time it has used lately."""
    query = select(projects.c.name, projects.c.id, fleet_shares.c.used_s, fleet_shares.c.at_us).outerjoin(
        fleet_shares, fleet_shares.c.project_id == projects.c.id
    )
    return {row.name: (row.id, _now(row.used_s or 0.0, row.at_us or 0, now_us)) for row in connection.execute(query)}


def rank(turn: Turn) -> tuple[float, ...]:
    """The lowest has its turn."""
    return (-turn.priority, turn.held, turn.used_s, turn.project)


def charge(connection: Connection, project: int, seconds: float, now_us: int) -> None:
    """Device time that a project has used."""
    row = connection.execute(select(fleet_shares).where(fleet_shares.c.project_id == project).with_for_update()).first()
    before = 0.0 if row is None else _now(row.used_s, row.at_us, now_us)
    values = {"project_id": project, "used_s": before + max(seconds, 0.0), "at_us": now_us}
    put(connection, "fleet_shares", values, over=("used_s", "at_us"))


def _now(used_s: float, at_us: int, now_us: int) -> float:
    return float(used_s * 0.5 ** (max(now_us - at_us, 0) / _HALVED_US))
