from dataclasses import replace

import pytest

from inferometer import predict
from inferometer.core import Precision
from inferometer.core.binding import Binding
from inferometer.core.engine import RuntimeEffects
from inferometer.core.errors import DomainError
from inferometer.core.graph import Op, Tensor
from inferometer.known import device as device_named
from inferometer.known import devices
from inferometer.known.engines import engines, runtime_effects
from inferometer.predict.precision import (
    arithmetic_for,
    engine_formats,
    resolved_precision,
    widened_to,
    with_overrides,
)
from unit.predict.decoders import LLAMA_3_1_8B, at, project
from unit.predict.examples import image, op, same
from unit.predict.machines import machine, stated

GEMM = project("linear", "x", "y", 64, 64)
CONV = op("convolution", [image("x", 4)], [image("y", 4)], kernel=(3, 3), in_channels=4, out_channels=4)
IDEAL = RuntimeEffects(name="ideal", title="ideal")
Q4 = at(precision=Precision(weights="q4_0", activations="bf16"))


def peaks(*names):
    return machine(peaks={name: stated(1e12) for name in names})


def computed(example, key, device, effects=IDEAL, binding=None):
    return arithmetic_for(example, key, binding or at(), device, effects)


def test_products_run_in_the_format_of_the_activations():
    assert computed(GEMM, "bf16", peaks("f32", "bf16")).name == "bf16"
    assert computed(GEMM, "bf16", peaks("f32", "bf16"), binding=Q4).name == "bf16"


def test_a_runtime_may_compute_stored_weights_in_their_own_way():
    on_cpu, llamacpp = replace(peaks("f32", "f16", "i8"), unit="cpu"), runtime_effects("llamacpp")
    assert computed(GEMM, "bf16", on_cpu, llamacpp, Q4).name == "i8"
    assert computed(GEMM, "bf16", peaks("f32", "f16", "i8"), llamacpp, Q4).name == "i8"
    assert computed(GEMM, "bf16", peaks("f32", "f16"), llamacpp, Q4).name == "f16"  # Metal has no peak for 8 bits
    found = computed(GEMM, "bf16", peaks("f32"), runtime_effects("llamacpp"), Q4)
    assert found.name == "f32"
    assert "q4_0 are computed in f32 by llamacpp" in found.note


def test_without_a_rule_a_missing_peak_is_an_error_that_names_the_others():
    with pytest.raises(
        DomainError, match=r"machine has no peak for bf16 \(it has: f32, i8\), which ideal computes bf16"
    ):
        computed(GEMM, "bf16", peaks("f32", "i8"))
    with pytest.raises(DomainError, match="No peak of machine is known in any number format"):
        computed(GEMM, "bf16", machine(peaks={}))


def test_a_format_that_the_device_lacks_is_computed_in_what_the_runtime_says_instead():
    found = computed(GEMM, "bf16", peaks("f32", "f16"), runtime_effects("torch-compile"))
    assert found.name == "f32"
    assert found.note == "machine has no bf16 peak: torch-compile computes it in f32."
    assert computed(GEMM, "bf16", peaks("f16", "i8"), runtime_effects("ideal")).name == "f16"
    assert computed(GEMM, "f32", peaks("bf16"), runtime_effects("ideal")).name == "bf16"
    with pytest.raises(DomainError, match=r"no peak for bf16 or f32 \(it has: i8\).*--weights i8 --activations i8"):
        computed(GEMM, "bf16", peaks("i8"), runtime_effects("torch-compile"))


def test_what_stands_in_for_a_format_does_not_change_how_it_is_computed_where_it_is_there():
    """Weights in bf16 under activations in f32 are multiplied in f32."""
    mixed = at(precision=Precision(weights="bf16", activations="f32"))
    for runtime in ("ideal", "torch-eager", "torch-compile"):
        assert computed(GEMM, "f32", peaks("bf16", "f32"), runtime_effects(runtime), mixed).name == "f32"


def test_a_rule_may_be_for_one_kind_of_op():
    torch = runtime_effects("torch-eager")
    assert computed(CONV, "f32", peaks("f32", "tf32"), torch).name == "tf32"
    assert computed(GEMM, "f32", peaks("f32", "tf32"), torch).name == "f32"
    assert computed(CONV, "f32", peaks("f32"), torch).name == "f32"


def test_autocast_multiplies_in_the_format_of_the_activations():
    weight = replace(CONV, weights=GEMM.weights)
    cast = at(precision=Precision(weights="f32", activations="f16"))
    device = peaks("f32", "tf32", "f16")
    assert computed(weight, "f16", device, runtime_effects("torch-eager"), cast).name == "f16"
    single = at(precision=Precision(weights="f32", activations="f32"))
    assert computed(weight, "f32", device, runtime_effects("torch-eager"), single).name == "tf32"


def test_everything_else_runs_on_the_vector_units():
    assert computed(same("softmax"), "bf16", peaks("bf16", "f32")).name == "f32"
    assert computed(same("softmax"), "bf16", peaks("bf16")).name == "bf16"
    assert computed(same("softmax"), "bf16", peaks("i8")).name == "i8"
    assert computed(same("softmax"), "bf16", machine(peaks={})).name is None


def test_formats_that_are_not_asked_for_are_the_models():
    assert resolved_precision(LLAMA_3_1_8B, Precision()) == Precision(weights="bf16", activations="bf16", kv="bf16")
    asked = Precision(weights="int8", activations="fp16")
    assert resolved_precision(LLAMA_3_1_8B, asked) == Precision(weights="i8", activations="f16", kv="f16")
    assert resolved_precision(replace(LLAMA_3_1_8B, precision=None), Precision()).weights == "f32"


def test_overrides_go_by_the_ops_names():
    mixed = with_overrides(LLAMA_3_1_8B, {"*.down_proj": "q8_0", "lm_head": "f16"})
    formats = {o.name: o.weights[0].dtype for _, o in mixed.ops() if o.weights}
    assert formats["layers.{}.down_proj"] == "q8_0"
    assert formats["lm_head"] == "f16"
    assert formats["layers.{}.up_proj"] is None


def test_whole_numbers_that_no_datasheet_lists_run_as_eight_bits():
    assert computed(GEMM, "u8", peaks("f32", "i8")).name == "i8"
    assert computed(GEMM, "u8", peaks("f32", "i8")).note is None
    wide = computed(GEMM, "i16", peaks("f32", "i8"))
    assert (wide.name, wide.note) == ("i8", "machine has no i16 peak: ideal computes it in i8.")
    with pytest.raises(DomainError, match="no peak for u8 or i8"):
        computed(GEMM, "u8", peaks("bf16"))


@pytest.mark.parametrize(
    ("engine", "device", "kind", "stored", "computed"),
    [
        ("openvino", "arm-neoverse-n1-2-cores", "convolution", "i8/i8", "f32"),
        ("openvino", "arm-neoverse-n1-2-cores", "convolution", "i8/f32", "f16"),
        ("openvino", "arm-neoverse-n1-2-cores", "linear", "i8/i8", "i8"),
        ("openvino", "arm-neoverse-n1-2-cores", "linear", "i8/f32", "f16"),
        ("openvino", "intel-xeon-8480plus", "convolution", "i8/i8", "i8"),
        ("openvino", "intel-xeon-8480plus", "convolution", "i8/f32", "bf16"),
        ("openvino", "intel-xeon-8480plus", "linear", "i8/f32", "i8"),
        # Only a compiler joins what torchao leaves around a product with it, and on Arm not even that.
        ("torch-eager", "arm-neoverse-n1-2-cores", "convolution", "i8/i8", "f32"),
        ("torch-eager", "intel-xeon-8480plus", "linear", "i8/i8", "f32"),
        ("torch-compile", "arm-neoverse-n1-2-cores", "convolution", "i8/i8", "f32"),
        ("torch-compile", "intel-xeon-8480plus", "convolution", "i8/i8", "i8"),
        ("torch-eager", "nvidia-h200", "linear", "i8/i8", "i8"),
    ],
)
def test_bytes_are_multiplied_where_the_engine_has_kernels_for_that_kind_of_op_on_the_device(
    engine, device, kind, stored, computed
):
    weights, activations = stored.split("/")
    tensors = {
        "inputs": (Tensor(name="x", shape=(1, 8), dtype=activations),),
        "weights": (Tensor(name="w", shape=(8, 8), dtype=weights, role="weight"),),
    }
    op = Op(name="p", kind=kind, **tensors, attributes={"in_channels": 8})
    found = arithmetic_for(op, activations, Binding(), device_named(device), runtime_effects(engine))
    assert found.name == computed


def test_a_model_that_is_multiplied_in_floats_whatever_is_stored_stands_among_those_in_floats():
    arm, effects = device_named("arm-neoverse-n1-2-cores"), runtime_effects("openvino")
    both, alone, plain = (Precision(weights=a, activations=b) for a, b in (("i8", "i8"), ("i8", "f32"), ("f32", "f32")))
    assert [widened_to("convolution", precision, arm, effects) for precision in (both, alone, plain)] == [
        "f32", "f16", None,
    ]  # fmt: skip
    assert widened_to("convolution", both, device_named("intel-xeon-8480plus"), effects) is None


@pytest.mark.parametrize("runtime", ["torch-compile", "tensorrt", "onnxruntime"])
def test_weights_in_halves_are_a_half_model_on_a_gpu(runtime):
    """--weights f16 of a model of single precision is what module.half() makes of it, not products in f32."""
    asked = {"on": "nvidia-l4", "runtime": runtime, "batch": 32, "prompt": 384}
    weights = predict("bert-base", weights="f16", **asked)
    both = predict("bert-base", weights="f16", activations="f16", **asked)
    assert weights.summary.latency_s == both.summary.latency_s


def test_an_encoder_in_single_precision_says_what_halves_would_do():
    notes = " ".join(predict("bert-base", on="nvidia-l4", batch=32).provenance.notes)
    assert "Computed in f32" in notes
    assert "Computed in f32" not in " ".join(predict("bert-base", on="nvidia-l4", weights="f16").provenance.notes)


def test_weights_alone_in_bytes_say_how_int8_throughout_is_asked_for():
    assert "--activations i8" in " ".join(predict("resnet50", on="nvidia-l4", weights="i8").provenance.notes)
    both = predict("resnet50", on="nvidia-l4", weights="i8", activations="i8")
    assert "--activations i8" not in " ".join(both.provenance.notes)


@pytest.mark.parametrize("device", ["rockchip-rk3588-npu", "nxp-imx8m-plus-npu", "qualcomm-snapdragon-8-gen-3-npu"])
def test_bytes_asked_for_on_an_npu_are_int8_throughout_and_nothing_else_is_said(device):
    weights = predict("resnet50", on=device, weights="i8")
    both = predict("resnet50", on=device, weights="i8", activations="i8")
    assert weights.summary.latency_s == both.summary.latency_s
    assert "--activations i8" not in " ".join(weights.provenance.notes)


@pytest.mark.parametrize(
    "device", ["hailo-8l", "st-stm32n6-npu", "google-coral-edge-tpu", "horizon-rdk-x5-npu", "amd-kv260-dpu"]
)
def test_a_unit_that_runs_whole_numbers_alone_is_answered_with_what_its_engine_makes_and_says_so(device):
    default, asked = predict("resnet50", on=device), predict("resnet50", on=device, weights="i8", activations="i8")
    assert default.summary == asked.summary
    assert "All of it is in i8" in " ".join(default.provenance.notes)
    assert "All of it is in i8" not in " ".join(asked.provenance.notes)


def test_floats_that_are_asked_for_stay_as_they_were_asked_for():
    assert predict("resnet50", on="hailo-8l", weights="f16").workload.precision.activations == "f32"


def test_every_npu_and_edge_tpu_has_an_engine_that_its_owners_run_for_a_small_network():
    units = [name for name, row in devices().items() if row.unit in {"npu", "tpu"}]
    assert not [name for name in units if predict("mobilenet-v2", on=name).runtime == "ideal"]


def test_only_engines_of_gguf_files_take_bits_for_blocks_of_them():
    asked = Precision(weights="i8", activations="f16", kv="i4")
    for name, described in {**engines(), "nobodys": None}.items():
        found = engine_formats(asked, name)
        if described is not None and described.small.byte.startswith("q"):
            assert found == replace(asked, weights=described.small.byte, kv=described.small.narrow)
            assert engine_formats(Precision(weights="f16"), name) == Precision(weights="f16")
        else:
            assert found == asked, name
