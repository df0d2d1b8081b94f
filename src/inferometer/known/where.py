"""Conditions on records: `unit=gpu`, `memory>=24GB`, `title~orin`. All conditions must hold; unknown never does."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.units import parse_quantity

_CONDITION = re.compile(r"\s*([\w.]+)\s*(>=|<=|!=|=|>|<|~)\s*([^=<>~\s].*?)\s*")
_COUNTS = ("1", "")  # units of plain numbers
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
    "!=": operator.ne,
}


@frozen
class RecordCondition:
    field: str
    comparison: str
    value: str | float

    def holds(self, record: Mapping[str, Any]) -> bool:
        value = record.get(self.field)
        if value is None:
            return False
        if self.comparison == "~":
            return str(self.value).casefold() in str(value).casefold()
        if isinstance(self.value, str):
            return _COMPARE[self.comparison](str(value).casefold(), self.value.casefold())
        return _COMPARE[self.comparison](value, self.value)


def parse_condition(text: str, fields: Mapping[str, str | None]) -> RecordCondition:
    """`"memory>=24GB"` with the field's own unit; a text field knows `=`, `!=` and `~` (contains)."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise DomainError(f"{text!r} is not a condition.", remedy="Write FIELD=VALUE, FIELD>=VALUE or FIELD~TEXT.")
    field, comparison, value = match.groups()
    if field not in fields:
        raise UnknownNameError("field", field, fields, listing=f"Fields: {', '.join(fields)}.")
    unit = fields[field]
    if unit is None:
        if comparison not in {"=", "!=", "~"}:
            raise DomainError(f"{field} is text: {comparison!r} does not apply.", remedy="Use =, != or ~ (contains).")
        return RecordCondition(field=field, comparison=comparison, value=value)
    if comparison == "~":
        raise DomainError(f"{field} is a number: '~' does not apply.", remedy="Use =, !=, >=, <=, > or <.")
    # a bare number would be of SI base units: 80 bytes, where 80 GB are meant
    return RecordCondition(field=field, comparison=comparison, value=parse_quantity(value, unit, bare=unit in _COUNTS))


def matching(
    records: Iterable[Mapping[str, Any]], conditions: Sequence[str], fields: Mapping[str, str | None]
) -> list[Mapping[str, Any]]:
    parsed = [parse_condition(text, fields) for text in conditions]
    return [record for record in records if all(condition.holds(record) for condition in parsed)]
