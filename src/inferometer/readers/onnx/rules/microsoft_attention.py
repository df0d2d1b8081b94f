"""Shapes of ONNX Runtime's attention operators, and the sizes of their heads."""

from inferometer.core.dims import Dim
from inferometer.readers.onnx import algebra
from inferometer.readers.onnx.faults import Fault, UnknownShapeError
from inferometer.readers.onnx.rules.attention import Heads
from inferometer.readers.onnx.value import Call, Out, Shape

__all__ = [
    "fused_attention", "fused_heads", "fused_widths", "group_query", "group_query_heads", "multi_head",
    "multi_head_heads", "multi_head_past", "packed", "packed_heads", "paged",
    "paged_heads", "past_place",
]  # fmt: skip


def _heads(call: Call, name: str = "num_heads") -> int:
    heads = call.integer(name)
    if heads < 1:
        raise Fault(f"attention that does not say its {name}")
    return heads


# Attention, QAttention, DecoderMaskedSelfAttention: the projection of q, k and v is inside


def past_place(call: Call) -> int:
    return 8 if call.node.op_type == "QAttention" else 4


def fused_widths(call: Call) -> tuple[Dim, Dim, Dim]:
    """How wide q, k and v are."""
    given = call.integers("qkv_hidden_sizes")
    if given is not None and len(given) == 3:
        return given[0], given[1], given[2]
    third = algebra.floordiv(call.shape(1)[-1], 3)
    return third, third, third


def fused_heads(call: Call) -> Heads:
    x, heads = call.shape(0), _heads(call)
    wide, _, value = fused_widths(call)
    past = call.shape(past_place(call)) if call.has(past_place(call)) else ()
    head_dim, value_dim = algebra.floordiv(wide, heads), algebra.floordiv(value, heads)
    return Heads(x[0], heads, heads, head_dim, value_dim, x[1], x[1], past[3] if len(past) == 5 else 0)


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
        wide, _, value = fused_widths(call)
    else:
        wide = algebra.product(call.shape(0)[1:])
        value = call.shape(2)[-1] if call.has(2) else algebra.floordiv(wide, 3)
        wide = wide if call.has(1) else algebra.floordiv(wide, 3)
    head_dim, value_dim = algebra.floordiv(wide, heads), algebra.floordiv(value, heads)
    return Heads(table[0], heads, heads, head_dim, value_dim, queries=table[1], keys=table[1])


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
    place = multi_head_past(call)[0]
    past = call.shape(place) if call.has(place) else ()
    return Heads(q[0], heads, heads, *widths, queries=q[1], keys=keys, past=past[2] if len(past) == 4 else 0)


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
    return Heads(q[0], heads, kv_heads, size, size, q[1], q[1], past[2] if len(past) == 4 else 0)


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

    How many each has, and how many lie in its pages, only the data tells: sequences are taken as equally long, and
    their pages as full.
    """
    q, heads, kv_heads = call.shape(0), _heads(call), _heads(call, "kv_num_heads")
    if not call.has(6) or not call.has(7) or len(call.shape(3)) < 2 or len(call.shape(7)) != 2:
        raise UnknownShapeError
    batch, pages, page = call.shape(6)[0], call.shape(7)[1], call.shape(3)[1]
    size = algebra.floordiv(q[-1], heads if call.has(1) else heads + 2 * kv_heads)
    each = algebra.floordiv(q[0], batch)
    return Heads(batch, heads, kv_heads, size, size, each, each, past=algebra.mul(pages, page))


def paged(call: Call) -> list[Out]:
    sizes = paged_heads(call)
    caches = [Out(call.shape(place), call.dtype(place)) for place in (3, 4) if call.has(place)]
    return [Out((call.shape(0)[0], sizes.output[-1]), call.dtype(0)), *caches]
