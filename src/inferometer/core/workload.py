"""Workload: what is asked of the model."""

from __future__ import annotations

from dataclasses import fields, replace

from inferometer.core.dtypes import dtype
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen

# Beyond these a number is a slip of the pen: no machine runs it, and sums of its bytes are no longer exact.
MOST = {"batch": 1 << 20, "prompt": 1 << 27, "generate": 1 << 27, "context": 1 << 27, "image": 1 << 14}
_MOST_DEVICES = 1 << 16


def _require_whole(name: str, value: object, *, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise DomainError(f"{name} must be a whole number of {least} or more, and is {value!r}.")
    if value > most:
        raise DomainError(f"{name} must be a whole number from {least} to {most:,}, and is {str(value)[:40]}.")


@frozen
class Precision:
    """The formats of weights, activations and KV cache. `None` is as the model's file or config says."""

    weights: str | None = None
    activations: str | None = None
    kv: str | None = None

    def __post_init__(self) -> None:
        for name in (self.weights, self.activations, self.kv):
            if name is not None:
                dtype(name)


@frozen
class Parallel:
    """How many devices share the work, and how: tensor, pipeline, expert, data."""

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1

    def __post_init__(self) -> None:
        for entry in fields(self):
            _require_whole(entry.name, getattr(self, entry.name), least=1, most=_MOST_DEVICES)

    @property
    def devices(self) -> int:
        """Experts are spread over the tensor- and data-parallel devices: they need no more of them."""
        return self.tp * self.pp * self.dp


@frozen
class Workload:
    """`context` fixes the tokens already in the cache; without it decode is the mean step over the generation."""

    batch: int = 1
    prompt: int | None = None
    generate: int | None = None
    context: int | None = None
    image: int | None = None
    phase: str | None = None
    arrival_per_s: float | None = None
    precision: Precision = Precision()
    parallel: Parallel = Parallel()

    def __post_init__(self) -> None:
        _require_whole("batch", self.batch, least=1, most=MOST["batch"])
        for name, least in (("prompt", 1), ("generate", 0), ("context", 0), ("image", 1)):
            value = getattr(self, name)
            if value is not None:
                _require_whole(name, value, least=least, most=MOST[name])
        if self.arrival_per_s is not None and not self.arrival_per_s > 0:
            raise DomainError(f"arrival_per_s must be greater than 0, and is {self.arrival_per_s!r}.")

    def in_formats(self, precision: Precision) -> Workload:
        return self if precision == self.precision else replace(self, precision=precision)
