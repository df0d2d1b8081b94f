"""The columns of a sweep's rows: the inputs, the summary of a profile, and why a row has no numbers.

Details are further columns that rows have where they were asked for: between which bounds a time lies, what bounds each
phase, and what each resource takes of it side by side. They take a multiple of the time.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Literal

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Headline
from inferometer.predict.fields import AXES, FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["text", "whole", "number", "flag"]


@frozen
class SweepColumn:
    name: str
    kind: Kind


_TEXTS = ("model", "device", *(name for name, field in FIELDS.items() if field.axis and field.takes == "text"))
_COUNTS = tuple(name for name, field in AXES.items() if field.takes == "whole")
_KINDS: dict[str, Kind] = {
    "peak_memory_bytes": "whole", "fits": "flag", "top_unit": "text", "top_unit_by_count": "text",
}  # fmt: skip

_ENDS = ("_low_s", "_high_s")  # of a time's interval
_LEFT_OUT = ("_low_j", "_high_j")  # of an energy's: one prediction has them, a sweep does not
_PHASES = ("forward", "prefill", "decode")
RUNNING = ("compute", "memory", "host_link", "network")  # what a phase keeps busy
LOADING = ("storage", "host_link")  # … and what loading does

INPUTS = (*_TEXTS, *_COUNTS)
COLUMNS: dict[str, SweepColumn] = {
    column.name: column
    for column in (
        *(SweepColumn(name=name, kind="text") for name in _TEXTS),
        *(SweepColumn(name=name, kind="whole") for name in _COUNTS),
        *(
            SweepColumn(name=entry.name, kind=_KINDS.get(entry.name, "number"))
            for entry in fields(Headline)
            if not entry.name.endswith((*_ENDS, *_LEFT_OUT))
        ),
        SweepColumn(name="reason", kind="text"),
    )
}
DETAILS: dict[str, SweepColumn] = {
    column.name: column
    for column in (
        *(SweepColumn(name=entry.name, kind="number") for entry in fields(Headline) if entry.name.endswith(_ENDS)),
        *(SweepColumn(name=f"{phase}_bound", kind="text") for phase in _PHASES),
        *(SweepColumn(name=f"load_{stream}_s", kind="number") for stream in LOADING),
        *(SweepColumn(name=f"{phase}_{stream}_s", kind="number") for phase in _PHASES for stream in RUNNING),
    )
}
_ALL = COLUMNS | DETAILS
HIGHER_IS_BETTER = frozenset({
    "tokens_per_s", "tokens_per_s_per_user", "inputs_per_s",
    "battery_s", "inferences_per_charge", "frame_headroom", "batch", "prompt", "generate", "context",
})  # fmt: skip

_UNITS = {"_per_s": "1", "_s": "s", "_bytes": "B", "_j": "J", "_g": "g"}


def columns_with(*, details: bool) -> Mapping[str, SweepColumn]:
    return _ALL if details else COLUMNS


def column_named(name: str) -> SweepColumn:
    if not isinstance(name, str):
        raise DomainError(f"Columns are asked for by name, and not by {name!r}.", remedy="rows.records() gives rows.")
    if name not in _ALL:
        raise UnknownNameError("column", name, _ALL, listing=f"The columns are {', '.join(_ALL)}.")
    return _ALL[name]


def unit_of(name: str) -> str:
    """The unit that a column's name ends with; 1 where it is a plain number."""
    return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "1")
