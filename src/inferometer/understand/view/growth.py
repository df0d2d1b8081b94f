"""How the time of ops changes over the steps of a phase: whether attention takes longer the longer the cache is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEAST = 10  # steps that a trend needs
_SURE = 2.576  # standard deviations of Mann–Kendall's score: a trend that chance makes once in a hundred


def growths(rows: Sequence[Sequence[float] | None]) -> list[float | None]:
    """For each row of samples its change from the first step to the last, as a share of its median step.

    Theil–Sen's slope, which a few interrupted steps do not move; None where Mann–Kendall's test finds no trend, and for
    less than ten steps.
    """
    import numpy as np  # noqa: PLC0415 - only where steps were kept

    found: list[float | None] = [None] * len(rows)
    places = [index for index, row in enumerate(rows) if row is not None and len(row) >= _LEAST]
    lengths = {len(rows[place] or ()) for place in places}
    for count in lengths:  # one for all ops of a phase
        mine = [place for place in places if len(rows[place] or ()) == count]
        data = np.asarray([rows[place] for place in mine], dtype=np.float64)
        first, second = np.triu_indices(count, k=1)
        rises = data[:, second] - data[:, first]
        slopes = np.median(rises / (second - first), axis=1)
        middles = np.median(data, axis=1)
        scores = np.abs(np.sign(rises).sum(axis=1)) - 1
        sure = (scores > _SURE * np.sqrt(count * (count - 1) * (2 * count + 5) / 18)) & (middles > 0)
        for place, slope, middle, is_sure in zip(mine, slopes, middles, sure, strict=True):
            found[place] = float(slope * (count - 1) / middle) if is_sure else None
    return found
