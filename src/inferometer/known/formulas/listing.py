"""Formulas as records: for lists, documents and the calculator."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inferometer.core.errors import DomainError, UnitError, UnknownNameError
from inferometer.core.units import format_quantity, parse_quantity
from inferometer.known.formulas.quantities import Quantity
from inferometer.known.formulas.registry import SECTIONS, Formula, all_formulas, find_formula

# A formula computed from text: what a person types after `inferometer formulas`.


def calculate(name: str, assignments: Mapping[str, str]) -> Any:
    """The formula `name` with arguments as text: `{"bytes": "1 GB", "bandwidth": "50 GB/s"}`.

    "10ms, 20ms, 5ms" is a list: the values of a sequence argument, or a sweep of a scalar one, which then gives an
    array. Swept arguments go side by side, first with first, so their lists are equally long. The result is in the
    formula's own unit.
    """
    formula = find_formula(name)
    formula.signature.check_names(assignments)
    arguments = {key: _argument(name, key, formula.inputs[key], text) for key, text in assignments.items()}
    return formula.function(**arguments)


def _argument(formula: str, name: str, quantity: Quantity, text: str) -> Any:
    if quantity.choices:
        return text.strip()
    try:
        values = [parse_quantity(part, quantity.unit) for part in text.split(",")]
    except UnitError as error:
        raise UnitError(f"{formula}: {name}: {error.message}", remedy=error.remedy) from None
    return values if quantity.sequence or len(values) > 1 else values[0]


def formula_records(section: str | None = None) -> list[dict[str, Any]]:
    if section is not None and section not in SECTIONS:
        raise UnknownNameError("section", section, SECTIONS, listing=f"Sections: {', '.join(SECTIONS)}.")
    return [
        {
            "name": formula.name,
            "section": formula.section,
            "title": formula.title,
            "arguments": list(formula.inputs),
            "unit": formula.unit,
        }
        for formula in all_formulas().values()
        if section in {None, formula.section}
    ]


def formula_document(formula: Formula) -> dict[str, Any]:
    """Everything about one formula that JSON can hold."""
    return {
        "name": formula.name,
        "section": formula.section,
        "title": formula.title,
        "row": formula.row,
        "source": formula.source,
        "signature": str(formula.signature),
        "inputs": {name: quantity.unit for name, quantity in formula.inputs.items()},
        "unit": formula.unit,
        "example": {name: _plain(value) for name, value in formula.example.items()},
        "answer": _plain(formula.answer),
        "text": formula.doc,
    }


def calculation_record(name: str, assignments: Sequence[str]) -> dict[str, Any]:
    """`["n=8", "bytes=1GB"]` → the value, its unit, and the sentence that says both."""
    formula = find_formula(name)
    given = _assigned(assignments)
    value = _plain(calculate(name, given))
    return {
        "formula": formula.name,
        "inputs": given,
        "value": value,
        "unit": formula.unit,
        "text": _sentence(value, formula.unit),
    }


def _assigned(assignments: Sequence[str]) -> Mapping[str, str]:
    given: dict[str, str] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key or not value:
            raise DomainError(f"{assignment!r} is not an assignment.", remedy="Write KEY=VALUE, as in bytes=1GB.")
        if key in given:
            raise DomainError(f"{key} is given twice: {given[key]!r} and {value!r}.")
        given[key] = value
    return given


def _sentence(value: Any, unit: str) -> str:
    """The exact number in its base unit, and beside it the number a person reads, where that says more."""
    if isinstance(value, list):
        return "\n".join(_sentence(part, unit) for part in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    exact = f"{value:.10g}" + ("" if unit == "1" else f" {unit}")
    readable = format_quantity(value, unit)
    return exact if readable.replace("_", "") == exact else f"{exact}  ({readable})"


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
