"""The roof of a GPU without a row: rates from the shortest run, after one to warm up."""

from typing import ClassVar

import pytest

from inferometer.predict.basis.roof import measured_gpu_roof

SIDE, NBYTES = 100, 8_000_000


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Tensor:
    def __init__(self, torch, dtype):
        self.torch, self.dtype = torch, dtype

    def copy_(self, _other):
        self.torch.work("copy")


class Torch:
    """Runs take the times listed by format, the first ten times as long; only waiting for the device shows them."""

    __version__ = "2.13.0"
    float32, bfloat16, float16, uint8 = "float32", "bfloat16", "float16", "uint8"
    seconds: ClassVar = {"float32": 4e-3, "bfloat16": 1e-3, "float16": 2e-3, "copy": 5e-3}

    def __init__(self, clock):
        self.clock, self.pending, self.runs, self.cuda = clock, 0.0, {}, self

    def ones(self, _shape, *, dtype, device):
        assert device == "cuda"
        return Tensor(self, dtype)

    def mm(self, a, _b):
        self.work(a.dtype)

    def work(self, what):
        self.runs[what] = self.runs.get(what, 0) + 1
        self.pending += self.seconds[what] * {1: 10.0, 2: 1.5}.get(self.runs[what], 1.0)

    def synchronize(self):
        self.clock.now, self.pending = self.clock.now + self.pending, 0.0


def test_peaks_and_bandwidth_are_of_the_shortest_run():
    clock = Clock()
    torch = Torch(clock)
    roof = measured_gpu_roof("box", torch=torch, clock=clock, share_s=0.02, side=SIDE, nbytes=NBYTES)
    for ours, theirs in (("f32", "float32"), ("bf16", "bfloat16"), ("f16", "float16")):
        assert float(roof.peaks[ours]) == pytest.approx(2 * SIDE**3 / torch.seconds[theirs])
    assert float(roof.bandwidth_bytes_per_s) == pytest.approx(2 * NBYTES / 5e-3)
    assert roof.peaks["bf16"].origin == "measured"
    assert "PyTorch 2.13.0" in roof.peaks["bf16"].source
