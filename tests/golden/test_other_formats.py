"""One network in three formats: what OpenVINO and ONNX Runtime make of an ONNX file counts as the file itself does."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from inferometer.core.sizes import bind
from inferometer.core.workload import Workload
from inferometer.formats.openvino import reader as openvino_reader
from inferometer.formats.ort import reader as ort_reader
from inferometer.formats.resolve import read
from inferometer.predict.work.count import coverage, graph_work

PACKAGE = find_spec("rapidocr_onnxruntime")
MODELS = Path(PACKAGE.origin).parent / "models" if PACKAGE and PACKAGE.origin else None
SIZES = {"height": 48, "width": 192}


def counted(graph):
    binding = bind(graph, Workload(), {name: size for name, size in SIZES.items() if name in graph.symbols})
    return graph_work(graph, binding).total_flops, coverage(graph, binding).share


@pytest.fixture
def original():
    if MODELS is None:
        pytest.skip("rapidocr-onnxruntime is not installed: there is no file to convert")
    return MODELS / "ch_ppocr_mobile_v2.0_cls_infer.onnx"


def test_an_ir_counts_as_its_onnx_file(original, tmp_path):
    openvino = pytest.importorskip("openvino", reason="openvino is not installed: it would write the IR")
    path = tmp_path / "model.xml"
    openvino.save_model(openvino.Core().read_model(original), path, compress_to_fp16=False)
    ours, theirs = openvino_reader.read(path), read(original)
    assert ours.parameters == theirs.parameters
    (flops, covered), (expected, _) = counted(ours), counted(theirs)
    assert covered == 1
    assert flops == pytest.approx(expected, rel=0.01)


def test_an_ort_file_counts_as_its_onnx_file(original, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: it would write the file")
    options, path = runtime.SessionOptions(), tmp_path / "model.ort"
    options.optimized_model_filepath = str(path)
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.save_model_format", "ORT")
    runtime.InferenceSession(str(original), options, providers=["CPUExecutionProvider"])
    ours, theirs = ort_reader.read(path), read(original)
    assert ours.parameters == theirs.parameters
    assert counted(ours) == counted(theirs)
