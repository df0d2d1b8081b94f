"""The calibration of a serving engine on a device, from operator tables of the installed package; kept once made.

Reading a device's tables takes seconds, reading what was kept a few milliseconds. A device that was not measured takes
the shares of the floor of the nearest one that was, with its own peaks and wider intervals, and says so.
"""

from __future__ import annotations

import json
import tomllib
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from inferometer.core.cache import is_kept, keep_to_limit
from inferometer.core.calibration import Calibration, KernelForm, KernelForms, KernelShares
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.kept import Kept
from inferometer.core.notices import tell
from inferometer.core.settings import cache_folder
from inferometer.known import device as device_named
from inferometer.predict.basis.engine_tables.reading import ReadTables, read_tables, version_distance, versions_read
from inferometer.predict.price.kernel_floors import peak_rates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.core.device import Device
    from inferometer.core.engine import StepCosts


# Kernels of serving engines where their tables are not installed: the forms that they follow, five numbers each.
#
# `known/data/kernel_forms.json` is written by workshop/kernels/forms.py and by nothing else.

FILE = Path(__file__).parents[3] / "known" / "data" / "kernel_forms.json"
SOURCE = "forms fitted to the operator tables of aiconfigurator-core (Apache-2.0)"
ANY = "any"  # the forms of all systems together


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return document


@cache
def form_calibration(engine: str, system: str | None, device: str) -> Calibration | None:
    """The forms of an engine's kernels on a system; families that it lacks follow those of all systems together."""
    known = _document()["engines"].get(engine)
    if known is None:
        return None
    own = known.get(system or ANY, known[ANY])
    families = {**known[ANY]["families"], **own["families"]}
    return Calibration(
        device=device,
        runtime=engine,
        dtype="bf16",
        created=_document()["date"],
        forms={
            family: KernelForms(family=family, by_format={kind: _form(numbers) for kind, numbers in kinds.items()})
            for family, kinds in families.items()
        },
        versions={engine: own["version"]} if own["version"] else {},
    )


def _form(numbers: list[float]) -> KernelForm:
    return KernelForm(**dict(zip(_document()["numbers"], numbers, strict=True)))


PACKAGE, MODULE = "aiconfigurator-core", "aiconfigurator_core"
REMEDY = "pip install 'inferometer[engines]'"
WIDER_DEVICE = 2.0  # by how much intervals grow with tables of another device
_ALIGNED = 8  # bytes that every kept array begins at a multiple of
_FORM = 10  # of what is kept; another number makes it again


@frozen
class EngineCalibration:
    """The calibration, or None; and what a reader should know about it."""

    calibration: Calibration | None
    notes: tuple[str, ...] = ()


@cache
def tables_folder() -> Path | None:
    """Where the installed package keeps its tables; None where it, or what reads them, is not installed."""
    spec = find_spec(MODULE)
    if spec is None or not spec.submodule_search_locations or find_spec("pyarrow") is None:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "systems" / "data"
    return folder if folder.is_dir() else None


def systems() -> Mapping[str, str]:
    """The device that each system of the package is, by the system's name."""
    return _systems()["systems"]


@cache
def _systems() -> Mapping[str, Mapping[str, str]]:
    return tomllib.loads((Path(__file__).parent / "systems.toml").read_text(encoding="utf-8"))


def system_of(device: str) -> tuple[str, bool] | None:
    """The system whose tables a device is priced by, and whether it is the device itself; None where none is near."""
    for system, name in systems().items():
        if name == device:
            return system, True
    like = _systems()["like"].get(device)
    return None if like is None else (like, False)


def engine_calibration(
    device: Device, engine: str, version: str | None = None, costs: StepCosts | None = None
) -> EngineCalibration:
    """What the tables say of an engine on a device, of the nearest version to the one asked for that was measured.

    Where there are none the forms answer that kernels of such devices follow.
    """
    if device.unit == "cpu":
        return EngineCalibration(calibration=None)
    system, own = system_of(device.name) or (None, False)
    made = None if system is None else measured_kernels(system, engine, version)
    if made is None:
        return _by_forms(device, engine, system, costs)
    notes = _notes(made, device, engine, version, own=own)
    return EngineCalibration(calibration=_for_device(made, device.name, costs, own=own), notes=notes)


def _by_forms(device: Device, engine: str, system: str | None, costs: StepCosts | None) -> EngineCalibration:
    made = form_calibration(engine, system, systems()[system] if system else "ten GPUs")
    if made is None:
        return EngineCalibration(calibration=None)
    more = f"Each kernel of {engine} that was measured on such a device comes with {REMEDY}."
    notes = (more,) if system is not None and tables_folder() is None else ()
    return EngineCalibration(calibration=_for_device(made, device.name, costs, own=True), notes=notes)


def _notes(made: Calibration, device: Device, engine: str, version: str | None, *, own: bool) -> tuple[str, ...]:
    used = made.versions.get(engine, "")
    notes = []
    if version is not None and used and version_distance(used, version) > 0:
        notes.append(f"No kernels of {engine} {version} were measured on {made.device}: those of {used} are used.")
    if not own:
        notes.append(
            f"No kernels of {engine} were measured on {device.name}: those of {made.device} are used, by the share of "
            "the peaks that they reach."
        )
    return tuple(notes)


# As many as rates.py keeps: rates are kept by the identity of a calibration, and one made anew would have its own.
_for = Kept(1024)


def _for_device(made: Calibration, device: str, costs: StepCosts | None, *, own: bool) -> Calibration:
    """With what a step of the engine costs; the same object for the same arguments, since pricing keeps by identity."""
    return _for.get_or_make(  # type: ignore[no-any-return, unused-ignore]
        (device, own, costs), (made,), lambda: _with_costs(made, costs, 1.0 if own else WIDER_DEVICE)
    )


def _with_costs(made: Calibration, costs: StepCosts | None, wider: float) -> Calibration:
    kernels = {name: replace(table, residual=table.residual * wider) for name, table in made.kernels.items()}
    if costs is None:
        return replace(made, kernels=kernels)
    return replace(
        made,
        kernels=kernels,
        overheads={"step": costs.step_s, "sequence": costs.sequence_s, "context": costs.context_s},
        factors=factors_of(costs),
        residuals={"step": costs.tpot_spread.value, "step.prefill": costs.batch_spread.value},
    )


def factors_of(costs: StepCosts) -> dict[str, float]:
    """What kernels take in a step over what they took alone, by phase."""
    return {"kernels.decode": costs.kernels.value, "kernels.prefill": costs.kernels_prompt.value}


_bare = Kept()


def kernels_alone(calibration: Calibration) -> Calibration:
    """The calibration without what a step costs: each kernel as it was measured."""
    return _bare.get_or_make(  # type: ignore[no-any-return, unused-ignore]
        (), (calibration,), lambda: replace(calibration, overheads={}, factors={}, residuals={})
    )


def measured_kernels(system: str, engine: str, version: str | None = None) -> Calibration | None:
    """An engine's kernels on a system, as the installed tables have them; None where they do not."""
    folder = tables_folder()
    return None if folder is None else _calibration(system, engine, version, folder)


@cache
def _versions_read(system: str, engine: str, version: str | None, folder: Path) -> tuple[str, ...]:
    return versions_read(folder / system, engine, version)


def _calibration(system: str, engine: str, version: str | None, folder: Path) -> Calibration | None:
    """The same object for all versions that are read from the same tables."""
    key = (system, engine, _versions_read(system, engine, version, folder), folder)
    if key not in _calibrations:
        _calibrations[key] = _made(system, engine, version, folder, key[2])
    return _calibrations[key]


_calibrations: dict[tuple[Any, ...], Calibration | None] = {}


def _made(system: str, engine: str, version: str | None, folder: Path, versions: tuple[str, ...]) -> Calibration | None:
    measured = device_named(systems()[system])
    release, rates = _release(folder), peak_rates(measured)
    told = repr((sorted(rates.peaks.items()), rates.memory, rates.link, versions))  # other peaks, other shares
    name = f"{system}-{engine}-{release}-{_FORM}-{crc32(told.encode()):08x}.tables"
    file = cache_folder() / "engine-tables" / name
    tables = _kept(file)
    if tables is None:
        if not (folder / system).is_dir():
            return None
        tell(f"reading the measured kernels of {engine} on {measured.name} once; they are kept for later")
        tables = read_tables(folder / system, engine, version, rates)
        _keep(file, tables)
        tables = _kept(file) or tables  # kept shares are rounded: the first answer is the same as later ones
    if not tables.versions.get("gemm"):  # other engines' products alone are no tables of this one
        return None
    return Calibration(
        device=measured.name,
        runtime=engine,
        dtype="bf16",
        created="2026-08",
        kernels=dict(tables.kernels),
        points=tables.points,
        versions={engine: tables.versions["gemm"]},
        notes=(
            (
                f"{tables.points:,} kernels from {PACKAGE} {release}: attention and experts of {engine} "
                f"{tables.versions['gemm']}, products and messages as the fastest engine has them."
            ),
        ),
    )


def _release(folder: Path) -> str:
    """The package's version by the folder that installers leave beside it: asking for metadata imports far more."""
    found = sorted(folder.parents[2].glob(f"{MODULE}-*.dist-info"))
    return found[-1].name.removeprefix(f"{MODULE}-").removesuffix(".dist-info") if found else "unknown"


def _kept(file: Path) -> ReadTables | None:
    """What was kept before; None where there is nothing, or it cannot be read."""
    if not is_kept(file):
        return None
    try:
        content = file.read_bytes()
        line, _, numbers = content.partition(b"\n")
        about = json.loads(line)
        arrays = {
            name: np.frombuffer(numbers, dtype=kind, count=count, offset=begin)
            for name, (kind, count, begin) in about["arrays"].items()
        }
    except (OSError, ValueError, KeyError, TypeError):
        return None
    kernels = {
        family: KernelShares(
            family=family,
            sizes={name: arrays[f"{family}/sizes/{name}"] for name in facts["sizes"]},
            texts={name: arrays[f"{family}/texts/{name}"] for name in facts["texts"]},
            shares=arrays[f"{family}/shares"],
            residual=facts["residual"],
        )
        for family, facts in about["families"].items()
    }
    return ReadTables(kernels=kernels, versions=about["versions"], points=about["points"])


def _keep(file: Path, tables: ReadTables) -> None:
    """A line that says what lies where, then the arrays: an archive of them takes ten times as long to open.

    If it cannot be written, all that is lost is the time to read the tables again.
    """
    arrays: dict[str, Any] = {}
    families: dict[str, Any] = {}
    for family, table in tables.kernels.items():
        arrays |= {f"{family}/sizes/{name}": values for name, values in table.sizes.items()}
        arrays |= {f"{family}/texts/{name}": values for name, values in table.texts.items()}
        arrays[f"{family}/shares"] = table.shares.astype(np.float32)
        families[family] = {"sizes": [*table.sizes], "texts": [*table.texts], "residual": table.residual}
    places, begin = {}, 0
    for name, values in arrays.items():
        places[name] = (values.dtype.str, len(values), begin)
        begin += values.nbytes + -values.nbytes % _ALIGNED
    about = {"families": families, "versions": dict(tables.versions), "points": tables.points, "arrays": places}
    partial = file.with_suffix(".part")
    with suppress(OSError, InferometerError):
        file.parent.mkdir(parents=True, exist_ok=True)
        keep_to_limit()
        with partial.open("wb") as stored:
            stored.write(json.dumps(about).encode() + b"\n")
            for values in arrays.values():
                stored.write(np.ascontiguousarray(values).tobytes() + bytes(-values.nbytes % _ALIGNED))
        partial.replace(file)
