"""Measuring a model on a runtime: prepare the file, run it in a child, assemble the profile, verify the outputs."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from inferometer.core.binding import Binding
from inferometer.core.device import LOCAL
from inferometer.core.errors import DomainError, EngineError, GateError, InferometerError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.core.profile import DeviceFacts, Environment, ModelFacts, Profile, Verification
from inferometer.core.settings import cache_folder
from inferometer.core.sizes import PROMPT, in_graph_names, with_given_sizes
from inferometer.core.workload import Precision, Workload
from inferometer.engines.base import Runtime, Target, require_ready
from inferometer.known.engines import engine_or_ideal
from inferometer.known.machine.detect.identity import this_machine
from inferometer.measure.bench.loop import Progress
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.assemble import MeasuredSubject, assemble_profile
from inferometer.measure.run.child import runtime_named
from inferometer.measure.run.energy import with_energy
from inferometer.measure.run.inputs import index_limits, input_shapes
from inferometer.measure.run.isolate import ChildLimits, isolated
from inferometer.measure.run.model_file import (
    PreparedModel,
    SyntheticWeights,
    choose_runtime,
    facts_of,
    file_nodes,
    main_format,
    mixture_note,
    prepare_model,
)
from inferometer.measure.run.order import MeasureOrder, TextOrder
from inferometer.measure.run.raw import Raw
from inferometer.measure.run.sustained import cool_down, sensor_readers, with_sustained
from inferometer.measure.run.tolerance import (
    Formats,
    Tolerance,
    formats_of_side,
    last_digits,
    noise_between,
    product_count,
    summed_terms,
)
from inferometer.measure.run.turns import TurnsAddress
from inferometer.predict import footprint
from inferometer.predict.precision import held_precision
from inferometer.predict.request import GENERATE, encodes_prompt

_TEXT_PLAN = Plan(runs=5, seconds=2.0, seconds_at_most=60.0)
LOOPS = ("product", "bare")
_BARE = "The loop was bare: nothing was written, read or chosen between the passes; predictions leave that out too."
_IMAGE_AXES = 4
_HELD = frozenset({"config", "safetensors"})  # models of floats, which an engine may load into another float
_ARRAY_PLAN = Plan(runs=30, seconds=1.0, seconds_at_most=30.0)
_LOG_LINES = 6  # of an engine's log that are shown with an error


@frozen
class MeasureRequest:
    """What to measure, and how. `cases` are lengths of a language model, in place of the workload's."""

    model: str
    runtime: str | None = None
    workload: Workload = field(default_factory=Workload)
    plan: Plan | None = None
    cases: tuple[TextOrder, ...] = ()
    words: str | None = None
    weights: str | None = None
    threads: int | None = None
    unit: str | None = None
    providers: tuple[str, ...] = ()
    precision: str | None = None
    optimisation: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    limits: ChildLimits = field(default_factory=ChildLimits)
    seed: int = 0
    loop: str = "product"  # … or bare: the passes of a language model alone
    shape: bool = True
    guarded: bool = True
    strict: bool = False
    energy: bool = True
    sustained_s: float | None = None  # how long the speed is watched, with clock and temperature
    cool_down_s: float | None = None  # wait at most so long until the machine is as cool as it gets
    ignore_memory: bool = False  # run it though the estimate says that it does not fit
    trust: tuple[str, ...] = ()  # files of the user's own choice that may run code of theirs; see formats/trust/door.py
    command: str | None = None
    turns: TurnsAddress | None = None

    def __post_init__(self) -> None:
        """Refuse here what an engine would refuse: by then a run is recorded."""
        if self.threads is not None and self.threads < 1:
            raise DomainError(f"{self.threads} threads were asked for; an engine runs on 1 or more.")
        if self.loop not in LOOPS:
            raise UnknownNameError("loop", self.loop, LOOPS)


@frozen
class MeasuredRun:
    """A profile for each case, in the order of the request. `complete` is False if the run ended early."""

    profiles: tuple[Profile, ...]
    graph: Graph
    raw: Raw
    complete: bool
    sizes: Mapping[str, int] = field(default_factory=dict)  # given by the user, by our names for them
    strict: bool = False

    @property
    def profile(self) -> Profile:
        return self.profiles[0]

    def require_quiet(self) -> None:
        """Raises if the request was strict and the machine was disturbed. The profiles are still there."""
        environment = self.raw.environment
        if self.strict and environment is not None and environment.disturbed:
            raise GateError(f"The measurement was disturbed {environment.reasons[0]}")


def measure_model(
    request: MeasureRequest, *, progress: Progress | None = None, folder: Path | None = None
) -> MeasuredRun:
    """Measure a model. A run that ends early keeps what it measured; if that is nothing, it is an error."""
    runtime = runtime_named(request.runtime) if request.runtime else choose_runtime(request.model, request.unit)
    prepared = _prepared(request, runtime, folder)
    named = _in_our_names(request, prepared)
    request, workload, facts, binding = _counted(named, runtime, prepared, _unit(named))
    _require_memory(request, prepared, binding)
    order = _order(request, runtime, prepared, binding, workload)
    watched = request.sustained_s is not None
    sensors = sensor_readers() if watched or request.cool_down_s is not None else {}
    if request.cool_down_s is not None:
        rested = cool_down(request.cool_down_s, sensors.get("temperature_c"))
        prepared = replace(prepared, notes=(*prepared.notes, rested))
    raw = isolated(order, limits=request.limits, progress=progress, sensors=sensors if watched else None)
    _require_something(raw, request, runtime)
    if raw.opened is not None:  # an engine without the machine's GPU ran elsewhere than expected
        request, workload, facts, binding = _counted(named, runtime, prepared, raw.opened.unit)
    subject = MeasuredSubject(
        graph=prepared.graph,
        workload=replace(workload, precision=_stored(binding.precision, request, prepared)),
        runtime=runtime.name,
        sizes=request.sizes,
        facts=replace(facts, name=_model_name(request.model, prepared)),
        notes=(*prepared.notes, *mixture_note(prepared.graph), *((_BARE,) if request.loop == "bare" else ())),
        command=request.command,
    )
    cases: tuple[TextOrder | None, ...] = order.text or (None,)
    profiles = tuple(_profile(subject, raw, case) for case in cases)
    if request.loop == "bare":
        profiles = tuple(map(_of_bare_loop, profiles))
    if request.sustained_s is not None:
        profiles = tuple(with_sustained(each, request.sustained_s, raw.sensed) for each in profiles)
    return MeasuredRun(
        profiles=profiles,
        graph=prepared.graph,
        raw=raw,
        complete=raw.ended == "done",
        sizes=request.sizes,
        strict=request.strict,
    )


def _require_memory(request: MeasureRequest, prepared: PreparedModel, binding: Binding) -> None:
    """Refuse what does not fit. On an accelerator the memory is its own, and the engine says so itself."""
    if request.ignore_memory or request.providers or not _unit(request).startswith("cpu"):
        return
    from inferometer.measure.run.room import available_bytes, require_room  # noqa: PLC0415 - brings what detects machines

    require_room(prepared.graph.name, footprint(prepared.graph, binding), binding.sizes, available_bytes())


def _stored(precision: Precision, request: MeasureRequest, prepared: PreparedModel) -> Precision:
    """The precision with the format that the file stores its weights in; in a file of ours, the requested one."""
    given = request.workload.precision.weights or prepared.precision or main_format(prepared.graph)
    return replace(precision, weights=given or precision.weights)


def _profile(subject: MeasuredSubject, raw: Raw, case: TextOrder | None) -> Profile:
    profile = assemble_profile(_of_case(subject, case, raw), raw, case=case)
    unit = raw.opened.unit if raw.opened else "cpu"
    return with_energy(_with_machine(profile, unit), raw.energies, case)


def _of_bare_loop(profile: Profile) -> Profile:
    environment = profile.environment or Environment()
    return replace(profile, environment=replace(environment, host={**environment.host, "loop": "bare"}))


def _with_machine(profile: Profile, unit: str) -> Profile:
    """The profile with its machine, and with the device it ran on: a GPU's row, or the CPU by its name."""
    environment = profile.environment or Environment()
    machine = environment.machine or this_machine()
    device = replace(profile.device, title=profile.device.title or machine.cpu)
    if unit.startswith("gpu") and machine.gpus:
        from inferometer.known.machine.local import local_device  # noqa: PLC0415 - only if a GPU was used

        row = local_device(f"{LOCAL}:{unit}")
        device = DeviceFacts(name=row.name, title=row.title)
    return replace(profile, device=device, environment=replace(environment, machine=machine))


def verify_against(
    request: MeasureRequest,
    reference: str,
    *,
    tolerance: Tolerance | None = None,
    model: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Verification:
    """Run the model on its runtime and on the reference runtime, and compare the outputs.

    Both get the same random inputs, and the same weights if those are random. The reference runs `model` if given, at
    its own `sizes`, and computes in f32 if it can.
    """
    trusted = runtime_named(reference)
    require_ready(trusted)
    one_run = Plan(warmup=0, runs=1, seconds=0.0, calls=1, retries=0)
    runtime = request.runtime or choose_runtime(request.model, request.unit).name
    mine = replace(request, runtime=runtime, plan=one_run, shape=False, guarded=False, energy=False)
    # What was asked for the runtime in question (where it runs, its options) is not for the reference.
    right = replace(
        mine, model=model or request.model, sizes=mine.sizes if sizes is None else sizes, runtime=reference,
        weights="f32", unit=None, providers=(), optimisation=None, options={},
        precision="f32" if "f32" in trusted.capabilities.precision else None,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="inferometer-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        verification = _compared(mine, right, place, tolerance)
        if verification.status == "failed" and model is None:
            verification = _with_cause(verification, mine, right, place, tolerance)
    return verification


def _compared(mine: MeasureRequest, right: MeasureRequest, folder: Path, tolerance: Tolerance | None) -> Verification:
    from inferometer.measure.run.verify import compare_arrays, compare_text, load_outputs  # noqa: PLC0415 - brings numpy

    ran = [_outputs(request, folder / name) for request, name in ((mine, "mine"), (right, "right"))]
    ours, theirs = (load_outputs(raw.kept["outputs"]) for raw, _ in ran)
    computed = ran[1][0].opened.precision if ran[1][0].opened else None
    opened, trusted = (prepared for _, prepared in ran)
    noise = noise_between(
        *(_side(raw, prepared) for raw, prepared in ran),
        products=product_count(opened.graph),
        terms=summed_terms(opened.graph),
        same_weights=opened.path == trusted.path,
    )
    noise = replace(noise, absolute=last_digits(opened.graph))
    compare = compare_text if "ids" in ours else compare_arrays
    against = f"{right.runtime}, {computed}" if computed else str(right.runtime)
    verification = compare(ours, theirs, against=against, tolerance=tolerance, noise=noise)
    return replace(verification, computed=ran[0][0].opened.precision if ran[0][0].opened else None)


def _side(raw: Raw, prepared: PreparedModel) -> Formats:
    opened = raw.opened
    computed, sums = (None, None) if opened is None else (opened.precision, opened.sums)
    return formats_of_side(prepared.graph, prepared.precision, computed, sums)


def _with_cause(
    verification: Verification, mine: MeasureRequest, right: MeasureRequest, folder: Path, tolerance: Tolerance | None
) -> Verification:
    """Adds that the two differ only in the last layer, if so: it turns rounding errors into another answer."""
    from inferometer.measure.run.verify import without_last  # noqa: PLC0415 - only after a failure

    place = folder / "cut.onnx"
    last = without_last(Path(mine.model), place)
    if last is None:
        return verification
    try:
        inner = _compared(replace(mine, model=str(place)), replace(right, model=str(place)), folder, tolerance)
    except InferometerError:
        return verification
    if inner.status != "verified":
        return verification
    reason = (
        f"{verification.reason}; the inputs of the last layer, {last}, are right to {inner.max_rel:.1g} of their "
        "largest value, so the layers before it agree and this one magnifies rounding"
    )
    return replace(verification, reason=reason)


def _outputs(request: MeasureRequest, folder: Path) -> tuple[Raw, PreparedModel]:
    runtime = runtime_named(request.runtime or "")
    prepared = _prepared(request, runtime, None, same_numbers=True)
    request = _in_our_names(request, prepared)
    workload = _completed(request, prepared)
    _, binding = facts_of(prepared, workload, request.sizes)
    order = replace(_order(request, runtime, prepared, binding, workload), outputs=folder)
    raw = isolated(order, limits=request.limits)
    if raw.ended == "stopped":
        raise KeyboardInterrupt
    if "outputs" not in raw.kept:
        raise _failure(raw, request, runtime)
    return raw, prepared


def _prepared(
    request: MeasureRequest, runtime: Runtime, folder: Path | None, *, same_numbers: bool = False
) -> PreparedModel:
    weights = SyntheticWeights(
        folder=folder or cache_folder() / "models",
        weights=request.weights,
        sizes=request.sizes,
        seed=request.seed,
        same=same_numbers,
        image=request.workload.image,
    )
    return prepare_model(request.model, runtime, weights)


def _completed(request: MeasureRequest, prepared: PreparedModel) -> Workload:
    workload = request.workload
    if prepared.precision is not None and workload.precision.activations is None:
        precision = Precision(weights=prepared.precision, activations=prepared.precision)
        workload = replace(workload, precision=precision)
    if not prepared.text:
        _require_no_text(request, prepared)
        return workload
    limit = prepared.graph.context_limit
    listens = "frames" in prepared.graph.metadata.get("default_sizes", {})  # then a token begins what is written
    prompt = workload.prompt or (1 if listens else min(PROMPT, (limit or 2 * PROMPT) // 2))
    depth = workload.context or 0
    room = GENERATE if limit is None else max(1, min(GENERATE, limit - prompt - depth))
    generate = room if workload.generate is None else workload.generate
    if limit is not None and prompt + generate + depth > limit:
        raise DomainError(
            f"{prepared.graph.name} has a window of {limit} tokens; prompt, generation and depth need "
            f"{prompt + generate + depth}.",
            remedy="Ask for fewer tokens, or for a model with a longer window.",
        )
    return replace(workload, prompt=prompt, generate=generate)


def _in_our_names(request: MeasureRequest, prepared: PreparedModel) -> MeasureRequest:
    """The request with sizes by our names for them: a user may use the file's. A batch is the workload's."""
    if prepared.text or not request.sizes:
        return replace(request, sizes=in_graph_names(prepared.graph, request.sizes))
    batch = request.workload.batch
    alone, rest = with_given_sizes(prepared.graph, Workload(batch=batch, prompt=request.workload.prompt), request.sizes)
    sizes = rest if alone.context is None else {**rest, "context": alone.context}  # arrays have no depth of their own
    return replace(request, sizes=sizes, workload=replace(request.workload, batch=alone.batch, prompt=alone.prompt))


def _counted(
    request: MeasureRequest, runtime: Runtime, prepared: PreparedModel, unit: str
) -> tuple[MeasureRequest, Workload, ModelFacts, Binding]:
    """The request with the formats that it runs in on a unit, and the model's figures in them."""
    request = _in_held_formats(request, runtime, prepared, unit)
    workload = _completed(request, prepared)
    return request, workload, *facts_of(prepared, workload, request.sizes)


def _in_held_formats(request: MeasureRequest, runtime: Runtime, prepared: PreparedModel, unit: str) -> MeasureRequest:
    """The request for an engine that makes or loads weights in what it computes in: one format is then the other."""
    effects = engine_or_ideal(runtime.name).effects
    if not effects.held or prepared.format not in _HELD:
        return request
    made = request.weights if prepared.format == "config" else None
    if made is not None and request.precision not in {None, made}:
        raise DomainError(
            f"{runtime.title} makes random weights in what it computes in, and was asked for {made} and "
            f"{request.precision}.",
            remedy="Give --weights or --activations.",
        )
    computed, given = request.precision or made, request.workload.precision
    asked = given if computed is None else replace(given, weights=computed, activations=computed)
    held = held_precision(prepared.graph, asked, effects, unit.partition(":")[0])
    formats = held if prepared.format == "config" else replace(held, weights=given.weights)  # the file has its own
    return replace(request, precision=computed, workload=replace(request.workload, precision=formats))


def _unit(request: MeasureRequest) -> str:
    """What it will likely run on."""
    return request.unit or ("gpu" if this_machine().gpus else "cpu")


def _require_no_text(request: MeasureRequest, prepared: PreparedModel) -> None:
    """An option for generating text is an error, not ignored, if the model generates none."""
    given = {
        "--text": request.words,
        "--generate": request.workload.generate,
        "--depth": request.workload.context,
        "several lengths": request.cases or None,
        "--loop bare": True if request.loop == "bare" else None,
    }
    for name, value in given.items():
        if value is not None:
            raise DomainError(
                f"{prepared.graph.name} takes arrays on this runtime and generates no text, so {name} does not apply.",
                remedy="Leave it out; --size, --batch, --prompt and --image set the sizes of its inputs.",
            )


def _order(
    request: MeasureRequest, runtime: Runtime, prepared: PreparedModel, binding: Binding, workload: Workload
) -> MeasureOrder:
    text: tuple[TextOrder, ...] = ()
    bare = request.loop == "bare"
    if bare and not runtime.capabilities.bare:
        raise DomainError(
            f"{runtime.title} loops over a generation itself, so its passes cannot be run alone.",
            remedy="Leave --loop bare out, or choose an engine that is driven step by step, such as torch-eager.",
        )
    if prepared.text:
        first = TextOrder(
            prompt=workload.prompt or PROMPT,
            generate=workload.generate or 0,
            depth=workload.context or 0,
            words=request.words,
        )
        text = request.cases or (first,)

    def first_tokens(prompt: int) -> int:
        return 1 if encodes_prompt(prepared.graph) else prompt

    target = Target(
        path=prepared.path,
        format=prepared.format,
        text=prepared.text,
        threads=request.threads,
        unit=request.unit,
        providers=request.providers,
        precision=request.precision,
        optimisation=request.optimisation,
        context=max((first_tokens(case.prompt) + case.generate + case.depth for case in text), default=None),
        batch=workload.batch,
        seed=request.seed,
        shapes=_fed_shapes(prepared, binding),
        nodes=file_nodes(prepared.graph, binding) if request.shape and not prepared.text else (),
        options=request.options,
        trusted=prepared.path.resolve() in {Path(name).resolve() for name in request.trust},
    )
    return MeasureOrder(
        runtime=request.runtime or runtime.name,
        target=target,
        plan=request.plan or (_TEXT_PLAN if text else _ARRAY_PLAN),
        text=text,
        sizes={name: int(size) for name, size in binding.sizes.items()},
        limits=index_limits(prepared.graph),
        inputs=request.inputs,
        bare=bare,
        shape=request.shape and not bare,
        guarded=request.guarded,
        energy=request.energy,
        seed=request.seed,
        turns=request.turns,
    )


def _fed_shapes(prepared: PreparedModel, binding: Binding) -> dict[str, tuple[int, ...]]:
    """The inputs' shapes in the file. In a TFLite file that was made of a graph, images have their channels last."""
    shapes = input_shapes(prepared.graph, binding)
    if prepared.precision is None or prepared.format != "tflite":
        return shapes
    return {
        name: (*shape[:1], *shape[2:], shape[1]) if len(shape) == _IMAGE_AXES else shape
        for name, shape in shapes.items()
    }


def _of_case(subject: MeasuredSubject, case: TextOrder | None, raw: Raw) -> MeasuredSubject:
    """The subject with a case's lengths; a given text has as many tokens as the tokeniser made of it."""
    if case is None:
        return subject
    mine = (generation for generation in raw.generations if case.words is not None and generation.order == case)
    read = [event.tokens for generation in mine for event in generation.events if event.kind == "prefill"]
    lengths = replace(
        subject.workload, prompt=read[0] if read else case.prompt, generate=case.generate, context=case.depth or None
    )
    return replace(subject, workload=lengths)


def _model_name(model: str, prepared: PreparedModel) -> str:
    return prepared.graph.name if os.sep in model or Path(model).suffix else model


def _require_something(raw: Raw, request: MeasureRequest, runtime: Runtime) -> None:
    """Partial results are results; no result at all is an error that quotes the engine."""
    something = raw.clean is not None or any(not generation.first for generation in raw.generations)
    if raw.ended == "done" or something:
        return
    if raw.ended == "stopped":
        raise KeyboardInterrupt
    raise _failure(raw, request, runtime)


def _failure(raw: Raw, request: MeasureRequest, runtime: Runtime) -> InferometerError:
    if raw.ended == "refused":
        return EngineError(raw.error or "The model was refused.", remedy=raw.remedy)
    lines = [line for line in raw.log.splitlines() if line.strip()][-_LOG_LINES:]
    words = "".join(f"\n    {line}" for line in lines)
    printed = f". What it printed last:{words}\nThen:" if words else ":"
    return EngineError(
        f"{request.model!r} could not be measured on {runtime.title}{printed} {raw.error or raw.ended}",
        remedy=remedy_of(raw),
    )


def remedy_of(raw: Raw) -> str | None:
    """What to do about a measurement that ended early. A SIGKILL mostly means that the memory ran out."""
    killed = raw.ended == "crashed" and "SIGKILL" in (raw.error or "")
    return _REMEDIES.get("too-big" if killed else raw.ended)


_REMEDIES = {
    "crashed": "Try another runtime, another graph optimisation level, or fewer threads.",
    "hung": "Give it more time with --timeout, or try another runtime.",
    "too-big": "Use a smaller batch, a shorter context or fewer bits a weight, or raise --memory-limit.",
}
