"""Whether a tensor can be given another shape without moving it."""

from inferometer.core.dims import Dim, evaluate, symbols_in
from inferometer.errors import DomainError
from inferometer.readers.torch.program import Value

__all__ = ["is_contiguous", "reshape_moves"]

# Open sizes are tried at numbers that most others divide and that no two symbols share.
_TRIED = 5040
_APART = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43)


def is_contiguous(value: Value) -> bool | None:
    """Whether the last axis lies densest and each other as close as it can; None where that cannot be told."""
    strides = value.strides
    numbers = None if strides is None else _numbers((*value.shape, *strides))
    if numbers is None:
        return None
    rank = len(value.shape)
    expected = 1
    for size, stride in zip(reversed(numbers[:rank]), reversed(numbers[rank:]), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def reshape_moves(before: Value, after: Value) -> bool | None:
    """Whether reshaping must copy: the new axes have to fall together with those that lie evenly in memory.

    Axes (from the last) that follow each other without a gap are one run of numbers. A new shape that cuts the runs
    into pieces needs no copy; one with an axis across two runs does. None where strides are not known.
    """
    strides = before.strides
    numbers = None if strides is None else _numbers((*before.shape, *strides, *after.shape))
    if numbers is None:
        return None
    rank = len(before.shape)
    sizes, steps, wanted = numbers[:rank], numbers[rank : 2 * rank], numbers[2 * rank :]
    if 0 in sizes:
        return False
    runs = _runs(sizes, steps)
    for size in reversed(wanted):
        if size == 1:
            continue
        if not runs or runs[-1] % size:
            return True
        runs[-1] //= size
        if runs[-1] == 1:
            runs.pop()
    return False


def _runs(sizes: list[int], steps: list[int]) -> list[int]:
    """How many numbers each run has, the innermost last."""
    runs: list[int] = []
    reach = None
    for size, step in zip(reversed(sizes), reversed(steps), strict=True):
        if size == 1:
            continue
        if reach is not None and step == reach:
            runs[0] *= size
        else:
            runs.insert(0, size)
        reach = step * size
    return runs


def _numbers(dims: tuple[Dim, ...]) -> list[int] | None:
    """The dims with numbers for the symbols in them."""
    symbols = sorted(frozenset().union(*(symbols_in(dim) for dim in dims)))
    tried = {name: _TRIED * _APART[place % len(_APART)] for place, name in enumerate(symbols)}
    try:
        return [int(evaluate(dim, tried)) for dim in dims]
    except (DomainError, ZeroDivisionError):
        return None
