"""ONNX Runtime in the suite of every runtime: a file others made, one with branches, and a language model of ours."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from inferometer.engines.base import Target
from inferometer.formats.synth import synthesise

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 120, "tie_word_embeddings": False,
}  # fmt: skip
RANDOM = np.random.default_rng(0)


def packaged(package, pattern):
    """A model file within an installed package, found without importing it."""
    found = find_spec(package)
    files = sorted(Path(found.origin).parent.glob(pattern)) if found and found.origin else []
    if not files:
        pytest.skip(f"SKIPPED LOUDLY: the package {package} with {pattern} is not installed")
    return files[0]


def squeezenet(folder):
    path = packaged("onnx", "backend/test/data/light/light_squeezenet.onnx")
    return Target(path=path, format="onnx", threads=1)


def silero(folder):
    return Target(path=packaged("silero_vad", "data/silero_vad.onnx"), format="onnx", threads=1)


def llama(folder):
    pytest.importorskip("onnx", reason="SKIPPED LOUDLY: onnx is not installed, nothing was run")
    return Target(path=synthesise(LLAMA, folder / "llama.onnx").path, format="onnx", text=True, threads=1)


CASES = [
    ("onnxruntime", squeezenet, {"data_0": RANDOM.standard_normal((1, 3, 224, 224)).astype(np.float32)}),
    (
        "onnxruntime",
        silero,
        {
            "input": RANDOM.standard_normal((1, 576)).astype(np.float32),
            "state": np.zeros((2, 1, 128), np.float32),
            "sr": np.array(16000, np.int64),
        },
    ),
    ("onnxruntime", llama, (5, 17, 99, 3)),
]
