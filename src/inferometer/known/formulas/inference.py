"""Inference and serving: latency, batching, availability, goodput and compression."""

from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.elementwise import whole_below
from inferometer.known.formulas.latency import throughput
from inferometer.known.formulas.registry import formula, require


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
