"""Would quantising help here? Each format that a target can run, predicted op by op before anything is made."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from inferometer.core.device import LOCAL, Device
from inferometer.core.engine import EngineDescriptor
from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Phase, Profile
from inferometer.core.sizes import bind
from inferometer.formats.resolve import read
from inferometer.known.engines import engine as engine_named
from inferometer.measure.prepare.artifact import source_of, starting_format
from inferometer.measure.prepare.calibration import write_calibration
from inferometer.measure.prepare.chain import chain_for, format_meant, formats_for, quantised_name
from inferometer.measure.prepare.proof import ask_in_formats, on_one_basis
from inferometer.measure.prepare.run import PrepareRequest
from inferometer.measure.run.inputs import input_shapes
from inferometer.predict.gains import Gain, gain_of

_DRIFTS = ".onnxruntime.sensitivity"
_INPUTS = 2  # sets that sensitivity is told by: the order of layers hardly changes beyond
_EQUAL = 0.02  # of the whole: what changes less by a change of format is not told


@frozen
class OpChange:
    """One op, or `count` equal ones, before and after."""

    name: str
    kind: str
    count: int
    before_s: float
    after_s: float
    drift: float | None = None  # of the outputs, when this op's weights alone have as few bits


@frozen
class Foretold:
    """What a format would bring: its gain, the weights' bytes, ops by how much they change, and why it is so."""

    quantise: str
    tools: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # packages that would have to be installed
    gain: Gain | None = None
    weight_bytes: int | None = None
    ops: tuple[OpChange, ...] = ()
    why: tuple[str, ...] = ()
    reason: str | None = None  # why nothing can be said

    @property
    def verdict(self) -> str | None:
        """`faster` and `slower` where the whole interval says so."""
        if self.gain is None:
            return None
        if self.gain.low > 1 or self.gain.high < 1:
            return "faster" if self.gain.gain > 1 else "slower"
        if abs(self.gain.gain - 1) <= _EQUAL:
            return "no gain"
        return "likely faster" if self.gain.gain > 1 else "likely slower"


def foretell(request: PrepareRequest, on: Device | None = None, *, sensitivity: bool = False) -> tuple[Foretold, ...]:
    """Every format of the target, or the one that is asked for. Nothing is made, and no tool is needed.

    `on` is a device that no catalog has, in place of the request's. With `sensitivity` the model is run with each
    layer's weights rounded in turn; it then needs a file of ONNX.
    """
    engine = engine_named(request.runtime)
    if sensitivity:
        source = source_of(request.model, engine, image=request.workload.image, seed=request.seed)
        request = replace(request, model=str(source))
    form, generates = starting_format(request.model, engine)
    formats = formats_for(form, engine, generates=generates)
    if request.quantise is not None:
        formats = (format_meant(quantised_name(request.quantise), form, engine, generates=generates),)
    if not formats:
        raise DomainError(
            f"No tool here quantises a model in the format {form} for {engine.title}.",
            remedy="`inferometer prepare --help` names the formats; another runtime may have some.",
        )
    graph, device = read(request.model), on or request.device or LOCAL

    def predicted(changes: Mapping[str, str]) -> tuple[Profile, Profile]:
        plain, other = (
            ask_in_formats(
                graph, each, engine.name, device, request.workload, sizes=request.sizes, threads=request.threads
            )
            for each in ({}, changes)
        )
        return on_one_basis(plain, other)

    found = tuple(_foretold(engine, name, (form, generates), predicted) for name in formats)
    return _with_drifts(found, request) if sensitivity else found


def _with_drifts(found: tuple[Foretold, ...], request: PrepareRequest) -> tuple[Foretold, ...]:
    """The drift of each op whose weights are stored in the file, rounded to the bits that the format has."""
    graph = read(request.model)
    if graph.metadata.get("format") != "onnx":
        raise DomainError(
            f"How sensitive each layer is can be told of ONNX files, and {request.model} is none.",
            remedy="Give the model as ONNX, or leave --sensitivity out.",
        )
    weight_drifts = import_module(_DRIFTS, "inferometer.engines").weight_drifts  # an engine's own, as the tools are
    shapes = input_shapes(graph, bind(graph, request.workload, request.sizes))
    with TemporaryDirectory(prefix="inferometer-") as folder:
        files = write_calibration(graph, shapes, request.calibrate_with, Path(folder), seed=request.seed)[:_INPUTS]
        inputs = [dict(np.load(file)) for file in files]
    stored = {block.full_name(op.name): op.weights[0].name for block, op in graph.ops() if op.weights}
    widths = {row.quantise: 4 if row.quantise.startswith("i4") else 8 for row in found if row.quantise[0] == "i"}
    drifts = {bits: weight_drifts(Path(request.model), inputs, bits=bits) for bits in set(widths.values())}
    return tuple(
        replace(
            row,
            ops=tuple(
                replace(op, drift=drifts[widths[row.quantise]].get(stored.get(op.name, "")))
                if row.quantise in widths else op
                for op in row.ops
            ),
        )
        for row in found
    )  # fmt: skip


def _foretold(
    engine: EngineDescriptor,
    name: str,
    source: tuple[str, bool],
    predicted: Callable[[Mapping[str, str]], tuple[Profile, Profile]],
) -> Foretold:
    form, generates = source
    chain = chain_for(form, engine, quantise=name, generates=generates)
    changes = {key: value for step in chain for key, value in step.changes.items()}
    tools = tuple(dict.fromkeys(step.tool for step in chain if not step.optional))
    missing = tuple(dict.fromkeys(filter(None, (step.missing() for step in chain if not step.optional))))
    try:
        before, after = predicted(changes)
    except InferometerError as error:
        return Foretold(quantise=name, tools=tools, missing=missing, reason=str(error))
    old, new = before.steady, after.steady
    if old is None or new is None:
        return Foretold(quantise=name, tools=tools, missing=missing, reason="its time is not known")
    ops = _changes(old, new)
    # The notes on formats that an engine computes otherwise than they are stored: they are why a gain is small.
    known, notes = (() if each.provenance is None else each.provenance.notes for each in (before, after))
    computed = tuple(
        note for note in notes if (" are computed in " in note or " run at the speed of " in note) and note not in known
    )
    return Foretold(
        quantise=name,
        tools=tools,
        missing=missing,
        gain=gain_of(name, old.name, before, after),
        weight_bytes=after.model.weight_bytes,
        ops=ops,
        why=(*computed, *_kinds(ops, old.time_s)) or (_unchanged(engine, ops),),
    )


def _changes(old: Phase, new: Phase) -> tuple[OpChange, ...]:
    """Ops by their names, those that change most first."""
    before = {op.name: op for op in old.ops}
    changes = [
        OpChange(name=op.name, kind=op.kind, count=op.count, before_s=before[op.name].time_s, after_s=op.time_s)
        for op in new.ops
        if op.name in before
    ]
    return tuple(sorted(changes, key=lambda change: -abs(change.before_s - change.after_s)))


def _unchanged(engine: EngineDescriptor, ops: tuple[OpChange, ...]) -> str:
    if sum(abs(op.before_s - op.after_s) for op in ops) < 1e-3 * sum(op.before_s for op in ops):
        return f"No op changes: {engine.title} holds such weights as it holds the model's own."
    return f"No kind of op changes by more than {_EQUAL:.0%} of the time."


def _kinds(ops: tuple[OpChange, ...], whole_s: float) -> tuple[str, ...]:
    """How the time of each kind of op changes, the largest change first, where it is a part of the whole."""
    kinds: dict[str, tuple[float, float]] = {}
    for op in ops:
        old, new = kinds.get(op.kind, (0.0, 0.0))
        kinds[op.kind] = old + op.before_s, new + op.after_s
    ranked = sorted(kinds.items(), key=lambda item: -abs(item[1][0] - item[1][1]))
    told = [
        f"{kind} {'gains' if new < old else 'loses'} {abs(old - new) / whole_s:.0%} of the time"
        for kind, (old, new) in ranked
        if abs(old - new) > _EQUAL * whole_s
    ]
    return (f"{', '.join(told)}.",) if told else ()
