"""Which calibration to use: the newest for a device, a runtime and a number format.

The user's own come before the shipped ones, whatever their dates. One that was made with another driver, another
version of the runtime or another number of threads is still the best there is: it is used, with a note and wider
intervals.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from inferometer.core.calibration import Calibration
from inferometer.core.device import Device, Sourced, is_local
from inferometer.core.dims import product
from inferometer.core.dtypes import dtype as dtype_named
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.workload import Precision
from inferometer.known.engines import costs_of, known_engine
from inferometer.predict.basis.files import SHIPPED, files_in, name_start, own_folder, read_calibration

if TYPE_CHECKING:
    from inferometer.core.engine import ServingRules
    from inferometer.core.graph import Graph

_OWN_NAME = re.compile(r"-\d{4}-\d\d-\d\d-[0-9a-f]{8}$")  # date and hash, as `calibrate` names its files
WIDER_VERSION = 1.5  # by how much residuals grow with another version or driver
WIDER_THREADS = 3.0  # another number of threads is another machine
WIDER_FORMAT = 3.0  # weights in another format are unpacked by other code


@frozen
class HostSetup:
    """What this machine runs with now, to compare with what a calibration was made with. Unknowns are not compared.

    `versions` has packages, the driver and the CPU's governor, under the names that calibrations use.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None

    def __hash__(self) -> int:
        """What is chosen for a set-up is kept by it."""
        return hash((*sorted(self.versions.items()), self.threads))


_DRIVER = Path("/proc/driver/nvidia/version")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def host_setup(runtime: str, threads: int | None = None) -> HostSetup:
    """What this machine would run with. Versions come from package metadata; no engine is imported.

    Without `threads`, the number that engines take by default.
    """
    from inferometer.engines.host import threads_of  # noqa: PLC0415 - only for predictions about this machine

    return HostSetup(versions=_installed_versions(runtime), threads=threads_of(threads))


# Looking a package up is slow, and nothing is installed while a process runs; there are fewer engines than this.
@lru_cache(maxsize=32)
def _installed_versions(runtime: str) -> Mapping[str, str]:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow, and only for this machine

    versions: dict[str, str] = {}
    engine = known_engine(runtime)
    for package in engine.packages if engine else ():
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    with suppress(OSError):
        driver = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", _DRIVER.read_text())
        if driver:
            versions["driver"] = driver[1]
    with suppress(OSError):  # a clock that is held down or let go makes another machine, as a driver does
        versions["governor"] = _GOVERNOR.read_text().strip()
    return MappingProxyType(versions)


@frozen
class CalibrationChoice:
    """The calibration to use, notes a reader should see, and why each file in `refused` could not be read."""

    calibration: Calibration | None
    path: Path | None = None
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def choose_calibration(  # noqa: PLR0913 - what a calibration is chosen by, and where
    device: str,
    runtime: str,
    dtype: str | None = None,
    *,
    folders: Iterable[Path] = (),
    shipped: Path | None = SHIPPED,
    setup: HostSetup | None = None,
) -> CalibrationChoice:
    """The newest valid calibration, the user's folders first. If there is none, `calibration` is None.

    For a runtime that is calibrated by the format of the weights, another format is better than none: the nearest in
    bits is used, with wider intervals.
    """
    refused: list[str] = []
    groups = ([*folders], [shipped] if shipped else [])
    # The user's own first, whatever their date: they were made on the very machine.
    for group in groups:
        found = _calibrations_of(device, runtime, group, refused, dtype)
        if fitting := [(path, calibration) for path, calibration in found if dtype in {None, calibration.dtype}]:
            return _newest(fitting, setup, refused)
    refused.clear()
    others = [entry for group in groups for entry in _calibrations_of(device, runtime, group, refused)]
    # A GPU multiplies both kinds of sixteen bits at one rate, and moves as many bytes of them.
    if twins := [entry for entry in others if entry[1].unit == "gpu" and entry[1].dtype == _SIXTEEN.get(dtype or "")]:
        choice = _newest(twins, setup, refused)
        return replace(choice, notes=(*choice.notes, f"{dtype} is taken to be as fast as {_SIXTEEN[dtype or '']}."))
    if dtype is None or by_weights(runtime) is None or not others:
        return CalibrationChoice(calibration=None, refused=tuple(refused))
    # By bits, since unpacking is what differs; of two as near the name decides, so that every process chooses the same.
    nearest = min(
        {calibration.dtype for _, calibration in others},
        key=lambda name: (abs(float(dtype_named(name).bits - dtype_named(dtype).bits)), name),
    )
    choice = _newest([entry for entry in others if entry[1].dtype == nearest], setup, refused)
    return _standing_in(choice, dtype)


_Entry = tuple[Path, Calibration]
_SIXTEEN = {"f16": "bf16", "bf16": "f16"}


def _calibrations_of(
    device: str, runtime: str, folders: Iterable[Path], refused: list[str], dtype: str | None = None
) -> list[_Entry]:
    """The calibrations of a device and a runtime in these folders. Files that cannot be read are added to `refused`.

    With `dtype` those whose name says another format are not opened: a large one takes thirty milliseconds.
    """
    entries: list[_Entry] = []
    for path in _candidates(files_in(folders), device, runtime, dtype):
        try:
            calibration = _read_once(path, _changed_ns(path))
        except InferometerError as error:
            refused.append(str(error))
            continue
        # The name of a file is only a hint: it may have been renamed, or copied from another machine.
        if (calibration.device, calibration.runtime) == (device, runtime) and made_here(calibration):
            entries.append((path, calibration))
    return entries


@lru_cache(maxsize=64)
def _read_once(path: Path, stamp: int) -> Calibration:
    """One file answers for several formats, engines' versions and numbers of threads."""
    del stamp  # only part of the key
    return read_calibration(path)


def made_here(calibration: Calibration) -> bool:
    """Whether one of `local` is of this very machine: a home folder may be shared by several."""
    machine = calibration.environment.get("machine_id")
    if machine is None or not is_local(calibration.device):
        return True
    from inferometer.known.machine.detect.identity import this_machine  # noqa: PLC0415 - only for this machine's own

    return machine == this_machine().id


def _newest(entries: list[_Entry], setup: HostSetup | None, refused: list[str]) -> CalibrationChoice:
    """The newest; of several that were made with other numbers of threads, the newest with those of the set-up."""
    threads = None if setup is None else setup.threads
    path, calibration = max(
        # The same threads before a newer date: scaled to other threads an interval is three times as wide.
        entries,
        key=lambda entry: (threads in {None, entry[1].threads}, entry[1].created, entry[0].name),
    )
    notes = () if setup is None else differences(calibration, setup)
    if notes:
        # The worst of them and not their product: three versions that differ would count for more than another machine.
        factor = max(WIDER_THREADS if "thread" in note else WIDER_VERSION for note in notes)
        calibration = widened(calibration, factor, notes)
    if threads is not None and is_local(calibration.device):
        calibration = for_threads(calibration, threads)
    return CalibrationChoice(calibration=calibration, path=path, notes=notes, refused=tuple(refused))


def _standing_in(choice: CalibrationChoice, wanted: str) -> CalibrationChoice:
    """The choice, widened, with a note that it is of another format than the one wanted."""
    if choice.calibration is None:
        return choice
    note = f"There is no calibration of {wanted} weights; that of {choice.calibration.dtype} weights is used instead."
    calibration = widened(choice.calibration, WIDER_FORMAT, (note,))
    return replace(choice, calibration=calibration, notes=(*choice.notes, note))


def calibration_for(device: str, runtime: str, dtype: str, setup: HostSetup | None = None) -> CalibrationChoice:
    """What `predict` uses: the user's own or a shipped one, read once and again when a folder has changed.

    The same files give the same object, because pricing caches what it prepared by the calibration's identity.
    """
    folder, *stamps = calibrations_stamp()
    return _cached_choice((device, runtime, dtype), folder, tuple(stamps), setup)


def calibrations_stamp() -> tuple[Path, int, int]:
    """The user's folder, and when it and the shipped one were changed: what is chosen from them holds until then."""
    own = own_folder()
    return own, _changed_ns(own), _changed_ns(SHIPPED)


def _changed_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


# A sweep asks for each of its devices, engines and formats again and again; files that change have other stamps.
@lru_cache(maxsize=256)
def _cached_choice(
    wanted: tuple[str, str, str], folder: Path, stamps: tuple[int, ...], setup: HostSetup | None
) -> CalibrationChoice:
    del stamps  # only part of the key
    return choose_calibration(*wanted, folders=(folder,), setup=setup)


def calibration_for_question(  # noqa: PLR0913 - what a calibration is chosen by
    graph: Graph,
    device: Device,
    runtime: str,
    precision: Precision,
    threads: int | None = None,
    *,
    version: str | None = None,
) -> CalibrationChoice:
    """The newest calibration for a question. On this machine it is compared with what runs here now.

    Where there is none, and the engine can be calibrated here, a note says how. A serving engine's kernels come from
    tables that were measured, of the nearest `version`.
    """
    wanted = format_key(graph, runtime, precision)
    engine = known_engine(runtime)
    if engine is not None and engine.serving is not None:
        own = calibration_for(device.name, runtime, wanted)
        return own if own.calibration is not None else _from_engine_tables(device, engine.serving, version)
    if not is_local(device.name):
        # Of a machine elsewhere nobody knows the versions, so only the threads that are asked for are compared.
        setup = None if threads is None or device.unit != "cpu" else HostSetup(threads=threads)
        return calibration_for(device.name, runtime, wanted, setup)
    setup = host_setup(runtime, threads)
    choice = calibration_for(device.name, runtime, wanted, setup)
    if choice.calibration is None and device.unit == "cpu":
        from inferometer.known.machine.detect.identity import this_machine  # noqa: PLC0415 - only for this machine
        from inferometer.predict.basis.same_core import shipped_for  # noqa: PLC0415 - which chooses through here

        shipped = shipped_for(device, runtime, wanted, setup, this_machine())
        choice = choice if shipped.calibration is None else shipped
    if choice.calibration is None and (advice := _how_to_calibrate(device, runtime, wanted)) is not None:
        return replace(choice, notes=(*choice.notes, advice))
    return choice


def _from_engine_tables(device: Device, rules: ServingRules, version: str | None) -> CalibrationChoice:
    from inferometer.predict.basis.engine_tables.calibrating import engine_calibration  # noqa: PLC0415 - only for engines

    found = engine_calibration(device, rules.tables, version, costs_of(rules, version, device.name, device.vendor))
    return CalibrationChoice(calibration=found.calibration, notes=found.notes)


def _how_to_calibrate(device: Device, runtime: str, dtype: str) -> str | None:
    """What to run for a narrower interval; None for what cannot be calibrated here.

    On a CPU the probes of most engines are in f32, whatever is asked about.
    """
    engine = known_engine(runtime)
    if engine is None or device.unit not in engine.calibrated:
        return None
    if device.unit == "cpu" and not engine.by_weights and dtype != "f32":
        return None
    what = f"with {dtype} weights" if engine.by_weights else f"in {dtype}"
    return (
        f"{runtime} {what} is not calibrated on this machine: measured roofs and priors give a wide interval. "
        f"`{calibrating(runtime, dtype)}` narrows it."
    )


def calibrating(runtime: str, dtype: str) -> str:
    """The command that calibrates an engine here, in the format that is asked about."""
    engine = known_engine(runtime)
    usual = "f32" if engine is None else engine.calibrated_in or "f32"
    return f"inferometer calibrate --runtime {runtime}{'' if dtype == usual else f' --dtype {dtype}'}"


def format_key(graph: Graph, runtime: str, precision: Precision) -> str:
    """The number format that a calibration is looked up by: usually that of the activations, else of the weights."""
    if by_weights(runtime):
        return main_weight_format(graph, precision)
    return precision.activations or graph.precision or "f32"


def main_weight_format(graph: Graph, precision: Precision) -> str:
    """The format that most bytes of the weights are in: the one asked for, else the tensors' own, else the model's."""
    if precision.weights is not None:
        return dtype_named(precision.weights).name
    bits: dict[str, float] = {}
    for tensor, times in graph.weights():
        elements = product(tensor.shape)
        # Norms and biases stay in floats in quantised files, and no product unpacks them.
        if tensor.dtype is not None and len(tensor.shape) > 1 and isinstance(elements, int):
            stored = dtype_named(tensor.dtype)
            bits[stored.name] = bits.get(stored.name, 0.0) + times * elements * float(stored.bits)
    return max(bits, key=lambda name: bits[name]) if bits else dtype_named(graph.precision or "f32").name


def by_weights(runtime: str) -> Precision | None:
    """The formats that a runtime computes in, if its calibrations are by the format of the weights; else None."""
    engine = known_engine(runtime)
    return engine.by_weights if engine else None


def formats_of(runtime: str, dtype: str) -> Precision:
    """The formats of weights, activations and cache that a calibration of `dtype` was measured in."""
    return replace(by_weights(runtime) or Precision(activations=dtype, kv=dtype), weights=dtype)


def as_calibrated(runtime: str, precision: Precision) -> Precision:
    """The precision, with the formats left open set as they were when the calibration was made."""
    fixed = by_weights(runtime)
    if fixed is None:
        return precision
    return replace(precision, activations=precision.activations or fixed.activations, kv=precision.kv or fixed.kv)


def with_calibration(device: Device, calibration: Calibration) -> Device:
    """The device with the peaks and bandwidths its row lacks, as the calibration reached them.

    Such a peak holds only for the runtime, the format and the threads it was measured with. An engine that goes
    beyond a format's peak has the one that it reached, if that is higher.
    """
    engine = known_engine(calibration.runtime)
    taken = higher_rates if engine is not None and engine.beyond_peaks else _stated_first
    stated = {memory.level: memory.bandwidth_bytes_per_s for memory in device.memories}
    peaks, bandwidths = taken(device.peaks, calibration.peaks), taken(stated, calibration.bandwidths)
    memories = tuple(replace(memory, bandwidth_bytes_per_s=bandwidths.get(memory.level)) for memory in device.memories)
    if peaks == device.peaks and memories == device.memories:
        return device
    return replace(device, peaks=peaks, memories=memories)


def for_threads(calibration: Calibration, threads: int) -> Calibration:
    """The calibration for another number of threads: each brings the arithmetic of one core, and memory stays as it is.

    It is for a device whose peaks come from its calibration. How much wider its interval is, is the caller's to say.
    """
    if calibration.threads in {None, threads}:
        return calibration
    # In proportion: what threads lose to each other is in the wider interval and not in the peak.
    share = threads / float(calibration.threads or threads)
    peaks = {name: replace(peak, value=share * peak.value) for name, peak in calibration.peaks.items()}
    return replace(calibration, peaks=peaks, threads=threads)


def _stated_first(stated: Mapping[str, Sourced | None], reached: Mapping[str, Sourced]) -> dict[str, Sourced]:
    return {**reached, **{name: rate for name, rate in stated.items() if rate is not None}}


def higher_rates(stated: Mapping[str, Sourced | None], reached: Mapping[str, Sourced]) -> dict[str, Sourced]:
    """Both, and of two that have the same name the higher."""
    known = {name: rate for name, rate in stated.items() if rate is not None}
    better = {name: rate for name, rate in reached.items() if name not in known or rate.value > known[name].value}
    return {**known, **better}


def rates_reached(device: Device, calibration: Calibration) -> dict[str, Sourced]:
    """The best rate any op of a calibration reached: operations a second by format, bytes a second by memory level."""
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
    # what was measured as a peak goes before the best of an op
    return {**rates, **calibration.peaks, **calibration.bandwidths}


def _candidates(paths: Iterable[Path], device: str, runtime: str, dtype: str | None = None) -> list[Path]:
    """Files whose name begins with these, and renamed ones, which have to be opened to know."""
    start = name_start(device, runtime) if dtype is None else f"{name_start(device, runtime, dtype)}-"
    return [path for path in paths if path.name.startswith(start) or not _OWN_NAME.search(path.stem)]


def differences(calibration: Calibration, setup: HostSetup) -> tuple[str, ...]:
    """A sentence for each thing that is no longer as it was when the calibration was made."""
    made = f"The calibration of {calibration.created[:10]} was made with"
    notes = [
        f"{made} {name} {was}; now it is {setup.versions[name]}."
        for name, was in sorted(calibration.versions.items())
        if name in setup.versions and _release(setup.versions[name]) != _release(was)
    ]
    if None not in {calibration.threads, setup.threads} and calibration.threads != setup.threads:
        notes.append(f"{made} {calibration.threads} threads; now there are {setup.threads}.")
    return tuple(notes)


def _release(version: str) -> str:
    """A version without its build tag: an engine may report 2.9.1+cu130 where its package says 2.9.1."""
    return version.partition("+")[0]


def widened(calibration: Calibration, factor: float, notes: tuple[str, ...] = ()) -> Calibration:
    """The calibration with every residual multiplied by `factor`, and the notes that say why."""
    return replace(
        calibration,
        tables=tuple(replace(table, residual=table.residual * factor) for table in calibration.tables),
        residuals={name: residual * factor for name, residual in calibration.residuals.items()},
        notes=(*calibration.notes, *notes),
    )
