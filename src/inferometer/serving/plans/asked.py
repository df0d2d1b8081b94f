"""What a plan is asked for, and what a candidate and a plan are."""

from __future__ import annotations

from dataclasses import asdict, fields
from math import ceil
from typing import Any, Literal

from inferometer.core.device import Link
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.served import Objective
from inferometer.core.traffic.arrivals import LEAST_RATE, MOST_RATE
from inferometer.core.traffic.lengths import Lengths
from inferometer.core.traffic.traces import RequestTrace
from inferometer.predict.options import Options
from inferometer.serving.plans.tiers import EdgeTier
from inferometer.serving.simulate.plan import DRAFT_HEADS, DraftHead
from inferometer.serving.simulate.service import Signal

Goal = Literal["cheapest", "greenest", "smallest"]
GOALS: tuple[Goal, ...] = ("cheapest", "greenest", "smallest")
MONTH_H = 730.0  # hours
COLD_START_S = 300.0  # until a new replica works, by default: an instance, its image and the weights
_LONGEST_DRAFT, _WIDEST = 64, 0.5  # tokens; a standard deviation, if half of the requests accept all and half nothing
_LEAST_SHARE = 0.001  # of a rate: with less there is nothing to plan for


@frozen
class EdgeAsked:
    """What answers before the servers do: a device, the model that it runs (None: the same), and the way to them."""

    device: str
    model: Any = None
    weights: str | None = None
    round_trip_s: float = 0.0


@frozen
class Drafting:
    """Tokens proposed ahead: by a model that is named, or by `eagle`, `mtp` or `ngram`; `length` of them in a step.

    `acceptance` is the share of them that is kept, and `spread` its standard deviation from request to request. How far
    drafts are right is a matter of the traffic: whoever asks has to say it, no plan assumes it.
    """

    draft: str
    length: int
    acceptance: float
    spread: float = 0.0

    def __post_init__(self) -> None:
        if not (1 <= self.length <= _LONGEST_DRAFT and 0 < self.acceptance < 1 and 0 <= self.spread <= _WIDEST):
            raise DomainError(
                f"Drafts are of 1 to {_LONGEST_DRAFT} tokens, of which a share between 0 and 1 is accepted, and not "
                f"{self.length} tokens with {self.acceptance:g} ± {self.spread:g}.",
                remedy="Write --draft eagle --draft-length 2,4 --acceptance 0.7.",
            )

    @property
    def head(self) -> DraftHead | None:
        """What drafts, where it is no model of its own."""
        return next((head for head in DRAFT_HEADS if head == self.draft), None)

    @property
    def words(self) -> str:
        varying = f" ± {self.spread:g}" if self.spread else ""
        return f"{self.draft} drafts {self.length}, {self.acceptance:g}{varying} accepted"


@frozen
class Autoscaling:
    """Replicas that follow the load: what the autoscaler counts, and how long until a new one is there."""

    signal: Signal = "requests"
    cold_start_s: float = COLD_START_S

    def __post_init__(self) -> None:
        if not 0 <= self.cold_start_s < float("inf"):
            raise DomainError("A new replica is there after 0 s or more.", remedy="Write --cold-start 5min.")


@frozen
class Autoscaled:
    """How the replicas of a plan follow the load: from `least` to `most`, with `target` of the signal each.

    The autoscaler looks every `interval_s`, changes nothing within `tolerance` of its target, and takes one away after
    `idle_s`. `peak_per_s` come in the busiest minute. `mean_replicas` were held on average, each from the begin of its
    cold start: `replica_hours` in `hours`.
    """

    least: int
    most: int
    target: float
    signal: Signal
    cold_start_s: float
    interval_s: float
    idle_s: float
    tolerance: float
    peak_per_s: float
    mean_replicas: float
    replica_hours: float
    hours: float

    @property
    def words(self) -> str:
        each = {
            "requests": f"{self.target:g} requests", "waiting": f"{self.target:g} that wait",
            "cache": f"{self.target:.0%} of its cache in use",
        }  # fmt: skip
        return f"from {self.least} to {self.most} replicas with {each[self.signal]} each"

    @property
    def held_words(self) -> str:
        return (
            f"{self.mean_replicas:.3g} of {self.most} replicas are held on average and paid for, each from the begin "
            f"of its {self.cold_start_s:g} s of cold start: {self.replica_hours:,.4g} replica-hours in "
            f"{self.hours:,.3g} h"
        )


def up_between(interruptions_per_h: float, cold_start_s: float) -> float:
    """The share of time that a spot instance is there: an hour over their rate, and then away until a new one is."""
    if not (interruptions_per_h >= 0 and cold_start_s >= 0):
        raise DomainError(
            "Interruptions an hour and the time until a new replica is there are 0 or more.",
            remedy="Write --interruptions 0.05 --cold-start 5min.",
        )
    return 1 / (1 + interruptions_per_h * cold_start_s / 3600)


def draftings(
    draft: str | None, lengths: tuple[int, ...] = (), acceptance: float | None = None, spread: float = 0.0
) -> tuple[Drafting, ...]:
    """What is asked of speculation: one draft with each of these lengths."""
    if draft is None:
        if lengths or acceptance is not None or spread:
            raise DomainError("Lengths and shares are of a draft, and none is named.", remedy="Add --draft eagle.")
        return ()
    if acceptance is None:
        raise DomainError(
            f"How many tokens of {draft} are accepted depends on the traffic: a plan assumes no share.",
            remedy="Measure it on your requests (`inferometer load` reads it of vLLM), and say it: --acceptance 0.6.",
        )
    # One layer of MTP is trained to draft one token (DeepSeek-V3, arXiv:2412.19437, 2.2).
    return tuple(
        Drafting(draft=draft, length=length, acceptance=acceptance, spread=spread)
        for length in lengths or ((1,) if draft == "mtp" else (2, 4))
    )


@frozen
class Way:
    """What a replica is, but for the limits of its steps: on which devices, in which formats, and what these share.

    `tp` devices share each layer, `pp` stages have some of the layers each. With `dp` there are that many copies of
    attention, each with requests and a cache of its own, whose devices share the experts (`ep` of them): where one
    latent serves all heads (DeepSeek's MLA), devices that share a layer would each hold the whole cache.
    """

    device: str
    runtime: str
    weights: str | None
    tp: int
    pp: int = 1
    ep: int = 1
    dp: int = 1
    kv: str | None = None
    drafting: Drafting | None = None

    @property
    def size(self) -> int:
        """Devices of a replica."""
        return self.tp * self.pp * self.dp

    @property
    def given(self) -> dict[str, Any]:
        """By name, for what has the same fields."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @property
    def words(self) -> str:
        more = f"{f', cache in {self.kv}' if self.kv else ''}{f', {self.drafting.words}' if self.drafting else ''}"
        return f"{self.device}, {self.runtime}, {self.weights or 'own format'}{parallel_words(self)}{more}"


def parallel_words(of: Way | ServingPlan) -> str:
    """`, TP 8, EP 8`: what of a replica is shared, where it is."""
    shared = (("TP", of.tp), ("PP", of.pp), ("EP", of.ep), ("DP", of.dp))
    return "".join(f", {name} {devices}" for name, devices in shared if devices > 1)


@frozen
class PlanSearch:
    """A model, a traffic and objectives; and what may be chosen from. Empty is: whatever the catalog prices.

    Experts are spread over the devices that share layers, so `ep` goes up to `tp`; beside that `dp` copies of attention
    share them. `sequences` and `tokens` are limits
    of a step to try (max_num_seqs, max_num_batched_tokens), 0 for the engine's own. `kv` are formats of the cache, None
    for the model's own. `drafts` are tried beside a plan without any. `discount` is what a reservation takes
    off the price on demand. `availability` is the share of time in which enough replicas are up, each of which is up
    for `replica_up` of it.
    `headroom` is a share of the rate that must be left. With `trace`, its requests come instead of drawn ones, at this
    rate, and the lengths are theirs. `day` are the loads of equal parts of a day, as shares of the rate: there are as
    many replicas in each as it needs. `prices` are USD an hour of one device, instead of the catalog's. `most_watts` is
    what all devices may draw together. `link` lies between machines, and between pools that read and that write.
    With `autoscale`, replicas follow the load of a day or of a trace as an autoscaler has them, and not at once.
    """

    model: Any
    rate_per_s: float
    prompt: Lengths
    generate: Lengths
    trace: RequestTrace | None = None
    objectives: tuple[Objective, ...] = ()
    goal: Goal = "cheapest"
    devices: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    weights: tuple[str | None, ...] = ()
    tp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    ep: tuple[int, ...] = ()
    dp: tuple[int, ...] = ()
    sequences: tuple[int, ...] = (0, 64, 256)
    # vLLM's advice ("Optimization and Tuning"): 2,048 for tokens that come evenly, over 8,192 for throughput.
    tokens: tuple[int, ...] = (0, 2048, 16384)
    kv: tuple[str | None, ...] = (None, "f8e4m3")
    drafts: tuple[Drafting, ...] = ()
    most_devices: int = 256
    discount: float = 0.0
    availability: float | None = None
    replica_up: float = 0.99
    headroom: float = 0.0
    fallback: float | None = None
    edge: EdgeAsked | None = None
    options: Options = Options()
    keep: int = 3
    seed: int = 0
    day: tuple[float, ...] = ()
    prices: tuple[tuple[str, float], ...] = ()
    most_watts: float | None = None
    link: Link | None = None
    autoscale: Autoscaling | None = None

    def __post_init__(self) -> None:
        if self.day and not (all(0 <= share <= 1 for share in self.day) and max(self.day) >= _LEAST_SHARE):
            raise DomainError(
                f"The loads of a day are shares of the rate, from 0 to 1, and one of them is {_LEAST_SHARE} or more.",
                remedy="Write --day 0.1,0.1,0.3,1,0.8,0.4 for six parts of four hours.",
            )
        if self.most_watts is not None and not self.most_watts > 0:
            raise DomainError(f"--max-power must be greater than 0, and is {self.most_watts:g} W.")
        if not LEAST_RATE <= self.rate_per_s <= MOST_RATE:
            raise DomainError(
                f"The rate is of {LEAST_RATE:g} to {MOST_RATE:,.0f} requests a second, and not of {self.rate_per_s:g}."
            )
        if not self.prompt.mean >= 1:
            raise DomainError("A plan is for prompts of 1 token or more.", remedy="Write --prompt 512.")
        if not self.generate.mean >= 1:
            raise DomainError("A plan is for answers of 1 token or more.", remedy="Write --generate 256.")
        for name, share in (("--discount", self.discount), ("--headroom", self.headroom)):
            if not 0 <= share < 1:
                raise DomainError(f"{name} is a share below 1, and not {share:g}.")
        for name, chance in (("--availability", self.availability), ("--replica-up", self.replica_up)):
            if chance is not None and not 0 < chance < 1:
                raise DomainError(f"{name} lies between 0 and 1, and is {chance:g}.")
        if self.fallback is not None and not _LEAST_SHARE <= self.fallback <= 1:
            raise DomainError(f"The share that falls back is {_LEAST_SHARE} to 1, and not {self.fallback:g}.")
        if self.edge is not None and self.fallback is None:
            raise DomainError(
                f"{self.edge.device} answers at the edge, and nobody said how much of it falls back to the servers.",
                remedy="Give the share that is handed on: --fallback 0.2.",
            )

    def mean_replicas(self, replicas: int) -> float:
        """The average number of replicas over a day, from the number at its peak."""
        if not self.day:
            return float(replicas)
        peak = max(self.day)
        return sum(max(1, ceil(replicas * share / peak - 1e-9)) for share in self.day) / len(self.day)

    @property
    def mean_load(self) -> float:
        """The load of a day on average, as a share of the rate."""
        return sum(self.day) / len(self.day) if self.day else 1.0

    @property
    def cloud_rate_per_s(self) -> float:
        """What the servers get: all of it, or the share that devices at the edge hand on."""
        return self.rate_per_s * (1.0 if self.fallback is None else self.fallback)


@frozen
class Candidate:
    """One way to serve it, by the closed form. Times are those of an average request at this load.

    With `reader`, prompts are read by a pool of `readers` such replicas, and the others only make the answers.
    """

    way: Way
    sequences: int
    replicas: int
    spare: int
    ttft_s: float
    tpot_s: float
    running: float  # sequences under way in a replica
    capacity_per_s: float  # requests a second that a replica could take within the objectives
    usd_per_hour: float | None
    watts: float | None
    reader: Way | None = None
    readers: int = 0
    reader_spare: int = 0
    tokens: int = 0

    @property
    def count(self) -> int:
        return self._devices(self.replicas + self.spare, self.readers + self.reader_spare)

    @property
    def needed(self) -> int:
        """Devices without the spare ones."""
        return self._devices(self.replicas, self.readers)

    def _devices(self, replicas: int, readers: int) -> int:
        return self.way.size * replicas + (self.reader.size * readers if self.reader else 0)

    def score(self, goal: Goal) -> float:
        by = {"cheapest": self.usd_per_hour, "greenest": self.watts, "smallest": float(self.count)}[goal]
        return float("inf") if by is None else by

    @property
    def words(self) -> str:
        way = self.way
        form = f" {way.weights}" if way.weights else ""
        cache = f", cache in {way.kv}" if way.kv else ""
        drafts = f", {way.drafting.draft} drafting {way.drafting.length}" if way.drafting else ""
        pools = f", {self.readers} of TP {self.reader.tp} to read prompts" if self.reader else ""
        shared = f"{parallel_words(way)}{pools}"
        return f"{self.count} × {way.device}{form} with {way.runtime}{shared}{cache}{drafts}"


@frozen
class ServingPlan:
    """A candidate that the simulation has confirmed, with its evidence."""

    device: str
    count: int
    runtime: str
    weights: str | None
    tp: int
    replicas: int
    spare: int
    max_num_seqs: int
    usd_per_hour: float | None
    usd_per_month: float | None
    usd_per_million_tokens: float | None
    watts: float | None
    co2e_g_per_hour: float | None
    utilisation: float
    headroom: float
    ttft_p95_s: float | None
    tpot_p95_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    kv_share: float
    requests: int
    why: str = ""
    notes: tuple[str, ...] = ()
    pp: int = 1
    ep: int = 1
    dp: int = 1
    readers: int = 0  # replicas of a separate pool for prompts, spare ones included
    reader_tp: int = 1
    reader_ep: int = 1
    max_num_batched_tokens: int = 0
    max_model_len: int = 0  # tokens of the longest prompt and answer that were planned for
    kv: str | None = None
    drafting: Drafting | None = None
    autoscaled: Autoscaled | None = None  # `replicas` and `count` are then the most, and prices those of the mean

    @property
    def size(self) -> int:
        """Devices of a replica."""
        return self.tp * self.pp * self.dp

    def document(self) -> dict[str, Any]:
        return asdict(self)


@frozen
class FrontPoint:
    """A way to serve, at a load, that no other beats in both: tokens a second of a user, and of a device."""

    device: str
    runtime: str
    weights: str | None
    tp: int
    at_once: int
    tokens_per_s_per_user: float
    tokens_per_s_per_device: float
    ttft_s: float
    pp: int = 1
    ep: int = 1
    dp: int = 1
    kv: str | None = None
    drafting: Drafting | None = None


@frozen
class PlanAnswer:
    """Plans, the best first. Without one, `why_not` says what binds and by how much."""

    plans: tuple[ServingPlan, ...]
    why_not: str | None
    candidates: int
    simulated: int
    rejected: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    edge: EdgeTier | None = None  # before the best of them
    by_device: tuple[ServingPlan, ...] = ()  # the best of each device that has one, the best first
    apart: ServingPlan | None = None  # the best with a pool that reads prompts, where it is not among the plans
    front: tuple[FrontPoint, ...] = ()  # by the closed form, the quickest for a user first

    def document(self) -> dict[str, Any]:
        return {
            "schema": "inferometer.plan/1",
            "plans": [plan.document() for plan in self.plans],
            "why_not": self.why_not,
            "candidates": self.candidates,
            "simulated": self.simulated,
            "rejected": list(self.rejected),
            "notes": list(self.notes),
            "edge": None if self.edge is None else self.edge.document(),
            "by_device": [plan.document() for plan in self.by_device],
            "apart": None if self.apart is None else self.apart.document(),
            "front": [asdict(point) for point in self.front],
        }
