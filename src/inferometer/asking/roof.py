"""The roof of this machine: how fast it multiplies matrices and copies memory, measured in a second and kept.

It is no calibration: it says what the machine can do through numpy, and nothing of any engine. It gives a machine that
no catalog row describes peaks to predict with and to judge a run by. A run never raises the roof it is judged by: an
engine that does better than numpy is then seen above its floor's price, and the page says so.
"""

from __future__ import annotations

import platform
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from inferometer.asking.files import name_start
from inferometer.core.codec import decode, encode
from inferometer.core.device import Device, Sourced
from inferometer.core.roof import Roof
from inferometer.errors import InferometerError
from inferometer.settings import data_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SIDE = 1536  # large enough to be bound by arithmetic, small enough to be done many times a second
_COPY_BYTES = 256_000_000  # beyond any cache
_SHARE_S = 0.4
_FRESH = timedelta(days=1)  # after which a run measures the roof again: the first time may have been a busy moment


def needs_roof(device: Device) -> bool:
    """Whether the row leaves open what a prediction stands on. Only this machine's may: it can be measured."""
    memory = device.memory
    return device.name == "local" and (not device.peaks or memory is None or memory.bandwidth_bytes_per_s is None)


def with_roof(device: Device, roof: Roof) -> Device:
    """The device with what its own row leaves open."""
    main, *caches = device.memories
    if main.bandwidth_bytes_per_s is None:
        main = replace(main, bandwidth_bytes_per_s=roof.bandwidth_bytes_per_s)
    return replace(device, peaks=device.peaks or roof.peaks, memories=(main, *caches))


def machine_roof(
    device: Device,
    *,
    fresh: bool = False,
    folder: Path | None = None,
    measure: Callable[[str], Roof] | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(tz=UTC),
) -> Roof:
    """The roof that is kept for this machine, measured where there is none yet.

    With `fresh`, as before a run, one older than a day is measured again. The better of the two is kept: a roof is the
    best the machine has shown.
    """
    machine = name_start(platform.node(), device.title)
    path = (folder or data_folder() / "roofs") / f"{machine}.json"
    kept = _read(path)
    if kept is not None and not (fresh and now() - datetime.fromisoformat(kept.created) > _FRESH):
        return kept
    roof = _better(kept, (measure or measured_roof)(machine))
    _write(path, roof)
    return roof


def _read(path: Path) -> Roof | None:
    """What cannot be read is measured again."""
    try:
        return decode(path.read_bytes(), Roof)
    except (OSError, InferometerError):
        return None


def _write(path: Path, roof: Roof) -> None:
    """A folder that cannot be written loses nothing but the second that measuring takes."""
    partial = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(encode(roof, indent=1))
        partial.replace(path)
    except OSError:
        return


def _better(kept: Roof | None, roof: Roof) -> Roof:
    if kept is None:
        return roof
    peaks = {
        name: max(peak, kept.peaks[name], key=float) if name in kept.peaks else peak
        for name, peak in roof.peaks.items()
    }
    bandwidth = max(roof.bandwidth_bytes_per_s, kept.bandwidth_bytes_per_s, key=float)
    return replace(roof, peaks=peaks, bandwidth_bytes_per_s=bandwidth)


def measured_roof(machine: str, *, clock: Callable[[], float] = time.perf_counter, share_s: float = _SHARE_S) -> Roof:
    """A peak of f32 and the bandwidth of main memory, by the best of several products and copies."""
    moment = datetime.now(tz=UTC)

    def best(value: float, what: str) -> Sourced:
        source = f"numpy {np.__version__}: the best of several {what}"
        return Sourced(value=value, origin="measured", source=source, date=moment.date().isoformat())

    products = product_flop_per_s(clock=clock, seconds=share_s)
    copies = copy_bytes_per_s(clock=clock, seconds=share_s)
    return Roof(
        machine=machine,
        created=moment.isoformat(timespec="seconds"),
        peaks={"f32": best(products, f"products of {_SIDE} × {_SIDE} matrices")},
        bandwidth_bytes_per_s=best(copies, f"copies of {_COPY_BYTES // 1_000_000} MB, read and written bytes"),
    )


def product_flop_per_s(*, clock: Callable[[], float], seconds: float, side: int = _SIDE) -> float:
    """The best rate of a product of two f32 matrices, with as many threads as numpy uses."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((side, side), np.float32) for _ in range(2))
    out = np.empty_like(a)
    return 2 * side**3 / _best(lambda: np.matmul(a, b, out=out), clock, seconds)


def copy_bytes_per_s(*, clock: Callable[[], float], seconds: float, nbytes: int = _COPY_BYTES) -> float:
    """The best rate of a copy; what is read and what is written both count."""
    source = np.ones(nbytes // 8)
    target = np.zeros_like(source)
    return 2 * source.nbytes / _best(lambda: np.copyto(target, source), clock, seconds)


def _best(work: Callable[[], object], clock: Callable[[], float], seconds: float) -> float:
    """The shortest of the runs that fit into the time, three at least; the first only warms up."""
    work()
    shortest, begun, runs = float("inf"), clock(), 0
    while runs < 3 or clock() - begun < seconds:
        start = clock()
        work()
        shortest = min(shortest, clock() - start)
        runs += 1
    return shortest
