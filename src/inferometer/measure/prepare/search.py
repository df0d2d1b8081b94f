"""Every format that a target can run, tried within a budget, and those that no other beats in speed, size and drift."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.notices import tell
from inferometer.known.engines import engine as engine_named
from inferometer.measure.prepare.chain import formats_for
from inferometer.measure.prepare.run import Prepared, PrepareRequest, carry_out_request
from inferometer.measure.prepare.source import starting_format

if TYPE_CHECKING:
    from collections.abc import Callable


@frozen
class Found:
    """One format: what came of it, or why nothing did. `best` says that no other is better in every respect."""

    quantise: str
    prepared: Prepared | None = None
    reason: str | None = None
    best: bool = False


def search(
    request: PrepareRequest, *, budget_s: float, clock: Callable[[], float] = time.monotonic
) -> tuple[Found, ...]:
    """Prepare the model in each format; those that there is no time left for are listed as not tried."""
    begun = clock()
    engine = engine_named(request.runtime)
    form, generates = starting_format(request.model, engine)
    names = (None, *formats_for(form, engine, generates=generates))
    found: list[Found] = []
    for name in names:
        shown = name or "as it is"
        if found and clock() - begun > budget_s:
            found.append(Found(quantise=shown, reason="not tried: the budget is used up"))
            continue
        tell(f"Trying {shown} …")
        try:
            prepared = carry_out_request(replace(request, quantise=name, out=None))
        except InferometerError as error:
            found.append(Found(quantise=shown, reason=str(error)))
            continue
        wrong = next((row for row in prepared.steps if row.verdict == "wrong"), None)
        reason = None if prepared.right else f"{wrong.name if wrong else 'a step'} makes the outputs wrong"
        found.append(Found(quantise=shown, prepared=prepared, reason=reason))
    return with_best(tuple(found))


def with_best(found: tuple[Found, ...]) -> tuple[Found, ...]:
    """Marked are those that are right, and that no other right one beats in one respect and equals in the others."""
    right = [row for row in found if row.prepared is not None and row.prepared.right]
    return tuple(
        replace(row, best=row in right and not any(_beats(other, row) for other in right if other is not row))
        for row in found
    )


def _beats(other: Found, row: Found) -> bool:
    mine, theirs = _measures(row), _measures(other)
    return all(a <= b for a, b in zip(theirs, mine, strict=True)) and theirs != mine


def _measures(row: Found) -> tuple[float, float, float]:
    """Time, size and drift, each the smaller the better; the time is over the original's."""
    prepared = row.prepared
    if prepared is None:
        return float("inf"), float("inf"), float("inf")
    gain = prepared.measured_gain or prepared.predicted_gain or 1.0
    return 1 / gain, float(prepared.bytes or prepared.original_bytes), prepared.drift or 0.0
