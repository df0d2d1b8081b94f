"""Catalog rows: TOML → values, checked. An error names the file and the key.

A number is text with a unit (`"4.8 TB/s"`) that takes its row's source, or a table that says more about itself:
`{ value = "4.8 TB/s", source = "h200", origin = "measured", date = "2024-11", note = "…" }`.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from inferometer.core.device import ORIGINS, Sourced
from inferometer.core.errors import CatalogError, UnitError, nearest, same_but_for_case
from inferometer.core.frozen import frozen
from inferometer.core.units import parse_quantity

_NUMBER_KEYS = {"value", "source", "origin", "date", "note"}
_NO_WORDS: Mapping[str, Any] = {}  # of a number that is stated plainly
_SOURCE_KEYS = {"title", "url", "date", "origin"}
# What a number is stated in, by the end of its field's name; any other is a plain number.
_UNITS = {
    "_bytes_per_s": "B/s", "_g_per_kwh": "g/kWh", "_bytes": "B", "_s": "s",
}  # fmt: skip
T = TypeVar("T")


@frozen
class CatalogKey:
    """Where in the catalog something stands: the file and the dotted key."""

    file: str
    key: str

    def at(self, *keys: str) -> "CatalogKey":
        return CatalogKey(file=self.file, key=".".join((self.key, *keys)) if self.key else ".".join(keys))

    def error(self, what: str, *, remedy: str | None = None) -> CatalogError:
        return CatalogError(f"{self.file}: {self.key}: {what}", remedy=remedy)


@frozen
class CatalogRow:
    """One TOML table with its place and the sources its file declares."""

    name: str
    place: CatalogKey
    fields: Mapping[str, Any]
    sources: Mapping[str, Mapping[str, str]]

    def text(self, key: str, *, required: bool = False) -> str | None:
        value = self.fields.get(key)
        if value is None and required:
            raise self.place.error(f"{key} is missing.")
        if value is not None and not isinstance(value, str):
            raise self.place.at(key).error(f"must be text, and is {value!r}.")
        return value

    def required_text(self, key: str) -> str:
        value = self.text(key, required=True)
        if not value:
            raise self.place.error(f"{key} is empty.")
        return value

    def whole(self, key: str) -> int | None:
        value = self.fields.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise self.place.at(key).error(f"must be a whole number, and is {value!r}.")
        return value

    def names(self, key: str) -> tuple[str, ...]:
        value = self.fields.get(key, [])
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self.place.at(key).error(f"must be a list of names, and is {value!r}.")
        return tuple(value)

    def inner(self, key: str) -> "CatalogRow":
        """A table inside the row; it speaks with the row's default source."""
        if key not in self.fields:
            return _NO_ROW  # most tables of most rows: one for all of them
        value = self.fields[key]
        if not isinstance(value, dict):
            raise self.place.at(key).error(f"must be a table, and is {value!r}.")
        return self._part(value, self.place.at(key))

    def inners(self, key: str) -> tuple["CatalogRow", ...]:
        value = self.fields.get(key, [])
        if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
            raise self.place.at(key).error("must be a list of tables ([[…]]).")
        return tuple(self._part(part, self.place.at(f"{key}[{index}]")) for index, part in enumerate(value))

    def _part(self, fields: Mapping[str, Any], place: CatalogKey) -> "CatalogRow":
        inherited = {"source": self.fields["source"]} if "source" in self.fields and "source" not in fields else {}
        return CatalogRow(name=self.name, place=place, fields={**inherited, **fields}, sources=self.sources)

    def allow(self, *keys: str) -> None:
        """A misspelt key is an error, not a number that is silently absent."""
        for key in self.fields:
            if key not in keys and key != "source":
                hint = did_you_mean(key, keys) or f"Known: {', '.join(sorted(keys))}."
                raise self.place.at(key).error("is not a known key.", remedy=hint)

    def number(self, key: str, unit: str, *, below: float | None = None) -> Sourced | None:
        """The number under `key` in SI base units with its source, or None where the row has none."""
        stated = self.fields.get(key)
        if stated is None:
            return None
        table = _NO_WORDS
        if isinstance(stated, dict):
            table, stated = stated, stated.get("value")
            for unknown in sorted(table.keys() - _NUMBER_KEYS):
                remedy = f"Known: {', '.join(sorted(_NUMBER_KEYS))}."
                raise self.place.at(key, unknown).error("is not a known key.", remedy=remedy)
        value = _value(stated, unit, self.place, key)
        if value < 0 or (below is not None and value > below):
            raise self.place.at(key).error(f"{stated!r} is out of range.")
        return self.sourced(value, table, key)

    def required(self, key: str, unit: str, *, below: float | None = None) -> Sourced:
        number = self.number(key, unit, below=below)
        if number is None:
            raise self.place.error(f"{key} is missing.")
        return number

    def one_of(self, key: str, allowed: object, stated: str | None = None) -> Any:
        """What the row states under the key, one of a Literal's words."""
        chosen, words = stated or self.required_text(key), get_args(allowed)
        if chosen not in words:
            raise self.place.at(key).error(f"is {chosen!r}.", remedy=f"Known: {', '.join(words)}.")
        return chosen

    def value(self, kind: type[T], *also: str, **given: Any) -> T:
        """The value that a row describes: every field under its own name, but those that are `given`.

        A number stands under its field's name without the unit (`step_s` under `step`, in seconds), a flag is "yes" or
        "no". What the row leaves out has the field's default, and is missing where there is none. `also` are further
        keys of the row.
        """
        described: Any = kind  # a type checker takes a class for no key of a cache
        columns = [column for column in _columns(described) if column.field not in given]
        self.allow(*(column.key for column in columns if column.key != "name"), *also)
        read = {column.field: self._read(column) for column in columns if column.is_needed or column.key in self.fields}
        return kind(**read, **given)

    def _read(self, column: "_Column") -> Any:
        key, kind = column.key, column.kind
        if kind in {float, Sourced}:
            number = self.required(key, column.unit)
            return number if kind is Sourced else number.value
        if kind is bool:
            return self.one_of(key, Literal["yes", "no"]) == "yes"
        if kind is int:
            return self.whole(key)
        if get_origin(kind) is Literal:
            return self.one_of(key, kind)
        if kind is str:
            return self.name if key == "name" else self.required_text(key)
        return get_origin(kind)(self.names(key))

    def sourced(self, value: float, table: Mapping[str, Any], stated_in: str) -> Sourced:
        """A value with what its table says of it, and otherwise what its row says."""
        key = table.get("source", self.fields.get("source"))
        source = self.sources.get(key) if key is not None else None
        if source is None:
            raise self._unsourced(key, stated_in)
        origin, date = table.get("origin", source.get("origin", "datasheet")), table.get("date", source.get("date"))
        if origin not in ORIGINS:
            remedy = f"Known origins: {', '.join(ORIGINS)}."
            raise self.place.at(stated_in).error(f"has the origin {origin!r}.", remedy=remedy)
        if not isinstance(date, str):
            raise self.place.at(stated_in).error("has no date, and its source has none.")
        cited = _cite(source["title"], source.get("url"))
        return Sourced(value=value, origin=origin, source=cited, date=date, note=table.get("note"))

    def _unsourced(self, key: object, stated_in: str) -> CatalogError:
        place = self.place.at(stated_in)
        if key is None:
            return place.error("has no source, and its row has none.", remedy="Every number says where it comes from.")
        remedy = did_you_mean(str(key), self.sources)
        return place.error(f"names the source {key!r}, which the file does not declare.", remedy=remedy)


@frozen
class _Column:
    """What a row has for a field of a value, under which key."""

    field: str
    key: str
    kind: Any  # without `None`, which a field may be by default
    unit: str
    is_needed: bool


@cache
def _columns(kind: Any) -> tuple[_Column, ...]:
    columns = []
    hints = get_type_hints(kind)
    for entry in fields(kind):
        kinds = [part for part in get_args(hints[entry.name]) if part is not type(None)]
        of = kinds[0] if type(None) in get_args(hints[entry.name]) else hints[entry.name]
        ending = next((end for end in _UNITS if entry.name.endswith(end)), "") if of in {float, Sourced} else ""
        is_needed = entry.default is MISSING and entry.default_factory is MISSING
        key, unit = entry.name.removesuffix(ending), _UNITS.get(ending, "1")
        columns.append(_Column(field=entry.name, key=key, kind=of, unit=unit, is_needed=is_needed))
    return tuple(columns)


_NO_ROW = CatalogRow(name="", place=CatalogKey(file="", key=""), fields={}, sources={})


@frozen
class CatalogRows:
    """Rows by name, and the names they are also known by."""

    by_name: Mapping[str, CatalogRow]
    aliases: Mapping[str, str]

    def canonical(self, name: str) -> str | None:
        """The row's own name for a name or alias, in any case of letters."""
        exact = name if name in self.by_name else self.aliases.get(name)
        if exact is not None:
            return exact
        near = same_but_for_case(name, (*self.by_name, *self.aliases))
        return None if near is None else self.aliases.get(near, near)

    def words(self) -> dict[str, str]:
        """What rows are also known by, their aliases and titles, with the name that each stands for."""
        titles = {str(row.fields["title"]): name for name, row in self.by_name.items() if "title" in row.fields}
        return {**titles, **self.aliases}


def read_rows(files: Iterable[Path], table: str) -> CatalogRows:
    """Every `[table.NAME]` of the files. A later file may replace an earlier row; within a file names are unique."""
    return rows_in(((file, parse_file(file)) for file in files), table)


def rows_in(contents: Iterable[tuple[Path, Mapping[str, Any]]], table: str) -> CatalogRows:
    """As `read_rows`, of files that are parsed already."""
    rows: dict[str, CatalogRow] = {}
    for file, content in contents:
        sources = _sources(content.get("sources", {}), CatalogKey(file=file.name, key="sources"))
        entries = content.get(table, {})
        if not isinstance(entries, dict):
            raise CatalogError(f"{file.name}: {table}: must be a table of rows.")
        for name, stated in entries.items():
            place = CatalogKey(file=file.name, key=f"{table}.{name}")
            if not isinstance(stated, dict):
                raise place.error("must be a table.")
            rows[name] = CatalogRow(name=name, place=place, fields=stated, sources=sources)
    return CatalogRows(by_name=rows, aliases=_aliases(rows))


def parse_file(file: Path) -> dict[str, Any]:
    return parse_text(file_text(file), file)


def file_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise CatalogError(f"{file}: cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise CatalogError(f"{file}: is not valid TOML: {error}.") from None


def parse_text(text: str, file: Path) -> dict[str, Any]:
    """TOML, all of a file or a part of it."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{file}: is not valid TOML: {error}.") from None


def _sources(entries: Any, place: CatalogKey) -> dict[str, Mapping[str, str]]:
    if not isinstance(entries, dict):
        raise place.error("must be a table.")
    for name, stated in entries.items():
        if not isinstance(stated, dict) or not isinstance(stated.get("title"), str):
            raise place.at(name).error("must be a table with a title.")
        for key in sorted(set(stated) - _SOURCE_KEYS):
            raise place.at(name, key).error("is not a known key.", remedy=f"Known: {', '.join(sorted(_SOURCE_KEYS))}.")
    return dict(entries)


def _aliases(rows: Mapping[str, CatalogRow]) -> dict[str, str]:
    aliases: dict[str, str] = {}
    for name, row in rows.items():
        for alias in row.names("aliases"):
            other = name if alias == name else (alias if alias in rows else aliases.get(alias))
            if other is not None:
                raise row.place.at("aliases").error(f"{alias!r} is already the name of {other}.")
            aliases[alias] = name
    return aliases


def _value(stated: Any, unit: str, row: CatalogKey, key: str) -> float:
    if isinstance(stated, int | float) and not isinstance(stated, bool) and unit == "1":
        return stated
    if not isinstance(stated, str):
        raise row.at(key).error(f"must be text with a unit such as '12 {unit}', and is {stated!r}.")
    try:
        return _parsed(stated, unit)
    except UnitError as error:
        raise row.at(key).error(error.message, remedy=error.remedy) from None


@cache
def _parsed(text: str, unit: str) -> float:
    """Rows repeat themselves: a thousand devices have some hundred different sizes, clocks and powers."""
    return parse_quantity(text, unit, bare=unit == "1")


@cache
def _cite(title: str, url: str | None) -> str:
    return f"{title}, {url}" if url else title


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    near = nearest(name, known, count=1)
    return f"Did you mean {near[0]}?" if near else None
