"""What a load test is asked to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.served import Level, Loop, Objective
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.demand import (
    Demand,
    Sharing,
    closed_demand,
    open_demand,
    require_share_and_time,
    trace_demand,
)
from inferometer.core.traffic.lengths import Lengths
from inferometer.core.traffic.traces import RequestTrace
from inferometer.serving.load.apis import Api, AudioAsked
from inferometer.serving.load.pool import Security

_PER_PLACE = 10  # requests a place, where nobody said how many
_DEFAULT_REQUESTS = 100
_MOST_IN_TIME = 200_000  # requests of a closed loop that runs for a time: their lengths are drawn ahead


@frozen
class LoadStep:
    """One load of a sweep: places in a closed loop, or arrivals in an open one, or a trace."""

    concurrency: int | None = None
    arrivals: Arrivals | None = None

    @property
    def name(self) -> str:
        if self.concurrency is not None:
            return f"{self.concurrency} at once"
        if self.arrivals is None:
            return "replay"
        rate = f"{self.arrivals.rate_per_s:g}"
        return f"{rate}/s" if self.arrivals.to_per_s is None else f"{rate} to {self.arrivals.to_per_s:g}/s"

    @property
    def load(self) -> float:
        rate = self.arrivals.rate_per_s if self.arrivals is not None else 0.0
        return float(self.concurrency) if self.concurrency is not None else rate


@frozen
class LoadPlan:
    """`saturate` goes on from the last step by doubling until more load brings no more.

    `within` goes on by bisection, to the highest load within the objectives.
    """

    url: str
    model: str | None = None
    api: Api = "chat"
    stream: bool = True
    steps: tuple[LoadStep, ...] = (LoadStep(concurrency=1),)
    saturate: bool = False
    within: bool = False
    trace: RequestTrace | None = None
    requests: int | None = None
    duration_s: float | None = None
    warmup: int | None = None  # requests that are sent first and not counted; None: a few
    rounds: int = 1
    prompt: Lengths = Lengths(kind="fixed", mean=128)
    generate: Lengths = Lengths(kind="fixed", mean=64)
    sharing: Sharing = Sharing()
    objectives: tuple[Objective, ...] = ()
    processes: int = 1
    timeout_s: float = 600.0
    headers: tuple[tuple[str, str], ...] = ()
    extra: dict[str, Any] | None = None
    template: str | None = None
    method: str = "POST"
    ignore_eos: bool = True
    security: Security = Security()
    proxy: str | None = None  # its address, or `off`; None: the environment's
    tokenizer: str | None = None  # on this machine: a file, a folder or a name
    device: str | None = None
    seed: int = 0
    # What the words of prompts are drawn by. None: others in each test, for a server's prefix cache would know those of
    # the test before, and its first tokens would come sooner than users' do.
    words: int | None = None
    command: str | None = None
    cancels: tuple[float, float] | None = None  # a share of the requests, and seconds after which these are taken back
    mix: tuple[tuple[str, float], ...] = ()  # models and their shares, instead of one
    images: tuple[int, int, int] | None = None  # of a message: how many, width, height
    audio: AudioAsked | None = None  # of a message, or to be transcribed
    telemetry: str | None = None  # the address of a page with DCGM's figures of the server's GPUs
    done: tuple[Level, ...] = ()  # levels of the same test that were played before, and are not played again

    def __post_init__(self) -> None:
        for name, value, least in (
            ("requests", self.requests, 1),
            ("rounds", self.rounds, 1),
            ("processes", self.processes, 1),
            ("warmup", self.warmup, 0),
        ):
            if value is not None and value < least:
                raise DomainError(f"{name} must be {least} or more, and is {value}.")
        require_share_and_time(self.cancels)
        if self.images is not None and self.api != "chat":
            raise DomainError("Images go with messages.", remedy="Leave --api out, or --images.")
        if self.audio is not None and self.api not in {"chat", "transcriptions"}:
            raise DomainError("Audio goes with messages and transcriptions.", remedy="Leave --api out, or --audio.")
        if self.duration_s is not None and not self.duration_s > 0:
            raise DomainError(f"The duration must be greater than 0, and is {self.duration_s!r} s.")

        if self.within and (not self.objectives or self.steps[0] == LoadStep()):
            raise DomainError(
                "The highest load within objectives needs objectives, and a load to begin with.",
                remedy='Write --rate 1 --within --slo "ttft_p95<=500ms".',
            )
        if self.trace is not None and not self.trace.is_timed and self.steps[0] == LoadStep():
            raise DomainError(
                f"{self.trace.name} does not say when its requests come.",
                remedy="Say it: --rate 2 for sessions a second, or --concurrency 8 for sessions at once.",
            )

    @property
    def loop(self) -> Loop:
        if self.trace is not None and self.steps[0] == LoadStep():
            return "trace"
        return "closed" if self.steps[0].concurrency is not None else "open"

    @property
    def arrivals(self) -> str:
        if self.loop == "trace":
            return self._replay
        if self.trace is not None:
            how = "each place plays a session" if self.loop == "closed" else f"sessions {self.steps[0].arrivals}"
            return f"{self._replay}: {how}"
        if self.loop == "closed":
            return "closed loop: each place sends when its last request was answered"
        if len(self.steps) > 1:
            process = self.steps[0].arrivals.process if self.steps[0].arrivals is not None else ""
            return f"open loop: {process}, {len(self.steps)} rates"
        return f"open loop: {self.steps[0].arrivals}"

    @property
    def _replay(self) -> str:
        assert self.trace is not None  # noqa: S101 - asked before
        sessions = f" in {self.trace.first_turns:,} sessions" if self.trace.after else ""
        return f"replay of {self.trace.name} ({self.trace.form}), {len(self.trace):,} requests{sessions}"

    @property
    def lengths(self) -> str:
        if self.trace is not None:
            prompts, answers = self.trace.input_tokens.mean(), self.trace.output_tokens.mean()
            counted = "; four letters counted as a token" if self.trace.estimated else ""
            left_out = f"; {self.trace.skipped:,} rows without tokens left out" if self.trace.skipped else ""
            return f"of the trace: prompts {prompts:,.0f} tokens, answers {answers:,.0f} on average{counted}{left_out}"
        shared = self.sharing
        answers = "" if self.api in {"embeddings", "rerank"} else f", answers {self.generate}"
        parts = [f"prompts {self.prompt} tokens{answers}"]
        if shared.prefix_tokens:
            groups = f" in {shared.groups} groups" if shared.groups > 1 else ""
            parts.append(f"the first {shared.prefix_tokens} shared{groups}")
        if shared.turns > 1:
            parts.append(f"{shared.turns} turns a session, {shared.think_s:g} s between them")
        return "; ".join(parts)


def step_of(level: Level, plan: LoadPlan) -> LoadStep:
    """The load that a level was of."""
    if level.concurrency is not None or level.rate_per_s is None or plan.loop == "trace":
        return LoadStep(concurrency=level.concurrency)
    arrivals = plan.steps[0].arrivals or Arrivals(rate_per_s=level.rate_per_s)
    return LoadStep(arrivals=replace(arrivals, rate_per_s=level.rate_per_s, to_per_s=level.rate_to_per_s))


def demand_of(plan: LoadPlan, step: LoadStep, *, number: int) -> Demand:
    """The requests of one round. Every round and level has its own prompts, so that no cache knows them."""
    seed = plan.seed * 1_000_003 + number
    if plan.trace is not None:
        return trace_demand(plan.trace, arrivals=step.arrivals, timed=step.concurrency is None, seed=seed)
    if step.concurrency is None:
        assert step.arrivals is not None  # noqa: S101 - a step has places or arrivals
        count = plan.requests or (None if plan.duration_s else _DEFAULT_REQUESTS)
        return open_demand(
            step.arrivals, plan.prompt, plan.generate, count=count, duration_s=plan.duration_s, sharing=plan.sharing,
            seed=seed,
        )  # fmt: skip
    most = _MOST_IN_TIME if plan.duration_s else max(_DEFAULT_REQUESTS, _PER_PLACE * step.concurrency)
    return closed_demand(plan.prompt, plan.generate, count=plan.requests or most, sharing=plan.sharing, seed=seed)
