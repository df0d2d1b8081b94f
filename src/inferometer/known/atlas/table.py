"""AtlasTable: many published measurements as columns.

A text column is an array of codes into its distinct values, so that 15,000 rows of one device compare one number. An
unknown number is NaN, an unknown text None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inferometer.core.errors import DomainError, nearest
from inferometer.core.frozen import frozen
from inferometer.known.atlas.measurement import RATES, PublishedMeasurement, seconds_of

Texts = tuple[str | None, ...]

NUMBERS = (
    "line", "count", "batch", "image", "prompt", "generate", "context", "concurrency", "figure", "low", "high",
    "memory_bytes", "power_w", "energy_j", "parameters", "macs", "weight_bytes",
)  # fmt: skip
_WHOLE = frozenset(NUMBERS[:8])
TEXTS = tuple(entry.name for entry in fields(PublishedMeasurement) if entry.name not in NUMBERS)
COMPUTED = ("seconds", "low_s", "high_s")


@frozen
class TextColumn:
    """`values[code]` is the text of a row."""

    codes: NDArray[Any]
    values: Texts

    def mask(self, wanted: Iterable[str | None]) -> NDArray[Any]:
        chosen = set(wanted)
        return np.isin(self.codes, [code for code, value in enumerate(self.values) if value in chosen])

    def take(self, index: NDArray[Any]) -> TextColumn:
        return TextColumn(codes=self.codes[index], values=self.values)

    def objects(self) -> NDArray[Any]:
        return np.array(self.values, dtype=object)[self.codes] if self.values else np.array([], dtype=object)


@frozen
class AtlasTable:
    """`table["seconds"]` is a column, `table.where(unit="npu")` a part, `table.row(0)` a measurement."""

    texts: Mapping[str, TextColumn]
    numbers: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.numbers["line"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        """One column: texts as objects, numbers as floats."""
        if name in COMPUTED:
            return self._seconds(name)
        if name in self.texts:
            return self.texts[name].objects()
        if name in self.numbers:
            return self.numbers[name]
        near = nearest(name, self.names, count=1)
        hint = f"Did you mean {near[0]}?" if near else f"It has: {', '.join(self.names)}."
        raise DomainError(f"The atlas has no column {name!r}.", remedy=hint)

    def __repr__(self) -> str:
        return f"<AtlasTable of {len(self)} published measurements>"

    @property
    def names(self) -> tuple[str, ...]:
        return (*TEXTS, *NUMBERS, *COMPUTED)

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """Every column by name: what a data frame is made of."""
        return {name: self[name] for name in self.names}

    def distinct(self, name: str) -> Texts:
        """The texts that rows of a column really have, in the order of first appearance."""
        column = self.texts[name]
        return tuple(column.values[code] for code in dict.fromkeys(column.codes.tolist()))

    def where(self, **wanted: str | float | Iterable[str] | None) -> AtlasTable:
        """The rows that have these values. A list means any of them; None means rows where it is unknown."""
        mask = np.ones(len(self), dtype=bool)
        for name, value in wanted.items():
            if name in self.texts:
                several = [value] if value is None or isinstance(value, str) else value
                mask &= self.texts[name].mask(several)  # type: ignore[arg-type] # a number for a text matches nothing
            else:
                column = self[name]
                mask &= np.isnan(column) if value is None else column == value
        return self.take(mask)

    def take(self, index: NDArray[Any] | Sequence[int]) -> AtlasTable:
        """The rows at these places, or where this mask is true."""
        at = np.asarray(index)
        at = at if at.dtype == bool else at.astype(np.intp)
        return AtlasTable(
            texts={name: column.take(at) for name, column in self.texts.items()},
            numbers={name: column[at] for name, column in self.numbers.items()},
        )

    def row(self, index: int) -> PublishedMeasurement:
        values: dict[str, Any] = {}
        for name, column in self.texts.items():
            values[name] = column.values[column.codes[index]]
        for name, array in self.numbers.items():
            values[name] = _number(name, array[index])
        values["settings"] = parse_settings(values["settings"])
        return PublishedMeasurement(**values)

    def rows(self) -> Iterator[PublishedMeasurement]:
        return (self.row(index) for index in range(len(self)))

    def newest_first(self) -> AtlasTable:
        """By date, rows without one last; rows of one date stay in order."""
        dates = np.array([value or "" for value in self.texts["date"].values], dtype=str)
        ranks = np.argsort(np.argsort(dates, kind="stable"), kind="stable")
        return self.take(np.argsort(-ranks[self.texts["date"].codes], kind="stable"))

    def _seconds(self, name: str) -> NDArray[Any]:
        """As `PublishedMeasurement` computes them, for the rows of each unit and quantity at once."""
        low, high = self.numbers["low"], self.numbers["high"]
        if name == "seconds":
            return self._converted(self.numbers["figure"])
        rate = np.isin(self.texts["figure_unit"].codes, _codes(self.texts["figure_unit"].values, RATES))
        both = ~np.isnan(low) & ~np.isnan(high)
        smaller, larger = np.minimum(low, high), np.maximum(low, high)
        shortest = np.where(rate, larger, smaller)  # the highest rate is the shortest time
        end = shortest if name == "low_s" else np.where(rate, smaller, larger)
        return self._converted(np.where(both, end, np.nan))

    def _converted(self, figures: NDArray[Any]) -> NDArray[Any]:
        seconds = np.full(len(self), np.nan)
        units, quantities = self.texts["figure_unit"], self.texts["quantity"]
        width = len(quantities.values) or 1
        pairs = units.codes.astype(np.int64) * width + quantities.codes
        sizes = {name: np.nan_to_num(self.numbers[name], nan=1.0) for name in ("batch", "prompt", "count")}
        for pair in np.unique(pairs):
            at = pairs == pair
            unit, quantity = units.values[pair // width], quantities.values[pair % width]
            part = {name: size[at] for name, size in sizes.items()}
            seconds[at] = seconds_of(figures[at], str(unit), str(quantity), **part)
        return seconds


def _codes(values: Texts, wanted: Iterable[str]) -> list[int]:
    chosen = set(wanted)
    return [code for code, value in enumerate(values) if value in chosen]


def _number(name: str, value: Any) -> Any:
    if np.isnan(value):
        return None
    return int(value) if name in _WHOLE else float(value)


def table_of(rows: Iterable[PublishedMeasurement]) -> AtlasTable:
    """Measurements as a table, in their order."""
    kept = list(rows)
    texts = {}
    for name in TEXTS:
        of_rows = [getattr(row, name) for row in kept]
        plain = [settings_text(value) for value in of_rows] if name == "settings" else of_rows
        texts[name] = text_column(plain)
    numbers = {
        name: np.array([np.nan if (value := getattr(row, name)) is None else value for row in kept], dtype=float)
        for name in NUMBERS
    }
    return AtlasTable(texts=texts, numbers=numbers)


def text_column(texts: Sequence[str | None]) -> TextColumn:
    values = {value: code for code, value in enumerate(dict.fromkeys(texts))}
    codes = np.fromiter((values[text] for text in texts), dtype=np.int32, count=len(texts))
    return TextColumn(codes=codes, values=tuple(values))


def joined(tables: Sequence[AtlasTable]) -> AtlasTable:
    """One table of several, their rows one after the other."""
    if len(tables) == 1:
        return tables[0]
    texts = {name: _joined_texts([table.texts[name] for table in tables]) for name in TEXTS}
    numbers = {
        name: np.concatenate([table.numbers[name] for table in tables]) if tables else np.array([], dtype=float)
        for name in NUMBERS
    }
    return AtlasTable(texts=texts, numbers=numbers)


def _joined_texts(columns: Sequence[TextColumn]) -> TextColumn:
    known: dict[str | None, int] = {}
    parts = []
    for column in columns:
        places = [known.setdefault(value, len(known)) for value in column.values]
        parts.append(np.array(places, dtype=np.int32)[column.codes] if places else column.codes)
    return TextColumn(codes=np.concatenate(parts) if parts else np.array([], dtype=np.int32), values=tuple(known))


def settings_text(settings: Mapping[str, str]) -> str | None:
    """`batch_limit=2048;tp=8`: one text a combination, keys in order."""
    return ";".join(f"{key}={settings[key]}" for key in sorted(settings)) or None


def parse_settings(text: str | None) -> dict[str, str]:
    parts = (part.partition("=") for part in text.split(";")) if text else ()
    return {key: value for key, _, value in parts}
