"""The requests to send: when, how long, and what they share. Made from a seed; a client or a simulator plays it."""

from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.traffic.arrivals import Arrivals, Times, arrival_times
from inferometer.core.traffic.lengths import Lengths, Tokens, draw
from inferometer.core.traffic.trace_forms import Block, TraceLine
from inferometer.core.traffic.traces import Message, Named, RequestTrace, trace_of


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


def evenly(number: int, by: float) -> float:
    """A place between 0 and 1 for each number, none twice and all spread evenly: multiples of an irrational number."""
    return number * by % 1.0


def require_share_and_time(cancels: tuple[float, float] | None) -> None:
    """Of requests that are taken back."""
    if cancels is not None and not (0 < cancels[0] <= 1 and cancels[1] > 0):
        raise DomainError(
            "Requests that are taken back are a share above 0 and up to 1, after a time.",
            remedy="Write --cancel 0.1:5s.",
        )


def is_taken_back(number: int, share: float) -> bool:
    """Whether a request is one of the share whose asker goes away."""
    return evenly(number, 2**0.5) < share


def class_of(shares: Sequence[float], number: int) -> int:
    """The class of a request: each has its share of them, spread evenly (by the golden ratio's multiples)."""
    place, reached = evenly(number, 0.6180339887498949), 0.0
    for order, share in enumerate(shares):
        reached += share
        if place < reached:
            return order
    return len(shares) - 1


def classes_of(shares: Sequence[float], numbers: Sequence[int]) -> list[int]:
    """As `class_of`, of many requests at once; without shares all are of one class."""
    if not shares:
        return [0] * len(numbers)
    places = np.asarray(numbers, float) * 0.6180339887498949 % 1.0
    found: list[int] = np.searchsorted(np.cumsum(shares), places, side="right").clip(max=len(shares) - 1).tolist()
    return found


@frozen
class Demand:
    """One entry a request, each after the requests that it waits for.

    `due_s` is empty in a closed loop, where a request is due when a place is free.
    `after` has the places of the requests whose answers one waits for, and `wait_s` how long after the last of them it
    comes: but not before `due_s`. Whoever waits for nobody comes by the clock, or takes a place. `continues` is the
    request with whose prompt and answer this prompt begins, −1 for none; its `input_tokens` are then the new ones.
    """

    input_tokens: Tokens
    output_tokens: Tokens
    due_s: Times = field(default_factory=lambda: np.empty(0))
    session: Tokens = field(default_factory=lambda: np.empty(0, np.int64))
    turn: Tokens = field(default_factory=lambda: np.empty(0, np.int64))
    group: Tokens = field(default_factory=lambda: np.empty(0, np.int64))
    after: tuple[tuple[int, ...], ...] = ()
    wait_s: Times = field(default_factory=lambda: np.empty(0))
    continues: Tokens = field(default_factory=lambda: np.empty(0, np.int64))
    pieces: tuple[tuple[Named, ...], ...] = ()
    messages: tuple[tuple[Message, ...], ...] = ()
    sharing: Sharing = field(default_factory=Sharing)
    seed: int = 0
    answers: int = 1  # to one prompt: so many entries after each other are of the same request

    def __post_init__(self) -> None:
        if self.sharing.turns > 1 and not self.after:  # turns of equal number stand one after the other
            before = np.where(self.turn > 0, np.arange(len(self)) - 1, -1)
            object.__setattr__(self, "after", tuple((one,) if one >= 0 else () for one in before.tolist()))
            object.__setattr__(self, "wait_s", np.full(len(self), self.sharing.think_s))
            object.__setattr__(self, "continues", before)

    def __len__(self) -> int:
        return len(self.input_tokens)

    @property
    def is_open(self) -> bool:
        return len(self.due_s) > 0

    @property
    def first(self) -> list[int]:
        """Requests that wait for no answer; in a closed loop, those of one strand together: they share a place."""
        if not self.after:
            return [*range(len(self))]
        first = [index for index, before in enumerate(self.after) if not before]
        strands = self.strands().tolist()
        rank = {strand: at for at, strand in reversed([*enumerate(strands[index] for index in first)])}
        return first if self.is_open else sorted(first, key=lambda index: rank[strands[index]])

    def prompt_tokens(self) -> Tokens:
        """Whole prompts: what is new, and the talk that they continue, where every answer is as long as was asked."""
        whole = self.input_tokens.tolist()
        for index, earlier in enumerate(self.continues.tolist()):
            if earlier >= 0:
                whole[index] += whole[earlier] + int(self.output_tokens[earlier])
        return np.array(whole, np.int64)

    def part(self, number: int, of: int) -> "Demand":
        """Every `of`-th session, from the `number`-th on: the share of one of several processes."""
        chosen = np.flatnonzero(self.strands() % of == number)
        place = {index: at for at, index in enumerate(chosen.tolist())}
        return Demand(
            input_tokens=self.input_tokens[chosen],
            output_tokens=self.output_tokens[chosen],
            due_s=self.due_s[chosen] if self.is_open else self.due_s,
            session=self.session[chosen],
            turn=self.turn[chosen],
            group=self.group[chosen],
            after=tuple(tuple(place[other] for other in self.after[index]) for index in place) if self.after else (),
            wait_s=self.wait_s[chosen] if len(self.wait_s) else self.wait_s,
            continues=np.array([place.get(one, -1) for one in self.continues[chosen].tolist()], np.int64)
            if len(self.continues)
            else self.continues,
            pieces=tuple(self.pieces[index] for index in chosen) if self.pieces else (),
            messages=tuple(self.messages[index] for index in chosen) if self.messages else (),
            sharing=self.sharing,
            seed=self.seed,
            answers=self.answers,
        )

    def with_answers(self, count: int) -> "Demand":
        """The same with several answers to each prompt (`n`): an entry each; what follows waits for all of them."""
        if count == 1:
            return self
        before = (tuple(one * count + k for one in entry for k in range(count)) for entry in self.after)
        return replace(
            self,
            input_tokens=np.repeat(self.input_tokens, count),
            output_tokens=np.repeat(self.output_tokens, count),
            due_s=np.repeat(self.due_s, count),
            session=np.repeat(self.session, count),
            turn=np.repeat(self.turn, count),
            group=np.repeat(self.group, count),
            wait_s=np.repeat(self.wait_s, count),
            after=tuple(entry for entry in before for _ in range(count)),
            continues=np.repeat(np.where(self.continues >= 0, self.continues * count, -1), count),
            pieces=tuple(entry for entry in self.pieces for _ in range(count)),
            messages=tuple(entry for entry in self.messages for _ in range(count)),
            answers=count,
        )

    def strands(self) -> Tokens:
        """A number for each request, the same for all that wait for each other: their session's, or one of theirs."""
        strands = self.session.tolist()
        joined = list(range(max(strands, default=-1) + 1))

        def root(strand: int) -> int:
            while joined[strand] != strand:
                strand = joined[strand]
            return strand

        for index, before in enumerate(self.after):
            for other in before:
                joined[root(strands[index])] = root(strands[other])
        return np.array([root(strand) for strand in strands], np.int64)


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


def trace_demand(trace: RequestTrace, *, arrivals: Arrivals | None = None, timed: bool = True, seed: int = 0) -> Demand:
    """A trace as it was; with `arrivals`, those that wait for nobody come by these; not `timed`, as places allow.

    A later turn of a session goes on from the one before it, where its prompt is as long as that and its answer; a
    shorter one begins anew. Where the trace names pieces of prompts, those alone say what is the same.
    """
    count = len(trace)
    inputs, continues = trace.input_tokens.copy(), np.full(count, -1, np.int64)
    if trace.after and not trace.pieces:
        for index, before in enumerate(trace.after):
            own = [other for other in before if trace.session[other] == trace.session[index]]
            new = trace.input_tokens[index] - sum(trace.input_tokens[own[:1]] + trace.output_tokens[own[:1]])
            if own and new >= 1:
                inputs[index], continues[index] = new, own[0]
    due = np.nan_to_num(trace.arrival_s, nan=0.0)
    if not timed:
        due = np.empty(0)
    elif arrivals is not None:
        first = [index for index, before in enumerate(trace.after) if not before] if trace.after else slice(None)
        due = np.zeros(count)
        due[first] = arrival_times(arrivals, np.random.default_rng(seed), count=trace.first_turns)
    return Demand(
        input_tokens=inputs,
        output_tokens=trace.output_tokens,
        due_s=due,
        session=trace.session if len(trace.session) else np.arange(count),
        turn=trace.turn if len(trace.turn) else np.zeros(count, np.int64),
        group=np.zeros(count, np.int64),
        after=trace.after,
        wait_s=trace.wait_s,
        continues=continues if trace.after else np.empty(0, np.int64),
        pieces=trace.pieces,
        messages=trace.messages,
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


# Made-up agents: sessions of many calls, each with the talk so far, with waits for tools and sub-agents in between.


@frozen
class Agents:
    """What a crowd of agents is like. Lengths are tokens; those of `tool_s` are seconds.

    All agents begin with the same `system` tokens, then their own `task`. Each of `calls` adds its answer and what a
    tool found (`result`) to the talk; a talk that would be longer than `context` begins anew with a summary of a
    tenth. After a `delegated` share of the calls two sub-agents work on a third of the calls, and the next call waits
    for both.
    """

    sessions: int
    rate_per_s: float = 0.1
    system: int = 3000
    task: Lengths = Lengths(kind="lognormal", mean=400, deviation=500)
    calls: Lengths = Lengths(kind="lognormal", mean=12, deviation=10)
    answer: Lengths = Lengths(kind="lognormal", mean=180, deviation=200)
    result: Lengths = Lengths(kind="lognormal", mean=700, deviation=1200)
    tool_s: Lengths = Lengths(kind="lognormal", mean=3, deviation=6, low=0)
    delegated: float = 0.05
    context: int = 128_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.calls.mean < 1:
            raise DomainError("An agent makes 1 call or more.", remedy="Write --calls 12.")
        if self.sessions < 1 or not 0 <= self.delegated <= 1 or self.context < 2 * self.system:
            raise DomainError(
                f"{self.sessions} agents that delegate {self.delegated:g} of their calls and hold {self.context} "
                "tokens cannot be.",
                remedy="There is 1 or more, the share is between 0 and 1, and twice what all begin with fits.",
            )


def made_up(agents: Agents) -> RequestTrace:
    """The calls of all agents as a trace, the same for the same seed."""
    rng = np.random.default_rng(agents.seed)
    starts = arrival_times(Arrivals(rate_per_s=agents.rate_per_s), rng, count=agents.sessions)
    lines: list[TraceLine] = []
    for number, start in enumerate(starts.tolist()):
        count = int(draw(agents.calls, 1, rng)[0])
        lines += _session(agents, rng, f"agent-{number}", count, at_s=start)
    return trace_of("made-up agents", "ours", lines)


def _session(  # noqa: PLR0913 - who, how long, and what it waits for
    agents: Agents,
    rng: np.random.Generator,
    name: str,
    calls: int,
    *,
    at_s: float | None = None,
    after: tuple[str, ...] | None = None,
) -> list[TraceLine]:
    task, answers, results = (draw(each, calls, rng) for each in (agents.task, agents.answer, agents.result))
    waits = draw(agents.tool_s, calls, rng)
    talk: list[Block] = [("system", agents.system), (f"{name} task", int(task[0]))]
    lines: list[TraceLine] = []
    for turn in range(calls):
        held = sum(size for _, size in talk)
        if held + int(answers[turn]) > agents.context:
            talk = [("system", agents.system), (f"{name} summary {turn}", max(1, agents.context // 10))]
            held = sum(size for _, size in talk)
        lines.append(
            TraceLine(
                session=name, turn=turn, at_s=at_s if not turn else None, after=after,
                wait_s=float(waits[turn]) if turn else 0.0, input_tokens=held, output_tokens=int(answers[turn]),
                blocks=tuple(talk),
            )
        )  # fmt: skip
        after = None
        talk += [(f"{name} answer {turn}", int(answers[turn])), (f"{name} result {turn}", int(results[turn]))]
        if at_s is not None and turn + 1 < calls and rng.random() < agents.delegated:
            helpers = [f"{name}.{turn}{letter}" for letter in "ab"]
            for helper in helpers:
                lines += _session(agents, rng, helper, max(1, calls // 3), after=(f"{name}/{turn}",))
            after = (name, *helpers)
    return lines
