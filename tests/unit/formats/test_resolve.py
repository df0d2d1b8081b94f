import json

import pytest

from inferometer.core import Workload
from inferometer.core.errors import DomainError, FormatError, UnknownNameError
from inferometer.core.sizes import bind
from inferometer.formats.resolve import files_in, published_parameters, read
from inferometer.predict.memory.inventory import inventory


def test_a_catalog_name_and_its_alias_are_one_model():
    assert read("llama-3.2-1b").parameters == 1_235_814_400
    assert read("meta-llama/Llama-3.2-1B").parameters == 1_235_814_400
    assert published_parameters("meta-llama/Llama-3.2-1B") == 1_235_814_400


def test_a_folder_with_a_config_is_read_like_its_row(tmp_path):
    from inferometer.known import model

    (tmp_path / "config.json").write_text(json.dumps(dict(model("llama-3.2-1b").config)))
    assert read(tmp_path).parameters == 1_235_814_400
    assert read(str(tmp_path / "config.json")).parameters == 1_235_814_400
    assert published_parameters(str(tmp_path)) is None


def test_a_misspelt_name_suggests_and_a_missing_file_says_so():
    with pytest.raises(UnknownNameError, match=r"Did you mean llama-3\.2-1b"):
        read("llama-3.2-1bb")
    with pytest.raises(FormatError, match="no file or folder"):
        read("models/llama.gguf")
    with pytest.raises(FormatError, match="no file or folder"):
        read("llama.onnx")
    for part_of_a_shipped_one in ("whisper-small/encodr", "whisper-small/encoder/more"):
        with pytest.raises(UnknownNameError, match="whisper-small/encoder"):
            read(part_of_a_shipped_one)


def test_a_module_needs_inputs_to_be_traced_with():
    with pytest.raises(FormatError, match="no inputs were given"):
        read(object())


def test_a_workload_binds_the_usual_sizes_and_the_models_own_defaults():
    llama = bind(read("llama-3.2-1b"), Workload(batch=2, prompt=7, context=9))
    assert llama.sizes == {"batch": 2, "query": 7, "context": 9, "logits": 1}
    assert llama.precision.weights == "bf16"
    assert bind(read("vit-b-16"), Workload()).sizes["image"] == 224
    assert bind(read("vit-b-16"), Workload(image=384)).sizes["image"] == 384


def test_a_size_the_model_does_not_have_is_an_error_with_those_it_has():
    with pytest.raises(DomainError, match=r"Its open sizes: batch .*, query"):
        bind(read("llama-3.2-1b"), Workload(), {"sequence": 3})


def test_an_inventory_adds_up():
    graph = read("llama-3.1-8b")
    found = inventory(graph, bind(graph, Workload(batch=1, prompt=1, context=128)))
    assert found.parameters == 8_030_261_248
    assert found.weight_bytes == 2 * 8_030_261_248
    assert found.footprint.kv_bytes_per_token == 131_072
    assert sum(layer.flops for layer in found.layers) == found.flops
    assert sum(layer.bytes for layer in found.layers) == found.bytes
    assert sum(layer.parameters for layer in found.layers) == found.parameters
    assert found.coverage.share == 1.0
    assert sum(found.bytes_by_format.values()) == found.weight_bytes


def test_a_tied_head_has_its_weights_in_the_embedding():
    graph = read("llama-3.2-1b")
    found = inventory(graph, bind(graph, Workload()))
    by_name = {layer.name: layer for layer in found.layers}
    assert sum(layer.parameters for layer in found.layers) == found.parameters
    assert by_name["lm_head"].bytes > 0


def test_other_formats_change_bytes_and_not_parameters():
    from inferometer.core import Precision

    graph = read("llama-3.2-1b")
    found = inventory(graph, bind(graph, Workload(precision=Precision(weights="q4_0"))))
    assert found.parameters == 1_235_814_400
    assert found.weight_bytes == 1_235_814_400 * 18 // 32


def test_a_bare_name_that_one_package_has_is_that_packages_network():
    assert read("MobileNetV4_conv_small").parameters == read("timm:mobilenetv4_conv_small").parameters


def test_a_bare_name_that_several_packages_have_is_not_guessed():
    with pytest.raises(UnknownNameError, match="torchvision:wide_resnet50_2"):
        read("wide_resnet50_2")


def test_the_files_of_a_folder_that_is_no_model_itself(tmp_path):
    assert files_in("llama-3.2-1b") == ("llama-3.2-1b",)
    assert files_in(str(tmp_path)) == (str(tmp_path),)  # whose error says what is in it
    names = ("b.onnx", "a.gguf", "notes.txt")
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    found = (str(tmp_path / "a.gguf"), str(tmp_path / "b.onnx"))
    assert (files_in(str(tmp_path)), files_in(found[1])) == (found, (found[1],))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    assert files_in(str(tmp_path)) == (str(tmp_path),)
