"""The roof of a GPU that the catalog has no row for: the best of several matrix products and copies through PyTorch."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from inferometer.core.device import Sourced
from inferometer.core.errors import MissingDependencyError
from inferometer.core.roof import Roof

if TYPE_CHECKING:
    from collections.abc import Callable

_SIDE = 4096  # large enough to fill any GPU, and 100 MB of operands at most
_COPY_BYTES = 512_000_000  # larger than any cache
_SHARE_S = 0.3  # for each format, and for the copies
_FORMATS = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def measured_gpu_roof(  # noqa: PLR0913 - the seams of a measurement
    machine: str,
    *,
    torch: Any = None,
    clock: Callable[[], float] = time.perf_counter,
    share_s: float = _SHARE_S,
    side: int = _SIDE,
    nbytes: int = _COPY_BYTES,
) -> Roof:
    """Measure the peak of each format that PyTorch multiplies in, and the bandwidth of the GPU's memory."""
    torch = torch or _torch_with_a_gpu()
    moment = datetime.now(tz=UTC)

    def sourced(value: float, what: str) -> Sourced:
        source = f"PyTorch {torch.__version__}: the best of several {what}"
        return Sourced(value=value, origin="measured", source=source, date=moment.date().isoformat())

    def shortest_s(work: Callable[[], object]) -> float:
        shortest, begun, runs = float("inf"), clock(), 0
        while runs < 4 or clock() - begun < share_s:
            torch.cuda.synchronize()
            start = clock()
            work()
            torch.cuda.synchronize()
            if runs:  # the first warms up
                shortest = min(shortest, clock() - start)
            runs += 1
        return shortest

    peaks = {}
    for ours, theirs in _FORMATS.items():
        a, b = (torch.ones((side, side), dtype=getattr(torch, theirs), device="cuda") for _ in range(2))
        rate = 2 * side**3 / shortest_s(lambda a=a, b=b: torch.mm(a, b))  # type: ignore[misc]  # bound at once
        peaks[ours] = sourced(rate, f"products of {side} × {side} matrices")
    source, target = (torch.ones(nbytes, dtype=torch.uint8, device="cuda") for _ in range(2))
    moved = 2 * nbytes / shortest_s(lambda: target.copy_(source))
    copies = sourced(moved, f"copies of {nbytes // 1_000_000} MB, read and written bytes")
    return Roof(
        machine=machine, created=moment.isoformat(timespec="seconds"), peaks=peaks, bandwidth_bytes_per_s=copies
    )  # fmt: skip


def _torch_with_a_gpu() -> Any:
    from inferometer.engines.torch.engine import import_torch  # noqa: PLC0415 - torch takes seconds to import

    torch = import_torch()
    if not torch.cuda.is_available():
        raise MissingDependencyError(
            "The catalog has no row for this GPU, and PyTorch cannot use it to measure its peaks.",
            remedy="Install a build of PyTorch for it, or describe the GPU in a TOML file (`--on my-gpu.toml`).",
        )
    return torch
