"""What a formula is: a function that carries its units, its domain, its source and a worked example.

A formula takes keyword arguments in SI base units, each a number or a numpy array, and checks them before it computes.
The annotations (`quantities.py`) are the contract of each argument; `require` states what must hold between them.
"""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from math import isfinite
from typing import Annotated, Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from inferometer.core.errors import DomainError, UnknownNameError, nearest, same_but_for_case
from inferometer.core.frozen import frozen
from inferometer.known.formulas.quantities import Quantity, is_finite, shown

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


@frozen
class Signature:
    """A formula's name, its arguments and their defaults, and what it gives. `str()` of it is for people."""

    name: str
    inputs: Mapping[str, Quantity]
    defaults: Mapping[str, Any]
    result: Quantity

    def __str__(self) -> str:
        parts = (self._argument(name, quantity) for name, quantity in self.inputs.items())
        return f"{self.name}({', '.join(parts)}) → {_unit_text(self.result)}"

    def _argument(self, name: str, quantity: Quantity) -> str:
        default = f" = {self.defaults[name]}" if name in self.defaults else ""
        return f"{name}: {_unit_text(quantity)}{default}"

    def check_names(self, given: Iterable[str]) -> None:
        """Refuse arguments that the formula does not have, and say which ones it misses."""
        names = list(given)
        for name in names:
            if name not in self.inputs:
                guesses = nearest(name, self.inputs)
                guess = f"Did you mean {' or '.join(guesses)}? " if guesses else ""
                raise DomainError(f"{self.name}: there is no argument {name!r}.", remedy=f"{guess}It is {self}.")
        missing = [name for name in self.inputs if name not in self.defaults and name not in names]
        if missing:
            are = "is missing" if len(missing) == 1 else "are missing"
            raise DomainError(f"{self.name}: {', '.join(missing)} {are}.", remedy=f"It is {self}.")

    def read(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Every argument as a plain number or a float64 array that the formula accepts."""
        self.check_names(arguments)
        values: dict[str, Any] = {}
        for name, value in arguments.items():
            try:
                values[name] = self.inputs[name].read(value)
            except ValueError as refusal:
                raise DomainError(f"{self.name}: {name} {refusal}, and is {shown(value)}.") from None
        shapes = {
            name: value.shape[:-1] if self.inputs[name].sequence else value.shape
            for name, value in values.items()
            if isinstance(value, np.ndarray)
        }
        try:
            np.broadcast_shapes(*shapes.values())
        except ValueError:
            listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise DomainError(
                f"{self.name}: the arrays do not go together: {listed}.",
                remedy="Give arrays of one shape, or shapes that numpy broadcasts.",
            ) from None
        return values

    def finish(self, result: Any) -> Any:
        """A Python value for a scalar; never an infinity."""
        if isinstance(result, np.generic) or (isinstance(result, np.ndarray) and result.ndim == 0):
            result = result.item()
        if not is_finite(result):
            self.overflow()
        return int(result) if self.result.whole and isinstance(result, float) else result

    def overflow(self) -> NoReturn:
        raise DomainError(
            f"{self.name}: the result is not a finite number.",
            remedy="Together the arguments are too large or too small for a 64-bit float; check their units.",
        ) from None


def _unit_text(quantity: Quantity) -> str:
    words = "|".join(quantity.choices) or {"1": "number"}.get(quantity.unit, quantity.unit)
    return f"list of {words}" if quantity.sequence else words


@frozen
class Formula:
    name: str
    section: str  # the module it stands in
    row: str  # its place in the reference: "11.2 Ring all-reduce"
    title: str
    source: str
    signature: Signature
    example: Mapping[str, Any]
    answer: Any
    function: Callable[..., Any]

    @property
    def inputs(self) -> Mapping[str, Quantity]:
        return self.signature.inputs

    @property
    def unit(self) -> str:
        """The unit of the result: "s", "1", "label" and so on."""
        return self.signature.result.unit

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.function) or ""


class _UnmetError(Exception):
    """A relation between arguments that does not hold. The wrapper knows the formula's name and adds it."""

    def __init__(self, message: str, remedy: str | None) -> None:
        super().__init__(message)
        self.message, self.remedy = message, remedy


def require(condition: Any, message: str, *, remedy: str | None = None, **values: Any) -> None:
    """Refuse arguments that do not fit each other. `values` are the ones to show; text is made on failure only."""
    if condition is True or np.all(condition):
        return
    given = ", ".join(f"{name} is {shown(value)}" for name, value in values.items())
    raise _UnmetError(f"{message}, and {given}." if given else f"{message}.", remedy)


_FORMULAS: dict[str, Formula] = {}
F = TypeVar("F", bound=Callable[..., Any])


def formula(*, row: str, source: str, example: Mapping[str, Any], answer: Any) -> Callable[[F], F]:
    """Register a function as a formula and check its arguments at every call."""

    def register(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        quantities = {name: quantity_of(hint) for name, hint in hints.items()}
        known = {name: quantity for name, quantity in quantities.items() if quantity is not None}
        parameters = inspect.signature(function).parameters
        if known.keys() != {*parameters, "return"}:
            raise TypeError(f"{function.__name__}: every argument and the result name a quantity")
        signature = Signature(
            name=function.__name__,
            inputs={name: known[name] for name in parameters},
            defaults={name: p.default for name, p in parameters.items() if p.default is not p.empty},
            result=known["return"],
        )
        checked = _checked(function, signature)
        if signature.name in _FORMULAS:
            raise ValueError(f"two formulas are named {signature.name}")
        _FORMULAS[signature.name] = Formula(
            name=signature.name,
            section=function.__module__.rpartition(".")[2],
            row=row,
            title=row.partition(" ")[2],
            source=source,
            signature=signature,
            example=example,
            answer=answer,
            function=checked,
        )
        return checked  # type: ignore[return-value]  # same parameters and result as `function`

    return register


def _checked(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """`function` behind its checks.

    Plain numbers inside their bounds take the short way, about two microseconds for four: most calls are scalar.
    Everything else is read by the signature, which refuses it with a reason or makes it a plain number or an array.
    """
    name, defaults = signature.name, dict(signature.defaults)
    limits = tuple((argument, *q.bounds, q.whole) for argument, q in signature.inputs.items() if _is_plain(q))
    expected = len(signature.inputs)
    whole = signature.result.whole

    @wraps(function)
    def checked(*positional: Any, **given: Any) -> Any:
        if positional:
            raise DomainError(f"{name}: the arguments are given by name.", remedy=f"It is {signature}.")
        arguments = {**defaults, **given} if defaults else given
        seen = 0
        for argument, low, high, integral in limits:
            value: Any = arguments.get(argument)
            kind = type(value)
            if (kind is int or (kind is float and not (integral and value % 1))) and low <= value <= high:
                seen += 1
        try:
            if seen == expected == len(arguments):
                result = function(**arguments)
                kind = type(result)
                if (kind is int or (kind is float and not whole)) and isfinite(result):
                    return result
            else:
                arguments = signature.read(arguments)
                with np.errstate(all="ignore"):
                    result = function(**arguments)
            return signature.finish(result)
        except _UnmetError as unmet:
            raise DomainError(f"{name}: {unmet.message}", remedy=unmet.remedy) from None
        except ArithmeticError:
            signature.overflow()

    return checked


def _is_plain(quantity: Quantity) -> bool:
    return not quantity.sequence and not quantity.choices


def quantity_of(hint: Any) -> Quantity | None:
    """The `Quantity` inside an annotation, also inside `X | None` and `Sequence[X]`."""
    if get_origin(hint) is Annotated:
        return next((part for part in hint.__metadata__ if isinstance(part, Quantity)), None)
    return next((quantity for part in get_args(hint) if (quantity := quantity_of(part))), None)


@cache
def all_formulas() -> Mapping[str, Formula]:
    """Every formula by name, in the order of the sections."""
    for section in SECTIONS:
        importlib.import_module(f"inferometer.known.formulas.{section}")
    order = list(SECTIONS)
    return dict(sorted(_FORMULAS.items(), key=lambda item: order.index(item[1].section)))


def find_formula(name: str) -> Formula:
    known = all_formulas()
    name = same_but_for_case(name, known) or name
    if name not in known:
        raise UnknownNameError("formula", name, known, listing="`inferometer formulas` lists them.")
    return known[name]
