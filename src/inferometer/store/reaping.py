"""Mark runs whose process was killed: it could not do so itself, so the next reader does."""

from sqlalchemy import Connection, Row, select, text, update

from inferometer.store.engine import Database
from inferometer.store.owner import Owner, gone
from inferometer.store.tables import OPEN_ONLY, runs

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
