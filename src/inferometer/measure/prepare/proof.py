"""What became of a model by a step: are the outputs still right, and is it faster? Predicted first, then measured."""

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from inferometer.core.device import Device
from inferometer.core.errors import EngineError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, is_generative
from inferometer.core.plugins import load_all
from inferometer.core.profile import Profile, Verification
from inferometer.core.reformat import with_formats
from inferometer.core.workload import Workload
from inferometer.engines.base import Ready
from inferometer.known.engines import known_engine, ranked_engines
from inferometer.known.machine.local import local_device
from inferometer.measure.bench.compare import ComparedMetric, compare
from inferometer.measure.bench.plan import Plan
from inferometer.measure.prepare.steps import PrepareStep
from inferometer.measure.run.against import measure_in_turns
from inferometer.measure.run.model import MeasureRequest, measure_model, verify_against
from inferometer.measure.run.tolerance import MOST
from inferometer.predict.ask import ask
from inferometer.predict.gains import Gain, gain_of
from inferometer.predict.question import Question


@frozen
class ProvedFile:
    """A file, the engine that runs it, and what has been done to the numbers of the original to make it."""

    path: Path
    runtime: str | None
    changes: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


@frozen
class Proving:
    """What everything is proven against: the original with its graph, and the sizes it is run at."""

    original: ProvedFile
    graph: Graph
    device: str
    here: bool  # the device is this machine
    workload: Workload
    threads: int | None = None
    plan: Plan | None = None
    seed: int = 0
    trust: tuple[str, ...] = ()
    judged_by: Device | None = None  # with the figures of an earlier run, which are not read anew


@frozen
class MeasuredGain:
    gain: float
    low: float | None
    high: float | None
    verdict: str
    reason: str
    profile: Profile  # of the later one


def reference_for(graph: Graph) -> str | None:
    """The first engine here that opens the original as it is, with its own numbers."""
    form = graph.metadata.get("format")
    loaded, _ = load_all("inferometer.runtimes")
    text = is_generative(graph)
    for name in ranked_engines(local_device(), makes_tokens=text, format=form):
        runtime = loaded.get(name)
        if runtime is None or form not in runtime.formats or not isinstance(runtime.probe(), Ready):
            continue
        if runtime.capabilities.text if text else runtime.capabilities.arrays:
            return str(name)
    return None


def runs_here(runtime: str) -> str | None:
    """Why an engine cannot run anything here; None if it can."""
    loaded, _ = load_all("inferometer.runtimes")
    if runtime not in loaded:
        return f"nothing here runs {runtime}"
    state = loaded[runtime].probe()
    return None if isinstance(state, Ready) else state.reason


def predicted_gain(proving: Proving, before: ProvedFile, after: ProvedFile) -> Gain | None:
    """What the change of engine and formats should gain, before anything is made; None if it cannot be predicted.

    What leaves both as they were gains nothing: an engine makes the same fusions when it loads the file.
    """
    try:
        old, new = on_one_basis(_asked(proving, before), _asked(proving, after))
    except InferometerError:
        return None
    if old.steady is None:
        return None
    gain = gain_of("prepare", old.steady.name, old, new)
    if gain is not None and (before.runtime, before.changes) == (after.runtime, after.changes):
        return replace(gain, low=gain.gain, high=gain.gain)
    return gain


def _asked(proving: Proving, candidate: ProvedFile) -> Question:
    asked = {"sizes": proving.original.sizes, "threads": proving.threads}
    device = proving.judged_by or proving.device
    return ask_in_formats(proving.graph, candidate.changes, candidate.runtime, device, proving.workload, **asked)


def on_one_basis(old: Question, new: Question) -> tuple[Profile, Profile]:
    """Both answers by calibrations, or neither: of a measured time and an assumed one the ratio says nothing."""
    known = [question.basis().calibration is not None for question in (old, new)]
    if known[0] != known[1]:
        old, new = (replace(question, calibrated=False, calibration=None) for question in (old, new))
    return old.answer(), new.answer()


def ask_in_formats(
    graph: Graph, changes: Mapping[str, str], runtime: str | None, on: str | Device, load: Workload, **asked: Any
) -> Question:
    """The question about a graph whose numbers were stored in other formats."""
    engine = known_engine(runtime or "")
    return ask(
        with_formats(graph, **changes, kinds=frozenset() if engine is None else engine.effects.dynamic, named=True),
        on=on,
        runtime=runtime,
        weights=None if "only" in changes else changes.get("weights"),
        activations=changes.get("activations"),
        batch=load.batch,
        prompt=load.prompt,
        generate=load.generate,
        image=load.image,
        **asked,
    )


def verified(proving: Proving, candidate: ProvedFile) -> Verification:
    """The outputs of the candidate against those of the original, in f32 and by limits of both sides' formats."""
    reference = proving.original.runtime
    if reference is None:
        return Verification(status="unchecked", reason="no engine here opens the original")
    reason = runs_here(candidate.runtime or "")
    if reason is not None:
        return Verification(status="unchecked", reference=reference, reason=reason)
    request, original = _request(proving, candidate), str(proving.original.path)
    try:
        check = verify_against(request, reference, model=original, sizes=proving.original.sizes)
        if check.computed in {None, _PLAIN} or _PLAIN not in _arithmetics(candidate.runtime):
            return check
        plain = verify_against(
            replace(request, precision=_PLAIN), reference, model=original, sizes=proving.original.sizes
        )
    except EngineError as error:
        return _not_run(request, reference, error)
    except InferometerError as error:
        return Verification(status="unchecked", reference=reference, reason=str(error))
    return of_file_and_engine(plain, check)


def _not_run(request: MeasureRequest, reference: str, error: EngineError) -> Verification:
    """The file is wrong if the engine it is made for, which is ready, refuses it; or the reference failed."""
    try:
        if measure_model(replace(request, plan=_ONCE)).raw.ended == "stopped":
            raise KeyboardInterrupt
    except EngineError as refused:
        return Verification(status="failed", reference=reference, reason=str(refused))
    except InferometerError:
        pass
    return Verification(status="unchecked", reference=reference, reason=str(error))


_ONCE = Plan(warmup=0, runs=1, seconds=0.0, calls=1, retries=0)


def of_file_and_engine(plain: Verification, check: Verification) -> Verification:
    """The verdict on a file that its engine computes in a narrow format unless it is told not to.

    In f32 only the file can be wrong, and the limits are those of its weights: that proves the file. In the engine's
    own arithmetic the outputs may drift further, which is shown; but not so far that they say nothing (`MOST`), as
    where numbers go beyond the format's largest.
    """
    if plain.status == "failed":
        return replace(plain, reason=f"computed in {_PLAIN}, {plain.reason}")
    if check.status != "failed":
        return check
    if check.top_1 is None and (check.rms_rel is None or check.rms_rel > MOST):
        remedy = f"run it with --activations {_PLAIN}, and have it written with --force"
        return replace(check, reason=f"right in {_PLAIN}, but in {check.computed} {check.reason}: {remedy}")
    drift = f"in {check.computed}, in which the engine computes, {check.reason}"
    return replace(plain, rms_rel=check.rms_rel, reason=f"the outputs are right in {_PLAIN}; {drift}")


_PLAIN = "f32"


def _arithmetics(runtime: str | None) -> tuple[str, ...]:
    loaded, _ = load_all("inferometer.runtimes")
    found: tuple[str, ...] = loaded[runtime].capabilities.precision if runtime in loaded else ()
    return found


def measured_gain(
    proving: Proving, before: ProvedFile, after: ProvedFile, *, shape: bool = False
) -> MeasuredGain | str:
    """Both run in turns on this machine; or why they were not."""
    if not proving.here:
        return f"{proving.device} is not this machine: profile the file there"
    for candidate in (before, after):
        reason = runs_here(candidate.runtime or "") if candidate.runtime else "no engine here opens the original"
        if reason is not None:
            return reason
    try:
        old, new = measure_in_turns(
            _request(proving, before), replace(_request(proving, after), shape=shape)
        )  # fmt: skip
    except InferometerError as error:
        return str(error)
    if not (old.complete and new.complete):
        raise KeyboardInterrupt  # half a measurement is kept where one is asked for, and proves nothing here
    main = compare(old.profile, new.profile).main
    return _gain(main, new.profile)


def _gain(main: ComparedMetric, profile: Profile) -> MeasuredGain:
    ratio = main.ratio or 1.0
    return MeasuredGain(
        gain=1 / ratio,
        low=1 / main.high if main.high else None,
        high=1 / main.low if main.low else None,
        verdict=main.verdict,
        reason=main.reason or "",
        profile=profile,
    )


def _request(proving: Proving, candidate: ProvedFile) -> MeasureRequest:
    return MeasureRequest(
        model=str(candidate.path),
        runtime=candidate.runtime,
        workload=proving.workload,
        sizes=candidate.sizes,
        threads=proving.threads,
        plan=proving.plan,
        seed=proving.seed,
        shape=False,
        guarded=False,
        energy=False,
        trust=proving.trust,
    )


def after_step(step: PrepareStep, before: ProvedFile, path: Path, runtime: str | None) -> ProvedFile:
    """What goes out of a step, as what goes into the next."""
    sizes = {} if step.fixed else before.sizes
    return ProvedFile(path=path, runtime=runtime, changes={**before.changes, **step.changes}, sizes=sizes)
