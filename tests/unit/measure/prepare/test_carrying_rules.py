"""What is kept of a step, where the file goes, what is proven of it and what its tools are told: no tool runs here."""

import json
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inferometer.core.errors import DomainError, EngineError, FormatError, InferometerError
from inferometer.core.graph import Graph, Tensor
from inferometer.core.profile import Verification
from inferometer.core.workload import Workload
from inferometer.engines.base import Missing, Ready
from inferometer.engines.executorch.convert import _reason
from inferometer.engines.llamacpp import convert as gguf
from inferometer.engines.ncnn import convert as ncnn
from inferometer.engines.onnxruntime_genai import convert as onnxruntime_genai
from inferometer.engines.order import ToolAnswer, ToolOrder
from inferometer.engines.torch import checkpoint
from inferometer.known.engines import engine
from inferometer.measure.bench.plan import Plan
from inferometer.measure.prepare import carrying_out, child, proof, run
from inferometer.measure.prepare.artifact import bytes_of, goal_of, require_another, written
from inferometer.measure.prepare.calibration import numpy_type, ports_of, write_calibration
from inferometer.measure.prepare.carrying_out import _key, _size, answer_of, carry_out, content_hash, model_files
from inferometer.measure.prepare.proof import (
    MeasuredGain,
    ProvedFile,
    Proving,
    measured_gain,
    of_file_and_engine,
    runs_here,
)
from inferometer.measure.prepare.run import (
    CarriedOut,
    Prepared,
    PrepareRequest,
    StepResult,
    _carried_out,
    _finished,
    _notes,
)
from inferometer.measure.prepare.search import Found, _beats, _measures
from inferometer.measure.prepare.steps import step_named
from inferometer.measure.run.inputs import make_inputs

STEP = replace(step_named("ort-format"), packages=("pytest",), modules=("pytest",))


def file_of(path, content=b"1"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# One step.


def ordered(folder, **more):
    return ToolOrder(**{"source": file_of(folder / "m.tflite"), "target": Path("t"), "format": "ort", **more})


def tool(calls, answer=None, make=True):
    def tools(step, order, folder, seconds):
        calls.append((step.name, order.target.name, seconds))
        if make:
            order.target.write_bytes(b"made")
        assert order.target.parent.parent == folder
        return answer or ToolAnswer(notes=("said",))

    return tools


def test_a_step_is_carried_out_once_and_found_again_with_its_notes(tmp_path):
    calls, order = [], ordered(tmp_path / "in")
    first = carry_out(STEP, order, tmp_path / "cache", seconds_at_most=7.0, tools=tool(calls))
    again = carry_out(STEP, order, tmp_path / "cache", tools=tool(calls))
    assert calls == [("ort-format", "model.ort", 7.0)]
    assert (first.cached, again.cached) == (False, True)
    assert replace(again, cached=False) == first
    assert (first.path.read_bytes(), first.bytes, first.notes, first.path.name) == (b"made", 4, ("said",), "model.ort")
    assert first.path.parent.parent == tmp_path / "cache"
    kept = json.loads((first.path.parent / "step.json").read_text())
    assert (kept["step"], kept["notes"]) == ("ort-format", ["said"])


@pytest.mark.parametrize(
    ("answer", "make", "error", "message"),
    [
        (ToolAnswer(error="it broke", remedy="mend it"), True, FormatError,
         "The step ort-format (pytest) failed. it broke."),
        (ToolAnswer(error="it broke!"), True, FormatError, "The step ort-format (pytest) failed. it broke!"),
        (None, False, EngineError, "The step ort-format ended well, but pytest left no model.ort."),
    ],
)  # fmt: skip
def test_a_step_that_failed_leaves_nothing(tmp_path, answer, make, error, message):
    with pytest.raises(error) as caught:
        carry_out(STEP, ordered(tmp_path / "in"), tmp_path / "cache", tools=tool([], answer, make))
    assert caught.value.message == message
    assert caught.value.remedy == (answer.remedy if answer else None)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_result_is_another_where_something_that_its_tool_sees_is(tmp_path, monkeypatch):
    order = ordered(tmp_path, shapes={"x": (1, 3)}, calibration=(file_of(tmp_path / "c.npz"),))
    sources = (order.source,)
    base = _key(STEP, order, sources)
    assert base.startswith("ort-format-")
    assert _key(STEP, replace(order, shapes={"x": (2, 3)}, calibration=(), threads=3), sources) == base, (
        "sizes and inputs are for tools that want them"
    )
    fixed, calibrated = replace(STEP, fixed=True), replace(STEP, calibrated=True)
    others = [
        _key(fixed, order, sources), _key(fixed, replace(order, shapes={"x": (3, 1)}), sources),
        _key(calibrated, order, sources), _key(replace(STEP, name="other"), order, sources),
        _key(STEP, replace(order, options={"a": "b"}), sources),
        _key(replace(STEP, packages=("numpy",)), order, sources),
        _key(replace(STEP, work=".openvino.convert:convert"), order, sources),
        _key(STEP, order, (file_of(tmp_path / "m2" / "m.tflite", b"2"),)),
    ]  # fmt: skip
    assert len({base, *others}) == 9


def test_the_files_of_a_model_are_told_by_name_size_and_content(tmp_path):
    a, b = file_of(tmp_path / "1" / "a", b"xy"), file_of(tmp_path / "1" / "b", b"z")
    assert content_hash([a, b]) == content_hash(
        [file_of(tmp_path / "2" / "a", b"xy"), file_of(tmp_path / "2" / "b", b"z")]
    )
    others = [[b, a], [a], [file_of(tmp_path / "3" / "a", b"x"), file_of(tmp_path / "3" / "b", b"yz")],
              [file_of(tmp_path / "4" / "c", b"xy"), b]]  # fmt: skip
    assert len({content_hash([a, b]), *map(content_hash, others)}) == 5
    (tmp_path / "1" / "inner").mkdir()
    assert model_files(tmp_path / "1") == (a, b)
    assert model_files(a) == (a,)
    assert model_files(file_of(tmp_path / "lone.xml")) == (tmp_path / "lone.xml",)


def external_onnx(folder):
    path = folder / "m.onnx"
    folder.mkdir()
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="n")], "g", [value("x", TensorProto.FLOAT, [1, 4])],
        [value("y", TensorProto.FLOAT, [1, 4])], [weight],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path, save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    return path


def test_weights_in_a_file_of_their_own_are_part_of_an_onnx_model_and_go_with_it(tmp_path):
    path = external_onnx(tmp_path / "in")
    assert [file.name for file in model_files(path)] == ["m.onnx", "m.onnx.data"]
    assert bytes_of(path) == path.stat().st_size + 64
    out = written(path, tmp_path / "out" / "renamed.onnx", overwrite=False)
    assert sorted(file.name for file in out.parent.iterdir()) == ["m.onnx.data", "renamed.onnx"]


def test_the_size_of_a_result_is_that_of_all_of_its_files(tmp_path):
    place = tmp_path / "r"
    file_of(place / "model.ort", b"12345")
    file_of(place / "model.bin", b"1")
    assert _size(place, STEP) == 5
    assert _size(file_of(tmp_path / "f" / "model.param", b"123").parent, step_named("pnnx")) == 3
    file_of(tmp_path / "g" / "model" / "a", b"12")
    file_of(tmp_path / "g" / "model" / "b", b"3")
    assert _size(tmp_path / "g", step_named("ctranslate2")) == 3


def test_how_a_child_ended_is_told_with_the_last_lines_it_printed(tmp_path):
    log = file_of(tmp_path / "log", b"one\ntwo\nthree\n\n" + b"x" * 400 + b"\nfive\n")
    found = answer_of(tmp_path / "none", 3, log)
    assert found.error == "The tool ended with code 3. What it printed last:\n    two\n    three\n    " + (
        "x" * 300 + "\n    five"
    )
    assert found.remedy is None
    assert answer_of(tmp_path / "none", -11, file_of(tmp_path / "empty", b"\n")).error == "The tool ended by signal 11"
    (tmp_path / "answer").write_bytes(pickle.dumps(ToolAnswer(notes=("n",))))
    assert answer_of(tmp_path / "answer", 1, log) == ToolAnswer(notes=("n",))
    assert carrying_out.too_long(STEP, 12.3).message == "The step ort-format was ended after 12 s."


def test_whatever_a_tool_raises_is_an_answer(monkeypatch):
    def raising(error):
        def work(_order):
            raise error

        return work

    kinds = {
        "ours": FormatError("no", remedy="do"), "memory": MemoryError(), "theirs": ValueError(" bad "),
        "silent": ValueError(),
    }  # fmt: skip
    module = SimpleNamespace(**{name: raising(error) for name, error in kinds.items()}, well=lambda _: iter(["a", "b"]))
    asked = []
    monkeypatch.setattr(child, "import_module", lambda path, package: asked.append((path, package)) or module)
    told = {name: child.carry_out(f".onnxruntime.convert:{name}", None) for name in (*kinds, "well")}
    assert told["ours"] == ToolAnswer(error="no", remedy="do")
    assert told["memory"].remedy == "Use a machine with more memory."
    assert told["theirs"] == ToolAnswer(error="ValueError: bad")
    assert told["silent"] == ToolAnswer(error="ValueError: no reason was given")
    assert told["well"] == ToolAnswer(notes=("a", "b"))
    child.carry_out("elsewhere.module:well", None)
    assert (asked[0], asked[-1][0]) == ((".onnxruntime.convert", "inferometer.engines"), "elsewhere.module")


# Where it goes.


@pytest.mark.parametrize(
    ("name", "out", "goal"),
    [("onnxruntime", "m.onnx", "onnx"), ("onnxruntime", "m.ort", "ort"), ("openvino", "m.xml", "openvino"),
     ("openvino", "m.tflite", "tflite"), ("torch-compile", "m.pt2", "aoti"), ("torch-eager", "m.pt2", "pt2"),
     ("torch-eager", "folder", "safetensors"), ("ctranslate2", "folder", "ctranslate2"), ("ncnn", "m.param", "ncnn")],
)  # fmt: skip
def test_a_name_says_which_format_is_meant(tmp_path, name, out, goal):
    assert goal_of(tmp_path / "new" / out, engine(name), overwrite=False) == goal
    assert goal_of(None, engine(name), overwrite=False) is None


def test_what_lies_there_already_is_kept_unless_it_may_go(tmp_path):
    beside = file_of(tmp_path / "m.bin")
    with pytest.raises(DomainError, match=r"m\.bin exists already, where the weights of m\.xml would lie"):
        goal_of(tmp_path / "m.xml", engine("openvino"), overwrite=False)
    assert goal_of(tmp_path / "m.xml", engine("openvino"), overwrite=True) == "openvino"
    assert goal_of(tmp_path / "m.onnx", engine("openvino"), overwrite=False) == "onnx", "which has no weights there"
    with pytest.raises(DomainError, match="exists already"):
        goal_of(beside, engine("openvino"), overwrite=False)
    earlier = tmp_path / "folder"
    file_of(earlier / "model.bin")
    assert goal_of(earlier, engine("ctranslate2"), overwrite=True) == "ctranslate2"
    (tmp_path / "empty").mkdir()
    assert goal_of(tmp_path / "empty", engine("ctranslate2"), overwrite=True) == "ctranslate2"
    with pytest.raises(FormatError, match="opens a folder, and plain is the name of a file"):
        goal_of(file_of(tmp_path / "plain"), engine("ctranslate2"), overwrite=True)
    with pytest.raises(FormatError, match="is no name of a file that ncnn opens") as caught:
        goal_of(tmp_path / "m.onnx", engine("ncnn"), overwrite=False)
    assert caught.value.remedy == "End it in .param."


def test_a_model_is_never_written_over(tmp_path):
    source = file_of(tmp_path / "a" / "m.onnx")
    require_another(None, source)
    require_another(tmp_path / "a" / "other.onnx", source)
    for out in (source, tmp_path / "a", tmp_path):
        with pytest.raises(DomainError, match="is the model itself"):
            require_another(out, source)


def test_both_files_of_a_model_go_under_the_new_name(tmp_path):
    file_of(tmp_path / "cache" / "model.bin", b"weights")
    made = file_of(tmp_path / "cache" / "model.xml", b"layers")
    assert written(made, None, overwrite=False) == made
    out = written(made, tmp_path / "out" / "net.xml", overwrite=False)
    assert {file.name: file.read_bytes() for file in out.parent.iterdir()} == {
        "net.xml": b"layers", "net.bin": b"weights",
    }  # fmt: skip
    with pytest.raises(InferometerError, match="exists already"):
        written(made, out, overwrite=False)
    assert written(made, out, overwrite=True) == out
    folder = written(made.parent, tmp_path / "whole", overwrite=False)
    assert sorted(file.name for file in folder.iterdir()) == ["model.bin", "model.xml"]


# Inputs to calibrate with.


def of_inputs(*tensors):
    return Graph(name="g", blocks=(), inputs=tensors)


@pytest.mark.parametrize(
    ("dtype", "role", "name"),
    [("f16", "activation", "float16"), ("i64", "index", "int64"), ("u8", "activation", "uint8"),
     ("bool", "activation", "bool"), ("f8e4m3", "activation", "f8e4m3"), (None, "index", "int64"),
     (None, "activation", "float32")],
)  # fmt: skip
def test_formats_by_numpys_names(dtype, role, name):
    assert numpy_type(Tensor(name="x", shape=(1,), dtype=dtype, role=role)) == name


GRAPH = of_inputs(Tensor(name="x", shape=(2,), dtype="f32"), Tensor(name="y", shape=(3,), dtype="i32"))
SHAPES = {"x": (2,), "y": (3,)}


def test_random_sets_are_sixteen_of_the_seeds_after_the_one_that_verifies(tmp_path):
    paths = write_calibration(GRAPH, SHAPES, (), tmp_path, seed=5)
    assert [path.name for path in paths] == [f"calibration-{number:04d}.npz" for number in range(16)]
    for number, path in enumerate(paths):
        wanted = make_inputs(ports_of(GRAPH, SHAPES), sizes={}, seed=6 + number)
        with np.load(path) as stored:
            assert np.array_equal(stored["x"], wanted["x"])
            assert np.array_equal(stored["y"], wanted["y"])
    assert [port.name for port in ports_of(GRAPH, {"y": (3,)})] == ["y"]


def saved(folder, name="a.npz", **arrays):
    folder.mkdir(exist_ok=True)
    np.savez(folder / name, **arrays)
    return str(folder / name)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros(2, np.float32)}, "has nothing for the input 'y', int32 [3]"),
        ({"x": np.zeros(2, np.float64), "y": np.zeros(3, np.int32)}, "'x' takes float32 [2]"),
        ({"x": np.zeros(3, np.float32), "y": np.zeros(3, np.int32)}, "holds float32 [3]"),
        ({"x": np.array([1, np.inf], np.float32), "y": np.zeros(3, np.int32)}, "not finite for the input 'x'"),
    ],
)  # fmt: skip
def test_inputs_that_do_not_fit_are_refused(tmp_path, arrays, message):
    with pytest.raises(DomainError) as caught:
        write_calibration(GRAPH, SHAPES, [saved(tmp_path / "in", **arrays)], tmp_path)
    assert message in caught.value.message


def test_files_and_folders_are_taken_in_order_and_only_what_the_model_takes(tmp_path):
    good = {"y": np.arange(3, dtype=np.int32)}
    late = saved(tmp_path / "z", x=np.full(2, 9, np.float32), extra=np.zeros(4), **good)
    saved(tmp_path / "in", "2.npz", x=np.full(2, 2, np.float32), **good)
    saved(tmp_path / "in", "1.npz", x=np.full(2, 1, np.float32), **good)
    (tmp_path / "made").mkdir()
    paths = write_calibration(GRAPH, SHAPES, [late, str(tmp_path / "in")], tmp_path / "made")
    loaded = []
    for path in paths:
        with np.load(path) as stored:
            loaded.append(dict(stored.items()))
    assert [float(each["x"][0]) for each in loaded] == [9.0, 1.0, 2.0]
    assert "extra" not in loaded[0]
    np.save(tmp_path / "one.npy", np.zeros(2, np.float32))
    with pytest.raises(DomainError, match="holds one array, and the model takes x, y"):
        write_calibration(GRAPH, SHAPES, [str(tmp_path / "one.npy")], tmp_path / "made")
    (tmp_path / "bad.npy").write_bytes(b"no array")
    with pytest.raises(FormatError, match="holds no array that"):
        write_calibration(GRAPH, SHAPES, [str(tmp_path / "bad.npy")], tmp_path / "made")
    with pytest.raises(DomainError, match="There is no file"):
        write_calibration(GRAPH, SHAPES, [str(tmp_path / "absent")], tmp_path / "made")
    (tmp_path / "x").mkdir()
    with pytest.raises(DomainError, match=r"has no \.npy or \.npz file in it"):
        write_calibration(GRAPH, SHAPES, [str(tmp_path / "x")], tmp_path / "made")


# What is proven.


def proving(**given):
    values = {"original": ProvedFile(path=Path("m.onnx"), runtime="onnxruntime", sizes={"n": 2}), "graph": GRAPH,
              "device": "local", "here": True, "workload": Workload(batch=2, prompt=7), "threads": 3,
              "plan": Plan(runs=4), "seed": 9}  # fmt: skip
    return Proving(**{**values, **given})


AFTER = ProvedFile(path=Path("m.xml"), runtime="openvino", changes={"weights": "i8"})
GOOD, BAD = Verification(status="verified"), Verification(status="failed", reason="off")


@pytest.fixture
def verify(monkeypatch):
    """What `verify_against` was asked, and what it answers in turn."""
    asked, answers = [], []

    def verify_against(request, reference, *, model, sizes):
        asked.append((request, reference, model, sizes))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    runtimes = {
        "openvino": SimpleNamespace(
            probe=lambda: Ready(version="1"), capabilities=SimpleNamespace(precision=("f32", "f16"))
        ),
        "plain": SimpleNamespace(probe=lambda: Ready(version="1"), capabilities=SimpleNamespace(precision=())),
        "gone": SimpleNamespace(probe=lambda: Missing(reason="not here", remedy="r")),
    }
    monkeypatch.setattr(proof, "load_all", lambda _group: (runtimes, []))
    monkeypatch.setattr(proof, "verify_against", verify_against)
    return asked, answers


def test_outputs_are_verified_with_the_question_of_the_original(verify):
    asked, answers = verify
    answers.append(replace(GOOD, computed="f32"))
    assert proof.verified(proving(), AFTER).status == "verified"
    ((request, reference, model, sizes),) = asked
    assert (reference, model, sizes) == ("onnxruntime", "m.onnx", {"n": 2})
    assert (request.model, request.runtime, request.workload, request.threads) == (
        "m.xml", "openvino", Workload(batch=2, prompt=7), 3,
    )  # fmt: skip
    assert (request.plan, request.seed, request.sizes) == (Plan(runs=4), 9, {})
    assert (request.shape, request.guarded, request.energy) == (False, False, False)


@pytest.mark.parametrize(
    ("computed", "runtime", "precisions"),
    [("f16", "openvino", [None, "f32"]), ("f32", "openvino", [None]), (None, "openvino", [None]),
     ("f16", "plain", [None])],
)  # fmt: skip
def test_a_file_is_looked_at_in_f32_too_where_its_engine_computes_in_less_and_can(
    verify, computed, runtime, precisions
):
    asked, answers = verify
    answers += [replace(BAD, computed=computed, rms_rel=0.06), GOOD]
    found = proof.verified(proving(), replace(AFTER, runtime=runtime))
    assert [request.precision for request, *_ in asked] == precisions
    assert found.status == ("verified" if len(precisions) == 2 else "failed")


def test_nothing_is_verified_where_nothing_can_run(verify):
    none = proving(original=ProvedFile(path=Path("m"), runtime=None))
    assert proof.verified(none, AFTER).reason == "no engine here opens the original"
    for runtime, reason in (("gone", "not here"), ("strange", "nothing here runs strange")):
        found = proof.verified(proving(), replace(AFTER, runtime=runtime))
        assert (found.status, found.reference, found.reason) == ("unchecked", "onnxruntime", reason)
    assert runs_here("openvino") is None
    asked, answers = verify
    answers.append(FormatError("a reader's"))
    found = proof.verified(proving(), AFTER)
    assert (found.status, found.reason) == ("unchecked", "a reader's")
    assert len(asked) == 1


@pytest.mark.parametrize(("refused", "status"), [(EngineError("its own"), "failed"), (FormatError("x"), "unchecked"),
                                                 (None, "unchecked")])  # fmt: skip
def test_an_engine_that_failed_is_asked_once_more_without_the_reference(verify, monkeypatch, refused, status):
    plans = []

    def measure_model(request):
        plans.append(request.plan)
        if refused is not None:
            raise refused
        return SimpleNamespace(raw=SimpleNamespace(ended="done"))

    monkeypatch.setattr(proof, "measure_model", measure_model)
    verify[1].append(EngineError("either"))
    found = proof.verified(proving(), AFTER)
    assert (found.status, found.reason) == (status, "its own" if status == "failed" else "either")
    assert plans == [Plan(warmup=0, runs=1, seconds=0.0, calls=1, retries=0)]
    monkeypatch.setattr(proof, "measure_model", lambda _request: SimpleNamespace(raw=SimpleNamespace(ended="stopped")))
    verify[1].append(EngineError("either"))
    with pytest.raises(KeyboardInterrupt):
        proof.verified(proving(), AFTER)


def test_texts_may_drift_however_far_and_arrays_by_a_quarter():
    def verdict(**own):
        return of_file_and_engine(GOOD, Verification(status="failed", computed="f16", reason="r", **own)).status

    assert verdict(rms_rel=0.25) == "verified"
    assert verdict(rms_rel=0.2501) == verdict() == "failed"
    assert verdict(top_1=0.5, rms_rel=0.9) == verdict(top_1=0.0) == "verified"
    kept = of_file_and_engine(GOOD, replace(GOOD, rms_rel=0.3))
    assert kept.rms_rel == 0.3


def test_a_gain_is_measured_only_here_with_engines_that_run(verify, monkeypatch):
    before = replace(AFTER, path=Path("a.xml"))
    assert measured_gain(proving(here=False, device="npu"), before, AFTER) == (
        "npu is not this machine: profile the file there"
    )
    assert measured_gain(proving(), replace(before, runtime=None), AFTER) == "no engine here opens the original"
    assert measured_gain(proving(), before, replace(AFTER, runtime="gone")) == "not here"
    asked = []
    main = SimpleNamespace(ratio=None, low=None, high=0.5, verdict="faster", reason=None)
    runs = [SimpleNamespace(complete=True, profile=name) for name in ("old", "new")]
    monkeypatch.setattr(proof, "measure_in_turns", lambda *pair: asked.append(pair) or runs)
    monkeypatch.setattr(
        proof, "compare", lambda old, new: SimpleNamespace(main=main) if (old, new) == ("old", "new") else None
    )
    found = measured_gain(proving(), before, AFTER, shape=True)
    assert found == MeasuredGain(gain=1.0, low=2.0, high=None, verdict="faster", reason="", profile="new")
    assert [(request.model, request.shape) for request in asked[0]] == [("a.xml", False), ("m.xml", True)]
    runs[0].complete = False
    with pytest.raises(KeyboardInterrupt):
        measured_gain(proving(), before, AFTER)


def test_what_leaves_engine_and_formats_as_they_were_has_a_certain_gain(monkeypatch):
    answer = SimpleNamespace(steady=SimpleNamespace(name="forward"))
    monkeypatch.setattr(proof, "_asked", lambda _proving, _candidate: None)
    monkeypatch.setattr(proof, "on_one_basis", lambda _old, _new: (answer, answer))
    made = proof.Gain(
        change="prepare", phase="forward", before_s=3.0, after_s=2.0, gain=1.5, low=1.0, high=2.0, throughput_gain=1.5
    )
    monkeypatch.setattr(proof, "gain_of", lambda *_: made)
    same = replace(AFTER, path=Path("other"))
    found = proof.predicted_gain(proving(), AFTER, same)
    assert (found.low, found.gain, found.high) == (1.5, 1.5, 1.5)
    for other in (replace(same, runtime="ncnn"), replace(same, changes={})):
        assert proof.predicted_gain(proving(), AFTER, other) == made


def test_a_prediction_asks_the_question_of_the_original_in_the_formats_that_were_made(monkeypatch):
    asked = []
    monkeypatch.setattr(proof, "with_formats", lambda graph, **changes: (graph.name, changes))
    monkeypatch.setattr(proof, "ask", lambda model, **more: asked.append((model, more)) or "told")
    told = replace(AFTER, changes={"weights": "i8", "activations": "i8"})
    load = Workload(batch=2, prompt=7, generate=5, image=96)
    assert proof._asked(proving(workload=load), told) == "told"
    ((model, question),) = asked
    assert model == (
        "g",
        {"weights": "i8", "activations": "i8", "kinds": engine("openvino").effects.dynamic, "named": True},
    )
    assert question == {
        "on": "local", "runtime": "openvino", "weights": "i8", "activations": "i8", "batch": 2, "prompt": 7,
        "generate": 5, "image": 96, "sizes": {"n": 2}, "threads": proving().threads,
    }  # fmt: skip
    proof._asked(proving(judged_by="figures"), replace(AFTER, runtime=None, changes={}))
    assert (asked[-1][1]["on"], asked[-1][1]["weights"], asked[-1][0][1]["kinds"]) == ("figures", None, frozenset())


# A chain of steps.


def chain_of(*names, optional=(), **more):
    plain = replace(STEP, gives="onnx", takes=("onnx",), optional=False, place="way", **more)
    return tuple(replace(plain, name=name, optional=name in optional) for name in names)


@pytest.fixture
def steps(monkeypatch, tmp_path):
    """Carries steps out in a table: what each was made of, what it was compared with; `wrong` and `failing` names."""
    told = SimpleNamespace(made=[], proven=[], whole=[], wrong=set(), failing=set(), slower=set())

    def carry(step, order, _folder):
        if step.name in told.failing:
            raise FormatError("cannot")
        told.made.append((step.name, order.source.name, order.calibration, dict(order.options), order.threads))
        return carrying_out.Made(path=Path(step.name), bytes=5, seconds=1.0, cached=False, notes=("n",))

    def measured(_proving, before, after, *, shape):
        told.proven.append((before.path.name, after.path.name))
        told.whole.append(shape)
        verdict = "slower" if after.path.name in told.slower else "faster"
        return MeasuredGain(gain=2.0, low=1.5, high=2.5, verdict=verdict, reason="r", profile=None)

    monkeypatch.setattr(run, "carry_out", carry)
    monkeypatch.setattr(run, "measured_gain", measured)
    monkeypatch.setattr(run, "predicted_gain", lambda *_: None)
    monkeypatch.setattr(run, "write_calibration", lambda *_given, seed: (Path(f"c{seed}"),))
    monkeypatch.setattr(
        run, "verified", lambda _proving, after: BAD if after.path.name in told.wrong else replace(GOOD, rms_rel=0.1)
    )
    return told


def carried(chain, *, force=False, target="onnxruntime"):
    request = PrepareRequest(model="m.onnx", runtime=target, force=force, seed=4)
    done = _carried_out(chain, request, proving(), engine(target), Path())
    return list(done.steps), done.last, done.right, done.whole


def test_each_step_takes_what_the_last_kept_one_left_and_is_compared_with_what_ran_before(steps):
    steps.slower = {"b"}
    results, last, right, whole = carried(chain_of("a", "b", "c", optional=("b",)))
    assert (whole, steps.whole) == (None, [True, False, False])
    assert [(name, source) for name, source, *_ in steps.made] == [("a", "m.onnx"), ("b", "a"), ("c", "a")]
    assert steps.proven == [("m.onnx", "a"), ("a", "b"), ("a", "c")]
    assert [row.kept for row in results] == [True, False, True]
    assert (last.path.name, right) == ("c", True)
    row = results[0]
    assert (row.measured_gain, row.measured_low, row.measured_high, row.verdict) == (2.0, 1.5, 2.5, "faster")
    assert (row.bytes, row.seconds, row.cached, row.verified, row.drift, row.notes) == (
        5,
        1.0,
        False,
        True,
        0.1,
        ("n",),
    )
    assert {threads for *_, threads in steps.made} == {3}


def test_what_no_engine_opens_yet_is_on_the_way_and_the_original_stays_the_measure(steps):
    first, second = chain_of("a", "b")
    results, last, _, _ = carried((replace(first, gives="pt2"), replace(second, gives="openvino")), target="openvino")
    assert [row.verdict for row in results] == ["on the way", "faster"]
    assert steps.proven == [("m.onnx", "b")]
    assert last.runtime == "openvino"


def test_what_was_measured_against_the_original_at_the_end_of_the_chain_is_the_gain_of_the_whole(steps):
    *_, whole = carried(chain_of("a"))
    assert (whole.gain, steps.whole) == (2.0, [True])
    steps.slower = {"a"}
    *_, whole = carried(chain_of("a", optional=("a",)))
    assert whole is None, "it was left out"


@pytest.mark.parametrize(("force", "left"), [(False, "a"), (True, "b")])
def test_a_needed_step_that_is_wrong_ends_the_chain(steps, force, left):
    steps.wrong = {"b"}
    results, last, right, whole = carried(chain_of("a", "b", "c"), force=force)
    assert (whole is None) == force, "it would be of the step before"
    assert [(row.name, row.verdict, row.kept) for row in results] == [("a", "faster", True), ("b", "wrong", False)]
    assert (last.path.name, right) == (left, False)
    assert results[1].notes == ("n", "off")


def test_an_optional_step_that_is_wrong_fails_or_lacks_its_tool_is_left_out(steps):
    steps.wrong, steps.failing = {"a"}, {"b"}
    chain = chain_of("a", "b", "c", "d", optional=("a", "b", "d"))
    lacking = replace(chain[3], packages=("no",), modules=("no_such_module",))
    results, last, right, _ = carried((*chain[:3], lacking))
    assert [(row.name, row.verdict, row.kept) for row in results] == [
        ("a", "wrong", False), ("b", "failed", False), ("c", "faster", True),
    ]  # fmt: skip
    assert (last.path.name, right, results[1].notes) == ("c", True, ("cannot",))
    steps.failing = {"c"}
    with pytest.raises(FormatError, match="cannot"):
        carried(chain)


def test_ranges_are_found_once_and_given_to_the_steps_that_want_them(steps):
    chain = [replace(step, calibrated=step.name != "b") for step in chain_of("a", "b", "c", options={"k": "v"})]
    carried(chain)
    assert [(name, inputs, options) for name, _, inputs, options, _ in steps.made] == [
        ("a", (Path("c4"),), {"k": "v"}), ("b", (), {"k": "v"}), ("c", (Path("c4"),), {"k": "v"}),
    ]  # fmt: skip


def result(name="a", **given):
    values = {"tool": "t 1", "title": "x", "format": "onnx", "bytes": 1, "seconds": 1.0, "cached": False}
    return StepResult(name=name, **{**values, **given})


def finished(monkeypatch, tmp_path, *, last=None, right=True, here=True, whole=None, **asked):
    source = file_of(tmp_path / "m.gguf", b"12345")
    made = file_of(tmp_path / "cache" / "model.ort", b"123")
    total = MeasuredGain(gain=3.0, low=2.0, high=4.0, verdict="faster", reason="", profile=None)
    calls = []
    monkeypatch.setattr(run, "measured_gain", lambda *pair, shape: calls.append((pair[1:], shape)) or total)
    monkeypatch.setattr(run, "predicted_gain", lambda *_: SimpleNamespace(gain=1.5))
    where = proving(original=ProvedFile(path=source, runtime="onnxruntime"), here=here)
    candidate = ProvedFile(path=made, runtime="onnxruntime") if last is None else last(source, made)
    request = PrepareRequest(model="resnet50", runtime="onnxruntime", quantise="i8", **asked)
    rows = [result(drift=0.1), result("b", drift=0.2), result("c", drift=0.3, verdict="on the way"),
            result("d", drift=0.4, kept=False, verdict="slower")]  # fmt: skip
    return _finished(request, where, CarriedOut(steps=tuple(rows), last=candidate, right=right, whole=whole)), calls


def test_the_whole_is_measured_against_the_original_and_written(monkeypatch, tmp_path):
    out = tmp_path / "out.ort"
    found, calls = finished(monkeypatch, tmp_path, out=out)
    assert (found.artifact, out.read_bytes(), found.original_bytes, found.bytes) == (out, b"123", 5, 3)
    assert (found.measured_gain, found.measured_low, found.measured_high, found.verdict) == (3.0, 2.0, 4.0, "faster")
    assert (found.predicted_gain, found.drift, found.right) == (1.5, 0.2, True)
    assert (found.model, found.runtime, found.device, found.quantise) == ("resnet50", "onnxruntime", "local", "i8")
    (((before, after), shape),) = calls
    assert (before.path.name, after.path.name, shape) == ("m.gguf", "model.ort", True)
    assert found.notes == ("d was left out: it is slower.",)
    document = run.prepared_document(found)
    assert (document["schema"], document["artifact"], document["quantise"]) == (
        "inferometer.prepared/1",
        str(out),
        "i8",
    )
    assert [row["name"] for row in document["steps"]] == ["a", "b", "c", "d"]


def test_what_the_last_step_measured_against_the_original_is_not_measured_again(monkeypatch, tmp_path):
    known = MeasuredGain(gain=5.0, low=4.0, high=6.0, verdict="faster", reason="", profile=None)
    found, calls = finished(monkeypatch, tmp_path, whole=known)
    assert (found.measured_gain, found.measured_low, found.measured_high, calls) == (5.0, 4.0, 6.0, [])


@pytest.mark.parametrize(
    ("given", "artifact", "measured", "predicted"),
    [
        ({"here": False}, True, None, 1.5), ({"right": False}, False, 3.0, 1.5),
        ({"right": False, "force": True}, True, 3.0, 1.5),
        ({"last": lambda _source, made: ProvedFile(path=made, runtime=None)}, False, None, None),
        ({"last": lambda source, _made: ProvedFile(path=source, runtime="onnxruntime")}, False, None, None),
    ],
    ids=["elsewhere", "wrong", "forced", "on the way", "as it was"],
)  # fmt: skip
def test_what_is_written_and_measured_of_it(monkeypatch, tmp_path, *, given, artifact, measured, predicted):
    found, _ = finished(monkeypatch, tmp_path, **given)
    assert (found.artifact is not None, found.measured_gain, found.predicted_gain) == (artifact, measured, predicted)


def test_random_ranges_are_told_where_ranges_were_found():
    rows = [result(notes=("The ranges are those of 16 sets of inputs.",))]
    request = PrepareRequest(model="m", runtime="r")
    assert "random inputs" in _notes(request, rows)[0]
    assert _notes(replace(request, calibrate_with=("a.npz",)), rows) == _notes(request, [result()]) == ()


def test_the_measures_of_a_format_are_what_is_known_of_it():
    def found(**known):
        values = {"model": "m", "runtime": "r", "device": "local", "quantise": None, "original_bytes": 100,
                  "steps": (), "artifact": None}  # fmt: skip
        return Found(quantise="q", prepared=Prepared(**values, **known))

    assert _measures(found(measured_gain=2.0, predicted_gain=4.0, bytes=30, drift=0.5)) == (0.5, 30.0, 0.5)
    assert _measures(found(predicted_gain=4.0)) == (0.25, 100.0, 0.0)
    assert _measures(found()) == (1.0, 100.0, 0.0)
    assert _measures(Found(quantise="q")) == (float("inf"),) * 3
    assert not _beats(found(), found())
    assert _beats(found(bytes=30), found())
    assert not _beats(found(bytes=30, drift=0.1), found())


# What tools are told, and say.


def test_ncnn_is_told_the_sizes_without_the_batch_by_its_own_numbers():
    text = "7767517\n2 2\nInput in0 0 1 in0\nInput in1 0 1 in1\nRelu r 1 1 in0 out0\n"
    found = ncnn._with_sizes(text, [(1, 3, 20, 30), (1, 7)])
    assert found.splitlines()[2:4] == ["Input in0 0 1 in0 2=3 1=20 0=30", "Input in1 0 1 in1 0=7"]
    assert ncnn._with_sizes(text, [(1, 2, 3, 4, 5)]).splitlines()[2] == "Input in0 0 1 in0 2=2 11=3 1=4 0=5"
    assert ncnn._with_sizes(text, [(1, 2, 3, 4, 5, 6)]) == text
    assert ncnn._last_words("one\ntwo\n\nthree\nfour\n" + "x" * 400) == "three / four / " + "x" * 300


def test_a_vocabulary_is_the_checkpoints_where_llama_cpp_knows_its_kind(tmp_path):
    known = {
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"], "b a"]},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [{"content": "<s>", "id": 3, "special": True}, {"content": "plain", "id": 2}],
    }

    def made(config=None, **changed):
        (tmp_path / "tokenizer.json").write_text(json.dumps({**known, **changed}))
        return gguf._vocabulary(tmp_path, {"model_type": "qwen2", **(config or {})}, 5)

    found = made({"bos_token_id": 3, "eos_token_id": [4, 1]})
    assert found == {
        "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": ["a", "b", "plain", "<s>", "<|unused4|>"],
        "tokenizer.ggml.token_type": [1, 1, 1, 3, 5], "tokenizer.ggml.merges": ["a b", "b a"],
        "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.bos_token_id": 3, "tokenizer.ggml.eos_token_id": 4,
    }  # fmt: skip
    assert made(model={**known["model"], "type": "Unigram"}) == made(decoder=None) == {}
    assert made({"model_type": "mistral"}) == {}
    assert made({"model_type": "llama"})["tokenizer.ggml.pre"] == "llama-bpe"
    assert gguf._marks({"bos_token_id": 5, "eos_token_id": -1}, 5) == gguf._marks({"eos_token_id": []}, 5) == {}
    assert gguf._marks({"bos_token_id": 0, "eos_token_id": 4}, 5) == {
        "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 4,
    }  # fmt: skip


def test_a_made_up_tokeniser_has_a_word_for_every_token():
    found = checkpoint._tokeniser(6)
    assert found["model"]["vocab"] == {"<unk>": 0, "<s>": 1, "</s>": 2, "t3": 3, "t4": 4, "t5": 5}
    assert [(entry["id"], entry["content"], entry["special"]) for entry in found["added_tokens"]] == [
        (0, "<unk>", True), (1, "<s>", True), (2, "</s>", True),
    ]  # fmt: skip


def test_a_checkpoint_that_lacks_nothing_is_converted_where_it_lies(tmp_path):
    source = tmp_path / "in"
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 9}
    file_of(source / "config.json", json.dumps(config).encode())
    file_of(source / "tokenizer.json", b"{}")
    weights = file_of(source / "model.safetensors", b"w")
    order = ToolOrder(source=weights, target=tmp_path / "work" / "out" / "m", format="gguf")
    assert checkpoint.whole_checkpoint(order) == (source, ())
    (tmp_path / "work" / "out").mkdir(parents=True)
    file_of(source / "config.json", json.dumps({**config, "architectures": []}).encode())
    folder, notes = checkpoint.whole_checkpoint(order)
    assert (folder, notes) == (tmp_path / "work" / "checkpoint", ())
    assert json.loads((folder / "config.json").read_text()) == config
    assert (folder / "model.safetensors").read_bytes() == b"w"
    assert not (folder / "tokenizer_config.json").exists()


@pytest.mark.parametrize(
    ("config", "length"),
    [({"rope_scaling": {"type": "default"}}, 512), ({"rope_parameters": {"rope_type": "longrope"}}, None),
     ({"rope_scaling": {"rope_type": "yarn"}}, None), ({"model_type": "llama"}, None),
     ({"max_position_embeddings": None}, None)],
)  # fmt: skip
def test_only_a_short_phi3_is_told_its_length(config, length):
    given = {"model_type": "phi3", "architectures": ["X"], "max_position_embeddings": 512, **config}
    assert checkpoint._mended(given).get("original_max_position_embeddings") == length


def test_builders_are_told_the_precision_and_their_errors_are_their_last_words(tmp_path, monkeypatch):
    asked = []
    done = SimpleNamespace(returncode=0, stderr="")
    monkeypatch.setattr(onnxruntime_genai.subprocess, "run", lambda command, **_: asked.append(command) or done)
    monkeypatch.setattr(onnxruntime_genai, "offline", lambda: None)
    monkeypatch.setattr(onnxruntime_genai, "whole_checkpoint", lambda _order: (tmp_path, ("note",)))
    target = tmp_path / "a" / "b" / "model"
    order = ToolOrder(source=tmp_path, target=target, format="x")
    assert [*onnxruntime_genai.build(order)] == ["note"]
    assert len([*onnxruntime_genai.build(replace(order, options={"weights": "i4"}))]) == 2
    for command, precision in zip(asked, ("fp32", "int4"), strict=True):
        given = dict(zip(command[3::2], command[4::2], strict=False))
        assert (given["--input"], given["--output"], given["--precision"]) == (str(tmp_path), str(target), precision)
        assert given["--cache_dir"] == str(tmp_path / "a" / "builder")
    done.returncode = 1
    done.stderr = "ValueError: first\nNotImplementedError: no such.\n at exit\n"
    with pytest.raises(FormatError, match=r"builder failed: NotImplementedError: no such\. Its list"):
        [*onnxruntime_genai.build(order)]
    assert onnxruntime_genai._reason("one\n two \n") == "two"
    assert onnxruntime_genai._reason("\n") == "it gave no reason"


def test_executorchs_error_is_the_operator_or_its_first_two_lines():
    assert _reason(ValueError("x Operator torch._ops.aten.roll.default is not")) == (
        "it has no form of the operator aten.roll.default"
    )
    assert _reason(ValueError("Missing out variants: {'aten::x'}")) == "it has no form of the operator 'aten::x'"
    assert _reason(ValueError("one:\n\n two.\nthree")) == "one: two"
    assert _reason(ValueError("")) == "ValueError"
    assert len(_reason(ValueError("x" * 999))) == 300
