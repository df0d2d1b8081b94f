"""Numbers from outside are checked once, before anything is computed with them: NaN would pass every comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

from inferometer.core.errors import DomainError


def require_finite(value: Any, name: str) -> None:
    """Every number inside a value is finite and not below 0, or the error says which one is not. `name` is the value's.

    Rates, sizes, times and prices are never below 0, and devices, runtimes and calibrations hold nothing else.
    """
    if isinstance(value, float) and not (isfinite(value) and value >= 0):
        raise DomainError(f"{name} is {value!r}.", remedy="Give a number of 0 or more, or leave it out.")
    if is_dataclass(value):
        for entry in fields(value):
            inner = getattr(value, entry.name)
            require_finite(inner, name if entry.name == "value" else f"{name}: {entry.name}")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            require_finite(inner, f"{name} {key}")
    elif isinstance(value, tuple):
        for inner in value:
            require_finite(inner, name)
