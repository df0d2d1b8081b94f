"""Two tiers: a device at the edge answers what it can, and hands a share of the requests on to the servers."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.known.formulas.cloud import tiered_latency
from inferometer.predict.ask import ask

if TYPE_CHECKING:
    from inferometer.serving.plans.asked import PlanSearch, ServingPlan


@frozen
class EdgeTier:
    """The device of one user: its own answers, and what a user sees of both tiers.

    Every request is answered at the edge first, by a smaller model where one is named; a share is then asked again of
    the servers. Times are of an average request; `handed_on_s` is until the servers' answer is there.
    """

    device: str
    model: str
    runtime: str
    share: float  # of the requests that are answered here
    ttft_s: float
    tpot_s: float
    answer_s: float
    handed_on_s: float
    mean_s: float
    requests_per_s: float  # that one device can answer
    joules: float | None  # an answer
    requests_per_charge: float | None
    fits: bool | None

    def document(self) -> dict[str, Any]:
        return asdict(self)


def edge_tier(search: PlanSearch, cloud: ServingPlan) -> EdgeTier | None:
    """The tier before the servers; None where no device is named for it."""
    if search.edge is None or search.fallback is None:
        return None
    asked, tokens = search.edge, max(1, round(search.generate.mean))
    question = ask(
        asked.model or search.model, on=asked.device, weights=asked.weights,
        prompt=max(1, round(search.prompt.mean)), generate=tokens,
    )  # fmt: skip
    figures = question.answer().summary
    if figures.ttft_s is None or figures.tpot_s is None or figures.e2e_s is None:
        raise DomainError(
            f"{question.graph.name} makes no tokens, so it cannot answer at the edge.",
            remedy="Name a model that does: --edge-model llama-3.2-1b.",
        )
    there = (cloud.ttft_s or 0.0) + (tokens - 1) * (cloud.tpot_s or 0.0)
    battery = search.options.battery
    charge = None if battery is None or not battery.capacity_j else battery.capacity_j * battery.efficiency
    return EdgeTier(
        device=asked.device,
        model=question.graph.name,
        runtime=question.runtime_name,
        share=1 - search.fallback,
        ttft_s=figures.ttft_s,
        tpot_s=figures.tpot_s,
        answer_s=figures.e2e_s,
        handed_on_s=figures.e2e_s + asked.round_trip_s + there,
        mean_s=float(
            tiered_latency(edge=figures.e2e_s, fallback=search.fallback, edge_to_cloud=asked.round_trip_s, cloud=there)
        ),
        requests_per_s=1 / figures.e2e_s,
        joules=figures.energy_j,
        requests_per_charge=None if charge is None or not figures.energy_j else charge / figures.energy_j,
        fits=figures.fits,
    )
