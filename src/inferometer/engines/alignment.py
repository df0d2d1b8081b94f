"""Two lists that keep one order, laid side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

A = TypeVar("A")
B = TypeVar("B")


def longest_pairing(left: Sequence[A], right: Sequence[B], fits: Callable[[A, B], bool]) -> list[tuple[A, B]]:
    """The longest list of fitting pairs that keeps both orders: the classic table, filled from the end."""
    fitting = [[fits(one, other) for other in right] for one in left]
    best = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for row in range(len(left) - 1, -1, -1):
        line, below = best[row], best[row + 1]
        for column in range(len(right) - 1, -1, -1):
            with_it = below[column + 1] + 1 if fitting[row][column] else 0
            line[column] = max(with_it, below[column], line[column + 1])
    pairs, row, column = [], 0, 0
    while row < len(left) and column < len(right):
        if fitting[row][column] and best[row][column] == best[row + 1][column + 1] + 1:
            pairs.append((left[row], right[column]))
            row, column = row + 1, column + 1
        elif best[row + 1][column] >= best[row][column + 1]:
            row += 1
        else:
            column += 1
    return pairs
