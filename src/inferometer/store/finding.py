"""Look up runs and projects by what a user types, and read runs as values."""

import base64
import binascii
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, exists, func, literal_column, or_, select, tuple_

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.profile import STATUSES, Artifact, Run
from inferometer.core.units import counted
from inferometer.store import names
from inferometer.store.headline import unpacked
from inferometer.store.names import clean
from inferometer.store.tables import OPEN, OPEN_ONLY, artifacts, parameters, profiles, projects, runs, tags
from inferometer.store.values import Filter, Page, RunRow, Sight, sort_column, sort_value

_UNLISTED = {"heartbeat_us", "host", "boot", "space", "pid", "born", "words"}
LIST_COLUMNS = tuple(column for column in runs.c if column.name not in _UNLISTED)
_SUGGESTED = 500
V = TypeVar("V")
_LAST = re.compile(r"last(?:~(\d{1,6}))?")


def seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


def value_of(kind: type[V], row: RowMapping | Mapping[str, Any], **told: Any) -> V:
    """A row as a value: each field from the column of its name, from its time in microseconds (`_us`), or its id.

    What has another form in the tables is `told`; what has no column keeps its default.
    """
    columns = _columns_of(kind, tuple(row))  # type: ignore[arg-type] # a class is hashable
    found = {name: seconds(row[key]) if key.endswith("_us") else row[key] for name, key in columns if name not in told}
    return kind(**found, **told)


@lru_cache(maxsize=256)
def _columns_of(kind: type[Any], columns: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The fields of a value that a row has, each with its column."""
    held = ((each.name, key) for each in fields(kind) for key in (each.name, f"{each.name}_us", f"{each.name}_id"))
    return tuple({name: key for name, key in reversed([*held]) if key in columns}.items())


def iso(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, tz=UTC).isoformat(timespec="microseconds")


def in_sight(sight: Sight | None) -> list[ColumnElement[bool]]:
    """The condition on runs that somebody may see; none for who sees them all."""
    return [] if sight is None else [runs.c.project_id.in_(sight.projects)]


def resolve(connection: Connection, typed_name: str, sight: Sight | None = None) -> str:
    """The run's id: given whole, by its beginning or end, by its name, or as `last`, the last that finished.

    `last~1` is the one before it. A run out of sight is not there: neither as an answer nor as a suggestion.
    """
    typed, seen = names.normal_id(typed_name), in_sight(sight)
    if typed is not None and connection.execute(select(runs.c.id).where(runs.c.id == typed, *seen)).first():
        return str(typed)
    if (last := _LAST.fullmatch(typed_name)) is not None:
        # The newest run that finished, or one of those before it. Lengths measured along with a run are not counted.
        before = int(last[1] or 0)
        query = select(runs.c.id).where(runs.c.status == "finished", runs.c.parent.is_(None), *seen)
        newest = query.order_by(runs.c.created_us.desc(), runs.c.id.desc()).offset(before).limit(1)
        matches = list(connection.execute(newest).scalars())
    else:
        matches = _matching(connection, runs.c.name == typed_name, *seen)
        if not matches and typed is not None:
            part = or_(runs.c.id.like(f"{typed}%"), runs.c.id.like(f"%{typed}"))
            matches = _matching(connection, part, *seen)
    if len(matches) == 1:
        return str(matches[0])
    if matches:
        shown = ", ".join(matches[:5]) + (" …" if len(matches) > 5 else "")
        raise DomainError(f"{typed_name!r} may be more than one run: {shown}.", remedy="Give more of the id.")
    if last is not None:
        raise _no_last(connection, seen, typed_name)
    query = select(runs.c.id, runs.c.name).where(*seen).order_by(runs.c.created_us.desc()).limit(_SUGGESTED)
    known = ["last", *(text for row in connection.execute(query) for text in row if text)]
    raise UnknownNameError("run", typed_name, known, listing="`inferometer runs` lists them.")


def _no_last(connection: Connection, seen: Iterable[ColumnElement[bool]], typed_name: str) -> DomainError:
    """`last` names a run that finished; say how many there are, or how to make one."""
    done = select(func.count()).select_from(runs).where(runs.c.status == "finished", runs.c.parent.is_(None), *seen)
    count = int(connection.execute(done).scalar_one())
    if count:
        have = f"{counted(count, 'run')} {'has' if count == 1 else 'have'}"
        return DomainError(f"There is no {typed_name}: {have} finished.", remedy="`inferometer runs` lists them.")
    begun = connection.execute(select(runs.c.id).where(*seen).limit(1)).first()
    return DomainError(
        f"There is no {typed_name}: no run has finished yet.",
        remedy="`inferometer runs` lists those that were begun."
        if begun
        else "Measure a model with `inferometer profile MODEL`, or a command with `inferometer bench -- COMMAND`.",
    )


def _matching(connection: Connection, *conditions: ColumnElement[bool]) -> list[str]:
    query = select(runs.c.id).where(*conditions).order_by(runs.c.created_us.desc()).limit(6)
    return list(connection.execute(query).scalars())


def project_id(connection: Connection, name: str, sight: Sight | None = None) -> int:
    """The project's number. One out of sight is not there."""
    seen = [] if sight is None else [projects.c.id.in_(sight.projects)]
    project = connection.execute(select(projects.c.id).where(projects.c.name == name, *seen)).scalar()
    if project is None:
        known = connection.execute(select(projects.c.name).where(*seen)).scalars()
        raise UnknownNameError("project", name, list(known), listing="`inferometer runs projects` lists them.")
    return int(project)


def rows_of(connection: Connection, rows: Sequence[RowMapping]) -> tuple[RunRow, ...]:
    """Rows with their projects' names and their tags: two more queries for a page, however long it is."""
    names = _project_names(connection, {row["project_id"] for row in rows})
    tagged = _tags(connection, [row["id"] for row in rows])
    return tuple(_row(row, names[row["project_id"]], tagged.get(row["id"], ())) for row in rows)


def _project_names(connection: Connection, wanted: Iterable[int]) -> dict[int, str]:
    query = select(projects.c.id, projects.c.name).where(projects.c.id.in_(list(wanted)))
    return {row.id: row.name for row in connection.execute(query)}


def _tags(connection: Connection, wanted: list[str]) -> dict[str, tuple[str, ...]]:
    query = select(tags.c.run_id, tags.c.tag).where(tags.c.run_id.in_(wanted)).order_by(tags.c.tag)
    by_run: dict[str, tuple[str, ...]] = {}
    for row in connection.execute(query):
        by_run[row.run_id] = (*by_run.get(row.run_id, ()), row.tag)
    return by_run


def _row(row: RowMapping, project: str, tagged: tuple[str, ...]) -> RunRow:
    return value_of(RunRow, row, project=project, tags=tagged)


def run_of(connection: Connection, run: str) -> Run:
    """The run with its profile, parameters and files."""
    query = select(*LIST_COLUMNS).where(runs.c.id == run)
    (row,) = rows_of(connection, [connection.execute(query).mappings().one()])
    document = connection.execute(select(profiles.c.document).where(profiles.c.run_id == run)).scalar()
    given = connection.execute(
        select(parameters.c.name, parameters.c.value).where(parameters.c.run_id == run).order_by(parameters.c.name)
    )
    return Run(
        id=run,
        project=row.project,
        status=row.status,
        created=iso(round(row.created * 1e6)),
        name=row.name,
        parent=row.parent,
        tags=row.tags,
        parameters={entry.name: entry.value for entry in given},
        profile=None if document is None else unpacked(document, run=run),
        artifacts=artifacts_of(connection, run),
    )


def artifacts_of(connection: Connection, run: str) -> tuple[Artifact, ...]:
    kept = connection.execute(select(artifacts).where(artifacts.c.run_id == run).order_by(artifacts.c.name))
    return tuple(value_of(Artifact, row) for row in kept.mappings())


# Pages of runs, by keyset pagination: page 1,000 costs what page 1 does.

MOST_ROWS = 1000
_FEW = 500
_MOST_WHOLE = 2**63


def page(  # noqa: PLR0913 - all of what a list is asked for
    connection: Connection,
    wanted: Filter,
    sight: Sight | None = None,
    *,
    sort: str = "-created",
    limit: int = 50,
    after: str | None,
) -> Page:
    """Runs that have no value for the sort key come last, newest first, whichever way it is sorted."""
    if not 1 <= limit <= MOST_ROWS:
        raise DomainError(f"A page has 1 to {MOST_ROWS} runs, and {limit} were asked for.")
    column, falling = sort_column(sort)
    conditions = _conditions(connection, wanted, sight)
    value, run = _cursor(after, sort) if after else (None, None)
    matches: list[RowMapping] = []
    if run is None or value is not None:
        query = _ordered(conditions, runs.c[column], start=(value, run), falling=falling)
        matches += connection.execute(query.limit(limit + 1)).mappings().all()
        run = None
    if len(matches) <= limit and runs.c[column].nullable:
        unknown = [*conditions, runs.c[column].is_(None)]
        query = select(*LIST_COLUMNS).where(*unknown).order_by(runs.c.id.desc())
        query = query if run is None else query.where(runs.c.id < run)
        matches += connection.execute(query.limit(limit + 1 - len(matches))).mappings().all()
    rows = rows_of(connection, matches[:limit])
    more = len(matches) > limit
    return Page(rows=rows, after=_mark(sort, sort_value(rows[-1], column), rows[-1].id) if more else None)


def _ordered(
    conditions: list[ColumnElement[bool]], column: Any, *, start: tuple[Any, str | None], falling: bool
) -> Select[Any]:
    query = select(*LIST_COLUMNS).where(*conditions)
    if column.nullable:
        query = query.where(column.is_not(None))
    if start[1] is not None:
        here, there = tuple_(column, runs.c.id), tuple_(*start)
        query = query.where(here < there if falling else here > there)
    if falling:
        return query.order_by(column.desc(), runs.c.id.desc())
    return query.order_by(column, runs.c.id)


def count(connection: Connection, wanted: Filter, sight: Sight | None = None) -> int:
    query = select(func.count()).select_from(runs).where(*_conditions(connection, wanted, sight))
    return int(connection.execute(query).scalar_one())


def _conditions(connection: Connection, wanted: Filter, sight: Sight | None) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if wanted.project is not None:
        conditions.append(runs.c.project_id == project_id(connection, wanted.project, sight))
    else:
        conditions += in_sight(sight)
    for name in ("model", "device", "runtime", "author", "precision", "kind"):
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(runs.c[name] == value)
    if wanted.machine is not None:
        # By id if some run has it, else by name: a container's host name looks like an id.
        is_id = connection.execute(select(runs.c.id).where(runs.c.machine_id == wanted.machine).limit(1)).first()
        conditions.append(runs.c.machine_id == wanted.machine if is_id else runs.c.machine == wanted.machine)
    if wanted.parent is not None:
        conditions.append(runs.c.parent == resolve(connection, wanted.parent, sight))
    if wanted.status:
        statuses = wanted.status
        for status in statuses:
            if status not in STATUSES:
                raise UnknownNameError("status", status, STATUSES, listing=f"There is: {', '.join(STATUSES)}.")
        conditions.append(runs.c.status.in_(wanted.status))
        if set(wanted.status) <= set(OPEN):
            conditions.append(literal_column(OPEN_ONLY))  # as a Boolean it would be compared with 1, past its index
    if wanted.since is not None:
        conditions.append(runs.c.created_us >= round(wanted.since * 1e6))
    if wanted.until is not None:
        conditions.append(runs.c.created_us < round(wanted.until * 1e6))
    conditions += [_tagged(connection, tag) for tag in wanted.tags]
    words = (wanted.words or "").casefold().split()
    return [*conditions, *_worded(connection, words)] if words else conditions


def _tagged(connection: Connection, tag: str) -> ColumnElement[bool]:
    few = _few(connection, select(tags.c.run_id).where(tags.c.tag == tag))
    if few is not None:
        return runs.c.id.in_(few)
    return exists().where(tags.c.run_id == runs.c.id, tags.c.tag == tag)


def _worded(connection: Connection, words: list[str]) -> list[ColumnElement[bool]]:
    look = func.strpos if connection.dialect.name == "postgresql" else func.instr
    conditions = [look(runs.c.words, word) > 0 for word in words]
    few = _few(connection, select(runs.c.id).where(*conditions))
    return conditions if few is None else [runs.c.id.in_(few)]


def _few(connection: Connection, query: Select[Any]) -> list[str] | None:
    """What a condition holds for, where that is little and so quick to sort.

    None where it is much: then it is met soon enough by going through the runs in the order they are wanted in.
    """
    matches = list(connection.execute(query.limit(_FEW + 1)).scalars())
    return matches if len(matches) <= _FEW else None


def _mark(sort: str, value: Any, run: str) -> str:
    plain = json.dumps([sort, value, run], separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(plain).decode().rstrip("=")


def _cursor(mark: str, sort: str) -> tuple[Any, str]:
    try:
        plain = json.loads(base64.urlsafe_b64decode(mark + "=" * (-len(mark) % 4)))
        made_for, value, run = plain
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise DomainError(f"{mark[:50]!r} is not a mark of a page.", remedy="Begin with the first page.") from None
    is_run = isinstance(run, str) and names.normal_id(run) == run
    is_value = value is None or isinstance(value, int | float | str)
    if not (is_run and is_value) or made_for != sort or _wrong_kind(value, sort):
        raise DomainError(f"The mark of the page is not of a list sorted by {sort}.", remedy="Begin with the first.")
    return value, run


def _wrong_kind(value: Any, sort: str) -> bool:
    """A number where the column is text, or the other way round: a mark that was tampered with."""
    column, _ = sort_column(sort)
    wants_text = runs.c[column].type.python_type is str
    if value is None:
        return False
    if isinstance(value, str):
        return not wants_text or clean(value) != value  # what no stored text holds, and no database takes
    # JSON knows larger whole numbers than a database, and numbers that are none.
    too_large = isinstance(value, int) and abs(value) >= _MOST_WHOLE
    return wants_text or isinstance(value, bool) or too_large or not math.isfinite(value)
