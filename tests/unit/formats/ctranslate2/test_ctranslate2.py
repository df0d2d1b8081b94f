"""CTranslate2's folders as graphs: a decoder that its own library wrote, one that is not known, and damaged ones."""

import shutil
from math import prod
from pathlib import Path

import pytest

from contract.runtime_cases_ctranslate2 import HEADS, HIDDEN, KV_HEADS, LAYERS, MLP, VOCABULARY, write_llama
from inferometer.core.errors import FormatError
from inferometer.core.graph import is_generative
from inferometer.formats.base import Peek
from inferometer.formats.ctranslate2 import reader
from inferometer.formats.ctranslate2.graph import ModelBin, Variable, decoder_graph, read_variables
from inferometer.formats.resolve import read


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


def test_norms_after_the_parts_make_a_gemma():
    """As its converter writes two layers of 16, with 4 heads of 4 and 2 for keys, and a head that is the embedding."""

    def matrix(*shape):
        return Variable(shape=shape, dtype="f32", nbytes=4 * prod(shape))

    def number(value):
        return Variable(shape=(), dtype="i32", nbytes=4, value=value)

    variables = {"decoder/embeddings/weight": matrix(50, 16), "decoder/layer_norm/gamma": matrix(16)}
    for layer in ("decoder/layer_0", "decoder/layer_1"):
        at = f"{layer}/self_attention"
        variables |= {f"{at}/linear_0/weight": matrix(32, 16), f"{at}/linear_1/weight": matrix(16, 16)}
        variables |= {f"{layer}/ffn/{name}/weight": matrix(24, 16) for name in ("linear_0", "linear_0_noact")}
        variables |= {f"{layer}/ffn/linear_1/weight": matrix(16, 24), f"{at}/rotary_dim": number(0)}
        names = ("input", "post_attention", "pre_feedforward", "post_feedforward")
        variables |= {f"{layer}/{name}_layer_norm/gamma": matrix(16) for name in names}
        variables[f"{at}/num_heads_kv"] = number(2)
    variables |= {"decoder/num_heads": number(4), "decoder/projection/weight": variables["decoder/embeddings/weight"]}
    held = ModelBin(
        architecture="TransformerDecoderSpec", variables=variables,
        aliases={"decoder/projection/weight": "decoder/embeddings/weight"},
    )  # fmt: skip
    graph = decoder_graph(held, name="gemma")
    assert graph.architecture == "gemma2"
    assert graph.parameters == 50 * 16 + 16 + 2 * (32 * 16 + 16 * 16 + 3 * 24 * 16 + 4 * 16)


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


@pytest.mark.parametrize(
    ("length", "is_one"), [(5, False), (6, True), (99, True), (100, False)]
)  # with the zero at the end of the name
def test_a_file_is_known_by_the_name_of_a_class_of_six_to_ninety_nine_bytes(length, is_one):
    name = b"A" * (length - 5) + b"Spec\0"
    head = (6).to_bytes(4, "little") + length.to_bytes(2, "little") + name
    assert (reader.match(Peek(path=Path("model.bin"), size=len(head), head=head)) > 0) == is_one
