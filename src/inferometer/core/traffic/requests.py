"""The requests of a level as arrays, with the latencies that follow from their columns. Missing is NaN."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from inferometer.core.served import OK, RequestColumns, Window

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def _array(values: Sequence[float | None]) -> Floats:
    return np.array(values, float)  # None becomes NaN


@dataclass(frozen=True, kw_only=True)
class Requests:
    due_s: Floats
    sent_s: Floats
    first_s: Floats
    last_s: Floats
    input_tokens: Floats
    output_tokens: Floats
    gap_s: Floats
    ok: Flags

    def __len__(self) -> int:
        return len(self.due_s)

    @classmethod
    def of(cls, columns: RequestColumns) -> "Requests":
        return cls(
            due_s=_array(columns.due_s),
            sent_s=_array(columns.sent_s),
            first_s=_array(columns.first_s),
            last_s=_array(columns.last_s),
            input_tokens=_array(columns.input_tokens),
            output_tokens=_array(columns.output_tokens),
            gap_s=_array(columns.gap_s) if columns.gap_s else np.full(len(columns), np.nan),
            ok=np.array([outcome == OK for outcome in columns.outcome], bool),
        )

    def where(self, chosen: Flags) -> "Requests":
        return Requests(
            due_s=self.due_s[chosen], sent_s=self.sent_s[chosen], first_s=self.first_s[chosen],
            last_s=self.last_s[chosen], input_tokens=self.input_tokens[chosen],
            output_tokens=self.output_tokens[chosen], gap_s=self.gap_s[chosen], ok=self.ok[chosen],
        )  # fmt: skip

    @property
    def end_s(self) -> Floats:
        return self.last_s

    @cached_property
    def ttft_s(self) -> Floats:
        """From when it was due to its first token; NaN of an answer that was not streamed, or failed."""
        return np.where(self.ok, self.first_s - self.due_s, np.nan)

    @cached_property
    def e2e_s(self) -> Floats:
        """From when it was due to its last token."""
        return np.where(self.ok, self.last_s - self.due_s, np.nan)

    @cached_property
    def tpot_s(self) -> Floats:
        """(last token − first token) / (tokens − 1): of an answer with two tokens or more."""
        further = self.output_tokens - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.ok & (further >= 1), (self.last_s - self.first_s) / further, np.nan)

    def share_between(self, start_s: float, end_s: float) -> Floats:
        """How much of each answer arrived in a window: of its tokens, the first at `first_s`, the others evenly after.

        Counting whole answers alone would make the rate of a short window jump. An answer that was not streamed, or
        has one token, arrived when it ended. What waits in a queue has not arrived in any part.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            length = self.last_s - self.first_s
            overlap = np.clip(np.minimum(self.last_s, end_s) - np.maximum(self.first_s, start_s), 0.0, None) / length
            head = 1.0 / np.maximum(np.nan_to_num(self.output_tokens, nan=1.0), 1.0)
            begun = (self.first_s > start_s) & (self.first_s <= end_s)
            ended = (self.last_s > start_s) & (self.last_s <= end_s)
            share = np.where(length > 0, head * begun + (1 - head) * overlap, ended)
        return np.where(self.ok, share, 0.0)

    def in_flight(self, moments: Floats) -> Floats:
        """How many requests were in the system at each of these times: due, and neither answered nor failed."""
        known = np.isfinite(self.due_s)
        ends = np.where(np.isfinite(self.last_s), self.last_s, np.inf)[known]
        begun = np.searchsorted(np.sort(self.due_s[known]), moments, side="right")
        return (begun - np.searchsorted(np.sort(ends), moments, side="right")).astype(float)


# The part of a round that is reported: when the load was as asked for, neither filling up nor running dry.

_LEAST = 6  # requests of a window: a median needs as many
_LEAST_SHARE = 0.3  # of a round's requests; a window with fewer says more about chance than the round as a whole


def closed_window(requests: Requests, concurrency: int) -> Window:
    """From when every place has answered once until the last request was sent.

    All places begin at the same moment, which no later request does; after the last was sent, places stay empty.
    """
    ended = np.sort(requests.end_s[requests.ok])
    whole = _whole(requests)
    if len(ended) <= concurrency or len(requests) <= concurrency:
        return _too_few(whole, len(requests), f"{concurrency} at once")
    start, end = float(ended[concurrency - 1]), float(np.nanmax(requests.due_s))
    begun = "the first answer" if concurrency == 1 else f"the first {concurrency} answers"
    why = f"from {begun} until the last request was sent"
    return _checked(requests, Window(start_s=start, end_s=end, why=why), whole)


def open_window(requests: Requests, until_s: float | None = None) -> Window:
    """From when the first arrivals had time to be answered until the last arrival.

    Before that the system is emptier than the load makes it. `until_s` is when arrivals ended, where that is known.
    """
    whole = _whole(requests)
    ok = requests.ok
    if not ok.any():
        return whole
    usual = float(np.median((requests.end_s - requests.due_s)[ok]))
    end = float(requests.due_s.max()) if until_s is None else until_s
    window = Window(
        start_s=float(requests.due_s.min()) + usual, end_s=end, why="from one median answer time on until arrivals end"
    )
    return _checked(requests, window, whole)


def _whole(requests: Requests) -> Window:
    ends = requests.end_s[np.isfinite(requests.end_s)]
    start = float(requests.due_s.min()) if len(requests) else 0.0
    end = float(ends.max()) if len(ends) else float(requests.due_s.max()) if len(requests) else 0.0
    return Window(start_s=start, end_s=max(end, start + 1e-9), why="the whole round")


def _checked(requests: Requests, window: Window, whole: Window) -> Window:
    inside = int(((requests.due_s >= window.start_s) & (requests.due_s <= window.end_s)).sum())
    if window.seconds <= 0 or inside < max(_LEAST, _LEAST_SHARE * len(requests)):
        return _too_few(whole, len(requests), "this load")
    return window


def _too_few(whole: Window, count: int, load: str) -> Window:
    why = f"the whole round: {count} requests are too few for a steady part at {load}"
    return Window(start_s=whole.start_s, end_s=whole.end_s, why=why)
