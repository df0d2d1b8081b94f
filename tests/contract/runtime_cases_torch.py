"""PyTorch in the suite of every runtime: language models, one that listens, networks and an exported program.

The compiler is tested apart: each of its sessions would compile for seconds.
"""

from pathlib import Path

import numpy as np
import pytest

from inferometer.engines.base import Target
from unit.engines.torch.configs import ARRAYS, SEQ2SEQ, TEXT, written

DATA = Path(__file__).parents[1] / "data" / "torch"
RANDOM = np.random.default_rng(0)


def _target(folder, config, **changes):
    pytest.importorskip("transformers", reason="transformers is not installed: PyTorch has no model to open")
    return Target(path=written(folder, config), format="config", unit="cpu", **changes)


def llama(folder):
    return _target(folder, TEXT["llama"], text=True)


def gpt2(folder):
    return _target(folder, TEXT["gpt2"], text=True)


def whisper(folder):
    return _target(folder, SEQ2SEQ["whisper"], text=True)


def bert(folder):
    return _target(folder, ARRAYS["bert"])


def resnet(folder):
    return _target(folder, ARRAYS["resnet"])


def exported(_folder):
    return Target(path=DATA / "encoder.pt2", format="pt2", unit="cpu")


CASES = [
    ("torch-eager", llama, (1, 2, 3, 4)),
    ("torch-eager", gpt2, (1, 2, 3, 4)),
    ("torch-eager", whisper, (1, 2, 3, 4)),
    ("torch-eager", bert, {"input_ids": RANDOM.integers(1, 160, (2, 7))}),
    ("torch-eager", resnet, {"pixel_values": RANDOM.standard_normal((2, 3, 32, 32)).astype(np.float32)}),
    ("torch-eager", exported, {"src": RANDOM.standard_normal((2, 4, 8)).astype(np.float32)}),
]
