"""What quantising would bring is told before anything is made, op by op; and a search keeps to its goals."""

import json

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from inferometer.cli.commands.prepare import command
from inferometer.core.errors import DomainError
from inferometer.engines.onnxruntime.sensitivity import weight_drifts
from inferometer.formats.synth import synthesise
from inferometer.known.engines import engine
from inferometer.measure.prepare import search as searching
from inferometer.measure.prepare.foretell import Foretold, foretell
from inferometer.measure.prepare.run import Prepared, PrepareRequest
from inferometer.measure.prepare.search import Found, Goal, chosen, parse_goal
from inferometer.predict.gains import Gain


def gain(value, low, high):
    return Gain(
        change="x", phase="forward", before_s=1.0, after_s=1 / value, gain=value, low=low, high=high,
        throughput_gain=value,
    )  # fmt: skip


def test_every_format_of_a_target_is_foretold_and_its_ops_add_up():
    found = foretell(PrepareRequest(model="mobilenet-v2", runtime="onnxruntime", device="raspberry-pi-5"))
    assert {"i8", "i8-dynamic"} <= {row.quantise for row in found}
    for row in found:
        assert row.reason is None
        assert sum(op.before_s for op in row.ops) == pytest.approx(row.gain.before_s, rel=0.05)
        assert sum(op.after_s for op in row.ops) == pytest.approx(row.gain.after_s, rel=0.05)
    whole = next(row for row in found if row.quantise == "i8")
    slower = next(row for row in found if row.quantise == "i8-dynamic")
    assert whole.gain.gain > 2
    assert slower.verdict in {"slower", "likely slower"}, (
        "quantising activations while it runs costs more than it gains"
    )
    assert whole.weight_bytes == pytest.approx(3.5e6, rel=0.05)


def test_what_an_engine_computes_in_other_formats_is_the_reason():
    (found,) = foretell(
        PrepareRequest(model="mobilenet-v2", runtime="openvino", device="raspberry-pi-5", quantise="int8")
    )
    assert found.quantise == "i8"
    assert any("convolution ops of i8 are computed in f32 by openvino" in note for note in found.why)


LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1408,
    "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 8000,
    "max_position_embeddings": 2048, "torch_dtype": "float32",
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "runtime", "device", "quantise", "told"),
    [
        (
            "squeezenet1.1",
            "openvino",
            "raspberry-pi-5",
            "i8",
            "in front of a join are computed in floats by plain loops",
        ),
        ("densenet121", "openvino", "raspberry-pi-5", "i8", "in front of a join are computed in floats by plain loops"),
        (LLAMA, "llamacpp", "raspberry-pi-5", "bf16", "of bf16 are computed in floats by plain loops of llamacpp"),
        (LLAMA, "torch-eager", "raspberry-pi-5", "i8-dynamic", "linear ops of i8 are computed in f32 by torch-eager"),
        (
            "mobilenet-v2",
            "onnxruntime",
            "intel-core-i7-1260p-cpu",
            "i8-dynamic",
            "run at the speed of f32 in onnxruntime",
        ),
    ],
)
def test_what_is_slower_when_quantised_is_foretold_and_named(  # noqa: PLR0917 - a case and its folder
    tmp_path, model, runtime, device, quantise, told
):
    """The misses of the first thirty gains: reference kernels, formats without instructions, weights written out."""
    if isinstance(model, dict):
        (tmp_path / "config.json").write_text(json.dumps(model), encoding="utf-8")
        model = str(tmp_path)
    asked = PrepareRequest(model=model, runtime=runtime, device=device, quantise=quantise)
    (found,) = foretell(asked)
    assert found.verdict in {"slower", "likely slower"}
    assert any(told in why for why in found.why), found.why


@pytest.mark.parametrize(
    ("model", "runtime", "device", "quantise"),
    [
        ("resnet50", "openvino", "raspberry-pi-5", "i8"),  # nothing is joined
        ("squeezenet1.1", "openvino", "intel-core-i7-1260p-cpu", "i8"),  # not on Arm
        (LLAMA, "llamacpp", "aws-graviton3", "bf16"),  # has the instructions
    ],
)
def test_what_has_kernels_of_its_own_is_not_called_slower(tmp_path, model, runtime, device, quantise):
    if isinstance(model, dict):
        (tmp_path / "config.json").write_text(json.dumps(model), encoding="utf-8")
        model = str(tmp_path)
    (found,) = foretell(PrepareRequest(model=model, runtime=runtime, device=device, quantise=quantise))
    assert found.gain.gain > 1
    assert not any("plain loops" in why for why in found.why)


@pytest.mark.parametrize("device", ["raspberry-pi-5", "ampere-altra-q80-30", "intel-core-i7-1260p-cpu"])
@pytest.mark.parametrize("model", ["resnet18", "mobilenet-v2"])
def test_nothing_gains_by_bytes_that_an_engine_multiplies_in_floats(model, device):
    """Eager PyTorch turns bytes to floats around each product: of convolutions too, and whoever quantised them."""
    found = foretell(PrepareRequest(model=model, runtime="torch-eager", device=device))
    assert {row.quantise for row in found} >= {"i8", "i8-weights", "i8-dynamic"}
    assert all(row.gain.gain < 1.005 for row in found)
    (whole,) = (row for row in found if row.quantise == "i8")
    assert whole.verdict in {"slower", "likely slower"}


@pytest.mark.parametrize("device", ["intel-xeon-8380", "intel-core-i7-1260p-cpu"])
@pytest.mark.parametrize(
    ("runtime", "quantise"),
    [("mnn", "f16"), ("mnn", "i8-weights"), ("openvino", "f16"), ("litert", "f16"), ("litert", "i8-weights")],
)
def test_weights_that_are_widened_on_loading_gain_nothing(runtime, quantise, device):
    """No kernel of these engines reads them so: whatever a processor has, it computes what it did."""
    (found,) = foretell(PrepareRequest(model="resnet18", runtime=runtime, device=device, quantise=quantise))
    assert found.gain.gain == pytest.approx(1.0, abs=0.05 if quantise == "f16" else 0.1), "bytes are fewer to read once"
    assert found.gain.low < 1 < found.gain.high
    assert found.verdict == "no gain" or abs(found.gain.gain - 1) > 0.02
    assert found.why
    if quantise == "f16":
        assert found.why == (f"No op changes: {engine(runtime).title} holds such weights as it holds the model's own.",)
        assert found.gain.high / found.gain.low == pytest.approx(1.05**2), "the same kernels have the same errors"


def test_bytes_gain_little_in_an_engine_without_instructions_for_them():
    """MNN's wheel for x86 widens bytes to 16 bits; on Arm it has kernels of bytes."""
    x86, arm = (
        foretell(PrepareRequest(model="resnet18", runtime="mnn", device=device, quantise="i8"))[0]
        for device in ("intel-xeon-8380", "raspberry-pi-5")
    )
    assert x86.gain.gain < 0.9
    assert arm.gain.gain > 2
    assert any("computed in f32 by mnn" in why for why in x86.why)


def test_what_torchao_leaves_alone_does_not_change():
    (dense,) = foretell(
        PrepareRequest(model="resnet18", runtime="torch-eager", device="raspberry-pi-5", quantise="i8-weights")
    )
    changed = {op.kind for op in dense.ops if op.after_s != pytest.approx(op.before_s, rel=1e-3)}
    assert changed == {"linear"}
    assert dense.weight_bytes > 40e6, "convolutions are stored as they were"


def test_a_name_and_its_file_are_foretold_alike(tmp_path):
    """A catalog's network names no formats, and its file does: how an engine runs an op depends on them."""
    path = tmp_path / "net.onnx"
    synthesise("mobilenet-v2", path, format="onnx", weights="f32", seed=0, sizes={})
    for runtime in ("openvino", "onnxruntime"):
        by_name, by_file = (
            foretell(PrepareRequest(model=model, runtime=runtime, device="raspberry-pi-5", quantise="i8"))[0]
            for model in ("mobilenet-v2", str(path))
        )
        assert by_name.gain.gain == pytest.approx(by_file.gain.gain, rel=0.1)


def two_layers(path):
    """y = (x·A)·B with small columns in B and, in A, one row of huge weights: rounding A loses the small ones."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=(8, 8)).astype(np.float32)
    first[0] *= 1000.0
    second = np.eye(8, dtype=np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "A"], ["h"], name="first"),
        helper.make_node("MatMul", ["h", "B"], ["y"], name="second"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", "y")]
    stored = [numpy_helper.from_array(first, "A"), numpy_helper.from_array(second, "B")]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], stored), ir_version=10)
    model.opset_import[0].version = 17
    onnx.save(model, path)


def test_the_drift_of_a_layer_is_of_that_layer_alone(tmp_path):
    two_layers(tmp_path / "net.onnx")
    inputs = [{"x": np.ones((1, 8), np.float32)}]
    eight, four = (weight_drifts(tmp_path / "net.onnx", inputs, bits=bits) for bits in (8, 4))
    assert eight["B"] == pytest.approx(0.0, abs=1e-7), "ones and zeros are whole numbers"
    assert 0 < eight["A"] < four["A"] < 1


def test_a_dry_run_shows_each_layers_drift_beside_its_gain(tmp_path):
    two_layers(tmp_path / "net.onnx")
    asked = [str(tmp_path / "net.onnx"), "--for", "onnxruntime@raspberry-pi-5", "--dry", "--quantise", "i8-dynamic"]
    result = CliRunner().invoke(command, [*asked, "--sensitivity", "--format", "json"])
    assert result.exit_code == 0, result.output
    drifts = {op["name"]: op["drift"] for op in json.loads(result.stdout)["formats"][0]["ops"]}
    assert drifts["first"] > drifts["second"]
    assert "drift alone" in CliRunner().invoke(command, [*asked, "--sensitivity"]).stdout
    assert "drift alone" not in CliRunner().invoke(command, asked).stdout


def test_sensitivity_is_of_one_format_and_of_files_of_onnx(tmp_path):
    refused = CliRunner().invoke(command, ["resnet18", "--for", "onnxruntime", "--dry", "--sensitivity"])
    assert "one format" in str(refused.exception)
    with pytest.raises(DomainError, match="can be told of ONNX files"):
        foretell(PrepareRequest(model="mobilenet-v2", runtime="litert", quantise="i8"), sensitivity=True)


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (gain(2.0, 1.2, 3.0), "faster"), (gain(0.5, 0.3, 0.9), "slower"), (gain(1.2, 0.8, 1.5), "likely faster"),
        (gain(0.8, 0.6, 1.1), "likely slower"), (gain(1.01, 0.9, 1.1), "no gain"), (None, None),
    ],
)  # fmt: skip
def test_a_verdict_is_as_sure_as_its_interval(given, verdict):
    assert Foretold(quantise="i8", gain=given).verdict == verdict


def test_the_command_makes_nothing_and_shows_the_ops_of_one_format(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["resnet50", "--for", "onnxruntime@raspberry-pi-5", "--dry"]
    shown = CliRunner().invoke(command, [*asked, "--quantise", "i8"])
    assert (shown.exit_code, "What i8 changes" in shown.output) == (0, True), shown.output
    document = json.loads(CliRunner().invoke(command, [*asked, "--format", "json"]).stdout)
    assert {row["quantise"]: row["verdict"] for row in document["formats"]}["i8"] in {"faster", "likely faster"}
    assert list(tmp_path.iterdir()) == []


def prepared(gain, size, drift):
    return Prepared(
        model="m", runtime="r", device="local", quantise=None, original_bytes=100, steps=(), artifact=None,
        measured_gain=gain, bytes=size, drift=drift,
    )  # fmt: skip


def test_a_search_marks_what_keeps_its_goals_and_takes_the_fastest_of_it(monkeypatch):
    made = {None: prepared(None, None, None), "i8": prepared(3.0, 25, 0.03), "f16": prepared(1.5, 50, 0.001)}
    monkeypatch.setattr(searching, "carry_out_request", lambda request: made[request.quantise])
    monkeypatch.setattr(searching, "starting_format", lambda *_: ("onnx", False))
    monkeypatch.setattr(searching, "formats_for", lambda *_, **__: ("i8", "f16"))
    request = PrepareRequest(model="m", runtime="onnxruntime")
    found = searching.search(
        request, budget_s=1e9, goals=[Goal(name="drift", most=0.01), Goal(name="latency", most=0.7)]
    )
    assert {row.quantise: row.meets for row in found} == {"as it is": False, "i8": False, "f16": True}
    assert chosen(found).quantise == "f16"
    wide = searching.search(request, budget_s=1e9, goals=[Goal(name="size", most=0.5)])
    assert chosen(wide).quantise == "i8", "both keep it, and it is the faster"
    assert chosen(searching.search(request, budget_s=1e9)) is None, "nothing was aimed at"
    unknown = Found(quantise="x", prepared=prepared(2.0, 10, None))
    assert not Goal(name="drift", most=1.0).met_by(unknown), "what is not known is not kept"


def test_goals_are_read_as_people_write_them():
    assert parse_goal("drift<=1%") == Goal(name="drift", most=0.01)
    assert parse_goal(" Latency ≤ 0.7x") == Goal(name="latency", most=0.7)
    assert parse_goal("size<0.5") == Goal(name="size", most=0.5)
    for wrong in ("drift", "speed<=2", "drift>=1%", "size<=.", "size<=1.2.3"):
        with pytest.raises(DomainError, match="is no goal"):
            parse_goal(wrong)


@pytest.mark.parametrize(("device", "gains"), [("intel-xeon-8380", False), ("intel-xeon-8480plus", True)])
def test_a_half_that_a_processor_has_not_is_widened_and_gains_nothing(tmp_path, device, gains):
    """CTranslate2 converts such weights when it loads them; where the processor has bf16 it keeps them."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    asked = PrepareRequest(model=str(tmp_path), runtime="ctranslate2", device=device, quantise="bf16")
    (found,) = foretell(asked)
    assert (found.gain.gain > 1.2) is gains


@pytest.mark.parametrize(("runtime", "most"), [("torch-eager", 1.1), ("litert", 4.0), ("onnxruntime", 4.0)])
def test_both_sides_of_a_gain_stand_on_one_basis(runtime, most):
    """That machine was calibrated in f32 alone: what was measured is not held against what is assumed."""
    (found,) = foretell(
        PrepareRequest(model="mobilenet-v2", runtime=runtime, device="arm-neoverse-n1-2-cores", quantise="i8")
    )
    assert found.gain.gain < most
    assert (found.gain.gain > 1.5) is (runtime != "torch-eager")
