"""What torch's probe models compute, to the number: each with the same made-up weights on the CPU.

A dropped residual, another head or a mask that hides too much changes the outputs; timing alone would not show it.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.torch.models import TINY, ProbeModels, _made, _Run
from inferometer.measure.calibrate.torch.timing import KernelTiming

torch = pytest.importorskip("torch", reason="torch is not installed: no probe model can be run")


class Seeded:
    """torch, but for numbers that are the same on every machine."""

    def __init__(self):
        self.random = np.random.default_rng(3)

    def randn(self, *shape, device=None, dtype=None):  # noqa: ARG002 - torch's signature
        return torch.from_numpy(self.random.standard_normal(shape).astype(np.float32)) * 5

    def randint(self, low, high, shape, device=None):  # noqa: ARG002 - as above
        return torch.from_numpy(self.random.integers(low, high, shape))

    def __getattr__(self, name):
        return getattr(torch, name)


def computed(name, *, masked=False, **run):
    seeded = Seeded()
    net = _made(SimpleNamespace(torch=seeded, place="cpu"), TINY[name], torch.float32)
    if isinstance(net.weights, torch.nn.Module):
        for number, (_, value) in enumerate(net.weights.state_dict().items()):
            if value.is_floating_point():
                value.copy_(seeded.randn(*value.shape).abs() / (5 + number % 7))
    with torch.inference_mode():
        out = net.prepared(_Run(model=name, phase="x", **run), masked=masked, config=TINY[name])()
    flat = out.double().flatten()
    return [*out.shape], [float(flat.mean()), float(flat.std()), float(flat[0])]


TOLD = {
    "prompt": (("probe-decoder-tiny", {"batch": 2, "query": 5}), [2, 1, 256]),
    "step": (("probe-decoder-tiny", {"batch": 2, "context": 7}), [2, 1, 256]),
    "texts": (("probe-encoder-tiny", {"batch": 3, "query": 5}), [3, 64]),
    "images": (("probe-cnn-tiny", {"batch": 2, "image": 48}), [2, 100]),
}
NUMBERS = {
    "images": [17597000000.0, 2961440000.0, 19295100000.0],
    "prompt": [-7.59865e-05, 0.0728807, 0.028533],
    "step": [0.000639101, 0.067485, 0.0282038],
    "texts": [-0.0175168, 0.164709, 0.174893],
}  # mean, deviation, first


@pytest.mark.parametrize("case", sorted(TOLD))
def test_a_probe_model_computes_what_it_did(case):
    (name, run), shape = TOLD[case]
    found, numbers = computed(name, **run)
    assert found == shape
    assert numbers == pytest.approx(NUMBERS[case], rel=1e-3, abs=1e-6)


def test_a_mask_hides_what_the_causal_kernel_hides():
    for run in ({"batch": 2, "query": 5}, {"batch": 2, "context": 7}):
        plain, masked = (computed("probe-decoder-tiny", masked=hidden, **run) for hidden in (False, True))
        assert plain[1] == pytest.approx(masked[1], rel=1e-4)
    open_, masked = (computed("probe-encoder-tiny", masked=hidden, batch=3, query=5) for hidden in (False, True))
    assert open_[1] == pytest.approx(masked[1], rel=1e-4), "nothing is padded"


@pytest.mark.parametrize(
    ("runtime", "phase", "place", "asked"),
    [
        ("torch-eager", "decode", "cuda", ["wall"]),
        ("torch-graph", "prefill", "cuda", ["replayed"]),
        ("torch-compile", "prefill", "cuda", ["reset", "compile", "wall"]),
        ("torch-compile", "decode", "cuda", ["reset", "compile", "replayed"]),
        ("torch-compile", "prefill", "cpu", ["wall"]),
        ("torch-eager", "decode", "cpu", ["wall"]),
    ],
)
def test_a_step_is_timed_as_the_runtime_runs_it(runtime, phase, place, asked):
    seen = []
    clock = SimpleNamespace(
        cuda=place == "cuda",
        torch=SimpleNamespace(compiler=SimpleNamespace(reset=lambda: seen.append("reset")),
                              compile=lambda call, **_: seen.append("compile") or call),
        wall=lambda _call: seen.append("wall") or KernelTiming(seconds=1.0, runs=3),
        replayed=lambda _call, **_: seen.append("replayed") or KernelTiming(seconds=1.0, runs=3),
    )  # fmt: skip
    models = ProbeModels(clock=clock, runtime=require_effects(runtime), dtype="bf16", probes=TINY)
    net = SimpleNamespace(prepared=lambda _run, *, masked, config: (masked, config))
    models._timed(net, _Run(model="m", phase=phase, batch=1), {})
    assert seen == asked
