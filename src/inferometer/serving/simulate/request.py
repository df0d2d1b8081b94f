"""A request on its way through a simulated service."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inferometer.serving.simulate.cache import Piece


class SimulatedRequest:
    """Made by the million: what has not happened yet stands once, in the class. Times are seconds; NaN is not yet.

    `target` is how many tokens must be read before its next token: the prompt, and after a preemption also what it had
    made. `done` counts those that are read. A request that is `ready` brings them along (from another pool, or from
    the host's memory) and only needs the room. While it decodes, `base` is its context less
    the engine's tick, `end` the tick of its last token (0: it does not decode), and `turn` tells in which ticks it
    takes one more block, beside the `blocks` it had before.
    """

    __slots__ = (
        "adapter", "answer", "base", "blocks", "done", "due", "end", "first", "found", "images", "input_tokens", "last",
        "left_at", "made", "number", "output_tokens", "pieces", "priority", "ready", "sent", "shared", "target", "turn",
        "until",
    )  # fmt: skip

    base: float
    turn: int
    blocks: int  # set when it is admitted
    first: float
    until: float  # when whoever asked goes away; set where somebody may
    adapter: int  # −1 for none; set where there are adapters
    images: tuple[int, ...]  # set where there is an encoder
    found: int  # tokens that were cached when it was admitted; not set where nothing is shared

    def __init__(self, number: int, due: float, input_tokens: int, output_tokens: int) -> None:
        self.number = number
        self.due = self.sent = due
        self.input_tokens = self.target = input_tokens
        self.output_tokens = output_tokens
        self.done = self.made = self.shared = self.end = self.priority = 0
        self.last = self.left_at = nan
        self.ready = False
        self.pieces: tuple[Piece, ...] = ()
        self.answer: tuple[Piece, ...] = ()  # the name of this one's answer in the next turn's prompt

    def __lt__(self, other: SimulatedRequest) -> bool:
        return self.number < other.number
