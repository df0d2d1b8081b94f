"""The roof of this machine: how fast it multiplies matrices and copies memory, measured in a second and kept.

A roof is not a calibration: it says what the machine can do through numpy, and nothing about any engine. It gives a
machine without a catalog row the peaks to predict with and to judge a run by. A run that beats it proves it too low:
it is measured again, and raised to what the run did if it still is (`understand/beaten_roof.py`).
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.cache import write_whole
from inferometer.core.device import Device, Roof, Sourced, is_local
from inferometer.core.errors import InferometerError, MissingDependencyError
from inferometer.core.notices import tell
from inferometer.core.settings import data_folder
from inferometer.core.units import counted
from inferometer.predict.basis.files import name_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

# The roof of a GPU that the catalog has no row for: the best of several matrix products and copies through PyTorch.

_GPU_SIDE = 4096  # large enough to fill any GPU, and 100 MB of operands at most
_GPU_COPY_BYTES = 512_000_000  # larger than any cache
_GPU_SHARE_S = 0.3  # for each format, and for the copies
_FORMATS = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def measured_gpu_roof(  # noqa: PLR0913 - the seams of a measurement
    machine: str,
    *,
    torch: Any = None,
    clock: Callable[[], float] = time.perf_counter,
    share_s: float = _GPU_SHARE_S,
    side: int = _GPU_SIDE,
    nbytes: int = _GPU_COPY_BYTES,
) -> Roof:
    """Measure the peak of each format that PyTorch multiplies in, and the bandwidth of the GPU's memory."""
    torch = torch or _torch_with_a_gpu()
    moment = datetime.now(tz=UTC)

    def sourced(value: float, what: str) -> Sourced:
        source = f"PyTorch {torch.__version__}: the best of several {what}"
        return Sourced(value=value, origin="measured", source=source, date=moment.date().isoformat())

    def shortest_s(work: Callable[[], object]) -> float:
        shortest, begun, runs = float("inf"), clock(), 0
        # One to warm up and three that count, however slow the GPU is; a fast one has many in its share of the time.
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


MAIN_MEMORY = "memory"  # the name of its rate, beside those of number formats
COOLING = ("power_w", "idle_w", "cooling_w", "warms_s")  # of a roof: what `calibrate --cooling` fits
_SIDE = 1536  # large enough to be bound by arithmetic, small enough to run many times a second
_COPY_BYTES = 256_000_000  # larger than any cache
_SHARE_S = 0.2  # for a reading of the products, or of the copies: two of each, where they agree
_READINGS, _AGREE = 5, 0.9  # of a rate at most; what the second best must be of the best
# How old a roof may be before a run measures it again. One of a busy machine is too low, so it is tried again soon.
_FRESH, _FRESH_IF_BUSY = timedelta(days=1), timedelta(minutes=10)
# Products of bytes in an instruction over those of f32, the best first; of halves.
_HALF_PRODUCTS = {"asimdhp": 2, "avx512_fp16": 2}
# Times the f32 rate, as registers hold them.
_BYTE_PRODUCTS = {"i8mm": 8, "asimddp": 4, "avx512_vnni": 4, "avx_vnni": 4}
_BUSY = 0.5  # running tasks a CPU, before ours


def needs_roof(device: Device) -> bool:
    """Whether the row lacks a figure that predictions need. Only this machine's may, because it can be measured."""
    memory = device.memory
    return is_local(device.name) and (not device.peaks or memory is None or memory.bandwidth_bytes_per_s is None)


def roof_for(device: Device, *, fresh: bool = False) -> Roof | None:
    """The roof of this machine, if the device is this machine and its row lacks figures; None for any other."""
    return machine_roof(device, fresh=fresh) if needs_roof(device) else None


def with_roof(device: Device, roof: Roof) -> Device:
    """The device with the figures its row lacks."""
    main, *caches = device.memories
    if main.bandwidth_bytes_per_s is None:
        main = replace(main, bandwidth_bytes_per_s=roof.bandwidth_bytes_per_s)
    return replace(
        device,
        peaks=device.peaks or {**_in_fewer_bits(roof.peaks), **roof.peaks},
        memories=(main, *caches),
        call_s=device.call_s or roof.call_s,
        **{name: getattr(device, name) or getattr(roof, name) for name in COOLING},
    )


def _in_fewer_bits(peaks: Mapping[str, Sourced], features: Iterable[str] = ()) -> dict[str, Sourced]:
    """Numpy multiplies no matrices of int8 or f16 fast: f32 stands in, times what one instruction does more of.

    A vector of 128 bits holds four f32 products. A dot product of bytes (SDOT, VPDPBUSD) adds up sixteen in its place,
    a product of matrices of bytes (SMMLA) thirty-two; without them a processor is no slower than in f32. Halves are
    twice as many, where a processor computes in them.
    """
    if "f32" not in peaks:
        return {}
    plain, present = peaks["f32"], set(features)

    def derived(products: Mapping[str, int]) -> Sourced:
        feature = next((name for name in products if name in present), None)
        times = products[feature] if feature else 1
        why = f"{times} × f32, as {feature} multiplies" if feature else "no slower than f32"
        source = f"{why}, and not measured; f32: {plain.source}"
        return replace(plain, value=times * plain.value, origin="prior", source=source)

    halves = {"f16": derived(_HALF_PRODUCTS)} if present & _HALF_PRODUCTS.keys() else {}
    return {"i8": derived(_BYTE_PRODUCTS), **halves}


def machine_roof(
    device: Device,
    *,
    fresh: bool = False,
    folder: Path | None = None,
    measure: Callable[[str], Roof] | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(tz=UTC),
) -> Roof:
    """The stored roof of this machine, measured now if there is none yet.

    With `fresh`, as before a run, a roof older than a day is measured again; one of a busy machine always is, after ten
    minutes. The better of the two is stored: a roof is the best the machine has shown. One of more or fewer CPUs than
    may be used now is another machine's.
    """
    path = _path_of(device, folder)
    kept = _stored_roof(path)
    if kept is not None and device.unit != "gpu" and kept.threads != _usable_threads():
        kept = None
    if kept is not None:
        old = now() - datetime.fromisoformat(kept.created) > (_FRESH_IF_BUSY if kept.busy else _FRESH)
        if not old or not (fresh or kept.busy):
            return kept if device.unit == "gpu" else _with_derived(_with_call(kept, path))
    often = "once (about 1 s); they are kept for later" if kept is None else "again (about 1 s)"
    tell(f"measuring this machine's roofs {often}")
    roof = _better(kept, (measure or _measure(device))(path.stem))
    _store_roof(path, roof)
    return roof


def read_again(
    device: Device, roof: Roof, *, folder: Path | None = None, measure: Callable[[str], Roof] | None = None
) -> Roof:
    """The better of the roof and of another reading of it, kept: something has shown that it is too low."""
    tell("a run did better than this machine's roofs: measuring them again (about 1 s)")
    path = _path_of(device, folder)
    better = _better(roof, (measure or _measure(device))(path.stem))
    _store_roof(path, better)
    return better


def keep_roof(device: Device, roof: Roof, folder: Path | None = None) -> None:
    """Keep one that something other than a measurement has raised."""
    _store_roof(_path_of(device, folder), roof)


def raised(roof: Roof, rate: str, times: float, *, by: str) -> Roof:
    """The roof with one rate times as high, a number format's or the main memory's.

    Formats that stand on f32 alone rise with it, where they were not measured themselves.
    """

    def higher(rate: Sourced) -> Sourced:
        source = rate.source.partition("; raised by ")[0]
        return replace(rate, value=times * rate.value, source=f"{source}; raised by {by}")

    if rate == MAIN_MEMORY:
        return replace(roof, bandwidth_bytes_per_s=higher(roof.bandwidth_bytes_per_s))
    peaks = {
        name: higher(peak) if name == rate or (rate == "f32" and peak.origin == "prior") else peak
        for name, peak in roof.peaks.items()
    }
    return replace(roof, peaks=peaks)


def _path_of(device: Device, folder: Path | None) -> Path:
    from inferometer.known.machine.detect.identity import this_machine  # noqa: PLC0415 - only for this machine

    return (folder or data_folder() / "roofs") / f"{name_start(this_machine().id, device.title)}.json"


def _measure(device: Device) -> Callable[[str], Roof]:
    return measured_gpu_roof if device.unit == "gpu" else measured_roof


def keep_cooling(power_w: float, idle_w: float, cooling_w: float, warms_s: float | None, *, source: str) -> None:
    """Add what a long run with a power meter says of this machine's CPU to its roof, whatever was there before."""
    from inferometer.known.machine.local import local_device  # noqa: PLC0415 - only for this machine

    device, date = local_device("local:cpu"), datetime.now(tz=UTC).date().isoformat()
    values = dict(zip(COOLING, (power_w, idle_w, cooling_w, warms_s), strict=True))
    fitted: dict[str, Any] = {
        name: None if value is None else Sourced(value=value, origin="calibrated", source=source, date=date)
        for name, value in values.items()
    }
    keep_roof(device, replace(machine_roof(device), **fitted))


def _with_derived(roof: Roof) -> Roof:
    """With what follows from this processor's instructions: a roof that was kept by an older version lacks some."""
    from inferometer.known.machine.detect import detect_host  # noqa: PLC0415 - as above

    return replace(roof, peaks={**_in_fewer_bits(roof.peaks, detect_host().cpu.flags), **roof.peaks})


def _with_call(roof: Roof, path: Path) -> Roof:
    """With what a call takes, which one that was kept by an older version lacks: it is read and kept."""
    if roof.call_s is None:
        roof = replace(roof, call_s=_measured_call())
        _store_roof(path, roof)
    return roof


def _measured_call() -> Sourced:
    from inferometer.known.machine.health import host_call_s  # noqa: PLC0415 - as above

    today = datetime.now(tz=UTC).date().isoformat()
    return Sourced(value=host_call_s(), origin="measured", source="calls of a small kernel of numpy", date=today)


def _stored_roof(path: Path) -> Roof | None:
    """None if it cannot be read: the caller then measures again."""
    from inferometer.core.codec import decode  # noqa: PLC0415 - as above

    try:
        return decode(path.read_bytes(), Roof)
    except (OSError, InferometerError):
        return None


def _store_roof(path: Path, roof: Roof) -> None:
    """If it cannot be written, all that is lost is the second it takes to measure again."""
    from inferometer.core.codec import encode  # noqa: PLC0415 - as above

    with suppress(OSError):
        write_whole(path, encode(roof, indent=1))


def _better(kept: Roof | None, roof: Roof) -> Roof:
    if kept is None:
        return roof
    peaks = {
        name: max(peak, kept.peaks[name], key=float) if name in kept.peaks else peak
        for name, peak in roof.peaks.items()
    }
    bandwidth = max(roof.bandwidth_bytes_per_s, kept.bandwidth_bytes_per_s, key=float)
    call = min((each for each in (roof.call_s, kept.call_s) if each is not None), key=float, default=None)
    cooling = {name: getattr(kept, name) for name in COOLING}
    busy = roof.busy and kept.busy
    return replace(roof, peaks=peaks, bandwidth_bytes_per_s=bandwidth, call_s=call, busy=busy, **cooling)


def _usable_threads() -> int:
    from inferometer.known.machine.detect.identity import this_machine  # noqa: PLC0415 - as above

    return ceil(this_machine().usable_cpus or 1)


def _load_per_cpu() -> float:
    import psutil  # noqa: PLC0415 - only a measurement on this machine needs it

    return float(psutil.getloadavg()[0]) / (psutil.cpu_count() or 1)


def measured_roof(
    machine: str,
    *,
    clock: Callable[[], float] = time.perf_counter,
    share_s: float = _SHARE_S,
    load: Callable[[], float] = _load_per_cpu,
) -> Roof:
    """Measure the f32 peak and the bandwidth of main memory, the best of several products and copies, and a call.

    Each is read until its two best readings agree. Where they never do, other programs had a part of the machine,
    whatever its load was when we looked.
    """
    from inferometer.known.machine.detect import detect_host  # noqa: PLC0415 - as above

    moment, busy = datetime.now(tz=UTC), load() > _BUSY

    def best(value: float, what: str) -> Sourced:
        source = f"numpy {np.__version__}: the best of several {what}"
        return Sourced(value=value, origin="measured", source=source, date=moment.date().isoformat())

    threads = _usable_threads()
    products, products_agree = _best_of(lambda: product_flop_per_s(clock=clock, seconds=share_s, threads=threads))
    plain = {"f32": best(products, f"products of {_SIDE} × {_SIDE} matrices")}
    copies, copies_agree = _best_of(lambda: copy_bytes_per_s(clock=clock, seconds=share_s, threads=threads))
    copied = f"copies of {_COPY_BYTES // 1_000_000} MB by {counted(threads, 'thread')}, read and written bytes"
    return Roof(
        machine=machine,
        created=moment.isoformat(timespec="seconds"),
        peaks={**_in_fewer_bits(plain, detect_host().cpu.flags), **plain},
        bandwidth_bytes_per_s=best(copies, copied),
        call_s=_measured_call(),
        threads=threads,
        busy=busy or not (products_agree and copies_agree),
    )


def _best_of(read: Callable[[], float]) -> tuple[float, bool]:
    """The best of readings that are taken until the two best agree, and whether they do."""
    rates = sorted((read(), read()))
    while len(rates) < _READINGS and rates[-2] < _AGREE * rates[-1]:
        rates = sorted((*rates, read()))
    return rates[-1], rates[-2] >= _AGREE * rates[-1]


def busy_notes(roof: Roof | None) -> tuple[str, ...]:
    """The note on a floor whose roof was measured while the machine was busy."""
    if roof is None or not roof.busy:
        return ()
    note = "This machine was busy when its roofs were measured, so it may do better: floors are too slow by as much."
    return (f"{note} The next run after ten minutes measures them again; stop other programs for it.",)


def product_flop_per_s(*, clock: Callable[[], float], seconds: float, threads: int, side: int = _SIDE) -> float:
    """The best rate of a product of two f32 matrices, with as many threads as numpy uses."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((side, side), np.float32) for _ in range(2))
    out = np.empty_like(a)
    # Each of side² results takes as many multiplies and adds as a row is long.
    return 2 * side**3 / _alone_s(lambda: np.matmul(a, b, out=out), clock, seconds, threads)


def copy_bytes_per_s(*, clock: Callable[[], float], seconds: float, threads: int, nbytes: int = _COPY_BYTES) -> float:
    """The best rate of a copy, counting bytes read and bytes written: one thread fills the memory of few machines."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - brings logging, which no other question needs

    source = np.ones(nbytes // 8)
    target = np.zeros_like(source)
    parts = (np.array_split(target, threads), np.array_split(source, threads))
    with ThreadPoolExecutor(threads) as pool:  # numpy copies without Python's lock
        copy_s = _alone_s(lambda: deque(pool.map(np.copyto, *parts), maxlen=0), clock, seconds, threads)
    return 2 * source.nbytes / copy_s


def _alone_s(
    work: Callable[[], object],
    clock: Callable[[], float],
    seconds: float,
    threads: int,
    used: Callable[[], tuple[float, float]] | None = None,
) -> float:
    """What a run takes on a machine of its own: the shortest of at least three, or their mean without the others' part.

    What other programs used of the CPUs meanwhile was not ours, so a roof that is read while something compiles is that
    of a quiet machine. No run is taken to be faster than all `threads` at work with what it used itself.
    """
    used = used or _used_cpus
    work()  # warms up
    shortest, begun, runs, (own, others) = float("inf"), clock(), 0, used()
    while runs < 3 or clock() - begun < seconds:
        start = clock()
        work()
        shortest = min(shortest, clock() - start)
        runs += 1
    own, others = (now - before for now, before in zip(used(), (own, others), strict=True))
    left = max(clock() - begun - max(others, 0.0), own / threads)
    return min(shortest, left / runs) if left > 0 else shortest


def _used_cpus() -> tuple[float, float]:
    """CPU seconds that this process has used, and the seconds of the whole machine that all others have."""
    import psutil  # noqa: PLC0415 - as above

    times, own = psutil.cpu_times(), time.process_time()
    kinds = ("user", "nice", "system", "irq", "softirq", "steal")
    everybody = sum(getattr(times, kind, 0.0) for kind in kinds)
    return own, (everybody - own) / (psutil.cpu_count() or 1)
