"""The profile of a load test: its headline level as phases and summary, and every level as it was."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING

from inferometer.core.frozen import frozen
from inferometer.core.profile import (
    DeviceFacts,
    Environment,
    Headline,
    ModelFacts,
    Phase,
    Profile,
    Provenance,
)
from inferometer.core.served import Level, LevelFigures, Served
from inferometer.core.statistics import median
from inferometer.core.traffic.figures import figures_of, headline_of, median_of, times_of
from inferometer.core.workload import Workload
from inferometer.serving.load.apis import Endpoint
from inferometer.serving.load.prompts import PromptMaker
from inferometer.serving.load.server import ServerFacts
from inferometer.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.serving.load.plan import LoadPlan


@frozen
class Facts:
    """Facts of a load test before its first request. `clock_s` is the wall clock less the monotonic one."""

    endpoint: Endpoint
    server: ServerFacts
    maker: PromptMaker
    clock_s: float = 0.0


def profile_of(plan: LoadPlan, facts: Facts, levels: tuple[Level, ...], *, notes: tuple[str, ...] = ()) -> Profile:
    figures = [figures_of(level, plan.objectives) for level in levels]
    headline = headline_of(figures)
    shown = figures[headline] if levels else LevelFigures(requests=0, completed=0)
    served = Served(
        loop=plan.loop,
        levels=levels,
        endpoint=facts.endpoint.address.shown,
        api=plan.api,
        streamed=facts.endpoint.stream,
        arrivals=plan.arrivals,
        lengths=plan.lengths,
        prompts=facts.maker.how,
        objectives=plan.objectives,
        headline=headline,
    )
    address = facts.endpoint.address
    return Profile(
        kind="measured",
        model=ModelFacts(name=_model_name(facts.endpoint.model)),
        device=DeviceFacts(name=plan.device or f"{address.host}:{address.port}"),
        runtime=facts.server.engine,
        workload=workload_of(plan, shown),
        phases=tuple(phases_of(levels[headline])) if levels else (),
        summary=summary_of(shown),
        environment=_environment(facts, levels),
        provenance=Provenance(
            tool="inferometer load",
            version=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            command=plan.command,
            notes=notes,
        ),
        served=served,
    )


def _model_name(served: str) -> str:
    """Of a model that a server names by its file, as llama.cpp does, the file's name."""
    return PurePath(served).stem if served.endswith(".gguf") else served


def workload_of(plan: LoadPlan, figures: LevelFigures) -> Workload:
    prompt, generate = figures.input_tokens, figures.output_tokens
    rate = next((step.arrivals.rate_per_s for step in plan.steps if step.arrivals is not None), None)
    return Workload(
        prompt=round(prompt) if prompt and prompt >= 1 else None,
        generate=round(generate) if generate else None,
        arrival_per_s=rate if len(plan.steps) == 1 and not plan.saturate else None,
    )


def phases_of(level: Level) -> Iterator[Phase]:
    """TTFT as prefill and TPOT as decode, as a client sees them; without either, the whole request."""
    named = [(name, times_of(level, metric)) for name, metric in (("prefill", "ttft"), ("decode", "tpot"))]
    if not any(times for _, times in named):
        named = [("request", times_of(level, "e2e"))]
    for name, times in named:
        if times:
            yield Phase(name=name, time_s=median(times), statistic="median", samples_s=times)


def summary_of(figures: LevelFigures) -> Headline:
    streamed = figures.ttft_s is not None
    return Headline(
        latency_s=None if streamed else median_of(figures.e2e_s),
        ttft_s=median_of(figures.ttft_s),
        tpot_s=median_of(figures.tpot_s),
        e2e_s=median_of(figures.e2e_s),
        tokens_per_s=figures.output_tokens_per_s,
    )


def _environment(facts: Facts, levels: tuple[Level, ...]) -> Environment:
    server = facts.server
    versions = {"inferometer": __version__}
    if server.engine and server.version:
        versions[server.engine] = server.version
    reasons = [
        f"at {level.name}: the load generator was the bottleneck, since {' and '.join(level.client.reasons)}"
        for level in levels
        if level.client is not None and level.client.bottleneck
    ]
    return Environment(versions=versions, disturbed=bool(reasons), reasons=tuple(reasons))
