"""The search: every candidate by the closed form, then the best ones by simulation until enough are confirmed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from heapq import heapify, heappop, heappush, nsmallest
from itertools import product
from math import ceil, comb
from os import cpu_count
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.dtypes import dtype
from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, is_generative
from inferometer.core.served import Distribution, Level, LevelFigures, Window
from inferometer.core.traffic.arrivals import Arrivals
from inferometer.core.traffic.figures import figures_of
from inferometer.core.traffic.lengths import draw
from inferometer.core.traffic.traces import part_of, repeated_tokens, scaled
from inferometer.core.units import format_quantity
from inferometer.known import device as device_named
from inferometer.known import model as model_named
from inferometer.known.engines import engine as engine_named
from inferometer.known.engines import serving_engine
from inferometer.known.files import row_named
from inferometer.predict.ask import ask, model_graph
from inferometer.predict.energy import power_model
from inferometer.predict.money import carbon_grams, hourly_price
from inferometer.predict.price.collectives import route_of
from inferometer.predict.served.question import ServedReplica, served
from inferometer.predict.served.steady import Drafts, Traffic
from inferometer.predict.sweep.engines import Spread, spread_over
from inferometer.predict.sweep.serving import priced_gpus
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.plans.asked import (
    MONTH_H,
    Candidate,
    Drafting,
    FrontPoint,
    PlanAnswer,
    PlanSearch,
    ServingPlan,
    Way,
)
from inferometer.serving.plans.autoscaling import follow, require_varying
from inferometer.serving.plans.closed import LoadCurve, PoolTimes, load_curve, pool_times
from inferometer.serving.plans.tiers import edge_tier
from inferometer.serving.simulate.building import kept_tokens, with_head
from inferometer.serving.simulate.plan import SimulationPlan
from inferometer.serving.simulate.run import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inferometer.core.device import Link
    from inferometer.predict.question import Question
    from inferometer.predict.served.memory import StepLimits

_TP = (1, 2, 4, 8)
# Families whose files have layers of multi-token prediction: num_nextn_predict_layers of DeepSeek-V3's config.json,
# mtp_num_hidden_layers of Qwen3.5's.
_PREDICT_SEVERAL = frozenset({"deepseek_v3", "qwen3_5", "qwen3_5_moe"})
_WEIGHTS = ("f8e4m3", "i4")  # tried beside a model's own format, where they are fewer bits
_FEWER = 0.85  # of the own bits: FP8 with its scales is 8.03 bits a weight, MXFP4 with what stays wider 4.47
_SIMULATED_REPLICAS = 2
_LEAST_REQUESTS, _MOST_REQUESTS, _MOST_OF_SESSIONS = 600, 4000, 20_000
_TRIES_AT_THE_RATE = 3  # simulations of sessions that come ever quicker
_KEPT_UP = 0.97  # of the offered rate
_MOST_SIMULATIONS = 32
_TRIES_OF_POOLS = 6  # simulations of plans with a pool that reads prompts
_WORTH_SHOWING = 2.0  # times what the best plan costs: pools beyond that are not tried
_SIMULATED_OF_POOLS = 12  # replicas of both; of more pools a share is simulated
_MOST_OTHERS, _TRIES_OF_OTHERS = 6, 3  # devices beside those of the best plans, and simulations for each
_REFUSED = 0.01  # of the requests: with more of them beyond the model's context there is no plan
_TEMPLATE, _LENGTHS = 64, 256  # tokens that a chat's template adds (Llama 3.1's some 40), and steps of the limit
_WORTH_PROCESSES = 150  # ways to serve a model: some three seconds of one core
_LEAST_CORES, _MOST_PROCESSES = 4, 16  # with two, beginning a process costs what it saves
_AT_ONCE = 3  # simulations ahead of the one that is asked for, where there are workers for them
_SAME = 5e-4
_SIMULATIONS_OF_FOLLOWING = 4  # that it counts for: several loads of a day, or a whole trace
_FRONT = 12  # points of it that are shown
_GROWTH = 0.08  # more replicas after a simulation that missed an objective
_SMALLER = (
    "Weights and caches in fewer bits than the model's own change its answers: try them on requests of your own, or "
    "leave them out with --weights own --kv own."
)
_IDLE = "A device that waits draws its idle power, one that works a share of its limit (docs/predicting.md)."


@frozen
class Configuration:
    """What a replica is: its served model, and the curve from load to latency."""

    way: Way
    sequences: int
    what: ServedReplica
    curve: LoadCurve
    pools: PoolTimes | None = None  # as one of two pools
    tokens: int = 0


@frozen
class Refused:
    """A way to serve a model that is none, and why."""

    way: str
    message: str
    remedy: str | None


def plan(search: PlanSearch, *, engine: str = "local", progress: Callable[[str], None] | None = None) -> PlanAnswer:
    """Plans within the objectives, the best first; or why there is none. The same wherever it is computed."""
    graph = model_graph(search.model)  # an unknown name is told before anything is searched
    if not is_generative(graph):
        raise DomainError(
            f"{graph.name} makes no tokens, and a rate is of models that do.",
            remedy="Say how many images come: --frames 30 --streams 8.",
        )
    with spread_over(engine) as spread:
        return plan_of(search, spread, progress)


def _require_names(search: PlanSearch) -> None:
    """A name that nobody knows is a slip, and no plan that failed."""
    for name in search.devices:
        device_named(name)
    for name in search.runtimes:
        engine_named(name)
    for form in (*search.weights, *search.kv):
        if form is not None:
            dtype(form)


def plan_of(
    search: PlanSearch,
    spread: Spread,
    progress: Callable[[str], None] | None,
    known: tuple[list[Configuration], list[Refused]] | None = None,
) -> PlanAnswer:
    """`known` are the configurations, where somebody has them."""
    require_varying(search)
    found, refused = known or all_configurations(search, spread)
    candidates, pools = list(_candidates(search, found)), list(_pool_candidates(search, found))
    count = sum(_tried(search, configuration) for configuration in found) + len(refused) + len(pools)
    fitting, pools = (
        [each for each in many if each.count <= search.most_devices and not _is_over(search, each)]
        for many in (candidates, pools)
    )
    confirming = _Confirming(search, found, _Simulations(search, spread), progress)
    plans = confirming.best(fitting, search.keep, _MOST_SIMULATIONS)
    rejected, others = list(dict.fromkeys(confirming.rejected)), list[ServingPlan]()
    for device in dict.fromkeys(each.way.device for each in sorted(fitting, key=lambda each: each.score(search.goal))):
        if plans and device not in {each.device for each in plans} and len(others) < _MOST_OTHERS:
            others += confirming.best([each for each in fitting if each.way.device == device], 1, _TRIES_OF_OTHERS)
    limit = _WORTH_SHOWING * _cost(search, plans[0]) if plans else float("inf")
    apart = confirming.best([each for each in pools if each.score(search.goal) <= limit], 1, _TRIES_OF_POOLS)
    if apart and (not plans or _cost(search, apart[0]) < _cost(search, plans[0])):
        plans, apart = [*apart, *plans][: search.keep], []
    explained = tuple(_explained(search, plans))
    own = {each.device: each for each in reversed(plans)}
    best_first = sorted([*own.values(), *others], key=lambda each: _cost(search, each))
    by_device = (
        tuple(_explained(search, [plans[0], *(each for each in best_first if each is not plans[0])])) if plans else ()
    )
    simulated = confirming.simulated
    why_not = None if plans else _why_not(search, found, candidates, refused, rejected)
    smaller = any(each.kv or each.weights for each in plans)
    notes = (*((_SMALLER,) if smaller else ()), *((_IDLE,) if any(each.watts is not None for each in plans) else ()))
    return PlanAnswer(
        plans=explained, why_not=why_not, candidates=count, simulated=simulated, rejected=tuple(rejected), notes=notes,
        edge=edge_tier(search, explained[0]) if explained else None, by_device=by_device if len(by_device) > 1 else (),
        front=front_of(search, found), apart=next(iter(list(_explained(search, [plans[0], *apart]))[1:]), None)
        if plans else None,
    )  # fmt: skip


def _is_over(search: PlanSearch, candidate: Candidate) -> bool:
    """Whether it draws more than it may; what is not known to draw less counts as more."""
    return search.most_watts is not None and (candidate.watts is None or candidate.watts > search.most_watts)


def front_of(search: PlanSearch, found: list[Configuration]) -> tuple[FrontPoint, ...]:
    """The points of all curves that none beats in tokens a second of a user and of a device, a dozen of them."""
    points = [
        (1 / float(tpot), float(rate) * search.generate.mean / each.way.size, float(ttft), round(float(count)), each)
        for each in found
        for count, rate, ttft, tpot in zip(
            each.curve.sequences, each.curve.rate_per_s, each.curve.ttft_s, each.curve.tpot_s, strict=True
        )
    ]
    front, most = [], 0.0
    for user, device, ttft, count, each in sorted(points, key=lambda point: (-point[0], -point[1])):
        if device > most:
            most = device
            point = FrontPoint(
                **each.way.given, at_once=count, tokens_per_s_per_user=user, tokens_per_s_per_device=device, ttft_s=ttft
            )
            front.append(point)
    chosen = np.unique(np.linspace(0, len(front) - 1, min(_FRONT, len(front))).round().astype(int)) if front else ()
    return tuple(front[index] for index in chosen)


class _Confirming:
    """Confirms candidates by simulation, the best first: one that misses an objective comes back with more replicas."""

    def __init__(
        self,
        search: PlanSearch,
        found: list[Configuration],
        simulations: _Simulations,
        progress: Callable[[str], None] | None,
    ) -> None:
        self._search, self._simulations, self._progress = search, simulations, progress
        self._by_key = {_key(configuration): configuration for configuration in found}
        self.simulated = 0
        self.rejected: list[str] = []

    def best(self, candidates: list[Candidate], keep: int, most: int) -> list[ServingPlan]:
        """The `keep` best plans, after `most` simulations at most. Plans that look equal are one."""
        search, plans = self._search, list[ServingPlan]()
        queue = [(each.score(search.goal), order, each) for order, each in enumerate(candidates)]
        heapify(queue)
        order, last = len(queue), self.simulated + most
        confirmed: set[tuple[object, ...]] = set()
        while queue and len(plans) < keep and self.simulated < last:
            _, _, candidate = heappop(queue)
            if _key(candidate)[:-2] in confirmed:
                continue  # the same with other limits of a step
            configuration = self._by_key[_key(candidate)]
            following = [waiting for _, _, waiting in nsmallest(_AT_ONCE, queue)]
            made, missed = self._tried(candidate, configuration, following)
            if made is not None:
                if search.autoscale is not None:
                    followed = self._followed(made, candidate, configuration)
                    if isinstance(followed, str):  # more replicas at the peak would change nothing
                        self.rejected.append(f"{candidate.words}: {followed}.")
                        continue
                    made = followed
                if all(_seen(made) != _seen(other) for other in plans):
                    plans.append(made)
                confirmed.add(_key(candidate)[:-2])
                continue
            self.rejected.append(f"{candidate.words}: {missed} in the simulation.")
            grown = self._grown(candidate, configuration, missed or "")
            if grown.needed <= search.most_devices and not _is_over(search, grown):
                order += 1
                heappush(queue, (grown.score(search.goal), order, grown))
        # What is held while the load rises and falls is known only now.
        return plans if search.autoscale is None else sorted(plans, key=lambda each: _cost(search, each))

    def _followed(self, plan: ServingPlan, candidate: Candidate, configuration: Configuration) -> ServingPlan | str:
        """The plan with replicas that follow the load, or what they miss."""
        search = self._search
        if self._progress is not None:
            self._progress(f"{candidate.words}, and replicas that follow the load")
        self.simulated += _SIMULATIONS_OF_FOLLOWING
        found = follow(
            search, _service(search, candidate, LoadPlan(
                url="simulated", prompt=search.prompt, generate=search.generate, objectives=search.objectives,
                seed=search.seed,
            ), candidate.replicas), configuration.what, configuration.curve, replicas=candidate.replicas,
            most=search.most_devices // candidate.way.size, missed=partial(_missed, search),
        )  # fmt: skip
        if isinstance(found, str):
            return found
        way, scaled = candidate.way, found.scaled
        devices, capacity = way.size * scaled.mean_replicas, candidate.capacity_per_s
        busy = search.cloud_rate_per_s * search.mean_load / (capacity * scaled.mean_replicas)
        usd, watts = _usd_per_hour(search, way.device, devices), _watts(way.device, devices, busy)
        return replace(
            plan, autoscaled=scaled, replicas=scaled.most, count=way.size * scaled.most, utilisation=min(1.0, busy),
            headroom=max(0.0, capacity * scaled.most / scaled.peak_per_s - 1),
            **_paid(search, usd, watts), **_times_of(found.figures), kv_share=found.kv_share, requests=found.requests,
            notes=(scaled.held_words, *found.notes),
        )  # fmt: skip

    def _grown(self, candidate: Candidate, configuration: Configuration, missed: str) -> Candidate:
        """With more replicas: of pools, of the one that can help."""
        replicas, readers = (each + max(1, round(_GROWTH * each)) for each in (candidate.replicas, candidate.readers))
        if candidate.reader is None:
            return _candidate(self._search, configuration, replicas)
        reader = self._by_key[candidate.reader, candidate.sequences, candidate.tokens]
        return _candidate(
            self._search,
            configuration,
            candidate.replicas if missed.startswith("ttft") else replicas,
            (reader, candidate.readers if missed.startswith("tpot") else readers),
        )

    def _tried(
        self, candidate: Candidate, configuration: Configuration, following: list[Candidate]
    ) -> tuple[ServingPlan | None, str | None]:
        """The plan, or what it missed."""
        if self._progress is not None:
            self._progress(candidate.words)
        self.simulated += 1
        level, figures = self._simulations.of(candidate, following)
        missed = _missed(self._search, figures)
        return (
            (_plan(self._search, candidate, configuration, level, figures), None) if missed is None else (None, missed)
        )


def _seen(plan: ServingPlan) -> tuple[object, ...]:
    """What one sees of a plan: the same format by two names, or the same limit, makes no other."""
    return (
        plan.device,
        plan.count,
        plan.runtime,
        plan.tp,
        plan.pp,
        plan.ep,
        plan.dp,
        plan.readers,
        plan.usd_per_hour,
        plan.ttft_p95_s,
        plan.tpot_p95_s,
    )


def _cost(search: PlanSearch, plan: ServingPlan) -> float:
    by = {"cheapest": plan.usd_per_hour, "greenest": plan.watts, "smallest": float(plan.count)}[search.goal]
    return float("inf") if by is None else by


class _Simulations:
    """Simulations of candidates: the requested one, and the next ones beside it on other workers."""

    def __init__(self, search: PlanSearch, spread: Spread) -> None:
        self._search, self._spread, self._is_here = search, spread, spread is map
        self._known: dict[tuple[object, ...], tuple[Level, LevelFigures]] = {}

    def of(self, candidate: Candidate, following: list[Candidate]) -> tuple[Level, LevelFigures]:
        def key(of: Candidate) -> tuple[object, ...]:
            return (*_key(of), of.replicas, of.readers, of.reader)

        if key(candidate) not in self._known:
            asked = [candidate] if self._is_here else [candidate, *following]
            found = self._spread(partial(_simulated, self._search), asked)
            self._known |= {key(each): result for each, result in zip(asked, found, strict=True)}
        return self._known[key(candidate)]


def usual_engine(search: PlanSearch) -> str:
    """All cores where there is enough to compare; a few devices are compared before other processes have begun."""
    cores = min(_MOST_PROCESSES, cpu_count() or 1)
    return f"local:{cores}" if cores >= _LEAST_CORES and len(ways(search)) >= _WORTH_PROCESSES else "local"


def ways(search: PlanSearch) -> list[Way]:
    """What a replica can be, but for the limits of its steps.

    Where nobody says, a pipeline is tried where the most devices share its layers already (it begins where a machine
    ends), experts that are shared out are tried beside those that every device has a slice of, and copies of attention
    where one latent serves all heads. Drafts are not tried in a pipeline: vLLM has none there (docs, "Speculative
    Decoding").
    """
    graph = model_graph(search.model)
    _require_context(search)
    for drafting in search.drafts:
        _require_drafts(search.model, graph, drafting)
    shared, experts = search.tp or _TP, any(op.kind == "moe_experts" for _, op in graph.ops())
    split = [
        {"tp": tp, "pp": pp, "ep": ep}
        for tp in shared
        for pp in search.pp or ((1, 2) if tp == max(shared) > 1 else (1,))
        for ep in dict.fromkeys(search.ep or ((1, tp) if experts else (1,)))
        if ep <= tp
    ]
    copied = search.dp or (shared if experts and graph.metadata.get("kv_latent") else ())
    split += [{"tp": 1, "dp": dp, "ep": dp} for dp in copied if dp > 1]
    fewer = [name for name in _WEIGHTS if dtype(name).bits < _FEWER * own_bits(graph)]
    kinds = product(
        search.devices or priced_gpus(), search.runtimes or (serving_engine(),), search.weights or (None, *fewer)
    )
    return [
        Way(device=device, runtime=runtime, weights=weights, kv=kv, drafting=drafting, **parallel)
        for device, runtime, weights in kinds
        for parallel in split
        for kv in search.kv
        for drafting in (None, *search.drafts)
        if drafting is None or parallel.get("pp", 1) == 1
    ]


def _require_drafts(model: Any, graph: Graph, drafting: Drafting) -> None:
    """A model that drafts has the same tokens; a layer for several of them is part of the model or is not there."""
    if drafting.head is None:
        own, others = (each.metadata.get("vocab_size") for each in (graph, model_graph(drafting.draft)))
        if own != others:
            raise DomainError(
                f"{drafting.draft} has {others or 'no'} tokens and {graph.name} {own}, so it cannot draft for it.",
                remedy="Name a smaller model of the same family, or eagle, mtp or ngram.",
            )
    in_catalog = isinstance(model, str) and row_named("models", model)
    if drafting.head == "mtp" and in_catalog and model_named(model).family not in _PREDICT_SEVERAL:
        raise DomainError(
            f"{graph.name} comes without a layer that predicts several tokens (MTP).",
            remedy="Name eagle, ngram or a smaller model of the same family: --draft eagle.",
        )


def own_bits(graph: Graph) -> float:
    """Bits of a weight in the model's own format, on average; one that names none is stored as its graph says."""
    stored = [
        (tensor.elements, dtype(tensor.dtype or graph.precision or "f32").bits, n) for tensor, n in graph.weights()
    ]
    known = [(elements * count, float(bits)) for elements, bits, count in stored if isinstance(elements, int)]
    return sum(elements * bits for elements, bits in known) / max(1, sum(elements for elements, _ in known))


def all_configurations(search: PlanSearch, spread: Spread = map) -> tuple[list[Configuration], list[Refused]]:
    _require_names(search)
    found: list[Configuration] = []
    refused: list[Refused] = []
    for result in spread(partial(_configured, search), ways(search)):
        if isinstance(result, Refused):
            refused.append(result)
        else:
            found += result
    return found, refused


def _configured(search: PlanSearch, way: Way) -> list[Configuration] | Refused:
    """The configurations of one way, or why there is none."""
    prompt = max(1, round(search.prompt.mean))
    cached = (
        0 if search.trace is None else int(prompt * repeated_tokens(search.trace) / search.trace.input_tokens.sum())
    )
    traffic = Traffic(prompt=prompt, generate=max(1, round(search.generate.mean)), cached=min(cached, prompt - 1))
    try:
        return list(_configurations(search, traffic, way))
    except InferometerError as error:
        return Refused(way=way.words, message=error.message, remedy=error.remedy)


def _configurations(search: PlanSearch, traffic: Traffic, way: Way) -> Iterator[Configuration]:
    question = _asked(search, way, prompt=traffic.prompt, generate=traffic.generate)
    _require_room(question, way.size)
    _require_coming(search, question)
    own, longest = _replica(question, way.drafting), longest_request(search)
    for sequences, tokens in _limits(search, own.limits):
        what = own.limited(sequences=sequences, tokens=tokens)
        if what.memory is not None and what.memory.sequences_of(traffic.prompt + traffic.generate) < 1:
            raise DomainError(f"{question.graph.name} does not fit beside a cache on {way.device}.")
        if what.memory is not None and what.memory.kv_tokens < longest:
            raise DomainError(f"The cache on {way.device} does not hold one request of {longest:,} tokens.")
        own_traffic = replace(traffic, drafts=what.drafts)
        yield Configuration(
            way=replace(way, device=question.device.name), sequences=sequences, tokens=tokens, what=what,
            curve=load_curve(what, own_traffic, sequences),
            pools=pool_times(what, own_traffic, sequences) if way.pp == way.dp == 1 else None,
        )  # fmt: skip


def _limits(search: PlanSearch, own: StepLimits) -> list[tuple[int, int]]:
    """Sequences and tokens of a step to try: of each the first, and the others of one beside the first of the other.

    An engine starts only where a step has a token for each of its sequences (vLLM's SchedulerConfig).
    """
    sequences = [most or own.sequences for most in search.sequences]
    tokens = [most or own.tokens for most in search.tokens]
    pairs = [*((most, tokens[0]) for most in sequences), *((sequences[0], most) for most in tokens)]
    return list(dict.fromkeys((min(pair), pair[1]) for pair in pairs))


def _replica(question: Question, drafting: Drafting | None) -> ServedReplica:
    """What is served, with what drafts. A head is one layer more; looking n-grams up costs nothing."""
    what = served(question)
    if drafting is None or drafting.head is None:
        return what
    gained = kept_tokens(drafting.length, drafting.acceptance)
    if drafting.head == "ngram":
        return replace(what, drafts=Drafts(length=drafting.length, gained=gained, layers=0))
    drafts = Drafts(length=drafting.length, gained=gained, step=what.step.layer())
    return replace(what, drafts=drafts, memory=with_head(what))


def longest_request(search: PlanSearch) -> int:
    """What an engine must take at most (max_model_len): the longest prompt with its answer, of many that are drawn.

    With room for the words that a chat's template adds, and no more than the model's own context.
    """
    rounded = -(-(int(_lengths_of(search).max()) + _TEMPLATE) // _LENGTHS) * _LENGTHS
    context = _context(search.model)
    return rounded if context is None else min(rounded, context)


def _lengths_of(search: PlanSearch) -> Any:
    """Tokens of whole requests: a trace's own, or many that are drawn."""
    if search.trace is not None:
        return search.trace.input_tokens + search.trace.output_tokens
    rng = np.random.default_rng(search.seed)
    return draw(search.prompt, _MOST_REQUESTS, rng) + draw(search.generate, _MOST_REQUESTS, rng)


def _context(model: Any) -> int | None:
    """The longest sequence that an engine takes of a catalog's model: what its config says, before what was published.

    Engines read `max_position_embeddings` (vLLM's derived_max_model_len), and refuse requests beyond it.
    """
    if not isinstance(model, str) or not row_named("models", model):
        return None
    row = model_named(model)
    known = row.config.get("max_position_embeddings") or (None if row.context is None else float(row.context))
    return None if known is None else int(known)


def _require_context(search: PlanSearch) -> None:
    """A plan for requests that its engine refuses is none; a few at the end of a distribution are left to it."""
    context = _context(search.model)
    beyond = 0.0 if context is None else float(np.mean(_lengths_of(search) > context))
    if beyond > _REFUSED:
        raise DomainError(
            f"{beyond:.0%} of the requests are longer than {context:,} tokens, which is all that engines take of "
            f"{search.model}: the longest has {int(_lengths_of(search).max()):,}.",
            remedy="Name a model with a longer context, or shorten --prompt, --generate or the trace.",
        )


def _asked(search: PlanSearch, way: Way, prompt: int | None = None, generate: int | None = None) -> Question:
    """The question about a replica. The link of a search is between machines: within one, devices have their own."""
    drafting, drafts = way.drafting, dict[str, Any]()
    if drafting is not None and drafting.head is None:
        drafts = {"draft": drafting.draft, "draft_length": drafting.length, "acceptance": drafting.acceptance}
    question = ask(
        search.model, on=way.device, runtime=way.runtime, weights=way.weights, kv=way.kv, tp=way.tp, pp=way.pp,
        ep=way.ep, dp=way.dp, options=search.options, prompt=prompt, generate=generate, **drafts,
    )  # fmt: skip
    if search.link is None or way.size == 1 or route_of(question.device, search.link, way.size).between is None:
        return question
    return replace(question, options=replace(question.options, link=search.link))


def _link_between_pools(search: PlanSearch, device: str, count: int) -> Link | None:
    """What caches are sent over: as asked, or the machine's own where all devices are in one."""
    if search.link is not None:
        return search.link
    try:
        route = route_of(device_named(device), None, count)
    except DomainError:
        return None  # nobody knows how its devices are joined
    return route.between or route.within


def _require_room(question: Question, devices: int) -> None:
    """Weights that alone are more than the memory need no pricing."""
    graph, memory, asked = question.graph, question.device.memory, question.workload.precision.weights
    if memory is None or memory.room is None:
        return
    needed = graph.parameters * float(dtype(asked).bits if asked else own_bits(graph)) / 8 / devices
    if needed > float(memory.room):
        raise DomainError(
            f"{graph.name} does not fit: {format_quantity(needed, 'B', digits=3)} of weights on {question.device.name}."
        )


def _require_coming(search: PlanSearch, question: Question) -> None:
    """Replicas that follow the load are rented by the hour, and are there once their weights are."""
    if search.autoscale is None:
        return
    name, cold_s = question.device.name, search.autoscale.cold_start_s
    if _usd_per_hour(search, name, 1) is None:
        raise DomainError(
            f"No instance with {name} is rented by the hour, so a replica less saves nothing.",
            remedy="Give its price an hour (--prices), name another device, or leave --autoscale out.",
        )
    load = next((phase for phase in question.answer().phases if phase.name == "load"), None)
    if load is not None and load.floor_s is not None and cold_s < load.floor_s:
        raise DomainError(
            f"A replica cannot be there in {cold_s:g} s: loading its weights alone takes {load.floor_s:.3g} s or more.",
            remedy=f"Write --cold-start {ceil(load.floor_s)}s or more, or fewer bits (--weights i4).",
        )


def _key(of: Configuration | Candidate) -> tuple[object, ...]:
    """The limits of a step stand last."""
    return of.way, of.sequences, of.tokens


def _tried(search: PlanSearch, configuration: Configuration) -> int:
    """Numbers of replicas that were compared."""
    return max(1, search.most_devices // configuration.way.size)


def _candidates(search: PlanSearch, found: list[Configuration]) -> Iterator[Candidate]:
    rate = search.cloud_rate_per_s / (1 - search.headroom)
    for configuration in found:
        capacity = configuration.curve.capacity(search.objectives)
        if capacity > 0:
            yield _candidate(search, configuration, ceil(rate / capacity))


def _pool_candidates(search: PlanSearch, found: list[Configuration]) -> Iterator[Candidate]:
    """Two pools: whatever writes, beside the reader that takes the fewest devices for the prompts.

    Which reader is best does not depend on who writes. Without a limit on a token's time nothing is won by them.
    """
    rate = search.cloud_rate_per_s / (1 - search.headroom)
    if not search.objectives or search.autoscale is not None:  # two pools would each need an autoscaler of its own
        return
    kinds: dict[tuple[object, ...], list[Configuration]] = {}
    for each in found:
        if each.pools is not None:
            kinds.setdefault((each.way.device, each.way.runtime, each.way.weights, each.sequences), []).append(each)
    for many in kinds.values():
        readers = []
        for each in many:
            taken = each.pools.reads_per_s(search.objectives) if each.pools is not None else 0.0
            if taken > 0:
                readers.append((each.way.size * ceil(rate / taken), each.way.size, ceil(rate / taken), each))
        if not readers or _link_between_pools(search, many[0].way.device, 1) is None:
            continue
        _, _, needed, reader = min(readers, key=lambda one: one[:2])
        for each in many:
            capacity = 0.0 if each.pools is None else each.pools.writing.capacity(search.objectives)
            if capacity > 0:
                yield _candidate(search, each, ceil(rate / capacity), (reader, needed))


def _candidate(
    search: PlanSearch,
    configuration: Configuration,
    replicas: int,
    reading: tuple[Configuration, int] | None = None,
) -> Candidate:
    """With `reading`, a pool of that many replicas reads the prompts."""
    spare = spare_replicas(replicas, search.replica_up, search.availability)
    reader, readers = (None, 0) if reading is None else reading
    reader_spare, read, read_paid = 0, 0, 0.0
    if reader is not None and reader.pools is not None and configuration.pools is not None:
        writing, reads = configuration.pools.writing, reader.pools.reads_per_s(search.objectives)
        _, tpot_s, running = writing.at(search.cloud_rate_per_s / replicas)
        ttft_s = reader.pools.ttft_s(search.cloud_rate_per_s / readers)
        # The capacity of both pools for each writing replica: so its load is that of the fuller pool.
        capacity = min(writing.capacity(search.objectives), reads * readers / replicas)
        reader_spare = spare_replicas(readers, search.replica_up, search.availability)
        read = reader.way.size * (readers + reader_spare)
        read_paid = reader.way.size * (search.mean_replicas(readers) + reader_spare)
    else:
        ttft_s, tpot_s, running = configuration.curve.at(search.cloud_rate_per_s / replicas)
        capacity = configuration.curve.capacity(search.objectives)
    count = configuration.way.size * (replicas + spare) + read
    paid = configuration.way.size * (search.mean_replicas(replicas) + spare) + read_paid
    way = configuration.way
    return Candidate(
        way=way,
        sequences=configuration.sequences,
        replicas=replicas,
        spare=spare,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        running=running,
        capacity_per_s=capacity,
        usd_per_hour=_usd_per_hour(search, way.device, paid),
        watts=_watts(way.device, count, search.cloud_rate_per_s / (capacity * replicas) if capacity else 1.0),
        # the cache that it hands over has the writer's format
        reader=None if reader is None else replace(way, tp=reader.way.tp, pp=1, ep=reader.way.ep),
        readers=readers,
        reader_spare=reader_spare,
        tokens=configuration.tokens,
    )


def spare_replicas(replicas: int, up: float, availability: float | None) -> int:
    """The fewest spare replicas with which enough are up for the availability, each up for `up` of the time."""
    if availability is None:
        return 0
    for spare in range(replicas + 64):
        whole = replicas + spare
        enough = sum(comb(whole, down) * (1 - up) ** down * up ** (whole - down) for down in range(spare + 1))
        if enough >= availability:
            return spare
    raise DomainError(
        f"{availability:.4%} of the time cannot be reached with replicas that are up for {up:.2%} of it.",
        remedy="Ask for less, or say that replicas are up for longer: --replica-up 0.999.",
    )


def _usd_per_hour(search: PlanSearch, name: str, count: float) -> float | None:
    """The price of devices, which are no whole number on average over a day."""
    own = dict(search.prices).get(name)
    if own is not None:
        return own * count * (1 - search.discount)
    try:
        price = hourly_price(device_named(name), 1, search.options.place)
    except DomainError:
        return None  # no spot price: another device may have one
    whole = search.options.place.usd_per_hour is not None  # a price as given is of all devices together
    return None if price is None else price.usd_per_hour * (1 if whole else count) * (1 - search.discount)


def _watts(name: str, count: float, busy: float) -> float | None:
    power = power_model(device_named(name))
    if power is None:
        return None
    share = min(1.0, busy)
    return count * (share * (power.moving_w + power.computing_w) / 2 + (1 - share) * power.idle_w)


def _simulated(search: PlanSearch, candidate: Candidate) -> tuple[Level, LevelFigures]:
    """A few of the replicas with their share of the load: all are alike. Of pools, the same part of both."""
    replicas, readers = min(candidate.replicas, _SIMULATED_REPLICAS), 0
    rate = search.cloud_rate_per_s * replicas / candidate.replicas
    if candidate.readers:
        both = candidate.replicas, candidate.readers
        part = max(1, min(*both, sum(both) // _SIMULATED_OF_POOLS))
        # Rounded down: a part of the pools is then never better off than the whole.
        replicas, readers, rate = both[0] // part, both[1] // part, search.cloud_rate_per_s / part
    stay_s = candidate.ttft_s + search.generate.mean * candidate.tpot_s
    count = int(min(_MOST_REQUESTS, max(_LEAST_REQUESTS, 10 * rate * stay_s)))
    trace = search.trace
    if trace is not None and trace.after:
        # A session goes on for its waits and answers: the rate is there when as many have begun as go on at once.
        session_s = (float(trace.wait_s.sum()) + len(trace) * stay_s) / trace.first_turns
        count = int(min(_MOST_OF_SESSIONS, max(count, 10 * rate * session_s)))
    quicker = 1.0
    for _ in range(_TRIES_AT_THE_RATE):
        level, figures = _played(search, candidate, rate * quicker, (replicas, readers), count)
        if trace is None or not trace.after or (reached := figures.offered_per_s or rate) >= _KEPT_UP * rate:
            break
        quicker *= rate / reached
    return level, figures


def _played(
    search: PlanSearch, candidate: Candidate, rate: float, pools: tuple[int, int], count: int
) -> tuple[Level, LevelFigures]:
    """`pools` are the replicas, and the ones that only read."""
    way = candidate.way
    step, trace = LoadStep(arrivals=Arrivals(rate_per_s=rate)), None
    if search.trace is not None:
        trace = search.trace
        step = LoadStep(arrivals=Arrivals(rate_per_s=rate * trace.first_turns / len(trace)))  # sessions, of requests
        if trace.is_timed and trace.seconds:
            step, trace = LoadStep(), scaled(trace, rate * trace.seconds / len(trace))
        trace = part_of(trace, count=count)
    traffic = LoadPlan(
        url="simulated", steps=(step,), trace=trace, requests=count, prompt=search.prompt,
        generate=search.generate, objectives=search.objectives, seed=search.seed,
    )  # fmt: skip
    asked = _service(search, candidate, traffic, pools[0])
    if candidate.reader is not None:
        asked = replace(
            asked,
            readers=_asked(search, candidate.reader),
            reader_replicas=pools[1],
            link=_link_between_pools(search, way.device, candidate.count),
        )
    profile = simulate(asked)
    assert profile.served is not None  # noqa: S101 - of a simulation
    level = profile.served.levels[0]
    if trace is not None and trace.after and level.requests is not None:
        # Sessions begin one by one and end one by one: the load is as asked for between.
        begin, end = np.quantile(np.asarray(level.requests.due_s, float), (0.25, 0.75)).tolist()
        level = replace(level, windows=(Window(start_s=begin, end_s=end, why="the middle half of the requests"),))
    return level, figures_of(level, search.objectives)


def _service(search: PlanSearch, candidate: Candidate, traffic: LoadPlan, replicas: int) -> SimulationPlan:
    """So many of a candidate's replicas, with this traffic."""
    way, drafting = candidate.way, candidate.way.drafting
    asked = SimulationPlan(
        question=_asked(search, way), traffic=traffic, replicas=replicas, ranks=way.dp, sequences=candidate.sequences,
        tokens=candidate.tokens,
    )  # fmt: skip
    if drafting is None:
        return asked
    drafted = drafting.length, drafting.acceptance
    return replace(asked, speculation=drafted, spread=drafting.spread, head=drafting.head)


def _missed(search: PlanSearch, figures: LevelFigures) -> str | None:
    """Which objective the simulation missed, in words; None where all hold."""
    offered, answered = figures.offered_per_s or 0.0, figures.requests_per_s or 0.0
    if figures.growing and answered < _KEPT_UP * offered:
        return "requests pile up"
    for goal in search.objectives:
        value = _value(figures, goal.metric, goal.share)
        if value is not None and value > goal.limit_s:
            return f"{goal} is {value:.3g} s"
    return None


def _value(figures: LevelFigures, metric: str, share: float | None) -> float | None:
    of: Distribution | None = getattr(figures, f"{metric}_s")
    if of is None:
        return None
    if share is None:
        return of.max
    return getattr(of, f"p{100 * share:g}", None) or of.p99 or of.p95


def _plan(
    search: PlanSearch, candidate: Candidate, configuration: Configuration, level: Level, figures: LevelFigures
) -> ServingPlan:
    server = level.server
    counters, gauges = (server.counters, server.gauges) if server is not None else ({}, {})
    usd, busy = candidate.usd_per_hour, counters.get("busy_share", 0.0)
    load = search.cloud_rate_per_s / (candidate.capacity_per_s * candidate.replicas)
    way = candidate.way
    watts = _watts(way.device, candidate.count, load)
    simulated = min(candidate.replicas, _SIMULATED_REPLICAS)
    share, reached = search.cloud_rate_per_s * simulated / candidate.replicas, figures.offered_per_s
    link = _link_between_pools(search, way.device, candidate.count) if candidate.readers else None
    short = search.trace is not None and reached is not None and reached < _KEPT_UP * share
    return ServingPlan(
        **way.given,
        count=candidate.count,
        replicas=candidate.replicas + candidate.spare,
        spare=candidate.spare,
        max_num_seqs=configuration.sequences,
        max_num_batched_tokens=configuration.tokens,
        max_model_len=longest_request(search),
        **_paid(search, usd, watts),
        utilisation=min(1.0, load),
        headroom=max(0.0, 1 / load - 1),
        **_times_of(figures),
        kv_share=gauges.get("kv_share", (0.0, 0.0))[1],
        requests=figures.requests,
        readers=candidate.readers + candidate.reader_spare,
        reader_tp=candidate.reader.tp if candidate.reader else 1,
        reader_ep=candidate.reader.ep if candidate.reader else 1,
        notes=(
            *((f"busy {busy:.0%} of the time in the simulation of {simulated} replicas",) if link is None else ()),
            *((f"caches of prompts go from pool to pool over {link.title}",) if link is not None else ()),
            *_day_words(search, candidate),
            *((f"the trace is too short for the rate: simulated at {reached:.3g} of {share:.3g}/s",) if short else ()),
        ),
    )


def _paid(search: PlanSearch, usd: float | None, watts: float | None) -> dict[str, Any]:
    """What so much an hour makes of a month, a million tokens and the air."""
    tokens_per_h = search.cloud_rate_per_s * search.mean_load * search.generate.mean * 3600
    return {
        "usd_per_hour": usd,
        "usd_per_month": None if usd is None else usd * MONTH_H,
        "usd_per_million_tokens": None if usd is None else usd / tokens_per_h * 1e6,
        "watts": watts,
        "co2e_g_per_hour": None if watts is None else carbon_grams(watts * 3600, search.options.place),
    }


def _times_of(figures: LevelFigures) -> dict[str, Any]:
    ttft, tpot = figures.ttft_s, figures.tpot_s
    return {
        "ttft_p95_s": ttft.p95 if ttft is not None else None,
        "tpot_p95_s": tpot.p95 if tpot is not None else None,
        "ttft_s": ttft.mean if ttft is not None else None,
        "tpot_s": tpot.mean if tpot is not None else None,
    }


def _day_words(search: PlanSearch, candidate: Candidate) -> Iterator[str]:
    if search.day:
        mean = search.mean_replicas(candidate.replicas)
        less = f"{candidate.replicas / mean:.2g} times less than the peak all day"
        yield f"{candidate.replicas} replicas at the peak, {mean:.3g} on average over the day and paid for: {less}"


def _explained(search: PlanSearch, plans: list[ServingPlan]) -> Iterator[ServingPlan]:
    """Why each plan after the first lost to it."""
    unit = {"cheapest": "usd_per_hour", "greenest": "watts", "smallest": "count"}[search.goal]
    words = {"cheapest": "costs", "greenest": "draws", "smallest": "takes"}[search.goal]
    for index, each in enumerate(plans):
        mine, best = getattr(each, unit), getattr(plans[0], unit)
        if mine is None or best is None:
            known = "power" if search.goal == "greenest" else "price"
            yield replace(each, why=f"meets every objective; its {known} is not known")
        elif not index:
            yield replace(each, why=f"the {search.goal} that meets every objective")
        else:
            more = mine / best - 1 if best else float(mine > 0)  # what costs nothing has no share of it
            devices = f"{each.count} devices instead of {plans[0].count}"
            gain = _better_at(each, plans[0])
            lost = f"{words} {more:.1%} more: {devices}" if more > _SAME else f"{words} the same and came second"
            yield replace(each, why=f"{lost}{gain}")


def _better_at(each: ServingPlan, best: ServingPlan) -> str:
    """What the loser would be better at."""
    better = [
        name
        for name, field in (("TTFT", "ttft_p95_s"), ("TPOT", "tpot_p95_s"), ("power", "watts"))
        if getattr(each, field) is not None
        and getattr(best, field) is not None
        and getattr(each, field) < 0.95 * getattr(best, field)
    ]
    return f", with better {' and '.join(better)}" if better else ""


def _why_none_serves(refused: list[Refused]) -> str:
    """What all ways are refused for, whatever is tried, is refused of the question itself: as `predict` says it."""
    first = refused[0] if refused else None
    if first is not None and first.remedy is not None and len({each.message for each in refused}) == 1:
        return f"{first.message} {first.remedy}"
    usual = "Allow more devices a replica (--tp, --pp), larger ones (--on), or fewer bits (--weights i4 --kv f8e4m3)."
    if first is None:
        return f"There is no way to serve it. {usual}"
    return f"None of the {len(refused)} ways to serve it can be. {first.way}: {first.message} {first.remedy or usual}"


def _why_not(
    search: PlanSearch,
    found: list[Configuration],
    candidates: list[Candidate],
    refused: list[Refused],
    rejected: list[str],
) -> str:
    """Which constraint binds, by how much, and what to change."""
    if not found:
        return _why_none_serves(refused)
    worst = []
    for goal in search.objectives:
        least, where = min(
            ((float(each.curve.figure(goal.metric).min()), each) for each in found), key=lambda pair: pair[0]
        )
        if least > goal.limit_s:
            worst.append(
                f"{goal} binds: the least that any of them reaches is {least:.3g} s, {least / goal.limit_s:.2g} times "
                f"as much, on {where.way.size} × {where.way.device} with nobody else there."
            )
    if worst:
        return f"{' '.join(worst)} Allow that in --slo, or try more devices a replica (--tp), fewer bits or --draft."
    if not candidates:
        return (
            "No configuration meets all objectives at once, though each of them is met by some. Allow more in one of "
            "--slo, or try more devices a replica (--tp), fewer bits (--weights, --kv) or --draft."
        )
    fewest = min(each.count for each in candidates)
    if fewest > search.most_devices:
        return (
            f"The number of devices binds: {fewest} are needed and {search.most_devices} may be used, "
            f"{fewest / search.most_devices:.2g} times as many. Say --max-devices {fewest}, or ask for less."
        )
    lightest = min((each.watts for each in candidates if each.watts is not None), default=None)
    if search.most_watts is not None and (lightest is None or lightest > search.most_watts):
        known = "nobody knows what any of them draws" if lightest is None else f"the least is {lightest:,.0f} W"
        more = "" if lightest is None else f" Say --max-power {ceil(lightest)}W, or ask for less."
        return f"The power binds: {known}, and {search.most_watts:,.0f} W may be drawn.{more}"
    last = rejected[-1] if rejected else "none was tried."
    more = "count another signal (--scale-by)" if search.autoscale else "more in --max-devices"
    return f"No simulation met the objectives. The last: {last} Allow more in --slo, or {more}."
