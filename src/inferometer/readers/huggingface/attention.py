"""Attention: multi-head, grouped-query, cross, and DeepSeek's latent form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferometer.core.graph import Op, Tensor
from inferometer.readers.huggingface.parts import (
    elementwise,
    embedding,
    linear,
    norm,
    once,
    output,
    reshaped,
    split,
    tensor,
    view,
    weight,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.core.dims import Dim

__all__ = ["Attention", "Latent", "attend", "attend_latent", "attention_op", "rotary_op"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Modules are full names; either q, k and v are named, or qkv where they are one matrix.

    `bias` holds the letters of the projections that have one. `qk_norm` is "head" (over each head's features) or
    "all" (over all of them at once). `rotary` is how many features of a head are rotated.
    """

    heads: int
    kv_heads: int
    head_dim: int
    q: str = ""
    k: str = ""
    v: str = ""
    o: str = ""
    qkv: str = ""
    bias: str = ""
    transposed: bool = False
    norm: str = "rms"
    q_norm: str = ""
    k_norm: str = ""
    qk_norm: str = ""
    rotary: int = 0
    window: int | None = None
    soft_cap: bool = False
    causal: bool = True
    cached: bool = True
    sinks: str = ""
    relative: str = ""  # table of relative position biases, where this layer owns one
    buckets: int = 0
    biased: bool = False  # scores get a position bias: ALiBi, T5's relative one, Swin's table
    chunk: int = 0  # tokens see only those of their own chunk of this size
    hidden: int = 0  # features that the output projection gives, where not those that came in


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: keys and values of all heads are made from one short vector, which is cached."""

    heads: int
    query_rank: int  # 0: the query is one full projection
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    at: str  # module of the attention
    norm: str = "rms"
    bias: bool = False


def attend(spec: Attention, at: str, x: Tensor, context: Dim, source: Tensor | None = None) -> list[Op]:
    """Projections, position, scores, output. With a `source` the keys and values come from it (cross-attention)."""
    q, k, v, ops = _projected(spec, at, x, source)
    if spec.qk_norm:
        features = spec.head_dim if spec.qk_norm == "head" else 0
        ops.append(norm(f"{at}.q_norm", q, spec.norm, spec.q_norm, features=features))
        ops.append(norm(f"{at}.k_norm", k, spec.norm, spec.k_norm, features=features))
        q, k = output(ops[-2]), output(ops[-1])
    if spec.rotary:
        ops.append(rotary_op(f"{at}.rotary", q, k, heads=spec.heads, head_dim=spec.head_dim, rotated=spec.rotary))
        q, k = ops[-1].outputs
    if spec.relative:
        ops += _relative(spec, at, x, context)
    if spec.chunk:
        q, k, v = (_chunked(part, spec.chunk) for part in (q, k, v))
    core = attention_op(f"{at}.attention", q, k, v, spec, context, cross=source)
    ops.append(core)
    if spec.chunk:
        ops.append(view(f"{at}.joined", output(core), *x.shape[:-1], spec.heads * spec.head_dim))
    if spec.o:
        features = spec.hidden or _features(x)
        ops.append(
            linear(f"{at}.o_proj", output(ops), features, spec.o, bias="o" in spec.bias, transposed=spec.transposed)
        )
    return ops


def _chunked(x: Tensor, chunk: int) -> Tensor:
    batch, tokens, features = x.shape
    return reshaped(x, batch * ((tokens + (chunk - 1)) // chunk), chunk, features)


def _projected(spec: Attention, at: str, x: Tensor, source: Tensor | None) -> tuple[Tensor, Tensor, Tensor, list[Op]]:
    wide, narrow = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    if spec.qkv:
        both = linear(
            f"{at}.qkv_proj", x, wide + 2 * narrow, spec.qkv, bias="q" in spec.bias, transposed=spec.transposed
        )
        rows = x.shape[:-1]
        parts = split(f"{at}.qkv", output(both), q=(*rows, wide), k=(*rows, narrow), v=(*rows, narrow))
        q, k, v = parts.outputs
        return q, k, v, [both, parts]
    query = linear(f"{at}.q_proj", x, wide, spec.q, bias="q" in spec.bias, transposed=spec.transposed)
    keys = tuple(
        linear(f"{at}.{letter}_proj", source or x, narrow, module, bias=letter in spec.bias)
        for letter, module in (("k", spec.k), ("v", spec.v))
    )
    kept = source is not None and spec.cached  # keys of cross-attention that stay need making only once
    ops = [query, *(once(keys) if kept else keys)]
    return output(ops[0]), output(ops[1]), output(ops[2]), ops


def attention_op(
    name: str, q: Tensor, k: Tensor, v: Tensor, spec: Attention, context: Dim, *, cross: Tensor | None = None
) -> Op:
    attributes = {
        "heads": spec.heads, "kv_heads": spec.kv_heads, "head_dim": spec.head_dim, "value_dim": spec.head_dim,
        "query": q.shape[-2], "context": context if cross is None else cross.shape[-2], "causal": spec.causal,
        "window": spec.window, "soft_cap": spec.soft_cap, "cross": cross is not None, "cached": spec.cached,
        "biased": spec.biased,
    }  # fmt: skip
    weights = (weight(spec.sinks, spec.heads),) if spec.sinks else ()
    y = tensor(name, *q.shape[:-1], spec.heads * spec.head_dim)
    return Op(name=name, kind="attention", inputs=(q, k, v), outputs=(y,), weights=weights, attributes=attributes)


def rotary_op(name: str, q: Tensor, k: Tensor, *, heads: int, head_dim: int, rotated: int) -> Op:
    outputs = (tensor(f"{name}.q", *q.shape), tensor(f"{name}.k", *k.shape))
    attributes = {"heads": heads, "head_dim": head_dim, "rotary_dim": rotated}
    return Op(name=name, kind="rotary", inputs=(q, k), outputs=outputs, attributes=attributes)


def _relative(spec: Attention, at: str, x: Tensor, context: Dim) -> Iterable[Op]:
    """T5 looks a bias up for every (query, key) distance; all layers of a stack then add the same one."""
    tokens = x.shape[-2]
    distances = tensor(f"{at}.distances", tokens, tokens + context, role="index")
    yield embedding(f"{at}.relative_bias", distances, spec.buckets, spec.heads, f"{spec.relative}.weight")


def attend_latent(spec: Latent, at: str, x: Tensor, context: Dim) -> list[Op]:
    """The cache holds `kv_rank + rope_dim` values a token. `kv_b_proj` turns the latent into each head's keys and
    values; an engine that folds it into the query and the output instead (absorption) does the same arithmetic for a
    new token, so the projection stands here once and the attention op says both head sizes.
    """
    heads, rows = spec.heads, x.shape[:-1]
    head_dim = spec.nope_dim + spec.rope_dim
    ops = _latent_query(spec, at, x, heads * head_dim)
    q = output(ops)
    down = linear(f"{at}.kv_a_proj", x, spec.kv_rank + spec.rope_dim, f"{spec.at}.kv_a_proj_with_mqa", bias=spec.bias)
    parts = split(f"{at}.kv_a", output(down), latent=(*rows, spec.kv_rank), rope=(*rows, spec.rope_dim))
    latent, rope = parts.outputs
    normed = norm(f"{at}.kv_a_norm", latent, spec.norm, f"{spec.at}.kv_a_layernorm")
    per_head = spec.nope_dim + spec.value_dim
    up = linear(f"{at}.kv_b_proj", output(normed), heads * per_head, f"{spec.at}.kv_b_proj")
    turned = rotary_op(f"{at}.rotary", q, rope, heads=heads, head_dim=head_dim, rotated=spec.rope_dim)
    kv = split(f"{at}.kv_b", output(up), k=(*rows, heads * spec.nope_dim), v=(*rows, heads * spec.value_dim))
    core = _latent_attention(spec, at, (turned.outputs[0], *kv.outputs), context)
    out = linear(f"{at}.o_proj", output(core), _features(x), f"{spec.at}.o_proj", bias=spec.bias)
    return [*ops, down, parts, normed, up, turned, kv, core, out]


def _latent_query(spec: Latent, at: str, x: Tensor, features: int) -> list[Op]:
    if not spec.query_rank:
        return [linear(f"{at}.q_proj", x, features, f"{spec.at}.q_proj")]
    down = linear(f"{at}.q_a_proj", x, spec.query_rank, f"{spec.at}.q_a_proj", bias=spec.bias)
    normed = norm(f"{at}.q_a_norm", output(down), spec.norm, f"{spec.at}.q_a_layernorm")
    return [down, normed, linear(f"{at}.q_b_proj", output(normed), features, f"{spec.at}.q_b_proj")]


def _latent_attention(spec: Latent, at: str, inputs: tuple[Tensor, ...], context: Dim) -> Op:
    q = inputs[0]
    attributes = {
        "heads": spec.heads, "kv_heads": spec.heads, "head_dim": spec.nope_dim + spec.rope_dim,
        "value_dim": spec.value_dim, "query": q.shape[-2], "context": context, "causal": True, "window": None,
        "soft_cap": False, "cross": False, "cached": True, "kv_latent": spec.kv_rank + spec.rope_dim,
        "kv_rank": spec.kv_rank, "rope_dim": spec.rope_dim, "absorbed": True,
    }  # fmt: skip
    y = tensor(f"{at}.attention", *q.shape[:-1], spec.heads * spec.value_dim)
    return Op(name=f"{at}.attention", kind="attention", inputs=inputs, outputs=(y,), attributes=attributes)


def soft_capped(name: str, x: Tensor) -> Op:
    """Cap · tanh(x / cap)."""
    return elementwise(name, "soft_cap", x, flops=3)


def _features(x: Tensor) -> int:
    last = x.shape[-1]
    if not isinstance(last, int):
        raise TypeError(f"The features of {x.name} are not a fixed number.")
    return last


def last_positions(name: str, x: Tensor, count: Dim) -> Op:
    """The positions whose logits are computed."""
    return view(name, x, x.shape[0], count, x.shape[-1])
