"""The columns of a sweep's rows: the inputs, the summary of a profile, and why a row has no numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from inferometer.core.profile import Headline
from inferometer.errors import DomainError, UnknownNameError

__all__ = ["COLUMNS", "HIGHER_IS_BETTER", "INPUTS", "Column", "Kind", "column_named", "unit_of"]

Kind = Literal["text", "whole", "number", "flag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    kind: Kind


_TEXTS = ("model", "device", "runtime", "weights", "activations", "kv")
_COUNTS = ("tp", "pp", "ep", "dp", "image", "batch", "prompt", "generate", "context")
_KINDS: dict[str, Kind] = {
    "peak_memory_bytes": "whole", "fits": "flag", "top_unit": "text", "top_unit_by_count": "text",
}  # fmt: skip

INPUTS = (*_TEXTS, *_COUNTS)
COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        *(Column(name=name, kind="text") for name in _TEXTS),
        *(Column(name=name, kind="whole") for name in _COUNTS),
        *(Column(name=entry.name, kind=_KINDS.get(entry.name, "number")) for entry in fields(Headline)),
        Column(name="reason", kind="text"),
    )
}
HIGHER_IS_BETTER = frozenset({"tokens_per_s", "batch", "prompt", "generate", "context"})

_UNITS = {"_per_s": "1", "_s": "s", "_bytes": "B", "_j": "J", "_g": "g"}


def column_named(name: str) -> Column:
    if not isinstance(name, str):
        raise DomainError(f"Columns are asked for by name, and not by {name!r}.", remedy="rows.records() gives rows.")
    if name not in COLUMNS:
        raise UnknownNameError("column", name, COLUMNS, listing=f"The columns are {', '.join(COLUMNS)}.")
    return COLUMNS[name]


def unit_of(name: str) -> str:
    """The unit that a column's name ends with; 1 where it is a plain number."""
    return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "1")
