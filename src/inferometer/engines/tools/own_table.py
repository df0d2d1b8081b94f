"""A table or a log of one's own: which column, or which part of a line, is what is said by whoever made it.

A table has a line that names its columns; a log has a pattern, whose named groups are the columns. Each row is an op:
its `name`, and the `time` of one call or the `total` of all `count` of them. It may have a `phase`, a `unit` (where it
ran), a `kind`, the `bytes` that a call moved, and `write`, `run` and `read`: what of a call's time each of these took.
Then what is written and read, and what is left of the call, are ops of their own beside it, so that the sums close.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import ClassVar

from inferometer.core.errors import DomainError, FormatError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.core.units import parse_quantity
from inferometer.engines.results.assemble import Draft, finish, remainder, sum_of
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import whole
from inferometer.engines.results.tables import TableRow, plain_number, table_rows
from inferometer.engines.results.words import kind_of

PARTS = ("write", "run", "read")
FIELDS = ("name", "time", "total", "count", "phase", "unit", "kind", "bytes", *PARTS)
_SIZED = re.compile(r"[~≈]?\s*(?P<number>[\d.,]+(?:[eE][+-]?\d+)?)\s*(?P<unit>[a-zA-Zµ]*)")
_IN_HEADING = re.compile(r"\((?P<unit>[a-zA-Zµ]+)\)\s*$|\b(?P<word>ns|us|µs|ms|s|[kKMG]i?B)\b")
_EMPTY = frozenset({"", "-", "–", "—", "n/a", "N/A"})


@frozen
class OwnTable:
    """An importer that is told what it reads. `columns` has the column for each of FIELDS that there is.

    `time_unit` is of times that say none themselves. `walls_s` are how long whole phases took, by name: what no row
    accounts for is then known.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    pattern: str | None = None
    time_unit: str | None = None
    walls_s: Mapping[str, float] = field(default_factory=dict)
    name: ClassVar[str] = "table"
    title: ClassVar[str] = "a table of one's own"

    def matches(self, document: Document) -> bool:  # noqa: ARG002 - whoever names the columns knows what it is
        return True

    def read(self, document: Document) -> tuple[Profile, ...]:
        return (_profile(document, self),)

    def __post_init__(self) -> None:
        for name in self.columns:
            if name not in FIELDS:
                raise UnknownNameError("field of a table", name, FIELDS, listing=f"Known: {', '.join(FIELDS)}.")
        if "name" not in self.columns or not self.columns.keys() & {"time", "total"}:
            raise DomainError(
                "A table of one's own needs a name and a time in each row.",
                remedy="Say which columns these are: --column name=OP --column time=MS; total is of all calls.",
            )


def pattern_table(pattern: str, **more: object) -> OwnTable:
    """The table that a pattern's named groups make of a log."""
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise DomainError(f"{pattern!r} is no regular expression: {error}.") from None
    return OwnTable(columns={name: name for name in groups}, pattern=pattern, **more)  # type: ignore[arg-type]


def _profile(document: Document, table: OwnTable) -> Profile:
    """One profile: a phase for each that the rows name, in the order in which they come first."""
    draft = Draft(tool="a table")
    phases: dict[str, list[TableRow]] = {}
    for row in _rows(document, table):
        phases.setdefault(_cell(row, table, "phase") or "forward", []).append(row)
    if not phases:
        wanted = table.pattern or ", ".join(table.columns.values())
        first = next((line for line in document.text.splitlines() if line.strip()), "")
        raise FormatError(f"No line of it is a row with {wanted!r}.", remedy=f"It begins with {first.strip()[:120]!r}.")
    missing = table.walls_s.keys() - phases.keys()
    if missing:
        raise UnknownNameError("phase", min(missing), phases, listing=f"Its rows have: {', '.join(phases)}.")
    draft.phases = [_phase(name, rows, table, draft.notes) for name, rows in phases.items()]
    times = {phase.name: phase.time_s for phase in draft.phases}
    draft.headline |= {key: times[name] for name, key in (("prefill", "ttft_s"), ("decode", "tpot_s")) if name in times}
    if times.get("decode"):
        draft.headline["tokens_per_s"] = 1 / times["decode"]
    return finish(draft, document)


def _rows(document: Document, table: OwnTable) -> Iterator[TableRow]:
    if table.pattern is None:
        yield from table_rows(document.text, list(table.columns.values()))
        return
    compiled = re.compile(table.pattern)
    for number, line in enumerate(document.text.splitlines(), start=1):
        if (found := compiled.search(line)) is not None:
            yield TableRow(line=number, cells={name: part or "" for name, part in found.groupdict().items()})


def _phase(name: str, rows: Sequence[TableRow], table: OwnTable, notes: list[str]) -> Phase:
    ops = tuple(op for row in rows for op in _ops(row, table))
    wall_s = table.walls_s.get(name)
    if wall_s is None:
        notes.append(f"the time of {name} is the sum of its rows: nothing says how long the whole took")
    time_s = sum_of(ops) if wall_s is None else wall_s
    left = None if wall_s is None else remainder(wall_s, ops, notes)
    return Phase(name=name, time_s=time_s, statistic="single", ops=ops, unattributed_s=left)


def _ops(row: TableRow, table: OwnTable) -> Iterator[OpTime]:
    """The op, or what its calls are made of: writing what it needs, running, reading what it gave, and the rest."""
    name = _cell(row, table, "name")
    if name is None:
        raise FormatError(f"Line {row.line} has no name.")
    count, moved = _count(row, table), _sized(row, table, "bytes", "B")
    bytes_moved = None if moved is None else moved * count
    time_s = _of_calls(row, table, "time") if "time" in table.columns else _sized(row, table, "total", "s") or 0.0
    unit = (_cell(row, table, "unit") or "").casefold() or None
    op = OpTime(name=name, kind=kind_of(_cell(row, table, "kind")), count=count, time_s=time_s, unit=unit)
    parts = {part: _of_calls(row, table, part) for part in PARTS if _cell(row, table, part) is not None}
    if not parts:
        yield replace(op, bytes=bytes_moved)
        return
    if "write" in parts:
        yield replace(op, name=f"{name}/write", kind="copy", time_s=parts["write"], bytes=bytes_moved)
    around_s = max(0.0, time_s - sum(parts.values()))
    yield replace(op, time_s=parts.get("run", around_s), bytes=None if "write" in parts else bytes_moved)
    if "read" in parts:
        yield replace(op, name=f"{name}/read", kind="copy", time_s=parts["read"])
    if "run" in parts and around_s > 0:
        yield replace(op, name=f"{name}/call", kind="custom", time_s=around_s)


def _count(row: TableRow, table: OwnTable) -> int:
    return whole(_cell(row, table, "count"), f"`{table.columns.get('count')}` in line {row.line}") or 1


def _of_calls(row: TableRow, table: OwnTable, name: str) -> float:
    return _count(row, table) * (_sized(row, table, name, "s") or 0.0)


def _cell(row: TableRow, table: OwnTable, name: str) -> str | None:
    text = row.cells.get(table.columns.get(name, ""), "").strip()
    return None if text in _EMPTY else text


def _sized(row: TableRow, table: OwnTable, name: str, base: str) -> float | None:
    """A number in `base`, in the unit that stands beside it, else in its column's name, else that is given."""
    text, column = _cell(row, table, name), table.columns.get(name, "")
    if text is None:
        return None
    found = _SIZED.fullmatch(text)
    what = f"`{column}` in line {row.line}"
    if found is None:
        raise FormatError(f"{what} should be a number, and is {text[:40]!r}.")
    heading = _IN_HEADING.search(column)
    unit = found["unit"] or (heading and (heading["unit"] or heading["word"])) or None
    if unit is None:
        unit = table.time_unit if base == "s" else base
    if unit is None:
        raise FormatError(f"{what} is {text!r}, and nothing says in which unit.", remedy="Say it: --time-unit ms.")
    return plain_number(found["number"], what) * parse_quantity(f"1 {unit}", base)
