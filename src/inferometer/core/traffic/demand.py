"""The requests to send: when, how long, and what they share. Made from a seed; a client or a simulator plays it."""

from dataclasses import dataclass, field

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.traffic.arrivals import Arrivals, Times, arrival_times
from inferometer.core.traffic.lengths import Lengths, Tokens, draw
from inferometer.core.traffic.traces import RequestTrace


@frozen
class Sharing:
    """What prompts have in common: `prefix_tokens` at their begin, the same in each of `groups`; `turns` in a session.

    A session's next turn is sent `think_s` after the answer to the one before, and its prompt holds all of the talk so
    far.
    """

    prefix_tokens: int = 0
    groups: int = 1
    turns: int = 1
    think_s: float = 0.0

    def __post_init__(self) -> None:
        if self.prefix_tokens < 0 or self.groups < 1 or self.turns < 1 or not self.think_s >= 0:
            raise DomainError("A shared prefix, its groups, the turns of a session and the time to think are positive.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One entry a request. `due_s` is empty in a closed loop, where a request is due when a place is free.

    `session` and `turn` tell the turns of a talk; only a first turn is due by the clock. `input_tokens` of a later turn
    are its new ones.
    """

    input_tokens: Tokens
    output_tokens: Tokens
    due_s: Times = field(default_factory=lambda: np.empty(0))
    session: Tokens = field(default_factory=lambda: np.empty(0, np.int64))
    turn: Tokens = field(default_factory=lambda: np.empty(0, np.int64))
    group: Tokens = field(default_factory=lambda: np.empty(0, np.int64))
    blocks: tuple[tuple[int, ...], ...] = ()
    sharing: Sharing = field(default_factory=Sharing)
    seed: int = 0

    def __len__(self) -> int:
        return len(self.input_tokens)

    @property
    def is_open(self) -> bool:
        return len(self.due_s) > 0

    def part(self, number: int, of: int) -> "Demand":
        """Every `of`-th session, from the `number`-th on: the share of one of several processes."""
        chosen = np.flatnonzero(self.session % of == number)
        return Demand(
            input_tokens=self.input_tokens[chosen],
            output_tokens=self.output_tokens[chosen],
            due_s=self.due_s[chosen] if self.is_open else self.due_s,
            session=self.session[chosen],
            turn=self.turn[chosen],
            group=self.group[chosen],
            blocks=tuple(self.blocks[index] for index in chosen) if self.blocks else (),
            sharing=self.sharing,
            seed=self.seed,
        )


def open_demand(  # noqa: PLR0913 - when, how long, how many
    arrivals: Arrivals,
    prompt: Lengths,
    generate: Lengths,
    *,
    count: int | None = None,
    duration_s: float | None = None,
    sharing: Sharing | None = None,
    seed: int = 0,
) -> Demand:
    """Requests that come by the clock, whatever becomes of them. With sessions, it is their first turns that do."""
    sharing = sharing or Sharing()
    rng = np.random.default_rng(seed)
    sessions = None if count is None else max(1, -(-count // sharing.turns))
    due = arrival_times(arrivals, rng, count=sessions, duration_s=duration_s)
    if len(due) == 0:
        raise DomainError(
            f"{arrivals} brings no request in that time.", remedy="Ask for a longer time or a higher rate."
        )
    return _drawn(prompt, generate, due, len(due), sharing, seed, rng)


def closed_demand(
    prompt: Lengths, generate: Lengths, *, count: int, sharing: Sharing | None = None, seed: int = 0
) -> Demand:
    """Requests that are sent when a place is free."""
    if count < 1:
        raise DomainError(f"A load needs at least one request, and {count} were asked for.")
    sharing = sharing or Sharing()
    sessions = max(1, -(-count // sharing.turns))
    return _drawn(prompt, generate, np.empty(0), sessions, sharing, seed, np.random.default_rng(seed))


def trace_demand(trace: RequestTrace, *, seed: int = 0) -> Demand:
    count = len(trace)
    return Demand(
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        due_s=trace.arrival_s,
        session=np.arange(count),
        turn=np.zeros(count, np.int64),
        group=np.zeros(count, np.int64),
        blocks=trace.blocks,
        seed=seed,
    )


def _drawn(  # noqa: PLR0913, PLR0917 - what both kinds have
    prompt: Lengths,
    generate: Lengths,
    due: Times,
    sessions: int,
    sharing: Sharing,
    seed: int,
    rng: np.random.Generator,
) -> Demand:
    count, turns = sessions * sharing.turns, sharing.turns
    return Demand(
        input_tokens=draw(prompt, count, rng),
        output_tokens=draw(generate, count, rng),
        due_s=np.repeat(due, turns),
        session=np.repeat(np.arange(sessions), turns),
        turn=np.tile(np.arange(turns), sessions),
        group=np.repeat(rng.integers(0, sharing.groups, sessions), turns),
        sharing=sharing,
        seed=seed,
    )
