"""Weights rounded to few bits, with one scale for each output; and how far outputs are from what they were."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferometer.engines.onnxruntime.sensitivity import _drift, _weights, rounded_weight


def test_a_weight_has_one_scale_for_each_output_and_whole_numbers_about_zero():
    """Of 4 bits the largest is 7: a row up to 14 has steps of 2, and one up to 0.7 steps of 0.1."""
    weight = np.array([[14.0, 3.2, -8.9], [0.7, 0.24, -0.06], [0.0, 0.0, 0.0]])
    by_row = [[14.0, 4.0, -8.0], [0.7, 0.2, -0.1], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(rounded_weight(weight, 0, 4), by_row, atol=1e-12)
    np.testing.assert_allclose(rounded_weight(weight.T, 1, 4), np.transpose(by_row), atol=1e-12)
    np.testing.assert_allclose(rounded_weight(weight.T, -1, 4), np.transpose(by_row), atol=1e-12)
    window = weight.reshape(1, 3, 3, 1)
    np.testing.assert_allclose(rounded_weight(window, 1, 4).reshape(3, 3), by_row, atol=1e-12)
    np.testing.assert_allclose(rounded_weight(np.array([[127.0, 1.4]]), 0, 8), [[127.0, 1.0]])
    assert rounded_weight(weight.astype(np.float16), 0, 8).dtype == np.float16


def test_the_worst_output_tells_by_its_root_mean_square():
    right, other = [np.array([3.0, 4.0])], [np.array([3.0, 5.0])]
    assert _drift(right, right) == 0.0
    assert _drift(right, other) == pytest.approx(1 / 5)
    pair = ([*right, np.array([1.0, 1.0])], [*other, np.array([1.5, 0.5])])
    assert _drift(*pair) == pytest.approx(0.5)
    assert _drift(pair[0][::-1], pair[1][::-1]) == pytest.approx(0.5)
    assert (_drift([np.zeros(2)], [np.zeros(2)]), _drift([np.zeros(2)], [np.array([0.0, 1e-9])])) == (0.0, 1.0)
    assert _drift([np.array([1, 2]), np.empty(0)], [np.array([5, 6]), np.empty(0)]) == 0.0  # whole numbers, and nothing


def test_weights_are_what_a_product_multiplies_with_each_with_the_axis_of_its_outputs():
    def stored(name, *shape):
        return numpy_helper.from_array(np.zeros(shape, np.float32), name)

    def node(kind, *inputs, **more):
        return helper.make_node(kind, list(inputs), [f"{kind}{len(inputs)}"], **more)

    nodes = [
        node("Conv", "x", "conv"), node("ConvTranspose", "x", "turned"), node("Gemm", "x", "gemm"),
        node("Gemm", "x", "flipped", transB=1), node("Gemm", "x", "plain", transB=0), node("MatMul", "x", "deep"),
        node("MatMul", "x", "flowing"), node("MatMul", "x", "given"), node("Add", "x", "bias"),
        node("Conv", "x", "flat"), node("Gemm", "x", "alpha", alpha=2.0),
    ]  # fmt: skip
    held = [
        stored("conv", 4, 3, 2, 2), stored("turned", 3, 4, 2, 2), stored("gemm", 3, 5), stored("flipped", 5, 3),
        stored("plain", 3, 5), stored("deep", 2, 3, 5), stored("given", 3, 5), stored("bias", 3, 5), stored("flat", 4),
        stored("alpha", 3, 5),
    ]  # fmt: skip
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in ("x", "given")]
    model = helper.make_model(helper.make_graph(nodes, "g", ends, [], held))
    assert {name: axis for name, (_, axis) in _weights(model).items()} == {
        "conv": 0, "turned": 1, "gemm": 1, "flipped": 0, "plain": 1, "deep": -1, "alpha": 1,
    }  # fmt: skip
