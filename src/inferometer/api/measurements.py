"""The verbs that measure: `profile` and `verify`. A profile is judged at once and stores what it was judged by."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from inferometer.core import settings
from inferometer.core.device import LOCAL, Device, Roof
from inferometer.core.errors import InferometerError
from inferometer.core.profile import Profile, Verification
from inferometer.core.workload import Workload
from inferometer.engines.base import require_ready
from inferometer.known.machine.detect import detect_host
from inferometer.measure.bench.loop import Progress
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.child import runtime_named
from inferometer.measure.run.isolate import ChildLimits
from inferometer.measure.run.model import MeasuredRun, MeasureRequest, measure_model, verify_against
from inferometer.measure.run.tolerance import Tolerance


def profile(  # noqa: PLR0913 - what is measured, how, and beside what
    model: str,
    *,
    runtime: str | None = None,
    batch: int = 1,
    prompt: int | None = None,
    generate: int | None = None,
    context: int | None = None,
    image: int | None = None,
    weights: str | None = None,
    activations: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    unit: str | None = None,
    providers: tuple[str, ...] = (),
    optimisation: str | None = None,
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, str] | None = None,
    engine_options: Mapping[str, str] | None = None,
    plan: Plan | None = None,
    limits: ChildLimits | None = None,
    seed: int = 0,
    loop: str = "product",
    shape: bool = True,
    guarded: bool = True,
    strict: bool = False,
    ignore_memory: bool = False,
    predict: bool = True,
    on: str | Device | None = None,
    trust: Sequence[str] = (),
) -> Profile:
    """Measure a model on a runtime here: `profile("model.onnx", runtime="onnxruntime")`.

    `weights` and `activations` are formats, as for a prediction; `precision` is the older name of `activations`.
    `predict` puts the prediction and the floor beside each layer; `on` names the catalog device that this machine is.
    `loop="bare"` runs the passes of a language model with nothing between them. `shape=False` leaves the layers out;
    `guarded=False` does not check that the machine is quiet; `strict` raises if the measurement was disturbed. A model
    that would not fit into memory is refused, unless `ignore_memory` is set. Files that could run code of their own are
    refused too, unless they are named in `trust`.
    """
    asked = MeasureRequest(
        model=model,
        runtime=runtime,
        workload=Workload(batch=batch, prompt=prompt, generate=generate, context=context, image=image),
        plan=plan,
        weights=weights,
        precision=activations or precision,
        threads=threads,
        unit=unit,
        providers=providers,
        optimisation=optimisation,
        sizes=sizes or {},
        inputs=inputs or {},
        options=engine_options or {},
        limits=limits or ChildLimits(),
        seed=seed,
        loop=loop,
        shape=shape,
        guarded=guarded,
        strict=strict,
        ignore_memory=ignore_memory,
        trust=tuple(trust),
    )
    measured = measure_and_judge(asked, predict=predict, on=on)
    measured.require_quiet()
    return measured.profile


def verify(  # noqa: PLR0913 - what is run, and what it is compared with
    model: str,
    *,
    against: str,
    runtime: str | None = None,
    reference_model: str | None = None,
    tolerance: Tolerance | None = None,
    batch: int = 1,
    prompt: int | None = None,
    generate: int | None = None,
    image: int | None = None,
    sizes: Mapping[str, int] | None = None,
    activations: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    unit: str | None = None,
    seed: int = 0,
    trust: Sequence[str] = (),
) -> Verification:
    """Compare a model's outputs on one runtime with those of a reference: another runtime, and maybe another file.

    `activations` is the format it computes in, `precision` an older name of it.
    """
    asked = MeasureRequest(
        model=model,
        runtime=runtime,
        workload=Workload(batch=batch, prompt=prompt, generate=generate, image=image),
        sizes=sizes or {},
        precision=activations or precision,
        threads=threads,
        unit=unit,
        seed=seed,
        trust=tuple(trust),
    )
    return verify_against(asked, against, model=reference_model, tolerance=tolerance)


def measure_and_judge(  # noqa: PLR0913 - what can be asked for beside the measurement
    asked: MeasureRequest,
    *,
    predict: bool = True,
    on: str | Device | None = None,
    reference: str | None = None,
    reference_model: str | None = None,
    progress: Progress | None = None,
) -> MeasuredRun:
    """Measure, judge, and verify against a reference if one is named.

    Wrong names are refused before anything is measured, and the roof is measured before the run it judges. If the
    reference cannot be run, the measurement is kept and its outputs are marked unchecked, with the reason.
    """
    if reference is not None:
        require_ready(runtime_named(reference))
    before = _device_and_roof(on or f"{LOCAL}:cpu") if predict else None
    measured = measure_model(asked, progress=progress)
    if reference is not None and measured.complete:
        verification = _verification(asked, reference, reference_model)
        profiles = tuple(replace(profile, verification=verification) for profile in measured.profiles)
        measured = replace(measured, profiles=profiles)
    judged, basis = _all_judged(measured, before, on)
    # What runs otherwise than it is predicted to teaches nothing of predictions.
    otherwise = on is not None or asked.providers or asked.optimisation or asked.options or asked.precision
    if basis is None or otherwise or not measured.complete or not settings.learns():
        return judged
    return _learned(judged, *basis)


def measure_pair_and_judge(
    baseline: MeasureRequest,
    asked: MeasureRequest,
    *,
    predict: bool = True,
    on: str | Device | None = None,
    progress: Progress | None = None,
) -> tuple[MeasuredRun, MeasuredRun]:
    """Measure two models in turns, and judge each. `compare` of their profiles is then pair by pair."""
    from inferometer.measure.run.against import measure_in_turns  # noqa: PLC0415 - only who compares needs it

    before = _device_and_roof(on or f"{LOCAL}:cpu") if predict else None
    old, new = measure_in_turns(baseline, asked, progress=progress)
    return _all_judged(old, before, on)[0], _all_judged(new, before, on)[0]


def _all_judged(
    measured: MeasuredRun, before: tuple[Device, Roof | None] | None, on: str | Device | None
) -> tuple[MeasuredRun, tuple[Device, Roof | None] | None]:
    """The run with its profiles judged, and what by: a roof that the run has beaten is none to judge it by."""
    from inferometer.understand.beaten_roof import unbeaten_roof  # noqa: PLC0415 - only predictions need it

    if before is None:
        return measured, None
    device, roof = before if on is not None else _where_it_ran(measured, before)

    def judge(roof: Roof | None, notes: tuple[str, ...] = ()) -> tuple[Profile, ...]:
        return tuple(_judged(profile, measured, device, roof, notes) for profile in measured.profiles)

    judged = judge(roof)
    if roof is not None:
        stands, notes = unbeaten_roof(device, roof, judged, judge)
        judged = judge(stands, notes) if notes else judged
        roof = stands
    return replace(measured, profiles=judged), (device, roof)


def _learned(measured: MeasuredRun, device: Device, roof: Roof | None) -> MeasuredRun:
    """Let predictions for this machine learn from the run; a note says if they do not, and why."""
    from inferometer.predict.basis.learned import learn_from  # noqa: PLC0415 - only predictions need it
    from inferometer.understand.judging import question_behind  # noqa: PLC0415 - as above

    profiles = []
    for profile in measured.profiles:
        question, _ = question_behind(profile, measured.graph, device, roof=roof, sizes=measured.sizes)
        notes, provenance = learn_from(profile, question), profile.provenance
        if notes and provenance is not None:
            profile = replace(profile, provenance=replace(provenance, notes=(*provenance.notes, *notes)))  # noqa: PLW2901 - the same, with its notes
        profiles.append(profile)
    return replace(measured, profiles=tuple(profiles))


def _verification(asked: MeasureRequest, reference: str, model: str | None) -> Verification:
    try:
        return verify_against(asked, reference, model=model)
    except InferometerError as error:
        return Verification(status="unchecked", reference=reference, reason=str(error))


def _where_it_ran(measured: MeasuredRun, cpu: tuple[Device, Roof | None]) -> tuple[Device, Roof | None]:
    """The GPU that the run was on, or the CPU as it was before the run."""
    name = measured.profile.device.name
    return cpu if name == cpu[0].name else _device_and_roof(name)


def _device_and_roof(on: str | Device) -> tuple[Device, Roof | None]:
    """What a run is judged by: a device, and its roof if it is a unit of this machine without a row."""
    from inferometer.predict.ask import device_for  # noqa: PLC0415 - only predictions need it
    from inferometer.predict.basis.roof import roof_for  # noqa: PLC0415 - as above

    device = device_for(on)
    return device, roof_for(device, fresh=True)


def _judged(
    profile: Profile, measured: MeasuredRun, device: Device, roof: Roof | None, of_roof: tuple[str, ...]
) -> Profile:
    """The profile with its prediction beside it. If the model cannot be predicted, a note says why."""
    from inferometer.measure.run.beside import remarks  # noqa: PLC0415 - as above
    from inferometer.understand.judging import judge_profile  # noqa: PLC0415 - as above

    judged, notes = judge_profile(profile, device, graph=measured.graph, roof=roof, sizes=measured.sizes)
    cores = detect_host().cpu.physical_cores if device.name == LOCAL else None
    provenance = judged.provenance
    if provenance is None:
        return judged
    return replace(
        judged,
        provenance=replace(provenance, notes=(*provenance.notes, *notes, *of_roof, *remarks(judged, cores=cores))),
    )
