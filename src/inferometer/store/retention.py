"""What a project keeps, and for how long. Nothing is deleted of a project that has no rule.

Runs that others stand on never go by a rule: baselines, pinned ones, those with a tag that the project keeps, those
that a link shows, and the runs that one of them belongs to.
"""

import json
from collections.abc import Callable, Collection
from typing import Any, Literal

from sqlalchemy import Connection, Select, delete, insert, select, tuple_, update

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.store import names
from inferometer.store.engine import Database
from inferometer.store.finding import project_id, value_of
from inferometer.store.tables import (
    OPEN,
    artifacts,
    deletions,
    fleet_jobs,
    projects,
    retention,
    runs,
    share_links,
    tags,
)

Rule = Literal["runs", "artifacts", "jobs"]
RULES: tuple[Rule, ...] = ("runs", "artifacts", "jobs")
KEPT_TAGS = ("baseline", "pinned")  # of every project
_AT_ONCE = 500  # that one transaction deletes: others write between two of them


@frozen
class Retention:
    """Seconds that a project keeps what has ended; None: for ever."""

    project: str
    runs_s: float | None = None
    artifacts_s: float | None = None
    jobs_s: float | None = None
    keep_tags: tuple[str, ...] = ()

    def seconds(self, rule: Rule) -> float | None:
        return {"runs": self.runs_s, "artifacts": self.artifacts_s, "jobs": self.jobs_s}[rule]


@frozen
class Deletion:
    """What went, or would go, by one rule of a project."""

    project: str
    rule: Rule
    count: int
    at: float


def choose(connection: Connection, chosen: Retention) -> None:
    """Replace the rules of a project."""
    for rule in RULES:
        seconds = chosen.seconds(rule)
        if seconds is not None and seconds <= 0:
            raise DomainError(
                f"{rule.capitalize()} cannot be kept for {seconds:g} s.", remedy="Give a time such as 90d."
            )
    project = project_id(connection, chosen.project)
    kept = sorted({names.valid_name("tag", tag) for tag in chosen.keep_tags})
    connection.execute(delete(retention).where(retention.c.project_id == project))
    if any(chosen.seconds(rule) is not None for rule in RULES):
        row = {"runs_s": chosen.runs_s, "artifacts_s": chosen.artifacts_s, "jobs_s": chosen.jobs_s}
        connection.execute(insert(retention), [{"project_id": project, **row, "keep_tags": json.dumps(kept)}])


def listed(connection: Connection) -> tuple[Retention, ...]:
    query = select(retention, projects.c.name).join(projects, projects.c.id == retention.c.project_id)
    return tuple(
        Retention(
            project=row.name, runs_s=row.runs_s, artifacts_s=row.artifacts_s, jobs_s=row.jobs_s,
            keep_tags=tuple(json.loads(row.keep_tags)),
        )
        for row in connection.execute(query.order_by(projects.c.name))
    )  # fmt: skip


def deleted(connection: Connection, most: int) -> tuple[Deletion, ...]:
    """What went by rules, the latest first."""
    query = select(deletions).order_by(deletions.c.id.desc()).limit(most)
    return tuple(value_of(Deletion, row, count=row["number"]) for row in connection.execute(query).mappings())


def due(connection: Connection, chosen: Retention, rule: Rule, now_us: int) -> list[tuple[str, ...]]:
    """The keys of what is older than a rule allows."""
    seconds = chosen.seconds(rule)
    if seconds is None:
        return []
    before, project = now_us - round(seconds * 1e6), project_id(connection, chosen.project)
    if rule == "jobs":
        query: Select[Any] = select(fleet_jobs.c.id).where(
            fleet_jobs.c.project_id == project, fleet_jobs.c.ended_us < before
        )
        return [tuple(row) for row in connection.execute(query)]
    old = (runs.c.project_id == project, runs.c.created_us < before, runs.c.status.not_in(OPEN))
    kept = _kept(connection, chosen.keep_tags, now_us)
    if rule == "runs":
        query = select(runs.c.id).where(*old)
    else:
        query = select(artifacts.c.run_id, artifacts.c.name).join(runs, runs.c.id == artifacts.c.run_id).where(*old)
    return [tuple(row) for row in connection.execute(query) if row[0] not in kept]


def _kept(connection: Connection, keep_tags: Collection[str], now_us: int) -> set[str]:
    """The runs that no rule takes, with all that they belong to."""
    tagged = select(tags.c.run_id).where(tags.c.tag.in_({*KEPT_TAGS, *keep_tags}))
    kept = set(connection.execute(tagged).scalars())
    shown = select(share_links.c.runs).where(share_links.c.revoked_us.is_(None), share_links.c.expires_us > now_us)
    for linked in connection.execute(shown).scalars():
        kept.update(linked.split())
    pairs = select(runs.c.id, runs.c.parent).where(runs.c.parent.is_not(None))
    parents = {row.id: row.parent for row in connection.execute(pairs)}
    for run in list(kept):
        while (run := parents.get(run, "")) and run not in kept:
            kept.add(run)
    return kept


def apply(database: Database, now_us: int, *, dry_run: bool, drop: Callable[[list[str]], object]) -> list[Deletion]:
    """Delete what every project's rules say, or only count it. `drop` gets the hashes of files that lost a run."""
    with database.reading() as connection:
        rules = listed(connection)
        work = [(chosen, rule, due(connection, chosen, rule, now_us)) for chosen in rules for rule in RULES]
    gone = []
    for chosen, rule, keys in work:
        count = len(keys) if dry_run else _delete(database, chosen, rule, now_us, drop)
        if count:
            gone.append(Deletion(project=chosen.project, rule=rule, count=count, at=now_us / 1e6))
    return gone


def _delete(database: Database, chosen: Retention, rule: Rule, now_us: int, drop: Callable[[list[str]], object]) -> int:
    """A few at a time, each with its line in the same transaction; looked up anew, since a tag may have come."""
    total, line = 0, None

    def some(connection: Connection) -> tuple[int, int | None, list[str]]:
        keys = due(connection, chosen, rule, now_us)[:_AT_ONCE]
        if not keys:
            return 0, line, []
        hashes = _remove(connection, rule, keys)
        done = Deletion(project=chosen.project, rule=rule, count=total + len(keys), at=now_us / 1e6)
        return len(keys), _noted(connection, done, line), hashes

    while True:
        count, line, hashes = database.write(some)
        if not count:
            return total
        total += count
        drop(hashes)


def _remove(connection: Connection, rule: Rule, keys: list[tuple[str, ...]]) -> list[str]:
    first = [key[0] for key in keys]
    if rule == "jobs":
        connection.execute(delete(fleet_jobs).where(fleet_jobs.c.id.in_(first)))
        return []
    own = artifacts.c.run_id.in_(first)
    if rule == "artifacts":
        own = tuple_(artifacts.c.run_id, artifacts.c.name).in_(keys)
    hashes = list(connection.execute(select(artifacts.c.sha256).where(own).distinct()).scalars())
    if rule == "artifacts":
        connection.execute(delete(artifacts).where(own))
    else:
        connection.execute(delete(runs).where(runs.c.id.in_(first)))
    return hashes


def _noted(connection: Connection, done: Deletion, line: int | None) -> int:
    """Write the line of a deletion, or bring its count up to date; gives its number."""
    if line is not None:
        connection.execute(update(deletions).where(deletions.c.id == line).values(number=done.count))
        return line
    row = {"at_us": round(done.at * 1e6), "project": done.project, "rule": done.rule, "number": done.count}
    key = connection.execute(insert(deletions).values(row)).inserted_primary_key
    assert key is not None  # noqa: S101 - one row was inserted
    return int(key[0])
