"""The command that carries a finding's advice out."""

import pytest

from inferometer.core.device import LOCAL
from inferometer.core.finding import Finding
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, Profile
from inferometer.core.workload import Workload
from inferometer.known import device
from inferometer.measure.prepare.artifact import Origin, keep_origin
from inferometer.understand.advice import preparations, prepare_command

DEVICE = device("arm-neoverse-n1-2-cores")


def profile(name, runtime, source=None):
    return Profile(
        kind="measured", model=ModelFacts(name=name, source=source), device=DeviceFacts(name=LOCAL), runtime=runtime,
        workload=Workload(), phases=(), summary=Headline(),
    )  # fmt: skip


def finding(*changes):
    return Finding(
        code="compute.bound",
        severity="info",
        title="t",
        advice="a",
        gain=3.4,
        gain_low=1.4,
        gain_high=8.2,
        changes=changes,
    )


@pytest.mark.parametrize(
    ("model", "runtime", "change", "quantise"),
    [
        ("resnet50", "onnxruntime", "precision=i8", "i8"),
        ("resnet50", "openvino", "weights=i4", "i4-weights"),
        ("llama-3.2-1b", "llamacpp", "weights=q4_0", "q4_0"),
        ("resnet50", "onnxruntime", "weights=q4_0", None),
        ("resnet50", "onnxruntime", "batch=8", None),
        ("resnet50", "vllm", "weights=i8", None),
    ],
)
def test_a_change_of_formats_is_made_where_a_tool_makes_it(model, runtime, change, quantise):
    assert next((way.quantise for way in preparations(model, runtime, change)), None) == quantise


def test_the_first_finding_that_a_tool_can_act_on_becomes_a_command_with_the_gain_of_what_is_made():
    command = prepare_command(profile("resnet50", "onnxruntime"), DEVICE, [finding("batch=8"), finding("precision=i8")])
    made, gain = command.split("  # predicted gain ")
    assert made == "inferometer prepare resnet50 --for onnxruntime --quantise i8 -o resnet50-i8.onnx"
    assert float(gain.split(" ×")[0]) > 1.5
    # LiteRT stores f16 and multiplies in f32: what the finding promises for computing in f16 does not come
    assert prepare_command(profile("resnet50", "litert"), DEVICE, [finding("precision=f16")]) is None


def test_a_folder_is_named_for_an_engine_that_opens_one():
    command = prepare_command(profile("smollm2-135m", "ctranslate2"), DEVICE, [finding("weights=i8")])
    assert " -o smollm2-135m-i8-dynamic " in command


def test_advice_about_a_prepared_file_begins_with_what_it_was_made_of(tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path / "cache"))
    made = tmp_path / "renamed.param"
    made.write_text("7767517")
    keep_origin(made, Origin(model="resnet50", image=64))
    ways = preparations(str(made), "ncnn", "weights=f16")
    assert [(way.model, way.image) for way in ways] == [("resnet50", 64)]
    made.write_text("7767518")
    assert preparations(str(made), "ncnn", "weights=f16") == ()


def test_a_file_that_is_not_here_is_no_model_to_prepare():
    away = profile("mine", "onnxruntime", source="/nowhere/mine.onnx")
    assert prepare_command(away, DEVICE, [finding("precision=i8")]) is None
