import json
from pathlib import Path

import pytest

from inferometer.core.errors import FormatError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.formats.base import look
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.safetensors import _Locator, reader
from inferometer.formats.stored import Stored, fit
from inferometer.predict.work.count import coverage
from unit.formats.safetensors.safetensors_bytes import write

RECORDED = Path(__file__).parents[3] / "data" / "huggingface"
CONFIG = {
    "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 100, "tie_word_embeddings": False,
    "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16",
}  # fmt: skip
MATRICES = {
    "self_attn.q_proj": [32, 32], "self_attn.k_proj": [16, 32], "self_attn.v_proj": [16, 32],
    "self_attn.o_proj": [32, 32], "mlp.gate_proj": [64, 32], "mlp.up_proj": [64, 32], "mlp.down_proj": [32, 64],
}  # fmt: skip
PARAMETERS = 2 * (sum(a * b for a, b in MATRICES.values()) + 2 * 32) + 2 * 100 * 32 + 32


def llama(matrix=lambda name, shape: {f"{name}.weight": ("BF16", shape)}):
    tensors = {"model.embed_tokens.weight": ("BF16", [100, 32]), "lm_head.weight": ("BF16", [100, 32])}
    tensors["model.norm.weight"] = ("BF16", [32])
    for layer in range(2):
        at = f"model.layers.{layer}."
        tensors[f"{at}input_layernorm.weight"] = ("BF16", [32])
        tensors[f"{at}post_attention_layernorm.weight"] = ("BF16", [32])
        for module, shape in MATRICES.items():
            tensors |= matrix(f"{at}{module}", shape)
    return tensors


def model(folder, tensors, config=CONFIG):
    write(folder / "model.safetensors", tensors)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return reader.read(folder)


CASES = sorted(path.stem for path in RECORDED.glob("*.json") if path.stem != "cases")


@pytest.mark.parametrize("case", CASES)
def test_a_saved_model_has_the_parameters_its_library_counts(tmp_path, case):
    recorded = json.loads((RECORDED / f"{case}.json").read_text())
    tensors = {name: ("F32", shape) for name, shape in (recorded["parameters"] | recorded["buffers"]).items()}
    graph = model(tmp_path, tensors, recorded["saved_config"])
    extra = sum(shape[0] for name, shape in recorded["buffers"].items() if name.endswith("correction_bias"))
    assert graph.metadata["notes"] == ()
    assert graph.parameters == recorded["parameter_count"] + extra
    assert sum(tensor.nbytes * times for tensor, times in graph.weights()) == graph.metadata["tensor_bytes"]


def test_layers_that_torchao_quantised_have_their_scales_beside_them(tmp_path):
    def matrix(name, shape):
        stored = {f"{name}._weight_qdata": ("I8", shape), f"{name}._weight_zero_point": ("I8", [shape[0], 1])}
        return stored | {f"{name}._weight_scale": ("F32", [shape[0], 1])}

    graph = model(tmp_path, llama(matrix))
    assert graph.metadata["notes"] == ()
    assert graph.parameters == PARAMETERS
    ops = {op.name: op for _, op in graph.ops()}
    weight, *beside = ops["layers.{}.attn.k_proj"].weights
    assert (weight.dtype, weight.stored_bytes) == ("i8", 16 * 32)
    assert sum(tensor.stored_bytes for tensor in beside) == 16 * (4 + 1)


def test_formats_and_bytes_are_the_files(tmp_path):
    graph = model(tmp_path, llama())
    assert (graph.parameters, graph.architecture, graph.precision) == (PARAMETERS, "llama", "bf16")
    assert [(block.name, block.count) for block in graph.blocks if block.count > 1] == [("decoder", 2)]
    assert graph.metadata["bytes_by_format"] == {"bf16": 2 * PARAMETERS}
    assert all(weight.dtype == "bf16" for weight, _ in graph.weights())


def test_a_file_is_read_with_the_config_beside_it(tmp_path):
    graph = model(tmp_path, llama())
    assert reader.read(tmp_path / "model.safetensors").blocks == graph.blocks
    assert graph.name == tmp_path.name


def test_without_a_config_it_is_a_graph_of_tensors(tmp_path):
    graph = model(tmp_path, llama(), config=None)
    assert graph.parameters == PARAMETERS
    assert "no config.json" in graph.metadata["notes"][0]
    assert [(b.name, b.count) for b in graph.blocks] == [("embeddings", 1), ("model.layers", 2), ("others", 1)]


@pytest.mark.parametrize("config", [{"model_type": "newcomer"}, {**CONFIG, "hidden_size": -1}, {}])
def test_a_config_that_cannot_be_expanded_is_a_note(tmp_path, config):
    graph = model(tmp_path, llama(), config)
    assert graph.parameters == PARAMETERS
    assert "cannot be expanded" in graph.metadata["notes"][0]


def test_files_that_do_not_fit_the_config_say_what_differs(tmp_path):
    tensors = llama()
    tensors["model.layers.1.mlp.up_proj.weight"] = ("BF16", [63, 32])
    graph = model(tmp_path, tensors)
    assert "model.layers.1.mlp.up_proj.weight has 2,016 numbers" in graph.metadata["notes"][0]


@pytest.mark.parametrize(
    ("method", "formats"),
    [
        (  # GPTQ: eight 4-bit numbers in an int32
            lambda name, shape: {
                f"{name}.qweight": ("I32", [shape[1] // 8, shape[0]]),
                f"{name}.qzeros": ("I32", [1, shape[0] // 8]),
                f"{name}.scales": ("F16", [1, shape[0]]),
                f"{name}.g_idx": ("I32", [shape[1]]),
            },
            "i4",
        ),
        (  # compressed-tensors
            lambda name, shape: {
                f"{name}.weight_packed": ("I32", [shape[0], shape[1] // 8]),
                f"{name}.weight_scale": ("BF16", [shape[0], 1]),
                f"{name}.weight_shape": ("I64", [2]),
            },
            "i4",
        ),
        (  # fine-grained FP8
            lambda name, shape: {
                f"{name}.weight": ("F8_E4M3", shape),
                f"{name}.weight_scale_inv": ("F32", [1, 1]),
            },
            "f8e4m3",
        ),
        (  # NVFP4
            lambda name, shape: {
                f"{name}.weight": ("U8", [shape[0], shape[1] // 2]),
                f"{name}.weight_scale": ("F8_E4M3", [shape[0], shape[1] // 16]),
                f"{name}.weight_scale_2": ("F32", []),
                f"{name}.input_scale": ("F32", []),
            },
            "f4e2m1",
        ),
        (  # bitsandbytes
            lambda name, shape: {
                f"{name}.weight": ("U8", [shape[0] * shape[1] // 2, 1]),
                f"{name}.weight.absmax": ("F32", [shape[0] * shape[1] // 64]),
                f"{name}.weight.quant_map": ("F32", [16]),
            },
            "i4",
        ),
    ],
)
def test_quantised_checkpoints_keep_their_parameters_and_their_bytes(tmp_path, method, formats):
    graph = model(tmp_path, llama(method))
    assert graph.metadata["notes"] == ()
    assert graph.parameters == PARAMETERS
    linears = [op for block, op in graph.ops() if op.kind == "linear" and block.name == "decoder"]
    assert {op.weights[0].dtype for op in linears} == {formats}
    assert all(weight.role == "constant" for op in linears for weight in op.weights[1:])
    assert sum(w.nbytes * times for w, times in graph.weights()) == graph.metadata["tensor_bytes"]
    assert coverage(graph).share == 1


def test_blocks_and_scales_of_four_bit_floats_are_one_format(tmp_path):
    changes = {"hidden_size": 64, "intermediate_size": 32, "num_attention_heads": 4, "head_dim": 16}
    config = json.loads((RECORDED / "gpt_oss.json").read_text())["saved_config"] | changes
    original = graph_from_config(config, name="original")
    tensors = {}
    for block, op in original.ops():
        for weight in op.weights:
            for layer in range(block.count):
                name = block.full_name(weight.name, layer)
                tensors[name] = ("BF16", list(weight.shape))
                if name.endswith(("gate_up_proj", "experts.down_proj")):
                    experts, contracted, out = tensors.pop(name)[1]
                    tensors[f"{name}_blocks"] = ("U8", [experts, out, contracted // 32, 16])
                    tensors[f"{name}_scales"] = ("U8", [experts, out, contracted // 32])
    graph = model(tmp_path, tensors, config)
    assert graph.metadata["notes"] == ()
    assert graph.parameters == original.parameters
    experts = next(op for _, op in graph.ops() if op.kind == "moe_experts")
    matrices = [weight for weight in experts.weights if len(weight.shape) == 3]
    assert [(w.dtype, w.stored_bytes) for w in matrices] == [("mxfp4", w.elements // 32 * 17) for w in matrices]


def shards(folder):
    tensors = list(llama().items())
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    parts = [dict(tensors[:7]), dict(tensors[7:])]
    for name, part in zip(names, parts, strict=True):
        write(folder / name, part)
    mapping = {tensor: name for name, part in zip(names, parts, strict=True) for tensor in part}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": mapping}))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return index


@pytest.mark.parametrize("named", ["", "model.safetensors.index.json", "model-00002-of-00002.safetensors"])
def test_all_shards_are_read_whichever_is_named(tmp_path, named):
    shards(tmp_path)
    graph = reader.read(tmp_path / named)
    assert (graph.parameters, graph.metadata["notes"]) == (PARAMETERS, ())
    facts, sizes = graph.metadata, [path.stat().st_size for path in tmp_path.glob("*.safetensors")]
    assert len(facts["files"]) == len(sizes) == 2
    assert facts["file_bytes"] == facts["header_bytes"] + facts["tensor_bytes"] == sum(sizes)


@pytest.mark.parametrize("name", ["../x.safetensors", "/x.safetensors", "a\\b.safetensors", "x.bin", "c:x.safetensors"])
def test_an_index_may_only_name_files_beside_it(tmp_path, name):
    index = shards(tmp_path)
    index.write_text(json.dumps({"weight_map": {"t": name}}))
    with pytest.raises(FormatError, match="no safetensors file beside it"):
        reader.read(index)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"), ("[]", "not a JSON object"), ("{}", "no weight_map"),
        ('{"weight_map": 3}', "no weight_map"), ('{"weight_map": {"t": 3}}', "no weight_map"),
        ('{"weight_map": {"t": "none.safetensors"}}', "There is no file"),
        ('{"weight_map": {"ghost": "model-00001-of-00002.safetensors"}}', "'ghost' is in"),
    ],
)  # fmt: skip
def test_a_damaged_index_is_said_plainly(tmp_path, text, says):
    index = shards(tmp_path)
    index.write_text(text)
    with pytest.raises(FormatError, match=says):
        reader.read(index)


def test_a_folder_with_several_files_and_no_index_asks_which(tmp_path):
    for name in ("a.safetensors", "b.safetensors"):
        write(tmp_path / name, {"t": ("F32", [2])})
    with pytest.raises(FormatError, match=r"a\.safetensors, b\.safetensors"):
        reader.read(tmp_path)


@pytest.mark.parametrize(
    ("files", "read", "name"),
    [
        (("model.safetensors", "adapter.safetensors"), "model.safetensors", "folder"),
        (("diffusion_pytorch_model.safetensors", "a.safetensors"), "diffusion_pytorch_model.safetensors", "folder"),
        (("consolidated.safetensors",), "consolidated.safetensors", "consolidated"),
        (("pytorch_model-00001-of-00001.safetensors",), "pytorch_model-00001-of-00001.safetensors", "folder"),
        (("model.fp16.safetensors",), "model.fp16.safetensors", "folder"),
    ],
)
def test_of_several_files_the_usual_one_is_read_and_the_model_is_called_after_it_or_its_folder(
    tmp_path, files, read, name
):
    folder = tmp_path / "folder"
    folder.mkdir()
    for file in files:
        write(folder / file, {"t": ("F32", [2])})
    assert reader.read(folder).metadata["files"] == [read]
    assert (reader.read(folder).name, reader.read(folder / read).name) == ("folder", name)


def test_of_several_indexes_the_one_without_a_variant_is_read(tmp_path):
    for form in ("fp16.", "", "v."):  # the shortest name, not the first
        write(tmp_path / f"{form}t.safetensors", {"t": ("F32", [2])})
        index = {"weight_map": {"t": f"{form}t.safetensors"}}
        (tmp_path / f"model.{form}safetensors.index.json").write_text(json.dumps(index))
    assert reader.read(tmp_path).metadata["files"] == ["t.safetensors"]


@pytest.mark.parametrize(
    ("tensors", "precision"),
    [
        ({"a": ("F16", [20]), "b": ("F32", [9]), "c": ("F32", [9])}, "f16"),
        ({"a": ("F32", [20]), "ids": ("I64", [99]), "mask": ("U8", [99])}, "f32"),
        ({"a": ("F8_E4M3", [20]), "b": ("F32", [9])}, "bf16"),  # computed in no narrower format than this
        ({"ids": ("I64", [9])}, "bf16"),
    ],
)
def test_the_precision_is_the_format_that_most_numbers_have(tmp_path, tensors, precision):
    assert model(tmp_path, tensors, config=None).precision == precision


def test_a_mask_is_no_parameter_and_a_bias_that_nothing_uses_is_one(tmp_path):
    extra = {"a.bias": ("BF16", [1, 1, 8, 8]), "b.bias": ("BF16", [7]), "c.position_ids": ("I64", [1, 9])}
    graph = model(tmp_path, llama() | extra)
    assert (graph.parameters, graph.metadata["notes"]) == (PARAMETERS + 7, ("Tensors that no op uses: b.bias.",))


def test_a_weight_under_another_librarys_name_is_found_at_its_own_index():
    weights = (Tensor(name="layers.{}.conv.weight", shape=(2, 3), role="weight"),)
    block = Block(name="b", ops=(Op(name="layers.{}.conv", kind="linear", weights=weights),), count=13)
    graph = Graph(name="g", blocks=(block,), metadata={"modules": {"layers.{}.conv": "encoder.{}.dense"}})
    tensors = {
        name: Stored(names=(name,), shape=(2, 3), dtype="f32", nbytes=24)
        for name in (f"encoder.{index}.dense.weight" for index in range(13))
    }
    held, problems = fit(graph, _Locator(graph, tensors).locate)
    assert problems == []
    assert {name: entry.names for name, entry in held.items()} == {
        f"layers.{index}.conv.weight": (f"encoder.{index}.dense.weight",) for index in range(13)
    }


def test_content_decides_not_the_name(tmp_path):
    write(tmp_path / "weights.bin", llama())
    (tmp_path / "fake.safetensors").write_text("hello")
    write(tmp_path / "none.bin", {})
    assert reader.match(look(tmp_path / "weights.bin")) > 0.9
    assert reader.match(look(tmp_path / "none.bin")) > 0.9
    assert reader.match(look(tmp_path / "fake.safetensors")) == 0
    (tmp_path / "log").write_text('12345678: a line that has "data_offsets" in it')
    assert reader.match(look(tmp_path / "log")) == 0
    assert reader.match(look(shards(tmp_path))) >= 0.9
    assert reader.match(look(tmp_path)) >= 0.9


def test_a_checkpoint_without_the_bodys_module_still_fits(tmp_path):
    recorded = json.loads((RECORDED / "gpt2.json").read_text())
    tensors = {
        name.removeprefix("transformer."): ("F32", shape)
        for name, shape in recorded["parameters"].items()
    } | {"h.0.attn.bias": ("F32", [1, 1, 8, 8])}  # fmt: skip
    graph = model(tmp_path, tensors, recorded["saved_config"])
    assert graph.metadata["notes"] == ()
    assert graph.parameters == recorded["parameter_count"]


def test_old_names_of_norms_are_known(tmp_path):
    recorded = json.loads((RECORDED / "bert.json").read_text())
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): ("F32", shape)
        for name, shape in recorded["parameters"].items()
    }
    graph = model(tmp_path, tensors, recorded["saved_config"])
    assert (graph.parameters, graph.metadata["notes"]) == (recorded["parameter_count"], ())
