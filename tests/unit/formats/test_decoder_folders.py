"""Folders of decoders that engines keep: OpenVINO's, CTranslate2's and ONNX Runtime's, each weight with its bytes."""

import json
import struct
from math import prod
from pathlib import Path

import pytest

from inferometer.core.errors import FormatError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.formats.ctranslate2.graph import ModelBin, Variable, decoder_graph, read_variables
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.onnx import read_bytes
from inferometer.formats.onnxruntime_genai import reader as genai
from inferometer.formats.openvino.convert import folder_graph
from unit.formats.listing import op_lines
from unit.formats.onnx.onnx_bytes import FLOAT, INT64, field, fields, graph, model, node, tensor, value

# Two layers of 16, with 4 heads of 4 and 2 for keys, an MLP of 24 and 50 words.
CONFIG = {
    "model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50, "tie_word_embeddings": False,
}  # fmt: skip


def weights_of(found):
    """{full name: (format, bytes)} of everything that is stored."""
    return {
        block.full_name(weight.name, number): (weight.dtype, weight.stored_bytes)
        for block, op in found.ops()
        for weight in op.weights
        for number in range(block.count)
    }


# OpenVINO


def network(entry):
    """One op for each weight of the architecture, as `entry(name, shape)` stores it: (format, bytes), or None."""
    ops = []
    for block, op in graph_from_config(CONFIG, name="m").ops():
        for weight in op.weights:
            for number in range(block.count):
                full = block.full_name(weight.name, number)
                made = entry(full, weight.shape)
                if made is not None:
                    held = Tensor(
                        name=f"self.{full}", shape=weight.shape, dtype=made[0], role="weight", stored_bytes=made[1]
                    )
                    scale = Tensor(name=f"self.{full}/scale", shape=(weight.shape[0], 1), dtype="f16", role="constant",
                                   stored_bytes=2 * weight.shape[0])  # fmt: skip
                    ops.append(Op(name=full, kind="linear", weights=(held, scale) if made[0] == "i4" else (held,)))
    return Graph(
        name="net", blocks=(Block(name="main", ops=tuple(ops)),), metadata={"notes": ("n",), "default_sizes": {"a": 2}}
    )


def folder_of(path, config=CONFIG):
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_the_configs_graph_has_the_networks_formats_and_bytes(tmp_path):
    def entry(name, shape):
        if len(shape) == 1:
            return None if "input_layernorm" in name else ("f16", 2 * prod(shape))
        return ("i4", prod(shape) // 2) if "mlp" in name else ("f16", 2 * prod(shape))

    found = folder_graph(network(entry), folder_of(tmp_path / "small"))
    assert (found.name, found.metadata["format"], found.precision) == ("small", "openvino-genai", "f16")
    assert "notes" not in found.metadata or "n" not in found.metadata["notes"]
    held = weights_of(found)
    assert held["model.layers.1.mlp.up_proj.weight"] == ("i4", 24 * 16 // 2)
    assert held["model.layers.0.mlp.up_proj.scale"] == ("f16", 48)
    assert held["model.layers.0.self_attn.k_proj.weight"] == ("f16", 2 * 8 * 16)
    assert held["model.layers.0.input_layernorm.weight"] == ("f32", 0), "a vector of ones is left out by the converter"
    assert held["model.norm.weight"] == ("f16", 32)


def test_names_that_do_not_show_which_weight_is_which_give_all_the_usual_format(tmp_path):
    for form, bits in (("i8", 8), ("f16", 16)):
        other = network(lambda name, shape, form=form: (form, prod(shape)) if "mlp" in name else None)
        found = folder_graph(other, folder_of(tmp_path / form))
        held = weights_of(found)
        assert held["model.embed_tokens.weight"] == held["lm_head.weight"] == (form, 50 * 16 * bits // 8)
        assert held["model.norm.weight"] == ("f32", 64)
        assert found.precision == ("f16" if form == "f16" else "f32")
        assert f"all are counted as {form}" in found.metadata["notes"][-1]


def test_the_usual_format_is_that_of_most_numbers(tmp_path):
    found = folder_graph(
        network(lambda name, _: ("f16", 1) if "embed" in name else ("i8", 1) if "k_proj" in name else None),
        folder_of(tmp_path / "m"),
    )
    assert weights_of(found)["lm_head.weight"][0] == "f16", "800 numbers are more than 2 × 128"
    bare = folder_graph(network(lambda *_: None), folder_of(tmp_path / "bare"))
    assert weights_of(bare)["lm_head.weight"] == ("f32", 3200)


@pytest.mark.parametrize("config", ["no json", json.dumps({"model_type": "nobody"})])
def test_without_a_config_the_network_is_its_own_graph(tmp_path, config):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(config)
    found = folder_graph(network(lambda _name, shape: ("f32", 4 * prod(shape))), tmp_path / "m")
    assert (found.name, found.metadata["default_sizes"]) == ("m", {"a": 2, "beam_idx.0": 1})
    first, last = found.metadata["notes"]
    assert first == "n"
    assert "no config.json that says the architecture" in last
    assert "cache is not counted" in last


# CTranslate2


def variables(*, fused_bias=False, head=True, **more):
    def matrix(*shape):
        return Variable(shape=shape, dtype="f16", nbytes=2 * prod(shape))

    def number(value):
        return Variable(shape=(), dtype="i32", nbytes=4, value=value)

    found = {"decoder/embeddings/weight": matrix(50, 16), "decoder/layer_norm/gamma": matrix(16)}
    for layer in ("decoder/layer_0", "decoder/layer_1"):
        at = f"{layer}/self_attention"
        found |= {f"{at}/linear_0/weight": matrix(32, 16), f"{at}/linear_1/weight": matrix(16, 16)}
        found |= {f"{at}/linear_0/bias": matrix(32)} if fused_bias else {}
        found |= {f"{layer}/ffn/{name}/weight": matrix(24, 16) for name in ("linear_0", "linear_0_noact")}
        found |= {f"{layer}/ffn/linear_1/weight": matrix(16, 24), f"{at}/rotary_dim": number(0)}
        found |= {f"{layer}/ffn/layer_norm/gamma": matrix(16), f"{at}/layer_norm/gamma": matrix(16)}
        found[f"{at}/num_heads_kv"] = number(2)
    found |= {"decoder/projection/weight": matrix(50, 16)} if head else {}
    return {**found, "decoder/num_heads": number(4), **more}


def decoder(held, **aliases):
    return decoder_graph(ModelBin(architecture="s", variables=held, aliases=aliases), name="m")


def test_a_fused_matrix_is_three_weights_with_their_rows_and_scales():
    rows = Variable(shape=(32,), dtype="f32", nbytes=128)
    whole = Variable(shape=(), dtype="f32", nbytes=4)
    held = variables(**{
        "decoder/layer_0/self_attention/linear_0/weight_scale": rows,
        "decoder/layer_1/self_attention/linear_0/weight_scale": rows,
        "decoder/layer_0/ffn/linear_1/weight_scale": whole, "decoder/layer_1/ffn/linear_1/weight_scale": whole,
    })  # fmt: skip
    found = decoder(held)
    stored = weights_of(found)
    assert (found.architecture, found.precision) == ("llama", "f16")
    assert stored["model.layers.1.self_attn.q_proj.weight"] == ("f16", 16 * 16 * 2)
    assert stored["model.layers.1.self_attn.v_proj.weight"] == ("f16", 8 * 16 * 2)
    assert stored["model.layers.1.self_attn.q_proj.weight_scale"] == ("f32", 16 * 4)
    assert stored["model.layers.1.self_attn.k_proj.weight_scale"] == ("f32", 8 * 4)
    assert stored["model.layers.0.mlp.down_proj.weight_scale"] == ("f32", 4), "one number for the whole"
    assert "notes" not in found.metadata or not any("tensor" in note for note in found.metadata["notes"])


def test_a_family_is_known_by_what_it_has_beside():
    norm = Variable(shape=(4,), dtype="f16", nbytes=8)
    normed = {f"decoder/layer_{n}/self_attention/{part}_norm/gamma": norm for n in (0, 1) for part in "qk"}
    assert decoder(variables(**normed)).architecture == "qwen3"
    biased = decoder(variables(fused_bias=True))
    assert biased.architecture == "qwen2"
    assert weights_of(biased)["model.layers.0.self_attn.k_proj.bias"] == ("f16", 16)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"decoder/num_heads": Variable(shape=(), dtype="i32", nbytes=4, value=5)}, "known by its weights"),
        ({"decoder/num_heads": Variable(shape=(), dtype="i32", nbytes=4, value=0)}, "known by its weights"),
        ({"decoder/pre_norm": Variable(shape=(), dtype="i8", nbytes=1, value=0)}, "known by its weights"),
        ({"decoder/layer_0/ffn/layer_norm/beta": Variable(shape=(16,), dtype="f16", nbytes=32)}, "by its weights"),
        ({"decoder/layer_0/ffn/router/weight": Variable(shape=(2, 16), dtype="f16", nbytes=64)}, "by its weights"),
        ({"decoder/layer_1/ffn/linear_1/weight": Variable(shape=(16, 25), dtype="f16", nbytes=800)}, "do not fit"),
        ({"decoder/layer_2/x": Variable(shape=(), dtype="i8", nbytes=1, value=0)}, "do not fit"),
    ],
)  # fmt: skip
def test_what_is_no_decoder_that_is_known_is_told_by_its_weights_alone(more, why):
    found = decoder(variables(**more))
    assert why in found.metadata["notes"][0]
    assert found.precision == "f16"


def test_a_head_that_is_the_embedding_is_stored_once():
    held = variables(head=False)
    tied = decoder(
        {**held, "decoder/projection/weight": held["decoder/embeddings/weight"]},
        **{"decoder/projection/weight": "decoder/embeddings/weight"},
    )
    assert decoder(variables()).parameters - tied.parameters == 50 * 16


def binary(*parts, aliases=()):
    def text(word):
        return struct.pack("<H", len(word) + 1) + word.encode() + b"\0"

    body = struct.pack("<I", 6) + text("Spec") + struct.pack("<II", 1, len(parts))
    for name, shape, kind, raw in parts:
        body += (
            text(name) + struct.pack(f"<B{len(shape)}I", len(shape), *shape) + struct.pack("<BI", kind, len(raw)) + raw
        )
    return body + struct.pack("<I", len(aliases)) + b"".join(text(word) for pair in aliases for word in pair)


def test_a_file_of_variables_is_read_to_its_last_name(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(binary(("w", (2, 3), 0, bytes(24)), ("n", (), 3, struct.pack("<i", -7)), aliases=[("v", "w")]))
    found = read_variables(path)
    assert (found.architecture, found.aliases) == ("Spec", {"v": "w"})
    assert found.variables["v"] is found.variables["w"]
    assert (found.variables["w"].shape, found.variables["w"].nbytes, found.variables["w"].value) == ((2, 3), 24, None)
    assert (found.number("n", 4), found.number("w", 4), found.number("absent", 4)) == (-7, 4, 4)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (binary(aliases=[("v", "w")]), "'v' is another name of 'w'"),
        (binary(("w", (1,) * 17, 0, b"")), "has 17 axes"),
        (binary(("w", (1,), 99, bytes(4))), "a type with the number 99"),
        (binary(("w", (9,), 0, bytes(36)))[:-8], "not all there"),
        (struct.pack("<I", 6) + struct.pack("<H", 0), "a name has 0 bytes"),
        (struct.pack("<I", 6) + struct.pack("<H", 3) + b"abc", "does not end where it should"),
    ],
)
def test_a_damaged_file_of_variables_says_what_is_wrong(tmp_path, raw, why):
    path = tmp_path / "model.bin"
    path.write_bytes(raw)
    with pytest.raises(FormatError, match=why):
        read_variables(path)
    with pytest.raises(FormatError, match="There is no file"):
        read_variables(tmp_path / "absent.bin")


# ONNX Runtime's generator


def test_the_decoder_beside_its_config_is_the_graph(tmp_path):
    folder = tmp_path / "gen"
    folder.mkdir()
    body = graph([node("Relu", "x", "y")], [value("x", ("batch", "kv_cache_dim"))], ["y"])
    (folder / "model.onnx").write_bytes(model(body))
    config = {"model": {"context_length": 77, "decoder": {"filename": "model.onnx", "head_size": 12}}}
    (folder / "genai_config.json").write_text(json.dumps(config))
    found = genai.read(folder)
    assert (found.name, found.context_limit, found.metadata["format"]) == ("gen", 77, "onnxruntime-genai")
    assert found.metadata["default_sizes"]["kv_cache_dim"] == 12
    assert genai.read(folder / "genai_config.json") == found
    config["model"] = {"context_length": "many", "decoder": {"filename": "model.onnx", "head_size": None}}
    (folder / "genai_config.json").write_text(json.dumps(config))
    other = genai.read(folder)
    assert other.context_limit is None
    assert "kv_cache_dim" not in other.metadata.get("default_sizes", {})
    for text, why in (("{", "is no JSON"), ("[]", "lies beside it"), ('{"model": 3}', "lies beside it")):
        (folder / "genai_config.json").write_text(text)
        with pytest.raises(FormatError, match=why):
            genai.read(folder)
    with pytest.raises(FormatError, match="cannot be opened"):
        genai.read(tmp_path / "absent.json")


# Sparse tensors


def sparse(name, dims, numbers):
    places = tensor("", (numbers,), INT64, range(numbers))
    return field(1, tensor(name, (numbers,), FLOAT)) + field(2, places) + fields(3, dims)


def test_a_sparse_weight_has_its_dense_shape_and_the_bytes_of_what_is_stored():
    body = graph([node("MatMul", "x w", "y")], [value("x", (3, 8))], ["y"]) + field(15, sparse("w", (8, 5), 6))
    found = read_bytes(Path("m.onnx"), model(body))
    lines = [line for _, op in found.ops() for line in op_lines(op)]
    assert lines == [f"linear y: x f32[3,8], weight w f32[8,5]={6 * 4 + 6 * 8}B -> y f32[3,5] | contracted=8"]
    assert found.parameters == 40
