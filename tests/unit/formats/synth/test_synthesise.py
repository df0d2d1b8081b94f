"""One function from a name, a config or a graph to a file."""

import json

import pytest

from inferometer.core.errors import FormatError, InferometerError, MissingDependencyError, UnknownNameError
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.onnx import write as onnx_edge
from inferometer.formats.synth import Synthesised, parts_of, synthesise

LLAMA = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 300,
}
WHISPER = {
    "model_type": "whisper", "d_model": 32, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 48,
    "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 48, "num_mel_bins": 8,
    "max_source_positions": 16, "max_target_positions": 20, "vocab_size": 300,
}  # fmt: skip


def test_a_config_becomes_a_file_of_the_format_its_name_says(tmp_path):
    made = synthesise(LLAMA, tmp_path / "m.gguf", weights="q8_0", seed=3)
    graph = graph_from_config(LLAMA, name="llama")
    assert made == Synthesised(
        path=tmp_path / "m.gguf",
        paths=(tmp_path / "m.gguf",),
        format="gguf",
        weights="q8_0",
        nbytes=(tmp_path / "m.gguf").stat().st_size,
        parameters=graph.parameters,
        seed=3,
    )
    assert "random" in made.note


def test_a_folder_becomes_a_checkpoint(tmp_path):
    made = synthesise(LLAMA, tmp_path / "checkpoint", weights="bfloat16")
    assert made.format == "safetensors"
    assert made.weights == "bf16"
    assert json.loads((tmp_path / "checkpoint" / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_a_folder_with_a_config_is_a_model(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "config.json").write_text(json.dumps(LLAMA))
    made = synthesise(str(tmp_path / "source"), tmp_path / "m.gguf")
    assert made.parameters == graph_from_config(LLAMA, name="llama").parameters


def test_a_model_file_is_a_model(tmp_path):
    first = synthesise(LLAMA, tmp_path / "m.gguf", weights="q8_0")
    assert synthesise(str(first.path), tmp_path / "again.gguf").parameters == first.parameters


def test_the_quantisation_of_a_config_gives_way_to_what_is_asked(tmp_path):
    config = LLAMA | {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}}
    made = synthesise(config, tmp_path / "checkpoint")
    assert made.parameters == graph_from_config(LLAMA, name="llama").parameters
    assert "quantization_config" not in json.loads((tmp_path / "checkpoint" / "config.json").read_text())


def test_a_graph_is_a_model(tmp_path):
    graph = graph_from_config(LLAMA, name="mine")
    assert synthesise(graph, tmp_path / "m.safetensors").parameters == graph.parameters


def test_a_catalog_name_is_a_model(tmp_path):
    made = synthesise("squeezenet1.1", tmp_path / "m.safetensors")
    assert made.parameters == 1_235_496


def test_a_part_of_a_model_is_a_model(tmp_path):
    whole = graph_from_config(WHISPER, name="w")
    assert parts_of(whole) == ("encoder", "decoder", "head")
    made = synthesise(WHISPER, tmp_path / "m.safetensors", part="encoder")
    assert made.parameters == graph_from_config(WHISPER | {"architectures": ["WhisperEncoder"]}, name="e").parameters


def test_an_unknown_part_names_the_known_ones(tmp_path):
    with pytest.raises(UnknownNameError, match=r"encoder, decoder, head"):
        synthesise(WHISPER, tmp_path / "m.safetensors", part="middle")


def test_an_unknown_ending_is_refused(tmp_path):
    with pytest.raises(InferometerError, match="does not follow from its name") as caught:
        synthesise(LLAMA, tmp_path / "m.engine")
    assert ".onnx" in caught.value.remedy


def test_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="engine"):
        synthesise(LLAMA, tmp_path / "m", format="engine")


def test_an_unknown_model_suggests_the_nearest(tmp_path):
    with pytest.raises(UnknownNameError, match="resnet50"):
        synthesise("resnet-5o", tmp_path / "m.onnx")


def test_a_file_that_is_not_there_is_said_plainly(tmp_path):
    with pytest.raises(FormatError, match="no file or folder"):
        synthesise("gone/model.onnx", tmp_path / "m.onnx")


def test_an_unknown_weight_format_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(InferometerError, match="q9_9"):
        synthesise(LLAMA, tmp_path / "m.gguf", weights="q9_9")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"mine")
    with pytest.raises(InferometerError, match="exists already"):
        synthesise(LLAMA, tmp_path / "m.gguf")
    assert (tmp_path / "m.gguf").read_bytes() == b"mine"
    assert synthesise(LLAMA, tmp_path / "m.gguf", overwrite=True).nbytes > 4


def test_sizes_are_for_onnx_alone(tmp_path):
    with pytest.raises(InferometerError, match="image"):
        synthesise(LLAMA, tmp_path / "m.gguf", sizes={"image": 64})


def test_a_config_that_is_no_json_is_said_plainly(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(FormatError, match="no JSON document"):
        synthesise(str(tmp_path), tmp_path / "m.gguf")


def test_a_missing_config_is_said_plainly(tmp_path):
    with pytest.raises(FormatError, match="cannot be read"):
        synthesise(str(tmp_path), tmp_path / "m.gguf")


def test_onnx_without_its_package_says_how_to_get_it(tmp_path, monkeypatch):
    def absent(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(onnx_edge, "import_module", absent)
    with pytest.raises(MissingDependencyError, match="onnx") as caught:
        synthesise(LLAMA, tmp_path / "m.onnx")
    assert "pip install" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []
