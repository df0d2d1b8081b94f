"""Reading config.json from files and folders."""

import json

import pytest

from inferometer.core.errors import FormatError, InferometerError
from inferometer.formats import huggingface
from inferometer.formats.base import look
from inferometer.formats.huggingface import reader
from unit.formats.huggingface.examples import LLAMA


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "my-model"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(LLAMA))
    return made


def test_a_folder_and_its_config_give_the_same_graph(folder):
    by_folder, by_file = reader.read(folder), reader.read(folder / "config.json")
    assert by_folder == by_file
    assert by_folder.name == "my-model"


def test_a_config_under_another_name_is_known_by_its_keys(tmp_path):
    path = tmp_path / "anything.txt"
    path.write_text(json.dumps(LLAMA))
    assert reader.match(look(path)) == 0.8
    assert reader.read(path).architecture == "llama"


def test_a_byte_order_mark_does_not_matter(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf \n" + json.dumps(LLAMA).encode())
    assert reader.match(look(path)) == 0.8
    assert reader.read(path).architecture == "llama"


def test_other_json_is_not_ours(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"name": "a package"}')
    assert reader.match(look(path)) == 0.0


def test_of_a_pipeline_the_denoiser_is_read(tmp_path):
    (tmp_path / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')
    (tmp_path / "transformer").mkdir()
    config = {
        "_class_name": "FluxTransformer2DModel", "num_layers": 1, "num_single_layers": 1, "num_attention_heads": 2,
        "attention_head_dim": 8, "in_channels": 4, "joint_attention_dim": 8, "pooled_projection_dim": 8,
    }  # fmt: skip
    (tmp_path / "transformer" / "config.json").write_text(json.dumps(config))
    assert reader.match(look(tmp_path)) == 0.5
    assert reader.read(tmp_path).architecture == "flux"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is no JSON"),
        (b"{", "is no JSON"),
        (b"\xff\xfe{}", "is no JSON"),
        (b"[1, 2]", "holds a JSON list"),
        (b'"model_type"', "holds a JSON str"),
        (b"[" * 100_000, "is no JSON"),
        (b'{"model_type": ' + b"9" * 10_000 + b"}", "is no JSON"),
    ],
)
def test_what_is_no_config_is_an_error_with_the_place(tmp_path, text, said):
    path = tmp_path / "broken.json"
    path.write_bytes(text)
    with pytest.raises(FormatError) as caught:
        reader.read(path)
    assert "broken.json" in str(caught.value)
    assert said in str(caught.value)


def test_a_config_that_is_too_large_is_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "LARGEST_CONFIG", 100)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    with pytest.raises(FormatError, match="more than 100 bytes"):
        reader.read(path)


def test_a_folder_without_a_config_is_an_error(tmp_path):
    with pytest.raises(FormatError, match=r"has no config\.json"):
        reader.read(tmp_path)


@pytest.mark.parametrize("config", [{**LLAMA, "hidden_size": None}, {**LLAMA, "model_type": "unheard-of"}])
def test_an_error_inside_names_the_file(folder, config):
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InferometerError) as caught:
        reader.read(folder)
    assert str(folder / "config.json") in str(caught.value)
