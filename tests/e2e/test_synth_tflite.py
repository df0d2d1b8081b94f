"""Synthesised TFLite files run in LiteRT, with the outputs that the same weights have in ONNX Runtime."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from inferometer.formats.resolve import read
from inferometer.formats.synth import synthesise
from inferometer.formats.tflite import read_tflite
from inferometer.measure.calibrate.probes.models import file_of, graph_of, read_probes

# Small sides, so that the whole takes seconds. densenet121's norms come before its convolutions, convnext's are others.
PICTURES = {
    "resnet18": 64, "resnet50": 64, "mobilenet-v2": 64, "mobilenet-v3-large": 64, "efficientnet-b0": 64,
    "squeezenet1.1": 64, "densenet121": 64, "convnext-tiny": 64,
}  # fmt: skip
EXACT = ["squeezenet1.1", "convnext-tiny"]  # no batch norm: the file holds what the checkpoint holds


@pytest.fixture
def interpreter_of():
    litert = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="SKIPPED LOUDLY: ai-edge-litert is not installed, nothing was run"
    )

    def opened(path, batch):
        interpreter = litert.Interpreter(model_path=str(path), num_threads=1)
        (entry,) = interpreter.get_input_details()
        interpreter.resize_tensor_input(entry["index"], [batch, *entry["shape"][1:]], strict=True)
        interpreter.allocate_tensors()
        return interpreter

    return opened


def ran(interpreter, pixels):
    (read_at,), (made_at,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.set_tensor(read_at["index"], pixels)
    interpreter.invoke()
    return interpreter.get_tensor(made_at["index"])


def in_onnxruntime(path, pixels):
    runtime = pytest.importorskip("onnxruntime", reason="SKIPPED LOUDLY: onnxruntime is not installed")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (entry,) = session.get_inputs()
    return session.run(None, {entry.name: np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))})[0]


@pytest.mark.parametrize("name", PICTURES)
def test_it_gives_what_onnx_runtime_gives_with_the_same_weights(name, tmp_path, interpreter_of):
    side = PICTURES[name]
    pixels = np.random.default_rng(0).standard_normal((2, side, side, 3)).astype(np.float32)
    made = synthesise(name, tmp_path / "m.tflite", sizes={"image": side}, seed=5)
    found = ran(interpreter_of(made.path, 2), pixels)
    assert found.shape == (2, 1000)
    assert np.isfinite(found).all()
    again = synthesise(name, tmp_path / "m.onnx", sizes={"image": side}, seed=5)
    expected = in_onnxruntime(again.path, pixels)
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())
    assert found.std() > 1e-4  # zeros would agree too


@pytest.mark.parametrize("name", PICTURES)
def test_the_file_holds_every_parameter_once(name, tmp_path):
    """But for the factors of norms inside convolutions; and zeros where TFLite asks for a bias, stored once a size."""
    graph = read(name)
    made = synthesise(name, tmp_path / "m.tflite", sizes={"image": PICTURES[name]})
    found = read_tflite(made.path)
    norms = {block.full_name(op.name, number): op["features"]
             for block, op in graph.ops() if op.kind == "norm" and op["norm"] == "batch"
             for number in range(block.count)}  # fmt: skip
    apart = {op.name.partition("/")[0] for _, op in found.ops()}
    folded = sum(features for norm, features in norms.items() if norm not in apart)
    zeros = sum(tensor.elements for tensor, _ in found.weights() if tensor.name.startswith("constants/zeros"))
    assert found.parameters == graph.parameters - folded + zeros
    assert made.parameters == graph.parameters
    if name in EXACT:
        assert found.parameters == graph.parameters


def test_every_operator_is_one_that_xnnpack_takes(tmp_path, interpreter_of):
    """One delegate has them all: nothing is left to the interpreter's own slow kernels."""
    for name in ("mobilenet-v3-large", "densenet121"):
        made = synthesise(name, tmp_path / f"{name}.tflite", sizes={"image": 64})
        details = interpreter_of(made.path, 1)._get_ops_details()
        (delegate,) = [each for each in details if each["op_name"] == "DELEGATE"]
        given, made_at = set(delegate["inputs"]), set(delegate["outputs"])
        outputs = {place for each in details if each is not delegate for place in each["outputs"]}
        assert made_at <= outputs
        assert given & outputs == set()


def inferometer(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "inferometer", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        check=False,
        cwd=folder,
        env={**os.environ, "INFEROMETER_CACHE": str(folder / "cache"), "PYTHONIOENCODING": "utf-8"},  # noqa: TID251 - a child needs PATH
    )


def test_a_model_that_cannot_be_written_is_an_error_that_names_the_op(tmp_path):
    done = inferometer(tmp_path, "prepare", "vit-b-16", "-o", "m.tflite")
    assert done.returncode != 0
    assert "(view) cannot be written as TFLite" in " ".join(done.stderr.split())
    assert not (tmp_path / "m.tflite").exists()


def test_a_catalog_name_is_profiled_in_litert(tmp_path):
    """Kernels come back to the layers of the catalog's graph, with all of its parameters."""
    pytest.importorskip("ai_edge_litert", reason="SKIPPED LOUDLY: ai-edge-litert is not installed, nothing was run")
    done = inferometer(
        tmp_path, "profile", "mobilenet-v2", "--runtime", "litert", "--image", "64", "--batch", "2", "--threads", "1",
        "--runs", "3", "--seconds", "0.1", "--no-guard", "--no-store", "--format", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    profile = json.loads(done.stdout)
    assert profile["model"]["parameters"] == 3_504_872  # torchvision's count
    (forward,) = [phase for phase in profile["phases"] if phase["ops"]]
    layers = {
        block.full_name(op.name, number) for block, op in read("mobilenet-v2").ops() for number in range(block.count)
    }
    timed = {op["name"] for op in forward["ops"]}
    assert {"features.0.0", "features.1.conv.0.0", "classifier.1"} <= timed
    assert len(timed - layers) <= 1  # XNNPACK drops the axes of a mean by a kernel of its own


def test_probes_of_planes_are_made_for_litert(tmp_path, interpreter_of):
    """Calibrating an engine that opens TFLite: each probe of convolutions has a file it runs."""
    probe = next(each for each in read_probes() if each.name == "probe-tiny-windows")
    path = file_of(probe, probe.runs[0], format="tflite", weights="f32", folder=tmp_path)
    interpreter = interpreter_of(path, probe.runs[0].batch)
    (entry,) = interpreter.get_input_details()
    assert np.isfinite(ran(interpreter, np.ones(entry["shape"], np.float32))).all()
    layers = {block.full_name(op.name, n) for block, op in graph_of(probe).ops() for n in range(block.count)}
    assert {op.name.partition("/")[0] for _, op in read_tflite(path).ops()} <= layers
