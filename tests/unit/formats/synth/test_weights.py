"""Random weights: the same for a seed and a name, in pieces of any size, and sized so that activations stay."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.formats.synth.weights import Weight, numbers, planned, relative_index, units, whole


def weight(name="layers.0.weight", shape=(64, 48), spread=0.5, **others):
    return Weight(name=name, shape=shape, spread=spread, **others)


def joined(pieces):
    return np.concatenate(list(pieces))


def test_the_same_seed_and_name_give_the_same_numbers():
    assert np.array_equal(whole(weight(), 7), whole(weight(), 7))


@pytest.mark.parametrize("other", [(weight(name="layers.1.weight"), 7), (weight(), 8)])
def test_another_name_or_seed_gives_other_numbers(other):
    assert not np.array_equal(whole(weight(), 7), whole(*other))


def test_the_numbers_never_change_from_version_to_version():
    first = next(units(Weight(name="a", shape=(4,), spread=1.0), 0))
    assert first.tolist() == [27323, -1138, 13332, 3511]


@given(count=st.integers(1, 5000), chunk=st.integers(1, 300).map(lambda n: 4 * n))
def test_pieces_of_any_size_are_the_same_numbers(count, chunk):
    made = weight(shape=(count,))
    assert np.array_equal(joined(numbers(made, 3, chunk=chunk)), whole(made, 3))


def test_no_piece_is_longer_than_asked():
    assert [len(piece) for piece in numbers(weight(shape=(10,)), 0, chunk=4)] == [4, 4, 2]


def test_numbers_fill_their_range_evenly():
    made = whole(weight(shape=(200_000,), centre=2.0, spread=0.5), 0)
    assert made.dtype == np.float32
    assert 1.5 <= made.min() < 1.501
    assert 2.499 < made.max() <= 2.5
    assert made.std() == pytest.approx(0.5 / np.sqrt(3), rel=0.01)


def op(kind, *weights, outputs=("y",), inputs=("x",), **attributes):
    return Op(
        name=f"{kind}.{{}}",
        kind=kind,
        inputs=tuple(Tensor(name=name, shape=(1, 8)) for name in inputs),
        outputs=tuple(Tensor(name=name, shape=(1, 8)) for name in outputs),
        weights=weights,
        attributes=attributes,
    )


def stored(name, *shape, role="weight"):
    return Tensor(name=name, shape=shape, role=role)


def plan_of(*ops, count=1):
    return planned(Graph(name="g", blocks=(Block(name="b", ops=ops, count=count),)))


def test_a_dot_product_keeps_the_variance():
    (matrix,) = plan_of(op("linear", stored("w", 512, 256)))
    rows = np.random.default_rng(0).standard_normal((400, 256)).astype(np.float32)
    assert (rows @ whole(matrix, 0).T).std() == pytest.approx(1, rel=0.05)


def test_a_matrix_stored_the_other_way_round_counts_its_inputs():
    (matrix,) = plan_of(op("linear", stored("w", 256, 512), layout="in_out"))
    assert matrix.spread == pytest.approx(np.sqrt(3 / 256))


def test_norms_are_one_and_their_means_nothing():
    names = ("scale", "bias", "n.running_mean", "n.running_var")
    made = plan_of(op("norm", *(stored(name, 8) for name in names), norm="batch"))
    assert [float(whole(entry, 0)[0]) for entry in made] == [1, 0, 0, 1]


def test_biases_are_small_but_not_nothing():
    _, bias = plan_of(op("linear", stored("w", 8, 8), stored("b", 8)))
    assert 0 < np.abs(whole(bias, 0)).max() < 0.05


def test_a_convolution_makes_up_for_the_activation_after_its_norm():
    conv = op("convolution", stored("w", 16, 8, 3, 3), outputs=("c",))
    norm = op("norm", inputs=("c",), outputs=("n",), norm="batch")
    plain = plan_of(conv)[0]
    relu = plan_of(conv, norm, op("activation", inputs=("n",), function="relu"))[0]
    assert relu.spread == pytest.approx(plain.spread * np.sqrt(2))


def test_a_branch_that_is_added_stays_small():
    conv = op("convolution", stored("w", 16, 8, 3, 3), outputs=("c",))
    added = plan_of(conv, op("elementwise", inputs=("x", "c"), function="add"))[0]
    assert added.spread < 0.5 * plan_of(conv)[0].spread


def test_every_repetition_has_weights_of_its_own():
    made = plan_of(op("linear", stored("layers.{}.w", 4, 4)), count=3)
    assert [entry.name for entry in made] == ["layers.0.w", "layers.1.w", "layers.2.w"]


def test_a_weight_that_two_ops_share_is_planned_once():
    shared = stored("table", 16, 8)
    assert len(plan_of(op("embedding", shared), op("linear", shared))) == 1


def test_experts_are_tensors_of_their_own():
    stack = op("moe_experts", stored("experts.*.up", 3, 8, 4), experts=3, hidden=4, intermediate=8)
    made = plan_of(stack)
    assert [(entry.name, entry.shape) for entry in made] == [(f"experts.{n}.up", (8, 4)) for n in range(3)]


def test_constants_are_no_parameters():
    made = plan_of(op("norm", stored("n.weight", 4), stored("n.running_mean", 4, role="constant"), norm="batch"))
    assert [entry.parameter for entry in made] == [True, False]


def test_the_relative_index_is_symmetric_around_its_centre():
    index = relative_index(7)
    assert index.shape == (49, 49)
    assert set(np.diag(index)) == {84}
    assert np.array_equal(index + index.T, np.full((49, 49), 168))
