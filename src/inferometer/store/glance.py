"""A glance at a store in a file: no SQLAlchemy, which takes longer to load than what is read, and nothing written.

For shells that complete names, and for commands that want one profile.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from inferometer.core.errors import InferometerError
from inferometer.store import names
from inferometer.store.location import REVISIONS, VERSION_TABLE, locate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from inferometer.core.profile import Profile

_RUNS = "SELECT id, name FROM runs ORDER BY created_us DESC LIMIT 500"
_PROJECTS = "SELECT name FROM projects ORDER BY name LIMIT 500"
_LAST = re.compile(r"last(?:~(\d{1,6}))?")
_FINISHED = """SELECT id FROM runs WHERE status = 'finished' AND parent IS NULL
    ORDER BY created_us DESC, id DESC LIMIT 1 OFFSET ?"""


def run_names(place: str | None = None) -> list[str]:
    """The names and ids of the newest runs; none where the store is a server, absent or unreadable."""
    rows = _rows(_RUNS, place)
    names = dict.fromkeys(name for _, name in rows if name)
    return [*names, *(run for run, _ in rows)]


def project_names(place: str | None = None) -> list[str]:
    return [name for (name,) in _rows(_PROJECTS, place)]


def profile_at_a_glance(run: str, place: str | Path | None = None) -> Profile | None:
    """The profile of a stored run: by its whole id, a name that only it has, or as `last`, as the store resolves them.

    None where that does not lead to one, as in a store on a server or of another version: the store itself then says
    what there is.
    """
    try:
        file = locate(place).file
        if file is None or not file.is_file():
            return None
        with closing(_opened(file)) as connection:
            document = _document(connection, run)
        if document is None:
            return None
        from inferometer.store.headline import unpacked  # noqa: PLC0415 - names need no profiles

        return unpacked(document, run=run)
    except (InferometerError, OSError, sqlite3.Error, ValueError):
        return None


def _document(connection: sqlite3.Connection, run: str) -> bytes | None:
    version = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()  # noqa: S608 - our own name
    if version is None or version[0] != REVISIONS[-1]:
        return None
    found = connection.execute("SELECT id FROM runs WHERE id = ?", (names.normal_id(run) or "",)).fetchall()
    if not found and (last := _LAST.fullmatch(run)) is not None:
        found = connection.execute(_FINISHED, (int(last[1] or 0),)).fetchall()
    elif not found:
        found = connection.execute("SELECT id FROM runs WHERE name = ? LIMIT 2", (run,)).fetchall()
    if len(found) != 1:
        return None
    row = connection.execute("SELECT document FROM profiles WHERE run_id = ?", found[0]).fetchone()
    return None if row is None else bytes(row[0])


def _opened(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=0.2)


def _rows(query: str, place: str | None) -> list[tuple[str, ...]]:
    try:
        return list(_read(query, place))
    except (InferometerError, OSError, sqlite3.Error):
        return []  # a shell that completes has no place for an error


def _read(query: str, place: str | None) -> Iterator[tuple[str, ...]]:
    file = locate(place).file
    if file is not None and file.is_file():
        with closing(_opened(file)) as connection:
            yield from connection.execute(query)
