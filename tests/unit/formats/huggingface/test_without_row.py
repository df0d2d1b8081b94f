"""Architectures without a row: transformers' own module is read where it is installed."""

import json
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from inferometer.core.errors import FormatError, UnknownNameError
from inferometer.core.graph import Graph
from inferometer.formats import huggingface
from inferometer.formats.huggingface import reader

ALBERT = {
    "model_type": "albert", "architectures": ["AlbertForMaskedLM"], "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100, "embedding_size": 32,
}  # fmt: skip


def config(folder, values):
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
    return folder


def test_the_module_stands_in_for_a_row(tmp_path, monkeypatch):
    """tests/unit/formats/torch has the tracing itself, which takes seconds."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        pytest.skip("torch and transformers are not installed: there is no module to trace")
    traced = Graph(name="a", blocks=(), metadata={"notes": ("traced",)})
    monkeypatch.setattr("inferometer.formats.torch.read_pretrained_config", lambda _, name: replace(traced, name=name))
    graph = reader.read(config(tmp_path, ALBERT))
    assert graph.name == tmp_path.name
    assert graph.metadata["notes"] == (
        "traced", "albert has no row here: the graph is that of transformers' module, traced without weights."
    )  # fmt: skip


def test_a_row_of_torchvisions_form_does_not_stand_for_transformers_own_config(tmp_path, monkeypatch):
    if find_spec("torch") is None or find_spec("transformers") is None:
        pytest.skip("torch and transformers are not installed: there is no module to trace")
    traced = Graph(name="a", blocks=())
    monkeypatch.setattr("inferometer.formats.torch.read_pretrained_config", lambda _, name: replace(traced, name=name))
    own = {"model_type": "mobilenet_v2", "architectures": ["MobileNetV2ForImageClassification"], "depth_multiplier": 1}
    (note,) = reader.read(config(tmp_path, own)).metadata["notes"]
    assert note.startswith("mobilenet_v2 has no row here for a config of transformers' own: the graph is that of")
    with pytest.raises(FormatError, match="lacks blocks, last_channels, classifier"):
        reader.read(config(tmp_path, {"model_type": "mobilenet_v2", "stem": {"out": 32}}))


def test_without_transformers_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "find_spec", lambda _: None)
    with pytest.raises(FormatError, match=r"'albert' of .* has no row here\. .*pip install 'inferometer\[torch\]'"):
        reader.read(config(tmp_path, ALBERT))


@pytest.mark.parametrize("name", ["unheard-of", "../../etc", "a b"])
def test_what_transformers_does_not_know_either_is_an_unknown_name(name, tmp_path, monkeypatch):
    (tmp_path / "models" / "albert").mkdir(parents=True)
    installed = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(huggingface, "find_spec", lambda _: installed)
    with pytest.raises(UnknownNameError):
        reader.read(config(tmp_path, {"model_type": name}))


@pytest.mark.parametrize("name", ["../../etc", "a b"])
def test_what_can_be_no_name_of_a_package_is_an_unknown_name_without_transformers_too(name, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "find_spec", lambda _: None)
    with pytest.raises(UnknownNameError):
        reader.read(config(tmp_path, {"model_type": name}))
