"""A small network of real shapes, for tests that prepare one."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def convolution_onnx(path, *, side=16):
    """Conv → Relu → mean → Gemm, with an Identity that a simplifier removes."""
    random = np.random.default_rng(0)
    weights = {
        "w": random.standard_normal((8, 3, 3, 3), np.float32) / 5,
        "b": random.standard_normal(8, np.float32) / 5,
        "m": random.standard_normal((10, 8), np.float32) / 3,
    }
    nodes = [
        helper.make_node("Identity", ["x"], ["same"], name="nothing"),
        helper.make_node("Conv", ["same", "w", "b"], ["c"], name="conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="mean"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "m"], ["y"], name="head", transB=1),
    ]
    graph = helper.make_graph(
        nodes, "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, side, side])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path
