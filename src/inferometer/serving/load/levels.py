"""The rounds of one load become a level: one axis of time, windows, gaps, and what both sides say of themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from inferometer.core.served import OK, Level, ServerReadings, Window
from inferometer.core.traffic.requests import Requests
from inferometer.core.traffic.spreads import spread_of
from inferometer.core.traffic.windows import closed_window, open_window
from inferometer.core.units import counted as number_of
from inferometer.serving.load.health import readings
from inferometer.serving.load.rounds import columns_of, counting_words, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.serving.load.rounds import RequestRow, RoundRows


def level_of(  # noqa: PLR0913 - the load, its rounds, and what both sides say
    name: str,
    rounds: Sequence[RoundRows],
    *,
    rate_per_s: float | None = None,
    rate_to_per_s: float | None = None,
    concurrency: int | None = None,
    until_s: float | None = None,
    server: ServerReadings | None = None,
) -> Level:
    """`until_s` is when the arrivals of each round end, where that is given and not the last arrival."""
    rows: list[RequestRow] = []
    windows: list[Window] = []
    offset = 0.0
    for played in rounds:
        shifted = [_shifted(row, offset) for row in played.rows]
        windows.append(_window(shifted, concurrency, None if until_s is None else offset + until_s))
        rows += shifted
        offset += played.seconds
    whole = joined(rounds)
    ok_first = [row.first - row.due for row in rows if row.outcome == OK and row.first is not None]
    delays = [row.sent - row.due for row in rows if row.sent is not None]
    tokens = sum(row.output_tokens or 0 for row in rows if row.outcome == OK)
    client = readings(whole.health, delays, float(np.median(ok_first)) if ok_first else None, shed=whole.shed)
    if not any(row.outcome == OK for row in rows):
        client = replace(client, bottleneck=False, reasons=())  # nothing was measured that it could have slowed down
    return Level(
        name=name,
        rate_per_s=rate_per_s,
        rate_to_per_s=rate_to_per_s,
        concurrency=concurrency,
        seconds=offset,
        requests=columns_of(rows),
        windows=tuple(windows),
        gaps=spread_of(_gaps(rows, windows)),
        counting=counting_words(Counter(whole.counted_by)),
        tokens_per_chunk=tokens / whole.arrivals if whole.arrivals and tokens else None,
        client=client,
        server=_server(server, whole),
        interrupted=whole.interrupted,
        messages=whole.messages,
        notes=tuple(_notes(whole)),
    )


def _shifted(row: RequestRow, offset: float) -> RequestRow:
    if not offset:
        return row

    def moved(at: float | None) -> float | None:
        return None if at is None else at + offset

    return replace(row, due=row.due + offset, sent=moved(row.sent), first=moved(row.first), last=moved(row.last))


def _window(rows: Sequence[RequestRow], concurrency: int | None, until_s: float | None) -> Window:
    requests = Requests.of(columns_of(rows))
    if not len(requests):
        return Window(start_s=0.0, end_s=0.0, why="nothing was sent")
    return closed_window(requests, concurrency) if concurrency is not None else open_window(requests, until_s)


def _gaps(rows: Sequence[RequestRow], windows: Sequence[Window]) -> np.ndarray:
    kept = [
        row.gaps
        for row in rows
        if row.outcome == OK and any(window.start_s <= row.due <= window.end_s for window in windows)
    ]
    return np.concatenate(kept) if kept else np.empty(0)


def _server(server: ServerReadings | None, whole: RoundRows) -> ServerReadings | None:
    if not whole.usage_requests:
        return server
    return replace(
        server or ServerReadings(),
        usage_input_tokens=whole.usage_input,
        usage_output_tokens=whole.usage_output,
        usage_requests=whole.usage_requests,
    )


def _notes(whole: RoundRows) -> list[str]:
    notes = []
    unsent = sum(row.outcome == "not_sent" for row in whole.rows)
    failed = sum(row.outcome not in {OK, "not_sent", "broken_off"} for row in whole.rows)
    if unsent:
        notes.append(
            f"Stopped after {number_of(failed, 'request')} failed and none succeeded; {unsent:,} were not sent."
        )
    answered = sum(row.outcome == OK for row in whole.rows)
    if whole.beyond:
        notes.append(
            f"{whole.beyond:,} of {number_of(answered, 'answer')} have more tokens, by the server's usage, than were "
            "asked for: tokens a second and the time of a token are its word."
        )
    if whole.ended_early:
        notes.append(f"{whole.ended_early:,} of {number_of(answered, 'answer')} ended before the length asked for.")
    if whole.retry_after is not None:
        notes.append(f"The server asked to wait up to {whole.retry_after:g} s (Retry-After); no request was repeated.")
    return notes
