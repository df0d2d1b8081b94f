"""Language models: time to first token, time per token, the KV cache, speculation and pass@k."""

from math import expm1, fsum, log1p
from typing import Any

import numpy as np

from inferometer.known.formulas import latency
from inferometer.known.formulas import quantities as q
from inferometer.known.formulas.elementwise import choose, greatest, whole_below
from inferometer.known.formulas.registry import formula, require

_LEVIATHAN = "Leviathan, Kalman & Matias 2023, Fast Inference via Speculative Decoding, arXiv:2211.17192"
_POPE = "Pope et al. 2022, Efficiently Scaling Transformer Inference, arXiv:2211.05102"


@formula(row="10.1 TTFT", source="definition", example={"request": 0.0, "first_token": 1.2795}, answer=1.2795)
def ttft(*, first_token: q.Instant, request: q.Instant = 0) -> q.Seconds:
    """Time to first token, measured.

    Derivation: the moment the first token arrives less the moment the request was sent, on one clock. The example is
    the sum of its parts: 10 + 0 + 5.8 + 1247 + 3.1 + 13.6 ms to tokenize, pad, embed, run 16 layers, norm and LM head.
    Units: s and s, points on the same clock → s.
    Ignores: nothing in between: queue, network and tokenizer are in it. Say whether yours are.
    """
    require(first_token >= request, "first_token must not be before request", first_token=first_token, request=request)
    return first_token - request


@formula(
    row="10.1 TTFT model",
    source=_POPE,
    example={
        "flops": 4.536e12,
        "bytes": 2.4716e9,
        "peak": 10e12,
        "bandwidth": 120e9,
        "compute_utilization": 0.5,
        "memory_utilization": 0.5,
        "tokenize": 0.01,
    },
    answer=0.9172,
)
def ttft_model(
    *,
    flops: q.Flops,
    bytes: q.Bytes,
    peak: q.FlopRate,
    bandwidth: q.Bandwidth,
    compute_utilization: q.SomeFraction = 1,
    memory_utilization: q.SomeFraction = 1,
    queue: q.Seconds = 0,
    tokenize: q.Seconds = 0,
    sample: q.Seconds = 0,
) -> q.Seconds:
    """Time to first token, predicted from the prefill's work.

    Derivation: the prefill takes the longer of its arithmetic, flops/(peak·u), and its traffic, bytes/(bandwidth·u);
    waiting, tokenizing and sampling come before and after it. The example is Llama-3.2-1B with 2048 tokens, attention
    counted in full (without the causal half left out).
    Units: FLOP, B, FLOP/s, B/s, fractions and s → s.
    Ignores: launch costs, and that each operation has its own bound: the sum of maxima is above the maximum of sums.
    """
    compute = flops / (peak * compute_utilization)
    memory = bytes / (bandwidth * memory_utilization)
    return queue + tokenize + greatest(compute, memory) + sample


@formula(row="10.2 TPOT", source="definition", example={"e2e": 3.9479, "ttft": 1.2799, "tokens": 30}, answer=0.092)
def tpot(*, e2e: q.Seconds, ttft: q.Seconds, tokens: q.SeveralTokens) -> q.Seconds:
    """Time per output token after the first.

    Derivation: the first of n tokens arrives at TTFT and the last at the end; n−1 gaps lie between them.
    Units: s, s and output tokens (2 or more) → s per token.
    Ignores: the spread. One long pause and many short gaps have the same mean.
    """
    require(e2e >= ttft, "e2e must not be shorter than ttft", e2e=e2e, ttft=ttft)
    return (e2e - ttft) / (tokens - 1)


@formula(
    row="10.2 E2E latency", source="definition", example={"ttft": 1.2799, "tpot": 0.092, "tokens": 30}, answer=3.9479
)
def e2e_latency(*, ttft: q.Seconds, tpot: q.Seconds, tokens: q.Tokens) -> q.Seconds:
    """The time until the last token of a request.

    Derivation: the definition of TPOT solved for the end: the first token, then n−1 gaps.
    Units: s, s per token and output tokens → s.
    Ignores: that gaps grow with the context. Take TPOT as the mean over this generation.
    """
    return ttft + (tokens - 1) * tpot


@formula(row="10.2 ITL vs TPOT", source="definition", example={"gaps": [0.090, 0.092, 0.094]}, answer=0.092)
def inter_token_latency(*, gaps: q.SecondsList) -> q.Seconds:
    """The mean gap between tokens that follow each other.

    Derivation: the gaps of one request sum to e2e − TTFT and there are n−1 of them, so their mean is its TPOT. Over
    many requests the two differ: ITL weighs each token alike, TPOT each request.
    Units: a list of s → s.
    Ignores: chunks. Where a stream delivers several tokens at once, a gap must be divided among them first.
    """
    return np.mean(gaps, axis=-1)


@formula(
    row="10.3 Tokens/s per request",
    source="definition",
    example={"tokens": 30, "time": 3.9479},
    answer=7.598976671141619,
)
def request_tokens_per_s(*, tokens: q.Tokens, time: q.SomeSeconds) -> q.TokenRate:
    """Output tokens per second as one user sees them, the wait for the first included.

    Derivation: tokens over the whole time of the request.
    Units: output tokens and s → token/s.
    Ignores: the two phases. A long prompt lowers it while decoding is as fast as ever; see `decode_tokens_per_s`.
    """
    return latency.throughput(work=tokens, time=time)


@formula(row="10.3 Decode tok/s", source="definition", example={"tpot": 0.092}, answer=1 / 0.092)
def decode_tokens_per_s(*, tpot: q.SomeSeconds) -> q.SomeTokenRate:
    """The speed of decoding for one request.

    Derivation: one request decodes serially, a token every TPOT seconds.
    Units: s per token → token/s.
    Ignores: the batch. A system that decodes B requests together makes B times as many.
    """
    return latency.throughput_serial(latency=tpot)


@formula(row="10.3 System tok/s", source="definition", example={"tokens": [100] * 64, "time": 10.0}, answer=640.0)
def system_tokens_per_s(*, tokens: q.TokensList, time: q.SomeSeconds) -> q.TokenRate:
    """Output tokens per second of all requests together.

    Derivation: the tokens of every request, summed, over the time looked at.
    Units: a list of output tokens, one per request (or their sum), and s → token/s.
    Ignores: requests still running at the edges of the interval, and what each user waits.
    """
    return latency.throughput(work=np.sum(tokens, axis=-1), time=time)


@formula(
    row="10.4 Decode roofline TPOT",
    source=_POPE,
    example={"weight_bytes": 2_471_493_632, "kv_bytes": 32_768 * 2048, "bandwidth": 120e9},
    answer=0.0211550208,
)
def decode_floor(
    *,
    weight_bytes: q.SomeBytes,
    kv_bytes: q.Bytes,
    bandwidth: q.Bandwidth,
    batch: q.Count = 1,
    utilization: q.SomeFraction = 1,
) -> q.SomeSeconds:
    """The least time of one decode step: every weight once, and every sequence's KV cache once.

    Derivation: a step reads all weights whatever the batch, and the cache of each of B sequences. At one to a few
    FLOPs a byte this is memory-bound, so time ≥ (W + KV·B)/(bandwidth·u). All B sequences get a token from it.
    Units: B of weights that are read, B of one sequence's cache, B/s, a count and a fraction → s.
    Ignores: arithmetic, launches, activations, and caches that hold part of the weights. For a mixture of experts the
    weights are those of the experts that this batch touches.
    """
    return (weight_bytes + kv_bytes * batch) / (bandwidth * utilization)


@formula(
    row="10.5 KV bytes/token (source, MHA only)",
    source="definition",
    example={"layers": 80, "hidden": 8192, "element_bytes": 2},
    answer=2_621_440,
)
def kv_bytes_per_token_mha(*, layers: q.Count, hidden: q.Count, element_bytes: q.SomeBytes = 2) -> q.SomeBytes:
    """KV-cache bytes of a token where every attention head has its own keys and values.

    Derivation: `kv_bytes_per_token` with n_kv·d = hidden. It is the source's formula and holds for plain multi-head
    attention only. For Llama-3-70B, whose queries share 8 KV heads, it is 8 times too much; and the source's
    "1.3 MB" is not even what this gives.
    Units: layers, elements and B per element → B per token.
    Ignores: grouped queries, and head sizes for which heads × size is not the hidden size.
    """
    return kv_bytes_per_token(layers=layers, kv_heads=1, head_dim=hidden, element_bytes=element_bytes)


@formula(
    row="10.5 KV bytes/token (GQA, correct)",
    source="Ainslie et al. 2023, GQA, arXiv:2305.13245",
    example={"layers": 80, "kv_heads": 8, "head_dim": 128, "element_bytes": 2},
    answer=327_680,
)
def kv_bytes_per_token(
    *, layers: q.Count, kv_heads: q.Count, head_dim: q.Count, element_bytes: q.SomeBytes = 2
) -> q.SomeBytes:
    """KV-cache bytes of one token.

    Derivation: each layer keeps one key and one value (2) for each KV head, of head_dim elements. Query heads do not
    count: with grouped queries several share a KV head. Llama-3-70B: 2·80·8·128·2 = 327,680 B.
    Units: layers, heads, elements and B per element → B per token.
    Ignores: pages that are not full, sliding windows, and latent attention (MLA), which caches something smaller.
    """
    return 2 * layers * kv_heads * head_dim * element_bytes


@formula(
    row="10.5 KV total",
    source="definition",
    example={"bytes_per_token": 327_680, "tokens": 1024, "batch": 1},
    answer=335_544_320,
)
def kv_cache_bytes(*, bytes_per_token: q.SomeBytes, tokens: q.Tokens, batch: q.Count = 1) -> q.SomeBytes:
    """The KV cache of a batch of sequences.

    Derivation: every token of every sequence keeps its own keys and values.
    Units: B per token, tokens of a sequence and sequences → B.
    Ignores: shared prefixes, which are kept once, and pages that are not full.
    """
    return bytes_per_token * tokens * batch


@formula(
    row="10.5 Max concurrent sequences",
    source="Kwon et al. 2023, PagedAttention, arXiv:2309.06180",
    example={
        "memory": 8 * 80e9,
        "weights": 141.1e9,
        "reserve": 64e9,
        "kv_bytes_per_token": 327_680,
        "context": 8192,
    },
    answer=162,
)
def max_concurrent_sequences(
    *, memory: q.SomeBytes, weights: q.Bytes, kv_bytes_per_token: q.SomeBytes, context: q.Tokens, reserve: q.Bytes = 0
) -> q.CountOrNone:
    """How many sequences of a length fit into memory at once.

    Derivation: what weights and reserve leave, divided by the cache of one sequence, rounded down. The example: 8 GPUs
    of 80 GB with a tenth kept free.
    Units: B, B, B per token, tokens and B → sequences.
    Ignores: activations (put them into the reserve), and that most sequences are shorter than the context. 0 says that
    the weights fit and not one whole sequence does.
    """
    left = memory - weights - reserve
    require(
        left >= 0,
        "weights and reserve must fit into memory",
        remedy="Use fewer bits a weight, more devices, or a smaller reserve.",
        memory=memory,
        weights=weights,
        reserve=reserve,
    )
    return whole_below(left / kv_cache_bytes(bytes_per_token=kv_bytes_per_token, tokens=context))


@formula(
    row="10.6 Speculative decode expected tokens/step",
    source=_LEVIATHAN,
    example={"acceptance": 0.8, "draft_length": 4},
    answer=3.3616,
)
def speculative_tokens(*, acceptance: q.Probability, draft_length: q.CountOrNone) -> q.TokensOnAverage:
    """Tokens that one step of speculative decoding gives on average.

    Derivation: the step gives token i+1 if the first i drafts are all accepted, with probability αⁱ. The sum of αⁱ for
    i = 0 … γ is (1 − α^(γ+1))/(1−α); at α = 1 it is γ+1. Computed through logarithms: α near 1 keeps its digits.
    Units: a probability and draft tokens a step → tokens.
    Ignores: that acceptance differs from token to token. α is the mean, taken as independent.
    """
    missed = 1.0 - acceptance
    certain = missed == 0
    with np.errstate(divide="ignore", over="ignore"):  # log(0) = −∞ is right for α = 0: the drafts are worth nothing
        series = -np.expm1((draft_length + 1) * np.log1p(-missed)) / choose(certain, 1.0, missed)
    return choose(certain, draft_length + 1, series)


@formula(
    row="10.6 Speculative speedup",
    source=_LEVIATHAN,
    example={"acceptance": 0.8, "draft_length": 4, "draft_cost": 0.05},
    answer=2.801333333333334,
)
def speculative_speedup(*, acceptance: q.Probability, draft_length: q.CountOrNone, draft_cost: q.Ratio) -> q.SomeRatio:
    """How many times faster speculative decoding makes a request.

    Derivation: a step costs γ draft runs of c and one target run of 1, so γc + 1, and gives the expected tokens; plain
    decoding gives 1 for 1. The quotient is (1 − α^(γ+1))/((1−α)(γc + 1)). Below 1 it slows down.
    Units: a probability, draft tokens and the draft's time over the target's → 1.
    Ignores: that checking γ+1 tokens costs more than one where decoding is not memory-bound, as in large batches.
    """
    tokens = speculative_tokens(acceptance=acceptance, draft_length=draft_length)
    return tokens / (draft_length * draft_cost + 1)


@formula(row="10.6 Prefix-cache TTFT", source="definition", example={"ttft": 1.28, "hit": 0.75}, answer=0.32)
def prefix_cache_ttft(*, ttft: q.Seconds, hit: q.Fraction) -> q.Seconds:
    """Time to first token when part of the prompt is already in the KV cache.

    Derivation: the work of the linear layers grows with the tokens that are left: a share 1 − hit.
    Units: s and the fraction of prompt tokens found → s.
    Ignores: attention of the new tokens to the cached ones, which stays, and the fixed parts of TTFT (queue,
    tokenizer), which do not shrink.
    """
    return ttft * (1 - hit)


@formula(
    row="10.7 pass@k",
    source="Chen et al. 2021, Evaluating Large Language Models Trained on Code, arXiv:2107.03374",
    example={"n": 20, "c": 5, "k": 3},
    answer=0.6008771929824561,
)
def pass_at_k(*, n: q.UpToAMillion, c: q.UpToAMillionOrNone, k: q.UpToAMillion) -> q.Probability:
    """The chance that at least one of `k` answers is right, from `n` tries of which `c` were.

    Derivation: of all ways to draw k of n, C(n−c, k) draw none of the c right ones; so 1 − C(n−c, k)/C(n, k). It has no
    bias, unlike 1 − (1 − c/n)ᵏ. The quotient is the product over i < min(c, k) of 1 − max(c, k)/(n−i).
    Units: counts → a probability.
    Ignores: the spread between problems. It is the estimate for one problem; a benchmark's score is the mean.
    """
    require(c <= n, "c must not exceed n", c=c, n=n)
    require(k <= n, "k must not exceed n", k=k, n=n)
    if any(isinstance(count, np.ndarray) for count in (n, c, k)):
        return _pass_at_k_array(n, np.minimum(c, k), np.maximum(c, k))
    if n - c < k:
        return 1.0
    few, many = int(min(c, k)), max(c, k)
    return -expm1(fsum(log1p(-many / (n - i)) for i in range(few)))


def _pass_at_k_array(n: Any, few: Any, many: Any) -> Any:
    """One step of the product for all elements at once; those whose product is complete stand still."""
    logs = np.zeros(np.broadcast_shapes(np.shape(n), np.shape(few)))
    for i in range(int(np.max(few))):
        factor = 1 - many / np.maximum(n - i, 1)
        logs += np.where(i < few, np.log(np.maximum(factor, 0)), 0.0)
    return np.where(n < few + many, 1.0, -np.expm1(logs))
