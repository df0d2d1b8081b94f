"""What a change would gain, priced by the cost model: the same question asked again with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from math import exp, hypot, log
from typing import TYPE_CHECKING, Any

from inferometer.core.calibration import Calibration
from inferometer.core.device import Device
from inferometer.core.engine import RuntimeEffects
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.core.workload import Workload
from inferometer.cost.options import Options
from inferometer.cost.predict import predict_graph
from inferometer.errors import DomainError, InferometerError

if TYPE_CHECKING:
    from inferometer.core.profile import Phase, Profile

__all__ = ["Gain", "Price", "Question", "change_of", "priced", "unpriced"]

_SIZES = ("batch", "prompt", "generate", "context", "image")
_FORMATS = ("weights", "activations", "kv")
_OPTIONS = ("cached_prefix", "chunk")


@frozen
class Gain:
    """`gain` is before over after. `throughput_gain` counts sequences: it differs where the batch does.

    The interval takes the two predictions' errors as independent. They share most of them, so it is wider than it need
    be, never narrower.
    """

    change: str
    phase: str
    before_s: float
    after_s: float
    gain: float
    low: float
    high: float
    throughput_gain: float
    fits: bool | None = None
    bound: str | None = None

    @property
    def throughput_low(self) -> float:
        return self.throughput_gain * self.low / self.gain

    @property
    def throughput_high(self) -> float:
        return self.throughput_gain * self.high / self.gain


Price = Callable[[str, str], Gain | None]  # a change and a phase; None is what cannot be priced


def unpriced(change: str, phase: str) -> Gain | None:  # noqa: ARG001 - a Price that knows nothing
    return None


@frozen
class Question:
    """A prediction that can be asked again."""

    graph: Graph
    device: Device
    runtime: RuntimeEffects | str
    workload: Workload
    calibration: Calibration | None = None
    options: Options = field(default_factory=Options)

    def answer(self) -> Profile:
        return predict_graph(
            self.graph,
            self.device,
            runtime=self.runtime,
            workload=self.workload,
            calibration=self.calibration,
            options=self.options,
        )


def priced(question: Question, before: Profile) -> Price:
    """Prices of changes to a question that was answered with `before`. What cannot be is None; answers are kept."""
    known: dict[str, Profile | None] = {}

    def price(change: str, phase: str) -> Gain | None:
        if change not in known:
            known[change] = _answer(question, change)
        after = known[change]
        if after is None:
            return None
        old, new = before.phase(phase), after.phase(phase)
        if old is None or new is None or old.time_s <= 0 or new.time_s <= 0:
            return None
        return _gain(change, old, new, (before, after))

    return price


def _answer(question: Question, change: str) -> Profile | None:
    try:
        return change_of(question, change).answer()
    except InferometerError:
        return None


def _gain(change: str, old: Phase, new: Phase, profiles: tuple[Profile, Profile]) -> Gain:
    before, after = profiles
    ratio = old.time_s / new.time_s
    wide = hypot(_width(old), _width(new))
    return Gain(
        change=change,
        phase=old.name,
        before_s=old.time_s,
        after_s=new.time_s,
        gain=ratio,
        low=ratio * exp(-wide),
        high=ratio * exp(wide),
        throughput_gain=ratio * after.workload.batch / before.workload.batch,
        fits=after.summary.fits,
        bound=new.bound,
    )


def _width(phase: Phase) -> float:
    """Half of the interval, on the logarithm."""
    low, high = phase.low_s, phase.high_s
    return (log(high) - log(low)) / 2 if low and high and 0 < low <= high else 0.0


def change_of(question: Question, change: str) -> Question:
    """`weights=q4_0`, `batch=8`, `runtime=torch-compile`, `cached_prefix=256`; `precision=f16` is weights and all."""
    key, _, value = change.partition("=")
    if key == "runtime":
        return replace(question, runtime=value, calibration=None)
    if key == "precision":
        formats = replace(question.workload.precision, weights=value, activations=value)
        return replace(question, workload=replace(question.workload, precision=formats), calibration=None)
    if key in _FORMATS:
        named: dict[str, Any] = {key: value}
        formats = replace(question.workload.precision, **named)
        return replace(question, workload=replace(question.workload, precision=formats))
    if key in _SIZES:
        sizes: dict[str, Any] = {key: _whole(value, change)}
        return replace(question, workload=replace(question.workload, **sizes))
    if key in _OPTIONS:
        options: dict[str, Any] = {key: _whole(value, change)}
        return replace(question, options=replace(question.options, **options))
    raise DomainError(f"{change!r} is no change that the cost model can price.")


def _whole(value: str, change: str) -> int:
    if not value.isdecimal():
        raise DomainError(f"{change!r} needs a whole number.")
    return int(value)
