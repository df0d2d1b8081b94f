"""Rules that visit each number a fixed number of times, address, convert, or only move."""

import pytest

from inferometer.core import Work
from inferometer.predict import work_of
from unit.predict.decoders import at, rms_norm, tensor, tokens, weight
from unit.predict.examples import image, op, same, state

N = 5 * 96  # numbers of `same` at query 5


def flops(example, **sizes):
    return work_of(example, at(**({"query": 5} | sizes))).total_flops


def test_elementwise_reads_what_comes_in_and_writes_what_goes_out():
    work = work_of(
        op("elementwise", [tokens("a", 96), tokens("b", 96)], [tokens("y", 96)], function="add"), at(query=5)
    )
    assert (work.flops, work.reads, work.writes) == ({"bf16": N}, 2 * N * 2, N * 2)


def test_a_square_reads_its_operand_once():
    x = tokens("x", 96)
    assert work_of(op("elementwise", [x, x], [tokens("y", 96)], function="mul"), at(query=5)).reads == N * 2


def test_elementwise_takes_the_operations_it_is_told():
    assert flops(same("elementwise", flops_per_element=7)) == 7 * N


def test_a_sum_of_four_is_three_additions():
    four = op("elementwise", [tokens(name, 96) for name in "abcd"], [tokens("y", 96)], function="sum")
    assert flops(four) == 3 * N


def test_activations_cost_what_their_formula_has():
    assert flops(same("activation", function="relu")) == N
    assert flops(same("activation", function="sigmoid")) == 4 * N
    assert flops(same("activation", function="gelu")) == 5 * N
    assert flops(same("activation", function="of_tomorrow")) == N


def test_a_gate_multiplies_once_more():
    gated = op("activation", [tokens("gate", 96), tokens("up", 96)], [tokens("y", 96)], function="silu")
    assert flops(gated) == (5 + 1) * N


def test_a_softmax_touches_each_number_five_times():
    assert flops(same("softmax")) == 5 * N


def test_an_rms_norm_squares_adds_multiplies_and_scales():
    assert flops(rms_norm("norm", "x", "y", 96)) == 4 * N


def test_a_layer_norm_with_scale_and_bias_is_seven_a_number_and_reads_both():
    norm = op("norm", [tokens("x", 96)], [tokens("y", 96)], [weight("s", 96), weight("b", 96)], norm="layer")
    assert flops(norm) == 7 * N
    assert work_of(norm, at()).weights == 2 * 96 * 2


def test_a_batch_norm_is_a_multiply_and_an_add_whatever_it_stores():
    learned = [weight("s", 16), weight("b", 16), *(tensor(n, 16, role="constant") for n in ("mean", "var"))]
    norm = op("norm", [image("x", 16)], [image("y", 16)], learned, norm="batch")
    work = work_of(norm, at(image=8))
    assert work.total_flops == 2 * 16 * 64
    assert work.weights == 4 * 16 * 2


def test_a_norm_with_a_residual_adds_it_first():
    norm = op("norm", [tokens("x", 96), tokens("skip", 96)], [tokens("y", 96)], [weight("s", 96)], norm="rms")
    assert flops(norm) == 5 * N


def test_lrn_sums_its_neighbours():
    assert flops(same("norm", norm="lrn", size=5)) == 9 * N


def test_a_reduction_takes_each_number_in_once():
    mean = op("reduce", [tokens("x", 96)], [tokens("y", 1)], function="mean")
    work = work_of(mean, at(query=5))
    assert (work.total_flops, work.reads, work.writes) == (N, N * 2, 5 * 2)
    assert flops(op("reduce", [tokens("x", 96)], [tokens("y", 1)], function="l2")) == 2 * N


def test_a_pool_looks_at_its_window_for_each_output():
    pool = op("pool", [image("x", 16)], [image("y", 16, 2)], function="max", kernel=(3, 3))
    assert flops(pool, image=8) == 9 * 16 * 4 * 4


def test_a_global_pool_looks_at_everything_once():
    pool = op("pool", [image("x", 16)], [tensor("y", 1, 16, 1, 1)], function="global")
    assert flops(pool, image=8) == 16 * 64


@pytest.mark.parametrize(("mode", "each"), [("nearest", 0), ("linear", 7), ("bilinear", 7), ("bicubic", 31)])
def test_resizing_weighs_the_neighbours_of_each_output(mode, each):
    resize = op("resize", [image("x", 16, 2)], [image("y", 16)], mode=mode)
    work = work_of(resize, at(image=8))
    assert work.total_flops == each * 16 * 64
    assert (work.reads, work.writes) == (16 * 16 * 2, 16 * 64 * 2)


def test_a_cast_moves_both_formats_and_computes_nothing():
    work = work_of(op("cast", [tensor("x", 100, dtype="f32")], [tensor("y", 100, dtype="f16")]), at())
    assert work == Work(reads=400, writes=200)


def test_a_view_is_free():
    assert work_of(same("view"), at()) == Work()


def test_a_slice_reads_only_what_it_keeps():
    assert work_of(op("copy", [tensor("x", 100)], [tensor("y", 30)]), at()) == Work(reads=60, writes=60)


def test_an_expansion_reads_only_what_there_is():
    assert work_of(op("copy", [tensor("x", 10)], [tensor("y", 30)]), at()) == Work(reads=20, writes=60)


def test_an_embedding_reads_only_the_rows_it_is_asked_for():
    ids = tensor("ids", 1, 3, role="index")
    table = weight("table", 128_256, 4096)
    work = work_of(op("embedding", [ids], [tensor("y", 1, 3, 4096)], [table]), at())
    assert work == Work(weights=3 * 4096 * 2, reads=3 * 8, writes=3 * 4096 * 2)


def test_an_embedding_never_reads_more_than_its_table():
    ids = tensor("types", 1, 512, role="index")
    assert work_of(op("embedding", [ids], [tensor("y", 512, 8)], [weight("t", 2, 8)]), at()).weights == 2 * 8 * 2


def test_positions_need_no_ids():
    positions = op("embedding", [], [tokens("y", 8)], [weight("t", 1024, 8)])
    assert work_of(positions, at(batch=1, query=5)).weights == 5 * 8 * 2


def test_a_quantised_table_gives_whole_rows_of_blocks():
    table = weight("table", 1000, 64, dtype="q4_0")
    ids = tensor("ids", 3, role="index")
    assert work_of(op("embedding", [ids], [tensor("y", 3, 64)], [table]), at()).weights == 3 * 2 * 18


def test_a_gather_reads_what_it_takes():
    gather = op("gather", [tensor("x", 1000, 8), tensor("i", 5, role="index")], [tensor("y", 5, 8)])
    assert work_of(gather, at()) == Work(reads=5 * 8 * 2 + 5 * 8, writes=5 * 8 * 2)


def test_a_gather_from_stored_data_reads_the_weights_stream():
    gather = op("gather", [tensor("i", 5, role="index")], [tensor("y", 5, 8)], [weight("t", 1000, 8)])
    assert work_of(gather, at()) == Work(weights=5 * 8 * 2, reads=5 * 8, writes=5 * 8 * 2)


def test_a_scatter_makes_a_new_tensor_unless_in_place():
    inputs = [tensor("x", 100, 8), tensor("i", 5, role="index"), tensor("u", 5, 8)]
    whole = op("scatter", inputs, [tensor("y", 100, 8)])
    placed = op("scatter", inputs, [tensor("y", 100, 8)], in_place=True, reduction="add")
    assert work_of(whole, at()) == Work(reads=(800 + 40) * 2 + 5 * 8, writes=1600)
    assert work_of(placed, at()) == Work(flops={"bf16": 40}, reads=5 * 8 + 80, writes=80)


def test_a_sort_halves_and_a_top_k_keeps_a_heap():
    assert flops(op("sort", [tensor("x", 3, 1024)], [tensor("y", 3, 1024)])) == 3 * 1024 * 10
    assert flops(op("sort", [tensor("x", 3, 1024)], [tensor("y", 3, 8)], k=8)) == 3 * 1024 * 3
    assert flops(op("sort", [tensor("x", 3, 1024)], [tensor("y", 3, 1)], k=1)) == 3 * 1024


def test_sampling_is_a_softmax_and_a_choice():
    logits, token = [tensor("x", 2, 1000)], [tensor("token", 2, role="index")]
    assert flops(op("sampling", logits, token)) == 2000 * 5
    assert flops(op("sampling", logits, token, top_k=64)) == 2000 * (5 + 6)
    assert flops(op("sampling", logits, token, function="greedy")) == 2000


def test_quantising_shrinks_the_bytes():
    work = work_of(op("quantize", [tensor("x", 100)], [tensor("y", 100, dtype="i8")]), at())
    assert (work.total_flops, work.reads, work.writes) == (500, 200, 100)
    assert flops(op("quantize", [tensor("x", 100)], [tensor("y", 100, dtype="i8")], dynamic=True)) == 700


def test_dequantising_a_weight_reads_the_weights_stream():
    scale = tensor("scale", 1, dtype="f32", role="constant")
    work = work_of(op("dequantize", [], [tensor("y", 100)], [weight("w", 100, dtype="i8"), scale]), at())
    assert (work.total_flops, work.weights, work.reads, work.writes) == (200, 104, 0, 200)


@pytest.mark.parametrize(("cell", "gates", "after"), [("lstm", 4, 18), ("gru", 3, 14), ("rnn", 1, 1)])
def test_a_cell_multiplies_input_and_state_for_each_gate(cell, gates, after):
    layer = op("recurrent", [tokens("x", 40)], [tokens("y", 64)], [weight("w", 9), weight("r", 9)], cell=cell,
               hidden=32, directions=2)  # fmt: skip
    assert flops(layer) == 5 * 2 * 32 * (gates * 2 * (40 + 32) + after)


def test_a_scan_reads_and_writes_its_state_however_many_tokens_pass():
    scan = op("ssm_scan", [tokens("x", 64), state("h", 64, 16)], [tokens("y", 64)], inner=64, state=16)
    work = work_of(scan, at(query=100))
    assert work.total_flops == 100 * 64 * (7 * 16 + 3)
    assert work.reads == work.writes == (100 * 64 + 64 * 16) * 2


def test_a_state_that_both_sides_name_moves_once_each_way():
    scan = op(
        "ssm_scan", [tokens("x", 64), state("h", 64, 16)], [tokens("y", 64), state("h'", 64, 16)], inner=64, state=16
    )
    work = work_of(scan, at(query=100))
    assert work.reads == work.writes == (100 * 64 + 64 * 16) * 2


def test_the_second_mamba_raises_one_number_a_head():
    scan = op("ssm_scan", [tokens("x", 64)], [tokens("y", 64)], inner=64, state=16, version=2, heads=4)
    assert flops(scan) == 5 * (64 * (5 * 16 + 3) + 2 * 4)
