"""Every format that a target can run, tried within a budget, and those that no other beats in speed, size and drift."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.notices import tell
from inferometer.known.engines import engine as engine_named
from inferometer.measure.prepare.chain import formats_for
from inferometer.measure.prepare.run import Prepared, PrepareRequest, carry_out_request
from inferometer.measure.prepare.source import starting_format

AS_IT_IS = "as it is"
GOALS = ("drift", "latency", "size")


@frozen
class Goal:
    """A limit that a format must keep: `drift<=1%`, `latency<=0.7x`, `size<=0.5x`."""

    name: str
    most: float

    def met_by(self, row: "Found") -> bool:
        drift, latency, size = (None, None, None) if row.prepared is None else _figures(row.prepared)
        figure = {"drift": drift, "latency": latency, "size": size}[self.name]
        return figure is not None and figure <= self.most


def parse_goal(text: str) -> Goal:
    """A share is of the original's time or size, with an x behind it if one likes; a drift may be in per cent."""
    found = re.fullmatch(r"\s*(\w+)\s*(?:<=|≤|<)\s*([0-9.]+)\s*(%|x|×)?\s*", text.casefold())
    if found is None or found[1] not in GOALS or not _is_number(found[2]):
        raise DomainError(
            f"{text!r} is no goal.", remedy=f'Goals are limits of {", ".join(GOALS)}, as in --goal "latency<=0.7x".'
        )
    return Goal(name=found[1], most=float(found[2]) / (100 if found[3] == "%" else 1))


def _is_number(text: str) -> bool:
    return text.count(".") < 2 and text != "."


@frozen
class Found:
    """One format: what came of it, or why nothing did. `best` says that no other is better in every respect.

    `meets` says whether it keeps every goal; None where none was set.
    """

    quantise: str
    prepared: Prepared | None = None
    reason: str | None = None
    best: bool = False
    meets: bool | None = None


def search(
    request: PrepareRequest,
    *,
    budget_s: float,
    goals: Sequence[Goal] = (),
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Found, ...]:
    """Prepare the model in each format; those that there is no time left for are listed as not tried."""
    begun = clock()
    engine = engine_named(request.runtime)
    form, generates = starting_format(request.model, engine)
    names = (None, *formats_for(form, engine, generates=generates))
    found: list[Found] = []
    for name in names:
        shown = name or AS_IT_IS
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
    marked = with_best(tuple(found))
    if not goals:
        return marked
    return tuple(replace(row, meets=row.reason is None and all(goal.met_by(row) for goal in goals)) for row in marked)


def chosen(found: Sequence[Found]) -> Found | None:
    """The fastest that keeps every goal."""
    meeting = [row for row in found if row.meets]
    return min(meeting, key=_measures, default=None)


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
    drift, latency, _ = _figures(prepared)
    return latency or 1.0, float(prepared.bytes or prepared.original_bytes), drift or 0.0


def _figures(prepared: Prepared) -> tuple[float | None, float | None, float]:
    """Drift, time and size, the latter over the original's; what is the original has none of the first."""
    gain = prepared.measured_gain or prepared.predicted_gain
    as_it_is = prepared.bytes is None
    drift = 0.0 if as_it_is and prepared.drift is None else prepared.drift
    latency = 1 / gain if gain else 1.0 if as_it_is else None
    return drift, latency, (prepared.bytes or prepared.original_bytes) / prepared.original_bytes
