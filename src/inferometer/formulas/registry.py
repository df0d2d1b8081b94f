"""What a formula is: a function that carries its units, its domain, its source and a worked example.

A formula takes keyword arguments in SI base units, each a number or a numpy array, and checks them before it computes.
The annotations are the contract: `Seconds`, `Bytes`, `Probability` … name both the unit and the range that make sense.
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from math import floor, isfinite
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from inferometer.errors import DomainError, UnknownNameError

Number = float | NDArray[np.float64]
Numbers = list[float] | tuple[float, ...] | NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """The unit of an argument or result and the numbers it may be."""

    unit: str
    low: float = -np.inf
    high: float = np.inf
    open_low: bool = False  # the lower end itself is excluded
    whole: bool = False

    def refusal(self, value: Any) -> str | None:
        """Why `value` is not one of these, or None. Plain numbers take the short way: most calls are scalar."""
        if type(value) in (int, float) and self._holds(value):
            return None
        array = np.asarray(value)
        if array.dtype.kind not in "iufb" or array.size == 0:
            return "must be a number" if array.size else "must not be empty"
        if not np.all(np.isfinite(array)):
            return "must be finite"
        if self.open_low and np.any(array <= self.low):
            return f"must be greater than {self.low:g}"
        if np.any(array < self.low):
            return f"must be {self.low:g} or more"
        if np.any(array > self.high):
            return f"must be {self.high:g} or less"
        if self.whole and np.any(array != np.floor(array)):
            return "must be a whole number"
        return None

    def _holds(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        return above and value <= self.high and isfinite(value) and not (self.whole and value != floor(value))


def _positive(unit: str) -> Quantity:
    return Quantity(unit=unit, low=0.0, open_low=True)


def _at_least_zero(unit: str) -> Quantity:
    return Quantity(unit=unit, low=0.0)


# Durations and amounts that may be nothing; `Some…` where zero would divide by zero or mean nothing.
Seconds = Annotated[Number, _at_least_zero("s")]
SomeSeconds = Annotated[Number, _positive("s")]
Bytes = Annotated[Number, _at_least_zero("B")]
SomeBytes = Annotated[Number, _positive("B")]
Flops = Annotated[Number, _at_least_zero("FLOP")]
Joules = Annotated[Number, _at_least_zero("J")]
SomeJoules = Annotated[Number, _positive("J")]
Watts = Annotated[Number, _at_least_zero("W")]
SomeWatts = Annotated[Number, _positive("W")]
Usd = Annotated[Number, _at_least_zero("USD")]
SomeUsd = Annotated[Number, _positive("USD")]
UsdPerHour = Annotated[Number, _at_least_zero("USD/h")]
SomeUsdPerHour = Annotated[Number, _positive("USD/h")]
Grams = Annotated[Number, _at_least_zero("g")]
GramsPerKwh = Annotated[Number, _at_least_zero("g/kWh")]
Bandwidth = Annotated[Number, _positive("B/s")]
FlopRate = Annotated[Number, _positive("FLOP/s")]
Hertz = Annotated[Number, _positive("Hz")]
Intensity = Annotated[Number, _at_least_zero("FLOP/B")]
Ratio = Annotated[Number, _at_least_zero("1")]
SomeRatio = Annotated[Number, _positive("1")]
Fraction = Annotated[Number, Quantity(unit="1", low=0.0, high=1.0)]
SomeFraction = Annotated[Number, Quantity(unit="1", low=0.0, high=1.0, open_low=True)]
Probability = Fraction
Count = Annotated[Number, Quantity(unit="1", low=1.0, whole=True)]
CountOrNone = Annotated[Number, Quantity(unit="1", low=0.0, whole=True)]
Amount = Annotated[Number, _at_least_zero("1")]
SomeAmount = Annotated[Number, _positive("1")]
Rate = Annotated[Number, _at_least_zero("1/s")]
SomeRate = Annotated[Number, _positive("1/s")]
Label = Annotated[str, "label"]
Truth = Annotated[bool | NDArray[np.bool_], "truth"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    name: str
    section: str  # the module it stands in
    row: str  # its place in the reference: "11.2 Ring all-reduce"
    title: str
    source: str
    inputs: Mapping[str, Quantity]
    unit: str  # of the result: "s", "1", "label" …
    example: Mapping[str, Any]
    answer: Any
    function: Callable[..., Any]

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.function) or ""


SECTIONS: dict[str, str] = {
    "cpu": "Core execution",
    "gpu": "GPUs and accelerators",
    "latency": "Time, throughput and latency",
    "roofline": "The roofline",
    "parallel": "Parallel speed-up",
    "memory": "Memory and I/O",
    "queueing": "Systems and queues",
    "training": "Training",
    "inference": "Inference and serving",
    "llm": "Language models",
    "distributed": "Many devices",
    "quantization": "Quantisation and precision",
    "network": "Networks and interconnects",
    "cloud": "Cloud",
    "edge": "Edge and embedded",
    "compilers": "Compilers and runtimes",
    "energy": "Energy, cost and carbon",
}

_FORMULAS: dict[str, Formula] = {}
F = TypeVar("F", bound=Callable[..., Any])


def formula(*, row: str, source: str, example: Mapping[str, Any], answer: Any, unit: str | None = None) -> Callable[[F], F]:
    """Register a function as a formula and check its arguments at every call.

    `unit` is only needed where the return annotation does not name one.
    """

    def register(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        result = hints.pop("return", None)
        inputs = {name: quantity for name, hint in hints.items() if (quantity := quantity_of(hint))}
        checks = tuple(inputs.items())

        @wraps(function)
        def checked(**arguments: Any) -> Any:
            for name, quantity in checks:
                if name in arguments and (why := quantity.refusal(arguments[name])):
                    given = arguments[name]
                    raise DomainError(f"{function.__name__}: {name} {why}, and is {given!r}.")
            return function(**arguments)

        section = function.__module__.rpartition(".")[2]
        _FORMULAS[function.__name__] = Formula(
            name=function.__name__,
            section=section,
            row=row,
            title=row.partition(" ")[2],
            source=source,
            inputs=inputs,
            unit=unit or _result_unit(result),
            example=example,
            answer=answer,
            function=checked,
        )
        return checked  # type: ignore[return-value]  # same parameters and result as `function`

    return register


def quantity_of(hint: Any) -> Quantity | None:
    """The `Quantity` inside an annotation, also inside `X | None` and `Sequence[X]`."""
    if get_origin(hint) is Annotated:
        return next((part for part in hint.__metadata__ if isinstance(part, Quantity)), None)
    return next((found for part in get_args(hint) if (found := quantity_of(part))), None)


def _result_unit(hint: Any) -> str:
    quantity = quantity_of(hint)
    if quantity:
        return quantity.unit
    if get_origin(hint) is Annotated:
        return str(hint.__metadata__[0])
    return "1"


@cache
def all_formulas() -> Mapping[str, Formula]:
    """Every formula by name, in the order of the sections."""
    for section in SECTIONS:
        importlib.import_module(f"inferometer.formulas.{section}")
    order = list(SECTIONS)
    return dict(sorted(_FORMULAS.items(), key=lambda item: order.index(item[1].section)))


def find_formula(name: str) -> Formula:
    known = all_formulas()
    if name not in known:
        raise UnknownNameError("formula", name, known, listing="`inferometer formulas` lists them.")
    return known[name]
