"""A sweep as text: a TOML file, or lists and ranges on a command line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from inferometer.core.errors import DomainError, FormatError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.known import link
from inferometer.predict.ask import model_graph
from inferometer.predict.fields import DRAFT_LENGTH
from inferometer.predict.options import (
    Battery,
    EnergyCosts,
    HostCosts,
    Hosting,
    Offload,
    Options,
    Speculative,
    draft_schedule,
)
from inferometer.predict.sweep.grid import AXES, COUNTED

_TABLES: dict[str, Any] = {
    "place": Hosting, "host": HostCosts, "offload": Offload, "energy": EnergyCosts, "battery": Battery,
    "speculative": Speculative,
}  # fmt: skip
_PLAIN = tuple(option.name for option in fields(Options) if option.name not in {*_TABLES, "threads"})  # an axis
_FLAGS = ("priors", "details")
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?:([+*])(\d+))?)?")
_MOST_VALUES = 10_000_000  # of one axis: a list of ints of 80 MB, more than any sweep is meant to have


@frozen
class Spec:
    """The lists by axis, with models and devices by name, and what holds for all rows.

    `prefill_on` is another device, by name. With `priors` the calibrations of devices are left out; with `details` rows
    have the columns of that name.
    """

    axes: Mapping[str, Any] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    prefill_on: str | None = None
    priors: bool = False
    details: bool = False


def parse_spec(text: str, name: str) -> Spec:
    """`name` is what the text is called in errors."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FormatError(f"{name} is no TOML file: {error}.") from None
    _require_known(found, (*AXES, "options", "prefill_on", *_FLAGS), f"key of {name}")
    reader = found.pop("prefill_on", None)
    if reader is not None and not isinstance(reader, str):
        raise FormatError(f"prefill_on of {name} is {reader!r}.", remedy="Write the name of a device.")
    options, flags = found.pop("options", {}), {key: found.pop(key, False) for key in _FLAGS}
    for key, value in flags.items():
        if not isinstance(value, bool):
            raise FormatError(f"{key} of {name} is {value!r}.", remedy="Write true or false.")
    axes = {key: (parse_axis(key, value) if isinstance(value, str) else value) for key, value in found.items()}
    return Spec(axes=axes, options=_options(options, name), prefill_on=reader, **flags)


def _require_known(found: Mapping[str, Any], known: tuple[str, ...], kind: str) -> None:
    for key in found:
        if key not in known:
            raise UnknownNameError(kind, key, known, listing=f"Known: {', '.join(known)}.")


def _options(found: Any, name: str) -> Options:
    if not isinstance(found, dict):
        raise FormatError(f"options of {name} is no table.", remedy="Write [options] and a line for each.")
    _require_known(found, (*_PLAIN, *_TABLES), f"option of {name}")
    values = dict(found)
    if not isinstance(values.get("sizes", {}), dict):
        raise FormatError(f"sizes of {name} is no table.", remedy="Write [options.sizes] and a line for each.")
    for key, kind in _TABLES.items():
        if key in values:
            if not isinstance(values[key], dict):
                raise FormatError(f"{key} of {name} is no table.", remedy=f"Write [options.{key}] and a line for each.")
            _require_known(values[key], kind.__slots__, f"key of {name}'s {key}")
            values[key] = values[key] | _found(key, values[key])
    try:
        tables = {key: kind(**values[key]) for key, kind in _TABLES.items() if key in values}
        if "link" in values:
            values["link"] = link(values["link"])
        return Options(**{**values, **tables})
    except TypeError:
        raise FormatError(f"An option of {name} has a value of another kind than it takes.") from None


def _found(key: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """What a table names and the options hold: the model that drafts, and how much by load."""
    if key != "speculative":
        return {}
    draft, up_to = table.get("draft"), table.get("up_to")
    found: dict[str, Any] = {"draft": model_graph(draft)} if isinstance(draft, str) else {}
    if up_to is not None:
        found["up_to"] = draft_schedule(str(up_to), table.get("length", DRAFT_LENGTH))
    return found


def parse_axis(axis: str, text: str) -> list[Any]:
    """A list on one line: names with commas between them, or numbers and ranges."""
    if axis in COUNTED:
        return parse_counts(axis, text)
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_counts(axis: str, text: str) -> list[int]:
    """`1,2,4`, `1-8` (each), `0-4096+512` (steps of 512), `1-64*2` (doubling), and any of them with commas between."""
    found: list[int] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise DomainError(
                f"{axis} cannot be read from {part!r}.", remedy="Write numbers and ranges: 1,2,4 or 1-8 or 1-64*2."
            )
        found += _ranged(axis, match)
    return found


def _ranged(axis: str, match: re.Match[str]) -> list[int]:
    part, (first, last, way, by) = match[0], match.groups()
    start, stop, step = int(first), int(last or first), int(by or 1)
    if stop < start or (way == "*" and (step < 2 or start < 1)) or (way == "+" and step < 1):
        raise DomainError(f"The range {part!r} of {axis} does not rise.", remedy="Write first-last, +step or *factor.")
    if way == "*":
        found = []
        while start <= stop:
            found.append(start)
            start *= step
        return found
    if (stop - start) // step >= _MOST_VALUES:
        raise DomainError(f"The range {part!r} of {axis} has more than {_MOST_VALUES} values.")
    return list(range(start, stop + 1, step))
