"""MNN in the suite of every runtime: a small network that its own converter made of ONNX."""

import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from inferometer.engines.base import Target

RANDOM = np.random.default_rng(0)


def convert(*arguments):
    """MNN's converter, in a process of its own: beside other engines' libraries it may end the process."""
    if find_spec("_tools") is None:
        pytest.skip("MNN is not installed")
    code = "import sys, _tools; _tools.mnnconvert(sys.argv[1:])"
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)


def write_network(folder):
    """A convolution with an activation, a pool and a matrix, with the same numbers every time."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: no file to convert")
    from onnx import helper, numpy_helper

    random = np.random.default_rng(1)
    shapes = {"w": (8, 3, 3, 3), "b": (8,), "m": (10, 8), "o": (10,)}
    stored = [numpy_helper.from_array(random.standard_normal(s).astype(np.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "m", "o"], ["y"], transB=1),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "small", [value("x", 1, [1, 3, 16, 16])], [value("y", 1, [1, 10])], initializer=stored
    )
    source, made = folder / "small.onnx", folder / "small.mnn"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), source)
    arguments = ["MNNConvert", "-f", "ONNX", "--modelFile", str(source), "--MNNModel", str(made), "--bizCode", "test"]
    convert(*arguments)
    return made


def small(folder):
    return Target(path=write_network(folder), format="mnn", threads=1)


CASES = [("mnn", small, {"x": RANDOM.standard_normal((1, 3, 16, 16), np.float32)})]
