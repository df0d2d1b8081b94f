"""What a host takes for eager PyTorch's ops is told by whole phases, and every figure that ships is one of those."""

import numpy as np
import pytest

from inferometer.known.engines import require_effects
from inferometer.predict.ask import ask
from workshop.calibrations.eager_calls import COUNTED, LAUNCH_S, PARTS, RUNTIME, STARTS, counted, solved

MODELS = ("llama-3.2-1b", "qwen2.5-0.5b", "pythia-410m", "gpt2", "opt-1.3b", "bert-base", "resnet50", "vit-b-16")


def of(model):
    return counted(ask(model, on="nvidia-h200", runtime=RUNTIME).graph)


def test_seconds_of_parts_come_back_from_phases_that_have_them():
    counts = np.array([found for model in MODELS if (found := of(model)) is not None])
    assert len(counts) >= 5
    truth = np.array([1.1 * STARTS[part] for part in PARTS])
    many = np.repeat(counts, 20, axis=0)  # few phases would leave figures near where they start
    found = solved(many, many @ truth)
    assert counts @ found == pytest.approx(counts @ truth, rel=0.01)


def test_a_model_with_ops_that_nobody_counted_tells_nothing():
    assert of("mamba-130m") is None
    assert of("llama-3.2-1b")[PARTS.index("linear")] == 16 * 7 + 1


def test_what_ships_is_what_its_parts_take():
    """As the script told them last: a figure that is edited alone no longer adds up with the others."""
    told = {"linear": 28.7, "convolution": 25.0, "norm": 27.7, "batch norm": 23.0, "kernel": 10.3, "view": 2.2,
            "module": 6.4, "before": 169.8}  # fmt: skip
    calls = require_effects(RUNTIME).calls
    for name, parts in COUNTED.items():
        launches = sum(times * told[part] for part, times in parts.items()) * 1e-6 / LAUNCH_S
        assert calls.get(name, calls[name.partition(":")[0]]) == pytest.approx(launches, rel=0.03), name
