"""The verbs that measure: `profile` and `verify`. What they are given by name is found, and handed to `measure`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.core.workload import Workload
from inferometer.measure.run import Asked, Measured, measure_model, verified

if TYPE_CHECKING:
    from inferometer.bench.loop import Progress
    from inferometer.core.device import Device
    from inferometer.core.profile import Profile, Verification
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
    return profile_asked(whole, predicted=predict, on=on).profile


def profile_asked(  # noqa: PLR0913 - what may be asked beside the measurement
    asked: Asked,
    *,
    predicted: bool = False,
    on: str | Device | None = None,
    verify: str | None = None,
    reference_model: str | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure; then verify and put predictions beside, where that is asked for."""
    found = measure_model(asked, progress=progress)
    if predicted:
        device = _device(on)
        found = replace(found, profiles=tuple(_beside(each, found, device) for each in found.profiles))
    if verify is not None:
        checked = verified(asked, verify, model=reference_model)
        found = replace(found, profiles=tuple(replace(each, verification=checked) for each in found.profiles))
    return found


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
    from inferometer.calibrate.ceilings import with_ceilings  # noqa: PLC0415 - as above

    return with_ceilings(device_named("local"))


def _beside(measured: Profile, found: Measured, device: Device) -> Profile:
    from inferometer.cost.predict import predict_graph  # noqa: PLC0415 - as above
    from inferometer.measure.beside import beside  # noqa: PLC0415 - as above

    expected = predict_graph(found.graph, device, runtime=measured.runtime or "ideal", workload=measured.workload)
    return beside(measured, expected, found.graph)
