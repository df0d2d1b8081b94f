"""What two versions of a data file have in common: rows of a table, graphs of an archive, values of a document."""

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from inferometer.formats.networks.archive import graph_in, read_tables
from inferometer.known.atlas.shipped import SCHEMA, read_table
from workshop.networks.archive import tables_of


def difference(shipped: Path, made: Path) -> str:
    """`equal`, or what stays, is new and is gone."""
    if not made.is_file():
        return "gone"
    if not shipped.is_file():
        kind, rows = _rows(made)
        return f"new, with {sum(Counter(rows).values())} {kind}"
    if shipped.read_bytes() == made.read_bytes():
        return "equal"
    if made.suffix == ".json":
        return _changes(*(dict(_values(json.loads(path.read_bytes()))) for path in (shipped, made)))
    (kind, rows), (_, others) = _rows(shipped), _rows(made)
    before, after = Counter(rows), Counter(others)
    stay, new, gone = (sum(part.values()) for part in (before & after, after - before, before - after))
    if not new and not gone:
        return f"the same {stay} {kind} in other bytes ({shipped.stat().st_size} → {made.stat().st_size})"
    return f"{stay} {kind} stay, {new} new, {gone} gone"


def _changes(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Values of a document by where they stand; of numbers that differ, how far the farthest is off."""
    common = before.keys() & after.keys()
    changed = [(before[where], after[where]) for where in common if before[where] != after[where]]
    counts = (
        f"{len(common) - len(changed)} values stay, {len(after) - len(common)} new, {len(before) - len(common)} gone"
    )
    if not changed:
        return counts
    off = [abs(new - old) / max(abs(new), abs(old)) for old, new in changed if _is_number(old) and _is_number(new)]
    others = len(changed) - len(off)
    numbers = f", {len(off)} numbers differ by up to {max(off):.2g} of themselves" if off else ""
    return counts + numbers + (f", {others} other values differ" if others else "")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _rows(path: Path) -> tuple[str, Iterable[str]]:
    """What a file of this form is counted in, and each as a text of its own."""
    if path.suffix in {".txt", ".jsonl", ".toml"}:
        return "lines", path.read_text(encoding="utf-8").splitlines()
    if path.suffix not in {".json", ".gz"}:
        return "bytes", map(str, path.read_bytes())
    packed = path.read_bytes()
    document = json.loads(gzip.decompress(packed) if path.suffix == ".gz" else packed)
    if path.suffix == ".json":
        return "values", [where for where, _ in _values(document)]
    if str(document.get("schema")).startswith(SCHEMA):
        return "rows", _table_rows(path)
    tables = read_tables(path)
    # Each as the file that it would be alone: what it shares with others is numbered anew when one of them changes.
    return "graphs", [repr(tables_of({name: graph_in(tables, name)})) for name in tables.graphs]


def _table_rows(path: Path) -> Iterator[str]:
    """Without the line that a row stood in: a row that joins moves all below it."""
    table = read_table(path)
    texts = ([column.values[code] for code in column.codes.tolist()] for column in table.texts.values())
    numbers = (column.tolist() for name, column in table.numbers.items() if name != "line")
    return map(repr, zip(*texts, *numbers, strict=True))


def _values(document: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(document, dict | list) or not document:
        yield where, document
        return
    named = document.items() if isinstance(document, dict) else enumerate(document)
    for name, part in named:
        yield from _values(part, f"{where}/{name}")
