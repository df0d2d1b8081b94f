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
from array import array
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
from inferometer.core.traffic.trace_forms import Block, TokenCount, TraceLine, lines_from, lines_of

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
    kept = np.flatnonzero(inside)[: None if trace.after else count]
    place: dict[int, int] = {}  # of what is kept, in the part
    for index in kept.tolist() if trace.after else ():
        if len(place) == count:
            break
        if not math.isnan(due[index]) or all(other in place for other in trace.after[index]):
            place[index] = len(place)
    kept = np.array([*place], np.int64) if trace.after else kept
    if not len(kept):
        raise DomainError(
            f"{trace.name} has no request in the part that was asked for.",
            remedy=f"It has {len(trace):,} in {trace.seconds:,.0f} s.",
        )
    return _chosen(replace(trace, wait_s=trace.wait_s / speed), kept, due)


def _chosen(trace: RequestTrace, kept: Tokens, due: Times) -> RequestTrace:
    """The requests that are kept, each at its new index."""
    place = {index: at for at, index in enumerate(kept.tolist())} if trace.after else {}
    after = [tuple(place[other] for other in trace.after[index] if other in place) for index in place]
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


class _Columns:
    """The requests of a file, a column each: what few of them have stands by their number."""

    def __init__(self, name: str, lines: Iterable[TraceLine]) -> None:
        self.name, self.skipped, self.estimated = name, 0, False
        self.at_s, self.wait_s, self.inputs, self.outputs = array("d"), array("d"), array("q"), array("q")
        self.session: list[Hashable] = []
        self.turn: list[int] = []
        self.ids: dict[str, int] = {}
        self.after: dict[int, tuple[str, ...]] = {}
        self.blocks: dict[int, tuple[Block, ...]] = {}
        self.messages: dict[int, tuple[Message, ...]] = {}
        self._first_s, self._last_s = math.inf, -math.inf
        for line in lines:
            self._add(line)
        if self._last_s - self._first_s > _MOST_S:
            raise FormatError(
                f"{name} begins {self._first_s:g} s and ends {self._last_s:g} s after zero, years apart.",
                remedy="at_s and arrival_s are seconds; Mooncake's and AIPerf's timestamps are milliseconds.",
            )
        if not self.session:
            raise FormatError(f"{name} holds no request with tokens.")

    def _add(self, line: TraceLine) -> None:
        at_s, inputs, outputs = line.at_s, line.input_tokens, line.output_tokens
        _require_numbers(self.name, line)
        if at_s is not None:
            self._first_s, self._last_s = min(self._first_s, at_s), max(self._last_s, at_s)
        if not (inputs and outputs):
            self.skipped += 1
            return
        index = len(self.session)
        self.session.append(line.session)
        self.turn.append(line.turn)
        self.at_s.append(math.nan if at_s is None else at_s)
        self.wait_s.append(line.wait_s)
        self.inputs.append(inputs)
        self.outputs.append(outputs)
        if line.id is not None and self.ids.setdefault(line.id, index) != index:
            name = self.name
            raise FormatError(f"{name} has two requests with the id {line.id!r}.", remedy="Give each an id of its own.")
        if line.after is not None:
            self.after[index] = line.after
        if line.blocks:
            self.blocks[index] = line.blocks
        if line.messages:
            self.messages[index] = line.messages
        self.estimated |= line.estimated

    def __len__(self) -> int:
        return len(self.session)


def trace_of(name: str, form: str, lines: Iterable[TraceLine]) -> RequestTrace:
    """The requests of a file in an order in which each comes after the ones whose answers it waits for."""
    columns = _Columns(name, lines)
    count, at_s = len(columns), np.array(columns.at_s)
    if not any(columns.after.values()) and len(set(columns.session)) == count:  # nobody waits for anybody
        before: list[tuple[int, ...]] = []
        order = np.argsort(np.nan_to_num(at_s), kind="stable")
        sessions, turns = np.arange(count), np.zeros(count, np.int64)
    else:
        before = _before(columns)
        order = np.array(_ordered(columns, before))
        sessions, turns = _counted(columns, order.tolist())
    has_order, kept = any(before), order.tolist()
    place = {index: at for at, index in enumerate(kept)} if has_order else {}
    messages = columns.messages
    return RequestTrace(
        name=name,
        form=form,
        arrival_s=at_s[order] - (np.nanmin(at_s) if np.isfinite(at_s).any() else 0.0),
        input_tokens=np.array(columns.inputs, np.int64)[order],
        output_tokens=np.array(columns.outputs, np.int64)[order],
        session=sessions,
        turn=turns,
        after=tuple(tuple(place[other] for other in before[index]) for index in kept) if has_order else (),
        wait_s=np.array(columns.wait_s)[order] if has_order else _none(),
        pieces=_pieces(columns, kept) if columns.blocks else (),
        messages=tuple(tuple(messages.get(index, ())) for index in kept) if messages else (),
        skipped=columns.skipped,
        estimated=columns.estimated,
    )


def _counted(columns: _Columns, order: Sequence[int]) -> tuple[Tokens, Tokens]:
    """Sessions and turns as numbers. They are counted anew: parts of traces begin anywhere."""
    numbers: dict[Hashable, int] = {}
    counted: Counter[int] = Counter()
    sessions, turns = [], []
    for index in order:
        session = numbers.setdefault(columns.session[index], len(numbers))
        sessions.append(session)
        turns.append(counted[session])
        counted[session] += 1
    return np.array(sessions, np.int64), np.array(turns, np.int64)


def _require_numbers(name: str, line: TraceLine) -> None:
    """Times and tokens that can be: what a file has of others is a slip, and not a request that failed."""
    if not math.isfinite(line.wait_s) or not (line.at_s is None or math.isfinite(line.at_s)):
        raise FormatError(f"{name} holds a time that is not a number.")
    if line.wait_s >= 0 and 0 <= line.input_tokens <= _MOST_TOKENS and 0 <= line.output_tokens <= _MOST_TOKENS:
        return
    where = f"{name}: turn {line.turn} of session {line.session!r}"
    if line.wait_s < 0:
        raise FormatError(f"{where} waits for {line.wait_s:g} s.", remedy="A wait is 0 seconds or more.")
    raise FormatError(
        f"{where} has {line.input_tokens:.6g} tokens and an answer of {line.output_tokens:.6g}.",
        remedy=f"Tokens are 0 to {_MOST_TOKENS:,}; what has none is left out.",
    )


def _before(columns: _Columns) -> list[tuple[int, ...]]:
    """For each request, the indices of the requests whose answers it waits for."""
    name = columns.name
    turns: dict[Hashable, dict[int, int]] = {}
    named: dict[str, int] = {}
    for index, (session, turn) in enumerate(zip(columns.session, columns.turn, strict=True)):
        talk = turns.setdefault(session, {})
        if turn in talk:
            raise FormatError(f"{name} has turn {turn} of session {session!r} twice.")
        talk[turn] = index
    for session, talk in turns.items():
        named[str(session)] = talk[max(talk)]
        named |= {f"{session}{mark}{turn}": index for turn, index in talk.items() for mark in "/:"}
    named |= columns.ids
    ranked = {session: sorted(talk) for session, talk in turns.items()}
    found: list[tuple[int, ...]] = []
    for index, (session, turn) in enumerate(zip(columns.session, columns.turn, strict=True)):
        rank, after = bisect_left(ranked[session], turn), columns.after.get(index)
        earlier = turns[session][ranked[session][rank - 1]] if rank else None
        if after is None:
            found.append(() if earlier is None else (earlier,))
            continue
        own = {} if earlier is None else {str(session): earlier}  # in its own session: the turn before it
        lost = [one for one in after if one not in named]
        if lost:
            raise FormatError(
                f"{name}: turn {turn} of session {session!r} waits for {lost[0]!r}, which is not there.",
                remedy="Name the id of a request, SESSION/TURN, or a session for its last turn.",
            )
        found.append(tuple(dict.fromkeys(own.get(one, named[one]) for one in after)))
    return found


def _ordered(columns: _Columns, before: Sequence[tuple[int, ...]]) -> list[int]:
    """By the clock, where a request that comes by none stands with the last of those it waits for."""
    keys: dict[int, tuple[float, int]] = {}  # the time, and how many stand before it in its chain

    for start in range(len(columns)):
        under_way, stack = set(), [start]
        while stack:
            index = stack[-1]
            missing = [other for other in before[index] if other not in keys]
            if not missing:
                times = [keys[other][0] for other in before[index]]
                depth = max((keys[other][1] + 1 for other in before[index]), default=0)
                at_s = columns.at_s[index]
                by_clock = at_s if not math.isnan(at_s) else -math.inf if times else 0.0
                keys[index] = (max([*times, by_clock]), depth)
                stack.pop()
            elif index in under_way:
                turn, session = columns.turn[index], columns.session[index]
                raise FormatError(f"{columns.name}: turn {turn} of session {session!r} waits for itself.")
            else:
                under_way.add(index)
                stack += missing
    return sorted(keys, key=lambda index: (*keys[index], index))


def _pieces(columns: _Columns, order: Sequence[int]) -> tuple[tuple[Named, ...], ...]:
    """Names as numbers. The last block may be a part: it is the same only where it is as long."""
    numbers: dict[Hashable, int] = {}
    found = []
    for index in order:
        left, parts = columns.inputs[index], []
        for name, whole in columns.blocks.get(index, ()):
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
    return _chosen(trace, np.array([*(place or {0: 0})], np.int64), trace.arrival_s)


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
