"""Many users at once, in closed form: what continuous batching settles to, and how long whole batches take.

Users each have one request under way; when it ends they send the next. In the time in which a sequence makes its
`generate` tokens, every other user brings one prompt, so a token's time is that of a decoding step and its share of the
prompts that ride along. Waiting is an average over a load test, which begins with all users at once.

`kernel_parts` reads from a step what its kernels take; `steady_times`, `token_seconds` and `request_seconds` add what
the engine takes beside them. The second half takes numbers or arrays, so that the costs are fitted with the same lines
that predict (workshop/serving/fit.py).
"""

from __future__ import annotations

from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.statistics import EIGHT_IN_TEN
from inferometer.predict.served.step import EngineStep

if TYPE_CHECKING:
    from inferometer.core.engine import ServingRules, StepCosts
    from inferometer.predict.served.memory import ServingMemory, StepLimits

_BUSIEST = 0.9  # of the time: as far as the formula of a queue holds with users who wait for their answers
_EIGHTHS = (0.125, 0.375, 0.625, 0.875)  # of an answer: a step's time grows evenly with the context


@frozen
class Drafts:
    """Tokens proposed ahead: `length` a step and sequence, of which a step gives `gained` tokens on average.

    `step` is the drafting model's; without one a prediction head of the model itself drafts, as long as one layer; of
    no layers are n-grams, which are looked up and cost nothing.
    """

    length: int
    gained: float
    step: EngineStep | None = None
    layers: int = 1  # of the model, for a head of its own
    by_load: tuple[tuple[int, int, float], ...] = ()  # up to so many sequences: these two, and beyond the last none

    def at(self, sequences: int) -> Drafts:
        """The same where so many sequences decode at once. What drafts reads the prompts at any load."""
        if not self.by_load:
            return self
        found = next(((length, gained) for most, length, gained in self.by_load if sequences <= most), (0, 1.0))
        return replace(self, length=found[0], gained=found[1], by_load=())


@frozen
class Traffic:
    """What each user asks for: tokens of a prompt, of which some are cached from before, and tokens to generate."""

    prompt: int
    generate: int
    cached: int = 0
    drafts: Drafts | None = None

    def at(self, sequences: int) -> Traffic:
        """The same with the drafts of so many sequences at once."""
        drafts = self.drafts
        return self if drafts is None or not drafts.by_load else replace(self, drafts=drafts.at(sequences))

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

    def interval(self, name: str) -> tuple[float, float]:
        """The ends between which eight in ten measurements of `ttft` or `tpot` lie."""
        seconds = self.ttft_s if name == "ttft" else self.tpot_s
        wide = exp(EIGHT_IN_TEN * (self.ttft_spread if name == "ttft" else self.tpot_spread))
        return seconds / wide, seconds * wide


@frozen
class KernelParts:
    """Kernels' seconds of what a steady state is made of; numbers, or arrays of them.

    `decode` is a step that only decodes, `drafting` what proposes tokens in it. A prompt takes `steps` steps: `own`
    with all others decoding beside it, `alone` without. Up to `packed` prompts share a step: `full` with all others
    decoding, `empty` without. `whole` are the decoding steps of a batch that begins and ends together, on average.
    """

    sequences: Any
    users: Any
    generate: Any
    gained: Any
    decode: Any
    drafting: Any
    own: Any
    alone: Any
    steps: Any
    packed: Any
    full: Any
    empty: Any
    whole: Any
    launches: Any
    mixed: Any
    waits: Any = 0.0  # steps that a prompt is held back for
    stages: Any = 1  # of a pipeline: each works on its share of the sequences, which pass through all of them
    flowing: Any = 1  # shares of the sequences that are under way in it at once
    behind: Any = 0.0  # what a decoding step waits for the others in it
    cached: Any = 0.0  # tokens that a decoding step attends to, in all layers together


@frozen
class SteadyTimes:
    """Seconds with the engine's own.

    `own` is a prompt's with all others beside it, `extra` what it adds to their steps, `share` its part of full ones.
    """

    decode: Any
    tpot: Any
    ttft: Any
    own: Any
    share: Any
    extra: Any
    alone: Any
    empty: Any


def kernel_parts(  # noqa: PLR0913 - an engine, its limits, and what is asked of it
    step: EngineStep,
    rules: ServingRules,
    limits: StepLimits,
    traffic: Traffic,
    *,
    sequences: int,
    users: int,
    stages: int = 1,
) -> KernelParts:
    n, new, drafts = -(-sequences // stages), traffic.prompt - traffic.cached, traffic.drafts
    context = traffic.prompt + traffic.generate / 2  # sequences are at any place of their answer: half of it on average
    others = n - 1 if rules.mixed else 0
    verified, flowing = 1 + drafts.length if drafts else 1, min(stages, sequences)
    own = alone = 0.0
    steps, done = 0, 0
    while done < new:
        tokens = min(limits.tokens, new - done)
        before = 1 + traffic.cached + done
        drafted = _reading(drafts, tokens, before)
        own += float(step.mixed_kernels(tokens, before, others, context, verified=verified)) + drafted
        alone += float(step.mixed_kernels(tokens, before, 0, 1.0)) + drafted
        done, steps = done + tokens, steps + 1
    packed, tokens = max(1, limits.tokens // new), min(new, limits.tokens)  # whole prompts that fit into a step
    middle = 1.0 + traffic.cached + (new / 2 if new > limits.tokens else 0.0)
    drafted = _reading(drafts, tokens, middle, packed)
    # A batch that begins together is at one place at a time, and steps grow with it: a mean over them, not the middle.
    contexts = traffic.prompt + np.array(_EIGHTHS) * traffic.generate
    return KernelParts(
        sequences=sequences,
        stages=stages,
        users=users,
        generate=traffic.generate,
        gained=drafts.gained if drafts else 1.0,
        flowing=flowing,
        behind=step.behind_kernels(n, context, verified=verified, stages=stages, flowing=flowing),
        decode=float(step.decode_kernels(n, context, verified=verified)),
        drafting=_drafting(step, drafts, n, context),
        own=own,
        alone=alone,
        steps=steps,
        packed=packed,
        full=float(step.mixed_kernels(tokens, middle, others, context, chunks=packed, verified=verified)) + drafted,
        empty=float(step.mixed_kernels(tokens, middle, 0, 1.0, chunks=packed)) + drafted,
        whole=float(np.mean(step.decode_kernels(n, contexts, verified=verified))),
        launches=step.launches,
        mixed=float(rules.mixed),
        waits=limits.waits,
        cached=float(step.cached(n, context)),
    )


def _drafting(step: EngineStep, drafts: Drafts | None, sequences: int, context: float) -> float:
    if drafts is None or (drafts.step is None and not drafts.layers):
        return 0.0
    if drafts.step is None:
        return float(drafts.length * step.decode_kernels(sequences, context) / drafts.layers)
    return float(drafts.length * drafts.step.decode_seconds(sequences, context))


def _reading(drafts: Drafts | None, tokens: int, before: float, chunks: int = 1) -> float:
    """What drafts by a model of its own reads the prompts too, but for their logits."""
    if drafts is None or drafts.step is None:
        return 0.0
    step = drafts.step
    return float(step.dense.at(float(chunks * tokens))) + chunks * float(step.prompt.at(float(tokens), before))


def steady_times(parts: KernelParts, costs: StepCosts) -> SteadyTimes:
    """A decoding step and a prompt with the engine's own time, and what they make of a token and of a first token."""
    p, sequence_s, step_s = parts, costs.sequence_s.value, costs.step_s.value
    mixed = np.asarray(p.mixed) > 0
    eager = p.launches * costs.launch_s.value
    riding = p.sequences / p.stages * sequence_s
    # What those who decode take in every step beyond their own kernels: their context, and drafting.
    attending = costs.context_s.value * p.cached + costs.kernels.value * p.drafting
    passing = costs.kernels.value * p.decode + attending + step_s + riding
    # Each stage of a pipeline has a host that prepares every step in it.
    decode = passing + costs.kernels.value * p.behind + (p.flowing - 1) * (step_s + riding)

    def reading(kernels: Any, steps: Any, prompts: Any, decoding: Any, beyond: Any = 0.0) -> Any:
        """Steps that read prompts: as long as their kernels, or as their launches where those take longer.

        `decoding` are the kernels of those who decode beside them, `beyond` what these take beyond that.
        """
        added = costs.kernels_prompt.value * np.maximum(0.0, kernels - steps * decoding)
        longer = np.maximum(steps * (costs.kernels.value * decoding + beyond) + added, steps * eager)
        return longer + steps * step_s + prompts * sequence_s

    alone, empty = reading(p.alone, p.steps, p.steps, 0.0), reading(p.empty, 1, p.packed, 0.0)
    own = np.where(mixed, reading(p.own, p.steps, p.steps, p.decode, attending) + p.steps * riding, alone)
    extra = np.where(mixed, np.maximum(0.0, own - p.steps * passing), alone)
    share = np.where(np.asarray(p.steps) > 1, alone, empty / p.packed) / p.stages
    full = reading(p.full, 1, p.packed, p.decode, attending) + riding
    spread = decode / p.gained + (p.sequences - 1) * extra / (p.stages * p.generate)
    # A mixed step is never longer than a full one: with many prompts every step is full, and their time is no longer
    # added up.
    tpot = np.where(mixed, np.minimum(spread, np.maximum(full, decode) / p.gained), spread)
    # A request comes in the middle of a step, and its first token is seen some steps after it was made.
    first = (0.5 + p.waits + costs.later.value) * decode + own + costs.prompt_s.value
    # Later requests come at any time: they wait as behind one server that is busy so much of the time.
    # The time of all others' prompts over the time of a request: the share of it in which one of them is read.
    busy = np.minimum(_BUSIEST, (p.sequences - 1) * share / (p.generate * tpot + own))
    waiting = costs.together.value * (p.sequences - 1) / 2 * share + busy / (2 * (1 - busy)) * share
    # Who finds no room waits for whole requests to end, `sequences` of which do so in the time of one.
    queued = np.maximum(0, p.users - p.sequences) / p.sequences * (first + p.generate * tpot)
    return SteadyTimes(
        decode=decode, tpot=tpot, ttft=first + waiting + queued, own=own, share=share, extra=extra, alone=alone,
        empty=empty,
    )  # fmt: skip


def token_seconds(parts: KernelParts, costs: StepCosts) -> Any:
    """Each token of a system that always has as many sequences as fit, all of them together."""
    times = steady_times(parts, costs)
    extra = np.where(np.asarray(parts.mixed) > 0, np.minimum(times.share, times.extra / parts.stages), times.share)
    return (times.decode / parts.gained + parts.sequences * extra / parts.generate) / parts.sequences


def request_seconds(parts: KernelParts, costs: StepCosts) -> Any:
    """A whole batch of requests that begin together: its prompts in full steps, then every step of decoding."""
    times = steady_times(parts, costs)
    reading = np.where(
        np.asarray(parts.packed) > parts.sequences,
        times.alone + costs.kernels_prompt.value * (parts.sequences - 1) / parts.packed * parts.empty,
        np.ceil(parts.sequences / parts.packed) * np.where(np.asarray(parts.steps) > 1, times.alone, times.empty),
    )
    decode = times.decode + costs.kernels.value * (parts.whole - parts.decode)
    return costs.prompt_s.value + reading + (parts.generate - 1) * decode / parts.gained


def steady_state(  # noqa: PLR0913, PLR0917 - an engine, its limits, and what is asked of it
    step: EngineStep,
    rules: ServingRules,
    limits: StepLimits,
    traffic: Traffic,
    users: int,
    memory: ServingMemory | None = None,
    *,
    stages: int = 1,
) -> Steady:
    """`users` of one replica; more than the cache or a step holds wait until others are done."""
    if users < 1:
        raise DomainError(f"There must be 1 user or more, and not {users}.")
    room = held(limits, traffic, memory)
    sequences = max(1, min(users, room))
    traffic = traffic.at(sequences)
    parts = kernel_parts(step, rules, limits, traffic, sequences=sequences, users=users, stages=stages)
    times = steady_times(parts, step.costs)
    tpot, decode = float(times.tpot), float(times.decode)
    gained = traffic.drafts.gained if traffic.drafts else 1.0
    return Steady(
        sequences=sequences,
        ttft_s=float(times.ttft),
        tpot_s=tpot,
        step_s=decode,
        # prompts are what holds tokens up once they make a token half as long again
        bound="memory" if users > room else "prompts" if tpot > 1.5 * decode / gained else "decode",
        ttft_spread=step.costs.ttft_spread.value,
        # What the engine's fit left open, or what the kernels are off by on this device, if that is more.
        tpot_spread=max(step.costs.tpot_spread.value, step.spread),
    )


def held(limits: StepLimits, traffic: Traffic, memory: ServingMemory | None) -> int:
    """Sequences under way at most: what a step takes, and what the cache has room for."""
    if memory is None:
        return limits.sequences
    room = memory.sequences_of(held_tokens(limits, traffic))
    if not room:
        raise DomainError(
            f"Not one sequence of {traffic.prompt + traffic.generate} tokens fits beside the weights: "
            f"{memory.kv_tokens} tokens are left for the cache.",
            remedy="Use more devices (--tp), fewer bits a weight, or shorter requests.",
        )
    return min(limits.sequences, room)


def held_tokens(limits: StepLimits, traffic: Traffic) -> int:
    """Tokens of the cache that a request takes from others.

    Half of its answer, where sequences begin at different times: what one has written another has yet to write. All of
    it where that is reserved.
    """
    return traffic.prompt + (traffic.generate if limits.reserves else traffic.generate // 2)


def saturated_tokens_per_s(  # noqa: PLR0913 - as above
    step: EngineStep,
    rules: ServingRules,
    limits: StepLimits,
    traffic: Traffic,
    memory: ServingMemory | None = None,
    *,
    stages: int = 1,
    most: int | None = None,
) -> float:
    """Tokens generated a second by one replica that always has as many sequences as fit, or `most` of them."""
    # Published tables of TensorRT-LLM hold what half of the answers leave room for: with the whole they are 18 % off,
    # and not 14 (design/0019).
    room = max(1, min(held(replace(limits, reserves=False), traffic, memory), most or limits.sequences))
    parts = kernel_parts(step, rules, limits, traffic.at(room), sequences=room, users=room, stages=stages)
    return float(1 / token_seconds(parts, step.costs))


def batch_seconds(  # noqa: PLR0913 - as above
    step: EngineStep, rules: ServingRules, limits: StepLimits, traffic: Traffic, batch: int, *, stages: int = 1
) -> float:
    parts = kernel_parts(step, rules, limits, traffic.at(batch), sequences=batch, users=batch, stages=stages)
    return float(request_seconds(parts, step.costs))
