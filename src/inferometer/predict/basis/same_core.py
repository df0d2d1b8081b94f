"""A shipped calibration for the machine at hand: one that was made on the same core, as many of them, with the engine.

What was measured on a machine of this kind is nearer than any prior, so it serves until this one is calibrated. What
differs makes its interval wider, and is said: another machine of the kind, its clock, its memory, threads, versions.
Where there is none, one of the same architecture serves in f32: an engine's kernels reach much the same shares of what
a core can do there, and how much that is here, a product of matrices tells. An engine that is built once for all cores
of an architecture serves so in every format.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import log
from typing import TYPE_CHECKING

from inferometer.core.machine import MachineFacts, short_name
from inferometer.core.units import format_capacity, format_quantity
from inferometer.known import device as device_named
from inferometer.known.engines import known_engine
from inferometer.predict.basis.calibrations import (
    WIDER_VERSION,
    CalibrationChoice,
    HostSetup,
    calibrating,
    choose_calibration,
    for_threads,
    widened,
    with_calibration,
)
from inferometer.predict.basis.files import SHIPPED, files_in, name_start, read_calibration
from inferometer.predict.basis.roof import machine_roof

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device, Sourced

WIDER_MACHINE = 1.5  # another machine of the same kind: its neighbours, its cooling and its memory are its own
# Another core. From one Xeon to another, networks and prompts of four engines were off by 4 to 40 %, to either side.
WIDER_CORE = 2.0
_MOST_THREADS = 4  # times those it was made with: small networks keep few cores busy, and many share one memory
_SAME_CLOCK = 0.05  # systems round it
_SAME_MEMORY = 0.25  # memory is sold in steps, and a system keeps some of it


def shipped_for(device: Device, runtime: str, dtype: str, setup: HostSetup, machine: MachineFacts) -> CalibrationChoice:
    """The choice for this machine's CPU; without a calibration if none was made on its core or on one like it.

    The same arguments give the same object, because pricing caches what it prepared by the calibration's identity.
    """
    clock_hz = None if device.clock_hz is None else device.clock_hz.value
    choice = _cached_choice((runtime, dtype), setup, machine, clock_hz)
    if choice.calibration is None and _of_architecture(runtime, dtype, machine.architecture):
        peak = machine_roof(device).peaks.get("f32")
        return choice if peak is None else _cached_from_another_core((runtime, dtype), setup, machine, peak)
    return choice


# Every shipped calibration of the engine is opened for this, and a sweep asks for each format and thread count.
@lru_cache(maxsize=64)
def _cached_choice(
    wanted: tuple[str, str],
    setup: HostSetup,
    machine: MachineFacts,
    clock_hz: float | None,
) -> CalibrationChoice:
    alike = [made_on for made_on in _shipped_of(wanted[0]) if _same_cores(made_on, machine)]
    if not alike:
        return CalibrationChoice(calibration=None)
    row = device_named(max(alike, key=lambda made_on: made_on.created).device)
    choice = choose_calibration(row.name, *wanted, setup=setup)
    if choice.calibration is None:
        return choice
    notes, factor = _what_differs(choice.calibration, row, machine, clock_hz)
    calibration = widened(_with_peaks_of(row, choice.calibration), factor)
    if setup.threads is not None:
        calibration = for_threads(calibration, setup.threads)
    return replace(choice, calibration=calibration, notes=(*notes, *choice.notes))


@lru_cache(maxsize=64)
def _cached_from_another_core(
    wanted: tuple[str, str],
    setup: HostSetup,
    machine: MachineFacts,
    peak: Sourced,
) -> CalibrationChoice:
    """The calibration of the nearest number of threads, with every rate times what a product of matrices does here."""
    cpus = float(setup.threads or machine.usable_cpus or machine.logical_cores or 1)
    near = min(
        _of_architecture(*wanted, machine.architecture),
        key=lambda made: (abs(log(cpus / (made.threads or 1))), made.created),
    )
    if cpus > _MOST_THREADS * (near.threads or 1):
        return CalibrationChoice(calibration=None)
    there = _with_peaks_of(device_named(near.device), near)
    share = cpus / float(machine.usable_cpus or machine.logical_cores or cpus)  # of this machine's CPUs
    faster = min(share, 1.0) * peak.value / there.peaks["f32"].value
    calibration = replace(
        widened(there, WIDER_CORE),
        peaks={name: _here(rate, faster) for name, rate in there.peaks.items()}
        | {"f32": replace(peak, value=min(share, 1.0) * peak.value)},
        bandwidths={name: _here(rate, faster) for name, rate in there.bandwidths.items()},
        threads=setup.threads,
    )
    note = (
        f"{wanted[0]} is not calibrated on this machine: what it reached on {near.device}, of the same architecture, "
        f"serves it with a wider interval. `{calibrating(*wanted)}` measures this one."
    )
    return CalibrationChoice(calibration=calibration, notes=(note,))


def _shipped_of(runtime: str) -> Iterator[Calibration]:
    """The calibrations that come with us of an engine. Names of files tell of it, but for their dashes."""
    named = f"-{name_start(runtime)}-"
    made = (read_calibration(path) for path in files_in([SHIPPED]) if named in path.name)
    return (calibration for calibration in made if calibration.runtime == runtime)


def _here(rate: Sourced, faster: float) -> Sourced:
    source = f"{rate.source}; times what a product of matrices does here"
    return replace(rate, value=faster * rate.value, origin="prior", source=source)


@lru_cache(maxsize=64)
def _of_architecture(runtime: str, dtype: str, architecture: str | None) -> tuple[Calibration, ...]:
    """Those of an engine and a format on CPUs of this machine's architecture that tell of another core."""
    engine = known_engine(runtime)
    # Products of bytes and of halves have instructions that one core has and the next has not.
    if dtype != "f32" and (engine is None or not engine.one_build):
        return ()
    return tuple(
        one
        for one in _shipped_of(runtime)
        if (one.unit, one.dtype) == ("cpu", dtype) and one.environment.get("architecture") == architecture
    )


def _with_peaks_of(row: Device, calibration: Calibration) -> Calibration:
    """With the peaks and bandwidths that its shares are of, which the row states and this machine does not."""
    filled = with_calibration(row, calibration)
    stated = {memory.level: rate for memory in filled.memories if (rate := memory.bandwidth_bytes_per_s) is not None}
    return replace(calibration, peaks=filled.peaks, bandwidths={**calibration.bandwidths, **stated})


def _same_cores(calibration: Calibration, machine: MachineFacts) -> bool:
    """Whether it was made on the core that this machine names, and on as many.

    A name without a number (`Intel Xeon Processor`, as hypervisors say) is that of many cores, and of none.
    """
    made = calibration.environment
    core = short_name(machine.cpu) or ""
    if calibration.unit != "cpu" or not any(letter.isdigit() for letter in core):
        return False
    cpus = machine.usable_cpus or machine.logical_cores
    same_core = (made.get("cpu"), made.get("architecture")) == (machine.cpu, machine.architecture)
    return same_core and cpus is not None and made.get("usable_cpus") == f"{cpus:g}"


def _what_differs(
    calibration: Calibration, row: Device, machine: MachineFacts, clock_hz: float | None
) -> tuple[tuple[str, ...], float]:
    """Whose times these are and what is not as it was there, and by how much the interval grows for it."""
    made, runtime, factor = calibration.environment, calibration.runtime, 1.0
    notes = [f"The calibration of {row.name} of {calibration.created[:10]} was made on this very machine."]
    if made.get("machine_id") != machine.id:
        factor = WIDER_MACHINE
        served = f"the shipped calibration of {row.name}, the same core and as many, serves it with a wider interval"
        how = f"`{calibrating(runtime, calibration.dtype)}` measures this one."
        notes = [f"{runtime} is not calibrated on this machine: {served}. {how}"]
    stated = row.core_groups[0].clock_hz if row.core_groups else None
    if stated and clock_hz and abs(clock_hz / stated - 1) > _SAME_CLOCK:
        there, here = format_quantity(stated, "Hz"), format_quantity(clock_hz, "Hz")
        notes.append(f"{row.name} runs at {there}, and this machine at {here}.")
        factor *= WIDER_VERSION
    memory = float(made.get("memory_bytes", 0))
    if memory and machine.memory_bytes and abs(machine.memory_bytes / memory - 1) > _SAME_MEMORY:
        there, here = format_capacity(memory), format_capacity(machine.memory_bytes)
        notes.append(f"{row.name} has {there} of memory, and this machine {here}.")
        factor *= WIDER_VERSION
    return tuple(notes), factor
