"""PyTorch loads all floats of a model into the format that it computes in: f32 on a CPU, if no other is asked for."""

import pytest

from inferometer.formats.synth import synthesise
from inferometer.known.engines import engines
from inferometer.predict.ask import ask

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 128,
    "max_position_embeddings": 64, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
CPU, GPU = "arm-neoverse-n1-2-cores", "nvidia-h100-sxm"


def answered(model="smollm2-135m", on=CPU, runtime="torch-eager", **formats):
    return ask(model, on=on, runtime=runtime, prompt=8, generate=2, **formats).answer()


def formats(profile):
    precision = profile.workload.precision
    return precision.weights, precision.activations


@pytest.mark.parametrize("runtime", ["torch-eager", "torch-compile"])
def test_a_model_in_halves_is_predicted_in_f32_on_a_cpu_and_in_its_own_on_a_gpu(runtime):
    plain, single = answered(runtime=runtime), answered(runtime=runtime, weights="f32", activations="f32")
    assert formats(plain) == ("f32", "f32")
    assert plain.model.weight_bytes == 4 * plain.model.parameters
    assert [phase.time_s for phase in plain.phases] == [phase.time_s for phase in single.phases]
    assert answered(on=GPU, runtime=runtime).model.weight_bytes == 2 * plain.model.parameters


def test_formats_that_are_asked_for_stay():
    assert formats(answered(weights="bf16")) == ("bf16", "bf16"), "one of floats is the other"
    assert formats(answered(weights="i8")) == ("i8", "f32")
    assert formats(answered(weights="f32", activations="bf16")) == ("f32", "bf16")


def test_a_checkpoint_in_halves_is_widened_as_it_is_loaded(tmp_path):
    folder = synthesise(LLAMA, tmp_path / "bf16", format="safetensors", weights="bf16").path
    wide = synthesise(LLAMA, tmp_path / "f32", format="safetensors", weights="f32").path
    ours, same = answered(str(folder)), answered(str(wide), activations="f32")
    assert ours.model.weight_bytes == same.model.weight_bytes
    for mine, theirs in zip(ours.phases, same.phases, strict=True):
        if mine.name != "load":  # of half the bytes
            assert (mine.time_s, mine.bytes) == (theirs.time_s, theirs.bytes)


def test_engines_without_kernels_of_halves_hold_a_model_in_another_float():
    holding = {"torch-eager", "torch-compile", "torch-graph", "onnxruntime", "litert"}
    assert {name for name, each in engines().items() if each.effects.held} == holding
    assert formats(answered(runtime="ideal", on=GPU))[1] in {None, "bf16"}


@pytest.mark.parametrize(
    ("device", "runtime"),
    [
        ("rockchip-rk3588-npu", None), ("hailo-8", None), ("google-coral-edge-tpu", None),
        ("nvidia-t4", "tensorrt"), ("nvidia-jetson-orin-nano-8gb", None), ("qualcomm-snapdragon-8-gen-3-npu", "qnn"),
    ],
)  # fmt: skip
def test_a_compiler_that_quantises_networks_whole_is_not_asked_for_weights_alone(device, runtime):
    def latency(**asked):
        answer = ask("mobilenet-v2", on=device, runtime=runtime, **asked).answer()
        return formats(answer), answer.summary.latency_s

    alone, both = latency(weights="i8"), latency(weights="i8", activations="i8")
    assert alone == both
    assert alone[0] == ("i8", "i8")
    assert latency(weights="i8", activations="f16")[0] == ("i8", "f16"), "who says it gets it"


def test_weights_of_a_language_model_and_of_other_engines_stay_alone():
    assert formats(ask("smollm2-135m", on="nvidia-t4", runtime="tensorrt", weights="i8").answer())[1] != "i8"
    assert formats(ask("mobilenet-v2", on=CPU, runtime="onnxruntime", weights="i8").answer()) == ("i8", "f32")
