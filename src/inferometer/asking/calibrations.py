"""Which calibration to use: the newest that holds for a device, a runtime and a number format.

The user's own come before those that are shipped, whatever their dates. One that was made with another driver, another
version of the runtime or another number of threads is still the best there is: it is used, said to be so, and its
intervals are widened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from inferometer.asking.files import SHIPPED, files_in, name_start, own_folder, read_calibration
from inferometer.catalog.engines import known_engine
from inferometer.core.calibration import Calibration
from inferometer.core.device import Device, Sourced
from inferometer.core.dims import product
from inferometer.core.dtype import dtype as dtype_named
from inferometer.core.workload import Precision
from inferometer.errors import InferometerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.core.graph import Graph

_OWN_NAME = re.compile(r"-\d{4}-\d\d-\d\d-[0-9a-f]{8}$")
WIDER_VERSION = 1.5  # what another version or driver multiplies the residuals with
WIDER_THREADS = 3.0  # another number of threads is another machine
WIDER_FORMAT = 3.0  # other weights are unpacked by other code


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """What runs here now, as far as it is known; what is not known is not compared.

    `versions` are of packages and of the driver, under the names that calibrations use.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None


_DRIVER = Path("/proc/driver/nvidia/version")


def present_here(runtime: str, threads: int | None = None) -> Present:
    """What a prediction for this machine would run with: read from package metadata, no engine is imported.

    `threads` are those that are asked for; without a word they are what engines take by themselves.
    """
    from inferometer.runtimes.host import threads_of  # noqa: PLC0415 - only predictions for this machine ask

    return Present(versions=_versions(runtime), threads=threads_of(threads))


@lru_cache(maxsize=32)
def _versions(runtime: str) -> Mapping[str, str]:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow, and for this machine alone

    found: dict[str, str] = {}
    described = known_engine(runtime)
    for package in described.packages if described else ():
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    with suppress(OSError):
        stated = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", _DRIVER.read_text())
        if stated:
            found["driver"] = stated[1]
    return MappingProxyType(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The calibration to use, with what must be said of it; and files that were passed over, with the reason."""

    calibration: Calibration | None
    path: Path | None = None
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def choose(  # noqa: PLR0913 - what a calibration is chosen by, and where
    device: str,
    runtime: str,
    dtype: str | None = None,
    *,
    folders: Iterable[Path] = (),
    shipped: Path | None = SHIPPED,
    present: Present | None = None,
) -> Choice:
    """The newest valid calibration, the user's folders first. None of that device, runtime and dtype is no error.

    Of a runtime whose calibrations are of a format of weights, one of another format is better than none: the nearest
    in bits, with its intervals widened.
    """
    refused: list[str] = []
    groups = [_valid(group, device, runtime, refused) for group in ([*folders], [shipped] if shipped else [])]
    for group in groups:
        if fitting := [each for each in group if dtype in {None, each[2].dtype}]:
            return _choice(fitting, present, refused)
    others = [each for group in groups for each in group]
    if dtype is None or by_weights(runtime) is None or not others:
        return Choice(calibration=None, refused=tuple(refused))
    nearest = min((each[2].dtype for each in others), key=lambda name: (_apart(name, dtype), name))
    found = _choice([each for each in others if each[2].dtype == nearest], present, refused)
    return _instead(found, dtype)


_Read = tuple[str, Path, Calibration]


def _valid(folders: Iterable[Path], device: str, runtime: str, refused: list[str]) -> list[_Read]:
    """The calibrations of a device and a runtime in some folders. Why others cannot be read is added to `refused`."""
    fitting: list[_Read] = []
    for path in _named_for(files_in(folders), device, runtime):
        try:
            found = read_calibration(path)
        except InferometerError as error:
            refused.append(str(error))
            continue
        if (found.device, found.runtime) == (device, runtime):
            fitting.append((found.created, path, found))
    return fitting


def _choice(fitting: list[_Read], present: Present | None, refused: list[str]) -> Choice:
    _, path, newest = max(fitting, key=lambda each: (each[0], each[1].name))
    used, notes = _for_now(newest, present)
    return Choice(calibration=used, path=path, notes=notes, refused=tuple(refused))


def _apart(name: str, wanted: str) -> float:
    """How far two formats are from each other, in bits."""
    return abs(float(dtype_named(name).bits - dtype_named(wanted).bits))


def _instead(found: Choice, wanted: str) -> Choice:
    """The choice with what must be said of it: it is of another format than the one that was wanted."""
    if found.calibration is None:
        return found
    said = (f"There is no calibration of {wanted} weights: that of {found.calibration.dtype} weights stands for it.",)
    return replace(found, calibration=widened(found.calibration, WIDER_FORMAT, said), notes=(*found.notes, *said))


def calibration_for(device: str, runtime: str, dtype: str, present: Present | None = None) -> Choice:
    """What `predict` uses: the user's own or a shipped one. Read once, and again when a folder has changed.

    The same files give the same value, so that what pricing prepared for it is found again.
    """
    folders = (own_folder(), SHIPPED)
    stamps = tuple(folder.stat().st_mtime_ns if folder.is_dir() else 0 for folder in folders)
    now = None if present is None else (tuple(sorted(present.versions.items())), present.threads)
    return _chosen((device, runtime, dtype), folders[0], stamps, now)


@lru_cache(maxsize=256)
def _chosen(
    asked: tuple[str, str, str],
    folder: Path,
    stamps: tuple[int, ...],
    now: tuple[tuple[tuple[str, str], ...], int | None] | None,
) -> Choice:
    del stamps  # only part of the key
    present = None if now is None else Present(versions=dict(now[0]), threads=now[1])
    return choose(*asked, folders=(folder,), present=present)


def chosen_for(graph: Graph, device: Device, runtime: str, precision: Precision, threads: int | None = None) -> Choice:
    """The newest calibration for a question. On this machine it is held against what runs here now."""
    present = present_here(runtime, threads) if device.name == "local" else None
    return calibration_for(device.name, runtime, format_key(graph, runtime, precision), present)


def format_key(graph: Graph, runtime: str, precision: Precision) -> str:
    """The number format that a calibration for a question is of: of its weights or, mostly, of its activations."""
    if by_weights(runtime):
        return weights_of(graph, precision)
    return precision.activations or graph.precision or "f32"


def weights_of(graph: Graph, precision: Precision) -> str:
    """The format of most bytes of the weights: what is asked for, what a file says of its tensors, the model's own."""
    if precision.weights is not None:
        return dtype_named(precision.weights).name
    held: dict[str, float] = {}
    for tensor, times in graph.weights():
        many = product(tensor.shape)
        if tensor.dtype is not None and len(tensor.shape) > 1 and isinstance(many, int):
            stored = dtype_named(tensor.dtype)
            held[stored.name] = held.get(stored.name, 0.0) + times * many * float(stored.bits)
    return max(held, key=lambda name: held[name]) if held else dtype_named(graph.precision or "f32").name


def by_weights(runtime: str) -> Precision | None:
    """Where a runtime's calibrations are of a format of the weights: the formats that it computes in."""
    described = known_engine(runtime)
    return described.by_weights if described else None


def formats_of(runtime: str, dtype: str) -> Precision:
    """The formats that a calibration of a format was measured in."""
    return replace(by_weights(runtime) or Precision(activations=dtype, kv=dtype), weights=dtype)


def as_calibrated(runtime: str, precision: Precision) -> Precision:
    """What is left open is as it was when the calibration was made."""
    fixed = by_weights(runtime)
    if fixed is None:
        return precision
    return replace(precision, activations=precision.activations or fixed.activations, kv=precision.kv or fixed.kv)


def completed(device: Device, calibration: Calibration) -> Device:
    """The device with the peaks and the bandwidth of main memory that the calibration reached, where it has none.

    Such a peak belongs to the runtime, the format and the threads it was measured with.
    """
    peaks = {**calibration.peaks, **device.peaks}
    memories = tuple(
        replace(memory, bandwidth_bytes_per_s=calibration.bandwidths[memory.level])
        if memory.bandwidth_bytes_per_s is None and memory.level in calibration.bandwidths
        else memory
        for memory in device.memories
    )
    if peaks == device.peaks and memories == device.memories:
        return device
    return replace(device, peaks=peaks, memories=memories)


def reached(device: Device, calibration: Calibration) -> dict[str, Sourced]:
    """The best that any op of a calibration reached: operations a second by format, bytes a second by memory level."""
    bandwidths = {memory.level: memory.bandwidth_bytes_per_s for memory in device.memories}
    shares: dict[str, float] = {}
    for table in calibration.tables:
        shares[table.stream] = max(shares.get(table.stream, 0.0), *table.values)
    date = calibration.created[:10]
    source = f"the best that {calibration.runtime} reached, {date}"
    rates = {
        stream: Sourced(value=share * peak.value, origin="calibrated", source=source, date=date)
        for stream, share in shares.items()
        if (peak := device.peaks.get(stream) or bandwidths.get(stream)) is not None
    }
    return {**rates, **calibration.peaks, **calibration.bandwidths}


def _named_for(paths: Iterable[Path], device: str, runtime: str) -> list[Path]:
    """Files under their own names say device and runtime first; a renamed one is looked into."""
    start = name_start(device, runtime)
    return [path for path in paths if path.name.startswith(start) or not _OWN_NAME.search(path.stem)]


def _for_now(calibration: Calibration, present: Present | None) -> tuple[Calibration, tuple[str, ...]]:
    found = () if present is None else differences(calibration, present)
    if not found:
        return calibration, ()
    factor = max(WIDER_THREADS if "thread" in note else WIDER_VERSION for note in found)
    return widened(calibration, factor, found), found


def differences(calibration: Calibration, present: Present) -> tuple[str, ...]:
    """What is not as it was: each a sentence."""
    found = [
        f"The calibration of {calibration.created[:10]} was made with {name} {was}; now it is {present.versions[name]}."
        for name, was in sorted(calibration.versions.items())
        if name in present.versions and _public(present.versions[name]) != _public(was)
    ]
    if None not in {calibration.threads, present.threads} and calibration.threads != present.threads:
        found.append(
            f"The calibration of {calibration.created[:10]} was made with {calibration.threads} threads; "
            f"now there are {present.threads}."
        )
    return tuple(found)


def _public(stated: str) -> str:
    """A version without what a build adds to it: an engine may say 2.9.1+cu130 where its package says 2.9.1."""
    return stated.partition("+")[0]


def widened(calibration: Calibration, factor: float, notes: tuple[str, ...] = ()) -> Calibration:
    """With all residuals so many times larger, and the notes that say why."""
    return replace(
        calibration,
        tables=tuple(replace(table, residual=table.residual * factor) for table in calibration.tables),
        residuals={name: residual * factor for name, residual in calibration.residuals.items()},
        notes=(*calibration.notes, *notes),
    )
