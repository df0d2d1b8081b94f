"""The verbs that measure: `profile` and `verify`. What they are given by name is found, and handed to `measure`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.core.profile import Verification
from inferometer.core.workload import Workload
from inferometer.errors import InferometerError
from inferometer.measure.child import runtime_named
from inferometer.measure.run import Asked, Measured, measure_model, verified
from inferometer.runtimes.base import require_ready

if TYPE_CHECKING:
    from inferometer.bench.loop import Progress
    from inferometer.core.device import Device
    from inferometer.core.profile import Profile
    from inferometer.measure.verify import Tolerance

__all__ = ["profile", "profile_asked", "verify"]

_LENGTHS = ("batch", "prompt", "generate", "context", "image")


def profile(
    model: str, *, runtime: str | None = None, predict: bool = False, on: str | Device | None = None, **asked: Any
) -> Profile:
    """Measure a model on a runtime here: `profile("model.onnx", runtime="onnxruntime")`.

    `predict` puts the prediction and the floor beside each layer; `on` names the device of the catalog that this
    machine is. The rest are the workload's lengths (batch, prompt, generate, context, image) and `measure.run.Asked`'s.
    """
    lengths = {name: asked.pop(name) for name in _LENGTHS if name in asked}
    whole = Asked(model=model, runtime=runtime, workload=Workload(**lengths), **asked)
    found = profile_asked(whole, predicted=predict, on=on)
    found.require_quiet()
    return found.profile


def profile_asked(  # noqa: PLR0913 - what may be asked beside the measurement
    asked: Asked,
    *,
    predicted: bool = False,
    on: str | Device | None = None,
    verify: str | None = None,
    reference_model: str | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure; then verify and put predictions beside, where that is asked for.

    What is named wrong is told before anything is measured. A reference that cannot be run loses no measurement: the
    outputs are then unchecked, with the reason.
    """
    if verify is not None:
        require_ready(runtime_named(verify))
    device = _device(on) if predicted else None
    found = measure_model(asked, progress=progress)
    if device is not None:
        device = _better(device, _device(on))
        found = replace(found, profiles=tuple(_beside(each, found, device) for each in found.profiles))
    if verify is not None and found.complete:
        checked = _checked(asked, verify, reference_model)
        found = replace(found, profiles=tuple(replace(each, verification=checked) for each in found.profiles))
    return found


def _checked(asked: Asked, reference: str, model: str | None) -> Verification:
    try:
        return verified(asked, reference, model=model)
    except InferometerError as error:
        return Verification(status="unchecked", reference=reference, reason=str(error))


def verify(
    model: str,
    *,
    runtime: str | None = None,
    against: str,
    reference_model: str | None = None,
    tolerance: Tolerance | None = None,
    **asked: Any,
) -> Verification:
    """Compare what a model gives on one runtime with what it, or the same model in another file, gives on another."""
    lengths = {name: asked.pop(name) for name in _LENGTHS if name in asked}
    whole = Asked(model=model, runtime=runtime, workload=Workload(**lengths), **asked)
    return verified(whole, against, model=reference_model, tolerance=tolerance)


def _device(on: str | Device | None) -> Device:
    """The device predictions are made for: named, or this machine with its roof measured now."""
    from inferometer.catalog import device as device_named  # noqa: PLC0415 - only predictions need it

    if on is not None:
        return device_named(on) if isinstance(on, str) else on
    from inferometer.asking.roof import with_ceilings  # noqa: PLC0415 - as above

    return with_ceilings(device_named("local"))


def _better(before: Device, after: Device) -> Device:
    """The higher of two roofs: one measured while the machine was busy with something else is no roof."""
    if before.memories == after.memories and before.peaks == after.peaks:
        return before
    peaks = {
        name: max(found, before.peaks[name], key=_value) if name in before.peaks else found
        for name, found in after.peaks.items()
    }
    first = max(after.memories[0], before.memories[0], key=lambda memory: _value(memory.bandwidth_bytes_per_s))
    return replace(after, peaks=peaks, memories=(first, *after.memories[1:]))


def _value(number: Any) -> float:
    return 0.0 if number is None else float(number.value)


def _beside(measured: Profile, found: Measured, device: Device) -> Profile:
    """A model that cannot be predicted is still measured: the profile says why it stands alone.

    A calibration of the device stands before its roof, as in every prediction.
    """
    from inferometer.asking.calibrations import use_for  # noqa: PLC0415 - as above
    from inferometer.asking.roof import raised  # noqa: PLC0415 - only predictions need it
    from inferometer.catalog import device as device_named  # noqa: PLC0415 - as above
    from inferometer.catalog.detect import detect_host  # noqa: PLC0415 - as above
    from inferometer.cost.options import Options  # noqa: PLC0415 - as above
    from inferometer.cost.predict import predict_graph  # noqa: PLC0415 - as above
    from inferometer.measure.beside import beside, remarks  # noqa: PLC0415 - as above

    runtime, threads = measured.runtime or "ideal", measured.environment.threads if measured.environment else None
    bare = device_named("local") if device.name == "local" else device
    use = use_for(found.graph, bare, runtime, measured.workload.precision, threads)
    if use.calibration is None:
        use = replace(use, device=raised(device, measured))
    try:
        expected = predict_graph(
            found.graph,
            use.device,
            runtime=runtime,
            workload=replace(measured.workload, precision=use.precision),
            calibration=use.calibration,
            options=Options(sizes=dict(found.sizes)),
        )
    except InferometerError as error:
        return _noted(measured, f"No prediction: {error}")
    both = beside(measured, expected, found.graph)
    cores = detect_host().cpu.physical_cores if device.name == "local" else None
    return _noted(both, *use.notes, *remarks(both, cores=cores))


def _noted(profile: Profile, *notes: str) -> Profile:
    told = profile.provenance
    if told is None or not notes:
        return profile
    return replace(profile, provenance=replace(told, notes=(*told.notes, *notes)))
