"""ONNX Runtime's own operators: the shapes and formats told of them, beside what it computes where it is installed."""

import struct
from math import prod

import pytest

from fakes.every import every
from inferometer.formats.onnx import read_bytes
from unit.formats.onnx.onnx_bytes import FLOAT, INT8, INT32, INT64, LETTERS, UINT8, graph, model, node, tensor, value

B, S, H, D = 2, 5, 4, 16
W = H * D
NAMES = {FLOAT: "f32", UINT8: "u8", INT8: "i8", INT32: "i32", INT64: "i64"}
ONE = (FLOAT, ())
ZERO = (UINT8, ())


def f(*dims):
    return FLOAT, dims


def u8(*dims):
    return UINT8, dims


def i8(*dims):
    return INT8, dims


# operator, inputs (None: left out), which of them are stored, results (shape, format), attributes
CASES = [
    ("Attention", [f(B, S, W), f(W, 3 * W), f(3 * W)], {1, 2}, [f(B, S, W)], {"num_heads": H}),
    ("Attention", [f(B, S, W), f(W, 3 * W), f(3 * W), None, f(2, B, H, 7, D)], {1, 2},
     [f(B, S, W), f(2, B, H, 12, D)], {"num_heads": H, "unidirectional": 1}),
    ("MultiHeadAttention", [f(B, S, W), f(B, 9, W), f(B, 9, W)], set(), [f(B, S, W)], {"num_heads": H}),
    ("MultiHeadAttention", [f(B, S, W), f(B, S, W), f(B, S, W), None, None, None, f(B, H, 7, D), f(B, H, 7, D)], set(),
     [f(B, S, W), f(B, H, 12, D), f(B, H, 12, D)], {"num_heads": H}),
    ("QAttention", [u8(B, S, W), u8(W, 3 * W), f(3 * W), ONE, ONE, None, ZERO, ZERO], {1, 2, 3, 4, 6, 7}, [f(B, S, W)],
     {"num_heads": H}),
    ("SkipLayerNormalization", [f(B, S, W), f(B, S, W), f(W), f(W)], {2, 3}, [f(B, S, W)], {}),
    ("SkipSimplifiedLayerNormalization", [f(B, S, W), f(B, S, W), f(W)], {2}, [f(B, S, W)], {}),
    ("MatMulNBits", [f(B, S, 64), u8(48, 2, 16), f(96)], {1, 2}, [f(B, S, 48)],
     {"N": 48, "K": 64, "bits": 4, "block_size": 32}),
    ("MatMulBnb4", [f(2, 64), u8(48 * 32), f(48)], {1, 2}, [f(2, 48)],
     {"K": 64, "N": 48, "block_size": 64, "quant_type": 1}),
    ("QLinearAdd", [u8(2, 3), ONE, ZERO, u8(3), ONE, ZERO, ONE, ZERO], {1, 2, 4, 5, 6, 7}, [u8(2, 3)], {}),
    ("QLinearMul", [u8(2, 3), ONE, ZERO, u8(3), ONE, ZERO, ONE, ZERO], {1, 2, 4, 5, 6, 7}, [u8(2, 3)], {}),
    ("QLinearSigmoid", [u8(2, 3), ONE, ZERO, ONE, ZERO], {1, 2, 3, 4}, [u8(2, 3)], {}),
    ("QLinearLeakyRelu", [u8(2, 3), ONE, ZERO, ONE, ZERO], {1, 2, 3, 4}, [u8(2, 3)], {"alpha": 0.5}),
    ("QLinearSoftmax", [u8(2, 3), ONE, ZERO, ONE, ZERO], {1, 2, 3, 4}, [u8(2, 3)], {"opset": 13}),
    ("QLinearConcat", [ONE, ZERO, u8(2, 3), ONE, ZERO, u8(2, 4), ONE, ZERO], {0, 1, 3, 4, 6, 7}, [u8(2, 7)],
     {"axis": 1}),
    ("QLinearAveragePool", [u8(1, 8, 8, 3), ONE, ZERO, ONE, ZERO], {1, 2, 3, 4}, [u8(1, 4, 4, 3)],
     {"kernel_shape": (2, 2), "strides": (2, 2), "channels_last": 1}),
    ("QLinearGlobalAveragePool", [u8(1, 3, 8, 8), ONE, ZERO, ONE, ZERO], {1, 2, 3, 4}, [u8(1, 3, 1, 1)], {}),
    ("QLinearGlobalAveragePool", [u8(1, 8, 8, 3), ONE, ZERO, ONE, ZERO], {1, 2, 3, 4}, [u8(1, 1, 1, 3)],
     {"channels_last": 1}),
    ("QLinearConv", [u8(1, 8, 8, 3), ONE, ZERO, u8(4, 3, 3, 3), ONE, ZERO, ONE, ZERO], {1, 2, 3, 4, 5, 6, 7},
     [u8(1, 6, 6, 4)], {"channels_last": 1}),
    ("QGemm", [u8(2, 3), ONE, ZERO, u8(3, 4), ONE, ZERO, (INT32, (4,)), ONE, ZERO], {1, 2, 3, 4, 5, 6, 7, 8},
     [u8(2, 4)], {}),
    ("QGemm", [u8(2, 3), ONE, ZERO, u8(4, 3), ONE, ZERO], {1, 2, 3, 4, 5}, [f(2, 4)], {"transB": 1}),
    ("DynamicQuantizeMatMul", [f(2, 3), u8(3, 4), ONE, ZERO, f(4)], {1, 2, 3, 4}, [f(2, 4)], {}),
    ("MatMulIntegerToFloat", [u8(2, 3), u8(3, 4), ONE, ONE, ZERO, ZERO, f(4)], {1, 3, 5, 6}, [f(2, 4)], {}),
    ("DynamicQuantizeLSTM",
     [f(4, 2, 3), i8(1, 3, 20), i8(1, 5, 20), f(1, 40), None, None, None, None, f(1), i8(1), f(1), i8(1)],
     {1, 2, 3, 8, 9, 10, 11}, [f(4, 1, 2, 5), f(1, 2, 5), f(1, 2, 5)], {"hidden_size": 5}),
    ("FusedConv", [f(1, 3, 8, 8), f(4, 3, 3, 3), f(4)], {1, 2}, [f(1, 4, 8, 8)],
     {"activation": "Relu", "pads": (1, 1, 1, 1)}),
    ("FusedMatMul", [f(2, 3, 4), f(2, 5, 4)], set(), [f(2, 3, 5)], {"transB": 1}),
    ("FusedMatMul", [f(3, 2, 4), f(2, 4, 5)], set(), [f(2, 3, 5)], {"transBatchA": 1}),
    ("FusedGemm", [f(2, 3), f(4, 3), f(4)], {1, 2}, [f(2, 4)], {"transB": 1, "activation": "Relu"}),
    ("NhwcMaxPool", [i8(1, 8, 8, 3)], set(), [i8(1, 4, 4, 3)], {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ("GatherBlockQuantized", [u8(10, 32), (INT64, (B, S)), f(10, 2)], {0, 2}, [f(B, S, 64)],
     {"bits": 4, "block_size": 32}),
    ("RotaryEmbedding", [f(B, S, W), (INT64, (B, S)), f(32, D // 2), f(32, D // 2)], {2, 3}, [f(B, S, W)],
     {"num_heads": H}),
    ("MoE", [f(6, 16), f(6, 4), f(4, 32, 16), None, f(4, 16, 32)], {2, 4}, [f(6, 16)],
     {"k": 2, "activation_type": "silu"}),
    ("BiasGelu", [f(2, 3), f(3)], {1}, [f(2, 3)], {}),
    ("FastGelu", [f(2, 3), f(3)], {1}, [f(2, 3)], {}),
    ("QuickGelu", [f(2, 3)], set(), [f(2, 3)], {}),
    ("Trilu", [f(3, 3)], set(), [f(3, 3)], {}),
    ("UnfoldTensor", [f(2, 10)], set(), [f(2, 4, 4)], {"dim": -1, "size": 4, "step": 2}),
    ("CDist", [f(3, 4), f(5, 4)], set(), [f(3, 5)], {"metric": "euclidean"}),
    ("GridSample", [f(1, 2, 5, 5), f(1, 3, 4, 2)], set(), [f(1, 2, 3, 4)], {}),
]  # fmt: skip


def raw_of(case):
    """A model of the one node: inputs i0, i1 …, stored ones filled with ones or zeros; results o0, o1 …"""
    op_type, inputs, stored, results, attributes = case
    names = ["_" if spec is None else f"i{place}" for place, spec in enumerate(inputs)]
    given, kept = [], []
    for place, spec in enumerate(inputs):
        if spec is None:
            continue
        kind, dims = spec
        if place in stored:
            kept.append(tensor(f"i{place}", dims, kind, [1.0 if kind == FLOAT else 0] * prod(dims)))
        else:
            given.append(value(f"i{place}", dims, kind))
    outputs = [f"o{place}" for place in range(len(results))]
    call = node(op_type, names, " ".join(outputs), domain="com.microsoft", **attributes)
    return model(graph([call], given, outputs, kept), domains=["com.microsoft"])


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_the_results_of_an_operator(case, tmp_path):
    found = read_bytes(tmp_path / "m.onnx", raw_of(case))
    assert [(entry.shape, entry.dtype) for entry in found.outputs] == [(dims, NAMES[kind]) for kind, dims in case[3]]
    assert found.metadata["coverage"]["share"] == 1.0


@every(CASES, name=[case[0] for case in CASES])
def test_onnx_runtime_computes_them_so(case):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed, and nothing can be run")
    import numpy as np

    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(raw_of(case), options, providers=["CPUExecutionProvider"])
    _, inputs, stored, results, _ = case
    feed = {
        f"i{place}": np.frombuffer(bytes(prod(dims) * struct.calcsize(LETTERS[kind])), LETTERS[kind]).reshape(dims)
        for place, (kind, dims) in ((place, spec) for place, spec in enumerate(inputs) if spec is not None)
        if place not in stored
    }
    computed = session.run(None, feed)
    assert [(array.shape, array.dtype.char) for array in computed] == [
        (dims, np.dtype(LETTERS[kind]).char) for kind, dims in results
    ]
