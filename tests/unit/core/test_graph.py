from dataclasses import replace

import numpy as np
import pytest

from inferometer.core import Binding, Block, Graph, Op, Precision, Symbol, Tensor, evaluate
from inferometer.core.dims import symbols_in
from inferometer.core.errors import DomainError
from inferometer.core.graph import require_layers
from inferometer.core.sizes import bind
from inferometer.core.workload import Workload

BATCH, QUERY = Symbol("batch"), Symbol("query")


def linear(name, inputs, outputs, *, weight=None):
    return Op(
        name=name,
        kind="linear",
        inputs=(Tensor(name="x", shape=(BATCH, QUERY, inputs)),),
        outputs=(Tensor(name="y", shape=(BATCH, QUERY, outputs)),),
        weights=(Tensor(name=weight or f"{name}.weight", shape=(outputs, inputs), role="weight"),),
    )


def test_a_dimension_is_arithmetic_over_symbols_bound_late():
    rows = BATCH * (QUERY + 1) // 2
    assert evaluate(rows, {"batch": 3, "query": 7}) == 12
    assert str(rows) == "((batch * (query + 1)) // 2)"
    assert symbols_in(rows) == {"batch", "query"}


def test_a_dimension_may_be_bound_to_an_array():
    assert evaluate(2 * BATCH - 1, {"batch": np.array([1, 2, 3])}).tolist() == [1, 3, 5]


def test_constants_fold_away():
    assert BATCH * 1 is BATCH
    assert BATCH + 0 is BATCH
    assert 1 * BATCH is BATCH
    assert evaluate(10 - BATCH, {"batch": 3}) == 7
    assert evaluate(-BATCH % 4, {"batch": 3}) == 1


def test_an_unbound_size_is_an_error_that_names_it():
    with pytest.raises(DomainError, match="'query' is not bound"):
        evaluate(QUERY, {"batch": 1})


def test_a_block_counts_its_weights_as_often_as_it_runs():
    block = Block(name="decoder", ops=(linear("layers.{}.up", 4, 8),), count=3)
    graph = Graph(name="g", blocks=(block,))
    assert graph.parameters == 3 * 4 * 8
    assert block.full_name("layers.{}.up", 2) == "layers.2.up"


def test_a_name_without_a_repetition_is_the_first_one_s():
    for first in (0, 7):
        block = Block(name="decoder", ops=(), count=2, first=first)
        assert block.full_name("layers.{}.up") == block.full_name("layers.{}.up", 0) == f"layers.{first}.up"


def test_a_tied_weight_counts_once():
    embed = Block(name="embed", ops=(linear("embed", 16, 4, weight="table"),))
    head = Block(name="head", ops=(linear("head", 4, 16, weight="table"),))
    assert Graph(name="g", blocks=(embed, head)).parameters == 64


def test_weights_inside_a_branch_or_a_loop_are_counted():
    inner = linear("inner", 4, 8)
    loop = Op(name="loop", kind="control", attributes={"bodies": ((inner,), (linear("other", 2, 2),))})
    assert loop.parameters == 36
    assert Graph(name="g", blocks=(Block(name="b", ops=(loop,)),)).parameters == 36


def test_a_weight_whose_size_is_open_is_none_of_those_that_are_counted():
    sized, op = linear("up", 4, 8), Tensor(name="table", shape=(BATCH, 4), role="weight")
    both = Op(name="both", kind="linear", weights=(*sized.weights, op))
    assert (both.parameters, Graph(name="g", blocks=(Block(name="b", ops=(both,)),)).parameters) == (32, 32)


def test_constants_are_not_parameters():
    shape = Tensor(name="shape", shape=(3,), role="constant", dtype="i64")
    op = Op(name="reshape", kind="view", weights=(shape,))
    assert Graph(name="g", blocks=(Block(name="b", ops=(op,)),)).parameters == 0
    assert shape.nbytes == 24
    assert replace(op, weights=(shape, *linear("up", 4, 8).weights)).parameters == 32


def test_a_graph_says_which_sizes_a_workload_must_bind():
    assert Graph(name="g", blocks=(Block(name="b", ops=(linear("up", 4, 8),)),)).symbols == {"batch", "query"}


def test_names_from_files_are_not_format_strings():
    block = Block(name="b", ops=(linear("{0.__class__}", 1, 1),))
    assert block.full_name("{0.__class__}") == "{0.__class__}"


def test_a_binding_gives_each_role_its_format():
    binding = Binding(sizes={"batch": 2, "query": 3}, precision=Precision(weights="q4_0", activations="bf16"))
    op = linear("up", 64, 32)
    assert binding.nbytes(op.weights[0]) == 64 * 32 // 32 * 18
    assert binding.nbytes(op.inputs[0]) == 2 * 3 * 64 * 2
    assert binding.format(Tensor(name="k", shape=(1,), role="kv")).name == "bf16"
    assert binding.arithmetic(op) == "bf16"


def test_a_file_knows_its_own_bytes():
    stored = Tensor(name="w", shape=(10, 10), dtype="q4_0", role="weight", stored_bytes=77)
    assert stored.nbytes == 77
    assert Binding().nbytes(stored) == 77
    assert Tensor(name="w", shape=(BATCH,), dtype="f32").nbytes is None


def test_a_tensor_without_a_format_is_an_error_not_a_guess():
    with pytest.raises(DomainError, match="No format is known"):
        Binding().format(Tensor(name="x", shape=(1,)))


def test_a_graph_without_layers_says_what_the_file_is():
    empty = Graph(name="vocabulary", blocks=(), metadata={"notes": ("The file holds no weights.",)})
    with pytest.raises(DomainError, match=r"vocabulary has no layers\. The file holds no weights\."):
        require_layers(empty)
    with pytest.raises(DomainError, match=r"x has no layers\. The file may be a part of a model\."):
        require_layers(Graph(name="x", blocks=()))


def test_a_binding_has_the_context_and_the_formats_that_were_asked_for_and_else_none_and_the_model_s_own():
    cached = Op(name="a", kind="attention", inputs=(Tensor(name="c", shape=(BATCH, Symbol("context")), role="kv"),))
    graph = Graph(name="g", blocks=(Block(name="b", ops=(cached,)),))
    asked = Workload(batch=2, context=7, precision=Precision(weights="i8"))
    found = [bind(graph, workload) for workload in (asked, Workload())]
    assert [binding.sizes for binding in found] == [{"batch": 2, "context": 7}, {"batch": 1, "context": 0}]
    formats = [(binding.precision.weights, binding.precision.activations) for binding in found]
    assert formats == [("i8", "f32"), ("f32", "f32")]
