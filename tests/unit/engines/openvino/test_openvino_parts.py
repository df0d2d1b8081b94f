"""OpenVINO's names, counters, devices and words: what needs no engine."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.errors import DomainError, EngineError, UnknownNameError
from inferometer.engines.base import Target
from inferometer.engines.openvino.adopt import listed_layers, own_names
from inferometer.engines.openvino.devices import (
    choose_device,
    engine_words,
    fault_of,
    placement_note,
    precision_hint,
    unit_of,
)
from inferometer.engines.openvino.executed import CounterReading, RunningMeans, mean_between

# light SqueezeNet as OpenVINO 2026.4.1 names it: n0 is a Conv with a bias, n65 a Softmax in three pieces
CONSUMERS = {
    "data_0": ["n0/WithoutBiases"], "n0/WithoutBiases": ["n0"], "n0": ["n1"], "n1": ["Reshape_561"],
    "Reshape_561": ["Softmax_563"], "Softmax_563": ["softmaxout_1"], "softmaxout_1": ["result"], "result": [],
}  # fmt: skip
KNOWN = {"n0": "n0", "n1": "n1", "softmaxout_1": "n65", "n65": "n65"}


def test_a_piece_with_a_made_up_name_belongs_to_the_node_it_leads_to():
    own = own_names(CONSUMERS, KNOWN)
    assert own["n0/WithoutBiases"] == "n0"
    assert own["Reshape_561"] == own["Softmax_563"] == "n65"
    assert "result" not in own


def test_a_fused_kernel_lists_its_nodes_once():
    own = {**KNOWN, **own_names(CONSUMERS, KNOWN)}
    assert listed_layers("n0/WithoutBiases,n0,n1", own) == ("n0", "n1")
    assert listed_layers("", own) == ()
    assert listed_layers("Reorder_1", own) == ()


def test_a_name_with_a_comma_is_still_a_name():
    assert listed_layers("a,b,c", {"a,b": "first", "c": "second"}) == ("first", "second")


def test_running_means_become_the_mean_since_the_last_reading():
    before, after = CounterReading(steps=2, means_s={"k": 10e-6}), CounterReading(steps=6, means_s={"k": 20e-6})
    # 6 · 20.5 − 2 · 10.5 = 102 µs in 4 steps
    assert mean_between(before, after) == pytest.approx({"k": 25.5e-6})


def test_a_kernel_that_was_not_there_before_has_all_its_time():
    assert mean_between(CounterReading(), CounterReading(steps=4, means_s={"k": 8e-6})) == pytest.approx({"k": 8.5e-6})


def test_no_step_gives_no_sample():
    means = RunningMeans()
    assert means.take(CounterReading(steps=0, means_s={})) == {}
    assert len(means.take(CounterReading(steps=3, means_s={"k": 1e-6}))["k"]) == 3
    assert means.take(CounterReading(steps=3, means_s={"k": 1e-6})) == {}


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=50), st.data())
def test_the_mean_is_right_to_the_rounding_of_the_counters(micros, data):
    """The engine keeps the mean in whole microseconds, rounded down."""
    cut = data.draw(st.integers(1, len(micros) - 1))

    def reading(count):
        return CounterReading(steps=count, means_s={"k": sum(micros[:count]) // count * 1e-6})

    found = mean_between(reading(cut), reading(len(micros)))["k"]
    truth = sum(micros[cut:]) / (len(micros) - cut) * 1e-6
    slack = 0.5e-6 * (len(micros) + cut) / (len(micros) - cut)
    assert found == pytest.approx(truth, abs=slack + 1e-12) or found == 0.0


def target(**more):
    return Target(path=Path("m.onnx"), format="onnx", **more)


def test_the_cpu_is_the_default_device():
    assert choose_device(target(), ["CPU"]) == "CPU"
    assert choose_device(target(unit="gpu:1"), ["CPU", "GPU.0", "GPU.1"]) == "GPU.1"
    assert choose_device(target(unit="gpu"), ["CPU", "GPU.0"]) == "GPU"
    assert choose_device(target(providers=("AUTO:CPU",)), ["CPU"]) == "AUTO:CPU"


def test_a_device_that_is_not_here_says_which_are():
    with pytest.raises(EngineError, match="only CPU"):
        choose_device(target(unit="npu"), ["CPU"])
    with pytest.raises(UnknownNameError, match="Here: CPU"):
        choose_device(target(providers=("GPU",)), ["CPU"])
    with pytest.raises(UnknownNameError, match="cpu"):
        choose_device(target(unit="tpu"), ["CPU"])
    with pytest.raises(DomainError, match="gpu:1"):
        choose_device(target(unit="gpu:a"), ["CPU"])


def test_a_model_in_f32_is_computed_in_f32_unless_told_otherwise():
    assert precision_hint(None, all_f32=True) == "f32"
    assert precision_hint(None, all_f32=False) is None
    assert precision_hint("bf16", all_f32=True) == "bf16"


def test_where_it_really_runs_is_said():
    assert placement_note("CPU", ["CPU"]) == ()
    assert placement_note("GPU", ["CPU"]) == ("GPU was asked for, and the engine runs on CPU.",)
    assert placement_note("AUTO", ["CPU"]) == ("AUTO was asked for; the engine chose CPU.",)
    assert [unit_of(name) for name in ("CPU", "GPU.1", "NPU", "AUTO")] == ["cpu", "gpu", "npu", "cpu"]


# as OpenVINO 2026.4.1 says it
NO_RULE = """Exception from src/inference/src/cpp/core.cpp:84:
Check 'false' failed at src/frontends/common_translators/src/unconverted_ops_report.cpp:151:
FrontEnd API failed with OpConversionFailure:
Model wasn't fully converted.
Summary:
-- No conversion rule found for operations: my.ops.Frob

"""
NO_RANK = (
    "While validating ONNX node '<Node(Conv): decoder/Conv_output_0>': The input data tensor's rank has to be known"
)


def test_the_engines_words_are_shortened_and_the_op_is_named():
    assert engine_words(NO_RULE) == "No conversion rule found for operations: my.ops.Frob"
    for words, about in (
        (NO_RULE, " at my.ops.Frob:"),
        (NO_RANK, " at Conv (node 'decoder/Conv_output_0'):"),
        ("no", ":"),
    ):
        assert f"OpenVINO refused 'm.onnx'{about}" in str(fault_of(Path("m.onnx"), "refused", RuntimeError(words)))
