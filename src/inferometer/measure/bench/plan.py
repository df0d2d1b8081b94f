"""How to run a benchmark: how often, how long, and what stops it."""

import math
from dataclasses import fields

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen


@frozen
class Plan:
    """At least `runs` runs **and** `seconds` of them; at most `runs_at_most` and `seconds_at_most`, whichever is first.

    `warmup` None warms up until the times are steady. A warm-up run is never among the samples, and after a killed run
    the next process is warmed up again. `calls` None calls a very short function several times a run, so that a run is
    long against the clock; a sample is then the mean of those calls. A stretch of runs that something else disturbed is
    thrown away and repeated up to `retries` times. `failures_at_most` failed runs in a row end it.
    """

    warmup: int | None = None
    warmup_at_most: int = 50
    warmup_seconds_at_most: float = 10.0
    runs: int = 30
    seconds: float = 1.0
    runs_at_most: int = 10_000
    seconds_at_most: float = 60.0
    timeout_s: float | None = None
    memory_bytes: int | None = None
    calls: int | None = None
    seed: int = 0
    interleave: bool = True
    cooldown_s: float = 0.0
    retries: int = 3
    failures_at_most: int = 5
    window_s: float = 0.5

    def __post_init__(self) -> None:
        for name, least in _COUNTS.items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise DomainError(f"{name} must be a whole number of {least} or more, and is {value!r}.")
        for entry in fields(self):
            if entry.name in _TIMES and (value := getattr(self, entry.name)) is not None:
                zero = entry.name in _MAY_BE_ZERO
                real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
                if not isinstance(value, int | float) or not real or value < 0 or (value == 0 and not zero):
                    raise DomainError(
                        f"{entry.name} must be {'0 s or more' if zero else 'more than 0 s'}, and is {value!r}."
                    )
        for name in ("runs", "seconds"):
            least, most = getattr(self, name), getattr(self, f"{name}_at_most")
            if least > most:
                raise DomainError(
                    f"A plan of at least {least:g} {name} and at most {most:g} cannot be kept.",
                    remedy=f"Ask for fewer {name}, or raise {name}_at_most.",
                )


_COUNTS = {
    "warmup": 0,
    "warmup_at_most": 0,
    "runs": 1,
    "runs_at_most": 1,
    "memory_bytes": 1,
    "calls": 1,
    "seed": 0,
    "retries": 0,
    "failures_at_most": 1,
}
_TIMES = ("warmup_seconds_at_most", "seconds", "seconds_at_most", "timeout_s", "cooldown_s", "window_s")
_MAY_BE_ZERO = ("seconds", "cooldown_s", "warmup_seconds_at_most")
