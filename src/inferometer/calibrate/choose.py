"""Which calibration to use: the newest that holds for a device, a runtime and a number format.

The user's own come before those that are shipped, whatever their dates. One that was made with another driver, another
version of the runtime or another number of threads is still the best there is: it is used, said to be so, and its
intervals are widened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.calibrate.files import SHIPPED, files_in, name_start, own_folder, read_calibration
from inferometer.core.calibration import Calibration
from inferometer.errors import InferometerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.core.device import Device

__all__ = ["Choice", "Present", "calibration_for", "choose", "completed", "differences", "widened"]

_OWN_NAME = re.compile(r"-\d{4}-\d\d-\d\d-[0-9a-f]{8}$")
WIDER_VERSION = 1.5  # what another version or driver multiplies the residuals with
WIDER_THREADS = 3.0  # another number of threads is another machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """What runs here now, as far as it is known; what is not known is not compared.

    `versions` are of packages and of the driver, under the names that calibrations use.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None


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
    """The newest valid calibration, the user's folders first. None of that device, runtime and dtype is no error."""
    refused: list[str] = []
    for group in ([*folders], [shipped] if shipped is not None else []):
        fitting: list[tuple[str, Path, Calibration]] = []
        for path in _named_for(files_in(group), device, runtime):
            try:
                found = read_calibration(path)
            except InferometerError as error:
                refused.append(str(error))
                continue
            if (found.device, found.runtime) == (device, runtime) and dtype in {None, found.dtype}:
                fitting.append((found.created, path, found))
        if fitting:
            _, path, newest = max(fitting, key=lambda each: (each[0], each[1].name))
            used, notes = _for_now(newest, present)
            return Choice(calibration=used, path=path, notes=notes, refused=tuple(refused))
    return Choice(calibration=None, refused=tuple(refused))


def calibration_for(device: str, runtime: str, dtype: str) -> Choice:
    """What `predict` uses: the user's own or a shipped one. Read once, and again when a folder has changed.

    The same files give the same value, so that what pricing prepared for it is found again.
    """
    folders = (own_folder(), SHIPPED)
    stamps = tuple(folder.stat().st_mtime_ns if folder.is_dir() else 0 for folder in folders)
    return _chosen(device, runtime, dtype, folders[0], stamps)


@lru_cache(maxsize=256)
def _chosen(device: str, runtime: str, dtype: str, folder: Path, stamps: tuple[int, ...]) -> Choice:
    del stamps  # only part of the key
    return choose(device, runtime, dtype, folders=(folder,))


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
        if name in present.versions and present.versions[name] != was
    ]
    if None not in {calibration.threads, present.threads} and calibration.threads != present.threads:
        found.append(
            f"The calibration of {calibration.created[:10]} was made with {calibration.threads} threads; "
            f"now there are {present.threads}."
        )
    return tuple(found)


def widened(calibration: Calibration, factor: float, notes: tuple[str, ...] = ()) -> Calibration:
    """With all residuals so many times larger, and the notes that say why."""
    return replace(
        calibration,
        tables=tuple(replace(table, residual=table.residual * factor) for table in calibration.tables),
        residuals={name: residual * factor for name, residual in calibration.residuals.items()},
        notes=(*calibration.notes, *notes),
    )
