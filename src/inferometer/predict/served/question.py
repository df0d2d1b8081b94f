"""A question about a served model: the engine's step, its rules and its memory on a device, brought together."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from inferometer.core.device import Sourced
from inferometer.core.engine import ServingRules, StepCosts
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.kept import Kept
from inferometer.core.lazy import late
from inferometer.core.profile import Headline
from inferometer.core.sizes import PROMPT
from inferometer.core.units import format_quantity
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.known.engines import costs_of, engine, memory_of, scheduler_of
from inferometer.predict.applicable import require_applicable, require_of_users
from inferometer.predict.basis.engine_tables.calibrating import kernels_alone
from inferometer.predict.memory.fit import capacity_of
from inferometer.predict.money import hourly_price, million_usd
from inferometer.predict.precision import counted_precision
from inferometer.predict.ready import ReadyGraph, make_ready
from inferometer.predict.request import GENERATE, completed, window_notes
from inferometer.predict.running import require_run, version_notes
from inferometer.predict.served.memory import ServingMemory, StepLimits, limits_on, serving_memory
from inferometer.predict.served.steady import (
    Drafts,
    Steady,
    Traffic,
    batch_seconds,
    saturated_tokens_per_s,
    steady_state,
)
from inferometer.predict.served.step import EngineStep, SecondsGrid, engine_step, expert_seconds

if TYPE_CHECKING:
    from inferometer.predict.question import Basis, Question

_UNMEASURED = 0.35  # standard deviation of the logarithm of a step's time by priors alone
_MOST_USERS = 1 << 24  # beyond it everyone waits for years: another question
_MOST_TOKENS_PER_S = 1_000_000  # of one user: no device reads the weights of any model so often
# A step's grids take tens of milliseconds to price, and plans ask for a device with many loads.
_steps = Kept(512)
_NO_TOKENS = "`inferometer predict` gives the time of one inference, `inferometer plan --frames 30` streams of images."


_IN_SUMMARY = (
    "ttft_s", "ttft_low_s", "ttft_high_s", "tpot_s", "tpot_low_s", "tpot_high_s", "tokens_per_s",
    "usd_per_million_tokens",
)  # fmt: skip


def _none(value: float) -> Sourced:
    return Sourced(value=value, origin="prior", source="nothing is known beside the kernels", date="2026")


_NO_COSTS = StepCosts(
    since="0", devices=(), step_s=_none(0.0), sequence_s=_none(0.0), prompt_s=_none(0.0), launch_s=_none(0.0),
    later=_none(0.0), kernels=_none(1.0), kernels_prompt=_none(1.0), together=_none(0.0), context_s=_none(0.0),
    ttft_spread=_none(_UNMEASURED), tpot_spread=_none(_UNMEASURED), batch_spread=_none(_UNMEASURED),
)  # fmt: skip


@frozen
class ServedReplica:
    """One replica of a model under an engine on its devices. `notes` say what it is based on."""

    step: EngineStep
    rules: ServingRules
    limits: StepLimits
    memory: ServingMemory | None
    devices: int  # of all replicas
    replicas: int
    stages: int  # of a pipeline
    drafts: Drafts | None
    notes: tuple[str, ...]

    def steady(self, traffic: Traffic, users: int) -> Steady:
        """`users` of all replicas together, shared evenly."""
        own = max(1, -(-users // self.replicas))
        return steady_state(self.step, self.rules, self.limits, traffic, own, self.memory, stages=self.stages)

    def saturated(self, traffic: Traffic, most: int | None = None) -> float:
        """Tokens a second of all replicas together, each with as many sequences as fit, or `most` of them."""
        one = saturated_tokens_per_s(
            self.step, self.rules, self.limits, traffic, self.memory, stages=self.stages, most=most
        )
        return self.replicas * one

    def batch_seconds(self, traffic: Traffic, batch: int) -> float:
        own = max(1, -(-batch // self.replicas))
        return batch_seconds(self.step, self.rules, self.limits, traffic, own, stages=self.stages)

    def limited(self, *, tokens: int | None = None, sequences: int | None = None, waits: float = 0.0) -> ServedReplica:
        """The same with other limits of a step: max_num_batched_tokens, max_num_seqs, steps that prompts wait for."""
        own = self.limits
        limits = replace(own, tokens=tokens or own.tokens, sequences=sequences or own.sequences, waits=waits)
        memory = None if self.memory is None else self.memory.limited(self.limits, limits)
        return replace(self, limits=limits, memory=memory)

    def with_memory_share(self, share: float) -> ServedReplica:
        """The same with another gpu_memory_utilization."""
        return self if self.memory is None else replace(self, memory=self.memory.with_share(share))


def served(question: Question) -> ServedReplica:
    """What serves the question's model: the same value for the same question, without the work.

    What `predict` refuses is refused here, for all that stands on it: users, simulations and plans.
    """
    descriptor = engine(question.runtime_name)
    rules = descriptor.serving
    if rules is None:
        raise DomainError(
            f"{descriptor.title} serves one batch at a time: users are for engines with continuous batching.",
            remedy="Ask for --runtime vllm, sglang or trtllm.",
        )
    basis = question.basis()
    workload, ready = made_ready(question, basis)
    if not ready.generative:
        raise DomainError(
            f"{question.graph.name} makes no tokens, and serving engines are for models that do.",
            remedy=_NO_TOKENS,
        )
    require_applicable(question)
    require_run(question)
    costs = costs_of(rules, question.options.engine_version, question.device.name, question.device.vendor)
    measured = basis.calibration is not None
    spread = _spread_of(measured=measured, own=measured and basis.calibration is not None and not basis.notes)
    step = _steps.get_or_make(costs, (ready,), lambda: engine_step(ready, costs, spread))
    scheduler = scheduler_of(question.runtime_name, question.options.engine_version)
    limits = replace(limits_on(rules, basis.device), reserves=scheduler.admission == "whole")
    known = capacity_of(basis.device) is not None
    parallel, taken = workload.parallel, memory_of(rules, question.options.engine_version)
    memory = serving_memory(ready, basis.device, rules, taken, limits, split=parallel.tp > 1) if known else None
    drafts, memory = _drafts(question, memory)
    return ServedReplica(
        step=step,
        rules=rules,
        limits=limits,
        memory=memory,
        devices=parallel.devices,
        replicas=parallel.dp,
        stages=parallel.pp,
        drafts=drafts,
        notes=(*ready.notes, *basis.notes, *version_notes(question)),
    )


def plain_step(question: Question) -> tuple[EngineStep, tuple[str, ...]]:
    """The step of an engine without serving rules of its own, as llama.cpp: its kernels, and no costs beside them."""
    basis = question.basis()
    workload = completed(
        question.graph, replace(question.workload, precision=basis.precision), question.options, beyond=True
    )
    ready = make_ready(
        question.graph, basis.device, effects=engine(question.runtime_name).effects, workload=workload,
        options=question.options, calibration=basis.calibration,
    )  # fmt: skip
    if not ready.generative:
        raise DomainError(
            f"{question.graph.name} makes no tokens: there is nothing to simulate.",
            remedy=_NO_TOKENS,
        )
    require_applicable(question)
    require_run(question)
    spread = _spread_of(measured=basis.calibration is not None, own=basis.calibration is not None)
    return engine_step(ready, _NO_COSTS, spread), (*ready.notes, *basis.notes)


def made_ready(question: Question, basis: Basis) -> tuple[Workload, ReadyGraph]:
    workload = replace(question.workload, precision=basis.precision, batch=question.workload.parallel.dp)
    workload = completed(question.graph, workload, question.options, beyond=True)
    ready = make_ready(
        question.graph, basis.device, effects=engine(question.runtime_name).effects, workload=workload,
        options=question.options,
        calibration=None if basis.calibration is None else kernels_alone(basis.calibration),
    )  # fmt: skip
    return workload, ready


def gang_seconds(question: Question) -> tuple[SecondsGrid, SecondsGrid]:
    """Seconds of a step's experts, and of the messages with which ranks gather its tokens and scatter the sums."""
    return expert_seconds(made_ready(question, question.basis())[1])


def _drafts(question: Question, memory: ServingMemory | None) -> tuple[Drafts | None, ServingMemory | None]:
    """What a draft model adds: it shares its layers as the model does (`of_draft`), with a cache of the same tokens."""
    drafting = question.options.speculative
    if drafting is None:
        return None, memory
    from inferometer.known.formulas.llm import speculative_tokens  # noqa: PLC0415 - only drafting needs it

    options = replace(question.options, speculative=None, cached_prefix=0, overrides={})
    workload = replace(question.workload, parallel=Parallel(tp=question.workload.parallel.tp), precision=Precision())
    drafter = served(replace(question, graph=drafting.draft, workload=workload, options=options))

    def gained(length: int) -> float:
        return float(speculative_tokens(acceptance=drafting.acceptance, draft_length=length))

    by_load = tuple((most, length, gained(length)) for most, length in drafting.up_to)
    if memory is not None and drafter.memory is not None:
        memory = replace(
            memory,
            weights_bytes=memory.weights_bytes + drafter.memory.weights_bytes,
            kv_bytes_per_token=memory.kv_bytes_per_token + drafter.memory.kv_bytes_per_token,
            windows=memory.windows + drafter.memory.windows,
            state_bytes=memory.state_bytes + drafter.memory.state_bytes,
        )
    drafts = Drafts(length=drafting.length, gained=gained(drafting.length), step=drafter.step, by_load=by_load)
    return drafts, memory


def _spread_of(*, measured: bool, own: bool) -> float:
    """What a step is off by at least: kernels of this device and version, of another one, or none."""
    return 0.06 if own else 0.18 if measured else _UNMEASURED


@frozen
class ServingAnswer:
    """Many users of a served model: what each sees, and what the devices give together.

    `meets` says whether every user has the tokens a second that were asked for; None where none were.
    """

    model: str
    device: str
    devices: int
    runtime: str
    weights: str | None
    tp: int
    replicas: int
    users: int
    prompt: int
    generate: int
    batch: int  # sequences under way in each replica
    ttft_s: float
    ttft_low_s: float
    ttft_high_s: float
    tpot_s: float
    tpot_low_s: float
    tpot_high_s: float
    step_s: float  # one that only decodes: `predict --batch` gives it, too; prompts of others make a token longer
    tokens_per_s_per_user: float
    tokens_per_s: float
    tokens_per_s_per_device: float
    tokens_per_user: float | None
    meets: bool | None
    bound: str
    kv_tokens: int | None
    usd_per_hour: float | None
    usd_per_million_tokens: float | None
    notes: tuple[str, ...] = ()
    energy_j_per_token: float | None = None  # of what is written; reading the prompts is in it
    energy_j_per_token_low: float | None = None
    energy_j_per_token_high: float | None = None

    @property
    def summary(self) -> Headline:
        """The figures of one user's request under the names that a profile's summary has."""
        written = self.generate - 1  # the first token comes with the prompt
        return Headline(
            **{name: getattr(self, name) for name in _IN_SUMMARY},
            e2e_s=self.ttft_s + written * self.tpot_s,
            e2e_low_s=self.ttft_low_s + written * self.tpot_low_s,
            e2e_high_s=self.ttft_high_s + written * self.tpot_high_s,
            fits=True,  # what does not is refused
        )

    def document(self) -> dict[str, Any]:
        return {"schema": "inferometer.serving/1", **asdict(self), "notes": list(self.notes)}

    def __repr__(self) -> str:
        where = f"{self.devices} × {self.device}" if self.devices > 1 else self.device
        rate = f"{self.tokens_per_s_per_user:,.1f} tokens/s each, {self.tokens_per_s:,.0f} together"
        return f"<{self.model} on {where} with {self.runtime} for {self.users} users: {rate}>"

    def _repr_html_(self) -> str:
        return str(late("notebook", "view_html")(self))


def serving_answer(question: Question, users: int, tokens_per_user: float | None = None) -> ServingAnswer:
    """The steady state with `users` at once, each with one request of the question's sizes under way."""
    if not 1 <= users <= _MOST_USERS:
        raise DomainError(f"users must be a whole number from 1 to {_MOST_USERS:,}, and is {users}.")
    if tokens_per_user is not None and not 0 < tokens_per_user <= _MOST_TOKENS_PER_S:
        limits = f"greater than 0 and at most {_MOST_TOKENS_PER_S:,}"
        raise DomainError(f"--tokens-per-user must be {limits}, and is {tokens_per_user:g}.")
    require_of_users(question)
    what, workload = served(question), completed(question.graph, question.workload, question.options, beyond=True)
    if what.memory is not None and not what.memory.fits:
        raise DomainError(_too_large(question, what.memory), remedy=_fewer_bytes(question, what.memory))
    traffic = Traffic(
        prompt=PROMPT if workload.prompt is None else workload.prompt,
        generate=GENERATE if workload.generate is None else workload.generate,
        cached=question.options.cached_prefix,
        drafts=what.drafts,
    )
    if question.options.chunk is not None:  # the most that a step reads of prompts
        what = what.limited(tokens=question.options.chunk, waits=what.limits.waits)
    steady = what.steady(traffic, users)
    under_way = min(users, steady.sequences * what.replicas)
    # By Little's law: a user's answer over the time until it is whole, its prompt counted in.
    together = users * traffic.generate / (steady.ttft_s + (traffic.generate - 1) * steady.tpot_s)
    ttft, tpot = steady.interval("ttft"), steady.interval("tpot")
    price = hourly_price(question.device, what.devices, question.options.place)
    joules = _joules_per_token(question, traffic, max(under_way, what.replicas))
    return ServingAnswer(
        model=question.graph.name,
        device=question.device.name,
        devices=what.devices,
        runtime=question.runtime_name,
        weights=counted_precision(question.graph, question.workload.precision).weights,
        tp=workload.parallel.tp,
        replicas=what.replicas,
        users=users,
        prompt=traffic.prompt,
        generate=traffic.generate,
        batch=steady.sequences,
        ttft_s=steady.ttft_s,
        ttft_low_s=ttft[0],
        ttft_high_s=ttft[1],
        tpot_s=steady.tpot_s,
        tpot_low_s=tpot[0],
        tpot_high_s=tpot[1],
        step_s=steady.step_s,
        tokens_per_s_per_user=1 / steady.tpot_s,
        tokens_per_s=together,
        tokens_per_s_per_device=together / what.devices,
        tokens_per_user=tokens_per_user,
        meets=None if tokens_per_user is None else bool(1 / steady.tpot_s >= tokens_per_user and under_way >= users),
        bound=steady.bound,
        kv_tokens=None if what.memory is None else what.memory.kv_tokens,
        usd_per_hour=None if price is None else float(price.usd_per_hour),
        usd_per_million_tokens=None if price is None else float(million_usd(price, together)),
        notes=(*what.notes, *window_notes(question.graph, workload)),
        energy_j_per_token=joules[0],
        energy_j_per_token_low=joules[1],
        energy_j_per_token_high=joules[2],
    )


def _joules_per_token(question: Question, traffic: Traffic, together: int) -> tuple[float | None, ...]:
    """The energy of a batch of requests over the tokens they write: a full batch's power hardly moves."""
    sizes = replace(question.workload, batch=together, prompt=traffic.prompt, generate=traffic.generate)
    summary = replace(question, workload=sizes).answer().summary
    ends = summary.energy_j, summary.energy_low_j, summary.energy_high_j
    return tuple(None if joules is None else joules / (together * traffic.generate) for joules in ends)


def _too_large(question: Question, memory: ServingMemory) -> str:
    needed = format_quantity(memory.weights_bytes + memory.activations_bytes + memory.reserve_bytes, "B", digits=3)
    usable = format_quantity(memory.usable_bytes, "B", digits=3)
    return (
        f"{question.graph.name} does not fit on {question.device.name}: a device needs {needed}, "
        f"and {question.runtime_name} uses {usable} of its memory."
    )


def _fewer_bytes(question: Question, memory: ServingMemory) -> str:
    needed = memory.weights_bytes * question.workload.parallel.tp
    room = memory.usable_bytes - memory.activations_bytes - memory.reserve_bytes
    devices = 1
    while room > 0 and needed / devices > room and devices < 1024:  # tensor parallelism goes no further anywhere
        devices *= 2
    return f"Use --tp {devices}, fewer bits a weight (--weights f8e4m3, i4), or a larger device."
