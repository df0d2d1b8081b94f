"""Checkpoints as Hugging Face lays them out."""

import json

import numpy as np
import pytest

from inferometer.core.errors import InferometerError
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.safetensors import write as safetensors
from inferometer.formats.synth.files import Order
from inferometer.formats.synth.weights import planned, whole

LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 300,
    "tie_word_embeddings": True,
}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 3, "num_experts_per_tok": 2}


def order(path, config=LLAMA, **others):
    return Order(graph=graph_from_config(config, name="tiny"), config=config, path=path, **others)


def opened(path):
    """The header and the tensors, read as the format's description says."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__")
    return header, data[8 + length :]


def test_a_folder_holds_the_weights_and_the_config(tmp_path):
    written = safetensors.save(order(tmp_path / "tiny"))
    assert [path.name for path in written] == ["model.safetensors", "config.json"]
    config = json.loads((tmp_path / "tiny" / "config.json").read_text())
    assert config == LLAMA | {"torch_dtype": "float32"}


def test_every_weight_is_stored_once_under_its_name(tmp_path):
    safetensors.save(order(tmp_path))
    header, data = opened(tmp_path / "model.safetensors")
    graph = graph_from_config(LLAMA, name="tiny")
    assert sum(int(np.prod(entry["shape"])) for entry in header.values()) == graph.parameters
    assert "model.layers.1.self_attn.q_proj.weight" in header
    assert "lm_head.weight" not in header  # it is the embedding
    ends = [entry["data_offsets"] for entry in header.values()]
    assert [start for start, _ in ends] == [0, *(end for _, end in ends[:-1])]
    assert ends[-1][1] == len(data)


def test_the_data_begins_at_a_multiple_of_eight(tmp_path):
    safetensors.save(order(tmp_path))
    assert int.from_bytes((tmp_path / "model.safetensors").read_bytes()[:8], "little") % 8 == 0


def test_the_numbers_are_those_of_the_seed(tmp_path):
    safetensors.save(order(tmp_path, seed=5))
    header, data = opened(tmp_path / "model.safetensors")
    plan = {weight.name: weight for weight in planned(graph_from_config(LLAMA, name="tiny"))}
    name = "model.layers.0.mlp.up_proj.weight"
    start, end = header[name]["data_offsets"]
    assert np.array_equal(np.frombuffer(data[start:end], "<f4"), whole(plan[name], 5).reshape(-1))


@pytest.mark.parametrize(("weights", "kind", "size"), [("f32", "F32", 4), ("f16", "F16", 2), ("bf16", "BF16", 2)])
def test_each_format_has_its_name_and_size(tmp_path, weights, kind, size):
    safetensors.save(order(tmp_path, weights=weights))
    header, data = opened(tmp_path / "model.safetensors")
    assert {entry["dtype"] for entry in header.values()} == {kind}
    assert len(data) == size * graph_from_config(LLAMA, name="tiny").parameters


def test_bf16_is_rounded_to_the_nearest_and_ties_to_even():
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0xBF7FFFFF], "<u4")
    assert [hex(x) for x in safetensors.as_stored(bits.view("<f4"), "bf16")] == ["0x3f80", "0x3f82", "0x3f81", "0xbf80"]


def test_a_large_model_is_split_and_indexed(tmp_path):
    written = safetensors.save(order(tmp_path), shard_bytes=30_000)
    shards = [path for path in written if path.suffix == ".safetensors"]
    assert len(shards) > 2
    assert shards[0].name == f"model-00001-of-{len(shards):05d}.safetensors"
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    found = {name: path.name for path in shards for name in opened(path)[0]}
    assert index["weight_map"] == found
    assert index["metadata"]["total_size"] == sum(len(opened(path)[1]) for path in shards)


def test_a_single_file_is_not_split(tmp_path):
    written = safetensors.save(order(tmp_path / "m.safetensors"), shard_bytes=1000)
    assert [path.name for path in written] == ["m.safetensors", "config.json"]


def test_experts_are_stored_one_by_one(tmp_path):
    safetensors.save(order(tmp_path, config=MIXTRAL))
    header, _ = opened(tmp_path / "model.safetensors")
    assert header["model.layers.1.block_sparse_moe.experts.2.w1.weight"]["shape"] == [48, 32]


def test_the_reference_implementation_reads_it(tmp_path):
    reference = pytest.importorskip("safetensors.numpy", reason="the package safetensors is not installed")
    safetensors.save(order(tmp_path))
    tensors = reference.load_file(tmp_path / "model.safetensors")
    assert sum(tensor.size for tensor in tensors.values()) == graph_from_config(LLAMA, name="tiny").parameters


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(InferometerError, match="q4_0") as caught:
        safetensors.save(order(tmp_path, weights="q4_0"))
    assert "f32, f16, bf16" in caught.value.remedy


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "m").write_bytes(b"")
    with pytest.raises(InferometerError, match="is a file"):
        safetensors.save(order(tmp_path / "m"))


def test_another_config_is_not_overwritten(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InferometerError, match="exists already"):
        safetensors.save(order(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
