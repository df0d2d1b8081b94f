"""Synthesised files run: in ONNX Runtime with finite outputs, in llama.cpp with generated tokens, and alike in both."""

import numpy as np
import pytest

from inferometer import known
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.formats.gguf.write.file import FORMATS
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.onnx import write as onnx_writer
from inferometer.formats.resolve import read
from inferometer.formats.synth import synthesise
from inferometer.formats.synth.files import Order

LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 512,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
SMALL = {key: value for key, value in LLAMA.items() if key != "model_type"}
DECODERS = {
    "llama": {},
    "mistral": {"sliding_window": 6},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 128},
    "gemma2": {
        "head_dim": 64, "sliding_window": 6, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
        "tie_word_embeddings": True,
    },
    "gemma3_text": {"head_dim": 64, "sliding_window": 6, "num_hidden_layers": 7, "tie_word_embeddings": True},
    "phi3": {},
    "olmo2": {},
    "starcoder2": {},
    "gpt_neox": {},
    "falcon": {},
}  # fmt: skip
GGUF_ONLY = {
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {"head_dim": 64, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256},
    "deepseek_v2": {
        "kv_lora_rank": 64, "q_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 64,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    },
    "gpt_oss": {"head_dim": 64, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 128},
    "mamba": {"state_size": 16},
    "mamba2": {"state_size": 16, "num_heads": 8, "head_dim": 64, "n_groups": 2},
}  # fmt: skip
# torchvision's and transformers' counts: the catalog holds them with their sources
PICTURES = ["mobilenet-v3-large", "efficientnet-b0", "yolov8n", "resnet50", "convnext-tiny", "swin-t"]
PATCHES = {
    "model_type": "vit", "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 192,
    "image_size": 64, "patch_size": 16, "num_channels": 3, "num_labels": 10,
}  # fmt: skip


@pytest.fixture
def session_of():
    runtime = pytest.importorskip("onnxruntime", reason="SKIPPED LOUDLY: onnxruntime is not installed, nothing was run")
    pytest.importorskip("onnx", reason="SKIPPED LOUDLY: onnx is not installed, nothing was run")

    def opened(path):
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1  # more would spin while they wait for each other
        options.log_severity_level = 3
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    return opened


def feed_of(session, sizes):
    """Random inputs of the sizes asked for."""
    random = np.random.default_rng(0)
    feed = {}
    for entry in session.get_inputs():
        shape = [size if isinstance(size, int) else sizes[size] for size in entry.shape]
        whole = "int64" in entry.type
        kind = np.float16 if "16" in entry.type else np.float32
        feed[entry.name] = random.integers(0, 200, shape) if whole else random.standard_normal(shape).astype(kind)
    return feed


def parameters_in(path):
    """What the file itself stores, running statistics of batch norms left out."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    statistics = {name for node in model.graph.node if node.op_type == "BatchNormalization" for name in node.input[3:]}
    return sum(int(np.prod(entry.dims)) for entry in model.graph.initializer if entry.name not in statistics)


def assert_runs(session, path, parameters, sizes):
    assert parameters_in(path) == parameters
    for output in session.run(None, feed_of(session, sizes)):
        assert np.isfinite(output).all()
        assert np.abs(output).max() > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PICTURES, "all-minilm-l6-v2"])
def test_a_catalog_model_runs_with_its_published_parameters(tmp_path, session_of, name):
    made = synthesise(name, tmp_path / "m.onnx")
    assert made.parameters == known.model(name).parameters.value
    assert_runs(session_of(made.path), made.path, made.parameters, {"batch": 2, "query": 9})


def test_a_vision_transformer_runs(tmp_path, session_of):
    made = synthesise(PATCHES, tmp_path / "m.onnx")
    assert_runs(session_of(made.path), made.path, made.parameters, {"batch": 2})


@pytest.mark.slow
def test_the_encoder_of_whisper_runs(tmp_path, session_of):
    made = synthesise("whisper-tiny", tmp_path / "m.onnx", part="encoder", sizes={"batch": 1})
    assert made.parameters == 8_208_384
    session = session_of(made.path)
    assert_runs(session, made.path, made.parameters, {})
    assert session.get_outputs()[0].shape == [1, 1500, 384]


def test_a_picture_model_runs_at_another_size_and_in_f16(tmp_path, session_of):
    made = synthesise("mobilenet-v3-large", tmp_path / "m.onnx", weights="fp16", sizes={"image": 96})
    session = session_of(made.path)
    assert session.get_inputs()[0].shape == ["batch", 3, 96, 96]
    assert_runs(session, made.path, made.parameters, {"batch": 1})


def test_a_size_the_model_has_not_is_refused(tmp_path, session_of):
    with pytest.raises(UnknownNameError, match="image"):
        synthesise("squeezenet1.1", tmp_path / "m.onnx", sizes={"imag": 96})
    with pytest.raises(DomainError, match="whole number"):
        synthesise("squeezenet1.1", tmp_path / "m.onnx", sizes={"image": 0})


@pytest.mark.parametrize("name", ["squeezenet1.1", "mobilenet-v3-large"])
def test_our_own_reader_finds_every_parameter(tmp_path, session_of, name):
    made = synthesise(name, tmp_path / "m.onnx")
    assert read(made.path).parameters == made.parameters


def test_the_same_order_writes_the_same_bytes(tmp_path, session_of):
    for name in ("a", "b"):
        synthesise(LLAMA, tmp_path / f"{name}.onnx", seed=2)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_a_folder_with_external_data_runs(tmp_path, session_of):
    graph = graph_from_config(LLAMA, name="tiny")
    inside = onnx_writer.save(Order(graph=graph, config=LLAMA, path=tmp_path / "in.onnx"))
    beside = onnx_writer.save(Order(graph=graph, config=LLAMA, path=tmp_path / "out.onnx"), inline_bytes=0)
    assert [path.name for path in beside] == ["out.onnx.data", "out.onnx"]
    sizes = {"batch": 1, "query": 4, "context": 0}
    one, other = session_of(inside[-1]), session_of(beside[-1])
    for a, b in zip(one.run(None, feed_of(one, sizes)), other.run(None, feed_of(other, sizes)), strict=True):
        assert np.array_equal(a, b)


def stepped(session, ids, at):
    """Logits after the tokens, given in two steps with the cache between them."""
    first = feed_of(session, {"batch": ids.shape[0], "query": 1, "context": 0})
    names = [entry.name for entry in session.get_outputs()]
    given = dict(zip(names, session.run(None, first | {"input_ids": ids[:, :at]}), strict=True))
    cache = {name: given[name.replace("past_key_values", "present")] for name in first if name != "input_ids"}
    return session.run(["logits"], cache | {"input_ids": ids[:, at:]})[0]


@pytest.mark.parametrize("name", DECODERS)
def test_a_cache_gives_what_the_whole_prompt_gives(tmp_path, session_of, name):
    config = SMALL | {"model_type": name} | DECODERS[name]
    session = session_of(synthesise(config, tmp_path / "m.onnx").path)
    ids = np.random.default_rng(1).integers(0, 512, (2, 11))
    empty = feed_of(session, {"batch": 2, "query": 11, "context": 0})
    (whole,) = session.run(["logits"], empty | {"input_ids": ids})
    assert np.allclose(stepped(session, ids, 10), whole, atol=1e-4)
    assert np.allclose(stepped(session, ids, 4), whole, atol=1e-4)
    other = ids.copy()
    other[:, 7] = (other[:, 7] + 1) % 512  # near enough for every window
    (changed,) = session.run(["logits"], empty | {"input_ids": other})
    assert np.abs(changed - whole).max() > 1e-3


# llama.cpp


@pytest.fixture
def server_of():
    engine = pytest.importorskip("xllamacpp", reason="SKIPPED LOUDLY: xllamacpp is not installed, no GGUF was loaded")

    def started(path):
        parameters = engine.CommonParams()
        parameters.model.path = str(path)
        parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = 64, 1, 0
        parameters.cpuparams.n_threads = 1
        parameters.warmup, parameters.verbosity = False, -1
        return engine.Server(parameters)

    return started


def completed(server, prompt, **others):
    return server.handle_completions({"prompt": prompt, "max_tokens": 4, "ignore_eos": True, **others})


@pytest.mark.parametrize("name", [*DECODERS, *GGUF_ONLY])
def test_llama_cpp_loads_and_generates(tmp_path, server_of, name):
    config = SMALL | {"model_type": name} | {**DECODERS, **GGUF_ONLY}[name]
    answer = completed(server_of(synthesise(config, tmp_path / "m.gguf", weights="q8_0").path), "hello, world")
    assert answer["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("weights", FORMATS)
def test_llama_cpp_reads_every_format(tmp_path, server_of, weights):
    answer = completed(server_of(synthesise(LLAMA, tmp_path / "m.gguf", weights=weights).path), "the end")
    assert answer["usage"]["completion_tokens"] == 4


def test_the_vocabulary_joins_letters(tmp_path, server_of):
    server = server_of(synthesise(LLAMA, tmp_path / "m.gguf").path)
    assert completed(server, "zzzz")["usage"]["prompt_tokens"] == 1 + 4  # the mark of the beginning and four letters
    assert completed(server, "tata")["usage"]["prompt_tokens"] == 1 + 2


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "gpt_neox", "starcoder2", "falcon"])
def test_both_runtimes_say_the_same_of_the_same_weights(tmp_path, session_of, server_of, name):
    config = SMALL | {"model_type": name} | DECODERS[name]
    session = session_of(synthesise(config, tmp_path / "m.onnx", seed=6).path)
    feed = feed_of(session, {"batch": 1, "query": 5, "context": 0})
    for first in range(100):
        ids = [first, 77, 200, 45, 9]
        logits = session.run(["logits"], feed | {"input_ids": np.array([ids])})[0][0, -1].astype(np.float64)
        if logits.argmax() > 255:  # llama.cpp says nothing of a token that is a part of a letter
            break
    ours = logits - np.log(np.exp(logits).sum())
    server = server_of(synthesise(config, tmp_path / "m.gguf", seed=6).path)
    answer = completed(server, ids, max_tokens=1, temperature=0, logprobs=5, n_probs=5)
    theirs = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    assert len(theirs) >= 5
    for entry in theirs:
        assert ours[entry["id"]] == pytest.approx(entry["logprob"], abs=0.02)  # its cache is f16
