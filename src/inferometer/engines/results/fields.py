"""Values out of decoded documents: each is checked where it is used, and an error says which one is wrong.

Tools write numbers as numbers and as text ("0.121"); both are taken. NaN, infinity and negative values are refused:
nothing that is read here can be below zero.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from inferometer.core.errors import FormatError

_SHOWN = 40
_MOST = 1e24  # nothing that is measured comes near it, in nanoseconds or in bytes
_MOST_WHOLE = 1 << 62  # what a document's integers can hold with room to spare


def number(value: Any, what: str) -> float:
    """A finite number of zero or more."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise FormatError(f"{what} should be a number, and is {_show(value)}.")
    try:
        parsed = float(value)
    except (ValueError, OverflowError):
        raise FormatError(f"{what} should be a number, and is {_show(value)}.") from None
    if not 0 <= parsed <= _MOST:  # NaN is neither
        raise FormatError(f"{what} is {_show(value)}, which no measurement can be.")
    return parsed


def optional(value: Any, what: str) -> float | None:
    """As `number`; what is absent is None."""
    return None if value is None or value == "" else number(value, what)


def moment(value: Any, what: str) -> float:
    """A point in time, which may lie before the clock's zero."""
    below = isinstance(value, int | float) and value < 0
    return -number(-value, what) if below else number(value, what)


def milliseconds(value: Any, what: str, *, digits: int = 3) -> float:
    """Seconds, of a number of milliseconds: shifted in decimal, so that "4.06" is the float nearest to 0.00406.

    Other `digits` are for other units: 6 for microseconds, 0 for seconds.
    """
    return float(Decimal(repr(number(value, what))).scaleb(-digits))


def optional_ms(value: Any, what: str) -> float | None:
    """As `milliseconds`; what is absent or 0 is None, since tools write 0 for what they did not measure."""
    return None if value is None or value == "" else milliseconds(value, what) or None


def positive(value: Any, what: str) -> float | None:
    """As `optional`; tools write 0 for what they did not measure."""
    return optional(value, what) or None


def whole(value: Any, what: str) -> int | None:
    """A count. What is absent is None; a number that is not whole is refused."""
    parsed = optional(value, what)
    if parsed is None:
        return None
    if parsed != int(parsed) or parsed > _MOST_WHOLE:
        raise FormatError(f"{what} should be a whole number, and is {_show(value)}.")
    return int(value) if isinstance(value, int) else int(parsed)


def size(value: Any, what: str, *, unit: int = 1) -> int | None:
    """Bytes, of a number in units of `unit` bytes; tools write 0 for what they did not measure."""
    parsed = positive(value, what)
    if parsed is not None and parsed * unit > _MOST_WHOLE:
        raise FormatError(f"{what} is {_show(value)}, which no measurement can be.")
    return None if parsed is None else round(parsed * unit)


def numbers(value: Any, what: str) -> tuple[float, ...] | None:
    """A list of raw readings; an absent or empty one is None."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise FormatError(f"{what} should be a list of numbers, and is {_show(value)}.")
    return tuple(number(entry, f"{what}[{index}]") for index, entry in enumerate(value)) or None


def text(value: Any) -> str | None:
    """A word, or None where there is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or _is_vast(value):
        return None
    return str(value).encode("utf-8", errors="replace").decode().strip() or None


def mapping(value: Any) -> Mapping[str, Any]:
    """The object, or an empty one where there is none."""
    return value if isinstance(value, dict) else {}


def listed(value: Any, what: str) -> Iterator[Mapping[str, Any]]:
    """The objects of a list; anything else in it is refused."""
    if not isinstance(value, list):
        raise FormatError(f"{what} should be a list, and is {_show(value)}.")
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise FormatError(f"{what}[{index}] should be an object, and is {_show(entry)}.")
        yield entry


def _show(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if _is_vast(value):
        return "a number too large to print"
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def _is_vast(value: Any) -> bool:
    """An integer with more digits than Python prints."""
    return isinstance(value, int) and abs(value) > _MOST_WHOLE
