import pytest

from inferometer.core import Op, Tensor
from inferometer.predict import work_of
from inferometer.predict.work.classes import class_path
from inferometer.predict.work.merge import _stacked
from unit.predict.decoders import at, project, tensor, tokens, weight
from unit.predict.examples import op

LINEAR = project("linear", "x", "y", 4096, 4096)
QUANTISED = project("q4", "x", "y", 4096, 4096, stored=weight("packed", 4096, 4096, dtype="q4_0"))


def test_one_row_reads_every_weight_once():
    work = work_of(LINEAR, at(query=1))
    assert work.weights == 4096 * 4096 * 2
    assert work.flops == {"bf16": 2 * 4096 * 4096}


def test_a_thousand_rows_read_the_weights_once_too():
    work = work_of(LINEAR, at(query=1000))
    assert work.weights == 4096 * 4096 * 2
    assert work.flops == {"bf16": 1000 * 2 * 4096 * 4096}
    assert work.reads == work.writes == 1000 * 4096 * 2


def test_a_bias_adds_once_for_each_output_and_is_read():
    biased = op("linear", [tokens("x", 8)], [tokens("y", 4)], [weight("w", 4, 8), weight("b", 4)])
    work = work_of(biased, at(query=3))
    assert work.flops == {"bf16": 3 * 4 * (2 * 8 + 1)}
    assert work.weights == (4 * 8 + 4) * 2


def test_a_bias_makes_another_class_and_scales_do_not():
    def classes(*weights):
        return class_path(op("linear", [tokens("x", 8)], [tokens("y", 4)], [*weights]), "prefill")

    plain = ("linear.prefill", "linear")
    assert classes(weight("w", 4, 8), weight("b", 4)) == ("linear.biased", *plain)
    assert classes(weight("w", 4, 8)) == plain
    assert classes(weight("w", 4, 8, dtype="i8"), weight("scale", 4)) == plain


def test_scales_beside_a_weight_are_read_and_add_nothing():
    scales = Tensor(name="scales", shape=(4,), role="constant", dtype="f32")
    scaled = op("linear", [tokens("x", 8)], [tokens("y", 4)], [weight("w", 4, 8, dtype="i8"), scales])
    work = work_of(scaled, at())
    assert work.weights == 4 * 8 + 4 * 4
    assert work.total_flops == 2 * 4 * 8


def test_a_quantised_weight_moves_its_blocks_and_is_computed_in_the_format_of_the_activations():
    work = work_of(QUANTISED, at())
    assert work.weights == 4096 * 4096 // 32 * 18
    assert work.flops == {"bf16": 2 * 4096 * 4096}


def test_the_format_an_op_states_is_the_one_it_is_computed_in():
    stated = Op(name="y", kind="linear", inputs=LINEAR.inputs, outputs=LINEAR.outputs, attributes={"compute": "f8e4m3"})
    assert set(work_of(stated, at()).flops) == {"f8e4m3"}


def test_the_file_says_how_many_bytes_a_weight_has():
    stored = project("linear", "x", "y", 4096, 4096, stored=weight("w", 4096, 4096, stored_bytes=123))
    assert work_of(stored, at()).weights == 123


def test_a_vector_product_is_one_dot_product():
    work = work_of(op("linear", [tensor("x", 8)], [tensor("y")], [weight("w", 8)]), at())
    assert work.total_flops == 2 * 8


def test_a_product_of_two_activations_reads_both_and_no_weights():
    product = op("matmul", [tensor("a", 2, 3, 5), tensor("b", 2, 5, 7)], [tensor("c", 2, 3, 7)], contracted=5)
    work = work_of(product, at())
    assert work.flops == {"bf16": 2 * (2 * 3 * 7) * 5}
    assert (work.weights, work.reads, work.writes) == (0, (2 * 3 * 5 + 2 * 5 * 7) * 2, 2 * 3 * 7 * 2)


def test_a_matrix_times_itself_is_read_once():
    square = tensor("a", 4, 4)
    assert work_of(op("matmul", [square, square], [tensor("c", 4, 4)]), at()).reads == 16 * 2


def test_counts_stay_exact_beyond_what_floats_hold():
    work = work_of(LINEAR, at(batch=10**9 + 7, query=10**9 + 9))
    assert work.total_flops == 2 * 4096 * 4096 * (10**9 + 7) * (10**9 + 9)
    assert type(work.total_flops) is int


@pytest.mark.parametrize(
    ("stored", "whole"), [((40, 24), 64), ((40, None), None), ((None, 24), None), ((None, None), None)]
)
def test_matrices_that_are_stored_as_one_have_the_bytes_of_all_or_nobody_knows(stored, whole):
    parts = [weight(f"w{rows}", rows, 8, stored_bytes=nbytes) for rows, nbytes in zip((5, 3), stored, strict=True)]
    found = _stacked(parts)
    assert (found.shape, found.stored_bytes, found.name) == ((8, 8), whole, "w5")
