"""A formula computed from text: what a person types after `inferometer formulas`."""

from collections.abc import Mapping
from typing import Any

from inferometer.core.errors import UnitError
from inferometer.core.units import parse_quantity
from inferometer.known.formulas.quantities import Quantity
from inferometer.known.formulas.registry import find_formula


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
