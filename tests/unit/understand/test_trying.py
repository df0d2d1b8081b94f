"""Advice put to the test: with an engine whose times are known, and with a real one."""

import json
import shlex
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from fakes.fake_runtime import ABLE
from fakes.in_process import measured_here
from inferometer.cli import progress
from inferometer.cli.commands import explain as explain_module
from inferometer.cli.commands.explain import _asked, command
from inferometer.cli.commands.profile import command as profile_command
from inferometer.core.errors import DomainError, EngineError, InferometerError
from inferometer.core.finding import Finding
from inferometer.core.workload import Workload
from inferometer.engines.base import Capabilities
from inferometer.measure.bench.files import load_profile, save_profile
from inferometer.measure.prepare.run import PrepareRequest
from inferometer.measure.run import model as running
from inferometer.measure.run.model import MeasureRequest
from inferometer.understand.trying import require_ours, same_request, try_changes, with_change, with_preparation
from inferometer.understand.view.explanations import trial_table
from unit.understand.explain_cases import PAIRS, forward, profile, sampled, steady

TESTS = Path(__file__).parents[2]


def finding(*changes, gain=None, **more):
    return Finding(code="threads.too-few", severity="info", title="t", gain=gain, changes=changes, **more)


ASKED = MeasureRequest(model="m.fake", runtime="fake", threads=1)


def test_a_change_that_helps_is_found_faster_with_its_gain():
    asked_for = []

    def measure(request):
        asked_for.append(request)
        return exactly(4.0)(request)

    (trial,) = try_changes([finding("threads=4", gain=3.5)], ASKED, measure=measure, can=ABLE)
    assert trial.verdict == "faster"
    assert trial.low <= trial.obtained <= trial.high
    assert trial.obtained == pytest.approx(4.0, rel=0.05)
    assert trial.predicted == 3.5
    assert trial.before_s > trial.after_s
    # The baseline before and after, never with the instruments on.
    assert [each.threads for each in asked_for] == [1, 4, 1]
    assert not any(each.shape for each in asked_for)


def exactly(times):
    """Measures without a machine: so many times as fast on four threads, with a per cent of noise."""

    def measure(asked):
        factor = times if asked.threads == 4 else 1.0
        return sampled(tuple(each / factor for each in steady(40)))

    return measure


@pytest.mark.parametrize(("times", "verdict"), [(2.0, "faster"), (1.001, "same"), (0.5, "slower")])
def test_the_verdict_is_of_what_was_measured(times, verdict):
    wanted = [finding("threads=4", gain=2.0, gain_low=1.5, gain_high=2.5)]
    (trial,) = try_changes(wanted, ASKED, measure=exactly(times), can=ABLE)
    assert trial.verdict == verdict
    assert trial.obtained == pytest.approx(times, rel=0.01)
    assert trial.as_predicted is (times == 2.0)


def test_only_a_findings_first_change_has_its_prediction():
    wanted = [finding("threads=4", "batch=2", gain=2.0, gain_low=1.5, gain_high=2.5)]
    first, second = try_changes(wanted, ASKED, measure=exactly(2.0), can=ABLE)
    assert first.predicted == 2.0
    assert second.predicted is None
    assert second.as_predicted is None


def test_a_larger_batch_is_judged_by_what_one_item_takes():
    def measure(request):  # as long for eight as for one
        return sampled(steady(40), workload=request.workload)

    (trial,) = try_changes([finding("batch=8")], ASKED, measure=measure, can=ABLE)
    assert trial.verdict == "faster"
    assert trial.obtained == pytest.approx(8.0, rel=0.05)


def test_a_change_that_fails_says_what_the_engine_said_and_the_others_go_on():
    def refusing(asked):
        if asked.unit == "gpu":
            raise EngineError("no kernel for Foo")
        return exactly(4.0)(asked)

    failed, done = try_changes([finding("unit=gpu"), finding("threads=4")], ASKED, measure=refusing, can=ABLE)
    assert failed.why == "no kernel for Foo"
    assert failed.verdict is None
    assert done.verdict == "faster"


def test_what_cannot_be_tried_says_why_and_nothing_is_measured():
    def never(asked):
        raise AssertionError(asked)

    wanted = [finding("kv=i8", "weights=i4", "unit=npu", "optimisation=all"), finding("kv=i8")]
    trials = try_changes(wanted, ASKED, measure=never, can=ABLE)
    assert [trial.change for trial in trials] == ["kv=i8", "weights=i4", "unit=npu", "optimisation=all"]
    assert all(trial.why for trial in trials)
    table = trial_table([{name: getattr(trial, name) for name in trial.__slots__} for trial in trials])
    assert {row["verdict"] for row in table.rows} == {"not tried"}


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ("threads=4", "threads", 4),
        ("optimisation=none", "optimisation", "none"),
        ("precision=bf16", "precision", "bf16"),
        ("unit=gpu", "unit", "gpu"),
        ("provider=CUDAExecutionProvider", "providers", ("CUDAExecutionProvider",)),
        ("runtime=openvino", "runtime", "openvino"),
    ],
)
def test_a_change_changes_one_thing(change, key, value):
    made = with_change(ASKED, change, ABLE)
    assert getattr(made, key) == value
    assert with_change(ASKED, "batch=8", ABLE).workload.batch == 8


def test_weights_can_be_changed_only_where_they_are_made_up():
    assert with_change(replace(ASKED, model="resnet50"), "weights=f16", ABLE).weights == "f16"
    assert "convert it" in with_change(ASKED, "weights=f16", ABLE)


@pytest.mark.parametrize(
    ("change", "can", "why"),
    [
        ("threads=4", Capabilities(threads=False), "itself"),
        ("threads=1", ABLE, "already"),
        ("optimisation=all", Capabilities(), "no levels"),
        ("unit=npu", ABLE, "does not run on npu"),
        ("cached_prefix=32", ABLE, "on the spot"),
    ],
)
def test_what_an_engine_cannot_do_is_said(change, can, why):
    assert why in with_change(ASKED, change, can)


def test_a_precision_that_the_engine_did_not_apply_is_no_trial():
    def measure(asked):
        found = sampled(steady(20))
        if asked.precision:
            notes = ("ONNX Runtime computes in the types of the file; f16 was asked for and not applied.",)
            found = replace(found, provenance=replace(found.provenance, notes=notes))
        return found

    (trial,) = try_changes([finding("precision=f16")], ASKED, measure=measure, can=ABLE)
    assert "not applied" in trial.why
    assert trial.obtained is None


def test_only_what_we_measured_is_tried():
    require_ours(profile(forward()))
    with pytest.raises(DomainError, match="a prediction"):
        require_ours(profile(forward(), kind="predicted"))
    foreign = profile(forward())
    foreign = replace(foreign, provenance=replace(foreign.provenance, tool="trtexec"))
    with pytest.raises(DomainError, match="from trtexec"):
        require_ours(foreign)


def test_the_question_is_put_again_as_the_profile_tells():
    found = PAIRS["threads.too-few"][0]
    found = replace(found, runtime="onnxruntime", model=replace(found.model, source="/models/m.onnx"))
    asked = same_request(found)
    assert (asked.model, asked.runtime, asked.threads) == ("/models/m.onnx", "onnxruntime", 2)
    assert same_request(replace(found, model=replace(found.model, name="resnet50"))).model == "resnet50"
    with pytest.raises(DomainError, match="does not say where"):
        same_request(profile(forward()))


def test_the_command_line_that_measured_it_is_the_question(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").touch()
    line = "inferometer profile m.onnx --threads 3 --runs 7 --optimisation basic --option a=b --batch 2"
    found = PAIRS["threads.too-few"][0]
    found = replace(
        found, runtime="onnxruntime", workload=Workload(batch=2), model=replace(found.model, source="/models/m.onnx"),
        provenance=replace(found.provenance, command=line),
    )  # fmt: skip
    asked = _asked(found)
    assert (asked.model, asked.threads, asked.optimisation, asked.plan.runs) == ("m.onnx", 3, "basic", 7)
    assert asked.runtime == "onnxruntime"
    assert asked.options == {"a": "b"}
    assert asked.workload.batch == 2
    (tmp_path / "m.onnx").unlink()  # as seen from another folder
    assert _asked(found).model == "/models/m.onnx"
    assert _asked(found).threads == 3
    for broken in ("inferometer profile m.onnx --nonsense", "python script.py", "inferometer profile 'm"):
        again = _asked(replace(found, provenance=replace(found.provenance, command=broken)))
        assert again.model == "/models/m.onnx"


@pytest.mark.parametrize("chosen", ["--provider ./evil.so", "--runtime evil:runtime", "--option CACHE_DIR=/home/x"])
def test_a_command_line_that_may_be_anybodys_chooses_no_library_and_no_module(chosen):
    found = PAIRS["threads.too-few"][0]
    line = f"inferometer profile m.onnx --threads 3 --trust m.onnx {chosen}"
    found = replace(
        found, runtime="onnxruntime", model=replace(found.model, source="/models/m.onnx"),
        provenance=replace(found.provenance, command=line),
    )  # fmt: skip
    asked = _asked(found)
    assert (asked.runtime, asked.providers, asked.options, asked.trust) == ("onnxruntime", (), {}, ())
    with pytest.raises(DomainError, match="cannot be sent with a job"):
        _asked(replace(found, runtime="evil:runtime"))


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory):
    """Three matrix products and their activations: small enough to be quick, large enough to be timed."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for n in range(3):
        weights.append(numpy_helper.from_array(random.standard_normal((384, 384), np.float32), f"w{n}"))
        nodes += [
            helper.make_node("MatMul", [last, f"w{n}"], [f"h{n}"], name=f"mm{n}"),
            helper.make_node("Relu", [f"h{n}"], [f"r{n}"], name=f"relu{n}"),
        ]
        last = f"r{n}"
    shape = ["batch", 384]
    graph = helper.make_graph(
        nodes, "three", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)], weights,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("onnx") / "three.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def _here():
    """ONNX Runtime takes a second to import in each process of its own: this one has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "isolated", measured_here)
        yield


@pytest.fixture(scope="module")
def measured(onnx_file, _here, tmp_path_factory):
    """A real profile, as the command leaves it."""
    out = tmp_path_factory.mktemp("profiles") / "three.json"
    arguments = [str(onnx_file), "--runs", "8", "--seconds", "0.02", "--warmup", "1", "--no-guard", "--threads", "1"]
    arguments += ["--optimisation", "none", "--batch", "4", "-o", str(out)]
    CliRunner().invoke(profile_command, arguments, catch_exceptions=False)
    found = load_profile(out)
    line = shlex.join(["inferometer", "profile", *arguments])
    save_profile(replace(found, provenance=replace(found.provenance, command=line)), out)
    return out


@pytest.mark.slow
def test_a_real_model_is_explained_and_its_advice_tried(measured):
    result = CliRunner().invoke(command, [str(measured), "--try", "--format", "json"], catch_exceptions=False)
    plain = json.loads(result.stdout)
    assert plain["schema"] == "inferometer.explanation/1"
    assert plain["model"] == "three"
    assert plain["findings"]
    for table in plain["attribution"]:
        assert sum(row["time_s"] for row in table["rows"]) + table["remainder_s"] == pytest.approx(table["whole_s"])
    assert plain["tried"], [finding["code"] for finding in plain["findings"]]
    for trial in plain["tried"]:
        assert (trial["verdict"] is None) == (trial["why"] is not None)
        if trial["verdict"]:
            assert trial["obtained"] > 0


@pytest.mark.slow
def test_a_real_model_has_its_page(measured):
    page = CliRunner().invoke(command, [str(measured)], catch_exceptions=False).stdout
    for words in ("Forward by kind of op", "Roofline", "What was noticed", "together", "Next"):
        assert words in page
    csv = CliRunner().invoke(command, [str(measured), "--format", "csv"], catch_exceptions=False).stdout
    assert csv.startswith("code,severity,title,phase,stake_s,gain")
    markdown = CliRunner().invoke(command, [str(measured), "--format", "md"], catch_exceptions=False).stdout
    assert markdown.startswith("# three on ")


def test_a_prediction_cannot_be_tried(tmp_path):
    save_profile(profile(forward(), kind="predicted"), tmp_path / "p.json")
    with pytest.raises(DomainError, match="--try repeats a measurement"):
        CliRunner().invoke(command, [str(tmp_path / "p.json"), "--try"], catch_exceptions=False)


@pytest.mark.parametrize(
    "name", ["torch_gpu.json", "onnxruntime.json", "qai_hub.json", "vllm.json", "trtexec_times.json"]
)
def test_results_of_other_tools_are_explained(name):
    path = TESTS / "data" / "importers" / name
    result = CliRunner().invoke(command, [str(path), "--format", "json"], catch_exceptions=False)
    plain = json.loads(result.stdout)
    for each in plain if isinstance(plain, list) else [plain]:
        assert each["headline"]
        assert each["notes"]


def test_a_code_has_its_page():
    page = CliRunner().invoke(command, ["memory.bound"], catch_exceptions=False).stdout
    for words in ("Evidence", "Why", "What to do", "How sure"):
        assert words in page
    plain = json.loads(CliRunner().invoke(command, ["memory.bound", "--format", "json"], catch_exceptions=False).stdout)
    assert set(plain) == {"code", "what", "evidence", "why", "do", "sure"}


def test_a_run_of_the_store_is_explained(tmp_path):
    pytest.importorskip("sqlalchemy")
    from inferometer.store.recording import recording

    place = str(tmp_path / "runs.db")
    with recording("p", store=place, name="mine", kind="profile") as recorder:
        recorder.keep(PAIRS["compute.bound"][0])
    result = CliRunner().invoke(command, ["last", "--store", place, "--format", "json"], catch_exceptions=False)
    assert json.loads(result.stdout)["model"] == "m"


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(InferometerError, match="There is no file"):
        CliRunner().invoke(command, [str(tmp_path / "nothing.json")], catch_exceptions=False)


def test_a_profile_of_ours_that_does_not_hold_says_why(tmp_path):
    (tmp_path / "p.json").write_text('{"schema": "inferometer.profile/99"}')
    with pytest.raises(InferometerError, match="profile/99"):
        CliRunner().invoke(command, [str(tmp_path / "p.json")], catch_exceptions=False)


def test_a_device_that_is_not_known_is_said(tmp_path):
    save_profile(PAIRS["compute.bound"][0], tmp_path / "p.json")
    with pytest.raises(InferometerError, match="no device named"):
        CliRunner().invoke(command, [str(tmp_path / "p.json"), "--on", "nvidia-h2000"], catch_exceptions=False)


def test_that_there_is_nothing_to_try_is_said(monkeypatch, capsys):
    monkeypatch.setattr("inferometer.understand.trying.require_ours", lambda _: None)
    monkeypatch.setattr(explain_module, "_asked", lambda _: MeasureRequest(model="m.onnx", runtime="onnxruntime"))
    explanation = SimpleNamespace(profile=None, findings=())
    assert explain_module._measured_trials(explanation) == ()
    assert "There is nothing to try" in capsys.readouterr().err
    only = Finding(code="batch.small", severity="info", title="t", changes=("kv=i8",))
    explain_module._measured_trials(SimpleNamespace(profile=None, findings=(only,)))
    assert "None of the changes could be measured with ONNX Runtime" in capsys.readouterr().err


def test_what_takes_long_is_said_while_it_lasts(monkeypatch):
    said, heard = [], threading.Event()
    monkeypatch.setattr(progress, "_say_now", lambda message: (said.append(message), heard.set()))
    with progress.said_if_slow("Explaining …", after_s=0.0):
        assert heard.wait(240)
    with progress.said_if_slow("never", after_s=60.0):
        pass
    assert said == ["Explaining …"]


def test_a_name_of_the_catalog_is_prepared_where_the_engine_computes_in_the_files_types(monkeypatch, tmp_path):
    asked = []
    made = SimpleNamespace(right=True, artifact=tmp_path / "small.onnx")
    monkeypatch.setattr("inferometer.measure.prepare.run.carry_out_request", lambda order: asked.append(order) or made)
    request = MeasureRequest(
        model="mobilenet-v2", runtime="onnxruntime", threads=3, seed=7, workload=Workload(batch=2, image=96)
    )
    changed = with_preparation(request, "precision=i8", replace(ABLE, precision=()))
    assert asked == [
        PrepareRequest(
            model="mobilenet-v2", runtime="onnxruntime", quantise="i8", measure=False, threads=3, seed=7,
            workload=Workload(batch=2, image=96),
        )
    ], "both are measured later, beside each other"  # fmt: skip
    assert changed.model == str(made.artifact)
    kept = with_preparation(request, "precision=i8", replace(ABLE, precision=("i8",)))
    assert (kept.model, kept.precision) == ("mobilenet-v2", "i8"), "this engine computes in it by itself"
    assert len(asked) == 1
