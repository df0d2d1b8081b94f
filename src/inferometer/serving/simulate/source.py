"""Where simulated requests come from: a demand in the order of its times, with turns and places that wait for ends."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from itertools import chain
from itertools import count as counted
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.traffic.demand import Demand, classes_of, evenly
from inferometer.serving.simulate.request import SimulatedRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from inferometer.core.traffic.arrivals import Times
    from inferometer.serving.simulate.cache import Piece


@frozen
class Kinds:
    """What differs between requests beside their lengths, each spread evenly over them.

    `priorities` are the shares of classes, the most urgent first. Of `adapters` each request asks for one. It has
    `images`, of `pictures` that there are; 0: no two are the same. Answers are `told` in the next prompt word for word;
    what a load test writes there is not what the server has made.
    """

    priorities: tuple[float, ...] = ()
    adapters: int = 0
    images: int = 0
    pictures: int = 0
    told: bool = True


_ALIKE = Kinds()
# From the end of an answer until the request that follows it stands in the engine's queue: the way through the client
# and back, as to a llama.cpp server on the same machine (0.9 to 1.1 ms). The engine has begun its next step by then.
TURNAROUND_S = 1e-3
_PIECE = 65_536
_ADAPTERS, _PICTURES = 3**0.5, 7**0.5  # irrational, and other than the one of classes


class RequestSource:
    """`next_s` is the time of the next request; `take` gives it. `ended` makes the requests that waited for an end.

    Several demands, one after the other, are the parts of one that would be too large as a whole: times go on.
    """

    def __init__(self, demands: Iterable[Demand], *, concurrency: int | None = None, kinds: Kinds = _ALIKE) -> None:
        parts = iter(demands)
        first = next(parts, None)
        self._is_plain = first is not None and kinds == _ALIKE and concurrency is None and _is_plain(first)
        self._has_followers = first is not None and bool(first.after)
        self._coming = self._requests(parts if first is None else chain((first,), parts))
        self._kinds = kinds
        self._ready: list[tuple[float, int, SimulatedRequest]] = []
        self._waiting: dict[int, list[_Waiting]] = {}  # by the number of a request: the ones that wait for its answer
        self._strands: list[int] = []  # by request: all that wait for each other are one, and take one place
        self._left: Counter[int] = Counter()  # by strand: its requests that have not ended
        self._begun: set[int] = set()
        self.waits = concurrency is not None
        self._next = next(self._coming, None)
        for _ in range(concurrency or 0):
            self._fill(0.0)

    @property
    def follows(self) -> bool:
        """Whether requests come because others end."""
        return self.waits or self._has_followers

    @property
    def next_s(self) -> float:
        timed = inf if self._next is None or self.waits else self._next.due
        return min(timed, self._ready[0][0]) if self._ready else timed

    def take(self) -> SimulatedRequest:
        timed = self._next
        if self._ready and (timed is None or self.waits or self._ready[0][0] <= timed.due):
            return heappop(self._ready)[2]
        assert timed is not None  # noqa: S101 - `next_s` said that there is one
        self._next = next(self._coming, None)
        return timed

    def plain(self) -> Iterator[SimulatedRequest] | None:
        """All requests, where each comes by the clock and shares nothing with others; else None."""
        if not self._is_plain or self._next is None:
            return None
        return chain((self._next,), self._coming)

    def ended(self, request: SimulatedRequest) -> None:
        """Release the requests that waited for its answer; if all of its strand have ended, its place is free."""
        for waiting in self._waiting.pop(request.number, ()):
            waiting.left -= 1
            waiting.request.due = max(waiting.request.due, request.last + waiting.wait_s)
            if waiting.left == 0:
                self._push(waiting.request, waiting.request.due + TURNAROUND_S)
        self._over(request, request.last)

    def broken(self, request: SimulatedRequest) -> Iterator[SimulatedRequest]:
        """All that wait for the answer to a request that was refused, or for each other's: they never come."""
        for waiting in self._waiting.pop(request.number, ()):
            if waiting.left > 0:  # it may wait for several that fail
                waiting.left = -1
                yield waiting.request
                yield from self.broken(waiting.request)
        self._over(request, request.sent)

    def _over(self, request: SimulatedRequest, now: float) -> None:
        if self.waits:
            strand = self._strands[request.number]
            self._left[strand] -= 1
            if not self._left[strand]:
                self._fill(now)

    def _fill(self, now: float) -> None:
        """A place is free: the next strand takes it, with all of its requests that wait for nobody."""
        is_taken = False
        while self._next is not None:
            strand = self._strands[self._next.number]
            if is_taken and strand not in self._begun:
                return
            is_taken |= strand not in self._begun
            self._begun.add(strand)
            request, self._next = self._next, next(self._coming, None)
            request.due = now
            self._push(request, now + TURNAROUND_S if now else now)

    def _push(self, request: SimulatedRequest, sent_s: float) -> None:
        request.sent = sent_s
        heappush(self._ready, (sent_s, request.number, request))

    def _requests(self, demands: Iterator[Demand]) -> Iterator[SimulatedRequest]:
        return chain.from_iterable(self._parts(demands))

    def _parts(self, demands: Iterator[Demand]) -> Iterator[Iterator[SimulatedRequest]]:
        number, start = 0, 0.0
        for demand in demands:
            due = start + demand.due_s if demand.is_open else np.zeros(len(demand))
            if self._is_plain:
                yield from _in_pieces(demand, number, due)
            else:
                yield self._in_order(demand, number, due.tolist())
            number += len(demand)
            start = float(due[-1]) if len(due) else start

    def _in_order(self, demand: Demand, number: int, due: list[float]) -> Iterator[SimulatedRequest]:
        """Requests that wait for nobody; the others are kept until their answers have come."""
        prompts, answers, talks = demand.prompt_tokens().tolist(), demand.output_tokens.tolist(), _Talks(demand, number)
        if self.waits:
            self._strands = demand.strands().tolist()
            self._left.update(self._strands)
        classes = classes_of(self._kinds.priorities, range(number, number + len(prompts)))
        is_marked = bool(self._kinds.adapters or self._kinds.images)
        requests = []
        for index, tokens in enumerate(prompts):
            request = SimulatedRequest(number + index, due[index], tokens, answers[index])
            request.pieces = talks.pieces(index, tokens)
            request.priority, request.adapter, request.images = classes[index], -1, ()
            if is_marked:
                self._mark(request)
            requests.append(request)
            before = demand.after[index] if demand.after else ()
            for other in before:
                is_next = demand.session[other] == demand.session[index] and not other % demand.answers
                if is_next and self._kinds.told:
                    requests[other].answer = _after(requests[other], request)
            if not before:
                continue
            waiting = _Waiting(request, len(before), float(demand.wait_s[index]))
            for other in before:
                self._waiting.setdefault(number + other, []).append(waiting)
        return iter([requests[index] for index in demand.first])

    def _mark(self, request: SimulatedRequest) -> None:
        kinds, number = self._kinds, request.number
        request.adapter = int(evenly(number, _ADAPTERS) * kinds.adapters) if kinds.adapters else -1
        first = number * kinds.images
        images = range(first, first + kinds.images)
        request.images = (
            tuple(int(evenly(one, _PICTURES) * kinds.pictures) for one in images) if kinds.pictures else (*images,)
        )


def _in_pieces(demand: Demand, number: int, due: Times) -> Iterator[Iterator[SimulatedRequest]]:
    """Requests that share nothing. Lists of Python's numbers take several times the room of arrays."""
    for first in range(0, len(demand), _PIECE):
        piece = slice(first, first + _PIECE)
        columns = (column[piece].tolist() for column in (due, demand.input_tokens, demand.output_tokens))
        yield map(SimulatedRequest, counted(number + first), *columns)


class _Waiting:
    """A request that waits for answers: how many are missing, and how long it comes after the last."""

    __slots__ = ("left", "request", "wait_s")

    def __init__(self, request: SimulatedRequest, left: int, wait_s: float) -> None:
        self.request, self.left, self.wait_s = request, left, wait_s


class _Talks:
    """The beginnings that prompts of a demand share, from their first token on."""

    def __init__(self, demand: Demand, number: int) -> None:
        self._demand, self._number = demand, number
        self._said: dict[int, tuple[Piece, ...]] = {}  # by request: its prompt and its answer, for those who go on

    def pieces(self, index: int, tokens: int) -> tuple[Piece, ...]:
        demand = self._demand
        if demand.pieces:
            return demand.pieces[index]
        earlier = int(demand.continues[index]) if len(demand.continues) else -1
        if earlier >= 0:
            before = self._said[earlier]
        else:
            shared = min(demand.sharing.prefix_tokens, tokens)
            before = ((("group", int(demand.group[index])), shared),) if shared else ()
        if not len(demand.continues) and demand.answers == 1:
            return before
        index -= index % demand.answers  # of several answers to one prompt, all have read the same
        new = tokens - sum(size for _, size in before)
        pieces = (*before, (("talk", self._number + index), new)) if new > 0 else before
        self._said[index] = (*pieces, (("answer", self._number + index), int(demand.output_tokens[index])))
        return pieces


def _after(earlier: SimulatedRequest, later: SimulatedRequest) -> tuple[Piece, ...]:
    """The pieces of a later prompt that stand where the earlier one's answer does: none where it does not go on."""
    count = len(earlier.pieces)
    if later.pieces[:count] != earlier.pieces or sum(size for _, size in earlier.pieces) != earlier.input_tokens:
        return earlier.answer
    found, end = [], earlier.input_tokens
    for name, size in later.pieces[count:]:
        end += size
        if end > earlier.input_tokens + earlier.output_tokens:
            break
        found.append((name, size))
    return tuple(found) or earlier.answer


def _is_plain(demand: Demand) -> bool:
    return not demand.after and not demand.pieces and not demand.sharing.prefix_tokens and demand.answers == 1
