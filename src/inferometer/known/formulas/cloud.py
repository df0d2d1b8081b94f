"""Cloud: price and performance, spot machines, checkpoints, scaling and tiers."""

from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.elementwise import whole_above
from inferometer.known.formulas.inference import inference_latency
from inferometer.known.formulas.latency import speedup
from inferometer.known.formulas.queueing import littles_law
from inferometer.known.formulas.registry import formula, require

_SECONDS_PER_HOUR = 3600


@formula(
    row="14.1 Cost efficiency",
    source="definition",
    example={"performance": 2400, "price": 98},
    answer=2400 / 98,
)
def cost_efficiency(*, performance: q.TokenRate, price: q.SomeUsdPerHour) -> q.TokenRatePerPrice:
    """Performance for a dollar an hour.

    Derivation: a rate over a price.
    Units: token/s and USD/h → token/s per USD/h.
    Ignores: idle hours, storage and traffic. The price is that of the whole machine the performance was had on.
    """
    return performance / price


@formula(
    row="14.1 Cost per 1M tokens",
    source="definition",
    example={"price": 98, "tokens_per_s": 24_000},
    answer=1.1342592592592593,
)
def usd_per_million_tokens(*, price: q.UsdPerHour, tokens_per_s: q.SomeTokenRate) -> q.Usd:
    """Dollars for a million tokens.

    Derivation: an hour costs `price` and gives tokens_per_s·3600; price over tokens, times 10⁶.
    Units: USD/h and token/s of the system → USD per million tokens.
    Ignores: idle time. At half load a token costs twice as much. Say whether input tokens are counted.
    """
    return price / (tokens_per_s * _SECONDS_PER_HOUR) * 1e6


@formula(
    row="14.3 Effective spot cost",
    source="definition",
    example={"spot": 30, "time_with_preemption": 1.25, "ideal_time": 1.0},
    answer=37.5,
)
def effective_spot_price(
    *, spot: q.UsdPerHour, time_with_preemption: q.SomeSeconds, ideal_time: q.SomeSeconds
) -> q.UsdPerHour:
    """What an hour of useful work costs on machines that may be taken away.

    Derivation: the job is paid for as long as it takes with interruptions, and gives as much as the ideal time would.
    Units: USD/h, s and s → USD/h of useful time.
    Ignores: the cost of being late, and hours in which no machine is to be had.
    """
    require(
        time_with_preemption >= ideal_time,
        "time_with_preemption must not be shorter than ideal_time",
        time_with_preemption=time_with_preemption,
        ideal_time=ideal_time,
    )
    return spot * speedup(before=time_with_preemption, after=ideal_time)


@formula(
    row="14.3 Checkpoint overhead",
    source="definition",
    example={"checkpoint": 20.0, "interval": 600.0},
    answer=1 / 30,
)
def checkpoint_overhead(*, checkpoint: q.Seconds, interval: q.SomeSeconds) -> q.Ratio:
    """Time spent on checkpoints, relative to the work between them.

    Derivation: one checkpoint per interval of work.
    Units: s and s → 1. Aim below 0.05.
    Ignores: checkpoints written while work goes on, which cost less, and the work lost at a failure.
    """
    return checkpoint / interval


@formula(
    row="14.3 Optimal checkpoint interval",
    source="Young 1974, A First Order Approximation to the Optimum Checkpoint Interval",
    example={"checkpoint": 20.0, "mtbf": 4 * 3600.0},
    answer=758.946638440411,
)
def optimal_checkpoint_interval(*, checkpoint: q.SomeSeconds, mtbf: q.SomeSeconds) -> q.SomeSeconds:
    """The interval between checkpoints that loses the least time.

    Derivation: per second, checkpoints cost C/τ, and failures cost half an interval each, τ/(2·MTBF). The sum is least
    where C/τ² = 1/(2·MTBF): τ = √(2·C·MTBF).
    Units: s and s (mean time between failures of the whole job) → s.
    Ignores: the time to restart, and failures during a checkpoint. It holds for C much smaller than the MTBF.
    """
    return (2 * checkpoint * mtbf) ** 0.5


@formula(
    row="14.4 Scale-up trigger",
    source="definition",
    example={"depth": 12, "threshold": 8, "duration": 90.0, "window": 60.0},
    answer=True,
)
def scale_up_trigger(*, depth: q.Amount, threshold: q.Amount, duration: q.Seconds, window: q.Seconds) -> q.Truth:
    """Whether a queue has been too deep for too long.

    Derivation: a rule, not a law: depth above the threshold, for longer than the window, so that a burst alone does
    not start machines.
    Units: requests, requests, s and s → true or false.
    Ignores: how long a new machine takes. The window should be shorter than a cold start, or it comes too late.
    """
    return (depth > threshold) & (duration > window)


@formula(
    row="14.4 Replicas needed",
    source="Little 1961, A Proof for the Queuing Formula L = λW",
    example={"arrival_rate": 100, "service_time": 0.05, "target_utilization": 0.7},
    answer=8,
)
def replicas_needed(
    *, arrival_rate: q.RequestRate, service_time: q.SomeSeconds, target_utilization: q.SomeFraction = 1
) -> q.CountOrNone:
    """Replicas that serve a load at a chosen utilisation.

    Derivation: by Little λ·T requests are in service at once; each replica serves one and is to be busy a share u of
    the time. So ⌈λ·T/u⌉.
    Units: req/s, s of service (without waiting) and a fraction → replicas.
    Ignores: batching (use the time per request in a batch) and bursts, which the target must leave room for.
    """
    return whole_above(littles_law(arrival_rate=arrival_rate, time=service_time) / target_utilization)


@formula(
    row="14.4 Replicas (HPA rule)",
    source="Kubernetes documentation, Horizontal Pod Autoscaling, algorithm details",
    example={"replicas": 4, "metric": 12, "target": 8},
    answer=6,
)
def hpa_replicas(*, replicas: q.Count, metric: q.Amount, target: q.SomeAmount) -> q.CountOrNone:
    """Replicas that the Kubernetes autoscaler would ask for.

    Derivation: the metric per replica falls as replicas are added: n·metric is shared by n′, so n′ = ⌈n·metric/target⌉.
    Units: replicas, and metric and target in one unit → replicas.
    Ignores: its tolerance (10 % by default: no change within it), minimum, maximum and stabilisation window.
    """
    return whole_above(replicas * metric / target)


@formula(
    row="14.4 Cold start",
    source="definition",
    example={"provision": 60.0, "load": 141.1e9 / 5e9, "warmup": 10.0},
    answer=98.22,
)
def cold_start(*, provision: q.Seconds, load: q.Seconds, warmup: q.Seconds = 0) -> q.Seconds:
    """The time until a new replica serves.

    Derivation: get the machine, load the weights, warm up: one after another. Loading is bytes over bandwidth; the
    example loads 141.1 GB at 5 GB/s.
    Units: s each → s.
    Ignores: pulling the image, unless it is in `provision`, and steps that overlap.
    """
    return provision + load + warmup


@formula(
    row="14.5 Edge–cloud E2E",
    source="definition",
    example={"client_to_edge": 0.005, "edge": 0.008, "edge_to_cloud": 0.030, "cloud": 0.040},
    answer=0.083,
)
def edge_cloud_latency(
    *, client_to_edge: q.Seconds, edge: q.Seconds, edge_to_cloud: q.Seconds, cloud: q.Seconds
) -> q.Seconds:
    """The latency of a request that passes the edge and goes on to the cloud.

    Derivation: four steps one after another.
    Units: s each → s. Network times are there and back, or add the way back.
    Ignores: queues, and requests that the edge can answer alone; see `tiered_latency`.
    """
    return inference_latency(model=edge + cloud, network=client_to_edge + edge_to_cloud)


@formula(
    row="14.5 Tiered expected latency",
    source="definition",
    example={"edge": 0.013, "fallback": 0.2, "edge_to_cloud": 0.030, "cloud": 0.040},
    answer=0.027,
)
def tiered_latency(
    *, edge: q.Seconds, fallback: q.Probability, edge_to_cloud: q.Seconds, cloud: q.Seconds
) -> q.Seconds:
    """The mean latency when a small model at the edge hands on what it cannot answer.

    Derivation: every request pays the edge; a share p pays the way and the cloud on top.
    Units: s (the way to the edge included), a probability, s and s → s.
    Ignores: the tail. The handed-on requests see edge + way + cloud, not the mean.
    """
    return edge + fallback * (edge_to_cloud + cloud)
