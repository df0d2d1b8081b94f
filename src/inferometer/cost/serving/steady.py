"""Many users at once, in closed form: what continuous batching settles to, and how long whole batches take.

Users each have one request under way; when it ends they send the next. In the time in which every sequence makes its
`generate` tokens, every user also brings one prompt, so a token's time is that of a decoding step and its share of the
prompts that ride along. Waiting is an average over a load test, which begins with all users at once.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

from inferometer.core.frozen import frozen
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from inferometer.core.engine import ServingRules
    from inferometer.cost.serving.memory import ServingMemory, StepLimits
    from inferometer.cost.serving.step import EngineStep

EIGHT_IN_TEN = 1.2816  # standard deviations on each side that hold so many readings


@frozen
class Traffic:
    """What each user asks for: tokens of a prompt, of which some are cached from before, and tokens to generate."""

    prompt: int
    generate: int
    cached: int = 0

    def __post_init__(self) -> None:
        if self.prompt < 1 or self.generate < 1 or not 0 <= self.cached < self.prompt:
            raise DomainError(
                f"A request has a prompt and an answer of 1 token or more, and not {self.prompt} and {self.generate} "
                f"with {self.cached} cached."
            )


@frozen
class Steady:
    """The steady state of one replica. `sequences` are under way at once; users beyond them wait for room."""

    sequences: int
    ttft_s: float
    tpot_s: float
    step_s: float
    bound: str  # what keeps it from being faster: decode, prompts, or memory
    ttft_spread: float
    tpot_spread: float

    @property
    def tokens_per_s(self) -> float:
        """Of all sequences together."""
        return self.sequences / self.tpot_s

    def interval(self, name: str) -> tuple[float, float]:
        """The ends between which eight in ten measurements of `ttft` or `tpot` lie."""
        seconds = self.ttft_s if name == "ttft" else self.tpot_s
        wide = exp(EIGHT_IN_TEN * (self.ttft_spread if name == "ttft" else self.tpot_spread))
        return seconds / wide, seconds * wide


@frozen
class PromptTimes:
    """A prompt of the traffic: `own_s` all steps that read it, `extra_s` what they take beyond decoding alone.

    `packed_s` is a prompt's share of steps that are full of prompts, `full_s` such a step with all others decoding.
    """

    own_s: float
    extra_s: float
    packed_s: float
    full_s: float


def steady_state(  # noqa: PLR0913, PLR0917 - an engine, its limits, and what is asked of it
    step: EngineStep,
    rules: ServingRules,
    limits: StepLimits,
    traffic: Traffic,
    users: int,
    memory: ServingMemory | None = None,
) -> Steady:
    """`users` of one replica; more than the cache or a step holds wait until others are done."""
    if users < 1:
        raise DomainError(f"There must be 1 user or more, and not {users}.")
    room = limits.sequences if memory is None else min(limits.sequences, _held(memory, traffic))
    sequences = max(1, min(users, room))
    context = traffic.prompt + traffic.generate / 2
    decode_s = float(step.decode_seconds(sequences, context))
    prompts = prompt_times(step, rules, limits, traffic, sequences)
    spread_s = decode_s + sequences * prompts.extra_s / traffic.generate
    tpot_s = min(spread_s, max(prompts.full_s, decode_s)) if rules.mixed else spread_s
    own_s = prompts.own_s + decode_s + step.costs.prompt_s.value
    together = step.costs.together.value * (sequences - 1) / 2 * prompts.packed_s
    late = max(0.0, sequences * prompts.packed_s - traffic.generate * tpot_s)  # prompts come faster than they are read
    lifetime_s = own_s + traffic.generate * tpot_s
    queued_s = max(0, users - sequences) / sequences * lifetime_s
    bound = "memory" if users > room else "prompts" if tpot_s > 1.5 * decode_s else "decode"
    return Steady(
        sequences=sequences,
        ttft_s=own_s + together + late + queued_s,
        tpot_s=tpot_s,
        step_s=decode_s,
        bound=bound,
        ttft_spread=step.costs.ttft_spread.value,
        tpot_spread=max(step.costs.tpot_spread.value, step.spread),
    )


def _held(memory: ServingMemory, traffic: Traffic) -> int:
    """Sequences that the cache holds on average: those under way are half done."""
    held = memory.sequences_of(traffic.prompt + traffic.generate // 2)
    if not held:
        raise DomainError(
            f"Not one sequence of {traffic.prompt + traffic.generate} tokens fits beside the weights: "
            f"{memory.kv_tokens} tokens are left for the cache.",
            remedy="Use more devices (--tp), fewer bits a weight, or shorter requests.",
        )
    return held


def prompt_times(
    step: EngineStep, rules: ServingRules, limits: StepLimits, traffic: Traffic, sequences: int
) -> PromptTimes:
    context = traffic.prompt + traffic.generate / 2
    others = sequences - 1 if rules.mixed else 0
    decode_s = float(step.decode_seconds(max(1, sequences), context))
    new = traffic.prompt - traffic.cached
    own = alone = 0.0
    steps, done = 0, 0
    while done < new:
        tokens = min(limits.tokens, new - done)
        before = 1 + traffic.cached + done
        own += float(step.mixed_seconds(tokens, before, others, context))
        alone += float(step.mixed_seconds(tokens, before, 0, 1.0))
        done, steps = done + tokens, steps + 1
    extra = max(0.0, own - steps * decode_s) if rules.mixed else alone
    packed, tokens = max(1, limits.tokens // new), min(new, limits.tokens)
    middle = 1.0 + traffic.cached + (new / 2 if new > limits.tokens else 0.0)
    full_s = float(step.mixed_seconds(tokens, middle, others, context, chunks=packed))
    empty_s = float(step.mixed_seconds(tokens, middle, 0, 1.0, chunks=packed))
    share_s = empty_s / packed if new <= limits.tokens else alone
    return PromptTimes(own_s=own, extra_s=extra, packed_s=share_s, full_s=full_s)


def saturated_tokens_per_s(
    step: EngineStep, rules: ServingRules, limits: StepLimits, traffic: Traffic, memory: ServingMemory | None = None
) -> float:
    """Tokens generated a second by one replica that always has as many sequences as fit."""
    room = limits.sequences if memory is None else min(limits.sequences, _held(memory, traffic))
    sequences = max(1, room)
    context = traffic.prompt + traffic.generate / 2
    decode_s = float(step.decode_seconds(sequences, context))
    prompts = prompt_times(step, rules, limits, traffic, sequences)
    extra_s = min(prompts.packed_s, prompts.extra_s) if rules.mixed else prompts.packed_s
    return sequences * traffic.generate / (traffic.generate * decode_s + sequences * extra_s)


def batch_seconds(step: EngineStep, limits: StepLimits, traffic: Traffic, batch: int) -> float:
    """A whole batch of requests that begin together: its prompts in full steps, then every step of decoding."""
    new = traffic.prompt - traffic.cached
    packed = max(1, limits.tokens // new)
    left, seconds = batch, step.costs.prompt_s.value
    while left > 0:
        now = min(packed, left)
        done = 0
        while done < new:
            tokens = min(limits.tokens, new - done)
            seconds += float(step.mixed_seconds(tokens, 1 + traffic.cached + done, 0, 1.0, chunks=now))
            done += tokens
        left -= now
        if left > 0 and new * batch > 64 * limits.tokens:  # the rest is alike
            seconds += float(step.mixed_seconds(min(new, limits.tokens), 1.0, 0, 1.0, chunks=packed)) * (left / packed)
            break
    for share in (0.125, 0.375, 0.625, 0.875):  # a step's time grows evenly with the context
        context = traffic.prompt + share * traffic.generate
        seconds += (traffic.generate - 1) / 4 * float(step.decode_seconds(batch, context))
    return seconds
