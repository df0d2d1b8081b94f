"""Which words name which rows: an index over the catalog's names and aliases, read from the text of its files.

Parsing a thousand rows takes longer than asking for one name, so the few lines that are needed (unit, chip, aliases)
are read by pattern. A user's rows are parsed: their files may be any TOML.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import permutations
from pathlib import Path

from inferometer.core import settings
from inferometer.core.errors import CatalogError
from inferometer.core.frozen import frozen
from inferometer.known.files import own_texts, rows_of_users
from inferometer.known.names.table import name_table
from inferometer.known.names.words import is_size, plain, vendors_in, words_of_row
from inferometer.known.sections import tables

_LINE = re.compile(r'^(unit|chip|vendor|kind) = "([^"]*)"', re.MULTILINE)
_ALIASES = re.compile(r"^aliases = \[(.*)\]", re.MULTILINE)
_QUOTED = re.compile(r'"([^"]*)"')
_UNIT_ENDING = re.compile(r"-(?:cpu|gpu|npu|tpu|ane)$")
_WITHOUT_GRAPHICS = re.compile(r"(\d{4,5}k?)f")  # an i5-12400F is an i5-12400 whose graphics are off
_FEW = 4  # words whose order names change: a100 pcie 80gb, a100 80gb pcie


@frozen
class NamedRow:
    name: str
    unit: str
    vendor: str
    chip: str | None
    kind: str | None
    aliases: tuple[str, ...]


@frozen
class Named:
    """What a phrase names: the rows of one chip, or one row, by unit. A weak phrase is a bare number."""

    vendor: str
    rows: Mapping[str, str]  # unit → row
    discrete: bool
    weak: bool = False


def phrases() -> Mapping[str, Named]:
    """Words run together (`rtx4090`, `snapdragon8gen3`) → what they name."""
    return _phrases(settings.catalog_folders())


@cache
def _phrases(folders: tuple[Path, ...]) -> Mapping[str, Named]:  # noqa: ARG001 - they decide on the rows
    rows = list(_rows())
    chips: dict[str, dict[str, str]] = {}
    for row in rows:
        if row.chip:
            chips.setdefault(row.chip, {})[row.unit] = row.name
    for row in rows:
        if row.name in chips:  # a board whose other units name it as their chip
            chips[row.name].setdefault(row.unit, row.name)
    index: dict[str, Named] = {}
    for row in rows:
        for phrase, weak in _of_row(row):
            if phrase and (phrase not in index or (index[phrase].weak and not weak)):
                index[phrase] = _named(row, chips, weak=weak)
    targets = _targets(rows, chips)
    for also, target in name_table().devices.items():
        index["".join(words_of_row(also))] = _target(target, targets)
    for whole, target in name_table().exact.items():
        index[f"={whole}"] = _target(target, targets)  # no run of words begins so
    return index


def _named(row: NamedRow, chips: Mapping[str, Mapping[str, str]], *, weak: bool = False) -> Named:
    of_chip = chips.get(row.chip or row.name)
    discrete = of_chip is None and row.unit == "gpu"
    return Named(vendor=row.vendor, rows=of_chip or {row.unit: row.name}, discrete=discrete, weak=weak)


def _targets(rows: Iterable[NamedRow], chips: Mapping[str, Mapping[str, str]]) -> Mapping[str, Named]:
    """What the table may name: a row, a chip by its own name, or a chip by that of its rows without their unit."""
    found: dict[str, Named] = {}
    for row in rows:
        whole = _named(row, chips)
        for name in (row.chip, _UNIT_ENDING.sub("", row.name)):
            if name is not None and row.chip is not None:
                found.setdefault(name, whole)
        found[row.name] = whole if row.chip is None else replace(whole, rows={row.unit: row.name})
    return found


def _target(target: str, targets: Mapping[str, Named]) -> Named:
    if target not in targets:
        raise CatalogError(f"names.toml: {target} is neither a row nor a chip of the catalog.")
    return targets[target]


def _of_row(row: NamedRow) -> Iterator[tuple[str, bool]]:
    for name in (row.name, *row.aliases):
        words = words_of_row(_UNIT_ENDING.sub("", name))
        yield from ((phrase, _weak(phrase)) for phrase in _orders(row, words))
        yield from ((part, _weak(part)) for part in _endings(row, words))
    if row.chip:
        whole = "".join(words_of_row(row.chip.lower()))
        yield whole, _weak(whole)


def _weak(phrase: str) -> bool:
    """Too short, or a bare number: it counts only beside a word of its maker, or alone."""
    return phrase.isdecimal() or len(phrase) <= 3


def _orders(row: NamedRow, words: tuple[str, ...]) -> Iterator[str]:
    """The words run together; those of a server card in any order."""
    if row.kind == "server" and row.unit == "gpu" and 1 < len(words) <= _FEW:
        yield from ("".join(order) for order in permutations(words))
    else:
        yield "".join(words)


def _endings(row: NamedRow, words: tuple[str, ...]) -> Iterator[str]:
    """Names without their series: `4070 Ti`, `13900K`, `7-155H`, `155H`, `5950X`."""
    if row.vendor in {"NVIDIA", "Intel", "AMD"}:
        for start in range(1, len(words)):
            ending = "".join(words[start:])
            if len(ending) > 3 and ending[0].isdecimal() and not is_size(words[start]):
                yield ending


def _rows() -> Iterator[NamedRow]:
    for text in own_texts("devices"):
        found: dict[str, str] = {}
        for (first, name), part in tables(text):
            if first == "devices" and name not in found:
                found[name] = part
        yield from (_light(name, part) for name, part in found.items())
    for row in rows_of_users("devices"):
        yield NamedRow(
            name=row.name, unit=row.required_text("unit"), vendor=row.required_text("vendor"), chip=row.text("chip"),
            kind=row.text("kind"), aliases=row.names("aliases"),
        )  # fmt: skip


def _light(name: str, part: str) -> NamedRow:
    stated = dict(_LINE.findall(part))
    aliases = _ALIASES.search(part)
    return NamedRow(
        name=name, unit=stated["unit"], vendor=stated["vendor"], chip=stated.get("chip"), kind=stated.get("kind"),
        aliases=tuple(_QUOTED.findall(aliases[1])) if aliases else (),
    )  # fmt: skip


@frozen
class Candidate:
    """A phrase found in a name: how many characters of it, where, and what it names."""

    length: int
    start: int
    named: Named


def candidates(name: str, words: tuple[str, ...]) -> list[Candidate]:
    """Every phrase that stands in the words, the longest first."""
    index, makers, found = phrases(), vendors_in(name), []
    whole = index.get(f"={plain(name)}")
    if whole is not None:
        return [Candidate(length=len(name), start=0, named=whole)]
    if "Intel" in makers:
        words = tuple(_WITHOUT_GRAPHICS.sub(r"\1", word) for word in words)
    for start in range(len(words)):
        joined = ""
        for end in range(start, min(start + 8, len(words))):
            joined += words[end]
            named = index.get(joined)
            alone = start == 0 and end == len(words) - 1
            if named is not None and (not named.weak or named.vendor in makers or alone):
                found.append(Candidate(length=len(joined), start=start, named=named))
    return sorted(found, key=lambda candidate: (-candidate.length, candidate.start))
