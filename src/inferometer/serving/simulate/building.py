"""From a question to what the simulator runs: an engine's times, rules and limits on its devices."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf
from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError
from inferometer.known.engines import scheduler_of
from inferometer.predict.price.collectives import message_seconds, route_of
from inferometer.predict.served.adapters import AdapterSeconds, adapted_products, adapter_seconds
from inferometer.predict.served.question import ServedReplica, gang_seconds, plain_step, served
from inferometer.serving.simulate.cache import Tier
from inferometer.serving.simulate.replica import Adapters, DraftLevel, Encoder, EngineLimits
from inferometer.serving.simulate.service import ReplicaPool, Service
from inferometer.serving.simulate.times import GangTimes, Speculation, StepTimes, Times, TimesApart

if TYPE_CHECKING:
    from inferometer.core.engine import SchedulerRules
    from inferometer.predict.question import Question
    from inferometer.predict.served.memory import ServingMemory
    from inferometer.serving.simulate.plan import SimulationPlan

ENDLESS = 1 << 40  # blocks where the memory is not known
# Arrivals that an engine logged between its steps stand at the end of a step. The simulated steps end a little
# earlier or later, so the nearest end is meant: half of a step before it and half after.
_HALF = 0.5
_CACHE_RAM = 8 * 2**30  # bytes of prompts that llama.cpp's server keeps in the host's memory (--cache-ram)
_STAMPED = (
    "Many arrivals of the file stand together, as an engine takes them down between its steps: each is taken to have "
    "come at the nearest end of a step."
)


def alone(question: Question, *, apart: bool = True) -> Question:
    """The same about one replica; `apart`, with experts of its own."""
    workload = question.workload
    parallel = replace(workload.parallel, dp=1, ep=1 if apart else workload.parallel.ep)
    if workload.parallel == parallel:
        return question
    return replace(question, workload=replace(workload, parallel=parallel, batch=1))


def service_of(plan: SimulationPlan) -> tuple[Service, tuple[str, ...]]:
    """The service, and notes on what it is based on."""
    is_gang = _is_gang(plan)
    question = alone(plan.question, apart=is_gang)
    pool, notes = _pool(plan, question, plan.replicas, served(_of_ranks(plan)).memory if is_gang else None)
    if is_gang:
        pool, more = _gang(plan, pool, question)
        notes = (*notes, *more)
    elif plan.ranks > 1:
        pool = replace(pool, replicas=pool.replicas * plan.ranks)
    service = Service(pool=pool, routing=plan.routing, scaling=plan.scaling)
    if plan.readers is None:
        return service, notes
    reading, more = _pool(plan, alone(plan.readers, apart=False), plan.reader_replicas)
    handover_s = _handover_s(plan, question)
    both = tuple(dict.fromkeys((*notes, *more)))
    if plan.ranks > 1:
        both = (*both, "The data-parallel ranks are of the pool that answers: one that reads prompts is one alone.")
    return replace(service, reading=reading, handover_s=handover_s), both


def _pool(
    plan: SimulationPlan, question: Question, replicas: int, memory: ServingMemory | None = None
) -> tuple[ReplicaPool, tuple[str, ...]]:
    """Equal replicas. `memory` is what a rank has, where it does not hold all experts."""
    rules = scheduler_of(question.runtime_name, question.options.engine_version)
    if rules.slots is not None:
        return _slots(plan, question, rules, replicas)
    what = served(question).limited(tokens=plan.tokens, sequences=plan.sequences)
    what = what if memory is None else replace(what, memory=memory)
    limits = _limits(plan, what, question)
    speculation = _speculation(plan, what)
    what, adapters = _adapted(plan, question, what)
    times = StepTimes(what.step, limits.tokens, limits.sequences, speculation, adapters)
    limits, more = _with_extras(plan, question, limits, what.memory)
    if adapters is not None:
        more.append(_products_words(adapters, times, limits.sequences))
    if not rules.prefix_cache or not plan.prefix_cache:
        limits = replace(limits, prefix_cache=False)
    words = [f"Steps are made as by {rules.title} ({rules.engine} {rules.since} and newer): {rules.url}."]
    if limits.seen:
        words.append(_STAMPED)
    costs = what.step.costs
    if costs.prompt_s.value > 0:
        words.append(
            f"Clients of load tests saw a first token some {1e3 * costs.prompt_s.value:.0f} ms and "
            f"{costs.later.value:.1f} steps after the engine made it: that is in predict --users, and in no time here."
        )
    if plan.speculation is not None:
        length, share = plan.speculation
        drafted = "1 token is" if length == 1 else f"{length} tokens are"
        words.append(
            f"{drafted} drafted a step and {share:.0%} of each accepted, which makes {limits.kept:.3g} tokens a step, "
            f"{_by_load(plan, limits)}: what your server accepts is in its metrics (--acceptance)."
        )
    words += more
    return ReplicaPool(times=times, rules=rules, limits=limits, replicas=replicas), (*what.notes, *words)


def _by_load(plan: SimulationPlan, limits: EngineLimits) -> str:
    """At which load that is drafted."""
    if not plan.draft_up_to:
        return "at any load"
    words = [
        f"{tokens} up to {most:,} sequences ({sum(level.paces) / len(level.paces):.3g} tokens a step)"
        for (most, tokens), level in zip(plan.draft_up_to, limits.levels, strict=False)
    ]
    return f"by load: {', '.join(words)}, none beyond"


def _slots(
    plan: SimulationPlan, question: Question, rules: SchedulerRules, replicas: int
) -> tuple[ReplicaPool, tuple[str, ...]]:
    """An engine with a fixed number of slots, each with its own part of the cache."""
    _require_of_slots(plan, rules)
    step, notes = plain_step(question)
    limits = EngineLimits(
        tokens=plan.tokens or rules.step_tokens or 2048,
        sequences=plan.sequences or rules.slots or 1,
        blocks=plan.blocks or ENDLESS,
        block_tokens=plan.block_tokens or 1,
        prefix_cache=rules.prefix_cache and plan.prefix_cache,
        by_priority=bool(plan.priorities),
        longest=plan.longest or question.graph.context_limit,  # as engines read it from a model's config
        queue=plan.queue,
        patience_s=plan.patience_s or inf,
        cancels=plan.cancels,
        away_tokens=_CACHE_RAM / max(1, question.fit().kv_bytes_per_token),
    )
    words = f"Steps are made as by {rules.title}, {limits.sequences} slots: {rules.url}."
    if limits.prefix_cache:
        words += " Prompts that begin as those of their slot, or of the host's memory, did are read from there on."
    steps = StepTimes(step, limits.tokens, limits.sequences)
    times: Times = TimesApart(steps, limits.sequences) if rules.apart else steps
    return ReplicaPool(times=times, rules=rules, limits=limits, replicas=replicas), (*notes, words)


def _require_of_slots(plan: SimulationPlan, rules: SchedulerRules) -> None:
    """A request keeps its slot to its end: nothing gives way, and nothing below the cache is fetched block by block."""
    paged = {
        "adapters (--lora)": plan.lora, "images (--images)": plan.vision, "drafts (--draft)": plan.speculation,
        "a pool that reads prompts (--prefill-on)": plan.readers, "tiers below the cache (--kv-offload)": plan.offload,
        "swapping (--preemption swap)": plan.swap,
    }  # fmt: skip
    asked = [name for name, value in paged.items() if value]
    if asked:
        raise DomainError(
            f"{rules.title} has slots: {', '.join(asked)} would change nothing in its simulation.",
            remedy="Leave it out, or choose --runtime vllm, sglang or trtllm.",
        )


def _is_gang(plan: SimulationPlan) -> bool:
    """Whether data-parallel ranks share experts and step together; otherwise they are replicas of their own.

    Some engines' ranks do so whenever there are experts; of the others those whose experts are spread over all ranks
    (SGLang's `--enable-dp-attention`, TensorRT-LLM's `enable_attention_dp`).
    """
    question = plan.question
    graph, parallel = question.graph, question.workload.parallel
    rules = scheduler_of(question.runtime_name, question.options.engine_version)
    whole = parallel.tp * plan.ranks
    if plan.ranks == 1 or graph.active_parameters == graph.parameters or not (rules.gang or parallel.ep == whole):
        return False
    if parallel.ep not in {1, whole}:
        raise DomainError(
            f"{rules.title} spreads experts over all tp·dp = {whole} devices or splits each over them, and --ep is "
            f"{parallel.ep}.",
            remedy=f"Use --ep {whole} for --enable-expert-parallel, or leave --ep out.",
        )
    return True


def _of_ranks(plan: SimulationPlan) -> Question:
    """About all ranks at once, each with its share of the experts."""
    workload = plan.question.workload
    parallel = replace(workload.parallel, dp=plan.ranks, ep=workload.parallel.tp * plan.ranks)
    return replace(plan.question, workload=replace(workload, parallel=parallel, batch=plan.ranks))


def _gang(plan: SimulationPlan, pool: ReplicaPool, question: Question) -> tuple[ReplicaPool, tuple[str, ...]]:
    """Ranks that step together, each with its own limits; their experts are split as with tensor parallelism."""
    ranks, limits, workload = plan.ranks, pool.limits, question.workload
    parallel = replace(workload.parallel, tp=workload.parallel.tp * ranks, ep=plan.question.workload.parallel.ep)
    what, shared = served(question), served(_of_ranks(plan))
    adapted, adapters = _adapted(plan, question, what)
    times = GangTimes(
        # A draft that is a layer of the model has its share of the experts, as the other layers have.
        StepTimes(adapted.step, limits.tokens, limits.sequences, _speculation(plan, shared), adapters), ranks,
        alone=gang_seconds(question)[0],
        together=gang_seconds(replace(question, workload=replace(workload, parallel=parallel))),
        most=limits.tokens + _most_tokens(limits) * limits.sequences, padded_up_to=what.rules.captured_up_to,
        per_sequence=limits.per_sequence, up_to=plan.draft_up_to,
    )  # fmt: skip
    words = (
        f"The {ranks} data-parallel ranks share the experts and step together, each with a queue, limits and a cache "
        "of its own."
    )
    return replace(pool, ranks=ranks, gang=times), (words,)


def _limits(plan: SimulationPlan, what: ServedReplica, question: Question) -> EngineLimits:
    memory = what.memory if plan.head in {None, "ngram"} else with_head(what)
    block_tokens = plan.block_tokens or (what.rules.block_tokens if memory is None else memory.block_tokens)
    blocks = plan.blocks
    if blocks is None and memory is not None:
        blocks = memory.kv_tokens // block_tokens
        if not blocks:
            raise DomainError(
                f"{question.graph.name} does not fit on {question.device.name} with room for a cache.",
                remedy="Use more devices (--tp), fewer bits a weight (--weights), or a larger device.",
            )
    drafted = 0 if plan.speculation is None else plan.speculation[0]
    swap_s = _swap_s(what, question, block_tokens) if plan.swap else None
    paces = _paces(plan, drafted)
    return EngineLimits(
        tokens=plan.tokens or what.limits.tokens,
        sequences=plan.sequences or what.limits.sequences,
        blocks=blocks or ENDLESS,
        block_tokens=block_tokens,
        kept=sum(paces) / len(paces),
        paces=paces if len(paces) > 1 else (),
        levels=_levels(plan),
        per_sequence=1 + drafted,
        swap_s_per_block=swap_s,
        by_priority=bool(plan.priorities),
        seen=_HALF if (plan.traffic.trace is not None and plan.traffic.trace.between_steps) else 0.0,
        longest=plan.longest or question.graph.context_limit,  # as engines read it from a model's config
        queue=plan.queue,
        tiers=tuple(_tier(what, question, block_tokens, *tier) for tier in plan.offload),
        patience_s=plan.patience_s or inf,
        cancels=plan.cancels,
    )


def _adapted(
    plan: SimulationPlan, question: Question, what: ServedReplica
) -> tuple[ServedReplica, AdapterSeconds | None]:
    """What serves with the kernels of adapters to launch, and what their products take."""
    if plan.lora is None:
        return what, None
    adapters = adapter_seconds(question, plan.lora.rank, plan.lora.adapters, plan.lora.slots)
    return replace(what, step=replace(what.step, launches=what.step.launches + adapters.launches)), adapters


def _products_words(adapters: AdapterSeconds, times: StepTimes, sequences: int) -> str:
    """What the products of adapters take of a step that decodes, alone and with many."""
    parts = []
    for count in (1, min(64, sequences)):
        added, whole = times.kernels * adapters.at(count, count), times.decode(count, 512.0)
        parts.append(f"{1e3 * added:.3g} ms of {1e3 * whole:.3g} where {count} decode")
    return f"Their own products are in every step: {', '.join(parts)}."


def _with_extras(
    plan: SimulationPlan, question: Question, limits: EngineLimits, memory: ServingMemory | None
) -> tuple[EngineLimits, list[str]]:
    """Adapters and images, their share of the cache's room, and notes on what of them is left out."""
    words, held_bytes = [], 0.0
    if plan.lora is not None:
        # Two thin matrices in 16 bits beside every product of the layers, on each device its share of them.
        products = adapted_products(question.graph)
        wide: int = sum(block.count * (op["in_features"] + op["out_features"]) for block, op in products)
        a_slot = 2.0 * plan.lora.rank * wide / question.workload.parallel.tp
        load_s, held_bytes = a_slot / _host_rate(question), plan.lora.slots * a_slot  # engines keep room for all slots
        limits = replace(limits, adapters=Adapters(slots=plan.lora.slots, load_s=load_s))
        words.append(
            f"An adapter of rank {plan.lora.rank} has {a_slot / 1e6:.3g} MB on a device. It takes "
            f"{1e3 * load_s:.3g} ms from the host's memory, which the step waits for."
        )
    if plan.vision is not None:
        # vLLM keeps results of the encoder for as many tokens as a step has (SchedulerConfig.encoder_cache_size).
        encoder = Encoder(image_s=plan.vision.encode_s, image_tokens=plan.vision.tokens, cache_tokens=limits.tokens)
        limits = replace(limits, encoder=encoder)
        held_bytes += plan.vision.weights_bytes
        weights = (
            "" if plan.vision.weights_bytes else "; name its model and its weights are taken from the cache's room"
        )
        words.append(
            f"An image takes the encoder {1e3 * plan.vision.encode_s:.3g} ms, one after the other in the step that "
            f"begins its prompt{weights}."
        )
    return _beside(limits, memory, held_bytes) if plan.blocks is None else limits, words


def _beside(limits: EngineLimits, memory: ServingMemory | None, held_bytes: float) -> EngineLimits:
    """With what is left of the cache beside so many bytes more of weights on each device."""
    if memory is None or not held_bytes:
        return limits
    blocks = limits.blocks - ceil(held_bytes / (memory.kv_bytes_per_token * limits.block_tokens))
    if blocks < 1:
        raise DomainError(
            f"Adapters and encoder have {held_bytes / 1e9:.3g} GB on a device, which leaves no room for a cache.",
            remedy="Use fewer --max-loras, a smaller rank or encoder, or more devices (--tp).",
        )
    return replace(limits, blocks=blocks)


def _tier(what: ServedReplica, question: Question, block_tokens: int, size: float, rate: float | None) -> Tier:
    """A tier of all devices of a replica. Over the links to the host each device moves its own share of a block."""
    if what.memory is None:
        raise DomainError(
            f"The memory of {question.device.name} is not known, and so not what a tier below it holds.",
            remedy="Leave --kv-offload out, or give the capacity in a device file of your own.",
        )
    parallel = question.workload.parallel
    a_block = what.memory.kv_bytes_per_token * parallel.tp * parallel.pp * block_tokens
    load_s = _swap_s(what, question, block_tokens) if rate is None else a_block / rate
    return Tier(blocks=int(size / a_block), load_s=load_s)


def kept_tokens(length: int, acceptance: float) -> float:
    """Tokens that a step with a draft makes on average: 1 + a + a² + … + aⁿ, of n drafted with acceptance a each."""
    return sum(acceptance**index for index in range(length + 1))


# Means of the five fifths of a normal distribution, in standard deviations.
_FIFTHS = (-1.3998, -0.5319, 0.0, 0.5319, 1.3998)


def _levels(plan: SimulationPlan) -> tuple[DraftLevel, ...]:
    """What is drafted by load; nothing where it is the same at any."""
    if not plan.draft_up_to:
        return ()
    up_to = [
        DraftLevel(most=most, paces=_paces(plan, tokens), per_sequence=1 + tokens) for most, tokens in plan.draft_up_to
    ]
    return (*up_to, DraftLevel(most=inf, paces=_paces(plan, 0)))


def _most_tokens(limits: EngineLimits) -> int:
    """Tokens of a sequence in a step of decoding, at the load at which they are most."""
    return max((level.per_sequence for level in limits.levels), default=limits.per_sequence)


def _paces(plan: SimulationPlan, length: int) -> tuple[float, ...]:
    """Tokens a step: of all requests, or of five equal groups, from the ones that drafts suit least to the most."""
    if plan.speculation is None:
        return (1.0,)
    acceptance = plan.speculation[1]
    if not plan.spread:
        return (kept_tokens(length, acceptance),)
    shares = (min(0.99, max(0.0, acceptance + plan.spread * fifth)) for fifth in _FIFTHS)
    return tuple(kept_tokens(length, share) for share in shares)


def _speculation(plan: SimulationPlan, what: ServedReplica) -> Speculation | None:
    if plan.speculation is None:
        return None
    length, _ = plan.speculation
    draft = plan.question.options.speculative
    step = None
    if draft is not None:
        step = served(replace(alone(plan.question), graph=draft.draft)).step
        step = replace(step, costs=what.step.costs)
    elif plan.head in {"eagle", "mtp"}:
        step = what.step.layer()
    return Speculation(length=length, draft=step, up_to=plan.draft_up_to)


def with_head(what: ServedReplica) -> ServingMemory | None:
    """Beside a head that drafts: one layer more, with its weights and its cache. It shares the embedding."""
    memory, layers = what.memory, what.step.layers
    if memory is None:
        return None
    return replace(
        memory,
        weights_bytes=memory.weights_bytes * (1 + 1 / layers),
        kv_bytes_per_token=memory.kv_bytes_per_token * (1 + 1 / layers),
    )


def _swap_s(what: ServedReplica, question: Question, block_tokens: int) -> float:
    rate = _host_rate(question)
    if what.memory is None:
        raise DomainError(f"The memory of {question.device.name} is not known, so blocks cannot be swapped.")
    return what.memory.kv_bytes_per_token * block_tokens / rate


def _host_rate(question: Question) -> float:
    """Bytes a second between the host and the device."""
    link = question.device.host_link
    if link is None or link.bandwidth_bytes_per_s is None:
        raise DomainError(
            f"The link between {question.device.name} and its host is not known.",
            remedy="Leave --preemption swap and --lora out, or give --kv-offload a rate: 64GB@20GB/s.",
        )
    return float(link.bandwidth_bytes_per_s)


def _handover_s(plan: SimulationPlan, question: Question) -> float:
    """Seconds a token of the prompt, to send its cache from one pool to the other. The devices send their shares."""
    device, memory = question.device, served(question).memory
    link = plan.link or plan.question.options.link or device.network_link
    if (link is None and (device.peer_link or device.host_link) is None) or memory is None:
        raise DomainError(
            f"The link between the pools of {device.name} is not known.", remedy="Name one: --link infiniband-ndr."
        )
    if link is None:  # their own in one machine; a network where they are more than it has
        pools = [
            (question, plan.replicas * plan.ranks),
            *([(plan.readers, plan.reader_replicas)] if plan.readers else []),
        ]
        each = [(pool.workload.parallel, count) for pool, count in pools]
        route = route_of(device, None, sum(parallel.tp * parallel.pp * count for parallel, count in each))
        link = route.between or route.within
    tokens = 1024
    sent = memory.kv_bytes_per_token * tokens
    return float(message_seconds("send", 2, sent, link)) / tokens
