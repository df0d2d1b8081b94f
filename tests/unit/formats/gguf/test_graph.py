import json
from pathlib import Path

import pytest

from inferometer.core.binding import Binding
from inferometer.core.errors import FormatError
from inferometer.formats.base import look
from inferometer.formats.gguf import reader
from inferometer.predict.work.count import coverage, graph_work
from unit.formats.gguf.gguf_bytes import write

RECORDED = Path(__file__).parents[3] / "data" / "huggingface"
SIZES = {"batch": 2, "query": 3, "context": 5, "logits": 1}

ARCHITECTURES = {
    "llama": "llama", "llama_tied": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2",
    "qwen3": "qwen3", "qwen2_moe": "qwen2moe", "gemma": "gemma", "gemma2": "gemma2", "gemma3_text": "gemma3",
    "phi3": "phi3", "phi": "phi2", "gpt2": "gpt2", "gpt_neox": "gptneox", "falcon": "falcon", "falcon_40b": "falcon",
    "mamba": "mamba", "mamba2": "mamba2", "deepseek_v2": "deepseek2", "deepseek_v2_lite": "deepseek2",
    "deepseek_v3": "deepseek2", "gpt_oss": "gpt-oss", "starcoder2": "starcoder2", "olmo2": "olmo2",
    "granite": "granite", "smollm3": "smollm3", "bloom": "bloom",
}  # fmt: skip


def small_llama(layers=4, **changes):
    metadata = {
        "general.architecture": "llama", "llama.block_count": layers, "llama.embedding_length": 256,
        "llama.feed_forward_length": 512, "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2,
        "llama.context_length": 1024,
    }  # fmt: skip
    return metadata | changes


def small_tensors(layers=4, kinds=None, output=False):
    kinds = kinds or ["q4_k"] * layers
    tensors = {"token_embd.weight": ((1000, 256), "q6_k"), "output_norm.weight": ((256,), "f32")}
    if output:
        tensors["output.weight"] = ((1000, 256), "q6_k")
    for layer, kind in enumerate(kinds):
        at = f"blk.{layer}."
        tensors |= {
            f"{at}attn_norm.weight": ((256,), "f32"), f"{at}ffn_norm.weight": ((256,), "f32"),
            f"{at}attn_q.weight": ((256, 256), "q4_k"), f"{at}attn_k.weight": ((128, 256), "q4_k"),
            f"{at}attn_v.weight": ((128, 256), kind), f"{at}attn_output.weight": ((256, 256), "q4_k"),
            f"{at}ffn_gate.weight": ((512, 256), "q4_k"), f"{at}ffn_up.weight": ((512, 256), "q4_k"),
            f"{at}ffn_down.weight": ((256, 512), kind),
        }  # fmt: skip
    return tensors


def read(tmp_path, metadata, tensors, name="model.gguf"):
    write(tmp_path / name, metadata, tensors)
    return reader.read(tmp_path / name)


@pytest.mark.parametrize("case", ARCHITECTURES)
def test_a_converted_model_has_the_parameters_of_the_original(tmp_path, case):
    pytest.importorskip("gguf")
    from unit.formats.gguf import conversions

    recorded = json.loads((RECORDED / f"{case}.json").read_text())
    architecture, config = ARCHITECTURES[case], recorded["saved_config"]
    metadata = conversions.metadata(architecture, config)
    parameters = recorded["parameters"] | recorded["buffers"]
    shapes = conversions.tensors(architecture, metadata[f"{architecture}.block_count"], parameters)
    graph = read(tmp_path, metadata, {name: (shape, "f32") for name, shape in shapes.items()})
    extra = sum(shape[0] for name, shape in recorded["buffers"].items() if name.endswith("correction_bias"))
    assert graph.metadata["notes"] == ()
    assert graph.parameters == recorded["parameter_count"] + extra
    assert coverage(graph).share == 1
    assert sum(tensor.nbytes * times for tensor, times in graph.weights()) == graph.metadata["tensor_bytes"]


def test_a_mixture_whose_layers_all_route_is_read_as_such(tmp_path):
    pytest.importorskip("gguf")
    from inferometer.formats.huggingface.graph import graph_from_config
    from unit.formats.gguf import conversions

    config = json.loads((RECORDED / "qwen3_moe.json").read_text())["saved_config"] | {"mlp_only_layers": []}
    original = graph_from_config(config, name="original")
    parameters = {
        block.full_name(weight.name, layer).replace("*", str(expert)): weight.shape[1:]
        if "*" in weight.name
        else weight.shape
        for block, op in original.ops()
        for weight in op.weights
        for layer in range(block.count)
        for expert in range(weight.shape[0] if "*" in weight.name else 1)
    }
    shapes = conversions.tensors("qwen3moe", config["num_hidden_layers"], parameters)
    metadata = conversions.metadata("qwen3moe", config)
    graph = read(tmp_path, metadata, {name: (shape, "f32") for name, shape in shapes.items()})
    assert (graph.architecture, graph.metadata["notes"]) == ("qwen3_moe", ())
    assert graph.parameters == original.parameters


def test_mixed_quantisation_is_a_block_for_each_run_of_layers(tmp_path):
    graph = read(tmp_path, small_llama(), small_tensors(kinds=["q6_k", "q4_k", "q4_k", "q6_k"]))
    decoders = [block for block in graph.blocks if block.name == "decoder"]
    assert [(block.first, block.count) for block in decoders] == [(0, 1), (1, 2), (3, 1)]
    formats = [
        next(w.dtype for op in block.ops for w in op.weights if w.name.endswith("down_proj.weight"))
        for block in decoders
    ]
    assert formats == ["q6_k", "q4_k", "q6_k"]


def test_every_byte_of_the_file_is_accounted_for(tmp_path):
    graph = read(tmp_path, small_llama(), small_tensors(output=True))
    facts = graph.metadata
    assert facts["header_bytes"] + facts["tensor_bytes"] + facts["padding_bytes"] == facts["file_bytes"]
    assert sum(facts["bytes_by_format"].values()) == facts["tensor_bytes"]
    assert facts["bytes_by_format"]["q6_k"] == 2 * 1000 * 210


def test_without_an_output_matrix_the_embedding_is_tied(tmp_path):
    tied = read(tmp_path, small_llama(), small_tensors())
    untied = read(tmp_path, small_llama(), small_tensors(output=True))
    assert untied.parameters - tied.parameters == 1000 * 256


def test_rotary_factors_take_room_and_are_no_parameters(tmp_path):
    plain = read(tmp_path, small_llama(), small_tensors())
    graph = read(tmp_path, small_llama(), small_tensors() | {"rope_freqs.weight": ((32,), "f32")})
    assert graph.parameters == plain.parameters
    assert graph.metadata["notes"] == ()
    assert graph.metadata["tensor_bytes"] == plain.metadata["tensor_bytes"] + 128
    assert graph.blocks[-1].ops[0].kind == "view"


def test_a_tensor_that_no_op_uses_is_counted_and_named(tmp_path):
    graph = read(tmp_path, small_llama(), small_tensors() | {"blk.0.extra.weight": ((64, 64), "f32")})
    assert graph.parameters == read(tmp_path, small_llama(), small_tensors()).parameters + 64 * 64
    assert "blk.0.extra.weight" in graph.metadata["notes"][0]


def test_experts_may_be_stored_one_by_one(tmp_path):
    tensors = {name: entry for name, entry in small_tensors(1).items() if "ffn_" not in name or "norm" in name}
    tensors["blk.0.ffn_gate_inp.weight"] = ((2, 256), "f32")
    for expert in range(2):
        tensors[f"blk.0.ffn_gate.{expert}.weight"] = ((512, 256), "q4_k")
        tensors[f"blk.0.ffn_up.{expert}.weight"] = ((512, 256), "q4_k")
        tensors[f"blk.0.ffn_down.{expert}.weight"] = ((256, 512), "q4_k")
    metadata = small_llama(1) | {"llama.expert_count": 2, "llama.expert_used_count": 1}
    graph = read(tmp_path, metadata, tensors)
    assert (graph.architecture, graph.metadata["notes"]) == ("mixtral", ())
    experts = next(op for _, op in graph.ops() if op.kind == "moe_experts")
    assert [weight.stored_bytes for weight in experts.weights] == [2 * 512 * 144] * 3


def test_latent_attention_may_store_its_projection_in_two(tmp_path):
    pytest.importorskip("gguf")
    from unit.formats.gguf import conversions

    recorded = json.loads((RECORDED / "deepseek_v3.json").read_text())
    config = recorded["saved_config"]
    metadata = conversions.metadata("deepseek2", config)
    shapes = conversions.tensors("deepseek2", config["num_hidden_layers"], recorded["parameters"] | recorded["buffers"])
    heads, rank = config["num_attention_heads"], config["kv_lora_rank"]
    for layer in range(config["num_hidden_layers"]):
        del shapes[f"blk.{layer}.attn_kv_b.weight"]
        shapes[f"blk.{layer}.attn_k_b.weight"] = (heads, rank, config["qk_nope_head_dim"])
        shapes[f"blk.{layer}.attn_v_b.weight"] = (heads, config["v_head_dim"], rank)
    metadata["deepseek2.attention.key_length_mla"] = metadata["deepseek2.attention.key_length"]
    metadata["deepseek2.attention.key_length"] = rank + config["qk_rope_head_dim"]
    graph = read(tmp_path, metadata, {name: (shape, "f32") for name, shape in shapes.items()})
    assert (graph.architecture, graph.metadata["notes"]) == ("deepseek_v3", ())
    assert graph.metadata["stored_as"].keys() == shapes.keys()


def test_an_unknown_architecture_is_a_graph_of_its_tensors(tmp_path):
    metadata = {"general.architecture": "newcomer", "newcomer.context_length": 77, "general.name": "New"}
    graph = read(tmp_path, metadata, small_tensors(kinds=["q6_k", "q4_k", "q4_k", "q4_k"]))
    assert graph.parameters == read(tmp_path, small_llama(), small_tensors()).parameters
    assert (graph.name, graph.architecture, graph.context_limit) == ("New", "newcomer", 77)
    assert "'newcomer' is not known" in graph.metadata["notes"][0]
    assert [(block.name, block.first, block.count) for block in graph.blocks] == [
        ("embeddings", 0, 1), ("blk", 0, 1), ("blk", 1, 3), ("others", 0, 1),
    ]  # fmt: skip
    assert graph_work(graph, Binding(sizes=SIZES)).weights > 0


@pytest.mark.parametrize("length", [0, ("i32", -1), True, 77.0, "77"])
def test_a_context_that_is_no_count_is_no_limit(tmp_path, length):
    metadata = {"general.architecture": "newcomer", "newcomer.context_length": length}
    assert read(tmp_path, metadata, small_tensors()).context_limit is None


@pytest.mark.parametrize(("key", "norm"), [("layer_norm_rms_epsilon", "rms"), ("layer_norm_epsilon", "layer")])
def test_the_norms_of_an_unknown_architecture_are_told_by_their_epsilon(tmp_path, key, norm):
    metadata = {"general.architecture": "newcomer", f"newcomer.attention.{key}": 1e-5}
    ops = [op for _, op in read(tmp_path, metadata, small_tensors()).ops() if op.kind == "norm"]
    assert {op["norm"] for op in ops} == {norm}


def test_a_file_that_does_not_fit_its_architecture_says_what_differs(tmp_path):
    tensors = small_tensors()
    tensors["blk.2.attn_q.weight"] = ((512, 256), "q4_k")
    del tensors["blk.3.ffn_up.weight"]
    graph = read(tmp_path, small_llama(), tensors)
    (note,) = graph.metadata["notes"]
    assert "model.layers.2.self_attn.q_proj.weight has 131,072 numbers" in note
    assert "model.layers.3.mlp.up_proj.weight is not in the file" in note


@pytest.mark.parametrize(
    "changes",
    [
        {"llama.attention.head_count": 0}, {"llama.block_count": 2**31}, {"llama.embedding_length": "wide"},
        {"llama.attention.head_count_kv": [2, 2, 1, 2]}, {"general.architecture": 7},
    ],
)  # fmt: skip
def test_metadata_that_makes_no_sense_is_no_error_but_a_note(tmp_path, changes):
    graph = read(tmp_path, small_llama() | changes, small_tensors())
    assert graph.metadata["notes"]
    assert graph.parameters


def test_sizes_given_layer_by_layer_are_one_where_they_agree(tmp_path):
    same = {"llama.attention.head_count_kv": [2, 2, 2, 2], "llama.feed_forward_length": [512] * 4}
    assert read(tmp_path, small_llama() | same, small_tensors()).metadata["notes"] == ()


def test_metadata_and_tokenizer_are_kept(tmp_path):
    metadata = small_llama() | {
        "general.license": "mit", "tokenizer.ggml.model": "gpt2", "quantize.imatrix.file": "x.dat", "general": 1,
        "tokenizer.ggml.tokens": [f"t{index}" for index in range(1000)],
    }  # fmt: skip
    facts = read(tmp_path, metadata, small_tensors()).metadata
    assert facts["general"]["license"] == "mit"
    assert facts["tokenizer"]["ggml.tokens"] == {"type": "string", "count": 1000}
    assert facts["hyperparameters"]["block_count"] == 4
    assert facts["others"] == {"quantize.imatrix.file": "x.dat", "general": 1}
    json.dumps(facts)


def split(tmp_path, count=3, announced=None):
    tensors = list(small_tensors().items())
    size = -(-len(tensors) // (count - 1))
    for part in range(count):
        own = dict(tensors[(part - 1) * size : part * size]) if part else {}
        metadata = small_llama() if part == 0 else {}
        metadata |= {"split.no": ("u16", part), "split.count": ("u16", count)}
        metadata |= {"split.tensors.count": ("i32", announced or len(tensors))}
        write(tmp_path / f"m-{part + 1:05}-of-{count:05}.gguf", metadata, own)
    return tmp_path / f"m-00002-of-{count:05}.gguf"


def test_all_parts_of_a_split_model_are_read_whichever_is_named(tmp_path):
    graph = reader.read(split(tmp_path))
    assert graph.parameters == read(tmp_path, small_llama(), small_tensors()).parameters
    assert graph.metadata["notes"] == ()
    assert len(graph.metadata["files"]) == 3
    facts = graph.metadata
    assert facts["file_bytes"] == sum(part.stat().st_size for part in tmp_path.glob("m-*.gguf"))
    assert facts["header_bytes"] + facts["tensor_bytes"] + facts["padding_bytes"] == facts["file_bytes"]


def test_a_missing_part_is_named(tmp_path):
    path = split(tmp_path)
    (tmp_path / "m-00003-of-00003.gguf").unlink()
    with pytest.raises(FormatError, match=r"'m-00003-of-00003\.gguf' is missing"):
        reader.read(path)


def test_parts_must_belong_together(tmp_path, monkeypatch):
    with pytest.raises(FormatError, match="where 99 are announced"):
        reader.read(split(tmp_path, announced=99))
    path = split(tmp_path)
    (tmp_path / "m-00003-of-00003.gguf").write_bytes(path.read_bytes())
    with pytest.raises(FormatError, match="same name"):
        reader.read(path)
    for name in ("renamed.gguf", "m-00002-of-00004.gguf"):
        with pytest.raises(FormatError, match="does not say where the others are"):
            reader.read(path := path.rename(tmp_path / name))
    whole = split(tmp_path)
    monkeypatch.setattr("inferometer.formats.gguf._MANY_TENSORS", len(small_tensors()))
    assert reader.read(whole).metadata["tensors"] == len(small_tensors())
    monkeypatch.setattr("inferometer.formats.gguf._MANY_TENSORS", len(small_tensors()) - 1)
    with pytest.raises(FormatError, match="do not belong together"):
        reader.read(whole)


def test_content_decides_not_the_name(tmp_path):
    write(tmp_path / "model.bin", small_llama(), small_tensors())
    (tmp_path / "text.gguf").write_text("hello")
    assert reader.match(look(tmp_path / "model.bin")) == 1
    assert reader.match(look(tmp_path / "text.gguf")) == 0
    assert reader.match(look(tmp_path)) == 0


def test_a_file_without_tensors_is_a_graph_without_ops(tmp_path):
    graph = read(tmp_path, {"general.architecture": "llama"}, {})
    assert graph.parameters == 0


def test_a_vocabulary_is_called_one(tmp_path):
    path = tmp_path / "ggml-vocab.gguf"
    write(path, {"general.architecture": "llama", "tokenizer.ggml.tokens": ["a", "b", "c"]}, {})
    graph = reader.read(path)
    assert list(graph.ops()) == []
    assert graph.metadata["notes"] == (
        "The file holds no weights: it is the vocabulary of a model (3 tokens) of the architecture 'llama'.",
    )
