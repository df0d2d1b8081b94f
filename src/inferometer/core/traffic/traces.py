"""Traces of requests: when each came or what it waits for, how long it was, and what it shares with others.

Our own form is JSON lines, one a request, the same for `load`, `simulate` and `plan`:

    {"session": "a", "turn": 0, "at_s": 0.5, "input_tokens": 900, "output_tokens": 80}
    {"session": "a", "turn": 1, "wait_s": 2, "input_tokens": 1100, "output_tokens": 60}
    {"session": "b", "turn": 0, "after": ["a/0"], "input_tokens": 300, "output_tokens": 20}

A request is due at `at_s`, and not before `wait_s` have passed since the last answer that it waits for: those that
`after` names, or else the turn before it in its session. `blocks` names equal pieces of prompts (`block_tokens` each,
512 unless it says otherwise), `messages` is the prompt itself. Forms of other tools are in `trace_forms`. In place of
a file, `hf:NAME`, `hf:NAME:SPLIT` or `hf:NAME:CONFIG:SPLIT` is a Hugging Face dataset, where `datasets` is installed.
"""

import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.core.errors import DomainError, FormatError, MissingDependencyError
from inferometer.core.frozen import frozen
from inferometer.core.traffic.arrivals import Times
from inferometer.core.traffic.lengths import Tokens, read_text
from inferometer.core.traffic.trace_forms import TokenCount, TraceLine, lines_from, lines_of

Message = dict[str, Any]
Named = tuple[int, int]  # a piece of a prompt: the number of its name, and its tokens

_TOGETHER_S, _APART_S = 1e-3, 8e-3  # within one look of an engine, and less than a step of it
_MANY = 0.05  # of the requests
_HUB = "hf:"
_MOST_ROWS, _SHOWN = 20_000, 200  # of a dataset; letters of an error
_GOLDEN = 0.6180339887498949
_MOST_TOKENS = 10**9  # of a prompt or an answer
_MOST_S = 1e9  # between the first arrival and the last: thirty years


def _none() -> Times:
    return np.empty(0)


@frozen
class RequestTrace:
    """Requests, each after those it waits for. Columns that are empty say nothing: no sessions, waits or pieces.

    `arrival_s` is NaN where a request comes by no clock. `after` has the places of the requests that it waits for, and
    `wait_s` how long after the last of their answers it comes. `pieces` are named parts of prompts that are equal
    wherever they have one name; `messages` are prompts as they were.
    """

    name: str
    form: str
    arrival_s: Times
    input_tokens: Tokens
    output_tokens: Tokens
    session: Tokens = field(default_factory=lambda: np.empty(0, np.int64))
    turn: Tokens = field(default_factory=lambda: np.empty(0, np.int64))
    after: tuple[tuple[int, ...], ...] = ()
    wait_s: Times = field(default_factory=_none)
    pieces: tuple[tuple[Named, ...], ...] = ()
    messages: tuple[tuple[Message, ...], ...] = ()
    skipped: int = 0  # rows without tokens: requests that failed when the trace was taken
    estimated: bool = False  # whether tokens were counted by letters

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def is_timed(self) -> bool:
        """Whether requests that wait for no answer come by a clock."""
        first = [not before for before in self.after] if self.after else slice(None)
        return bool(np.isfinite(self.arrival_s[first]).all())

    @property
    def first_turns(self) -> int:
        return sum(not before for before in self.after) if self.after else len(self)

    @property
    def seconds(self) -> float:
        """Until the last arrival by the clock."""
        known = self.arrival_s[np.isfinite(self.arrival_s)]
        return float(known.max()) if len(known) else 0.0

    @property
    def between_steps(self) -> bool:
        """Whether an engine took the times down, which looks for new requests between two of its steps only.

        Those that came during one step then stand together, microseconds apart, and nothing comes shortly after them.
        """
        gaps = np.diff(np.sort(self.arrival_s))
        together = int(np.sum(gaps < _TOGETHER_S))
        apart = int(np.sum(gaps < _APART_S)) - together
        return self.form == "requests" and together > _MANY * len(gaps) and 4 * apart < together


def read_trace(path: Path, *, count: TokenCount | None = None) -> RequestTrace:
    """The requests of a file. Where it has texts without their tokens, `count` counts them, or else four letters do."""
    if path.as_posix().startswith(_HUB):
        name = path.as_posix().removeprefix(_HUB)
        form, lines = lines_from(name, dataset_rows(name), count)
        trace = trace_of(name, form, lines)
    else:
        form, lines = lines_of(path, read_text(path), count)
        trace = trace_of(path.name, form, lines)
    return trace if count is None else replace(trace, estimated=False)


def dataset_rows(name: str) -> list[dict[str, Any]]:
    """The first rows of a Hugging Face dataset; it comes from where `datasets` keeps it, or from the hub."""
    try:
        from datasets import load_dataset  # noqa: PLC0415 - an optional package, for this alone
    except ImportError:
        raise MissingDependencyError(
            f"The dataset {name} is read by the package datasets.", remedy="Install it: pip install datasets."
        ) from None
    place, *rest = name.split(":")
    config, split = (rest[0] if len(rest) > 1 else None), (rest[-1] if rest else "train")
    try:
        rows = load_dataset(
            place, config, split=split, streaming=True
        )  # what runs code of the dataset is refused by it
        return [dict(row) for row in islice(rows, _MOST_ROWS)]
    except Exception as error:  # noqa: BLE001 - whatever that package, the network or a file of the dataset raises
        said = (str(error).splitlines() or [""])[0][:_SHOWN]
        raise FormatError(
            f"The dataset {place} cannot be read ({said or type(error).__name__}).",
            remedy="Write hf:OWNER/NAME, hf:OWNER/NAME:SPLIT or hf:OWNER/NAME:CONFIG:SPLIT.",
        ) from None


def part_of(
    trace: RequestTrace,
    *,
    speed: float = 1.0,
    start_s: float = 0.0,
    duration_s: float | None = None,
    count: int | None = None,
) -> RequestTrace:
    """A stretch of a trace from `start_s` on, replayed `speed` times as fast; `duration_s` is of the replay.

    A request that comes by no clock is in it with those that it waits for. Waits are shortened as the clock is.
    """
    if not speed > 0:
        raise DomainError(f"The speed of a replay must be greater than 0, and is {speed!r}.")
    due = (trace.arrival_s - start_s) / speed
    inside = (due >= 0) & (due < (np.inf if duration_s is None else duration_s)) | np.isnan(due)
    place: dict[int, int] = {}  # of what is kept, in the part
    for index in np.flatnonzero(inside).tolist():
        before = trace.after[index] if trace.after else ()
        if len(place) == count:
            break
        if not math.isnan(due[index]) or all(other in place for other in before):
            place[index] = len(place)
    if not place:
        raise DomainError(
            f"{trace.name} has no request in the part that was asked for.",
            remedy=f"It has {len(trace):,} in {trace.seconds:,.0f} s.",
        )
    return _chosen(replace(trace, wait_s=trace.wait_s / speed), place, due)


def _chosen(trace: RequestTrace, place: dict[int, int], due: Times) -> RequestTrace:
    """The requests that `place` keeps, each at its new index."""
    kept = list(place)
    after = [tuple(place[other] for other in trace.after[index] if other in place) for index in kept if trace.after]
    return replace(
        trace,
        arrival_s=due[kept],
        input_tokens=trace.input_tokens[kept],
        output_tokens=trace.output_tokens[kept],
        session=trace.session[kept] if len(trace.session) else trace.session,
        turn=trace.turn[kept] if len(trace.turn) else trace.turn,
        after=tuple(after),
        wait_s=trace.wait_s[kept] if len(trace.wait_s) else trace.wait_s,
        pieces=tuple(trace.pieces[index] for index in kept) if trace.pieces else (),
        messages=tuple(trace.messages[index] for index in kept) if trace.messages else (),
    )


def trace_of(name: str, form: str, lines: Iterable[TraceLine]) -> RequestTrace:
    """The requests of a file in an order in which each comes after the ones whose answers it waits for."""
    rows = list(lines)
    _require_numbers(name, rows)
    usable = [row for row in rows if row.input_tokens > 0 and row.output_tokens > 0]
    if not usable:
        raise FormatError(f"{name} holds no request with tokens.")
    before = _before(name, usable)
    order = _ordered(name, usable, before)
    place = {index: at for at, index in enumerate(order)}
    ordered = [usable[index] for index in order]
    start = min((row.at_s for row in ordered if row.at_s is not None), default=0.0)
    has_order = any(before)
    numbers: dict[Hashable, int] = {}
    sessions = [numbers.setdefault(row.session, len(numbers)) for row in ordered]
    counted: Counter[int] = Counter()
    turns = []
    for session in sessions:  # counted anew: parts of traces begin anywhere
        turns.append(counted[session])
        counted[session] += 1
    return RequestTrace(
        name=name,
        form=form,
        arrival_s=np.array([math.nan if row.at_s is None else row.at_s - start for row in ordered]),
        input_tokens=np.array([row.input_tokens for row in ordered], np.int64),
        output_tokens=np.array([row.output_tokens for row in ordered], np.int64),
        session=np.array(sessions, np.int64),
        turn=np.array(turns, np.int64),
        after=tuple(tuple(place[other] for other in before[index]) for index in order) if has_order else (),
        wait_s=np.array([row.wait_s for row in ordered], float) if has_order else _none(),
        pieces=_pieces(ordered),
        messages=tuple(tuple(row.messages) for row in ordered) if any(row.messages for row in ordered) else (),
        skipped=len(rows) - len(usable),
        estimated=any(row.estimated for row in ordered),
    )


def _require_numbers(name: str, rows: Sequence[TraceLine]) -> None:
    """Times and tokens that can be: what a file has of others is a slip, and not a request that failed."""
    if not all(math.isfinite(row.wait_s) and (row.at_s is None or math.isfinite(row.at_s)) for row in rows):
        raise FormatError(f"{name} holds a time that is not a number.")
    for row in rows:
        where = f"{name}: turn {row.turn} of session {row.session!r}"
        if row.wait_s < 0:
            raise FormatError(f"{where} waits for {row.wait_s:g} s.", remedy="A wait is 0 seconds or more.")
        if (
            not 0
            <= min(row.input_tokens, row.output_tokens)
            <= max(row.input_tokens, row.output_tokens)
            <= _MOST_TOKENS
        ):
            raise FormatError(
                f"{where} has {row.input_tokens:.6g} tokens and an answer of {row.output_tokens:.6g}.",
                remedy=f"Tokens are 0 to {_MOST_TOKENS:,}; what has none is left out.",
            )
    times = [row.at_s for row in rows if row.at_s is not None]
    if times and max(times) - min(times) > _MOST_S:
        raise FormatError(
            f"{name} begins {min(times):g} s and ends {max(times):g} s after zero, years apart.",
            remedy="at_s and arrival_s are seconds; Mooncake's and AIPerf's timestamps are milliseconds.",
        )


def _before(name: str, rows: Sequence[TraceLine]) -> list[tuple[int, ...]]:
    """For each request, the indices of the requests whose answers it waits for."""
    turns: dict[Hashable, dict[int, int]] = {}
    named: dict[str, int] = {}
    for index, row in enumerate(rows):
        talk = turns.setdefault(row.session, {})
        if row.turn in talk:
            raise FormatError(f"{name} has turn {row.turn} of session {row.session!r} twice.")
        talk[row.turn] = index
    for session, talk in turns.items():
        named[str(session)] = talk[max(talk)]
        named |= {f"{session}{mark}{turn}": index for turn, index in talk.items() for mark in "/:"}
    known: dict[str, int] = {}
    for index, row in enumerate(rows):
        if row.id is not None and known.setdefault(row.id, index) != index:
            raise FormatError(f"{name} has two requests with the id {row.id!r}.", remedy="Give each an id of its own.")
    named |= known
    ranked = {session: sorted(talk) for session, talk in turns.items()}
    found: list[tuple[int, ...]] = []
    for row in rows:
        rank = bisect_left(ranked[row.session], row.turn)
        earlier = turns[row.session][ranked[row.session][rank - 1]] if rank else None
        if row.after is None:
            found.append(() if earlier is None else (earlier,))
            continue
        own = {} if earlier is None else {str(row.session): earlier}  # in its own session: the turn before it
        lost = [one for one in row.after if one not in named]
        if lost:
            raise FormatError(
                f"{name}: turn {row.turn} of session {row.session!r} waits for {lost[0]!r}, which is not there.",
                remedy="Name the id of a request, SESSION/TURN, or a session for its last turn.",
            )
        found.append(tuple(dict.fromkeys(own.get(one, named[one]) for one in row.after)))
    return found


def _ordered(name: str, rows: Sequence[TraceLine], before: Sequence[tuple[int, ...]]) -> list[int]:
    """By the clock, where a request that comes by none stands with the last of those it waits for."""
    keys: dict[int, tuple[float, int]] = {}  # the time, and how many stand before it in its chain

    for start in range(len(rows)):
        under_way, stack = set(), [start]
        while stack:
            index = stack[-1]
            missing = [other for other in before[index] if other not in keys]
            if not missing:
                times = [keys[other][0] for other in before[index]]
                depth = max((keys[other][1] + 1 for other in before[index]), default=0)
                at_s = rows[index].at_s
                keys[index] = (max([*times, -math.inf if at_s is None and times else at_s or 0.0]), depth)
                stack.pop()
            elif index in under_way:
                row = rows[index]
                raise FormatError(f"{name}: turn {row.turn} of session {row.session!r} waits for itself.")
            else:
                under_way.add(index)
                stack += missing
    return sorted(keys, key=lambda index: (*keys[index], index))


def _pieces(rows: Sequence[TraceLine]) -> tuple[tuple[Named, ...], ...]:
    """Names as numbers. The last block may be a part: it is the same only where it is as long."""
    if not any(row.blocks for row in rows):
        return ()
    numbers: dict[Hashable, int] = {}
    found = []
    for row in rows:
        left, parts = row.input_tokens, []
        for name, whole in row.blocks:
            size = min(whole, left)
            if size <= 0:
                break
            parts.append((numbers.setdefault((name, size), len(numbers)), size))
            left -= size
        found.append(tuple(parts))
    return tuple(found)


def scaled(trace: RequestTrace, factor: float) -> RequestTrace:
    """So many times the load: a share of the sessions at their own times, or all of them in quicker succession.

    Waits inside a session stay as they are: they are its tools' and its readers'.
    """
    if factor >= 1:
        return replace(trace, arrival_s=trace.arrival_s / factor)
    chosen: dict[int, bool] = {}
    place: dict[int, int] = {}
    sessions = 0
    for index in range(len(trace)):
        before = trace.after[index] if trace.after else ()
        if not before:
            chosen[index] = sessions * _GOLDEN % 1.0 < factor  # evenly, at any share
            sessions += 1
        else:
            chosen[index] = all(chosen[other] for other in before)
        if chosen[index]:
            place[index] = len(place)
    return _chosen(trace, place or {0: 0}, trace.arrival_s)


def repeated_tokens(trace: RequestTrace) -> int:
    """Tokens of prompts that a cache without end would have: pieces that came before, and the talk of earlier turns."""
    seen: set[Named] = set()
    repeated = 0
    for pieces in trace.pieces:
        for piece in pieces:
            repeated += piece[1] if piece in seen else 0
        seen |= set(pieces)
    if not trace.pieces:
        for index, before in enumerate(trace.after):
            own = [other for other in before if trace.session[other] == trace.session[index]][:1]
            said = int(sum(trace.input_tokens[own] + trace.output_tokens[own]))
            repeated += said if said < trace.input_tokens[index] else 0
    return repeated


def trace_document(trace: RequestTrace) -> dict[str, Any]:
    """What a trace is like, in figures."""
    sessions = trace.first_turns
    return {
        "schema": "inferometer.traffic/1",
        "name": trace.name,
        "form": trace.form,
        "requests": len(trace),
        "sessions": sessions,
        "seconds": trace.seconds if trace.is_timed else None,
        "requests_per_s": len(trace) / trace.seconds if trace.is_timed and trace.seconds else None,
        "input_tokens": float(trace.input_tokens.mean()),
        "output_tokens": float(trace.output_tokens.mean()),
        "repeated_share": repeated_tokens(trace) / float(trace.input_tokens.sum()),
        "longest_prompt": int(trace.input_tokens.max()),
        "skipped": trace.skipped,
        "estimated": trace.estimated,
    }


def written_trace(trace: RequestTrace) -> Iterator[str]:
    """A trace in our own form, a line a request."""
    for index in range(len(trace)):
        line: dict[str, Any] = {
            "session": int(trace.session[index]) if len(trace.session) else index,
            "turn": int(trace.turn[index]) if len(trace.turn) else 0,
        }
        before = trace.after[index] if trace.after else ()
        if math.isfinite(trace.arrival_s[index]):
            line["at_s"] = round(float(trace.arrival_s[index]), 6)
        if before:
            line["after"] = [f"{trace.session[other]}/{trace.turn[other]}" for other in before]
            line["wait_s"] = round(float(trace.wait_s[index]), 6)
        line |= {"input_tokens": int(trace.input_tokens[index]), "output_tokens": int(trace.output_tokens[index])}
        if trace.messages:
            line["messages"] = list(trace.messages[index])
        elif trace.pieces:
            line |= _blocks(trace.pieces[index])
        yield json.dumps(line, ensure_ascii=False)


def _blocks(pieces: tuple[Named, ...]) -> dict[str, Any]:
    """Names alone where all but the last are as long, and names with their tokens otherwise."""
    sizes = {size for _, size in pieces[:-1]} or {size for _, size in pieces}
    if len(sizes) != 1 or pieces[-1][1] > max(sizes):
        return {"blocks": [list(piece) for piece in pieces]}
    return {"blocks": [name for name, _ in pieces], "block_tokens": sizes.pop()}
