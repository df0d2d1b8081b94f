"""GGUF files: what is in them, read back by the gguf package and by our own reader."""

from pathlib import Path

import numpy as np
import pytest

from inferometer.core.errors import InferometerError
from inferometer.formats.gguf import write as writer
from inferometer.formats.gguf.header import read_header
from inferometer.formats.gguf.write.file import FORMATS, GgufFacts, file_type, format_of
from inferometer.formats.gguf.write.metadata import LEAST, vocabulary
from inferometer.formats.gguf.write.names import WrittenTensor
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.synth.files import Order
from inferometer.formats.synth.weights import planned, whole

LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 700,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "rope_theta": 500000.0,
}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "vocab_size": 300}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
DEEPSEEK = LLAMA | {
    "model_type": "deepseek_v2", "kv_lora_rank": 32, "q_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 32, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "n_shared_experts": 1, "first_k_dense_replace": 1,
}  # fmt: skip
GPT_OSS = LLAMA | {
    "model_type": "gpt_oss", "head_dim": 64, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 128,
}  # fmt: skip
MAMBA = {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "state_size": 16, "vocab_size": 300}
MAMBA2 = MAMBA | {"model_type": "mamba2", "num_heads": 8, "head_dim": 16, "n_groups": 2, "expand": 2}
QWEN3 = LLAMA | {"model_type": "qwen3", "head_dim": 128}
GEMMA3 = LLAMA | {"model_type": "gemma3_text", "head_dim": 64, "sliding_window": 256, "num_hidden_layers": 7}
PHI3 = LLAMA | {"model_type": "phi3"}
CONFIGS = {
    config["model_type"]: config
    for config in (LLAMA, GPT2, MIXTRAL, DEEPSEEK, GPT_OSS, MAMBA, MAMBA2, QWEN3, GEMMA3, PHI3)
}


def written(tmp_path, config=LLAMA, **others):
    graph = graph_from_config(config, name="tiny")
    (path,) = writer.save(Order(graph=graph, config=config, path=tmp_path / "m.gguf", **others))
    return graph, path


def reference(path: Path):
    package = pytest.importorskip("gguf", reason="the package gguf is not installed")
    return package.GGUFReader(str(path))


def field(reader, key):
    return reader.fields[key].contents()


@pytest.mark.parametrize("name", CONFIGS)
def test_every_parameter_is_in_the_file(tmp_path, name):
    graph, path = written(tmp_path, CONFIGS[name])
    header = read_header(path)
    assert sum(int(np.prod(tensor.shape)) for tensor in header.tensors) == graph.parameters
    assert sum(int(tensor.n_elements) for tensor in reference(path).tensors) == graph.parameters


def test_the_metadata_says_what_the_model_is(tmp_path):
    _, path = written(tmp_path)
    reader = reference(path)
    said = {key: field(reader, f"llama.{key}") for key in ("context_length", "block_count", "attention.head_count_kv")}
    assert said == {"context_length": 1024, "block_count": 2, "attention.head_count_kv": 2}
    assert field(reader, "general.architecture") == "llama"
    assert field(reader, "llama.rope.freq_base") == pytest.approx(500000.0)
    assert field(reader, "llama.attention.layer_norm_rms_epsilon") == pytest.approx(1e-6)
    assert "Random weights, seed 0" in field(reader, "general.description")


def test_the_vocabulary_is_exactly_the_models(tmp_path):
    _, path = written(tmp_path)
    reader = reference(path)
    tokens = field(reader, "tokenizer.ggml.tokens")
    assert len(tokens) == len(set(tokens)) == len(field(reader, "tokenizer.ggml.token_type")) == 700


@pytest.mark.parametrize("weights", FORMATS)
def test_each_format_stores_matrices_so_and_vectors_as_f32(tmp_path, weights):
    graph, path = written(tmp_path, weights=weights)
    header = read_header(path)
    kinds = {tensor.name: tensor.dtype for tensor in header.tensors}
    assert kinds["output_norm.weight"] == kinds["blk.1.ffn_norm.weight"] == "f32"
    assert kinds["blk.0.attn_q.weight"] == weights.removesuffix("_m")
    assert header.padding_bytes < 32 * len(header.tensors)
    assert sum(int(np.prod(tensor.shape)) for tensor in header.tensors) == graph.parameters


def test_the_numbers_are_those_of_every_other_format(tmp_path):
    graph, path = written(tmp_path, seed=4)
    plan = {weight.name: weight for weight in planned(graph)}
    (tensor,) = [tensor for tensor in reference(path).tensors if tensor.name == "blk.1.ffn_up.weight"]
    assert np.array_equal(np.array(tensor.data), whole(plan["model.layers.1.mlp.up_proj.weight"], 4))


def test_llamas_heads_are_stored_with_their_halves_interleaved(tmp_path):
    graph, path = written(tmp_path, seed=4)
    plan = {weight.name: weight for weight in planned(graph)}
    source = whole(plan["model.layers.1.self_attn.q_proj.weight"], 4)
    (tensor,) = [tensor for tensor in reference(path).tensors if tensor.name == "blk.1.attn_q.weight"]
    heads = next(op["heads"] for _, op in graph.ops() if op.kind == "attention")
    stored, half = np.array(tensor.data), source.shape[0] // heads // 2
    assert np.array_equal(stored[0], source[0])  # of each head rows 0, half, 1, half + 1 …
    assert np.array_equal(stored[1], source[half])
    assert np.array_equal(stored[2], source[1])


def test_a_matrix_that_the_checkpoint_holds_turned_is_turned_back(tmp_path):
    graph, path = written(tmp_path, GPT2)
    plan = {weight.name: weight for weight in planned(graph)}
    (tensor,) = [tensor for tensor in reference(path).tensors if tensor.name == "blk.0.ffn_up.weight"]
    assert np.array_equal(np.array(tensor.data), whole(plan["transformer.h.0.mlp.c_fc.weight"], 0).T)


def test_a_stack_of_experts_is_one_tensor(tmp_path):
    _, path = written(tmp_path, MIXTRAL)
    shapes = {tensor.name: tensor.shape for tensor in read_header(path).tensors}
    assert shapes["blk.0.ffn_down_exps.weight"] == (4, 256, 512)
    assert shapes["blk.0.ffn_gate_inp.weight"] == (4, 256)


def test_latent_attention_is_stored_by_head(tmp_path):
    _, path = written(tmp_path, DEEPSEEK)
    shapes = {tensor.name: tensor.shape for tensor in read_header(path).tensors}
    assert shapes["blk.0.attn_k_b.weight"] == (4, 32, 32)
    assert shapes["blk.0.attn_v_b.weight"] == (4, 32, 32)
    assert field(reference(path), "deepseek2.leading_dense_block_count") == 1


def test_the_same_order_writes_the_same_bytes(tmp_path):
    graph = graph_from_config(LLAMA, name="tiny")
    for name in ("a", "b"):
        writer.save(Order(graph=graph, config=LLAMA, path=tmp_path / f"{name}.gguf", weights="q4_k_m", seed=9))
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


# recipes


def target(stem, *shape, layer=0):
    return WrittenTensor(name=f"blk.{layer}.{stem}.weight", shape=shape, parts=(), stem=stem, layer=layer, matrix=True)


def test_a_file_says_llama_cpps_own_number_of_its_format():
    gguf = pytest.importorskip("gguf")
    others = {"f32": "ALL_F32", "q3_k": "MOSTLY_Q3_K_S", "q4_k": "MOSTLY_Q4_K_S", "q5_k": "MOSTLY_Q5_K_S"}
    assert {name: file_type(name) for name in FORMATS} == {
        name: gguf.LlamaFileType[others.get(name, f"MOSTLY_{name.upper()}")] for name in FORMATS
    }


def test_a_plain_name_means_every_matrix():
    model = GgufFacts(layers=32)
    assert {format_of(target(stem, 512, 256), "q6_k", model) for stem in ("output", "attn_v", "ffn_up")} == {"q6_k"}


def test_q4_k_m_spends_bits_where_llama_cpp_does():
    model = GgufFacts(layers=32, heads=32, kv_heads=8)
    down = [format_of(target("ffn_down", 4096, 14336, layer=layer), "q4_k_m", model) for layer in range(32)]
    assert [layer for layer, kind in enumerate(down) if kind == "q6_k"] == [
        0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31,
    ]  # fmt: skip
    assert format_of(target("output", 128256, 4096), "q4_k_m", model) == "q6_k"
    assert format_of(target("attn_q", 4096, 4096), "q4_k_m", model) == "q4_k"


@pytest.mark.parametrize(
    ("model", "stem", "found"),
    [
        # eight experts share what is not theirs: it gets more bits
        (GgufFacts(layers=32, experts=8), "attn_k", ("q8_0", "q8_0")),
        (GgufFacts(layers=32, experts=8), "attn_v", ("q8_0", "q8_0")),
        (GgufFacts(layers=32, experts=8), "attn_output", ("q5_k", "q5_k")),
        (GgufFacts(layers=32, experts=8), "attn_q", ("q4_k", "q5_k")),
        (GgufFacts(layers=32, experts=8), "ffn_up_exps", ("q4_k", "q5_k")),
        (GgufFacts(layers=32, experts=64), "attn_k", ("q4_k", "q5_k")),
        # 80 layers that share keys and values
        (GgufFacts(layers=80, heads=64, kv_heads=8), "attn_v", ("q5_k", "q5_k")),
        (GgufFacts(layers=80, heads=64, kv_heads=64), "attn_v", ("q4_k", "q5_k")),
        (GgufFacts(layers=32, heads=32, kv_heads=8), "attn_v", ("q4_k", "q5_k")),
        (GgufFacts(layers=32), "attn_qkv", ("q5_k", "q6_k")),
    ],
)
def test_mixtures_spend_bits_by_what_a_model_shares(model, stem, found):
    """llama.cpp's `llama_tensor_get_type`, in a layer that gets none for its place."""
    layer = model.layers // 8 + 1
    asked = (format_of(target(stem, 512, 1024, layer=layer), name, model) for name in ("q4_k_m", "q5_k_m"))
    assert tuple(asked) == found


def test_a_tied_embedding_is_the_output_too():
    embedding = target("token_embd", 1000, 256)
    assert format_of(embedding, "q4_k_m", GgufFacts(layers=4, tied=True)) == "q6_k"
    assert format_of(embedding, "q4_k_m", GgufFacts(layers=4)) == "q4_k"


@pytest.mark.parametrize(
    ("asked", "row", "found"), [("q4_k", 896, "q5_0"), ("q6_k", 896, "q8_0"), ("q4_0", 40, "f16"), ("q8_0", 64, "q8_0")]
)
def test_rows_that_are_no_whole_blocks_take_the_next_format(asked, row, found):
    assert format_of(target("attn_q", 8, row), asked, GgufFacts(layers=1)) == found


# vocabulary


@pytest.mark.parametrize("size", [LEAST, 300, 32_000, 262_144, 500_000])
def test_a_vocabulary_has_the_size_asked_for(size):
    made = vocabulary(size)
    assert len(made.tokens) == len(set(made.tokens)) == len(made.types) == size
    assert made.tokens[made.begin] == "<s>"
    assert made.tokens[made.end] == "</s>"


def test_every_merge_joins_tokens_that_are_there():
    made = vocabulary(5000)
    known = set(made.tokens)
    for merge in made.merges:
        left, right = merge.split(" ")
        assert {left, right, left + right} <= known


def test_a_vocabulary_without_room_for_the_bytes_is_refused():
    with pytest.raises(InferometerError, match="97 tokens cannot work"):
        vocabulary(97)


# bad input


def test_an_unknown_format_names_the_known_ones(tmp_path):
    with pytest.raises(InferometerError, match="iq2_xs") as caught:
        written(tmp_path, weights="iq2_xs")
    assert "q4_k_m" in caught.value.remedy


def test_a_model_that_llama_cpp_has_not_is_refused(tmp_path):
    config = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
              "intermediate_size": 64, "vocab_size": 300, "max_position_embeddings": 64}  # fmt: skip
    with pytest.raises(InferometerError, match="cannot be written as GGUF") as caught:
        written(tmp_path, config)
    assert "llama" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_falcon_with_biases_is_refused_as_llama_cpp_would(tmp_path):
    config = {"model_type": "falcon", "hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 6,
              "vocab_size": 300, "bias": True}  # fmt: skip
    with pytest.raises(InferometerError, match="no biases"):
        written(tmp_path, config)
