"""Torch on a CUDA device as a provider: its kernels and probe models, and whether others use the device."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from dataclasses import dataclass, replace
from shutil import which
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import EngineError
from inferometer.core.frozen import frozen
from inferometer.measure.calibrate.fitting.points import OpPoint, overhead
from inferometer.measure.calibrate.run import CandidateResult, CandidateSource, ProbeCandidate, Together
from inferometer.measure.calibrate.torch.kernels import SIZES, Kernels, KernelSizes, torch_dtype
from inferometer.measure.calibrate.torch.models import PROBES, ProbeModels
from inferometer.measure.calibrate.torch.timing import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from inferometer.core.device import Device
    from inferometer.core.engine import RuntimeEffects


# Torch's costs beside its ops: launches, steps, copies from and to the host; and how much of a rate is sustained.

_OVERHEADS = ("kernel", "step", "host")
_COPIED_BYTES = 256_000_000  # between host and device
_MOST_TIMES = 4000  # a product of microseconds would fill the limit with a million readings


@frozen
class TorchReadings:
    """The provider of readings. They come first, because all fits subtract the cost of a launch."""

    clock: Clock
    dtype: str

    @property
    def torch(self) -> Any:
        return self.clock.torch

    def candidates(self) -> list[ProbeCandidate]:
        candidates = [ProbeCandidate(key=f"overhead {name}", op_class="overhead", first=True) for name in _OVERHEADS]
        candidates += [ProbeCandidate(key=f"copy {name}", op_class="copies", first=True) for name in ("h2d", "d2h")]
        candidates.append(ProbeCandidate(key="sustained product", op_class="sustained", seconds=2.0, first=True))
        return candidates

    def measure(self, candidate: ProbeCandidate) -> CandidateResult:
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
        side = 8192 if self.clock.cuda else 64  # 1.1 TFLOP at once, to warm a card; on a CPU it is only tried
        a, b = (self._square(side) for _ in range(2))
        begun = self.clock.now()
        times: list[float] = []
        self.clock.once(lambda: a @ b)
        while not times or (self.clock.now() - begun < self.clock.limit_s and len(times) < _MOST_TIMES):
            times.append(self.clock.once(lambda: a @ b))
        some = max(1, len(times) // 5)  # the first fifth is at full clock, the last as warm as it gets
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
            # enough of them to hide the replay's start
            seconds = self.clock.replayed(chain(200), calls=200).seconds
        elif name == "step":
            seconds = self.clock.replayed(chain(1), wall=True).seconds
        else:
            seconds = self.clock.wall(chain(500)).seconds / 500  # as many as hide what waiting for the end costs
        return overhead(name, seconds, dtype=self.dtype, probe=f"overhead {name}")


_CONTEXT_BYTES = 3_000_000_000  # that a driver and one context of our own may hold


@dataclass(frozen=True, slots=True)
class _Careful:
    """A provider that turns torch's errors into ours: out of memory or not supported skips one case, not all."""

    provider: CandidateSource
    clock: Clock

    def candidates(self) -> list[ProbeCandidate]:
        return list(self.provider.candidates())

    def measure(self, candidate: ProbeCandidate) -> CandidateResult:
        try:
            return self.provider.measure(candidate)
        except (RuntimeError, ValueError, TypeError) as error:
            self.clock.tidy()
            words = str(error).strip().splitlines() or [type(error).__name__]
            raise EngineError(f"torch cannot run it: {words[0][:200]}") from error


def torch_provider(  # noqa: PLR0913 - what a provider is made for
    torch: Any,
    device: Device,
    runtime: RuntimeEffects,
    dtype: str,
    *,
    place: str = "cuda",
    limit_s: float = 2.0,
    sizes: KernelSizes = SIZES,
    probes: Mapping[str, dict[str, Any]] | None = None,
    most: int | None = None,
) -> CandidateSource:
    """Kernels and probe models. `sizes`, `probes` and `most` make it small, for tests."""
    clock = Clock(torch=torch, place=place, limit_s=limit_s)
    models = ProbeModels(
        clock=clock, runtime=runtime, dtype=dtype, probes=PROBES if probes is None else probes, most=most
    )
    kernels = Kernels(clock, device, runtime, dtype, sizes=sizes)
    readings = TorchReadings(clock=clock, dtype=dtype)
    return Together(*(_Careful(provider, clock) for provider in (readings, kernels, models)))


def require_cuda(torch: Any) -> None:
    if not torch.cuda.is_available():
        raise EngineError(
            "torch finds no CUDA device here.",
            remedy="Run this on a machine with a GPU and its driver, or give --unit cpu.",
        )


def now_and_then(look: Callable[[], str | None], every_s: float, now: Callable[[], float]) -> Callable[[], str | None]:
    """A look that is taken at most every so often: asking the driver takes longer than a kernel."""
    last = now()

    def looked() -> str | None:
        nonlocal last
        if now() - last < every_s:
            return None
        last = now()
        return look()

    return looked


def others_on(torch: Any, run: Callable[..., Any] = subprocess.run) -> str | None:
    """Who else uses the GPU, or None, from the memory in use and the processes that the driver lists."""
    free, total = torch.cuda.mem_get_info()
    foreign = total - free - torch.cuda.memory_reserved()
    if foreign > _CONTEXT_BYTES:
        return f"others hold {foreign / 1e9:.1f} GB of the GPU's memory"
    tool = which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
    try:
        listed = run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    lines = [line for line in listed.splitlines() if line.strip()]
    return f"{len(lines)} processes use the GPU: {'; '.join(lines[:4])}" if len(lines) > 1 else None


def torch_environment(torch: Any) -> tuple[dict[str, str], dict[str, str]]:
    """The versions that a calibration depends on, and its circumstances."""
    versions = {"torch": str(torch.__version__)}
    if torch.version.cuda:
        versions["cuda"] = str(torch.version.cuda)
    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    if cudnn:
        versions["cudnn"] = str(cudnn)
    circumstances: dict[str, str] = {}
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        circumstances = {
            "gpu": str(gpu.name),
            "memory_bytes": str(gpu.total_memory),
            "multiprocessors": str(gpu.multi_processor_count),
            "gpus": str(torch.cuda.device_count()),
        }
        driver = _driver()
        if driver:
            versions["driver"] = driver
    return versions, circumstances


def _driver() -> str | None:
    tool = which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603 - a fixed command
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(answer.stdout.split()), None)
