"""Priors as sums of deviations, one for each level: unit, vendor, generation, engine, formats, device.

A parameter is a logarithm: the log-odds of the share of a peak that a class of op reaches, the logarithm of seconds a
kernel, a launch or a step takes, or that of the rows whose products take as long as unpacking the weights. Its value
for one (device, engine, formats) is the sum of what stands at each matching level of `deviations.json` (of
`token_deviations.json` where tokens are read or made), which workshop/priors fits; nobody edits them. A level that has
no row adds nothing to the sum, and its spread to the interval: a device that nobody has measured gets its parents'.
Log-odds keep every share below 1: no sum is faster than the peak. design/0009-priors.md has the whole picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache, lru_cache
from math import exp, log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.dtypes import DTYPES, is_gguf_block
from inferometer.core.frozen import frozen
from inferometer.core.kept import Kept
from inferometer.core.statistics import EIGHT_IN_TEN
from inferometer.known.engines import known_engine
from inferometer.predict.precision import is_autocast
from inferometer.predict.price.likeness import alike, expected_effect
from inferometer.predict.work.classes import FITTED, GENERATING

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.core.graph import Graph
    from inferometer.core.workload import Precision

_FOLDER = Path(__file__).parents[2] / "known" / "data" / "priors"
FILE = _FOLDER / "deviations.json"
TOKENS_FILE = _FOLDER / "token_deviations.json"  # language models: other engines, other kernels

SHARED = ("compute", "memory", "kernel", "step", "host", "unpack")  # for all classes of ops together
STREAMS = ("compute", "memory", "kernel")
_FEW_ROWS = 10  # published steps of an engine: fewer do not tell its kernels from its work
PARAMETERS = (*SHARED, *(f"{stream}:{name}" for stream in STREAMS for name in FITTED))

ODDS = 9.0  # where log-odds end: a share of 0.9999
UNKNOWN_SPREAD = log(3.0)  # where nothing was left out to see
ALIKE = {"tpu": "npu"}  # kinds of units that a fit of another stands in for
WORTH_SAYING = 0.02  # of a model's time: a smaller effect changes no reading, and gets no note
# How well an unmeasured model is known, by its likeness to the nearest measured one: see design/0009-priors.md.
# They lie at 0.13 and 0.27 of features, within which intervals were a factor of 1.2 and 1.5.
_NEAR, _LIKE = 0.815, 0.41
UNMEASURED = ("near", "like", "new")
_FEW_DEVICES = 2  # of a maker: one tells nothing of what its others do with an engine
_BLOCKS = tuple(sorted((name for name in DTYPES if is_gguf_block(name)), key=lambda name: DTYPES[name].bits))
_USUAL_HZ = 2.5e9  # a clock that says nothing of a CPU
# What sums are held to on a device that was not among those they were fitted with: see `_carried`. Of the CPUs and GPUs
# that were, a kernel of nine in ten starts within the first, and products of nine in ten reach the second.
_CARRIED_KERNEL_S = 1e-4
_CARRIED_SHARE = 0.08
_CARRIED = frozenset({"cpu", "gpu", "npu"})
_OF_ENCODERS = ("linear", "matmul", "attention", "vector.norm")  # classes that networks of convolutions hardly have
_OF_WEIGHTS = ("linear", "experts")  # classes whose bytes are mostly weights
_OF_NO_MATRIX = ("depthwise", "vector", "indexing")  # classes that reach little of a peak for matrices


@frozen
class Standing:
    """Where a question stands among the levels. `variants` are settings that published tables name: `layout=nhwc`."""

    device: str
    unit: str
    vendor: str
    family: str | None
    engine: str
    weights: str
    activations: str
    variants: tuple[str, ...] = ()
    kind: str | None = None  # of machine: phone, desktop, server
    memory: str | None = None  # its level: hbm, gddr, lpddr
    clock: float = 0.0  # of a CPU's fastest cores, as a logarithm: see `slopes`

    def slopes(self) -> tuple[tuple[str, float], ...]:
        """Levels that are multiplied by a figure of the device.

        Of a CPU, its clock: starting a kernel takes cycles and not seconds, and what convolutions reach of a peak falls
        where the row states a clock that cores have only for a moment.
        """
        return ((f"clock:{self.unit}:{self.engine}", self.clock),) if self.clock else ()

    def levels(self) -> tuple[str, ...]:
        """The levels that hold, from the widest to the narrowest."""
        unit, engine, formats = self.unit, self.engine, f"{self.weights}/{self.activations}"
        return (
            f"unit:{unit}",
            f"kind:{unit}:{self.kind or 'other'}",
            f"vendor:{unit}:{self.vendor}",
            f"family:{unit}:{self.family or self.vendor}",
            f"memory:{unit}:{self.vendor}:{self.memory}",
            f"engine:{unit}:{engine}",
            f"format:{unit}:{formats}",
            f"engine+format:{unit}:{engine}:{formats}",
            f"engine+family:{engine}:{unit}:{self.family or self.vendor}",
            *(f"variant:{unit}:{engine}:{variant}" for variant in self.variants),
            f"device:{self.device}",
            f"device+engine:{self.device}:{engine}",
            self.own_level,
            *([f"run:{self.device}:{engine}:{formats}:{','.join(self.variants)}"] if self.variants else []),
        )

    @property
    def own_level(self) -> str:
        """The level of this very device with this engine in these formats, whatever else was set."""
        return f"device+format:{self.device}:{self.engine}:{self.weights}/{self.activations}"

    def spread_names(self, quantity: str) -> tuple[str, ...]:
        """The names of left-out residuals that give the interval's width, the nearest first."""
        engine = f"{self.unit}:{self.engine}"
        near = (f"{self.device}:{engine}:{quantity}", f"{self.vendor}:{engine}:{quantity}")
        return (*(near if quantity in GENERATING else ()), f"{engine}:{quantity}", engine, self.unit)


def standing_of(device: Device, engine: str, precision: Precision, variants: tuple[str, ...] = ()) -> Standing:
    weights = precision.weights or "f32"
    # Beside weights in fewer bits, both halves of a float are the engine's own choice, and no question's.
    activations = precision.activations or weights
    vendor, family = _made_by(device)
    weights = activations if is_autocast(weights, activations) else weights  # it computes as if they were stored so
    return Standing(
        device=device.name,
        unit=device.unit,
        vendor=vendor,
        family=family,
        kind=device.kind,
        memory=None if device.memory is None else device.memory.level,
        clock=_clock(device),
        engine=_published_as(engine),
        weights=weights,
        activations="f16" if activations == "bf16" != weights else activations,
        variants=variants,
    )


def _published_as(engine: str) -> str:
    """The engine that others published times of.

    A model replayed from a graph waits for the host as little as a compiled one, so it stands at that engine's level,
    and not at that of GPUs in general: most of their tables are of older cards, with attention in parts.
    """
    descriptor = known_engine(engine)
    if descriptor is None or descriptor.effects.execution != "captured":
        return engine
    return descriptor.compiled_by or engine


def _clock(device: Device) -> float:
    hertz = device.core_groups[0].clock_hz if device.unit == "cpu" and device.core_groups else None
    # Three digits, a tenth of a percent of a clock: rows that differ by less share what is kept for a standing.
    return round(log(hertz / _USUAL_HZ), 3) if hertz else 0.0


def _made_by(device: Device) -> tuple[str, str | None]:
    """The vendor and the generation; for a CPU its instruction set and cores: who sells a chip says little."""
    if device.unit != "cpu":
        return device.vendor, device.family
    core = device.core_groups[0].core if device.core_groups else device.family
    return device.instruction_set or device.vendor, core


# what stands in the file


@frozen
class LevelRow:
    """One level: how many devices and rows stand behind it, and each parameter's deviation."""

    devices: int
    rows: int
    values: Mapping[str, float]


@frozen
class Deviations:
    """The file: where sums begin, each level's deviations, how far levels of a kind spread, and what else was learned.

    `spreads` are half-widths of eight in ten left-out residuals, as logarithms, by `UNIT:ENGINE:QUANTITY:SEEN:KNOWN`
    (whether the device was seen, or its family, or hardly a device of its maker with the engine, and the model is known
    from others: itself, or as `near` or `like` one that is; `new` is like none), where tokens are after a device or a
    vendor with enough of them; the nearest name that is there counts. `makers` are those that an engine was published
    on, by unit and engine, with their devices. `source:QUANTITY:UNIT:SEEN` is what a source that was left out adds, and
    `engine:…` one whose engine no other source has. What models take over what their work says is `usual` by unit and
    engine (and phase, of tokens), and the sum of `pulls` towards models that were measured, by unit, engine and formats
    (or phase): by model the pull, and the number of devices that say so. `features` say which are alike.
    """

    made: str
    base: Mapping[str, Mapping[str, float]]
    covered: Mapping[str, tuple[str, ...]]  # by unit, the classes that cases had ops of
    levels: Mapping[str, LevelRow]
    variances: Mapping[str, Mapping[str, float]]
    spreads: Mapping[str, float] = field(default_factory=dict)
    makers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    usual: Mapping[str, float] = field(default_factory=dict)
    pulls: Mapping[str, Mapping[str, tuple[float, int]]] = field(default_factory=dict)
    features: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    datasets: Mapping[str, int] = field(default_factory=dict)  # rows that entered


@cache
def known_deviations(*, tokens: bool = False) -> Deviations:
    """What was fitted for forward passes, or for reading and making tokens."""
    import msgspec  # noqa: PLC0415 - a calibrated answer needs no priors

    from inferometer.core.codec import settled  # noqa: PLC0415 - as above

    file = TOKENS_FILE if tokens else FILE
    if not file.is_file():
        return Deviations(made="", base={}, covered={}, levels={}, variances={})
    return msgspec.json.decode(file.read_bytes(), type=settled(Deviations))


@frozen
class FittedPrior:
    """The sums for one standing: by class the shares of arithmetic and memory and the seconds of a kernel.

    `spread` is the standard deviation of the logarithm of the time of a model that others measured elsewhere, and
    `unmeasured` that of one that nobody did, by how like it is to those (`UNMEASURED`); `rows` is how many published
    steps of this very device with this engine and these formats are in it. `name` says whose times they are, in a few
    words, and `source` in a sentence's end. Classes that are `held` were carried too far: see `_carried`.
    """

    name: str
    classes: Mapping[str, tuple[float, float, float]]
    step_s: float
    host_s: float
    unpack: float  # rows
    spread: float
    unmeasured: Mapping[str, float]
    rows: int
    source: str
    held: frozenset[str] = frozenset()


def fitted_prior(standing: Standing, quantity: str = "forward") -> FittedPrior | None:
    """None where nothing was fitted for such a unit."""
    return _fitted(standing, quantity)


@lru_cache(maxsize=4096)
def _fitted(standing: Standing, quantity: str) -> FittedPrior | None:
    tokens = quantity in GENERATING
    known, standing = known_deviations(tokens=tokens), known_unit(standing, tokens=tokens)
    if standing.unit not in known.base:
        return None
    if tokens and (f"engine:{standing.unit}:{standing.engine}" not in known.levels or _is_served(standing.engine)):
        return None  # other engines' shares say little about one that compiles or launches in its own way
    own = known.levels.get(standing.own_level)
    seen = was_seen(standing, tokens=tokens)
    name, source = _told_by(standing, own, known.levels)
    sums = sums_of(standing, tokens=tokens)
    prior = _prior_of(
        standing,
        sums if tokens else _with_own_kernel(standing, sums),
        name=name,
        tokens=tokens,
        spread=spread_of(standing, quantity, seen=seen, known="known") / EIGHT_IN_TEN,
        unmeasured={
            known: spread_of(standing, quantity, seen=seen, known=known) / EIGHT_IN_TEN for known in UNMEASURED
        },
        rows=0 if own is None else own.rows,
        source=source,
    )
    if not seen and standing.unit in _CARRIED:
        prior = _carried(prior, standing, exp(sums["kernel"]), known)
    return _no_faster_than_narrower(_keeping_up(prior, standing, quantity, seen=seen), standing, quantity, known.levels)


def _no_faster_than_narrower(
    prior: FittedPrior, standing: Standing, quantity: str, levels: Mapping[str, LevelRow]
) -> FittedPrior:
    """The prior of a block format that nobody measured with the engine, held to the one before it that somebody did.

    Such a format has the sums of its parents alone, and on a device that is busy unpacking, blocks of five bits would
    be read faster than those of four. It unpacks no faster than the narrower one, and reads no more blocks a second.
    """
    weights = standing.weights
    if weights not in _BLOCKS or _of_blocks(standing, weights) in levels:
        return prior
    family = [name for name in _BLOCKS if name.endswith("_k") == weights.endswith("_k")]
    below = family[: family.index(weights)]
    measured = any(_of_blocks(standing, name) in levels for name in below)
    # The one below may not have been measured either; then it was held to the one below that.
    other = _fitted(replace(standing, weights=below[-1]), quantity) if measured else None
    if other is None:
        return prior
    more = float(DTYPES[weights].bits / DTYPES[below[-1]].bits)
    classes = {}
    for name, (compute, memory, kernel) in prior.classes.items():
        compute_there, memory_there, kernel_there = other.classes[name]
        most = memory_there * (more if name.startswith(_OF_WEIGHTS) else 1.0)
        classes[name] = min(compute, compute_there), min(memory, most), max(kernel, kernel_there)
    step_s, unpack = max(prior.step_s, other.step_s), max(prior.unpack, other.unpack)
    return replace(prior, classes=classes, step_s=step_s, unpack=unpack)


def _of_blocks(standing: Standing, weights: str) -> str:
    return f"engine+format:{standing.unit}:{standing.engine}:{weights}/{standing.activations}"


def _kept_up_with(standing: Standing) -> Standing | None:
    """The standing of an engine that this one keeps up with; None where there is none."""
    engine = known_engine(standing.engine)
    return None if engine is None or not engine.keeps_up_with else replace(standing, engine=engine.keeps_up_with)


def _keeping_up(prior: FittedPrior, standing: Standing, quantity: str, *, seen: bool) -> FittedPrior:
    """The prior with the better rates of an engine that this one is known to keep up with.

    TensorRT was published with convolutional networks, mostly on boards. Its tables hold no products or norms of
    encoders, which would get twice the time that PyTorch's compiler was measured to take.
    """
    faster = _kept_up_with(standing)
    if faster is None or (other := _fitted(faster, quantity)) is None:
        return prior
    classes = dict(prior.classes)
    for name, (compute, memory, kernel) in prior.classes.items():
        if not seen or name.startswith(_OF_ENCODERS):
            compute_there, memory_there, kernel_there = other.classes[name]
            classes[name] = max(compute, compute_there), max(memory, memory_there), min(kernel, kernel_there)
    if classes == prior.classes:
        return prior
    step_s = prior.step_s if seen else min(prior.step_s, other.step_s)
    source = f"{prior.source}, and no slower than those of {faster.engine}"
    return replace(prior, classes=classes, step_s=step_s, source=source)


def _carried(prior: FittedPrior, standing: Standing, kernel_s: float, known: Deviations) -> FittedPrior:
    """The prior on a device that it was not fitted with, without what cannot be carried there.

    If all published ops of a class had one size, the seconds of its kernels hold work as well as their start: the
    softmax behind a classifier then carries the error of whole networks, 2 ms on a server. And devices that reach a
    fiftieth of their peak because the engine does not use their vectors say nothing about cores without vectors: if no
    sibling ran with the engine, shares are limited too.

    NPUs leave single ops to their hosts, and no limit is known for those. Only products by a matrix are limited, also
    if a sibling ran: two small networks that are slow on an RDK X5 make its products reach a sixtieth of the peak,
    which is wrong for BERT on an X3.
    """
    family = f"engine+family:{standing.engine}:{standing.unit}:{standing.family or standing.vendor}"
    share = 0.0 if family in known.levels else _CARRIED_SHARE
    longest = max(_CARRIED_KERNEL_S, kernel_s)
    if standing.unit == "npu":
        classes = {
            name: (max(_CARRIED_SHARE, rates[0]) if name == "linear" else rates[0], *rates[1:])
            for name, rates in prior.classes.items()
        }
    else:
        classes = {
            name: (
                compute if name.startswith(_OF_NO_MATRIX) else max(share, compute),
                max(share, memory), min(longest, kernel),
            )
            for name, (compute, memory, kernel) in prior.classes.items()
        }  # fmt: skip
    return replace(
        prior, classes=classes, held=frozenset(name for name in classes if classes[name] != prior.classes[name])
    )


def _with_own_kernel(standing: Standing, sums: Mapping[str, float]) -> Mapping[str, float]:
    """The sums with the engine's own kernel, if that was timed and few models of the engine were published.

    Five large networks do not tell the start of a kernel, so the sums would hold that of other engines: 2.4 ms for
    300 tiny ops of ONNX Runtime on a Xeon, where they take 0.13.
    """
    level, descriptor = known_deviations().levels.get(f"engine:{standing.unit}:{standing.engine}"), None
    if level is None or level.rows < _FEW_ROWS:
        descriptor = known_engine(standing.engine)
    stated = None if descriptor is None else descriptor.effects.on(standing.unit).kernel_s
    if stated is None or not stated.value:
        return sums
    return {
        **{name: value for name, value in sums.items() if not name.startswith("kernel")},
        "kernel": log(stated.value),
    }


def _is_served(engine: str) -> bool:
    """Whether it has rules of serving, whose costs were fitted with kernels and class priors below them."""
    descriptor = known_engine(engine)
    return descriptor is not None and descriptor.serving is not None


def was_seen(standing: Standing, *, tokens: bool = False) -> bool:
    """Whether steps of this device with this engine are in the fit, in whatever formats."""
    return (standing.device, standing.engine) in _engines_seen(tokens=tokens)


@cache
def _engines_seen(*, tokens: bool) -> frozenset[tuple[str, str]]:
    """The devices and engines with published times."""
    levels = (name.split(":") for name in known_deviations(tokens=tokens).levels if name.startswith("device+engine:"))
    return frozenset((device, engine) for _, device, engine, *_ in levels)


def sums_of(standing: Standing, *, without: frozenset[str] = frozenset(), tokens: bool = False) -> dict[str, float]:
    """Every parameter's sum over the levels that hold, or over those of them that are not of the kinds `without`."""
    known = known_deviations(tokens=tokens)
    sums = dict(known.base[standing.unit])
    for level, times in (*((level, 1.0) for level in standing.levels()), *standing.slopes()):
        row = None if level.partition(":")[0] in without else known.levels.get(level)
        for name, value in () if row is None else row.values.items():
            sums[name] = sums.get(name, 0.0) + times * value
    return sums


def is_fitted_for(parameters: Mapping[str, float], phase: str) -> bool:
    """Whether sums that a calibration has kept are of such a phase: speeds of tokens say nothing of forward passes."""
    tokens = any(name.endswith((".prefill", ".decode")) for name in parameters)
    return bool(parameters) and tokens == (phase in GENERATING)


def prior_from(
    parameters: Mapping[str, float], standing: Standing, phase: str, *, spread: float, rows: int
) -> FittedPrior:
    """As `fitted_prior`, from the sums that a calibration has kept: as odds and seconds, not as their logarithms."""
    tokens = phase in GENERATING
    return _prior_of(
        known_unit(standing, tokens=tokens),
        {name: log(value) for name, value in parameters.items()},
        name=f"published times of this {standing.unit.upper()}",
        tokens=tokens,
        spread=spread,
        unmeasured=dict.fromkeys(UNMEASURED, spread),
        rows=rows,
        source=f"fitted from {rows} published steps of {standing.device} with {standing.engine}",
    )


def known_unit(standing: Standing, *, tokens: bool = False) -> Standing:
    """The standing at the kind of unit that stands in for its own, if nothing was fitted for its own."""
    unit = standing.unit
    known = known_deviations(tokens=tokens).base
    return standing if unit in known else replace(standing, unit=ALIKE.get(unit, unit))


def _prior_of(  # noqa: PLR0913 - what a prior is made of
    standing: Standing,
    sums: Mapping[str, float],
    *,
    name: str,
    tokens: bool,
    spread: float,
    unmeasured: Mapping[str, float],
    rows: int,
    source: str,
) -> FittedPrior:
    covered = known_deviations(tokens=tokens).covered.get(standing.unit, ())
    return FittedPrior(
        name=name,
        classes={op_class: _rates(sums, op_class) for op_class in covered},
        step_s=exp(sums["step"]),
        host_s=exp(sums["host"]),
        unpack=exp(sums["unpack"]) if tokens else 0.0,
        spread=spread,
        unmeasured=unmeasured,
        rows=rows,
        source=source,
    )


def _rates(sums: Mapping[str, float], name: str) -> tuple[float, float, float]:
    compute, memory, kernel = (sums[stream] + sums.get(f"{stream}:{name}", 0.0) for stream in STREAMS)
    return share_of(compute), share_of(memory), exp(min(kernel, 0.0))


def share_of(log_odds: float) -> float:
    """From log-odds to a share, which is never 1: held where a float would round to it."""
    return 1 / (1 + exp(-max(-ODDS, min(ODDS, log_odds))))


def spread_of(standing: Standing, quantity: str, *, seen: bool, known: str) -> float:
    """Half the width of the interval of eight in ten, as a logarithm, by whether device and model were seen.

    `known` is `known`, or how near an unmeasured model is to the measured ones. A user's machine is one more source,
    with its own harness, releases and clocks: the half-width includes the extra error of sources that were left out.
    """
    deviations = known_deviations(tokens=quantity in GENERATING)
    related = f"family:{standing.unit}:{standing.family or standing.vendor}" in deviations.levels
    near = nearness(standing, deviations.makers, seen=seen, related=related)
    fitted = f"engine:{standing.unit}:{standing.engine}" in deviations.levels
    half = half_of(deviations.spreads, standing, quantity, near=near, known=known)
    return sqrt(half**2 + source_half(deviations.spreads, source_names(quantity, standing.unit, near, fitted)) ** 2)


def nearness(standing: Standing, makers: Mapping[str, Mapping[str, int]], *, seen: bool, related: bool) -> str:
    """How near a device is to the fitted ones: `seen` with the engine, or its family was, or neither.

    `foreign` is a device of a maker that the engine ran on once or never: other engines were measured on it, and this
    engine's kernels were not.
    """
    ran = makers.get(f"{standing.unit}:{standing.engine}")
    if not seen and ran and ran.get(standing.vendor, 0) < _FEW_DEVICES:
        return "foreign"
    return "seen" if seen else "unseen" if related else "stranger"


def half_of(spreads: Mapping[str, float], standing: Standing, quantity: str, *, near: str, known: str) -> float:
    """The half-width in a source that was fitted. How `near` a device is: see `nearness`."""
    names = (f"{name}:{near}:{known}" for name in standing.spread_names(quantity))
    half_width = next((spreads[name] for name in names if name in spreads), None)
    if half_width is not None:
        return half_width
    if known in UNMEASURED[:-1] and known not in _told_of_seen(spreads):
        return half_of(spreads, standing, quantity, near=near, known=UNMEASURED[-1])
    if near != "seen" and known != "known":  # the two doubts are of different things, and add as such
        ways = (("seen", known), (near, "known"))
        return sqrt(sum(half_of(spreads, standing, quantity, near=one, known=how) ** 2 for one, how in ways))
    # What holds for an unseen device holds for a stranger too, and a seen one is known no worse than that.
    if near == "foreign":
        return half_of(spreads, standing, quantity, near="stranger", known=known)
    if near == "stranger" or (near == "seen" and known == "known"):
        return half_of(spreads, standing, quantity, near="unseen", known=known)
    return UNKNOWN_SPREAD


_of_seen = Kept(8)  # two sets of spreads, and the ones that a fit tries


def _told_of_seen(spreads: Mapping[str, float]) -> frozenset[str]:
    """The last words of the names of spreads for seen devices: how well the model may be known."""
    return _of_seen.get_or_make(
        len(spreads),
        (spreads,),
        lambda: frozenset(name.rpartition(":seen:")[2] for name in spreads if ":seen:" in name),
    )


def source_names(quantity: str, unit: str, near: str, fitted: bool) -> tuple[str, ...]:
    """The names under which an unseen source's extra error is kept, the nearest first: more of it if not `fitted`.

    The quantity comes before the kind of unit: lengths and chunks of prompts differ between sources as they do on any
    unit, and a step of decoding is nearly the same everywhere.
    """
    what = f"{'source' if fitted else 'engine'}:{quantity}"
    return f"{what}:{unit}:{near}", f"{what}:{unit}", what, what.partition(":")[0]


def source_half(spreads: Mapping[str, float], names: Iterable[str]) -> float:
    return next((spreads[name] for name in names if name in spreads), 0.0)


def _told_by(standing: Standing, own: LevelRow | None, known: Mapping[str, LevelRow]) -> tuple[str, str]:
    """The nearest measurements behind a sum: as a name, and as the end of a sentence."""
    unit, engine = standing.unit.upper(), standing.engine
    if own is not None:
        source = f"fitted from {own.rows} published steps of {standing.device} with {engine}"
        return f"published times of this {unit}", source
    if (device := known.get(f"device:{standing.device}")) is not None:
        source = f"fitted from {device.rows} published steps of {standing.device} that ran otherwise"
        return f"published times of this {unit}, run otherwise", source
    # From the engine's level on, one that is there was fitted with this engine; the widest has the most devices.
    with_engine = (level for level in standing.levels()[5:10] if not level.startswith("format:"))
    levels = [known[level] for level in with_engine if level in known]
    if not levels:
        source = f"those of {unit}s in general, since no figure of {engine} on one is at hand"
        return f"published times of {unit}s in general", source
    source = f"fitted from published steps of {levels[0].devices} other devices with {engine}"
    return f"published times of {levels[0].devices} other {unit}s with {engine}", source


@frozen
class ModelEffect:
    """The factor between a model's measured time and the time of its work, with this engine on this kind of unit.

    `devices` is the number of devices on which this very model was measured; 0 if only similar models were.
    `likeness` is that of the nearest model that was measured with the engine, from 0 to 1.
    """

    times: float = 1.0
    devices: int = 0
    likeness: float = 0.0

    @property
    def known(self) -> str:
        """How the model is known, in the words of `spread_of`."""
        return "known" if self.devices else known_by(self.likeness)

    def note(self, what: str = "run") -> str | None:
        if abs(self.times - 1) < WORTH_SAYING:
            return None
        way = "slower" if self.times > 1 else "faster"
        devices = f"{self.devices} devices" if self.devices > 1 else "one device"
        whose = f"Others' measurements of this model on {devices}" if self.devices else "Measured models like this one"
        says = "its work says" if self.devices else "their work says"
        return f"{whose} {what} {100 * abs(self.times - 1):.0f} % {way} than {says}, which is in the answer."


NO_EFFECT = ModelEffect()


def known_by(likeness: float) -> str:
    """How well an unmeasured model is known."""
    return UNMEASURED[0] if likeness >= _NEAR else UNMEASURED[1] if likeness >= _LIKE else UNMEASURED[2]


def model_effect(
    model: str, standing: Standing, phase: str = "forward", features: Callable[[], tuple[int, ...] | None] | None = None
) -> ModelEffect:
    """`model` is its `effect_key`; `features` say which measured models it is like, and are asked for when needed.

    Reading and making tokens have effects of their own, and know nothing of likeness.
    """
    tokens = phase in GENERATING
    known, engine = known_deviations(tokens=tokens), f"{standing.unit}:{standing.engine}"
    if tokens:
        where = f"{engine}:{phase}"
        pull, devices = known.pulls.get(where, {}).get(model, (0.0, 0))
        return ModelEffect(times=exp(known.usual.get(where, 0.0) + pull), devices=devices)
    formats = f"{standing.weights}/{standing.activations}"
    seen = [models[model][1] for models in _pulls_with(engine) if model in models]
    if standing.unit not in known.base:
        return NO_EFFECT
    own = known.features.get(model) or (None if features is None else features())
    sized = _measured_size(model)
    times = exp(_expected(sized, known.features.get(sized) or own, engine, formats))
    if not seen and (other := _kept_up_with(standing)) is not None:
        times = min(times, model_effect(model, other, phase, features).times)
    return ModelEffect(
        times=times,
        devices=max(seen, default=0),
        likeness=1.0 if seen else _likeness(own, engine),
    )


@lru_cache(maxsize=4096)
def _measured_size(model: str) -> str:
    """The model at the nearest size of picture that was measured: the same layers err alike.

    Without it a larger picture could be answered as faster: an effect of similar models took the place of its own.
    """
    known = known_deviations().features
    name, _, side = model.rpartition("@")
    if model in known or not side.isdecimal():
        return model
    sizes = [int(key.rpartition("@")[2]) for key in known if key.rpartition("@")[0] == name]
    return f"{name}@{min(sizes, key=lambda size: abs(log(size / int(side))))}" if sizes else model


def _pulls_with(engine: str) -> Iterator[Mapping[str, tuple[float, int]]]:
    """By formats, the pulls on models with one engine on one kind of unit."""
    return (models for where, models in known_deviations().pulls.items() if where.rpartition(":")[0] == engine)


@lru_cache(maxsize=4096)
def _expected(model: str, features: tuple[int, ...] | None, engine: str, formats: str) -> float:
    known, unit = known_deviations(), engine.partition(":")[0]
    pulls = {where: models for where, models in known.pulls.items() if where.startswith(f"{unit}:")}
    likenesses = None if features is None else _likenesses(features)
    return known.usual.get(engine, 0.0) + expected_effect(model, likenesses, (engine, formats), pulls)


@lru_cache(maxsize=4096)
def _likeness(features: tuple[int, ...] | None, engine: str) -> float:
    """How like a model is to the nearest that was measured with an engine."""
    if features is None:
        return 0.0
    likenesses = _likenesses(features)
    return max((likenesses[name] for models in _pulls_with(engine) for name in models), default=0.0)


@lru_cache(maxsize=64)  # a table of a thousand numbers for each
def _likenesses(features: tuple[int, ...]) -> Mapping[str, float]:
    """How like a model is to each that was measured."""
    return dict(zip(known_deviations().features, alike([features], _measured_features())[0].tolist(), strict=True))


@cache
def _measured_features() -> Any:
    """[models, features]: kept, since making an array of a thousand tuples takes longer than all of its uses."""
    return np.array([*known_deviations().features.values()])


def effect_key(graph: Graph, image: int | None) -> str:
    """A model at the size of its picture: the same layers at another size are other work."""
    side = image or graph.metadata.get("image") or graph.metadata.get("default_sizes", {}).get("image")
    return graph.name if side is None else f"{graph.name}@{side}"
