"""A glance at a store in a file, for shells that complete names: no SQLAlchemy, no migration, nothing written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from inferometer.errors import InferometerError
from inferometer.store.location import locate

if TYPE_CHECKING:
    from collections.abc import Iterator

_RUNS = "SELECT id, name FROM runs ORDER BY created_us DESC LIMIT 500"
_PROJECTS = "SELECT name FROM projects ORDER BY name LIMIT 500"


def run_names(place: str | None = None) -> list[str]:
    """The names and ids of the newest runs; none where the store is a server, absent or unreadable."""
    rows = _rows(_RUNS, place)
    names = dict.fromkeys(name for _, name in rows if name)
    return [*names, *(run for run, _ in rows)]


def project_names(place: str | None = None) -> list[str]:
    return [name for (name,) in _rows(_PROJECTS, place)]


def _rows(query: str, place: str | None) -> list[tuple[str, ...]]:
    try:
        return list(_read(query, place))
    except (InferometerError, OSError, sqlite3.Error):
        return []  # a shell that completes has no place for an error


def _read(query: str, place: str | None) -> Iterator[tuple[str, ...]]:
    file = locate(place).file
    if file is not None and file.is_file():
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=0.2)) as connection:
            yield from connection.execute(query)
