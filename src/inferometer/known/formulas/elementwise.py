"""The few functions formulas need that differ between a number and an array.

Each keeps a plain number plain: numpy would make it a numpy scalar, at ten times the cost and with warnings instead of
errors. `whole_below` and `whole_above` forgive the last digits, so that 70 × 0.01 / 0.7 needs one replica and not two.
"""

from math import ceil, floor, isfinite
from typing import Any

import numpy as np

_DIGITS = 9  # an honest remainder is larger than this, a rounding error is smaller
_EXACT = 1e15  # floats above it have no digits left to forgive


def least(first: Any, second: Any) -> Any:
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.minimum(first, second)
    return min(first, second)


def greatest(first: Any, second: Any) -> Any:
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.maximum(first, second)
    return max(first, second)


def whole_below(value: Any) -> Any:
    """The greatest whole number that is not above `value`."""
    if isinstance(value, np.ndarray):
        return np.floor(_forgiven(value))
    return floor(round(value, _DIGITS)) if isfinite(value) else value


def whole_above(value: Any) -> Any:
    """The least whole number that is not below `value`."""
    if isinstance(value, np.ndarray):
        return np.ceil(_forgiven(value))
    return ceil(round(value, _DIGITS)) if isfinite(value) else value


def _forgiven(value: Any) -> Any:
    return np.where(np.abs(value) < _EXACT, np.round(value, _DIGITS), value)


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where the condition holds and `no` elsewhere. Both have been computed already."""
    return np.where(condition, yes, no) if isinstance(condition, np.ndarray) else (yes if condition else no)
