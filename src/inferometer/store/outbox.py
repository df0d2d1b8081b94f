"""Runs that are to be sent to a hub, until it has them. A run that is deleted here is not sent any more."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select, update

from inferometer.store.finding import resolve, value_of
from inferometer.store.tables import pushes, runs
from inferometer.store.upserts import put_new
from inferometer.store.values import Push


def queue(connection: Connection, run: str, hub: str, project: str | None, *, now_us: int) -> None:
    """A run with those below it, each once for each hub. One that was refused or sent is tried again."""
    run_id = resolve(connection, run)
    below = connection.execute(select(runs.c.id).where(runs.c.parent == run_id).order_by(runs.c.id)).scalars()
    for each in (run_id, *below):
        row = {"run_id": each, "hub": hub, "project": project, "queued_us": now_us, "refused": False}
        if not put_new(connection, "pushes", row):
            again = {"sent_us": None, "refused": False, "reason": None, "project": project}
            connection.execute(update(pushes).where(pushes.c.run_id == each, pushes.c.hub == hub).values(again))


def waiting(connection: Connection, hub: str) -> tuple[Push, ...]:
    """What this hub does not have yet and has not refused: a run before those below it."""
    query = (
        select(pushes)
        .join(runs, runs.c.id == pushes.c.run_id)
        .where(pushes.c.hub == hub, pushes.c.sent_us.is_(None), pushes.c.refused.is_(False))
        .order_by(runs.c.parent.is_not(None), pushes.c.queued_us, pushes.c.run_id)
    )
    return tuple(value_of(Push, row) for row in connection.execute(query).mappings())


def note(connection: Connection, push: Push, outcome: Mapping[str, Any]) -> None:
    """How an attempt went: `sent_us`, or a `reason` and whether the hub will never take it (`refused`)."""
    where = pushes.c.run_id == push.run, pushes.c.hub == push.hub
    connection.execute(update(pushes).where(*where).values(**outcome))
