"""Which library builds a network: read from its config, without torch."""

import pytest

from inferometer import known
from inferometer.core.errors import FormatError, MissingDependencyError
from inferometer.engines.torch import engine, modules
from inferometer.engines.torch.modules import config_of, torchvision_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet50", "resnet50"),
        ("mobilenet-v3-large", "mobilenet_v3_large"),
        ("efficientnet-b0", "efficientnet_b0"),
        ("vgg16", "vgg16"),
        ("squeezenet1.1", "squeezenet1_1"),
        ("vit-b-16", None),
        ("llama-3.2-1b", None),
    ],
)
def test_a_catalog_network_is_known_to_torchvision_by_its_values(name, expected):
    assert torchvision_name(known.model(name).config) == expected


def test_a_network_of_other_values_is_not(tmp_path):
    assert torchvision_name({**known.model("resnet50").config, "depths": [1, 1, 1, 1]}) is None


def test_a_config_may_say_torchvisions_name():
    assert torchvision_name({"architecture": "torchvision/regnet_y_400mf"}) == "regnet_y_400mf"


def test_a_config_is_found_in_a_folder_and_beside_weights(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    for path in (tmp_path, *(tmp_path / name for name in ("config.json", "model.safetensors", "model.index.json"))):
        assert config_of(path) == {"model_type": "llama"}


@pytest.mark.parametrize("text", ["", "[1, 2]", "not json"])
def test_a_config_that_is_none_is_named(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(FormatError, match=r"config\.json|holds no JSON object"):
        config_of(tmp_path / "config.json")


def test_without_transformers_the_remedy_is_said(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(engine, "import_module", missing)
    with pytest.raises(MissingDependencyError, match="transformers") as caught:
        engine.import_transformers()
    assert caught.value.remedy == "pip install 'inferometer[torch]'"


def test_numbers_that_numpy_lacks_are_float32():
    assert [modules.numpy_name(name) for name in ("bf16", "f32", "f16", "f64")] == [
        "float32", "float32", "float16", "float64",
    ]  # fmt: skip
