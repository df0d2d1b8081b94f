"""The command that carries a finding's advice out."""

import pytest

from inferometer.core.device import LOCAL
from inferometer.core.finding import Finding
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, Profile
from inferometer.core.workload import Workload
from inferometer.explain.advice import prepare_command, quantise_for


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
    assert quantise_for(model, runtime, change) == quantise


def test_the_first_finding_that_a_tool_can_act_on_becomes_a_command_with_its_predicted_gain():
    command = prepare_command(profile("resnet50", "onnxruntime"), [finding("batch=8"), finding("precision=i8")])
    assert command == (
        "inferometer prepare resnet50 --for onnxruntime --quantise i8 -o resnet50-i8.onnx"
        "  # predicted gain 3.4 × (1.4 to 8.2)"
    )


def test_a_file_that_is_not_here_is_no_model_to_prepare():
    away = profile("mine", "onnxruntime", source="/nowhere/mine.onnx")
    assert prepare_command(away, [finding("precision=i8")]) is None
