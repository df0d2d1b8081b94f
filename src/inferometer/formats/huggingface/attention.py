"""Attention: multi-head, grouped-query, cross, and DeepSeek's latent form."""

from collections.abc import Iterable
from dataclasses import replace

from inferometer.core.dims import Dim
from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Tensor
from inferometer.formats.huggingface import nn


@frozen
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
    written: str = ""  # how transformers writes it, where that is not one fused kernel: see `Family.attention`
    gated: bool = False  # the query's projection also gives a gate for what attention gives


@frozen
class Index:
    """DeepSeek's sparse attention: small heads score every token, and attention meets the best `top_k` of them."""

    heads: int
    head_dim: int
    top_k: int
    shared: bool = False  # a layer that takes over the choice of the layer before it


@frozen
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
    index: Index | None = None

    @property
    def head_dim(self) -> int:
        return self.nope_dim + self.rope_dim


@frozen
class Seen:
    """What attention sees beside the new tokens: cached ones before them, or another sequence (cross-attention)."""

    context: Dim = 0
    source: Tensor | None = None


def attend(spec: Attention, at: str, x: Tensor, seen: Seen) -> list[Op]:
    """Projections, position, scores, output. With a source the keys and values come from it."""
    q, k, v, ops = _projected(spec, at, x, seen.source)
    gate = ops[1].outputs[1] if spec.gated else None
    if spec.qk_norm:
        ops += _qk_norms(spec, at, q, k)
        q, k = nn.output(ops[-2]), nn.output(ops[-1])
    if spec.rotary:
        turned = rotary_op(f"{at}.rotary", q, k, head_dim=spec.head_dim, rotated=spec.rotary)
        plain = {"written": "plain"} if spec.written == "plain" else {}
        ops.append(replace(turned, attributes={**turned.attributes, **plain}))
        q, k = ops[-1].outputs
    if spec.relative:
        ops += _relative(spec, at, x, seen.context)
    if spec.chunk:
        q, k, v = (_chunked(part, spec.chunk) for part in (q, k, v))
    ops.append(attention_op(f"{at}.attention", (q, k, v), spec, seen))
    if spec.chunk:
        ops.append(nn.view(f"{at}.joined", ops, *x.shape[:-1], spec.heads * spec.head_dim))
    if gate is not None:
        weighed = nn.activation(f"{at}.gate_act", gate, "sigmoid")
        ops += [weighed, nn.multiply(f"{at}.gate", ops, weighed)]
    out = nn.linear(f"{at}.o_proj", ops, nn.width(x), spec.o, bias="o" in spec.bias, transposed=spec.transposed)
    return [*ops, out]


def _projected(spec: Attention, at: str, x: Tensor, source: Tensor | None) -> tuple[Tensor, Tensor, Tensor, list[Op]]:
    wide, narrow = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    if spec.qkv:
        bias, transposed = "q" in spec.bias, spec.transposed
        both = nn.linear(f"{at}.qkv_proj", x, wide + 2 * narrow, spec.qkv, bias=bias, transposed=transposed)
        rows = x.shape[:-1]
        parts = nn.split(f"{at}.qkv", both, q=(*rows, wide), k=(*rows, narrow), v=(*rows, narrow))
        q, k, v = parts.outputs
        return q, k, v, [both, parts]
    query = nn.linear(f"{at}.q_proj", x, wide * (1 + spec.gated), spec.q, bias="q" in spec.bias)
    keys = tuple(
        nn.linear(f"{at}.{letter}_proj", source or x, narrow, module, bias=letter in spec.bias)
        for letter, module in (("k", spec.k), ("v", spec.v))
    )
    kept = source is not None and spec.cached  # keys of cross-attention that stay need making only once
    ops = [query, *(nn.once(keys) if kept else keys)]
    if spec.gated:
        half = (*x.shape[:-1], wide)
        ops.insert(1, nn.split(f"{at}.query_and_gate", query, q=half, gate=half))
    return nn.output(ops[int(spec.gated)]), nn.output(ops[-2]), nn.output(ops[-1]), ops


def _qk_norms(spec: Attention, at: str, q: Tensor, k: Tensor) -> Iterable[Op]:
    for name, x, module in ((f"{at}.q_norm", q, spec.q_norm), (f"{at}.k_norm", k, spec.k_norm)):
        whole = spec.qk_norm == "all"
        yield nn.norm(name, x, spec.norm, module) if whole else nn.head_norm(name, x, spec.norm, module, spec.head_dim)


def _chunked(x: Tensor, chunk: int) -> Tensor:
    batch, tokens, features = x.shape
    return nn.reshaped(x, batch * ((tokens + (chunk - 1)) // chunk), chunk, features)


def attention_op(name: str, qkv: tuple[Tensor, Tensor, Tensor], spec: Attention, seen: Seen) -> Op:
    q, source = qkv[0], seen.source
    written = spec.written or ("sinks" if spec.sinks else "")
    attributes = {
        "heads": spec.heads, "kv_heads": spec.kv_heads, "head_dim": spec.head_dim, "value_dim": spec.head_dim,
        "query": q.shape[-2], "context": seen.context if source is None else source.shape[-2], "causal": spec.causal,
        "window": spec.window, "soft_cap": spec.soft_cap, "cross": source is not None, "cached": spec.cached,
        "biased": spec.biased, **({"written": written} if written else {}),
    }  # fmt: skip
    weights = (nn.weight(spec.sinks, spec.heads),) if spec.sinks else ()
    y = nn.tensor(name, *q.shape[:-1], spec.heads * spec.head_dim)
    return Op(name=name, kind="attention", inputs=qkv, outputs=(y,), weights=weights, attributes=attributes)


def rotary_op(name: str, q: Tensor, k: Tensor, *, head_dim: int, rotated: int) -> Op:
    outputs = (nn.tensor(f"{name}.q", *q.shape), nn.tensor(f"{name}.k", *k.shape))
    attributes = {"head_dim": head_dim, "rotary_dim": rotated}
    return Op(name=name, kind="rotary", inputs=(q, k), outputs=outputs, attributes=attributes)


def _relative(spec: Attention, at: str, x: Tensor, context: Dim) -> Iterable[Op]:
    """T5 looks a bias up for every (query, key) distance; all layers of a stack then add the same one."""
    tokens = x.shape[-2]
    distances = nn.tensor(f"{at}.distances", tokens, tokens + context, role="index")
    yield nn.embedding(f"{at}.relative_bias", distances, spec.buckets, spec.heads, f"{spec.relative}.weight")


def attend_latent(spec: Latent, at: str, x: Tensor, seen: Seen) -> list[Op]:
    """Queries, the latent and its rotary part, each head's keys and values, scores, output.

    The cache holds `kv_rank + rope_dim` values a token. An engine may fold `kv_b_proj` into the query and the output
    (absorption) instead of expanding the latent with it: for a new token that is the same arithmetic, so the
    projection stands here once, and the attention op says both head sizes.
    """
    heads, rows = spec.heads, x.shape[:-1]
    ops = _latent_query(spec, at, x)
    q, module = nn.output(ops), spec.at
    down = nn.linear(f"{at}.kv_a_proj", x, spec.kv_rank + spec.rope_dim, f"{module}.kv_a_proj_with_mqa", bias=spec.bias)
    parts = nn.split(f"{at}.kv_a", down, latent=(*rows, spec.kv_rank), rope=(*rows, spec.rope_dim))
    latent, rope = parts.outputs
    normed = nn.norm(f"{at}.kv_a_norm", latent, spec.norm, f"{module}.kv_a_layernorm")
    up = nn.linear(f"{at}.kv_b_proj", normed, heads * (spec.nope_dim + spec.value_dim), f"{module}.kv_b_proj")
    kv = nn.split(f"{at}.kv_b", up, k=(*rows, heads * spec.nope_dim), v=(*rows, heads * spec.value_dim))
    # of each query head a part is rotated; of the key one part that all heads share
    turned = rotary_op(f"{at}.rotary", q, rope, head_dim=spec.head_dim, rotated=spec.rope_dim)
    chosen = _indexed(spec, at, x, nn.output(ops[-2]) if spec.query_rank else x, seen)
    inputs = (turned.outputs[0], *kv.outputs)
    q = inputs[0]
    attributes = {
        "heads": spec.heads, "kv_heads": spec.heads, "head_dim": spec.head_dim, "value_dim": spec.value_dim,
        "query": q.shape[-2], "context": seen.context, "causal": True, "window": None, "soft_cap": False,
        "cross": False, "cached": True, "kv_latent": spec.kv_rank + spec.rope_dim, "rope_dim": spec.rope_dim,
        "absorbed": "cheaper",
    }  # fmt: skip
    if spec.index is not None:
        attributes["top_k"] = spec.index.top_k
    y = nn.tensor(f"{at}.attention", *q.shape[:-1], spec.heads * spec.value_dim)
    core = Op(name=f"{at}.attention", kind="attention", inputs=inputs, outputs=(y,), attributes=attributes)
    out = nn.linear(f"{at}.o_proj", core, nn.width(x), f"{module}.o_proj", bias=spec.bias)
    return [*ops, down, parts, normed, up, kv, turned, *chosen, core, out]


def _indexed(spec: Latent, at: str, x: Tensor, rank: Tensor, seen: Seen) -> list[Op]:
    """Queries from the short query, one key a token of its own cache, and scores of every pair, weighed by head.

    The scores are an attention op whose values are single numbers: each head makes one of a pair.
    """
    index = spec.index
    if index is None or index.shared:
        return []
    module, name, dim = f"{spec.at}.indexer", f"{at}.index", index.head_dim
    q = nn.linear(f"{name}.q_proj", rank, index.heads * dim, f"{module}.wq_b")
    k = nn.linear(f"{name}.k_proj", x, dim, f"{module}.wk")
    normed = nn.norm(f"{name}.k_norm", k, "layer", f"{module}.k_norm", bias=True)
    weights = nn.linear(f"{name}.weights_proj", x, index.heads, f"{module}.weights_proj")
    turned = rotary_op(f"{name}.rotary", nn.output(q), nn.output(normed), head_dim=dim, rotated=spec.rope_dim)
    attributes = {
        "heads": index.heads, "kv_heads": 1, "head_dim": dim, "value_dim": 1, "query": x.shape[-2],
        "context": seen.context, "causal": True, "window": None, "soft_cap": False, "cross": False, "cached": True,
        "kv_latent": dim, "rope_dim": dim - 1, "absorbed": True, "index": True,
    }  # fmt: skip
    y = nn.tensor(f"{name}.scores", *x.shape[:-1], index.heads)
    inputs = (*turned.outputs, nn.output(weights))
    scores = Op(name=y.name, kind="attention", inputs=inputs, outputs=(y,), attributes=attributes)
    return [q, k, normed, weights, turned, scores]


def _latent_query(spec: Latent, at: str, x: Tensor) -> list[Op]:
    features = spec.heads * spec.head_dim
    if not spec.query_rank:
        return [nn.linear(f"{at}.q_proj", x, features, f"{spec.at}.q_proj")]
    down = nn.linear(f"{at}.q_a_proj", x, spec.query_rank, f"{spec.at}.q_a_proj", bias=spec.bias)
    normed = nn.norm(f"{at}.q_a_norm", down, spec.norm, f"{spec.at}.q_a_layernorm")
    return [down, normed, nn.linear(f"{at}.q_b_proj", normed, features, f"{spec.at}.q_b_proj")]


def soft_capped(name: str, x: Tensor) -> Op:
    """As in Gemma 2: cap · tanh(x / cap)."""
    return nn.elementwise(name, "soft_cap", x, flops=3)


def last_positions(name: str, x: Tensor, count: Dim) -> Op:
    """The positions whose logits are computed."""
    return nn.view(name, x, x.shape[0], count, x.shape[-1])
