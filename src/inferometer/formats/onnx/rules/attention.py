"""Attention and its relatives, in the standard operator set and as ONNX Runtime adds them."""

from dataclasses import replace

from inferometer.core.dims import Dim
from inferometer.core.frozen import frozen
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.faults import Fault, UnknownShapeError
from inferometer.formats.onnx.value import Call, Out, Shape


@frozen
class Heads:
    """Sizes of one attention: `keys` are those the new tokens bring, `past` those in the cache."""

    batch: Dim
    heads: Dim
    kv_heads: Dim
    head_dim: Dim
    value_dim: Dim
    queries: Dim
    keys: Dim
    past: Dim = 0

    @classmethod
    def of_itself(  # noqa: PLR0913 - the sizes of an attention
        cls, batch: Dim, heads: Dim, widths: tuple[Dim, Dim], tokens: Dim, *, kv_heads: Dim | None = None, past: Dim = 0
    ) -> "Heads":
        """Of attention whose keys are made of the tokens that ask; `widths` are those of a key and of a value."""
        kv_heads = heads if kv_heads is None else kv_heads
        shared = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "queries": tokens, "keys": tokens}
        return cls(**shared, head_dim=widths[0], value_dim=widths[1], past=past)

    @property
    def output(self) -> Shape:
        """The result as [batch, tokens, width]."""
        return self.batch, self.queries, algebra.mul(self.heads, self.value_dim)

    def shapes(self, tokens: Dim) -> tuple[Shape, Shape, Shape, Shape]:
        """The result, the caches of keys and values, each of that many tokens, and the scores."""
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
        return Heads(
            batch=q[0], heads=q[1], kv_heads=k[1], head_dim=q[3], value_dim=v[3], queries=q[2], keys=k[2], past=past
        )
    if not len(q) == len(k) == len(v) == 3:
        raise Fault(f"attention over {len(q)}, {len(k)} and {len(v)} dimensions")
    heads, kv_heads = call.integer("q_num_heads"), call.integer("kv_num_heads")
    if heads < 1 or kv_heads < 1:
        raise Fault("attention that does not say how many heads it has")
    widths = (algebra.floordiv(q[2], heads), algebra.floordiv(v[2], kv_heads))
    return replace(Heads.of_itself(q[0], heads, widths, q[1], kv_heads=kv_heads, past=past), keys=k[1])


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


def _heads(call: Call, name: str = "num_heads") -> int:
    heads = call.integer(name)
    if heads < 1:
        raise Fault(f"attention that does not say its {name}")
    return heads


# Attention, QAttention, DecoderMaskedSelfAttention: the projection of q, k and v is inside


def past_place(call: Call) -> int:
    return 8 if call.node.op_type == "QAttention" else 4


def _fused_widths(call: Call) -> tuple[Dim, Dim, Dim]:
    """How wide q, k and v are."""
    given = call.integers("qkv_hidden_sizes")
    if given is not None and len(given) == 3:
        return given[0], given[1], given[2]
    third = algebra.floordiv(call.shape(1)[-1], 3)
    return third, third, third


def fused_heads(call: Call) -> Heads:
    x, heads = call.shape(0), _heads(call)
    wide, _, value = _fused_widths(call)
    past = call.shape(past_place(call)) if call.has(past_place(call)) else ()
    widths = (algebra.floordiv(wide, heads), algebra.floordiv(value, heads))
    return Heads.of_itself(x[0], heads, widths, x[1], past=past[3] if len(past) == 5 else 0)


def fused_attention(call: Call) -> list[Out]:
    """[batch, tokens, width of v]; the cache is [2, batch, heads, tokens, size]."""
    if len(call.shape(0)) != 3:
        raise Fault(f"attention over {len(call.shape(0))} dimensions")
    sizes = fused_heads(call)
    dtype = call.dtype(3) if call.node.op_type == "QAttention" else call.dtype(0)
    shared = call.has(past_place(call)) and call.integer("past_present_share_buffer")
    tokens = sizes.past if shared else algebra.add(sizes.past, sizes.keys)
    present: Shape = (2, sizes.batch, sizes.heads, tokens, sizes.head_dim)
    return [Out(sizes.output, dtype), Out(present, dtype)]


# PackedAttention: tokens of all sequences in one row


def packed_heads(call: Call) -> Heads:
    """The table of offsets is [batch, longest sequence]; each sequence is counted at that length."""
    projects = call.node.op_type == "PackedAttention"
    table, heads = call.shape(3 if projects else 4), _heads(call)
    if projects:
        wide, _, value = _fused_widths(call)
    else:
        wide = algebra.product(call.shape(0)[1:])
        value = call.shape(2)[-1] if call.has(2) else algebra.floordiv(wide, 3)
        wide = wide if call.has(1) else algebra.floordiv(wide, 3)
    widths = (algebra.floordiv(wide, heads), algebra.floordiv(value, heads))
    return Heads.of_itself(table[0], heads, widths, table[1])


def packed(call: Call) -> list[Out]:
    return [Out((call.shape(0)[0], packed_heads(call).output[-1]), call.dtype(0))]


# MultiHeadAttention, DecoderMaskedMultiHeadAttention


def multi_head_past(call: Call) -> tuple[int, int]:
    return (5, 6) if call.node.op_type == "DecoderMaskedMultiHeadAttention" else (6, 7)


def multi_head_heads(call: Call) -> Heads:
    """Queries are [batch, tokens, width], or hold k and v too: [batch, tokens, heads, 3, size].

    Keys are [batch, tokens, width], [batch, tokens, heads, 2, size] with v, or as a cache keeps them: [batch, heads,
    tokens, size].
    """
    q, heads = call.shape(0), _heads(call)
    if len(q) == 5:
        return _equal_heads(call, (q[4], q[4]), q[1])
    size = algebra.floordiv(q[-1], heads)
    if not call.has(1):
        third = algebra.floordiv(size, 3)
        return _equal_heads(call, (third, third), q[1])
    k = call.shape(1)
    keys, value = (k[2], size) if len(k) == 4 else (k[1], size)
    if len(k) != 5 and call.has(2):
        v = call.shape(2)
        value = v[3] if len(v) == 4 else algebra.floordiv(v[-1], heads)
    return _equal_heads(call, (size, value), keys)


def _equal_heads(call: Call, widths: tuple[Dim, Dim], keys: Dim) -> Heads:
    """Each query head has a key head of its own; `widths` are those of a key and a value."""
    q, heads = call.shape(0), _heads(call)
    index = multi_head_past(call)[0]
    past = call.shape(index) if call.has(index) else ()
    sizes = Heads.of_itself(q[0], heads, widths, q[1], past=past[2] if len(past) == 4 else 0)
    return replace(sizes, keys=keys)


def multi_head(call: Call) -> list[Out]:
    sizes = multi_head_heads(call)
    total = algebra.add(sizes.past, sizes.keys)
    if call.has(multi_head_past(call)[0]) and call.integer("past_present_share_buffer"):
        total = sizes.past
    return [Out(shape, call.dtype(0)) for shape in sizes.shapes(total)]


# GroupQueryAttention, SparseAttention


def group_query_heads(call: Call) -> Heads:
    """Queries are [batch, tokens, heads · size]; without k and v they hold them too."""
    q, heads, kv_heads = call.shape(0), _heads(call), _heads(call, "kv_num_heads")
    every = heads if call.has(1) else heads + 2 * kv_heads
    size = algebra.floordiv(q[-1], every)
    past = call.shape(3) if call.has(3) else ()
    kept = past[2] if len(past) == 4 else 0
    return Heads.of_itself(q[0], heads, (size, size), q[1], kv_heads=kv_heads, past=kept)


def group_query(call: Call) -> list[Out]:
    """A cache of a fixed length is written in place; one that is as long as the tokens so far grows."""
    sizes = group_query_heads(call)
    fixed = isinstance(sizes.past, int) and sizes.past > 0
    total = sizes.past if fixed else algebra.add(sizes.past, sizes.keys)
    stored = call.dtype(3) or call.dtype(0)
    formats = (call.dtype(0), stored, stored, call.dtype(0))
    return [Out(shape, dtype) for shape, dtype in zip(sizes.shapes(total), formats, strict=True)]


# PagedAttention


def paged_heads(call: Call) -> Heads:
    """Tokens of all sequences in one row.

    How many tokens each has, and how many lie in its pages, is only known at run time: sequences are assumed to be
    equally long, and their pages full.
    """
    q, heads, kv_heads = call.shape(0), _heads(call), _heads(call, "kv_num_heads")
    if not call.has(6) or not call.has(7) or len(call.shape(3)) < 2 or len(call.shape(7)) != 2:
        raise UnknownShapeError
    batch, pages, page = call.shape(6)[0], call.shape(7)[1], call.shape(3)[1]
    size = algebra.floordiv(q[-1], heads if call.has(1) else heads + 2 * kv_heads)
    tokens = algebra.floordiv(q[0], batch)
    return Heads.of_itself(batch, heads, (size, size), tokens, kv_heads=kv_heads, past=algebra.mul(pages, page))


def paged(call: Call) -> list[Out]:
    sizes = paged_heads(call)
    caches = [Out(call.shape(index), call.dtype(index)) for index in (3, 4) if call.has(index)]
    return [Out((call.shape(0)[0], sizes.output[-1]), call.dtype(0)), *caches]
