"""Ids of runs: twelve letters and digits. Eight encode the time, so that ids sort as runs began; four are random.

Crockford's base 32 in small letters: no i, l, o or u, so that what is read aloud or copied by hand comes back the same.
"""

import secrets
from collections.abc import Callable

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME, _DRAWN = 8, 4
LENGTH = _TIME + _DRAWN
_PER_S = 100  # hundredths of a second fill eight digits until the year 2318
_ALIKE = str.maketrans("ilo", "110")


def new_id(now_s: float, draw: Callable[[int], int] = secrets.randbelow) -> str:
    return _digits(int(now_s * _PER_S), _TIME) + _digits(draw(32**_DRAWN), _DRAWN)


def normal(text: str) -> str | None:
    """What was typed, as an id or a part of one would be written; None where it cannot be one."""
    typed = text.strip().lower().replace("-", "").translate(_ALIKE)
    return typed if typed and len(typed) <= LENGTH and all(letter in _DIGITS for letter in typed) else None


def _digits(number: int, count: int) -> str:
    return "".join(_DIGITS[number >> 5 * place & 31] for place in reversed(range(count)))
