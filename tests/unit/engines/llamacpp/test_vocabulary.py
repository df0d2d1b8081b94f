"""What a checkpoint's tokeniser and tensors become in a GGUF file that is made of it."""

import json
from contextlib import ExitStack

import numpy as np
import pytest

from inferometer.core.errors import FormatError
from inferometer.engines.llamacpp.convert import _marks, _reader, _vocabulary

KNOWN = {
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 3}, "merges": ["a b", ["ab", "a"]]},
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}]},
    "added_tokens": [{"content": "<s>", "id": 4, "special": True}, {"content": "<tool>", "id": 6, "special": False}],
}


def written(folder, **changes):
    model = {**KNOWN["model"], **changes.pop("model", {})}
    (folder / "tokenizer.json").write_text(json.dumps({**KNOWN, "model": model, **changes}), encoding="utf-8")
    return folder


def test_tokens_stand_at_their_numbers_with_their_types_and_what_nobody_named_is_unused(tmp_path):
    config = {"model_type": "qwen3", "bos_token_id": None, "eos_token_id": [4, 1]}
    found = _vocabulary(written(tmp_path), config, 8)
    assert found == {
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": ["a", "b", "<|unused2|>", "ab", "<s>", "<|unused5|>", "<tool>", "<|unused7|>"],
        "tokenizer.ggml.token_type": [1, 1, 5, 1, 3, 5, 1, 5],
        "tokenizer.ggml.merges": ["a b", "ab a"],
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.eos_token_id": 4,
    }
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"")
    assert _vocabulary(weights, config, 8) == found  # the tokeniser lies beside a file
    assert _vocabulary(written(tmp_path, model={"merges": []}), config, 8)["tokenizer.ggml.merges"] == ["! !"]
    assert _vocabulary(written(tmp_path), {"model_type": "llama"}, 1)["tokenizer.ggml.pre"] == "llama-bpe"


def test_a_tokeniser_that_is_not_one_of_pairs_of_bytes_is_left_out(tmp_path):
    qwen = {"model_type": "qwen2"}
    assert _vocabulary(tmp_path, qwen, 8) == {}
    assert _vocabulary(written(tmp_path), {"model_type": "olmo2"}, 8) == {}
    assert _vocabulary(written(tmp_path, model={"type": "Unigram"}), qwen, 8) == {}
    assert _vocabulary(written(tmp_path, decoder={"type": "Metaspace"}), qwen, 8) == {}
    assert _vocabulary(written(tmp_path, decoder=None), qwen, 8) == {}


@pytest.mark.parametrize(
    ("stated", "held"), [(0, 0), (7, 7), (8, None), (-1, None), ([5, 6], 5), ([], None), ("5", None), (None, None)]
)
def test_marks_are_tokens_of_the_vocabulary(stated, held):
    begins, ends = "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"
    assert _marks({"bos_token_id": stated, "eos_token_id": 3}, 8).get(begins) == held
    assert _marks({"eos_token_id": stated}, 8) == ({} if held is None else {ends: held})


def test_tensors_are_found_in_any_shard_by_either_name_as_f32(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    numpy.save_file({"model.a.weight": np.float16([[1.5, -2.0]])}, tmp_path / "model-1.safetensors")
    numpy.save_file({"b.weight": np.float32([3.25])}, tmp_path / "model-2.safetensors")
    with ExitStack() as files:
        read = _reader(tmp_path, files)
        assert (read("a.weight").tolist(), read("a.weight").dtype) == ([[1.5, -2.0]], np.float32)
        assert read("model.a.weight").tolist() == [[1.5, -2.0]]
        assert read("b.weight").tolist() == [3.25]
        with pytest.raises(FormatError, match=r"no tensor 'c\.weight'"):
            read("c.weight")
        with pytest.raises(FormatError, match=r"no tensor 'a\.weight'"):
            _reader(tmp_path / "model-2.safetensors", files)("a.weight")
        (tmp_path / "model-3.safetensors").write_bytes(b"nothing")
        with pytest.raises(FormatError, match=r"model-3\.safetensors cannot be read"):
            _reader(tmp_path, files)
