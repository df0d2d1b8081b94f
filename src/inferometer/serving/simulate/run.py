"""A simulation from its plan to its profile: the same value as a load test's, so that the two compare."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from inferometer.core.profile import DeviceFacts, ModelFacts, Profile, Provenance
from inferometer.core.served import Level, LevelFigures, ServerReadings, Spread, Window
from inferometer.core.served import Served as ServedLevels
from inferometer.core.traffic.demand import Demand, classes_of
from inferometer.core.traffic.figures import figures_of, headline_of
from inferometer.core.traffic.requests import Requests, closed_window, open_window
from inferometer.core.traffic.spreads import merged
from inferometer.serving.load.plan import LoadPlan, LoadStep, demand_of
from inferometer.serving.load.profile import phases_of, summary_of, workload_of
from inferometer.serving.load.saturate import next_step, next_within, within_words
from inferometer.serving.simulate.building import ENDLESS, service_of
from inferometer.serving.simulate.service import Cluster, Service, TwoPools
from inferometer.serving.simulate.sinks import BROKEN_OFF, Columns, Streamed
from inferometer.serving.simulate.source import RequestSource
from inferometer.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from inferometer.serving.simulate.plan import SimulationPlan
    from inferometer.serving.simulate.replica import Replica
    from inferometer.serving.simulate.request import SimulatedRequest

MOST_KEPT = 200_000  # requests of a level that are kept one by one
_PART = 65_536
_WARM = 0.1  # of a long run: requests that come first and are in no distribution
_MOST_LEVELS = 24


def simulate(plan: SimulationPlan, *, progress: Callable[[str], None] | None = None) -> Profile:
    service, notes = service_of(plan)
    traffic = plan.traffic
    if plan.answers > 1:
        notes = (*notes, f"Each of the {plan.answers} answers to a prompt counts as a request of its own.")
    levels: list[Level] = []
    figures: list[LevelFigures] = []
    steps = list(traffic.steps)
    for number in range(_MOST_LEVELS):
        if number >= len(steps):
            more = _more(traffic, list(zip(steps, figures, strict=True)))
            if more is None:
                break
            steps.append(more)
        if progress is not None:
            progress(steps[number].name)
        levels.append(_level(plan, service, steps[number], number))
        figures.append(figures_of(levels[-1], traffic.objectives))
    if traffic.within:
        notes = (*notes, within_words(list(zip(steps, figures, strict=True)), traffic.objectives))
    order = sorted(range(len(levels)), key=lambda index: steps[index].load)
    return _profile(plan, tuple(levels[index] for index in order), [figures[index] for index in order], notes)


def _more(traffic: LoadPlan, tried: list[tuple[LoadStep, LevelFigures]]) -> LoadStep | None:
    """The load to try after the given ones."""
    if traffic.within:
        return next_within(tried, traffic.objectives)
    return next_step(tried) if traffic.saturate else None


def _level(plan: SimulationPlan, service: Service, step: LoadStep, number: int) -> Level:
    traffic = plan.traffic
    count = (traffic.requests or 0) if traffic.trace is None else len(traffic.trace)
    is_timed = step.concurrency is None and traffic.sharing.turns == 1
    if count > MOST_KEPT and is_timed and not (plan.whole or plan.keeps):
        return _streamed_level(plan, service, step, number, count)
    demand = _asked(plan, demand_of(traffic, step, number=number))
    sink = Columns()
    clusters = _run(plan, service, [demand], sink.ended, sink.refused, step.concurrency)
    columns = sink.columns()
    requests = Requests.of(columns)
    return replace(
        _bare_level(step, clusters),
        requests=columns,
        windows=(_window(plan, step, requests),),
        notes=tuple(_class_notes(plan, requests, columns.session)),
    )


def _window(plan: SimulationPlan, step: LoadStep, requests: Requests) -> Window:
    ends = requests.end_s[np.isfinite(requests.end_s)]
    if plan.whole or not len(ends):
        end = float(ends.max()) if len(ends) else 0.0
        return Window(start_s=0.0, end_s=max(end, 1e-9), why="every request counts")
    return closed_window(requests, step.concurrency) if step.concurrency is not None else open_window(requests)


def _streamed_level(plan: SimulationPlan, service: Service, step: LoadStep, number: int, count: int) -> Level:
    """A level with too many requests to keep each: their distributions are kept, in constant memory."""
    traffic = plan.traffic
    rate = step.arrivals.rate_per_s if step.arrivals is not None else 1.0
    demands, start_s = _parts(plan, step, number, count), _WARM * count / rate
    if traffic.trace is not None:
        demand = _asked(plan, demand_of(traffic, step, number=number))
        by_clock = [not waits_for for waits_for in demand.after] if demand.after else slice(None)
        demands, start_s = iter([demand]), float(np.quantile(demand.due_s[by_clock], _WARM))
    sink = Streamed(traffic.objectives, start_s=start_s)
    clusters = _run(plan, service, demands, sink.ended, sink.refused, None)
    words = f"{count:,} requests: distributions are kept and not every request; the first {_WARM:.0%} are in none."
    return replace(_bare_level(step, clusters), stated=sink.figures(), notes=(words,))


def _asked(plan: SimulationPlan, demand: Demand) -> Demand:
    """With the tokens of images, and an entry for each answer to a prompt."""
    if plan.vision is not None:
        demand = replace(demand, input_tokens=demand.input_tokens + plan.vision.images * plan.vision.tokens)
    return demand.with_answers(plan.answers)


def _parts(plan: SimulationPlan, step: LoadStep, number: int, count: int) -> Iterator[Demand]:
    """The demand in pieces, each with its own arrivals after those of the piece before."""
    traffic = plan.traffic
    for part, first in enumerate(range(0, count, _PART)):
        few = replace(traffic, requests=min(_PART, count - first), seed=traffic.seed * 1009 + part)
        yield _asked(plan, demand_of(few, step, number=number))


def _run(  # noqa: PLR0913, PLR0917 - what runs, and who hears of it
    plan: SimulationPlan,
    service: Service,
    demands: Sequence[Demand] | Iterator[Demand],
    ended: Callable[[SimulatedRequest], None],
    refused: Callable[[SimulatedRequest, str], None],
    concurrency: int | None,
) -> list[Cluster]:
    source = RequestSource(demands, concurrency=concurrency, kinds=plan.kinds)

    def on_end(request: SimulatedRequest) -> None:
        ended(request)
        source.ended(request)

    def on_refused(request: SimulatedRequest, outcome: str) -> None:
        refused(request, outcome)
        for other in source.broken(request):
            refused(other, BROKEN_OFF)

    listeners = (on_end, on_refused) if source.follows else (ended, refused)
    with _without_collecting():
        if service.reading is not None:
            pools = TwoPools(service, *listeners)
            pools.run(source)
            return [pools.writers, pools.readers]
        cluster = Cluster(service.pool, *listeners, routing=service.routing, scaling=service.scaling)
        cluster.run(source)
        return [cluster]


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Requests are made by the million and hold no circles: looking for some takes a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _bare_level(step: LoadStep, clusters: Sequence[Cluster]) -> Level:
    replicas = [replica for cluster in clusters for replica in cluster.replicas]
    end = max(replica.now for replica in replicas if replica.now > replica.from_s or not replica.from_s)  # of the ready
    return Level(
        name=step.name,
        rate_per_s=step.arrivals.rate_per_s if step.arrivals is not None else None,
        rate_to_per_s=step.arrivals.to_per_s if step.arrivals is not None else None,
        concurrency=step.concurrency,
        seconds=end,
        gaps=_gaps(replicas),
        server=_readings(clusters, end),
    )


def _gaps(replicas: Sequence[Replica]) -> Spread | None:
    """Waits between tokens, by the steps that made them. A run of equal steps counts with the one in its middle."""
    for replica in replicas:
        if replica.gap_s:
            replica.fold_gaps()
    return merged([replica.folded for replica in replicas if replica.folded is not None])


def _readings(clusters: Sequence[Cluster], end_s: float) -> ServerReadings:
    """The values of the engine's own counters."""
    replicas = [replica for cluster in clusters for replica in cluster.replicas]
    paid_s = sum(cluster.replica_seconds(end_s) for cluster in clusters)
    busy_s = sum(replica.busy_s for replica in replicas)
    ranks_s = sum(cluster.ranks * cluster.replica_seconds(end_s) for cluster in clusters)
    hit, read = sum(r.hit_tokens for r in replicas), sum(r.read_tokens for r in replicas)
    counters = {
        "steps": float(sum(replica.steps for replica in replicas)),
        "preemptions": float(sum(replica.preempted for replica in replicas)),
        "replica_seconds": paid_s,
        "busy_share": busy_s / ranks_s if ranks_s else 0.0,
    }
    if hit:
        counters |= {"cached_tokens": float(hit), "cache_hit_share": hit / (hit + read)}
    if any(replica.limits.tiers for replica in replicas):
        counters["loaded_tokens"] = float(sum(r.pool.loaded * r.limits.block_tokens for r in replicas))
    for name, values in (
        ("adapter_loads", (replica.adapter_loads for replica in replicas)),
        ("images_encoded", (replica.images_encoded for replica in replicas)),
        ("images_found", (replica.images_found for replica in replicas)),
    ):
        if total := sum(values):
            counters[name] = float(total)
    whole = max(end_s, 1e-9)
    blocks = sum(replica.limits.blocks for replica in replicas)
    gauges: dict[str, tuple[float, float]] = {
        "running": (sum(r.sequence_s for r in replicas) / whole, float(sum(r.most_running for r in replicas))),
    }
    counters["waiting_at_most"] = float(max(replica.most_waiting for replica in replicas))
    if blocks < ENDLESS:
        mean = sum(replica.block_s for replica in replicas) / whole / blocks
        gauges["kv_share"] = (mean, max(replica.most_blocks / replica.limits.blocks for replica in replicas))
    return ServerReadings(counters=counters, gauges=gauges)


def _class_notes(plan: SimulationPlan, requests: Requests, numbers: Sequence[int]) -> Iterator[str]:

    if not plan.priorities:
        return
    classes = np.array(classes_of(plan.priorities, numbers))
    for order, share in enumerate(plan.priorities):
        times = requests.ttft_s[(classes == order) & np.isfinite(requests.ttft_s)]
        if len(times):
            middle, high = np.quantile(times, (0.5, 0.95))
            yield f"Priority {order} ({share:.0%} of the requests): TTFT p50 {middle:.3g} s, p95 {high:.3g} s."


def _profile(
    plan: SimulationPlan, levels: tuple[Level, ...], figures: list[LevelFigures], notes: tuple[str, ...]
) -> Profile:
    question, traffic = plan.question, plan.traffic
    headline = headline_of(figures)
    parallel = question.workload.parallel
    per_replica = parallel.tp * parallel.pp * plan.ranks
    devices = per_replica * (plan.scaling.most if plan.scaling else plan.replicas)
    if plan.readers is not None:
        readers = plan.readers.workload.parallel
        devices += readers.tp * readers.pp * plan.reader_replicas
    return Profile(
        kind="predicted",
        model=ModelFacts(name=question.graph.name),
        device=DeviceFacts(name=question.device.name, count=devices),
        runtime=question.runtime_name,
        workload=replace(
            workload_of(traffic, figures[headline]), precision=question.workload.precision, parallel=parallel
        ),
        phases=tuple(phases_of(levels[headline])) if levels[headline].requests is not None else (),
        summary=summary_of(figures[headline]),
        provenance=Provenance(
            tool="inferometer simulate",
            version=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            command=traffic.command,
            notes=notes,
        ),
        served=ServedLevels(
            loop=traffic.loop,
            levels=levels,
            api="simulated",
            arrivals=traffic.arrivals,
            lengths=traffic.lengths,
            objectives=traffic.objectives,
            headline=headline,
        ),
    )
