"""Made-up agents: sessions of many calls, each with the talk so far, with waits for tools and sub-agents in between."""

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.traffic.arrivals import Arrivals, arrival_times
from inferometer.core.traffic.lengths import Lengths, draw
from inferometer.core.traffic.trace_forms import Block, TraceLine
from inferometer.core.traffic.traces import RequestTrace, trace_of


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
