"""Attention and the rotation of its queries and keys.

A step brings `query` new tokens to each sequence, after `context` tokens that stand in the cache: prefill is context 0,
decode is query 1, a chunk of a prefill is both. Which keys a query meets decides the work, so (query, key) pairs are
counted exactly.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from inferometer.core.binding import Binding
from inferometer.core.dtypes import DType
from inferometer.core.graph import Op, Tensor
from inferometer.core.work import STREAMS, Work
from inferometer.predict.work.polynomial import smaller
from inferometer.predict.work.rules.registry import moving, rule, streams

SOFTMAX_FLOPS = 5  # compare for the maximum, subtract it, exponential, add to the sum, divide
SOFT_CAP_FLOPS = 3  # cap · tanh(score / cap): divide, tanh, multiply


@rule("attention")
def attention(op: Op, binding: Binding) -> Work:
    """Each pair of a query and a key costs a dot product of `head_dim` and a weighted sum of `value_dim` in each head.

    That is 2·(head_dim + value_dim), plus 5 for its share of the softmax and 3 where scores are capped. Query heads
    share keys and values (GQA, MQA): `kv_heads` decides bytes, `heads` decides FLOPs. The scores never leave the chip.
    The new tokens' q, k and v are read as activations, k and v are written to the cache, and of the tokens already
    there those within reach of any query are read once.

    MLA caches one latent of `kv_latent` numbers a token, its rotary part of `rope_dim` included (absent: head_dim −
    value_dim, as in DeepSeek-V2 and V3, whose unrotated part is as wide as a value):
    - absorbed: queries are brought into the latent space, so a pair costs 2·(kv_latent + kv_latent − rope_dim).
    - naive: keys and values are expanded, so a pair costs 2·(head_dim + value_dim), and the cached latents must be
      expanded again: 2·tokens·rank·heads·(head_dim − rope_dim + value_dim), written and read back.
    Either way the new tokens' pass through the up-projection (or, absorbed, the queries' and outputs') has the same
    2·rows·rank·heads·(…) operations, and stands in the graph as a `linear` of its own.
    `absorbed="cheaper"` is what engines do: the form with fewer operations, naive for a prompt, absorbed for a step.

    With `top_k` each query meets at most `top_k` keys, which an index chose from all: the cache keeps every token.
    """
    if op.get("absorbed") == "cheaper":
        return _cheaper(*(attention(_with_form(op, absorbed=form), binding) for form in (True, False)))
    wide = (op["kv_latent"], _rank(op)) if _absorbed(op) else (op["head_dim"], op.get("value_dim", op["head_dim"]))
    width = sum(wide)  # of a head: its scores are made of keys, its result of values
    each = 2 * width + SOFTMAX_FLOPS + (SOFT_CAP_FLOPS if op.get("soft_cap") else 0)
    flops = sequences(op, binding) * op["heads"] * each * attention_pairs(op, binding)
    expanded = _expanded_elements(op, binding)
    moved = streams(op, binding)
    cache = _cache_streams(op, binding)
    if cache and op.get("cross"):
        moved["reads"] = binding.nbytes(op.inputs[0])  # the encoder's keys and values come from the cache
    moved |= cache
    moved["reads"] = moved["reads"] + expanded_bytes(op, binding)
    moved["writes"] = moved["writes"] + expanded_bytes(op, binding)
    return Work(flops={binding.arithmetic(op): flops + 2 * expanded * _rank(op)}, **moved)


def _with_form(op: Op, *, absorbed: bool) -> Op:
    return replace(op, attributes={**op.attributes, "absorbed": absorbed})


def _cheaper(one: Work, other: Work) -> Work:
    """The work with fewer operations, workload by workload."""
    # By operations, in which the two differ most: a prompt favours the naive form, a step the absorbed one.
    fewer = one.total_flops <= other.total_flops
    if not isinstance(fewer, np.ndarray):
        return one if fewer else other
    flops = {name: np.where(fewer, one.flops[name], other.flops[name]) for name in one.flops}
    return Work(flops=flops, **{s: np.where(fewer, getattr(one, s), getattr(other, s)) for s in STREAMS})


def attention_pairs(op: Op, binding: Binding) -> Any:
    """(query, key) pairs of one sequence and head."""
    query, context, window = _sizes(op, binding)
    if op.get("cross"):
        return query * context
    if op.get("top_k"):  # as many as a window of that size would leave, wherever they stand
        window = op["top_k"]
    return causal_pairs(query, context, window) if op.get("causal") else mutual_pairs(query, context, window)


def causal_pairs(query: Any, context: Any, window: Any = None) -> Any:
    """The token at position p (from 0) meets itself and all before it, p + 1 keys, or the last `window` of them.

    Σ min(p + 1, window) over the positions context … context + query − 1 is a difference of two prefix sums, so the
    chunks of a prefill add up to the whole.
    """
    if window is None:
        # Whole numbers divide evenly here: of two that follow each other one is even.
        return query * context + query * (query + 1) // 2
    return _sum_of_smaller(context + query, window) - _sum_of_smaller(context, window)


def mutual_pairs(query: Any, context: Any = 0, window: Any = None) -> Any:
    """Every token meets every other, or, in a window, itself and `window // 2` neighbours on each side.

    There are fewer neighbours at the ends: Σ 1 + min(before, half) + min(after, half).
    """
    tokens = context + query
    if window is None:
        return query * tokens
    # As Longformer and ModernBERT count a window: both sides together, the token itself between them.
    half = window // 2
    before = _sum_of_smaller(tokens - 1, half) - _sum_of_smaller(context - 1, half)
    return query + before + _sum_of_smaller(query - 1, half)


def _sum_of_smaller(count: Any, limit: Any) -> Any:
    """Σ min(j, limit) for j = 1 … count: a triangle up to the limit, a rectangle after it."""
    ramp = smaller(count, limit)
    return ramp * (ramp + 1) // 2 + (count - ramp) * limit


def sequences(op: Op, binding: Binding) -> Any:
    """How many sequences attend independently: what the output [batch, query, heads · value_dim] holds, in any layout.

    A vision model's windows are sequences of their own.
    """
    per_sequence = binding.size(op["query"]) * op["heads"] * op.get("value_dim", op["head_dim"])
    return binding.elements(op.outputs[0]) // per_sequence


def cached_tokens_read(op: Op, binding: Binding) -> Any:
    """Tokens of one sequence's cache, from before this step, that some query of the step can reach.

    The first query reaches furthest back: window − 1 tokens before itself, or half a window where attention is mutual.
    """
    query, context, window = _sizes(op, binding)
    if op.get("top_k"):  # each query chooses its own: the most that they can read between them
        return smaller(context, op["top_k"] * query)
    if window is None or op.get("cross"):
        return context
    # A causal window holds the query itself, so one token less of the cache.
    return smaller(context, window - 1 if op.get("causal") else window // 2)


def cached_bytes_per_token(op: Op, binding: Binding) -> int:
    """Bytes one token takes in this op's cache: a key and a value for each KV head, or one latent."""
    stored = _cache_format(op, binding)
    if op.get("kv_latent"):
        latent: int = stored.nbytes(op["kv_latent"])
        return latent
    kv_heads = op.get("kv_heads", op["heads"])
    both: int = stored.nbytes(kv_heads * op["head_dim"]) + stored.nbytes(kv_heads * op.get("value_dim", op["head_dim"]))
    return both


def cache_bytes(op: Op, binding: Binding) -> Any:
    """Bytes in this op's cache after the step: its new tokens included, at most a window; for cross an encoder's."""
    query, context, window = _sizes(op, binding)
    # An encoder's keys are cached once and never grow.
    tokens = context if op.get("cross") else context + query
    if window is not None and not op.get("cross"):
        tokens = smaller(tokens, window)
    return sequences(op, binding) * tokens * cached_bytes_per_token(op, binding)


def expanded_bytes(op: Op, binding: Binding) -> Any:
    """Bytes of the keys and values that naive MLA makes again from the cached latents.

    Where an engine takes the cheaper form, nothing for the workloads for which that is the absorbed one.
    """
    if op.get("absorbed") == "cheaper":
        absorbed, naive = (_with_form(op, absorbed=form) for form in (True, False))
        fewer = attention(absorbed, binding).total_flops <= attention(naive, binding).total_flops
        size = expanded_bytes(naive, binding)
        return np.where(fewer, 0, size) if isinstance(fewer, np.ndarray) else 0 if fewer else size
    return binding.format(op.inputs[0]).nbytes(_expanded_elements(op, binding))


def _cache_streams(op: Op, binding: Binding) -> dict[str, Any]:
    if not op.get("cached"):
        return {}
    per_token = sequences(op, binding) * cached_bytes_per_token(op, binding)
    new_tokens = 0 if op.get("cross") else binding.size(op["query"])  # the encoder's were written when it ran
    return {"kv_reads": per_token * cached_tokens_read(op, binding), "kv_writes": per_token * new_tokens}


def _cache_format(op: Op, binding: Binding) -> DType:
    """What the op's own cache tensor says, else the precision's kv, else the format of the keys."""
    cache = next((tensor for tensor in (*op.inputs, *op.outputs) if tensor.role == "kv"), None)
    if cache is not None:
        return binding.format(cache)
    if binding.precision.kv is not None:
        return binding.format(Tensor(name="kv", shape=(), role="kv"))
    return binding.format(op.inputs[:2][-1])  # the keys, or the first input where all three are one


def _sizes(op: Op, binding: Binding) -> tuple[Any, Any, Any]:
    return binding.size(op["query"]), binding.size(op.get("context", 0)), op.get("window")


def _rope(op: Op) -> int:
    rope: int = op.get("rope_dim", op["head_dim"] - op.get("value_dim", op["head_dim"]))
    return rope


def _rank(op: Op) -> int:
    """Width of MLA's latent without its rotary part."""
    rank: int = op["kv_latent"] - _rope(op) if op.get("kv_latent") else 0
    return rank


def _absorbed(op: Op) -> bool:
    return bool(op.get("kv_latent") and op.get("absorbed"))


def _expanded_elements(op: Op, binding: Binding) -> Any:
    """Numbers naive MLA expands from the cache: the unrotated key and the value of every head and cached token."""
    if not op.get("kv_latent") or _absorbed(op) or not op.get("cached"):
        return 0
    per_token = op["heads"] * (op["head_dim"] - _rope(op) + op.get("value_dim", op["head_dim"]))
    return sequences(op, binding) * cached_tokens_read(op, binding) * per_token


@rule("rotary")
def rotary(op: Op, binding: Binding) -> Work:
    """A rotation by an angle takes a pair (a, b) to (a·cos − b·sin, a·sin + b·cos): four multiplies and two adds.

    6 for each pair of numbers in the outputs. Where only `rotary_dim` of `head_dim` numbers are rotated, 6 for each
    pair of those. Sines and cosines are taken as tables.
    """
    turned = sum(binding.elements(tensor) for tensor in op.outputs)
    if op.get("rotary_dim"):
        turned = turned * op["rotary_dim"] // op["head_dim"]
    return moving(op, binding, 6 * (turned // 2))  # a pair: four multiplies, two adds
