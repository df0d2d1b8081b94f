"""The command that carries advice out: `inferometer prepare`, for findings that ask for smaller numbers."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path

from inferometer.core.device import Device
from inferometer.core.engine import EngineDescriptor
from inferometer.core.errors import InferometerError
from inferometer.core.finding import Finding
from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile
from inferometer.core.settings import cache_folder
from inferometer.core.workload import Precision
from inferometer.formats.resolve import read
from inferometer.known.engines import known_engine
from inferometer.known.files import row_named
from inferometer.measure.prepare.artifact import origin_of, starting_format
from inferometer.measure.prepare.chain import chain_for, formats_for
from inferometer.measure.prepare.steps import SUFFIXES, PrepareStep
from inferometer.predict.change import parse_change
from inferometer.predict.gains import Gain

_HOW = ("", "-weights", "-dynamic")  # the ways of storing a format, the one that computes in it first


@frozen
class Preparation:
    """A change that tools can make: of which model, in which format, and by which steps.

    `image` and `sizes` are those of a file that was made with them, where the change is made of what that was made of.
    """

    model: str
    quantise: str
    steps: tuple[PrepareStep, ...]
    image: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)


def preparations(model: str, runtime: str | None, text: str) -> tuple[Preparation, ...]:
    """How a change can be made (`weights=i8`), of the model or of what it was made of; none if no tool here does."""
    change, engine = parse_change(text), None if runtime is None else known_engine(runtime)
    if change.key not in {"weights", "precision"} or engine is None:
        return ()
    ways = _ways(model, engine, change.value)
    origin = None if ways or row_named("models", model) else origin_of(model)
    if origin is None:
        return ways
    return tuple(
        replace(way, image=origin.image, sizes=origin.sizes) for way in _ways(origin.model, engine, change.value)
    )


def _ways(model: str, engine: EngineDescriptor, wanted: str) -> tuple[Preparation, ...]:
    try:
        form, generates = starting_format(model, engine)
    except InferometerError:
        return ()
    known = formats_for(form, engine, generates=generates)
    return tuple(
        Preparation(model=model, quantise=name, steps=chain_for(form, engine, quantise=name, generates=generates))
        for how in _HOW
        if (name := f"{wanted}{how}") in known
    )


def prepare_command(profile: Profile, device: Device | None, findings: Iterable[Finding]) -> str | None:
    """The command for the first finding that a tool can act on, with the gain that is predicted for it.

    The `device` has the figures that the run was judged by; without one no gain is predicted.

    A finding's own gain is of computing in the format; what a tool makes may only store it, and gain less. What is
    predicted to gain nothing is no advice.
    """
    # The user's file; the catalog's name where the file was made here of random numbers.
    source = profile.model.source
    made = source is None or cache_folder() in Path(source).parents
    model = profile.model.name if made and row_named("models", profile.model.name) is not None else source
    if model is None:
        return None
    for finding in findings:
        for change in finding.changes:
            for way in preparations(model, profile.runtime, change):
                gain = None if device is None else _gain(profile, device, way)
                if gain is None or gain.gain > _NOTHING:
                    return _command(way, profile, gain)
    return None


_NOTHING = 1.02  # a gain that nobody would notice


def _gain(profile: Profile, device: Device, way: Preparation) -> Gain | None:
    """What `prepare` will predict for the step."""
    from inferometer.measure.prepare.proof import (  # noqa: PLC0415 - few findings ask for what a tool can make
        ProvedFile,
        Proving,
        after_step,
        predicted_gain,
    )

    try:
        graph = read(way.model)
    except InferometerError:
        return None
    sizes = _sizes({**way.sizes, **profile.sizes}, graph.symbols)
    before = ProvedFile(path=Path(way.model), runtime=profile.runtime, sizes=sizes)
    after = before
    for step in way.steps:
        after = after_step(step, after, before.path, profile.runtime)
    workload = replace(profile.workload, precision=Precision(), image=profile.workload.image or way.image)
    proving = Proving(
        original=before, graph=graph, device=device.name, here=False, workload=workload, judged_by=device
    )  # fmt: skip
    return predicted_gain(proving, before, after)


def _sizes(given: Mapping[str, int], symbols: Iterable[str]) -> dict[str, int]:
    """Those that the graph leaves open: what a file was made of may leave others open than the file."""
    return {name: size for name, size in given.items() if name in symbols}


def _command(way: Preparation, profile: Profile, gain: Gain | None) -> str:
    path, gives = Path(way.model), way.steps[-1].gives
    stem = path.name.removesuffix(path.suffix) if path.is_file() else path.name
    name = f"{stem}-{way.quantise}{SUFFIXES.get(gives, '')}"
    command = f"inferometer prepare {shlex.quote(way.model)} --for {profile.runtime} --quantise {way.quantise}"
    sizes = _size_options(profile, way)
    predicted = "" if gain is None else f"  # predicted gain {gain.gain:.2g} × ({gain.low:.2g} to {gain.high:.2g})"
    return f"{command}{sizes} -o {shlex.quote(name)}{predicted}"


def _size_options(profile: Profile, way: Preparation) -> str:
    """The sizes that were measured, so that the same is proven: some files leave them open, and cannot do without."""
    load = profile.workload
    asked = {"batch": load.batch if load.batch != 1 else None, "image": load.image or way.image}
    asked |= {"prompt": load.prompt, "generate": load.generate}
    options = [f" --{name} {size}" for name, size in asked.items() if size is not None]
    sizes = {**way.sizes, **profile.sizes}
    return "".join([*options, *(f" --size {name}={size}" for name, size in sizes.items() if name not in asked)])
