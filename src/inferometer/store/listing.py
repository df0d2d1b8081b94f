"""Pages of runs, by keyset pagination: page 1,000 costs what page 1 does."""

import base64
import binascii
import json
import math
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    exists,
    func,
    literal_column,
    select,
    tuple_,
)

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.run import STATUSES
from inferometer.store import names
from inferometer.store.finding import LIST_COLUMNS, in_sight, project_id, resolve, rows_of
from inferometer.store.names import clean
from inferometer.store.tables import OPEN, OPEN_ONLY, runs, tags
from inferometer.store.values import Filter, Page, Sight, sort_column, sort_value

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
