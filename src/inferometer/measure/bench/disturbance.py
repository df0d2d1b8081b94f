"""What disturbed a measurement: when, how it was noticed, and what to do about it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from inferometer.core.frozen import frozen

When = Literal["before", "during", "after"]


@frozen
class Disturbance:
    """`code` is the doctor's. `times` counts the stretches of runs in which it was seen."""

    when: When
    code: str
    found: str
    remedy: str | None = None
    times: int = 1

    def __str__(self) -> str:
        often = f", {self.times} times" if self.times > 1 else ""
        words = f"{self.when} the runs{often}: {self.found} ({self.code})"
        return f"{words}. {self.remedy}" if self.remedy else words


def together(disturbances: Iterable[Disturbance]) -> tuple[Disturbance, ...]:
    """One of each kind, as it was first seen, with how often it came."""
    kinds: dict[tuple[str, str], Disturbance] = {}
    for new in disturbances:
        key = (new.when, new.code)
        known = kinds.get(key)
        kinds[key] = new if known is None else replace(known, times=known.times + new.times)
    return tuple(kinds.values())
