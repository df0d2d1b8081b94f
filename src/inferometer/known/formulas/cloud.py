"""Cloud: price and performance, spot machines, checkpoints, scaling and tiers."""

from typing import Any

from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.elementwise import whole_above, whole_below
from inferometer.known.formulas.latency import speedup, throughput
from inferometer.known.formulas.registry import formula, require

# Inference and serving: latency, batching, availability, goodput and compression.


@formula(
    row="9.1 Inference latency",
    source="definition",
    example={"preprocess": 0.005, "model": 0.040, "postprocess": 0.003, "network": 0.012},
    answer=0.06,
)
def inference_latency(
    *, model: q.Seconds, preprocess: q.Seconds = 0, postprocess: q.Seconds = 0, network: q.Seconds = 0
) -> q.Seconds:
    """The latency of one request from end to end.

    Derivation: the request passes the parts one after another, so their times add.
    Units: s each → s.
    Ignores: waiting in a queue and any overlap of the parts.
    """
    return preprocess + model + postprocess + network


@formula(row="9.2 Batched throughput", source="definition", example={"batch": 32, "batch_time": 0.08}, answer=400.0)
def batched_throughput(*, batch: q.SomeRequests, batch_time: q.SomeSeconds) -> q.RequestRate:
    """Requests per second when they are run in batches.

    Derivation: a batch of B completes every T(B) seconds.
    Units: requests and s → req/s.
    Ignores: the wait for a batch to fill. The latency of a request is that wait plus the whole batch's time.
    """
    return throughput(work=batch, time=batch_time)


@formula(
    row="9.2 Optimal batch",
    source="definition",
    example={"fixed": 0.010, "per_request": 0.002, "limit": 0.050},
    answer=400.0,
)
def optimal_batch_throughput(
    *, fixed: q.Seconds, per_request: q.SomeSeconds, limit: q.SomeSeconds
) -> q.SomeRequestRate:
    """The throughput at the best batch whose time stays within a limit, for T(B) = fixed + per_request·B.

    Derivation: B/(a + c·B) rises with B, so the best batch is the largest allowed: B = ⌊(limit − a)/c⌋. The throughput
    there is B/(a + c·B). The example: B = ⌊40/2⌋ = 20 in 50 ms.
    Units: s, s per request and s → req/s.
    Ignores: memory, the wait for the batch to fill, and devices whose time is not a straight line in B.
    """
    batch = whole_below((limit - fixed) / per_request)
    require(
        batch >= 1,
        "a batch of one (fixed + per_request) must fit the limit",
        remedy="Raise the limit or use a faster device.",
        fixed=fixed,
        per_request=per_request,
        limit=limit,
    )
    return batched_throughput(batch=batch, batch_time=fixed + per_request * batch)


@formula(row="9.3 Availability", source="definition", example={"successes": 9990, "requests": 10000}, answer=0.999)
def availability(*, successes: q.Requests, requests: q.SomeRequests) -> q.Fraction:
    """The share of requests that succeeded.

    Derivation: a count over the count it is part of.
    Units: requests and requests → 1.
    Ignores: how late they were; goodput counts that. It is not the share of time the service was up.
    """
    require(successes <= requests, "successes must not exceed requests", successes=successes, requests=requests)
    return successes / requests


@formula(
    row="9.3 Goodput",
    source="Zhong et al. 2024, DistServe, arXiv:2401.09670",
    example={"met": 950, "time": 50.0},
    answer=19.0,
)
def goodput(*, met: q.Requests, time: q.SomeSeconds) -> q.RequestRate:
    """Requests per second that met their service level.

    Derivation: throughput, with only the requests that kept every limit.
    Units: requests and s → req/s.
    Ignores: how many missed, and by how much.
    """
    return throughput(work=met, time=time)


@formula(row="9.4 Batch fill rate", source="definition", example={"mean_batch": 24, "max_batch": 32}, answer=0.75)
def batch_fill_rate(*, mean_batch: q.Requests, max_batch: q.SomeRequests) -> q.Fraction:
    """How full the batches are.

    Derivation: the mean batch over the largest one allowed.
    Units: requests and requests → 1.
    Ignores: padding within a request. A batch full of short sequences padded to the longest is less full than it looks.
    """
    require(mean_batch <= max_batch, "mean_batch must not exceed max_batch", mean_batch=mean_batch, max_batch=max_batch)
    return mean_batch / max_batch


@formula(
    row="9.5 Compression ratio",
    source="EdgeProfiler, arXiv:2506.09061, table II (the example)",
    example={"original": 2.2e9, "compressed": 0.644e9},
    answer=3.4161490683229814,
)
def compression_ratio(*, original: q.SomeBytes, compressed: q.SomeBytes) -> q.SomeRatio:
    """How many times smaller a model became.

    Derivation: bytes over bytes. The scales of a block format count: Q4_0 stores 4.5 bits a weight, so it is 3.56
    times smaller than FP16 and not 4.
    Units: B and B → 1.
    Ignores: what it cost in accuracy, and memory that is not weights.
    """
    return original / compressed


@formula(
    row="9.5 Accuracy retention",
    source="definition",
    example={"compressed": 0.741, "original": 0.761},
    answer=0.973718791064389,
)
def accuracy_retention(*, compressed: q.Fraction, original: q.SomeFraction) -> q.Ratio:
    """The share of the original accuracy that a compressed model keeps.

    Derivation: accuracy over accuracy, on the same test.
    Units: fractions → 1. Above 1 the compressed model is better.
    Ignores: chance. A model that guesses keeps a good share of a low score; and the test's own error may be larger
    than the loss.
    """
    return compressed / original


# Systems and queues: utilisation, Little's law and the M/M/1 queue.

_KLEINROCK = "Kleinrock 1975, Queueing Systems, vol. 1"


@formula(row="7.1 Device utilization", source="definition", example={"busy": 48.0, "observed": 60.0}, answer=0.8)
def device_utilization(*, busy: q.Seconds, observed: q.SomeSeconds) -> q.Fraction:
    """The share of time in which a device did something.

    Derivation: busy time over the time looked at.
    Units: s and s → 1.
    Ignores: how much it did. `nvidia-smi` calls a GPU busy that runs one small kernel; see MFU for useful work.
    """
    require(busy <= observed, "busy must not exceed observed", busy=busy, observed=observed)
    return busy / observed


@formula(row="7.2 Unit utilization", source="definition", example={"busy_cycles": 6e8, "cycles": 1e9}, answer=0.6)
def unit_utilization(*, busy_cycles: q.Cycles, cycles: q.SomeCycles) -> q.Fraction:
    """The share of cycles in which one unit (ALU, load/store, tensor core) was busy.

    Derivation: busy cycles over all cycles.
    Units: cycle and cycle → 1.
    Ignores: lanes. A unit that serves one lane of 32 is as busy as one that serves all.
    """
    require(busy_cycles <= cycles, "busy_cycles must not exceed cycles", busy_cycles=busy_cycles, cycles=cycles)
    return busy_cycles / cycles


@formula(row="7.3 Stall fraction", source="definition", example={"stall_cycles": 2.5e8, "cycles": 1e9}, answer=0.25)
def stall_fraction(*, stall_cycles: q.Cycles, cycles: q.SomeCycles) -> q.Fraction:
    """The share of cycles in which nothing could issue.

    Derivation: stalled cycles over all cycles.
    Units: cycle and cycle → 1.
    Ignores: the cause, and stalls that other warps or threads cover.
    """
    require(stall_cycles <= cycles, "stall_cycles must not exceed cycles", stall_cycles=stall_cycles, cycles=cycles)
    return stall_cycles / cycles


@formula(
    row="7.4 Little's law",
    source="Little 1961, A Proof for the Queuing Formula L = λW",
    example={"arrival_rate": 100, "time": 0.05},
    answer=5.0,
)
def littles_law(*, arrival_rate: q.RequestRate, time: q.Seconds) -> q.Amount:
    """How many requests are in a system at once.

    Derivation: draw arrivals and departures over an interval T. The area between the curves is both ∫L dt = L·T and
    the sum of the stays = λ·T·W. So L = λ·W, whatever the distributions.
    Units: req/s and s (the mean stay) → requests in flight.
    Ignores: start and end. The system must be stable and seen for much longer than one stay.
    """
    return arrival_rate * time


@formula(row="7.4 M/M/1 response", source=_KLEINROCK, example={"arrival_rate": 20, "service_rate": 25}, answer=0.2)
def mm1_response(*, arrival_rate: q.RequestRate, service_rate: q.SomeRequestRate) -> q.SomeSeconds:
    """The mean time in an M/M/1 queue, waiting and service together.

    Derivation: with ρ = λ/μ there are k requests with probability (1−ρ)ρᵏ, so L = ρ/(1−ρ) on average. Little gives
    W = L/λ = 1/(μ−λ).
    Units: req/s and req/s → s.
    Ignores: batching, several servers, limits on the queue. Arrivals are Poisson, service times exponential. It must
    have λ < μ, or the queue grows without end.
    """
    _require_stable(arrival_rate, service_rate)
    return 1.0 / (service_rate - arrival_rate)


@formula(row="7.4 M/M/1 utilization", source=_KLEINROCK, example={"arrival_rate": 20, "service_rate": 25}, answer=0.8)
def mm1_utilization(*, arrival_rate: q.RequestRate, service_rate: q.SomeRequestRate) -> q.PartFraction:
    """The share of time in which the server of an M/M/1 queue is busy.

    Derivation: λ requests a second of 1/μ seconds each keep it busy for λ/μ of every second.
    Units: req/s and req/s → 1.
    Ignores: overload. At λ ≥ μ the server is always busy and the queue has no steady state.
    """
    _require_stable(arrival_rate, service_rate)
    return arrival_rate / service_rate


def _require_stable(arrival_rate: Any, service_rate: Any) -> None:
    require(
        arrival_rate < service_rate,
        "arrival_rate must be below service_rate, or the queue grows without end",
        remedy="Serve faster, add servers, or turn requests away.",
        arrival_rate=arrival_rate,
        service_rate=service_rate,
    )


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
