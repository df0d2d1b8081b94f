"""The record of simulated requests: each of them up to a number, and beyond it only their distributions."""

from __future__ import annotations

from array import array
from collections import Counter
from math import isnan, nan
from typing import TYPE_CHECKING

import numpy as np

from inferometer.core.served import OK, LevelFigures, Objective, RequestColumns, Spread
from inferometer.core.traffic.spreads import distribution_of_spread, merged, spread_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.traffic.requests import Floats
    from inferometer.serving.simulate.request import SimulatedRequest

TOO_LONG = "too_long"  # the outcome of a request that the cache could not hold even alone, or the engine refuses
QUEUE_FULL = "queue_full"  # of one that came when as many waited as may
TIMED_OUT = "timeout"  # of one whose answer was not complete in time
CANCELLED = "cancelled"  # of one that was taken back before that
BROKEN_OFF = "broken_off"  # of one that waits for an answer that never comes
_PIECE = 5 * 65_536


class Columns:
    """Every request, as a load test keeps it."""

    def __init__(self) -> None:
        self._rows = array("d")  # six numbers a request
        self._outcomes: dict[int, str] = {}  # of those that were refused, by their number

    def __len__(self) -> int:
        return len(self._rows) // 6

    def ended(self, request: SimulatedRequest) -> None:
        self._rows.extend((
            request.due, request.first, request.last, request.input_tokens, request.output_tokens, request.number,
        ))  # fmt: skip

    def refused(self, request: SimulatedRequest, outcome: str) -> None:
        self._rows.extend((request.due, nan, nan, request.input_tokens, request.output_tokens, request.number))
        self._outcomes[request.number] = outcome

    def columns(self) -> RequestColumns:
        rows = np.array(self._rows).reshape(-1, 6)
        rows = rows[np.lexsort((rows[:, 5], rows[:, 0]))]  # by due, number
        due = tuple(rows[:, 0].tolist())
        inputs, outputs, number = (tuple(column.tolist()) for column in rows[:, 3:].astype(np.int64).T)
        return RequestColumns(
            due_s=due,
            sent_s=due,
            first_s=_known(rows[:, 1]),
            last_s=_known(rows[:, 2]),
            input_tokens=inputs,
            output_tokens=outputs,
            outcome=tuple(self._outcomes.get(one, OK) for one in number),
            session=number,
        )


def _known(moments: Floats) -> tuple[float | None, ...]:
    """NaN is a moment that never came."""
    return tuple(None if isnan(moment) else moment for moment in moments.tolist())


class Streamed:
    """Distributions of any number of requests, in the same memory: those due from `start_s` on are counted.

    Objectives are judged request by request, so that goodput is exact; percentiles are known to half a percent.
    """

    def __init__(self, objectives: Sequence[Objective], *, start_s: float) -> None:
        self._objectives, self._start_s = tuple(objectives), start_s
        self._rows: list[float] = []  # five numbers a request
        self._spreads: dict[str, list[Spread]] = {"ttft": [], "tpot": [], "e2e": []}
        self._requests = self._met = self._counted = 0
        self._refused: Counter[str] = Counter()
        self._tokens_in = self._tokens_out = 0
        self._last_due = start_s

    def ended(self, request: SimulatedRequest) -> None:
        rows = self._rows
        rows += (request.due, request.first, request.last, request.input_tokens, request.output_tokens)
        if len(rows) >= _PIECE:
            self._flush()

    def refused(self, _request: SimulatedRequest, outcome: str) -> None:
        self._requests += 1
        self._refused[outcome] += 1

    def _flush(self) -> None:
        due, first, last, inputs, outputs = (np.array(self._rows[column::5]) for column in range(5))
        self._rows.clear()
        self._requests += len(due)
        kept = due >= self._start_s
        if not kept.any():
            return
        due, first, last, inputs, outputs = (column[kept] for column in (due, first, last, inputs, outputs))
        several = outputs > 1
        tpot = np.where(several, (last - first) / np.maximum(outputs - 1, 1), 0.0)
        times = {"ttft": first - due, "e2e": last - due, "tpot": tpot}
        for name, values in times.items():
            part = spread_of(values[several] if name == "tpot" else values)
            if part is not None:
                self._spreads[name] = [merged([*self._spreads[name], part])]  # type: ignore[list-item] # never of none
        met = np.ones(len(due), bool)
        for goal in self._objectives:
            met &= times.get(goal.metric, np.zeros(len(due))) <= goal.limit_s
        self._met += int(met.sum())
        self._counted += len(due)
        self._tokens_in += int(inputs.sum())
        self._tokens_out += int(outputs.sum())
        self._last_due = max(self._last_due, float(due.max()))

    def figures(self) -> LevelFigures:
        self._flush()
        distributions = {
            name: distribution_of_spread(parts[0]) if parts else None for name, parts in self._spreads.items()
        }
        seconds = max(1e-9, self._last_due - self._start_s)
        count = self._counted
        return LevelFigures(
            requests=self._requests,
            completed=self._requests - self._refused.total(),
            errors=dict(self._refused),
            counted=count,
            window_s=seconds,
            ttft_s=distributions["ttft"],
            tpot_s=distributions["tpot"],
            e2e_s=distributions["e2e"],
            requests_per_s=count / seconds,
            offered_per_s=count / seconds,
            input_tokens_per_s=self._tokens_in / seconds,
            output_tokens_per_s=self._tokens_out / seconds,
            goodput_per_s=self._met / seconds if self._objectives else None,
            attained=self._met / count if self._objectives and count else None,
            input_tokens=self._tokens_in / count if count else None,
            output_tokens=self._tokens_out / count if count else None,
        )
