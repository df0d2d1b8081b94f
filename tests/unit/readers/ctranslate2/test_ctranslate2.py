"""CTranslate2's folders as graphs: a decoder that its own library wrote, one that is not known, and damaged ones."""

import shutil

import pytest

from contract.runtime_cases_ctranslate2 import HEADS, HIDDEN, KV_HEADS, LAYERS, MLP, VOCABULARY, write_llama
from inferometer.core.graph import is_generative
from inferometer.errors import FormatError
from inferometer.readers.ctranslate2 import reader
from inferometer.readers.ctranslate2.graph import decoder_graph
from inferometer.readers.ctranslate2.variables import ModelBin, Variable, read_variables
from inferometer.readers.resolve import read


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_llama(tmp_path_factory.mktemp("ct2") / "small", "int8")


def test_a_folder_is_a_decoder_with_the_bytes_of_every_weight(folder):
    graph = read(str(folder))
    assert graph.metadata["format"] == "ctranslate2"
    assert graph.name == "small"
    assert is_generative(graph)
    size = HIDDEN // HEADS
    queries, mlp = (HIDDEN + 2 * KV_HEADS * size) * HIDDEN + HIDDEN * HIDDEN, 3 * MLP * HIDDEN
    assert graph.parameters == 2 * VOCABULARY * HIDDEN + LAYERS * (queries + mlp + 2 * HIDDEN) + HIDDEN
    ops = {op.name: op for _, op in graph.ops()}
    weight, scale = ops["layers.{}.attn.k_proj"].weights
    assert (weight.dtype, weight.stored_bytes) == ("i8", KV_HEADS * size * HIDDEN)
    assert (scale.dtype, scale.stored_bytes, scale.role) == ("f32", KV_HEADS * size * 4, "constant")
    assert ops["final_norm"].weights[0].dtype == "f32"


def test_a_decoder_of_another_kind_is_known_by_its_weights_alone_and_says_so():
    matrix = Variable(shape=(8, 4), dtype="f32", nbytes=128)
    held = ModelBin(architecture="TransformerDecoderSpec", variables={"decoder/layer_0/x/weight": matrix}, aliases={})
    graph = decoder_graph(held, name="strange")
    assert graph.parameters == 32
    assert "architecture" in graph.metadata["notes"][0]


def test_a_damaged_file_is_an_error_that_names_it_and_says_how_to_get_another(folder, tmp_path):
    raw, path = (folder / "model.bin").read_bytes(), tmp_path / "cut.bin"
    for size in range(1, len(raw) - 1, len(raw) // 30):
        path.write_bytes(raw[:size])
        with pytest.raises(FormatError, match=r"cut\.bin") as caught:
            read_variables(path)
        assert "prepare" in caught.value.remedy


def test_a_translator_is_named_for_what_it_is(folder, tmp_path):
    other = tmp_path / "translator"
    shutil.copytree(folder, other)
    raw = (folder / "model.bin").read_bytes()
    (other / "model.bin").write_bytes(raw.replace(b"TransformerDecoderSpec", b"TransformerEncoderSpec"))
    with pytest.raises(FormatError, match="TransformerEncoderSpec"):
        reader.read(other)
