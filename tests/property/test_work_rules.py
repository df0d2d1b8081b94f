"""What must hold of every work rule, whatever the sizes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferometer.core import Block, Graph, Op, Tensor
from inferometer.core.work import STREAMS
from inferometer.predict import footprint, graph_work, work_of
from inferometer.predict.memory.footprint import live_bytes
from inferometer.predict.work.merge import with_sizes
from inferometer.predict.work.polynomial import ceil_log2, larger, smaller
from inferometer.predict.work.rules.attention import causal_pairs, mutual_pairs
from unit.predict.decoders import LLAMA_3_1_8B, at, attend
from unit.predict.examples import EXAMPLES, IDS

SIDES = st.integers(1, 60)
LENGTHS = st.integers(0, 60)
SIZES = st.fixed_dictionaries({
    "batch": st.integers(1, 9),
    "query": st.integers(1, 300),
    "context": st.integers(0, 300),
    "encoder": st.integers(1, 300),
    "image": st.integers(1, 20).map(lambda half: 2 * half),
})  # fmt: skip
SMALL = [example for example in EXAMPLES if example.kind != "control"]
every_example = pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
briefly = settings(max_examples=8)  # of each example: there are forty


def counts(work):
    return {**{f"flops.{name}": n for name, n in work.flops.items()}, **{name: getattr(work, name) for name in STREAMS}}


@every_example
@briefly
@given(sizes=SIZES)
def test_work_is_never_negative_and_whole(example, sizes):
    assert all(type(count) is int and count >= 0 for count in counts(work_of(example, at(**sizes))).values())


@every_example
@briefly
@given(many=st.lists(SIZES, min_size=1, max_size=4))
def test_an_array_of_sizes_gives_what_each_size_gives(example, many):
    together = counts(work_of(example, at(**{name: np.array([sizes[name] for sizes in many]) for name in many[0]})))
    for index, sizes in enumerate(many):
        for name, count in counts(work_of(example, at(**sizes))).items():
            assert np.broadcast_to(together[name], (len(many),))[index] == count, name


@every_example
def test_sizes_may_be_the_axes_of_a_grid(example):
    batches, queries, contexts = np.array([[[1]], [[4]]]), np.array([[[3], [8], [9]]]), np.array([[[0, 5, 50, 99]]])
    grid = counts(work_of(example, at(batch=batches, query=queries, context=contexts, encoder=7, image=4)))
    corner = counts(work_of(example, at(batch=4, query=8, context=99, encoder=7, image=4)))
    assert {name: np.broadcast_to(count, (2, 3, 4))[1, 1, 3] for name, count in grid.items()} == corner


@every_example
@briefly
@given(sizes=SIZES, times=st.integers(2, 5))
def test_twice_the_batch_is_twice_the_work_but_not_twice_the_weights(example, sizes, times):
    once = counts(work_of(example, at(**sizes)))
    more = counts(work_of(example, at(**sizes | {"batch": times * sizes["batch"]})))
    by_row = example.kind in {"embedding", "moe_experts"}  # they read the weights that their rows ask for
    for name, count in once.items():
        if name == "weights":
            assert count <= more[name] <= times * count if by_row else more[name] == count
        elif name == "link" or example.kind == "collective":
            assert more[name] <= times * count  # shares are rounded up
        else:
            assert more[name] == times * count


@given(chosen=st.lists(st.sampled_from(SMALL), max_size=6), sizes=SIZES, repeats=st.integers(1, 4))
def test_the_work_of_a_graph_is_the_sum_of_its_ops(chosen, sizes, repeats):
    graph = Graph(name="any", blocks=(Block(name="any", ops=tuple(chosen), count=repeats),))
    parts = [repeats * work_of(op, at(**sizes)) for op in chosen]
    assert counts(graph_work(graph, at(**sizes))) == counts(sum(parts, graph_work(Graph(name="", blocks=()), at())))


@every_example
@briefly
@given(sizes=SIZES, names=st.sets(st.sampled_from(["batch", "query", "context", "encoder", "image"])))
def test_a_graph_with_sizes_put_in_has_the_same_work(example, sizes, names):
    graph = Graph(name="any", blocks=(Block(name="any", ops=(example,)),))
    bound = with_sizes(graph, {name: sizes[name] for name in names})
    assert graph_work(bound, at(**sizes)) == graph_work(graph, at(**sizes))
    assert bound.symbols.isdisjoint(names)


@given(query=SIDES, context=LENGTHS, window=st.none() | SIDES)
def test_causal_pairs_are_the_pairs_one_can_count(query, context, window):
    reach = window or query + context
    met = sum(1 for q in range(context, context + query) for k in range(context + query) if 0 <= q - k < reach)
    assert causal_pairs(query, context, window) == met


@given(query=SIDES, context=LENGTHS, window=st.none() | SIDES)
def test_mutual_pairs_are_the_pairs_one_can_count(query, context, window):
    half = window // 2 if window else query + context
    met = sum(1 for q in range(context, context + query) for k in range(context + query) if abs(q - k) <= half)
    assert mutual_pairs(query, context, window) == met


@given(query=SIDES, context=LENGTHS, wider=LENGTHS)
def test_a_window_as_wide_as_the_context_is_no_window(query, context, wider):
    open_, windowed = (attend("a", heads=4, kv_heads=2, head_dim=8, window=w) for w in (None, query + context + wider))
    binding = at(query=query, context=context)
    assert work_of(open_, binding) == work_of(windowed, binding)


@given(chunks=st.lists(SIDES, min_size=1, max_size=6), window=st.none() | SIDES)
def test_the_chunks_of_a_prefill_meet_the_pairs_of_the_whole(chunks, window):
    done, met = 0, 0
    for chunk in chunks:
        met += causal_pairs(chunk, done, window)
        done += chunk
    assert met == causal_pairs(done, 0, window)


@given(query=SIDES, context=LENGTHS, window=SIDES)
def test_a_window_never_adds_work(query, context, window):
    open_, windowed = (attend("a", heads=4, kv_heads=2, head_dim=8, window=w) for w in (None, window))
    binding = at(query=query, context=context)
    least, most = counts(work_of(windowed, binding)), counts(work_of(open_, binding))
    assert all(least[name] <= most[name] for name in most)


@given(one=st.integers(-(2**80), 2**80), other=st.integers(-(2**80), 2**80))
def test_the_smaller_and_the_larger_of_two_ints_stay_exact(one, other):
    assert smaller(one, other) + larger(one, other) == one + other
    assert smaller(one, other) <= larger(one, other)


@given(st.integers(1, 2**40))
def test_halving_that_often_leaves_one(count):
    halvings = ceil_log2(count)
    assert 2**halvings >= count
    assert halvings == 0 or 2 ** (halvings - 1) < count
    assert ceil_log2(np.array([count]))[0] == halvings


@given(query=st.integers(1, 500), context=st.integers(0, 500), more=st.integers(1, 500))
def test_memory_grows_with_every_size(query, context, more):
    least = footprint(LLAMA_3_1_8B, at(query=query, context=context))
    for longer in (at(query=query + more, context=context), at(query=query, context=context + more)):
        assert footprint(LLAMA_3_1_8B, longer).peak_bytes > least.peak_bytes


@st.composite
def programs(draw):
    """Ops in a row, each of which makes one tensor from some that exist: (name, size, names it reads)."""
    made = []
    for number in range(draw(st.integers(1, 12))):
        read = draw(st.lists(st.sampled_from(made), max_size=3, unique=True)) if made else []
        made.append((f"t{number}", draw(st.integers(1, 1000)), tuple(name for name, _, _ in read)))
    return made


@given(programs())
def test_a_tensor_is_alive_between_its_maker_and_its_last_reader_and_at_no_other_time(program):
    tensors = {name: Tensor(name=name, shape=(size,), dtype="u8") for name, size, _ in program}
    ops = tuple(
        Op(name=name, kind="elementwise", inputs=tuple(tensors[other] for other in read), outputs=(tensors[name],))
        for name, _, read in program
    )
    last = {name: max([i, *(j for j, (_, _, read) in enumerate(program) if name in read)])
            for i, (name, _, _) in enumerate(program)}  # fmt: skip
    expected = [
        sum(size for made, (name, size, _) in enumerate(program) if made <= step <= last[name])
        for step in range(len(program))
    ]
    graph = Graph(name="program", blocks=(Block(name="all", ops=ops),))
    assert [size for _, size in live_bytes(graph, at().nbytes)] == expected
