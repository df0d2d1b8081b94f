"""A change, written as text: `weights=q4_0`, `batch=8`, `memory.bandwidth*=2`, `threads=4`.

One vocabulary for everything that changes one thing and asks again: what-ifs, the gains of findings, `explain --try`.
A change to a question or a device can be predicted; one to a run (`threads`, `optimisation` …) can only be measured.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from inferometer.core.device import Device, Memory, Sourced
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.units import parse_quantity
from inferometer.predict.fields import FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping


Changed = Literal["format", "size", "plan", "option", "runtime", "device", "run"]
# The figures of a device, with their units. `peak` is every format's; `peak.FORMAT` is one format's.
_FIGURES: Mapping[str, str] = {
    "memory.bandwidth": "B/s", "memory.capacity": "B", "peak": "FLOP/s", "power": "W", "launch": "s",
}  # fmt: skip
# What each key changes.
KEYS: Mapping[str, Changed] = {
    **{name: field.changes for name, field in FIELDS.items() if field.changes in get_args(Changed)},  # type: ignore[misc] # these alone
    "precision": "format",  # of weights and activations
    **dict.fromkeys(("on", *_FIGURES), "device"),
    **dict.fromkeys(("optimisation", "unit", "provider"), "run"),
}
OF_PROMPT = frozenset({"prompt", "cached_prefix", "chunk"})  # what they change is how long a prompt is read
_CHANGE = re.compile(r"\s*([\w.-]+)\s*(\*=|=)\s*(\S.*?)\s*")


@frozen
class Change:
    """With `times`, the current figure is multiplied by `value`; otherwise `value` replaces it."""

    key: str
    value: str
    times: bool = False

    def __str__(self) -> str:
        return f"{self.key}{'*=' if self.times else '='}{self.value}"

    @property
    def of(self) -> Changed:
        return "device" if self.key.startswith("peak.") else KEYS[self.key]

    @property
    def number(self) -> int:
        """The value as a whole number."""
        if not self.value.isdecimal():
            raise DomainError(f"{self.key} must be a whole number, not {self.value!r}.")
        return int(self.value)

    @property
    def field_value(self) -> Any:
        """The value as the field of that name takes it."""
        takes = FIELDS[self.key].takes
        if takes == "whole":
            return self.number
        if takes in {"number", "share"}:
            return parse_quantity(self.value, "1")
        if takes == "switch" and self.value not in {"true", "false"}:
            raise DomainError(f"{self.key} is a switch, and not {self.value!r}.", remedy=f"Write {self.key}=true.")
        return {"switch": self.value == "true", "texts": (self.value,)}.get(takes, self.value)


def parse_change(text: str) -> Change:
    match = _CHANGE.fullmatch(text)
    if match is None:
        raise DomainError(f"{text!r} is not a change.", remedy="Write KEY=VALUE or KEY*=FACTOR, for example batch=8.")
    key, sign, value = match.groups()
    if key not in KEYS and not key.startswith("peak."):
        known = (*KEYS, "peak.bf16")
        raise UnknownNameError("key to change", key, known, listing=f"Known: {', '.join(known)}.")
    change = Change(key=key, value=value, times=sign == "*=")
    if change.times and (change.of != "device" or key == "on"):
        raise DomainError(f"{key} cannot be multiplied.", remedy=f"Set it with {key}=VALUE.")
    return change


def changed_device(device: Device, change: Change) -> Device:
    """The device with one figure changed. An unknown figure can be set, but not multiplied."""
    if change.key.startswith("memory."):
        return replace(device, memories=_changed_memories(device, change))
    if change.key == "peak":
        return replace(device, peaks={name: _changed(peak, change) for name, peak in device.peaks.items()})
    if change.key.startswith("peak."):
        name = change.key.removeprefix("peak.")
        return replace(device, peaks={**device.peaks, name: _changed(device.peaks.get(name), change)})
    if change.key == "power" and device.busy_w is not None:
        limit = None if device.power_w is None else _changed(device.power_w, change)
        return replace(device, busy_w=_changed(device.busy_w, change), power_w=limit)
    if change.key == "power":
        return replace(device, power_w=_changed(device.power_w, change))
    return replace(device, launch_s=_changed(device.launch_s, change))


def _changed_memories(device: Device, change: Change) -> tuple[Memory, ...]:
    if not device.memories:
        raise DomainError(f"{device.name} has no memory in the catalog that could be changed.")
    main, *caches = device.memories
    if change.key == "memory.bandwidth":
        return replace(main, bandwidth_bytes_per_s=_changed(main.bandwidth_bytes_per_s, change)), *caches
    # What is usable of another capacity is not known: the change is taken as what a program can fill.
    return replace(main, capacity_bytes=_changed(main.room, change), usable_bytes=None), *caches


def _changed(number: Sourced | None, change: Change) -> Sourced:
    if change.times:
        if number is None:
            raise DomainError(
                f"{change.key} is unknown and cannot be multiplied.", remedy=f"Set it with {change.key}=VALUE."
            )
        value = number.value * parse_quantity(change.value, "1")
    else:
        value = parse_quantity(change.value, _FIGURES["peak" if change.key.startswith("peak.") else change.key])
    if not value > 0:
        raise DomainError(f"{change} gives {value:g}; it must be greater than 0.")
    return Sourced(value=value, origin="prior", source=f"what if {change}", date="0000")
