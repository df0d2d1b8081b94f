"""Published measurements → cases: the questions they answer, counted by the same code that predictions are.

Rows of one model, image, engine and format share one preparation, and their batches are counted at once. Networks do
not need each other, so those of a long table are shared out among processes.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.device import UNITS, Device
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, is_generative
from inferometer.core.workload import Precision, Workload
from inferometer.formats.networks.read import read_network
from inferometer.known import device as device_named
from inferometer.known.atlas.form import device_meant
from inferometer.known.atlas.names import same_models
from inferometer.known.atlas.shipped import load, shipped_datasets
from inferometer.known.atlas.sources.ncnn import OF_RELEASES, is_older
from inferometer.known.engines import known_engine
from inferometer.known.zoo import network_named
from inferometer.measure.calibrate.priors.stack import StackCase
from inferometer.predict.ask import model_graph
from inferometer.predict.options import Options
from inferometer.predict.price.class_figures import with_class_figures
from inferometer.predict.price.deviations import effect_key, standing_of
from inferometer.predict.price.likeness import features_of
from inferometer.predict.price.plan import plan_of
from inferometer.predict.price.variants import threads_variant, with_threads
from inferometer.predict.published_rows import ROUNDING, has_own_figures, ran_elsewhere
from inferometer.predict.ready import make_prepared
from inferometer.predict.request import completed
from inferometer.predict.sweep.engines import spread_over
from inferometer.predict.work.classes import FREE, PLACE, fitted_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from inferometer.core.engine import RuntimeEffects
    from inferometer.known.atlas import PublishedMeasurement
    from inferometer.predict.work.prepare import PreparedWork


_VARIANTS = ("layout", "form", "powersave", "provider", "delegate", "backend")
_USUAL = frozenset({"layout=nchw", "form=dlc", "powersave=0", "provider=qnn", "delegate=qnn", "backend=vulkan"})

# How far a published count may be off: a share, less where it is of the network as its package has it, and more where a
# compiler counts what it took; and what rounding hides.
_OTHER_PARAMETERS, _OF_PACKAGES, _LAST_DIGIT = 0.2, {"timm": 0.03}, 6e3

_OTHER_DEVICE = 0.15  # of a device's figures beyond its peak: clocks and roundings account for fewer

# Networks that are worth other processes, whose start takes as long as some thirty of them, and those that one is
# given at a time: the graphs of a family are in one file, which a process reads once.
_WORTH_PROCESSES, _AT_A_TIME = 100, 16

_LENGTHS = Path(__file__).with_name("text_lengths.toml")
_TOKENS = re.compile(r"1x(\d+)")


@frozen
class CaseReading:
    """The cases of some rows, and why others are none: reasons with how many rows each took."""

    cases: tuple[StackCase, ...]
    left: Counter[str]


@frozen
class _Asked:
    """The fields that rows must share to be counted together."""

    model: str
    image: int | None
    prompt: int | None
    engine: str
    precision: Precision

    @property
    def network(self) -> tuple[str, int, int]:
        return self.model, self.image or 0, self.prompt or 0


_RowCases = list[tuple["PublishedMeasurement", StackCase]]


def cases_of(rows: Iterable[PublishedMeasurement], *, engine: str = "local") -> CaseReading:
    """Forward passes of whole models on one device. What cannot be asked is counted by its reason.

    `engine` is where many networks are counted, as a sweep has it: `local`, or `local:N` for N processes.
    """
    left: Counter[str] = Counter()
    groups: dict[_Asked, list[PublishedMeasurement]] = {}
    taken = list(rows)
    older = _older_lists(taken)
    for row in taken:
        reason = _not_asked(row)
        if reason is not None:
            left[reason] += 1
            continue
        groups.setdefault(_asked(row), []).append(row)
    ordered = sorted(groups.items(), key=lambda group: group[0].network)  # what is counted once is kept
    networks = [list(alike) for _, alike in groupby(ordered, key=lambda group: group[0].network)]
    shares = [networks[start : start + _AT_A_TIME] for start in range(0, len(networks), _AT_A_TIME)]
    counted: _RowCases = []
    with spread_over(engine if len(networks) >= _WORTH_PROCESSES else "local") as spread:
        for share, reasons in spread(partial(_count_share, older=older), shares):
            counted += share
            left += reasons
    return CaseReading(cases=_possible(counted, left), left=left)


def _count_share(
    networks: Sequence[Sequence[tuple[_Asked, Sequence[PublishedMeasurement]]]], older: frozenset[str]
) -> tuple[_RowCases, Counter[str]]:
    """The cases of some networks, and why others are none; of values alone, so that another process can do it."""
    counted: _RowCases = []
    left: Counter[str] = Counter()
    for groups in networks:
        network, _ = groups[0]
        try:
            graph = graph_of(network.model, network.image)
        except (InferometerError, OverflowError, ValueError) as error:
            left[_reason(network, error)] += sum(len(members) for _, members in groups)
            continue
        for asked, members in groups:
            try:
                counted += _counted(graph, asked, members, left, older)
            except (InferometerError, OverflowError, ValueError) as error:
                left[_reason(asked, error)] += len(members)
    return counted, left


def _reason(asked: _Asked, error: Exception) -> str:
    return f"{asked.model}: {error}".partition("\n")[0]


def _possible(counted: Sequence[tuple[PublishedMeasurement, StackCase]], left: Counter[str]) -> tuple[StackCase, ...]:
    """Without what beats the peak of its device; where that is much of a list, the device is another, and all goes.

    OpenVINO's throughputs of Xeons are of two sockets, and one list of a board's GPU is of nothing that ran. One figure
    alone tells of no list, however short it is.
    """
    lists: dict[tuple[str, str | None, str], list[bool]] = {}
    beaten = []
    for row, case in counted:
        beaten.append(_beats_peak(row, case))
        lists.setdefault((row.dataset, row.device, case.quantity), []).append(beaten[-1])
    others = {key for key, each in lists.items() if sum(each) > max(1, _OTHER_DEVICE * len(each))}
    kept = []
    for (row, case), beats in zip(counted, beaten, strict=True):
        if (row.dataset, row.device, case.quantity) in others:
            left[f"figures of {row.device} that are of another device: many beat its peak"] += 1
        elif beats:
            left["it beats the peak of its device"] += 1
        else:
            kept.append(case)
    return tuple(kept)


def _beats_peak(row: PublishedMeasurement, case: StackCase) -> bool:
    """Whether its products alone take longer. Weights may stay in a cache, so bytes do not say."""
    if row.device is None or not has_own_figures(row.device):
        return False
    return bool(row.seconds < ROUNDING * float(np.sum(case.repeats * case.compute)))


def _not_asked(row: PublishedMeasurement) -> str | None:
    """Why a row cannot be asked of `predict` as one forward pass; None where it can."""
    reasons = (
        (row.quantity not in {"forward", "stream", "picture"}, f"{row.quantity} is no forward pass"),
        # a part with a graph of its own is NAME/PART
        (row.part is not None and "/" not in (row.model or ""), "forward of a part that has no graph here"),
        (row.count != 1, "more than one device"),
        (row.model is None, f"the model {row.model_published} has no graph here"),
        (not has_device(row), f"the device {row.device_published} is not in the catalog"),
        (not is_described(row.engine), no_engine(row)),
        (not (row.weights or row.activations), "no number format is stated"),
        (ran_elsewhere(row), "much of it ran on another unit"),
    )
    return next((reason for holds, reason in reasons if holds), None)


def no_engine(row: PublishedMeasurement) -> str:
    named = row.engine or row.engine_published
    return f"the engine {named} is not described" if named else "no engine is stated"


def is_described(engine: str | None) -> bool:
    return engine is not None and known_engine(engine) is not None


def _asked(row: PublishedMeasurement) -> _Asked:
    # Autocast keeps f32 weights and computes in another format, which is what a prediction calls the weights'.
    activations = row.activations or row.weights
    weights = activations if "autocast" in row.settings else row.weights or activations
    return _Asked(
        model=row.model or "",
        image=row.image,
        prompt=_tokens(row),
        engine=row.engine or "",
        precision=Precision(weights=weights, activations=activations),
    )


def _tokens(row: PublishedMeasurement) -> int | None:
    """The tokens of a text that a row names, in its own column or as its input's shape; else what its dataset uses."""
    if row.prompt is not None:
        return row.prompt
    shape = _TOKENS.fullmatch(row.input or "")
    return int(shape[1]) if shape else _lengths().get(row.dataset, {}).get(row.model_published)


@cache
def _lengths() -> dict[str, dict[str, int]]:
    """Lengths of texts that tables leave out, by dataset and published name."""
    stated: dict[str, dict[str, int]] = tomllib.loads(_LENGTHS.read_text(encoding="utf-8"))
    return stated


@cache
def graph_of(model: str, image: int | None) -> Graph:
    """The graph that `predict` would be asked with: a package's network at its image, else the catalog's own name."""
    names = (model, *sorted(same_models(model)))
    ours = next((name for name in names if network_named(name) is None), None)
    network = next((network_named(name) for name in names if network_named(name) is not None), None)
    if network is None:
        return model_graph(ours or model)
    try:
        return read_network(network, image=image)
    except InferometerError:
        if ours is None:
            raise
        return model_graph(ours)


def has_parameters(row: PublishedMeasurement, counted: int) -> bool:
    """Whether a graph has as many parameters as were published with the row, in millions with two digits.

    A name stays while its network changes, and some tables count only what they could export.
    """
    if row.parameters is None:
        return True
    share = _OF_PACKAGES.get(row.dataset, _OTHER_PARAMETERS)
    return abs(counted - row.parameters) <= max(share * row.parameters, _LAST_DIGIT)


def _older_lists(rows: Iterable[PublishedMeasurement]) -> frozenset[str]:
    """The devices whose list of ncnn's benchmark is of an older release: its own nets say so, else the shipped ones."""
    nets: dict[str, set[str]] = {}
    for row in rows:
        if row.dataset == OF_RELEASES:
            nets.setdefault(row.device_published, set()).add(row.model_published)
    if not nets:
        return frozenset()
    for name, more in _shipped_lists().items():
        if name in nets:
            nets[name] |= more
    return frozenset(name for name, known in nets.items() if is_older(known))


@cache
def _shipped_lists() -> Mapping[str, frozenset[str]]:
    """By device, the nets that the shipped table of ncnn's benchmark has."""
    nets: dict[str, set[str]] = {}
    for row in load((OF_RELEASES,)).rows() if OF_RELEASES in shipped_datasets() else ():
        nets.setdefault(row.device_published, set()).add(row.model_published)
    return {name: frozenset(known) for name, known in nets.items()}


def _counted(
    graph: Graph, asked: _Asked, members: Sequence[PublishedMeasurement], left: Counter[str], older: frozenset[str]
) -> Iterable[tuple[PublishedMeasurement, StackCase]]:
    if is_generative(graph):
        raise ValueError("it makes tokens; a forward pass is no phase of it")
    engine = known_engine(asked.engine)
    counted_parameters = graph.parameters
    rows = [row for row in members if has_parameters(row, counted_parameters)]
    if len(rows) < len(members):
        left[f"{asked.model} has a graph with another number of parameters"] += len(members) - len(rows)
    one = [row for row in rows if "batch" in graph.symbols or (row.batch or 1) == 1]
    if len(one) < len(rows):
        left[f"{asked.model} was made for one input at once"] += len(rows) - len(one)
    rows = one
    if engine is None or not rows:
        return
    workload = completed(graph, Workload(image=asked.image, prompt=asked.prompt, precision=asked.precision), Options())
    asked = replace(asked, prompt=workload.prompt)
    run: dict[int, tuple[RuntimeEffects, list[PublishedMeasurement]]] = {}
    for row in rows:  # an engine does other things on other instruction sets
        effects = engine.effects.at(device_as_run(row))
        run.setdefault(id(effects), (effects, []))[1].append(row)
    for effects, alike in run.values():
        yield from _cases_of(asked, alike, make_prepared(graph, effects=effects, workload=workload), graph, older)


def _cases_of(
    asked: _Asked, rows: Sequence[PublishedMeasurement], prepared: PreparedWork, graph: Graph, older: frozenset[str]
) -> Iterable[tuple[PublishedMeasurement, StackCase]]:
    """Cases that are counted by one preparation."""
    # Inputs of a step; where several are under way, the seconds are those of each.
    batches = np.array([1 if row.quantity == "stream" else row.batch or 1 for row in rows])
    distinct, place = np.unique(batches, return_inverse=True)
    sizes = {"batch": distinct, "query": asked.prompt or 1, "context": 0, "logits": 1}
    quantities = prepared.quantities(sizes)
    features = features_of(prepared, asked.precision.activations or "f32")
    counted = {
        steps: _Ops(prepared, effect_key(graph, asked.image), features, older, steps)
        for steps in set(map(_steps, rows))
    }
    plans: dict[Any, tuple[Any, Any, Any]] = {}
    for row, at in zip(rows, place.tolist(), strict=True):
        device = device_as_run(row)
        if (prices := plans.get(id(device))) is None:
            plan = plan_of(prepared, device, weights_bytes=0.0, ideal=True)
            compute, memory = plan.ideals(quantities, distinct)
            prices = plans[id(device)] = (device, compute, memory)
        yield row, counted[_steps(row)].case(row, asked, device, (_column(prices[1], at), _column(prices[2], at)))


def _steps(row: PublishedMeasurement) -> int | None:
    """The steps of a whole picture; None where a row is of one."""
    return int(row.settings["steps"]) if row.quantity == "picture" else None


def _column(values: Any, at: int) -> Any:
    return values[:, at if values.shape[1] > 1 else 0]


class _Ops:
    """The ops of a graph that cost anything, in the form that cases have them: of a step, or of a whole picture."""

    def __init__(
        self, prepared: PreparedWork, model: str, features: tuple[int, ...], older: frozenset[str], steps: int | None
    ) -> None:
        rows, repeats, self.steps = prepared.rows, prepared.counts(once=False), steps or 1
        if steps is not None:
            repeats = steps * repeats + prepared.counts(once=True)
        names = [fitted_class(row.op, "forward") for row in rows]
        self.kept = np.array([name is not None and repeats[at] > 0 for at, name in enumerate(names)])
        self.classes = np.array([PLACE.get(name or "", 0) for name in names])[self.kept]
        launches = [0 if row.op_class in FREE else row.fused.launches for row in rows]
        self.kernels, self.repeats = np.array(launches, dtype=float)[self.kept], repeats[self.kept]
        self.hosted = prepared.effects.on("gpu").host_s is not None
        self.model = model
        self.features = features
        self.older = older

    def case(self, row: PublishedMeasurement, asked: _Asked, device: Device, ideals: tuple[Any, Any]) -> StackCase:
        return StackCase(
            dataset=row.dataset,
            model=self.model,
            standing=standing_of(device, asked.engine, asked.precision, variants_of(row, self.older)),
            seconds=row.seconds,
            compute=ideals[0][self.kept],
            memory=ideals[1][self.kept],
            kernels=self.kernels,
            repeats=self.repeats,
            classes=self.classes,
            steps=self.steps,
            hosted=self.hosted and device.unit == "gpu",
            line=row.line or 0,
            features=self.features,
        )


def variants_of(row: PublishedMeasurement, older: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Settings of a published row beyond those of a question, if they are unusual."""
    stated = {f"{name}={row.settings[name]}" for name in _VARIANTS if name in row.settings} - _USUAL
    threads = row.settings.get("threads")
    if threads is not None and row.unit == "cpu":
        stated.add(threads_variant(int(threads)))
    if row.dataset == OF_RELEASES and row.device_published in older:
        stated.add("release=older")
    if row.unit is not None and "+" in row.unit:
        stated.add(f"units={row.unit}")
    if row.quantity == "stream":
        stated.add("stream" if (row.batch or 1) == 1 else "stream of batches")
    return tuple(sorted(stated))


def has_device(row: PublishedMeasurement) -> bool:
    """Whether its device is a row of the catalog, or is described by its name: `M1 7-Core GPU`."""
    return row.device is not None or _described(*_words_of(row)) is not None


def device_as_run(row: PublishedMeasurement) -> Device:
    """The device with the cores that ran: one a thread, the small cores alone, or the big ones."""
    described = None if row.device is not None else _words_of(row)
    return _as_run(row.device, described, row.settings.get("threads"), row.settings.get("powersave"))


def _words_of(row: PublishedMeasurement) -> tuple[str, str | None]:
    return row.device_spelling or row.device_published, row.unit


@cache
def _described(spelling: str, unit: str | None) -> Device | None:
    together = unit is not None and "+" in unit  # CPU and GPU at work on one input
    meant = device_meant(spelling, unit) if together or unit in UNITS else None
    return None if isinstance(meant, str) else meant


@cache
def _as_run(
    name: str | None, described: tuple[str, str | None] | None, threads: str | None, powersave: str | None
) -> Device:
    made = None if described is None else _described(*described)
    device, _ = with_class_figures(made or device_named(name or ""))
    if device.unit != "cpu" or threads is None:
        return device
    groups = device.core_groups
    if powersave == "1" and len(groups) > 1:  # ncnn: 0 all cores, 1 the small ones, 2 the big ones
        groups = groups[-1:]
    return with_threads(replace(device, core_groups=groups), int(threads))
