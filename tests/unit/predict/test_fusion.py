from dataclasses import replace

import pytest

from inferometer.core import Block, Graph, Op
from inferometer.core.engine import RuntimeEffects
from inferometer.predict.work.collect import fuse
from unit.predict.decoders import LLAMA_3_1_8B, add, project, rms_norm, tokens

CHAINS = RuntimeEffects(name="c", title="c", fusion="chains", fused=frozenset({"norm", "elementwise", "activation"}))
EPILOGUES = replace(CHAINS, fusion="epilogues")


def act(source, target):
    return Op(name=target, kind="activation", inputs=(tokens(source, 8),), outputs=(tokens(target, 8),))


def view(source, target):
    return Op(name=target, kind="view", inputs=(tokens(source, 8),), outputs=(tokens(target, 8),))


def fused(*ops, effects=CHAINS, outputs=(), count=1):
    graph = Graph(name="g", blocks=(Block(name="b", ops=ops, count=count),), outputs=outputs)
    return fuse(graph, effects)[0]


def names(tensors):
    return [tensor.name for tensor in tensors]


def test_ops_that_follow_each_other_are_one_kernel_and_keep_what_only_they_read():
    first, second = fused(act("x", "a"), act("a", "b"), outputs=(tokens("b", 8),))
    assert (first.launches, second.launches) == (1, 0)
    assert names(first.writes) == ["a"]
    assert names(second.reads) == ["a"]
    assert names(second.writes) == []  # the graph's output must be written


def test_a_tensor_that_another_op_reads_is_written():
    first, _, _ = fused(act("x", "a"), act("a", "b"), project("p", "a", "y", 8, 8))
    assert names(first.writes) == []


def test_a_chain_joins_neighbours_but_not_the_product_before_them():
    product, first, second = fused(project("p", "x", "y", 8, 8), act("y", "a"), act("a", "b"))
    assert (product.launches, first.launches, second.launches) == (1, 1, 0)
    assert names(first.reads) == []


def test_an_epilogue_runs_inside_the_product_before_it():
    product, first = fused(project("p", "x", "y", 8, 8), act("y", "a"), effects=EPILOGUES, outputs=(tokens("a", 8),))
    assert (product.launches, first.launches) == (1, 0)
    assert names(product.writes) == names(first.reads) == ["y"]


def test_an_epilogue_must_read_what_the_product_made():
    product, other = fused(project("p", "x", "y", 8, 8), act("z", "a"), effects=EPILOGUES)
    assert (product.launches, other.launches) == (1, 1)


def test_a_view_between_two_ops_parts_them_not():
    first, _, second = fused(act("x", "a"), view("a", "a2"), act("a2", "b"))
    assert (first.launches, second.launches) == (1, 0)
    assert names(first.writes) == ["a"]
    assert names(second.reads) == ["a2"]


def test_an_input_that_two_members_read_is_read_once():
    _, second = fused(act("x", "a"), add("add", "a", "x", "b", 8), outputs=(tokens("b", 8),))
    assert names(second.reads) == ["a", "x"]


def test_what_the_next_repetition_reads_is_written():
    ops = (act("hidden", "a"), act("a", "hidden"))
    assert names(fused(*ops, count=3)[1].writes) == []
    assert names(fused(*ops, count=1)[1].writes) == ["hidden"]


def test_without_fusion_every_op_but_a_view_starts_its_own_kernels():
    plain = RuntimeEffects(name="p", title="p", passes={"norm:rms": 8, "norm": 2})
    found = fused(rms_norm("n", "x", "y", 8), view("y", "z"), act("z", "a"), effects=plain)
    assert [entry.launches for entry in found] == [8, 0, 1]


@pytest.mark.parametrize("effects", [CHAINS, EPILOGUES])
def test_nothing_is_kept_that_another_block_reads(effects):
    found = fuse(LLAMA_3_1_8B, effects)
    for block, entries in zip(LLAMA_3_1_8B.blocks, found, strict=True):
        kept = {tensor.name for entry in entries for tensor in entry.writes}
        assert "hidden" not in kept, block.name


def test_a_name_that_another_block_makes_for_itself_is_not_read_from_this_one():
    """The stages of a catalog's network name their tensors alike."""
    blocks = [
        Block(name="stage", ops=(act(source, "a"), act("a", "b"), project("p", "b", end, 8, 8)), count=2)
        for source, end in (("x", "y"), ("y", "z"))
    ]
    for first, second, _ in fuse(Graph(name="g", blocks=tuple(blocks)), CHAINS):
        assert names(first.writes) == names(second.reads) == ["a"]


def test_a_loop_starts_the_kernels_of_its_body_at_every_trip():
    """500 steps of a Scan with three ops each were priced as one kernel, and took seventeen times as long."""
    body = (act("x", "a"), act("a", "b"), act("b", "c"), view("c", "d"))
    for trips, launches in ((500, 1500), (0, 1), (None, 1)):
        attributes = {"function": "scan", "bodies": (body,), "trips": trips}
        (found,) = fused(Op(name="s", kind="control", inputs=(tokens("x", 8),), outputs=(tokens("d", 8),),
                            attributes=attributes))  # fmt: skip
        assert found.launches == launches


def concatenated(count, target):
    sources = tuple(tokens(f"x{number}", 8) for number in range(count))
    return Op(name=target, kind="copy", inputs=sources, outputs=(tokens(target, 8),), attributes={"function": "cat"})


def test_a_concatenation_of_many_tensors_is_a_kernel_of_its_own():
    effects = replace(CHAINS, fused=CHAINS.fused | {"copy"}, joins=8)
    few, after_few = fused(concatenated(8, "a"), act("a", "b"), effects=effects)
    many, after_many = fused(concatenated(9, "a"), act("a", "b"), effects=effects)
    assert (few.launches, after_few.launches) == (1, 0)
    assert (many.launches, after_many.launches) == (1, 1)
    assert names(many.writes) == []


def test_a_host_takes_what_is_stated_of_an_op_and_else_what_its_kernels_take():
    effects = RuntimeEffects(name="e", title="e", passes={"norm:rms": 8}, calls={"linear": 1.75, "view": 9})
    product, norm, looked = fused(
        project("p", "x", "y", 8, 8), rms_norm("n", "y", "z", 8), view("z", "v"), effects=effects
    )
    assert (product.launches, product.calls) == (1, 1.75)
    assert (norm.launches, norm.calls) == (8, 8.0)
    assert looked.calls == 0.0


def test_what_runs_inside_another_kernel_takes_its_host_nothing():
    first, second = fused(act("x", "a"), act("a", "b"), effects=replace(CHAINS, calls={"activation": 1.2}))
    assert (first.calls, second.calls) == (1.2, 0.0)
