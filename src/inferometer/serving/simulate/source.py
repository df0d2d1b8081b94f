"""Where simulated requests come from: a demand in the order of its times, with turns and places that wait for ends."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from inferometer.core.traffic.traces import BLOCK_TOKENS
from inferometer.serving.simulate.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from inferometer.core.traffic.demand import Demand
    from inferometer.serving.simulate.cache import Piece


class Source:
    """`next_s` is when the next request comes; `take` gives it. `ended` makes those that waited for an end.

    Several demands, one after the other, are the parts of one that would be too large as a whole: times go on.
    """

    def __init__(
        self, demands: Iterable[Demand], *, concurrency: int | None = None, priorities: tuple[float, ...] = ()
    ) -> None:
        parts = iter(demands)
        first = next(parts, None)
        self._is_plain = first is not None and not priorities and concurrency is None and _is_plain(first)
        self._coming = self._requests(parts if first is None else chain((first,), parts))
        self._priorities = priorities
        self._followers: list[tuple[float, int, Request]] = []
        self._talks: dict[int, tuple[Demand, int, int]] = {}  # by request: its demand, its index, tokens talked before
        self.waits = concurrency is not None
        self._next = next(self._coming, None)
        for _ in range(concurrency or 0):
            self._fill(0.0)

    @property
    def follows(self) -> bool:
        """Whether requests come because others end."""
        return self.waits or bool(self._talks)

    @property
    def next_s(self) -> float:
        timed = inf if self._next is None or self.waits else self._next.due
        return min(timed, self._followers[0][0]) if self._followers else timed

    def take(self) -> Request:
        timed = self._next
        if self._followers and (timed is None or self.waits or self._followers[0][0] <= timed.due):
            return heappop(self._followers)[2]
        assert timed is not None  # noqa: S101 - `next_s` said that there is one
        self._next = next(self._coming, None)
        return timed

    def plain(self) -> Iterator[Request] | None:
        """All requests, where each comes by the clock and shares nothing with others; else None."""
        if not self._is_plain or self._next is None:
            return None
        return chain((self._next,), self._coming)

    def ended(self, request: Request) -> None:
        """Its session says the next thing, or its place sends the next request."""
        talk = self._talks.pop(request.number, None)
        if talk is not None:
            demand, index, before = talk
            if demand.turn[index] + 1 < demand.sharing.turns:
                due = request.last + demand.sharing.think_s
                said = before + int(demand.input_tokens[index]) + request.output_tokens
                self._push(self._turn(demand, index + 1, request.number + 1, due, said))
                return
        if self.waits:
            self._fill(request.last)

    def _fill(self, now: float) -> None:
        request, self._next = self._next, next(self._coming, None) if self._next is not None else None
        if request is not None:
            request.due = request.sent = now
            self._push(request)

    def _push(self, request: Request) -> None:
        heappush(self._followers, (request.due, request.number, request))

    def _requests(self, demands: Iterator[Demand]) -> Iterator[Request]:
        return chain.from_iterable(self._parts(demands))

    def _parts(self, demands: Iterator[Demand]) -> Iterator[Iterator[Request]]:
        number, start = 0, 0.0
        for demand in demands:
            due = (start + demand.due_s).tolist() if demand.is_open else [0.0] * len(demand)
            if self._is_plain:
                numbers = range(number, number + len(demand))
                yield map(Request, numbers, due, demand.input_tokens.tolist(), demand.output_tokens.tolist())
            else:
                yield self._first_turns(demand, number, due)
            number += len(demand)
            start = due[-1] if due else start

    def _first_turns(self, demand: Demand, number: int, due: list[float]) -> Iterator[Request]:
        for index in range(0, len(demand), demand.sharing.turns):
            yield self._turn(demand, index, number + index, due[index], 0)

    def _turn(self, demand: Demand, index: int, number: int, due: float, said: int) -> Request:
        new, output = int(demand.input_tokens[index]), int(demand.output_tokens[index])
        request = Request(number, due, said + new, output)
        request.pieces = _pieces(demand, index, said + new)
        if self._priorities:
            request.priority = class_of(self._priorities, number)
        if demand.sharing.turns > 1:
            self._talks[number] = (demand, index, said)
        return request


def _is_plain(demand: Demand) -> bool:
    return demand.sharing.turns == 1 and not demand.blocks and not demand.sharing.prefix_tokens


def class_of(shares: tuple[float, ...], number: int) -> int:
    """The class of a request: each has its share of them, spread evenly (by the golden ratio's multiples)."""
    place, reached = number * 0.6180339887498949 % 1.0, 0.0
    for order, share in enumerate(shares):
        reached += share
        if place < reached:
            return order
    return len(shares) - 1


def _pieces(demand: Demand, index: int, tokens: int) -> tuple[Piece, ...]:
    """What a prompt has in common with others, from its first token on."""
    if demand.blocks:
        whole = tokens // BLOCK_TOKENS  # the last block may be a part: its name says nothing of how long a part
        return tuple((name, BLOCK_TOKENS) for name in demand.blocks[index][:whole])
    sharing = demand.sharing
    pieces: list[Piece] = []
    if sharing.prefix_tokens:
        pieces.append((("group", int(demand.group[index])), min(sharing.prefix_tokens, tokens)))
    if sharing.turns > 1:
        first = index - int(demand.turn[index])
        left = tokens - sum(size for _, size in pieces)
        for turn in range(int(demand.turn[index])):
            at = first + turn
            said = int(demand.input_tokens[at]) + int(demand.output_tokens[at])
            said -= pieces[0][1] if turn == 0 and pieces else 0
            size = max(0, min(said, left))
            pieces.append((("talk", int(demand.session[index]), turn), size))
            left -= size
        pieces.append((("talk", int(demand.session[index]), int(demand.turn[index])), max(0, left)))
    return tuple(piece for piece in pieces if piece[1] > 0)
