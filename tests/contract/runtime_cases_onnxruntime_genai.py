"""ONNX Runtime GenAI in the suite of every runtime: a small Llama of ours in ONNX, with the config that it wants.

The file gives the logits of the last token alone, and its cache grows: the builder's own files are tried in
tests/unit/measure/prepare, where what the builder needs is installed.
"""

import json

import pytest

from inferometer.engines.base import Target
from inferometer.formats.synth import synthesise

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 120, "tie_word_embeddings": False,
}  # fmt: skip


def write_genai(folder):
    pytest.importorskip("onnx", reason="SKIPPED LOUDLY: onnx is not installed, nothing was run")
    folder.mkdir()
    synthesise(LLAMA, folder / "model.onnx")
    decoder = {
        "session_options": {"provider_options": []},
        "filename": "model.onnx",
        "head_size": 16,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "inputs": {
            "input_ids": "input_ids",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    model = {
        "type": "llama", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2, "vocab_size": 120,
        "context_length": 8192, "decoder": decoder,
    }  # fmt: skip
    search = {"max_length": 64, "past_present_share_buffer": False}
    (folder / "genai_config.json").write_text(json.dumps({"model": model, "search": search}))
    return folder


def llama(folder):
    return Target(path=write_genai(folder / "llama"), format="onnxruntime-genai", text=True, threads=1)


CASES = [("onnxruntime-genai", llama, (7, 8, 9, 10))]
