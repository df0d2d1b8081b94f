"""An engine's own kernels and the layers they work for.

An engine lays tensors out anew, or converts their numbers, because the kernel that takes them wants them so. No node of
the model stands for that; its time belongs to the layer that takes the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# Two lists that keep one order, laid side by side.

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


def served(takers: Mapping[str, Sequence[str]], layers: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """For each kernel of `takers` without layers of its own, those of the first kernel that takes its result.

    `takers` stand in the order of execution. What only the model's outputs take serves the layer that made it.
    """
    makers: dict[str, str] = {}
    for kernel, following in takers.items():
        for taker in following:
            makers.setdefault(taker, kernel)
    served_layers: dict[str, tuple[str, ...]] = {}
    for kernel in reversed(list(takers)):
        if not layers.get(kernel):
            served_layers[kernel] = next(
                filter(None, (layers.get(taker) or served_layers.get(taker) for taker in takers[kernel])), ()
            )
    for kernel in takers:
        if served_layers.get(kernel) == ():
            maker = makers.get(kernel, "")
            served_layers[kernel] = layers.get(maker) or served_layers.get(maker, ())
    return {kernel: names for kernel, names in served_layers.items() if names}
