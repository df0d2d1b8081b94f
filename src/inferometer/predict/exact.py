"""Arithmetic that takes ints and arrays alike. Ints go through Python, so they stay exact however large they are."""

from typing import Any

import numpy as np


def smaller(one: Any, other: Any) -> Any:
    """The smaller of two numbers, element by element."""
    return min(one, other) if isinstance(one, int) and isinstance(other, int) else np.minimum(one, other)


def larger(one: Any, other: Any) -> Any:
    """The larger of two numbers, element by element."""
    return max(one, other) if isinstance(one, int) and isinstance(other, int) else np.maximum(one, other)


def ceil_log2(count: Any) -> Any:
    """How often `count` things (1 or more) must be halved until one is left."""
    if isinstance(count, int):
        return (count - 1).bit_length()
    return np.ceil(np.log2(count)).astype(np.int64)
