import numpy as np
import pytest

from inferometer.core import Binding, Block, Graph, Precision, Symbol, Work
from inferometer.core.errors import DomainError
from inferometer.predict import coverage, graph_work, op_works, work_of
from unit.predict.decoders import BATCH, LLAMA_3_1_8B, at, project, tensor, tokens
from unit.predict.examples import op, same

VOCAB, HIDDEN = 128_256, 4096
TABLE = VOCAB * HIDDEN
PARAMETERS = 8_030_261_248
LAYER_PRODUCTS = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)

FOUND = Symbol("nonzero.axis0")


def graph(*ops, **rest):
    return Graph(name="graph", blocks=(Block(name="all", ops=ops),), **rest)


def attention_flops(query, context):
    return 32 * (query * context + query * (query + 1) // 2) * 32 * (2 * 256 + 5)


def linear_flops(model, binding):
    return sum(block.count * work.total_flops for block, op, work in op_works(model, binding) if op.kind == "linear")


def test_llama_3_1_8b_has_8_030_261_248_parameters():
    assert LLAMA_3_1_8B.parameters == PARAMETERS


def test_a_decode_step_on_an_empty_cache_reads_every_weight_but_the_embedding_table():
    work = graph_work(LLAMA_3_1_8B, at())
    one_row = HIDDEN
    assert work.weights == 2 * (PARAMETERS - TABLE + one_row)
    assert work.kv_reads == 0
    assert work.kv_writes == 131_072


def test_a_decode_step_reads_the_whole_cache():
    assert graph_work(LLAMA_3_1_8B, at(batch=4, context=1000)).kv_reads == 4 * 1000 * 131_072


def test_a_prefill_is_two_operations_a_parameter_and_token_plus_attention():
    binding = at(query=2048)
    products = 2 * LAYER_PRODUCTS * 2048 + 2 * TABLE  # the head looks at the last position only
    assert linear_flops(LLAMA_3_1_8B, binding) == products
    total = graph_work(LLAMA_3_1_8B, binding).total_flops
    assert total == pytest.approx(products + attention_flops(2048, 0), rel=1e-3)
    assert total == pytest.approx(2 * (PARAMETERS - 2 * TABLE) * 2048 + attention_flops(2048, 0), rel=2e-3)


def test_chunks_of_a_prefill_attend_as_much_as_the_whole():
    def attended(query, context):
        works = op_works(LLAMA_3_1_8B, at(query=query, context=context))
        return sum(block.count * work.total_flops for block, op, work in works if op.kind == "attention")

    assert attended(512, 0) + attended(512, 512) + attended(24, 1024) == attended(1048, 0) == attention_flops(1048, 0)


def test_the_work_of_a_block_is_counted_once_and_multiplied():
    works = op_works(LLAMA_3_1_8B, at())
    assert len(works) == 1 + 14 + 3
    assert graph_work(LLAMA_3_1_8B, at()) == sum(block.count * work for block, _, work in works)


def test_the_graphs_own_precision_holds_where_none_is_asked_for():
    unasked = at(precision=Precision())
    assert graph_work(LLAMA_3_1_8B, unasked) == graph_work(LLAMA_3_1_8B, at())
    halved = at(precision=Precision(weights="f8e4m3"))
    assert graph_work(LLAMA_3_1_8B, halved).weights == PARAMETERS - TABLE + HIDDEN


def test_sizes_whose_work_passes_64_bits_may_be_bound_as_floats():
    huge = 10**9
    work = graph_work(LLAMA_3_1_8B, at(query=np.array([huge], dtype=np.float64)))
    assert work.total_flops[0] == pytest.approx(graph_work(LLAMA_3_1_8B, at(query=huge)).total_flops, rel=1e-12)


def test_an_empty_graph_has_no_work():
    assert graph_work(graph(), at()) == Work()
    assert coverage(graph()).share == 1.0


def test_a_size_that_the_workload_forgot_is_an_error_that_names_it():
    with pytest.raises(DomainError, match="'query' is not bound"):
        graph_work(LLAMA_3_1_8B, Binding(sizes={"batch": 1}))


def test_a_size_of_the_files_inputs_is_the_workloads_to_give():
    x = tensor("x", Symbol("sequence"), 8)
    model = graph(op("softmax", [x], [x]), inputs=(x,))
    assert coverage(model).share == 1.0
    with pytest.raises(DomainError, match="'sequence' is not bound"):
        graph_work(model, at())
    assert graph_work(model, at(sequence=3)).total_flops == 5 * 24


def test_a_size_that_only_the_data_tells_leaves_its_op_out_and_is_named():
    model = graph(same("softmax"), op("softmax", [tensor("found", FOUND)], [tensor("y", FOUND)]))
    assert graph_work(model, at()) == work_of(same("softmax"), at())
    report = coverage(model)
    assert (report.ops, report.covered, report.share) == (2, 1, 0.5)
    assert report.uncovered[0].reason == "unknown size: nonzero.axis0"


def test_a_size_that_is_known_after_all_is_counted():
    model = graph(op("softmax", [tensor("found", FOUND)], [tensor("y", FOUND)]))
    binding = at(**{"nonzero.axis0": 10})
    assert coverage(model, binding).share == 1.0
    assert graph_work(model, binding).total_flops == 50


def test_a_view_of_unknown_size_is_still_free():
    assert coverage(graph(op("view", [tensor("found", FOUND)], [tensor("y", FOUND)]))).share == 1.0


def test_a_custom_op_is_reported_with_its_reason_and_how_often_it_stands_there():
    unknown = op("custom", reason="com.acme.Magic has no rule")
    model = Graph(name="g", blocks=(Block(name="body", ops=(unknown, same("softmax")), count=3),))
    report = coverage(model)
    assert (report.ops, report.covered) == (6, 3)
    assert report.uncovered[0].reason == "com.acme.Magic has no rule"
    assert report.uncovered[0].count == 3


def test_inside_a_loop_only_what_is_known_is_counted():
    linear, lost = project("linear", "x", "y", 96, 40), op("custom")
    found = op("softmax", [tensor("found", FOUND)], [tensor("y", FOUND)])
    model = graph(op("control", bodies=((linear, lost, found),), trips=4))
    assert graph_work(model, at()) == 4 * work_of(linear, at())
    report = coverage(model)
    assert (report.ops, report.covered) == (4, 2)


def test_nothing_in_a_loop_of_unknown_length_is_counted():
    model = graph(op("control", bodies=((project("linear", "x", "y", 96, 40),),)))
    assert graph_work(model, at()) == Work()
    assert {entry.reason for entry in coverage(model).uncovered} == {"unknown number of trips"}
    assert coverage(model).covered == 0


def test_trips_may_be_unknown_too():
    model = graph(op("control", bodies=((same("softmax"),),), trips=FOUND))
    assert coverage(model).covered == 0
    assert graph_work(model, at()) == Work()


def test_a_batch_in_a_shape_is_what_the_graph_wants_bound():
    assert tokens("x", 8).symbols == {"batch", "query"}
    assert BATCH.name == "batch"
