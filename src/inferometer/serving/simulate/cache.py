"""The free blocks of a paged cache, and the contents of earlier prompts that they still hold.

As in engines, a block that is given back keeps its content until somebody else needs it. The one that was given back
first is taken first, and of one request's blocks the last ones, so that the beginning of a prompt survives. Blocks
come in pieces that are equal for several requests (a shared prefix, a block of a trace, the talk of a session).

With tiers below it (the host's memory, a disk, a shared store) a lost block goes to the first tier, and from there to
the next. A request for it has it moved back, and waits for that.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from inferometer.core.frozen import frozen

Piece = tuple[Hashable, int]  # its name, and its tokens

_NOT_PROMPTS = {"free", "own"}  # begin the names of blocks without content, and of what a preempted request computed


@frozen
class Tier:
    """Room below a cache: its blocks, and the seconds that one takes to come back."""

    blocks: int
    load_s: float


class _Lower:
    """A tier and what it holds, the oldest first."""

    __slots__ = ("held", "pieces", "tier")

    def __init__(self, tier: Tier) -> None:
        self.tier, self.held, self.pieces = tier, 0, OrderedDict[Hashable, int]()

    def put(self, name: Hashable, count: int) -> list[Piece]:
        """Hold blocks of a piece; returns the pieces that have no room any more."""
        self.pieces[name] = self.pieces.pop(name, 0) + count
        self.held += count
        falling = []
        while self.held > self.tier.blocks:
            falling.append(self.pieces.popitem(last=False))
            self.held -= falling[-1][1]
        return falling

    def drop(self, name: Hashable, most: int) -> int:
        """Drop up to `most` blocks of a piece; returns how many there were."""
        held = self.pieces.get(name, 0)
        if held > most:
            self.pieces[name] = held - most
            held = most
        elif held:
            del self.pieces[name]
        self.held -= held
        return held


class BlockPool:
    """`free` counts the unused blocks, with content or without; `loading_s` is the time spent on moving blocks back."""

    __slots__ = ("_lower", "_nameless", "_used", "block_tokens", "blocks", "free", "kept", "loaded", "loading_s")

    def __init__(self, blocks: int, block_tokens: int, tiers: Sequence[Tier] = ()) -> None:
        self._lower = [_Lower(tier) for tier in tiers]
        self.loaded, self.loading_s = 0, 0.0
        self.blocks, self.block_tokens, self.free = blocks, block_tokens, blocks
        self.kept: OrderedDict[Hashable, int] = OrderedDict({("free", 0): blocks})  # the oldest first
        self._nameless = ("free", 0)  # the last that was given back without a name
        # Pieces in use: by how many requests, the most blocks that one of them has (a prompt that is shorter than a
        # prefix ends within it), and how many of those have been computed. What is kept of such a piece, or lies below,
        # goes on where its use ends: then all that is in use has been computed.
        self._used: dict[Hashable, list[int]] = {}

    def take(self, count: int) -> None:
        """Take blocks, the contents that were given back first being lost first."""
        self.free -= count
        kept = self.kept
        while count > 0:
            name = next(iter(kept))
            held = kept[name]
            if self._lower and not (isinstance(name, tuple) and name[0] in _NOT_PROMPTS):
                self._spill(name, min(held, count))
            if held > count:
                kept[name] = held - count
                return
            del kept[name]
            count -= held

    def _spill(self, name: Hashable, count: int) -> None:
        """Lost blocks of a piece go to the first tier, and what it has no room for goes one tier further."""
        falling = [(name, count)]
        for lower in self._lower:
            falling = [lost for piece in falling for lost in lower.put(*piece)]

    def _lift(self, name: Hashable, most: int) -> int:
        """Move up to `most` blocks of a piece back from the tiers; returns how many there were."""
        lifted = 0
        for lower in self._lower:
            blocks = lower.drop(name, most - lifted)
            lifted += blocks
            self.loading_s += blocks * lower.tier.load_s
        self.loaded += lifted
        return lifted

    def give(self, count: int, name: Hashable = None) -> None:
        """Give blocks back; with a name, their content can be found again."""
        if count <= 0:
            return
        self.free += count
        if name is None:
            if self._nameless in self.kept and next(reversed(self.kept)) == self._nameless:
                self.kept[self._nameless] += count
                return
            name = self._nameless = ("free", self._nameless[1] + 1)
        self.kept[name] = self.kept.pop(name, 0) + count

    def found(self, pieces: Sequence[Piece]) -> int:
        """How many blocks of these pieces are there, from the first one on."""
        blocks, tokens, block = 0, 0, self.block_tokens
        for name, size in pieces:
            before, tokens = tokens, tokens + size
            whole = tokens // block - before // block  # `_whole`, without a call: each router asks each cache
            used = self._used.get(name)
            held = 0 if used is None else used[2]
            if held < whole:
                held += self.kept.get(name, 0)
                for lower in self._lower:
                    held += lower.pieces.get(name, 0)
                if held < whole:
                    return blocks + held
            blocks += whole
        return blocks

    def sought(self, pieces: Sequence[Piece]) -> tuple[int, int, int]:
        """Of the blocks of these pieces: how many are there, how many free ones using them takes, and all of them.

        A free one is taken for each that no request uses yet, with content or without.
        """
        need, tokens = 0, 0
        for name, size in pieces:
            used = self._used.get(name)
            more = self._whole(tokens, size) - (0 if used is None else used[1])
            if more > 0:
                need += more
            tokens += size
        return self.found(pieces), need, tokens // self.block_tokens

    def use(self, pieces: Sequence[Piece]) -> None:
        """Use pieces, those that are there and new ones."""
        tokens = 0
        for name, size in pieces:
            whole = self._whole(tokens, size)
            tokens += size
            used = self._used.get(name)
            if used is None:
                used = self._used[name] = [0, 0, 0]
            used[0] += 1
            more = whole - used[1]
            if more <= 0:
                continue
            used[1] = whole
            held = self.kept.get(name, 0)
            if held > more:
                self.kept[name] = held - more
                held = more
            elif held:
                del self.kept[name]
            self.free -= held
            used[2] += held + self._lift(name, more - held)
            if more > held:
                self.take(more - held)

    def fill(self, pieces: Sequence[Piece], tokens: int) -> None:
        """Mark tokens of a prompt as computed, now or in this step: requests that come from here on find them."""
        before, block = 0, self.block_tokens
        for name, size in pieces:
            if before >= tokens:
                return
            piece = self._used[name]
            piece[2] = max(piece[2], min(before + size, tokens) // block - before // block)
            before += size

    def remember(self, before: int, pieces: Sequence[Piece], tokens: int, most: int) -> int:
        """Give back blocks of an answer, up to `tokens`, under the names that the next prompt has for them.

        The answer begins after `before` tokens. Returns how many blocks were given back, `most` of them at most.
        """
        returned = 0
        for name, size in pieces:
            whole = min(self._whole(before, min(size, tokens - before)), most - returned) if tokens > before else 0
            before += size
            if whole > 0 and name not in self._used and name not in self.kept:
                for lower in self._lower:
                    lower.drop(name, whole)  # it is here again, computed anew
                self.give(whole, name)
                returned += whole
        return returned

    def leave(self, pieces: Sequence[Piece]) -> None:
        """Stop using pieces, the last first, so that the beginning stays."""
        for name, _ in reversed(pieces):
            users = self._used[name]
            users[0] -= 1
            if not users[0]:
                del self._used[name]
                self.give(users[1] - users[2])  # blocks that a prompt had and did not fill
                self.give(users[2], name)

    def _whole(self, before: int, size: int) -> int:
        """Whole blocks that end within a piece, which begins after `before` tokens."""
        return (before + size) // self.block_tokens - before // self.block_tokens

    @property
    def is_plain(self) -> bool:
        """Whether no free block holds anything that could be found again, and no block is shared."""
        if self._used or any(lower.held for lower in self._lower):
            return False
        return len(self.kept) <= 1 and (not self.kept or self._nameless in self.kept)

    def refill(self, free: int) -> None:
        """Set the free blocks of a pool that is plain."""
        self.free = free
        self.kept.clear()
        if free:
            self.kept[self._nameless] = free

    @property
    def used(self) -> int:
        return self.blocks - self.free

    @property
    def is_whole(self) -> bool:
        """Whether the books balance: every free block is listed once, nothing is negative, no tier holds too much.

        And where a piece goes on below or among the free blocks, what is in use of it has been computed.
        """
        return (
            self.free == sum(self.kept.values())
            and 0 <= self.free <= self.blocks
            and min(self.kept.values(), default=1) > 0
            and all(lower.held == sum(lower.pieces.values()) <= lower.tier.blocks for lower in self._lower)
            and all(
                used[0] > 0 and 0 <= used[2] <= used[1] and (used[2] == used[1] or not self._goes_on(name))
                for name, used in self._used.items()
            )
        )

    def _goes_on(self, name: Hashable) -> bool:
        return name in self.kept or any(name in lower.pieces for lower in self._lower)
