"""The calibrations of this machine: of every engine that is installed, what each stands on, and forgetting them."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.core.calibration import Calibration
from inferometer.core.device import LOCAL, is_local
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.engines.base import Ready
from inferometer.known import device as device_named
from inferometer.known.engines import engines, ranked_engines
from inferometer.known.machine.detect.identity import this_machine
from inferometer.measure.calibrate.job import default_dtype, device_to_calibrate
from inferometer.measure.calibrate.run import CalibrationJournal
from inferometer.measure.run.child import runtime_named
from inferometer.predict.basis.calibrations import differences, host_setup, made_here
from inferometer.predict.basis.files import files_in, name_start, read_calibration
from inferometer.predict.basis.learned import read_learned
from inferometer.predict.basis.same_core import shipped_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_LEAST_TURN_S = 10.0  # an engine's best rates alone take a few seconds


def installed_engines() -> tuple[str, ...]:
    """The engines that can run here now and have probes for this machine's best unit or its CPU.

    Default engines come first, engines that compile every probe last: time may run out before them.
    """
    device = device_named(LOCAL)
    probed = [name for name, described in engines().items() if {device.unit, "cpu"} & described.calibrated.keys()]
    usual = [name for tokens in (False, True) for name in ranked_engines(device, makes_tokens=tokens)]
    compiling = [name for name in probed if engines()[name].effects.execution == "compiled"]
    probed.sort(key=lambda name: (name in compiling, usual.index(name) if name in usual else len(usual)))
    return tuple(name for name in probed if isinstance(runtime_named(name).probe(), Ready))


def shares_of_budget(
    names: Sequence[str], budget_s: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[tuple[str, float]]:
    """Each engine with its share of what is left: one that needs less than its own leaves the rest to those after.

    One that would have too little to measure anything has none.
    """
    begun = clock()
    for index, name in enumerate(names):
        left_s = budget_s - (clock() - begun)
        share_s = left_s / (len(names) - index)
        yield name, share_s if left_s >= _LEAST_TURN_S else 0.0


@frozen
class HeldCalibration:
    """A calibration that predictions for this machine take. One without a `path` is a shipped one of its kind.

    `changed` says what is no longer as it was when it was made, which makes its intervals wider.
    """

    calibration: Calibration
    path: Path | None = None
    changed: tuple[str, ...] = ()


def standings(folder: Path) -> tuple[tuple[HeldCalibration, ...], tuple[str, ...]]:
    """The calibrations behind this machine's predictions, by engine, format and threads; and unreadable files."""
    newest: dict[tuple[str, str, str, int | None], HeldCalibration] = {}
    refused = []
    for path, found in _own_files(folder):
        if isinstance(found, InferometerError):
            refused.append(str(found))
            continue
        key = (found.device, found.runtime, found.dtype, found.threads)
        if key not in newest or newest[key].calibration.created < found.created:
            changed = differences(found, host_setup(found.runtime, found.threads))
            newest[key] = HeldCalibration(calibration=found, path=path, changed=changed)
    calibrated = {runtime for _, runtime, _, _ in newest}
    of_its_kind = [each for name in installed_engines() if name not in calibrated for each in _shipped(name)]
    refused += [
        f"{path.name}: {reason}" for path in _own_journals(folder) if (reason := CalibrationJournal(folder=path).kept())
    ]
    own = sorted(newest.items(), key=lambda entry: (entry[0][:3], entry[0][3] or 0))
    return (*(standing for _, standing in own), *of_its_kind), tuple(refused)


def _shipped(runtime: str) -> tuple[HeldCalibration, ...]:
    device = device_to_calibrate(LOCAL, None, runtime)
    if device.unit != "cpu":
        return ()
    choice = shipped_for(device, runtime, default_dtype(device, runtime), host_setup(runtime), this_machine())
    return (
        () if choice.calibration is None else (HeldCalibration(calibration=choice.calibration, changed=choice.notes),)
    )


def _own_files(folder: Path) -> Iterator[tuple[Path, Calibration | InferometerError]]:
    """The files of this machine's units in a folder, read, or with why they cannot be."""
    mine = {LOCAL, device_named(LOCAL).name}
    for path in files_in([folder]):
        try:
            found = read_calibration(path)
        except InferometerError as error:
            if any(path.name.startswith(f"{name_start(name)}-") for name in mine):
                yield path, error
            continue
        if (is_local(found.device) or found.device in mine) and made_here(found):
            yield path, found


def forget(folder: Path, runtime: str | None = None) -> tuple[Path, ...]:
    """Remove this machine's calibrations and what they were fitted to, of one engine or of all; returns what is gone.

    A file that cannot be read goes with the engine in its name.
    """
    gone = []
    for path, found in _own_files(folder):
        if isinstance(found, InferometerError):
            ours = runtime is None or f"-{name_start(runtime)}-" in path.name
        else:
            ours = runtime in {None, found.runtime}
        if ours:
            path.unlink()
            gone.append(path)
    for kept in _own_journals(folder, runtime):
        shutil.rmtree(kept)
        gone.append(kept)
    for path in sorted((folder / "learned").glob("*.jsonl")):
        if runtime is None or any(step.runtime == runtime for step in read_learned(path)):
            path.unlink()
            gone.append(path)
    return tuple(gone)


def _own_journals(folder: Path, runtime: str | None = None) -> tuple[Path, ...]:
    """The journals of this machine's units, of one engine or of all."""
    units = "|".join(re.escape(name) for name in {LOCAL, device_named(LOCAL).name})
    engine = ".+" if runtime is None else re.escape(runtime)
    named = re.compile(rf"(?:{units})(?::[^-]+)?-{engine}-[^-]+(?:-\d+-threads)?")
    journals = folder / "journals"
    found = sorted(journals.iterdir()) if journals.is_dir() else ()
    return tuple(path for path in found if named.fullmatch(path.name))
