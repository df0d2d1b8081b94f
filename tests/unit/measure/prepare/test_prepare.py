"""Preparing a small network: what is proven of it, what is kept, and what is refused."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

from fakes.in_process import measured_here
from inferometer.core.errors import DomainError, EngineError, FormatError, InferometerError
from inferometer.core.profile import Verification
from inferometer.core.settings import cache_folder
from inferometer.engines.order import ToolOrder
from inferometer.formats import synth
from inferometer.formats.resolve import read
from inferometer.known.engines import engine
from inferometer.measure.prepare import carrying_out, child, proof, run
from inferometer.measure.prepare import search as searching
from inferometer.measure.prepare.artifact import source_of
from inferometer.measure.prepare.calibration import ports_of, write_calibration
from inferometer.measure.prepare.carrying_out import _key, _size, answer_of, model_files
from inferometer.measure.prepare.proof import MeasuredGain, ProvedFile, _gain, after_step, of_file_and_engine
from inferometer.measure.prepare.run import Prepared, PrepareRequest, prepare, prepared_document
from inferometer.measure.prepare.search import Found, with_best
from inferometer.measure.prepare.steps import step_named
from inferometer.measure.run import model as running
from inferometer.measure.run.inputs import make_inputs
from inferometer.predict.ask import ask
from unit.measure.prepare.networks import convolution_onnx

# What other programs read of a step.
CONTRACT = {"name", "tool", "bytes", "verified", "drift", "predicted_gain", "measured_gain", "verdict"}


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    """Engines and tools take a second to import in each process of their own: this one has them.

    What they make is kept apart: in the folder of all workers lie also the files that others are just making.
    """
    monkeypatch.setattr(running, "isolated", measured_here)
    monkeypatch.setattr(carrying_out, "_child", lambda step, order, *_: child.carry_out(step.work, order))
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path / "cache"))


@pytest.fixture(name="network")
def _network(tmp_path):
    return convolution_onnx(tmp_path / "small.onnx")


def quick(network, **asked):
    return prepare(str(network), **{"runtime": "onnxruntime", "measure": False, **asked})


@pytest.fixture(name="believed")
def _believed(monkeypatch):
    """Every step is right: what is tested is not whether it is, and looking takes long."""
    monkeypatch.setattr(run, "verified", lambda *_: Verification(status="verified", rms_rel=0.0))


def gained(verdict, reason=""):
    return lambda *_arguments, **_more: MeasuredGain(
        gain=0.5, low=0.4, high=0.6, verdict=verdict, reason=reason, profile=None
    )


def partial_files():
    return list((cache_folder() / "prepared").glob(".partial*"))


def test_int8_is_smaller_right_by_the_formats_and_not_made_twice(network, tmp_path, monkeypatch):
    really, believe = run.verified, lambda *_: Verification(status="verified", rms_rel=0.0)
    monkeypatch.setattr(
        run, "verified", lambda *asked: (really if asked[1].path.match("ort-i8*/*") else believe)(*asked)
    )
    out = tmp_path / "small-i8.onnx"
    first = quick(network, quantise="int8", out=out)
    document = prepared_document(first)
    assert Path(document["artifact"]) == out
    assert out.is_file()
    assert all(row.keys() >= CONTRACT for row in document["steps"])
    quantised = next(row for row in first.steps if row.name == "ort-i8")
    assert quantised.verified
    assert 0 < quantised.drift < 0.1
    assert quantised.predicted_low < quantised.predicted_gain < quantised.predicted_high
    assert partial_files() == []
    monkeypatch.setattr(run, "verified", believe)
    again = quick(network, quantise="int8", out=out, overwrite=True)
    assert all(row.cached for row in again.steps)
    assert [row.cached for row in first.steps] != [row.cached for row in again.steps]


def test_an_existing_file_and_a_name_that_the_engine_does_not_open_are_refused_before_any_work(network, tmp_path):
    out = tmp_path / "there.onnx"
    out.write_bytes(b"earlier")
    with pytest.raises(DomainError, match="exists already"):
        quick(network, out=out)
    with pytest.raises(FormatError, match=r"\.onnx or \.ort"):
        quick(network, out=tmp_path / "model.xml")
    assert out.read_bytes() == b"earlier"


def test_calibration_files_that_hold_no_numbers_are_refused(network, tmp_path, believed):
    array = np.zeros((1, 3, 16, 16), np.float32)
    array[0, 1, 2, 3] = np.nan  # one is enough
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(DomainError, match="not finite for the input 'x'"):
        quick(network, quantise="i8", calibrate_with=str(tmp_path / "a.npy"), out=tmp_path / "o.onnx")


def test_calibration_files_of_another_shape_are_refused_with_both_shapes(network, tmp_path, believed):
    np.save(tmp_path / "a.npy", np.zeros((1, 3, 8, 8), np.float32))
    with pytest.raises(DomainError, match=r"float32 \[1, 3, 16, 16\].*a.npy' holds float32 \[1, 3, 8, 8\]"):
        quick(network, quantise="i8", calibrate_with=str(tmp_path / "a.npy"), out=tmp_path / "o.onnx")
    assert not (tmp_path / "o.onnx").exists()


def test_a_folder_gives_the_sets_of_inputs_in_both_kinds_of_files(network, tmp_path):
    given, made = tmp_path / "given", tmp_path / "made"
    given.mkdir()
    made.mkdir()
    np.save(given / "a.npy", np.full((1, 3, 16, 16), 1, np.float32))
    np.savez(given / "b.npz", x=np.full((1, 3, 16, 16), 2, np.float32), other=np.zeros(3))
    (given / "notes.txt").write_text("what they are")
    written = write_calibration(read(str(network)), {"x": (1, 3, 16, 16)}, [str(given)], made)
    assert [float(np.load(path)["x"].max()) for path in written] == [1, 2]


def ordered(folder, **more):
    source = folder / "m.onnx"
    source.exists() or convolution_onnx(source)
    return ToolOrder(**{"source": source, "target": folder / "t", "format": "onnx", **more})


def test_a_result_is_kept_by_all_that_it_was_made_of(tmp_path):
    """Other options, other calibration files or other sizes are another result; the same content elsewhere is not."""
    step = replace(step_named("ort-i8"), calibrated=True, fixed=True)
    inputs = tmp_path / "a.npz", tmp_path / "b.npz"
    for number, path in enumerate(inputs):
        np.savez(path, x=np.full(4, number, np.float32))
    orders = [
        ordered(tmp_path),
        ordered(tmp_path, options={"symmetric": "1"}),
        ordered(tmp_path, shapes={"x": (1, 3, 16, 16)}),
        ordered(tmp_path, calibration=inputs[:1]),
        ordered(tmp_path, calibration=inputs[1:]),
    ]
    keys = [_key(step, order, (order.source,)) for order in orders]
    assert len(set(keys)) == len(orders)
    (tmp_path / "elsewhere").mkdir()
    other = ordered(tmp_path / "elsewhere")
    assert _key(step, other, (other.source,)) == keys[0]


def test_the_weights_beside_a_text_of_layers_are_part_of_the_model(tmp_path):
    for name in ("m.param", "m.bin", "m.xml", "other.bin"):
        (tmp_path / name).write_bytes(b"1")
    assert [path.name for path in model_files(tmp_path / "m.param")] == ["m.param", "m.bin"]
    assert [path.name for path in model_files(tmp_path / "m.xml")] == ["m.xml", "m.bin"]


def test_a_step_needs_room_for_the_model_twice_and_more(monkeypatch):
    monkeypatch.setattr(carrying_out, "available_bytes", lambda: 2_400)
    with pytest.raises(DomainError, match=r"2\.5 kB of memory for a model of 1 kB, and 2\.4 kB are available"):
        carrying_out._require_memory(step_named("ort-i8"), 1_000)
    carrying_out._require_memory(step_named("ort-i8"), 900)


def test_ranges_are_never_found_with_the_inputs_that_outputs_are_verified_with(network, tmp_path):
    graph = read(str(network))
    shapes = {graph.inputs[0].name: (1, 3, 16, 16)}
    (checked,) = make_inputs(ports_of(graph, shapes), sizes={}, seed=5).values()
    for path in write_calibration(graph, shapes, ["random"], tmp_path, seed=5):
        (array,) = np.load(path).values()
        assert array.shape == checked.shape
        assert not np.array_equal(array, checked)


def test_the_weights_beside_a_text_of_layers_count_in_its_size(tmp_path):
    (tmp_path / "model.xml").write_bytes(b"x" * 10)
    (tmp_path / "model.bin").write_bytes(b"x" * 1000)
    assert _size(tmp_path, step_named("openvino-ir")) == 1010


def test_of_a_tool_that_died_the_last_lines_are_told(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("".join(f"line {number}\n\n" for number in range(20)))
    answer = answer_of(tmp_path / "no answer", -9, log)
    assert "ended by signal 9" in answer.error
    assert "line 19" in answer.error
    assert "line 2\n" not in answer.error
    assert "memory" in answer.remedy


def test_inputs_of_a_graph_without_formats_are_ids_or_numbers():
    for name, port, dtype in (("bert-base-uncased", "input_ids", "int64"), ("resnet50", "pixel_values", "float32")):
        graph = read(name)
        assert [(made.name, made.dtype) for made in ports_of(graph, {port: (1, 8)})] == [(port, dtype)]


def test_the_ends_of_a_gain_are_those_of_the_ratio_turned_round():
    metric = SimpleNamespace(ratio=0.5, low=0.4, high=0.8, verdict="faster", reason=None)
    found = _gain(metric, None)
    assert (found.low, found.gain, found.high) == (1.25, 2.0, 2.5)


def test_what_is_predicted_to_be_faster_has_a_gain_above_one(monkeypatch):
    questions = {device: ask("resnet50", on=device) for device in ("nvidia-t4", "nvidia-h200")}
    monkeypatch.setattr(proof, "_asked", lambda _proving, candidate: questions[candidate.path.name])
    slow, quick_one = (ProvedFile(path=Path(name), runtime=name) for name in questions)
    found = proof.predicted_gain(None, slow, quick_one)
    assert found.gain > 1
    assert found.low < found.gain < found.high
    assert proof.predicted_gain(None, quick_one, slow).gain == pytest.approx(1 / found.gain)


def test_a_later_step_has_the_last_word_on_a_format():
    before = ProvedFile(path=Path("a"), runtime=None, changes={"weights": "f16", "activations": "f16"}, sizes={"n": 2})
    step = replace(step_named("ort-i8"), changes={"weights": "i8"}, fixed=True)
    after = after_step(step, before, Path("b"), "onnxruntime")
    assert (after.changes, after.sizes) == ({"weights": "i8", "activations": "f16"}, {})


def test_what_makes_the_outputs_wrong_is_shown_and_not_written(network, tmp_path, monkeypatch):
    def judged(_proving, candidate):
        wrong = bool(candidate.changes)
        return Verification(status="failed" if wrong else "verified", reason="off by much" if wrong else None)

    monkeypatch.setattr(run, "verified", judged)
    prepared = quick(network, quantise="i8", out=tmp_path / "o.onnx")
    assert (prepared.right, prepared.artifact) == (False, None)
    assert prepared.steps[-1].verdict == "wrong"
    assert not (tmp_path / "o.onnx").exists()
    assert quick(network, quantise="i8", out=tmp_path / "o.onnx", force=True).artifact == tmp_path / "o.onnx"


def test_only_a_step_that_was_asked_for_may_be_slower(network, monkeypatch, believed):
    monkeypatch.setattr(run, "measured_gain", gained("slower"))
    prepared = prepare(str(network), runtime="onnxruntime", quantise="i8")
    assert {row.name: row.kept for row in prepared.steps} == {"simplify": False, "ort-i8": True, "ort-optimise": False}
    assert prepared.artifact.parent.name.startswith("ort-i8")


def test_what_is_undecided_says_why(network, monkeypatch, believed):
    monkeypatch.setattr(run, "measured_gain", gained("undecided", "8 runs are too few"))
    quantised = prepare(str(network), runtime="onnxruntime", quantise="i8-dynamic").steps[-1]
    assert quantised.notes[-1] == "Undecided: 8 runs are too few."
    monkeypatch.setattr(run, "measured_gain", gained("faster", "ratio 0.5"))
    quantised = prepare(str(network), runtime="onnxruntime", quantise="i8-dynamic").steps[-1]
    assert not any("ratio" in note for note in quantised.notes)


def test_ctrl_c_ends_the_measuring_of_a_step_and_all_that_would_follow(network, monkeypatch, believed):
    half = SimpleNamespace(profile=None, complete=False)
    monkeypatch.setattr(proof, "measure_in_turns", lambda *_: (half, half))
    with pytest.raises(KeyboardInterrupt):
        quick(network, quantise="i8-dynamic", measure=True)
    assert partial_files() == []


def test_what_cannot_be_written_is_refused_before_any_work(network, tmp_path):
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(DomainError, match="is a folder"):
        quick(network, out=tmp_path / "folder.onnx", overwrite=True)
    with pytest.raises(DomainError, match="Nothing can be written"):
        quick(network, out=network / "inside.onnx")
    with pytest.raises(DomainError, match="is the model itself"):
        quick(network, out=network, overwrite=True)
    with pytest.raises(InferometerError, match="no device named 'nvidia-h2000'"):
        quick(network, device="nvidia-h2000", out=tmp_path / "x.onnx")


def test_an_old_file_is_renewed_until_scales_may_be_those_of_channels(network, tmp_path):
    old = onnx.load(network)
    old.opset_import[0].version = 12  # its operators were the same then
    onnx.save(old, tmp_path / "old.onnx")
    found = quick(tmp_path / "old.onnx", quantise="i8")
    assert found.right
    assert found.drift < 0.05


def test_a_tool_that_fails_says_which_step_it_was_and_leaves_nothing(network, monkeypatch):
    from inferometer.measure.prepare import chain, steps

    broken = replace(steps.step_named("ort-i8-dynamic"), name="broken", work=".onnxruntime.convert:nothing_such")
    monkeypatch.setattr(chain, "STEPS", (broken,))
    monkeypatch.setattr(chain, "usable", lambda *_, **__: (broken,))
    with pytest.raises(InferometerError, match=r"The step broken \(onnxruntime\) failed.*nothing_such"):
        quick(network, quantise="i8-dynamic")
    assert partial_files() == []


def prepared(gain, size, drift, *, right=True):
    return Prepared(
        model="m", runtime="r", device="local", quantise=None, original_bytes=100, steps=(), artifact=None,
        measured_gain=gain, bytes=size, drift=drift, right=right,
    )  # fmt: skip


def test_the_front_has_what_no_other_right_one_beats_in_every_respect():
    found = (
        Found(quantise="as it is", prepared=prepared(1.0, 100, 0.0)),
        Found(quantise="i8", prepared=prepared(3.0, 25, 0.01)),
        Found(quantise="i8-dynamic", prepared=prepared(0.5, 26, 0.02)),
        Found(quantise="i4", prepared=prepared(4.0, 13, 0.9, right=False)),
        Found(quantise="f16", reason="not tried"),
    )
    assert [row.quantise for row in with_best(found) if row.best] == ["as it is", "i8"]


def test_of_two_as_quick_and_as_right_the_smaller_is_the_better():
    found = (
        Found(quantise="as it is", prepared=prepared(1.0, 100, 0.0)),
        Found(quantise="weights", prepared=prepared(1.0, 50, 0.0)),
    )
    assert [row.quantise for row in with_best(found) if row.best] == ["weights"]


@pytest.mark.parametrize(
    ("plain", "own", "status", "says"),
    [
        ({"status": "failed", "reason": "off by 3 %"}, {"status": "verified"}, "failed", "computed in f32, off by 3 %"),
        ({"status": "verified"}, {"status": "failed", "rms_rel": 0.06, "reason": "off by 6 %"}, "verified", "in f16"),
        ({"status": "verified"}, {"status": "failed", "reason": "not finite"}, "failed", "--activations f32"),
        ({"status": "verified"}, {"status": "failed", "rms_rel": 0.9, "reason": "off by 90 %"}, "failed", "--force"),
    ],
    ids=["the file is wrong", "the engine drifts", "beyond the largest number", "says nothing"],
)
def test_a_file_is_proven_in_f32_and_its_engine_may_drift(plain, own, status, says):
    """Limits of an engine's f16 sums are wide: a file that is wrong by less must not hide behind them."""
    verdict = of_file_and_engine(Verification(**plain), Verification(computed="f16", **own))
    assert verdict.status == status
    assert says in verdict.reason
    assert verdict.rms_rel == own.get("rms_rel")


def test_a_file_that_its_engine_refuses_is_wrong_and_not_written(network, tmp_path, monkeypatch):
    def refused(*_arguments, **_more):
        raise EngineError("ncnn refused it: layer Gather not exists.")

    monkeypatch.setattr(proof, "verify_against", refused)
    monkeypatch.setattr(proof, "measure_model", refused)
    out = tmp_path / "small.ort"
    prepared = quick(network, out=out)
    assert not prepared.right
    assert prepared.artifact is None
    assert "layer Gather" in prepared.steps[-1].notes[-1]
    assert not out.exists()


def test_random_weights_of_another_seed_or_size_are_another_file(monkeypatch):
    monkeypatch.setattr(synth, "synthesise", lambda *_given, **_more: None)
    asked = ({}, {"seed": 1}, {"image": 64}, {})
    assert len({source_of("squeezenet1.1", engine("onnxruntime"), **options) for options in asked}) == 3


def test_what_there_is_no_time_for_is_listed_and_not_tried(network, monkeypatch):
    tried = []

    def made(request):
        tried.append(request.quantise)
        return prepared(1.0, 100, 0.0)

    monkeypatch.setattr(searching, "carry_out_request", made)
    times = iter(range(0, 100, 10))  # each look at the clock is ten seconds after the last
    found = searching.search(
        PrepareRequest(model=str(network), runtime="onnxruntime"), budget_s=15.0, clock=lambda: next(times)
    )
    assert [row.reason for row in found[:2]] == [None] * 2
    assert len(tried) == 2
    assert {row.reason for row in found[2:]} == {"not tried: the budget is used up"}
