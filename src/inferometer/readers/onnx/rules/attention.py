"""Attention and its relatives in the standard operator set."""

from typing import NamedTuple

from inferometer.core.dims import Dim
from inferometer.readers.onnx import algebra
from inferometer.readers.onnx.faults import Fault
from inferometer.readers.onnx.value import Call, Out, Shape

__all__ = ["Heads", "attention", "causal_conv", "heads_of", "linear_attention"]


class Heads(NamedTuple):
    """Sizes of one attention: `keys` are those the new tokens bring, `past` those in the cache."""

    batch: Dim
    heads: Dim
    kv_heads: Dim
    head_dim: Dim
    value_dim: Dim
    queries: Dim
    keys: Dim
    past: Dim = 0

    @property
    def output(self) -> Shape:
        """The result as [batch, tokens, width]."""
        return self.batch, self.queries, algebra.mul(self.heads, self.value_dim)

    def shapes(self, tokens: Dim) -> tuple[Shape, Shape, Shape, Shape]:
        """The result, the caches of keys and values that hold so many tokens, and the scores."""
        return (
            self.output,
            (self.batch, self.kv_heads, tokens, self.head_dim),
            (self.batch, self.kv_heads, tokens, self.value_dim),
            (self.batch, self.heads, self.queries, tokens),
        )


def heads_of(call: Call) -> Heads:
    """Of ONNX's own Attention: inputs of [batch, heads, tokens, size], or of [batch, tokens, heads · size]."""
    q, k, v = call.shape(0), call.shape(1), call.shape(2)
    past = call.shape(4)[2] if call.has(4) and len(call.shape(4)) == 4 else 0
    if len(q) == len(k) == len(v) == 4:
        return Heads(q[0], q[1], k[1], head_dim=q[3], value_dim=v[3], queries=q[2], keys=k[2], past=past)
    if not len(q) == len(k) == len(v) == 3:
        raise Fault(f"attention over {len(q)}, {len(k)} and {len(v)} dimensions")
    heads, kv_heads = call.integer("q_num_heads"), call.integer("kv_num_heads")
    if heads < 1 or kv_heads < 1:
        raise Fault("attention that does not say how many heads it has")
    head_dim, value_dim = algebra.floordiv(q[2], heads), algebra.floordiv(v[2], kv_heads)
    return Heads(q[0], heads, kv_heads, head_dim, value_dim, queries=q[1], keys=k[1], past=past)


def attention(call: Call) -> list[Out]:
    sizes = heads_of(call)
    y, *others = sizes.shapes(algebra.add(sizes.past, sizes.keys))
    if len(call.shape(0)) == 4:
        y = (sizes.batch, sizes.heads, sizes.queries, sizes.value_dim)
    return [Out(shape, call.dtype(0)) for shape in (y, *others)]


def linear_attention(call: Call) -> list[Out]:
    """Each head keeps a matrix of [key size, value size] instead of a cache that grows."""
    q, k, v = call.shape(0), call.shape(1), call.shape(2)
    heads, kv_heads = call.integer("q_num_heads"), call.integer("kv_num_heads")
    if heads < 1 or kv_heads < 1 or not len(q) == len(k) == len(v) == 3:
        raise Fault("linear attention that does not say how many heads it has")
    key, value = algebra.floordiv(k[2], kv_heads), algebra.floordiv(v[2], kv_heads)
    return [
        Out((q[0], q[1], algebra.mul(heads, value)), call.dtype(0)),
        Out((q[0], kv_heads, key, value), call.dtype(3) or call.dtype(0)),
    ]


def causal_conv(call: Call) -> list[Out]:
    """A depthwise convolution along time that remembers the last positions of the step before."""
    x, weight = call.shape(0), call.shape(1)
    if len(x) < 2 or not weight:
        raise Fault(f"a causal convolution over {len(x)} dimensions")
    kept = algebra.sub(weight[-1], 1)
    return [Out(x, call.dtype(0)), Out((x[0], x[1], kept), call.dtype(0))]
