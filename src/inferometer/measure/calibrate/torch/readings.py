"""Torch's costs beside its ops: launches, steps, copies from and to the host; and how much of a rate is sustained."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from inferometer.measure.calibrate.fitting.points import OpPoint, overhead
from inferometer.measure.calibrate.run import Candidate, CandidateResult
from inferometer.measure.calibrate.torch.kernels import torch_dtype
from inferometer.measure.calibrate.torch.timing import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

_OVERHEADS = ("kernel", "step", "host")
_COPIED_BYTES = 256_000_000  # between host and device
_MOST_TIMES = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchReadings:
    """The provider of readings. They come first, because all fits subtract the cost of a launch."""

    clock: Clock
    dtype: str

    @property
    def torch(self) -> Any:
        return self.clock.torch

    def candidates(self) -> list[Candidate]:
        candidates = [Candidate(key=f"overhead {name}", op_class="overhead", first=True) for name in _OVERHEADS]
        candidates += [Candidate(key=f"copy {name}", op_class="copies", first=True) for name in ("h2d", "d2h")]
        candidates.append(Candidate(key="sustained product", op_class="sustained", seconds=2.0, first=True))
        return candidates

    def measure(self, candidate: Candidate) -> CandidateResult:
        kind, _, name = candidate.key.partition(" ")
        if kind == "overhead":
            return CandidateResult(points=(self._overhead(name),))
        return CandidateResult(points=(self._copy(name) if kind == "copy" else self._sustained(),))

    def _square(self, side: int) -> Any:
        form = torch_dtype(self.torch, self.dtype)
        return self.torch.randn(side, side, device=self.clock.place, dtype=form)

    def _copy(self, name: str) -> OpPoint:
        """The bandwidth of a copy between the host's pinned memory and the device."""
        host = self.torch.empty(_COPIED_BYTES // 4 if self.clock.cuda else 1024, dtype=self.torch.float32)
        if self.clock.cuda:
            host = host.pin_memory()
        there = self.torch.empty_like(host, device=self.clock.place)
        source, target = (host, there) if name == "h2d" else (there, host)
        seconds = self.clock.wall(lambda: target.copy_(source, non_blocking=True)).seconds
        rate = host.numel() * 4 / seconds
        return self._reading(f"copy {name}", seconds, {f"bandwidth:{name}": rate})

    def _sustained(self) -> OpPoint:
        """A large product, repeated: the rate at the end over the rate at the start, and the power drawn."""
        side = 8192 if self.clock.cuda else 64
        a, b = (self._square(side) for _ in range(2))
        begun = self.clock.now()
        times: list[float] = []
        self.clock.once(lambda: a @ b)
        while not times or (self.clock.now() - begun < self.clock.limit_s and len(times) < _MOST_TIMES):
            times.append(self.clock.once(lambda: a @ b))
        some = max(1, len(times) // 5)
        ratio = sum(times[:some]) / sum(times[-some:])
        rates = {f"sustained:{self.dtype}": ratio}
        with suppress(Exception):  # no meter, no library for it, no right to read it
            rates["power:watts"] = float(self.torch.cuda.power_draw()) / 1e3
        return self._reading("sustained", times[-1], rates)

    def _reading(self, name: str, seconds: float, rates: dict[str, float]) -> OpPoint:
        return replace(overhead(name, seconds, dtype=self.dtype, probe=name), classes=("reading",), rates=rates)

    def _overhead(self, name: str) -> OpPoint:
        x = self.torch.zeros(1, device=self.clock.place)

        def chain(count: int) -> Callable[[], None]:
            def call() -> None:
                for _ in range(count):
                    x.add_(1)

            return call

        if name == "kernel":
            seconds = self.clock.replayed(chain(200), calls=200).seconds
        elif name == "step":
            seconds = self.clock.replayed(chain(1), wall=True).seconds
        else:
            seconds = self.clock.wall(chain(500)).seconds / 500
        return overhead(name, seconds, dtype=self.dtype, probe=f"overhead {name}")
