"""From what was played to the values that are kept: request columns, gaps between tokens, windows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from inferometer.core.served import OK, RequestColumns
from inferometer.serving.load.answers import COUNTED_BY, Answer
from inferometer.serving.load.health import ProcessHealth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.traffic.demand import Demand
    from inferometer.core.traffic.trace_forms import TokenCount
    from inferometer.serving.load.play import Played

Floats = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class RequestRow:
    """One request, in seconds since the start of its round. `gaps` are those between its tokens."""

    due: float
    sent: float | None = None
    first: float | None = None
    last: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    outcome: str = OK
    gap: float | None = None
    session: int = 0
    gaps: Floats = field(default_factory=lambda: np.empty(0))


@dataclass(slots=True, kw_only=True)
class RoundRows:
    """A round as one process saw it: small enough to be sent to another."""

    rows: list[RequestRow]
    seconds: float
    health: list[ProcessHealth]
    messages: dict[str, str] = field(default_factory=dict)
    counted_by: Counter[int] = field(default_factory=Counter)
    arrivals: int = 0
    usage_input: int = 0
    usage_output: int = 0
    usage_requests: int = 0
    retry_after: float | None = None
    interrupted: bool = False
    shed: int = 0
    beyond: int = 0  # answers whose usage claims more tokens than were asked for
    ended_early: int = 0  # answers with fewer
    shown: tuple[int, ...] = (0, 0, 0)  # letters of answers, of thoughts, of calls of tools


def rows_of(played: Played, demand: Demand, *, streamed: bool, count: TokenCount | None = None) -> RoundRows:
    answers = sorted(played.answers, key=lambda answer: answer.due)
    if count is not None:
        for answer in answers:
            if answer.outcome == OK:
                answer.count_here(count)
    start = played.start_s
    rows = [_row(answer, start, demand, streamed=streamed) for answer in answers]
    end = played.end_s - start
    for outcome, indices in (("not_sent", played.unsent), ("broken_off", played.broken)):
        for index in indices:
            due = float(demand.due_s[index]) if demand.is_open else end
            rows.append(RequestRow(due=due, outcome=outcome, session=int(demand.session[index])))
    used = [answer for answer in answers if answer.outcome == OK]
    told = [answer for answer in used if answer.input_tokens is not None]
    waits = [answer.retry_after for answer in answers if answer.retry_after is not None]
    return RoundRows(
        rows=rows,
        seconds=end,
        health=[played.health],
        messages=_messages(answers),
        counted_by=Counter(answer.tokens for answer in used if answer.tokens is not None),
        arrivals=sum(len(answer.times) for answer in used),
        usage_input=sum(answer.input_tokens or 0 for answer in told),
        usage_output=sum(answer.output_tokens or 0 for answer in told),
        usage_requests=len(told),
        retry_after=max(waits, default=None),
        interrupted=played.interrupted,
        shed=played.shed,
        beyond=sum((answer.output_tokens or 0) > demand.output_tokens[answer.index] for answer in used),
        shown=tuple(sum(answer.shown[kind] for answer in used) for kind in range(3)),
        ended_early=sum(0 < (answer.output_tokens or 0) < demand.output_tokens[answer.index] for answer in used),
    )


def _row(answer: Answer, start: float, demand: Demand, *, streamed: bool) -> RequestRow:
    gaps, longest = token_gaps(answer) if streamed and answer.outcome == OK else (np.empty(0), None)
    is_ok = answer.outcome == OK
    goes_on = len(demand.continues) and demand.continues[answer.index] >= 0  # after answers of whatever length
    asked = None if goes_on else int(demand.input_tokens[answer.index])
    return RequestRow(
        due=answer.due - start,
        sent=None if answer.sent is None else answer.sent - start,
        first=None if answer.first is None or not streamed else answer.first - start,
        last=None if answer.last is None else answer.last - start,
        input_tokens=answer.input_tokens if answer.input_tokens is not None else asked,
        output_tokens=answer.output_tokens if is_ok else None,
        outcome=answer.outcome or "cancelled",
        gap=longest,
        session=int(demand.session[answer.index]),
        gaps=gaps,
    )


def token_gaps(answer: Answer) -> tuple[Floats, float | None]:
    """The time between each token and the one before, and the longest wait for anything at all.

    Tokens that arrived together share the wait before them equally; tokens with the first one had none.
    """
    times, counts = np.frombuffer(answer.times), np.frombuffer(answer.counts, np.int64)
    held = np.flatnonzero(counts > 0)  # sharing a total out by text may leave an arrival without a token
    if len(held) < 2:
        return np.empty(0), None
    waits, tokens = np.diff(times[held]), counts[held][1:]
    return np.repeat(waits / tokens, tokens), float(waits.max())


def _messages(answers: Sequence[Answer]) -> dict[str, str]:
    found: dict[str, str] = {}
    for answer in answers:
        if answer.outcome not in {None, OK} and answer.message:
            found.setdefault(answer.outcome or "", answer.message)
    return found


def joined(parts: Sequence[RoundRows]) -> RoundRows:
    """One round of several processes, whose clocks are the same."""
    messages: dict[str, str] = {}
    for part in parts:
        messages = part.messages | messages
    waits = [part.retry_after for part in parts if part.retry_after is not None]
    counted: Counter[int] = Counter()
    for part in parts:
        counted += part.counted_by
    return RoundRows(
        rows=sorted((row for part in parts for row in part.rows), key=lambda row: row.due),
        seconds=max(part.seconds for part in parts),
        health=[health for part in parts for health in part.health],
        messages=messages,
        counted_by=counted,
        arrivals=sum(part.arrivals for part in parts),
        usage_input=sum(part.usage_input for part in parts),
        usage_output=sum(part.usage_output for part in parts),
        usage_requests=sum(part.usage_requests for part in parts),
        retry_after=max(waits, default=None),
        interrupted=any(part.interrupted for part in parts),
        shed=sum(part.shed for part in parts),
        beyond=sum(part.beyond for part in parts),
        ended_early=sum(part.ended_early for part in parts),
        shown=tuple(sum(part.shown[kind] for part in parts) for kind in range(3)),
    )


def columns_of(rows: Sequence[RequestRow]) -> RequestColumns:
    return RequestColumns(
        due_s=tuple(row.due for row in rows),
        sent_s=tuple(row.sent for row in rows),
        first_s=tuple(row.first for row in rows),
        last_s=tuple(row.last for row in rows),
        input_tokens=tuple(row.input_tokens for row in rows),
        output_tokens=tuple(row.output_tokens for row in rows),
        outcome=tuple(row.outcome for row in rows),
        gap_s=tuple(row.gap for row in rows),
        session=tuple(row.session for row in rows),
    )


def counting_words(counted: Counter[int]) -> str | None:
    """How the tokens of a chunk were known, for most requests first."""
    if not counted:
        return None
    return ", ".join(COUNTED_BY[way] for way, _ in counted.most_common())
