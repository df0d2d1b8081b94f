"""`prepare`: the steps of a chain, each carried out and proven, and the file that came of those that hold."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from inferometer.core.device import LOCAL, is_local
from inferometer.core.engine import EngineDescriptor
from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, is_generative, require_layers
from inferometer.core.notices import tell
from inferometer.core.profile import Profile
from inferometer.core.settings import cache_folder
from inferometer.core.sizes import bind
from inferometer.core.workload import Workload
from inferometer.engines.order import ToolOrder
from inferometer.formats.resolve import read
from inferometer.formats.trust.door import require_data
from inferometer.known.engines import engine as engine_named
from inferometer.known.files import row_named
from inferometer.measure.bench.plan import Plan
from inferometer.measure.prepare.artifact import (
    Origin,
    bytes_of,
    goal_of,
    keep_origin,
    require_another,
    source_of,
    written,
)
from inferometer.measure.prepare.calibration import RANDOM, ports_of, write_calibration
from inferometer.measure.prepare.carrying_out import Made, carry_out
from inferometer.measure.prepare.chain import chain_for, format_meant, formats_for, quantised_name
from inferometer.measure.prepare.proof import (
    MeasuredGain,
    ProvedFile,
    Proving,
    after_step,
    measured_gain,
    predicted_gain,
    reference_for,
    verified,
)
from inferometer.measure.prepare.steps import PrepareStep, require_tool
from inferometer.measure.run.inputs import input_shapes
from inferometer.predict.ask import device_for

SCHEMA = "inferometer.prepared/1"
_PLAN = Plan(runs=15, warmup=3, seconds=0.0, seconds_at_most=60.0)


@frozen
class StepResult:
    """A row of the table. Gains are over what went into the step; `drift` is from the original's outputs."""

    name: str
    tool: str
    title: str
    format: str
    bytes: int | None
    seconds: float
    cached: bool
    verified: bool | None = None
    drift: float | None = None
    allowed: str | None = None
    predicted_gain: float | None = None
    predicted_low: float | None = None
    predicted_high: float | None = None
    measured_gain: float | None = None
    measured_low: float | None = None
    measured_high: float | None = None
    verdict: str = "not measured"
    kept: bool = True
    notes: tuple[str, ...] = ()


@frozen
class Prepared:
    """What came of it. `gain` is of the artifact over the original; `right` is False if its outputs are wrong."""

    model: str
    runtime: str
    device: str
    quantise: str | None
    original_bytes: int
    steps: tuple[StepResult, ...]
    artifact: Path | None
    bytes: int | None = None
    predicted_gain: float | None = None
    measured_gain: float | None = None
    measured_low: float | None = None
    measured_high: float | None = None
    verdict: str | None = None
    drift: float | None = None
    right: bool = True
    notes: tuple[str, ...] = ()
    profile: Profile | None = None


@frozen
class PrepareRequest:
    """What to prepare, for what, and how much is to be proven."""

    model: str
    runtime: str
    device: str | None = None
    quantise: str | None = None
    calibrate_with: tuple[str, ...] = (RANDOM,)
    out: Path | None = None
    overwrite: bool = False
    force: bool = False  # write a file whose outputs are wrong
    measure: bool = True
    workload: Workload = field(default_factory=Workload)
    sizes: Mapping[str, int] = field(default_factory=dict)
    threads: int | None = None
    runs: int | None = None
    seed: int = 0
    trust: tuple[str, ...] = ()  # files that may run code of their own: see formats/trust/door.py


def prepare(  # noqa: PLR0913 - what is prepared, for what, and how much is proven
    model: str,
    *,
    runtime: str,
    out: Path | str | None = None,
    device: str | None = None,
    quantise: str | None = None,
    calibrate_with: str | Sequence[str] = RANDOM,
    overwrite: bool = False,
    force: bool = False,
    measure: bool = True,
    batch: int = 1,
    prompt: int | None = None,
    generate: int | None = None,
    image: int | None = None,
    sizes: Mapping[str, int] | None = None,
    threads: int | None = None,
    runs: int | None = None,
    seed: int = 0,
    trust: Sequence[str] = (),
) -> Prepared:
    """The file that a runtime runs, made of a model and proven: `prepare("m.onnx", runtime="openvino", out="m.xml")`.

    Each step's outputs are verified against the original's, its gain is predicted, and measured where the device is
    this machine. A step that only helps is left out where it makes the model wrong or slower.
    """
    given = (calibrate_with,) if isinstance(calibrate_with, str) else tuple(calibrate_with)
    return carry_out_request(
        PrepareRequest(
            model=model,
            runtime=runtime,
            device=device,
            quantise=quantise,
            calibrate_with=given,
            out=None if out is None else Path(out),
            overwrite=overwrite,
            force=force,
            measure=measure,
            workload=Workload(batch=batch, prompt=prompt, generate=generate, image=image),
            sizes=sizes or {},
            threads=threads,
            runs=runs,
            seed=seed,
            trust=tuple(trust),
        )
    )


def carry_out_request(request: PrepareRequest) -> Prepared:
    engine = engine_named(request.runtime)
    if not engine.opens:
        raise DomainError(
            f"{engine.title} is predicted here and opens no file, so none can be prepared for it.",
            remedy="`inferometer runtimes` lists the engines that open files.",
        )
    if request.device is not None:
        device_for(request.device)  # a name that is not known is an error before any work
    goal = goal_of(request.out, engine, request.overwrite)
    source = source_of(request.model, engine, image=request.workload.image, seed=request.seed)
    require_another(request.out, source)
    graph = read(str(source))
    require_layers(graph)
    form, generates = graph.metadata["format"], is_generative(graph)
    require_data(source, form, trusted=source.resolve() in {Path(name).resolve() for name in request.trust})
    _require_context(request, graph)
    if request.quantise is not None:
        asked = format_meant(quantised_name(request.quantise), form, engine, generates=generates)
        request = replace(request, quantise=asked)
    chain = chain_for(form, engine, quantise=request.quantise, goal=goal, generates=generates)
    if not chain and request.out is not None:
        raise _as_it_is(request, engine, formats_for(form, engine, generates=generates))
    for step in chain:
        if not step.optional:
            require_tool(step)
    proving = _proving(request, source, graph, engine)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="inferometer-")))
        return _finished(request, proving, _carried_out(chain, request, proving, engine, folder))


def _require_context(request: PrepareRequest, graph: Graph) -> None:
    """Engines refuse tokens beyond the positions that a model has, which would look as if the file were wrong."""
    limit, needed = graph.context_limit, (request.workload.prompt or 0) + (request.workload.generate or 0)
    if is_generative(graph) and limit is not None and needed > limit:
        raise DomainError(
            f"{request.model} has positions for {limit:,} tokens, and is to be proven with {needed:,}.",
            remedy="Ask for fewer: --prompt N --generate N.",
        )


def _as_it_is(request: PrepareRequest, engine: EngineDescriptor, formats: Sequence[str]) -> DomainError:
    how = [f"Quantise it: --quantise {' or '.join(formats)}."] if formats else []
    how += [f"`inferometer prepare {request.model} -o FILE` writes it."] if row_named("models", request.model) else []
    return DomainError(
        f"{engine.title} opens {request.model} as it is: there is nothing to prepare.",
        remedy=" ".join(how) or "Give it to `inferometer profile`.",
    )


def _proving(request: PrepareRequest, source: Path, graph: Graph, engine: EngineDescriptor) -> Proving:
    opens = graph.metadata.get("format") in engine.opens
    device = request.device or LOCAL
    runs = request.runs
    return Proving(
        original=ProvedFile(
            path=source, runtime=engine.name if opens else reference_for(graph), sizes=dict(request.sizes)
        ),
        graph=graph,
        device=device,
        here=is_local(device) and request.measure,
        workload=request.workload,
        threads=request.threads,
        plan=_PLAN if runs is None else replace(_PLAN, runs=runs),
        seed=request.seed,
        trust=request.trust,
    )


@frozen
class CarriedOut:
    """What came of a chain. `whole` is its gain where the last step, measured against the original, shows it."""

    steps: tuple[StepResult, ...]
    last: ProvedFile
    right: bool
    whole: MeasuredGain | None


def _carried_out(
    chain: Sequence[PrepareStep], request: PrepareRequest, proving: Proving, engine: EngineDescriptor, folder: Path
) -> CarriedOut:
    """Every step in order. What an optional step made worse is left; what a needed one made wrong ends the chain."""
    results: list[StepResult] = []
    last, right, whole = proving.original, True, None
    calibration: tuple[Path, ...] = ()
    binding = bind(proving.graph, request.workload, request.sizes)
    shapes = input_shapes(proving.graph, binding)
    running = proving.original if proving.original.runtime == engine.name else None  # the last that the target opens
    for step in chain:
        if step.optional and step.missing():
            continue
        tell(f"{step.name}: {step.title} …")
        if step.calibrated and not calibration:
            calibration = write_calibration(proving.graph, shapes, request.calibrate_with, folder, seed=request.seed)
        try:
            made = _made(step, last.path, proving, shapes, calibration)
        except InferometerError as error:
            if not step.optional:
                raise
            results.append(_failed(step, str(error)))
            continue
        opened_by = engine.name if step.gives in engine.opens else None
        after = after_step(step, last, made.path, opened_by)
        before = running or proving.original
        result, good, measured = _proven(step, made, proving, before, after)
        results.append(result)
        if not result.kept:
            if not step.optional:
                right = False
                if request.force:
                    last, whole = after, None
                break
            continue
        last, running = after, after if good else running
        whole = measured if before is proving.original else None
    return CarriedOut(steps=tuple(results), last=last, right=right, whole=whole)


def _made(
    step: PrepareStep,
    source: Path,
    proving: Proving,
    shapes: Mapping[str, tuple[int, ...]],
    calibration: tuple[Path, ...],
) -> Made:
    order = ToolOrder(
        source=source,
        target=Path("target"),  # `carry_out` says where
        format=step.gives,
        shapes=shapes,
        dtypes={port.name: port.dtype for port in ports_of(proving.graph, shapes)},
        calibration=calibration if step.calibrated else (),
        options=step.options,
        threads=proving.threads,
        trusted=source.resolve() in {Path(name).resolve() for name in proving.trust},
    )
    return carry_out(step, order, cache_folder() / "prepared")


def _row(step: PrepareStep, **known: Any) -> StepResult:
    tool = f"{step.tool} {step.tool_version()}"
    return StepResult(name=step.name, tool=tool, title=step.title, format=step.gives, **known)


def _failed(step: PrepareStep, reason: str) -> StepResult:
    return _row(step, bytes=None, seconds=0.0, cached=False, verdict="failed", kept=False, notes=(reason,))


def _proven(
    step: PrepareStep, made: Made, proving: Proving, before: ProvedFile, after: ProvedFile
) -> tuple[StepResult, bool, MeasuredGain | None]:
    """The row of a step, whether the target opens what it left, and what was measured of it."""
    row = _row(step, bytes=made.bytes, seconds=made.seconds, cached=made.cached, notes=made.notes)
    if after.runtime is None:
        return replace(row, verdict="on the way"), False, None
    if (gain := predicted_gain(proving, before, after)) is not None:
        row = replace(row, predicted_gain=gain.gain, predicted_low=gain.low, predicted_high=gain.high)
    tell(f"{step.name}: are the outputs still right? …")
    check = verified(proving, after)
    checked = {"verified": True, "failed": False}.get(check.status)
    notes = row.notes if check.reason is None else (*row.notes, check.reason)
    row = replace(row, verified=checked, drift=check.rms_rel, allowed=check.tolerance, notes=notes)
    if checked is False:
        return replace(row, verdict="wrong", kept=False), True, None
    tell(f"{step.name}: is it faster? …")
    measured = measured_gain(proving, before, after, shape=before is proving.original)
    if isinstance(measured, str):
        why = () if not proving.here else (measured,)
        return replace(row, notes=(*row.notes, *why)), True, None
    row = replace(
        row,
        measured_gain=measured.gain,
        measured_low=measured.low,
        measured_high=measured.high,
        verdict=measured.verdict,
        kept=not (step.optional and measured.verdict == "slower"),
        notes=(*row.notes, *_doubts(measured)),
    )
    return row, True, measured


def _doubts(measured: MeasuredGain) -> tuple[str, ...]:
    """Why nothing was decided, and what would."""
    return (f"Undecided: {measured.reason}.",) if measured.verdict == "undecided" and measured.reason else ()


def _finished(request: PrepareRequest, proving: Proving, carried: CarriedOut) -> Prepared:
    """The artifact in its place, with what it is in all over the original."""
    results, last, right, whole = carried.steps, carried.last, carried.right, carried.whole
    made = last.path != proving.original.path
    kept = [row for row in results if row.kept and row.verdict != "on the way"]
    total: MeasuredGain | str = whole or "nothing was made"
    if whole is None and made and last.runtime is not None and proving.here:
        tell("The whole against the original …")
        total = measured_gain(proving, proving.original, last, shape=True)
    gain = predicted_gain(proving, proving.original, last) if made and last.runtime else None
    write = made and last.runtime is not None and (right or request.force)
    artifact = written(last.path, request.out, overwrite=request.overwrite) if write else None
    if artifact is not None:
        origin = Origin(model=request.model, image=request.workload.image, sizes=dict(request.sizes))
        keep_origin(artifact, origin)
    result = Prepared(
        model=request.model,
        runtime=request.runtime,
        device=proving.device,
        quantise=request.quantise,
        original_bytes=bytes_of(proving.original.path),
        steps=results,
        artifact=artifact,
        bytes=bytes_of(last.path) if made else None,
        predicted_gain=None if gain is None else gain.gain,
        drift=next((row.drift for row in reversed(kept)), None),
        right=right,
        notes=_notes(request, results),
    )
    if isinstance(total, str):
        return result
    return replace(
        result, measured_gain=total.gain, measured_low=total.low, measured_high=total.high, verdict=total.verdict,
        profile=total.profile,
    )  # fmt: skip


def _notes(request: PrepareRequest, results: Sequence[StepResult]) -> tuple[str, ...]:
    notes = []
    if any("sets of inputs" in note for row in results for note in row.notes) and request.calibrate_with == (RANDOM,):
        notes.append("The ranges were found with random inputs: give real ones with --calibrate-with for real use.")
    notes += [f"{row.name} was left out: it is {row.verdict}." for row in results if not row.kept]
    return tuple(notes)


def prepared_document(prepared: Prepared) -> dict[str, Any]:
    """The JSON that other programs rely on."""
    plain = {
        name: getattr(prepared, name)
        for name in (
            "model", "runtime", "device", "quantise", "original_bytes", "bytes", "predicted_gain", "measured_gain",
            "measured_low", "measured_high", "verdict", "drift", "right",
        )
    }  # fmt: skip
    return {
        "schema": SCHEMA,
        **plain,
        "steps": [asdict(row) for row in prepared.steps],
        "artifact": None if prepared.artifact is None else str(prepared.artifact),
        "notes": list(prepared.notes),
    }
