"""Slots with a cache each: which one takes a request, and how much of its prompt is cached there.

As llama.cpp's server does it (tools/server, `get_available_slot`): of the idle slots the one whose last prompt begins
most like the new one, if that is more than a tenth of it; otherwise the one that has been idle longest. What a slot
then loses of its last prompt is gone, unless less than half of it stays: then it goes to the host's memory first. A
prompt comes back from there if it begins more like the new one than the slot's content. The prompts of all other
idle slots are copied there whenever a request begins (`--cache-idle-slots`). Held against what the server says of each
request: tests/golden/test_llamacpp_slots.py.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import TYPE_CHECKING

from inferometer.core.frozen import frozen

if TYPE_CHECKING:
    from inferometer.serving.simulate.cache import Piece
    from inferometer.serving.simulate.request import SimulatedRequest

# Of llama.cpp's server: --slot-prompt-similarity, the share that a slot must keep of its prompt so that nothing is put
# away, and the share of a prompt in the host's memory below which it is not worth taking out.
_ALIKE, _STAYS, _WORTH = 0.1, 0.5, 0.25


@frozen
class Prompt:
    """Tokens that lie in a slot or in the host's memory, as pieces that others may begin with too."""

    pieces: tuple[tuple[Hashable, int], ...] = ()
    tokens: int = 0

    @classmethod
    def of(cls, pieces: tuple[Piece, ...]) -> Prompt:
        return cls(pieces=pieces, tokens=sum(size for _, size in pieces))

    def alike(self, other: Prompt) -> int:
        """How many tokens both begin with."""
        tokens = 0
        for (name, size), (other_name, other_size) in zip(self.pieces, other.pieces, strict=False):
            if name != other_name:
                break
            tokens += min(size, other_size)
            if size != other_size:
                break
        return tokens


_NOTHING = Prompt()


class Slots:
    """`taken` has the slot of each request that is in one; `decoding` are the slots whose requests write."""

    __slots__ = ("_asked", "_away", "_fresh", "_left", "_prompts", "_turn", "decoding", "taken")

    def __init__(self, count: int, away_tokens: float = inf) -> None:
        self._prompts = [_NOTHING] * count
        self._left = [0] * count  # when each was left, in departures
        self._turn = 0
        self._away = _Away(away_tokens)
        self._fresh: set[int] = set()  # idle slots whose prompts are not in the host's memory yet
        self._asked: dict[SimulatedRequest, tuple[Prompt, tuple[Piece, ...]]] = {}
        self.taken: dict[SimulatedRequest, int] = {}
        self.decoding: set[int] = set()

    def note(self, request: SimulatedRequest) -> None:
        """Keep the pieces of a request's prompt and answer: no block of the pool is shared."""
        own = request.input_tokens - sum(size for _, size in request.pieces)
        pieces = (*request.pieces, (("own", request.number), own)) if own > 0 else request.pieces
        *first, (name, size) = request.answer or ((("answer", request.number), request.output_tokens),)
        # the last token was made and not read
        self._asked[request] = Prompt.of(pieces), (*first, (name, size - 1)) if size > 1 else (*first,)
        request.pieces = request.answer = ()

    def take(self, request: SimulatedRequest) -> int:
        """Put a request into a slot; returns how many tokens of its prompt that one has."""
        asked = self._asked[request][0]
        slot, is_alike = self._chosen(asked)
        had = self._prompts[slot]
        in_common = had.alike(asked)
        if not (is_alike and in_common >= _STAYS * had.tokens):
            self._away.put(had)
            in_common = self._away.best(had, asked).alike(asked)
        self._fresh.discard(slot)
        self._prompts[slot] = asked
        self.taken[request] = slot
        for other in self._fresh:  # whoever is idle and was not copied yet
            self._away.put(self._prompts[other])
        self._fresh.clear()
        return in_common

    def leave(self, request: SimulatedRequest) -> None:
        """Its slot is idle, and holds what was read and written."""
        asked, answer = self._asked.pop(request)
        slot = self.taken.pop(request, None)
        if slot is None:
            return
        self.decoding.discard(slot)
        self._turn += 1
        self._left[slot] = self._turn
        self._fresh.add(slot)
        self._prompts[slot] = Prompt.of((*asked.pieces, *answer))

    def rows(self) -> list[int]:
        """How many neighbours write together, row by row."""
        rows: list[int] = []
        before = -2
        for slot in sorted(self.decoding):
            if slot == before + 1:
                rows[-1] += 1
            else:
                rows.append(1)
            before = slot
        return rows

    def _chosen(self, asked: Prompt) -> tuple[int, bool]:
        busy = set(self.taken.values())
        idle = [place for place in range(len(self._prompts)) if place not in busy]
        alike = {place: self._prompts[place].alike(asked) / asked.tokens for place in idle}
        best = max(idle, key=lambda place: alike[place])
        if alike[best] > _ALIKE:
            return best, True
        # the longest idle; of those that nobody has used yet the last
        return min(idle, key=lambda place: (self._left[place], -place)), False


class _Away:
    """Prompts in the host's memory, up to a number of tokens: the first one in is the first one out."""

    __slots__ = ("_alike", "_most", "_number", "_order", "_tokens")

    def __init__(self, most: float) -> None:
        self._most, self._tokens = most, 0
        self._alike: dict[Hashable, dict[int, Prompt]] = {}  # by what they begin with, and by their number
        self._order: dict[int, Hashable] = {}  # by number, the first one first: what it begins with
        self._number = 0

    def put(self, prompt: Prompt) -> None:
        if not prompt.pieces:
            return
        name = prompt.pieces[0][0]
        held = self._alike.get(name, {})
        contained = []
        for number, other in held.items():
            alike = other.alike(prompt)
            if alike == prompt.tokens:
                return  # it is there already, as the begin of another
            if alike == other.tokens:
                contained.append(number)
        for number in contained:
            self._remove(number)
        self._number += 1
        self._alike.setdefault(name, {})[self._number] = prompt
        self._order[self._number] = name
        self._tokens += prompt.tokens
        while self._tokens > self._most:
            self._remove(next(iter(self._order)))

    def best(self, had: Prompt, asked: Prompt) -> Prompt:
        """Take out the prompt that begins more like the new one than the slot's, and of which more is of use."""
        best, same, number = had, had.alike(asked), 0
        share = same / had.tokens if had.tokens else 0.0
        for other, held in self._alike.get(asked.pieces[0][0], {}).items():
            alike = held.alike(asked)
            if alike >= _WORTH * held.tokens and alike / held.tokens > share and alike > same:
                best, same, share, number = held, alike, alike / held.tokens, other
        if number:
            self._remove(number)
        return best

    def _remove(self, number: int) -> None:
        name = self._order.pop(number)
        self._tokens -= self._alike[name].pop(number).tokens
        if not self._alike[name]:
            del self._alike[name]
