"""Attention and its relatives in the standard operator set."""

from dataclasses import dataclass

from inferometer.core.dims import Dim
from inferometer.readers.onnx import algebra
from inferometer.readers.onnx.faults import Fault
from inferometer.readers.onnx.value import Call, Out, Shape

__all__ = ["Heads", "attention", "causal_conv", "heads_of", "linear_attention"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Sizes of one attention: `keys` are those the new tokens bring, `past` those in the cache."""

    batch: Dim
    heads: Dim
    kv_heads: Dim
    head_dim: Dim
    value_dim: Dim
    queries: Dim
    keys: Dim
    past: Dim


def heads_of(call: Call) -> Heads:
    """Of ONNX's own Attention: inputs of [batch, heads, tokens, size], or of [batch, tokens, heads · size]."""
    q, k, v = call.shape(0), call.shape(1), call.shape(2)
    past = call.shape(4)[2] if call.has(4) and len(call.shape(4)) == 4 else 0
    if len(q) == len(k) == len(v) == 4:
        return Heads(
            batch=q[0], heads=q[1], kv_heads=k[1], head_dim=q[3], value_dim=v[3], queries=q[2], keys=k[2], past=past
        )
    if not len(q) == len(k) == len(v) == 3:
        raise Fault(f"attention over {len(q)}, {len(k)} and {len(v)} dimensions")
    heads, kv_heads = call.integer("q_num_heads"), call.integer("kv_num_heads")
    if heads < 1 or kv_heads < 1:
        raise Fault("attention that does not say how many heads it has")
    return Heads(
        batch=q[0],
        heads=heads,
        kv_heads=kv_heads,
        head_dim=algebra.floordiv(q[2], heads),
        value_dim=algebra.floordiv(v[2], kv_heads),
        queries=q[1],
        keys=k[1],
        past=past,
    )


def attention(call: Call) -> list[Out]:
    sizes = heads_of(call)
    total = algebra.add(sizes.past, sizes.keys)
    y: Shape = (sizes.batch, sizes.queries, algebra.mul(sizes.heads, sizes.value_dim))
    if len(call.shape(0)) == 4:
        y = (sizes.batch, sizes.heads, sizes.queries, sizes.value_dim)
    shapes: tuple[Shape, ...] = (
        y,
        (sizes.batch, sizes.kv_heads, total, sizes.head_dim),
        (sizes.batch, sizes.kv_heads, total, sizes.value_dim),
        (sizes.batch, sizes.heads, sizes.queries, total),
    )
    return [Out(shape, call.dtype(0)) for shape in shapes[: len(call.node.outputs)]]


def linear_attention(call: Call) -> list[Out]:
    """Each head keeps a matrix of [key size, value size] instead of a cache that grows."""
    q, k, v = call.shape(0), call.shape(1), call.shape(2)
    heads, kv_heads = call.integer("q_num_heads"), call.integer("kv_num_heads")
    if heads < 1 or kv_heads < 1 or not len(q) == len(k) == len(v) == 3:
        raise Fault("linear attention that does not say how many heads it has")
    key, value = algebra.floordiv(k[2], kv_heads), algebra.floordiv(v[2], kv_heads)
    outs = [
        Out((q[0], q[1], algebra.mul(heads, value)), call.dtype(0)),
        Out((q[0], kv_heads, key, value), call.dtype(3) or call.dtype(0)),
    ]
    return outs[: len(call.node.outputs)]


def causal_conv(call: Call) -> list[Out]:
    """A depthwise convolution along time that remembers the last positions of the step before."""
    x, weight = call.shape(0), call.shape(1)
    if len(x) < 2 or not weight:
        raise Fault(f"a causal convolution over {len(x)} dimensions")
    kept = algebra.sub(weight[-1], 1)
    outs = [Out(x, call.dtype(0)), Out((x[0], x[1], kept), call.dtype(0))]
    return outs[: len(call.node.outputs)]
