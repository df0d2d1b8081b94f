"""What ConvInteger costs over Conv in ONNX Runtime, by the number of groups: single convolutions, one thread.

    python -m workshop.engines.integer_convolutions

It gathers the windows of each group and multiplies them. With M filters a group a product takes `(M + R) / M` of what
it takes in a large product. The last column over the time of a product (that of one group of many channels, by M) is
R: `gathered` in the engine's row. A second or two a row.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

CASES = [
    (channels, groups, pixels)
    for channels, pixels in ((64, 56), (128, 28), (256, 14), (512, 7), (96, 112), (384, 14))
    for groups in (1, 4, 32, channels)
]


def model(channels: int, groups: int, pixels: int, *, whole: bool) -> bytes:
    """A convolution of 3 × 3 in f32, or what quantising it while it runs makes of it."""
    weights = np.random.default_rng(0).standard_normal((channels, channels // groups, 3, 3), np.float32)
    options: dict[str, Any] = {"group": groups, "kernel_shape": [3, 3], "pads": [1] * 4}
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], **options)]
    stored = {"w": weights}
    if whole:
        nodes = [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
            helper.make_node("ConvInteger", ["xq", "w", "xz", "wz"], ["whole"], **options),
            helper.make_node("Cast", ["whole"], ["floats"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["floats", "xs"], ["y"]),
        ]
        stored = {"w": np.clip(np.round(weights * 30) + 128, 0, 255).astype(np.uint8), "wz": np.array(128, np.uint8)}
    graph = helper.make_graph(
        nodes,
        "convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, pixels, pixels])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in stored.items()],
    )
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(made.SerializeToString())


def seconds(file: bytes, x: np.ndarray[Any, Any], share_s: float) -> float:
    """The first decile: what disturbs only ever adds."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    times: list[float] = []
    while len(times) < 10 or sum(times) < share_s:
        start = time.perf_counter()
        session.run(None, {"x": x})
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 10]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each of the two files of a row")
    share_s = parser.parse_args().seconds
    print("channels  groups  pixels     f32 µs   whole µs    gain  ns/gathered")
    for channels, groups, pixels in CASES:
        x = np.random.default_rng(1).standard_normal((1, channels, pixels, pixels), np.float32)
        plain, whole = (seconds(model(channels, groups, pixels, whole=kind), x, share_s) for kind in (False, True))
        gathered = channels * 9 * pixels**2
        print(
            f"{channels:8}  {groups:6}  {pixels:6}  {1e6 * plain:9.1f}  {1e6 * whole:9.1f}  {plain / whole:6.2f}"
            f"  {1e9 * whole / gathered:11.3f}"
        )


if __name__ == "__main__":
    main()
