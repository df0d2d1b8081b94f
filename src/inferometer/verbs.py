"""The public verbs: what a user asks for by name, resolved and handed to the package that does it."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from inferometer.asking.change import Change, changed_device, parse_change
from inferometer.catalog import device as device_named
from inferometer.catalog.engines import default_runtime
from inferometer.catalog.files import row_named
from inferometer.core.calibration import Calibration
from inferometer.core.device import Device
from inferometer.core.engine import RuntimeEffects
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.cost.options import Options
from inferometer.cost.predict import predict_graph
from inferometer.errors import DomainError
from inferometer.readers.resolve import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from inferometer.core.profile import Phase, Profile
    from inferometer.cost.memory.fit import Fit
    from inferometer.sweep import Rows

__all__ = ["Question", "ask", "fit", "gains", "predict", "steady", "sweep", "what_if"]


@frozen
class Question:
    """A prediction to be made: the model and the device found, the rest as it was asked.

    With `calibrated` the newest calibration of the device and the runtime is used where none is given.
    """

    graph: Graph
    device: Device
    runtime: RuntimeEffects | str
    workload: Workload
    calibration: Calibration | None = None
    calibrated: bool = True
    options: Options = field(default_factory=Options)

    def answer(self) -> Profile:
        device, workload, calibration = self.device, self.workload, self.calibration
        notes: tuple[str, ...] = ()
        if calibration is None and self.calibrated:
            from inferometer.asking.calibrations import use_for  # noqa: PLC0415 - not every question wants one

            name = self.runtime if isinstance(self.runtime, str) else self.runtime.name
            found = use_for(self.graph, device, name, workload.precision)
            device, calibration, notes = found.device, found.calibration, found.notes
            if found.precision != workload.precision:
                workload = replace(workload, precision=found.precision)
        profile = predict_graph(
            self.graph,
            device,
            runtime=self.runtime,
            workload=workload,
            calibration=calibration,
            options=self.options,
        )
        return _noted(profile, notes) if notes else profile


def ask(  # noqa: PLR0913 - everything a prediction depends on
    model: Any,
    *,
    on: str | Device,
    runtime: RuntimeEffects | str | None = None,
    weights: str | None = None,
    activations: str | None = None,
    kv: str | None = None,
    batch: int = 1,
    prompt: int | None = None,
    generate: int | None = None,
    context: int | None = None,
    image: int | None = None,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    dp: int = 1,
    calibration: Calibration | None = None,
    calibrated: bool = True,
    options: Options | None = None,
) -> Question:
    """Find the model and the device by name, and put the question."""
    graph = model if isinstance(model, Graph) else _read(model)
    device = device_named(on) if isinstance(on, str) else on
    workload = Workload(
        batch=batch,
        prompt=prompt,
        generate=generate,
        context=context,
        image=image,
        precision=Precision(weights=weights, activations=activations, kv=kv),
        parallel=Parallel(tp=tp, pp=pp, ep=ep, dp=dp),
    )
    return Question(
        graph=graph,
        device=device,
        runtime=runtime or default_runtime(device, graph),
        workload=workload,
        calibration=calibration,
        calibrated=calibrated,
        options=options or Options(),
    )


def _noted(profile: Profile, notes: tuple[str, ...]) -> Profile:
    said = profile.provenance
    return profile if said is None else replace(profile, provenance=replace(said, notes=(*said.notes, *notes)))


def _read(model: Any) -> Graph:
    """A catalog model is read once: pricing keeps what it prepared for a graph with the graph itself."""
    return _read_named(model) if isinstance(model, str) and row_named("models", model) else read(model)


@cache
def _read_named(name: str) -> Graph:
    return read(name)


def predict(model: Any, *, on: str | Device, **asked: Any) -> Profile:
    """How fast a model will run on a device: `predict("llama-3.2-1b", on="nvidia-h200", prompt=2048, generate=128)`.

    `model` is a catalog name, a path or a Graph; `on` a catalog name, a TOML file or a Device. Everything else is
    `ask`'s: runtime, weights, activations, kv, batch, prompt, generate, context, image, tp, pp, ep, dp, calibration,
    options.
    """
    return ask(model, on=on, **asked).answer()


def fit(model: Any, *, on: str | Device, **asked: Any) -> Fit:
    """Whether a model fits into a device's memory, and the longest context and largest batch that do."""
    from inferometer.cost.memory.fit import fit as fit_graph  # noqa: PLC0415 - a name of its own inside this module

    question = ask(model, on=on, **asked)
    return fit_graph(
        question.graph,
        question.device,
        workload=question.workload,
        runtime=question.runtime,
        options=question.options,
    )


def sweep(
    *,
    models: Any,
    devices: Any,
    engine: str = "local",
    calibrations: Iterable[Calibration] = (),
    options: Options | None = None,
    **axes: Any,
) -> Rows:
    """Predict the cross product of the lists given: models, devices, runtimes, weights, batch, prompt, context.

    Models and devices are names, paths or values. The rows are columns of numpy arrays; one that cannot be says why.
    """
    from inferometer.sweep import sweep as sweep_graphs  # noqa: PLC0415 - a name of its own inside this module

    return sweep_graphs(
        [model if isinstance(model, Graph) else _read(model) for model in _listed(models)],
        [device_named(device) if isinstance(device, str) else device for device in _listed(devices)],
        engine=engine,
        calibrations=calibrations,
        options=options,
        **axes,
    )


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def what_if(question: Question, change: str | Change) -> Profile:
    """The answer to the same question with one thing changed."""
    return _changed(question, parse_change(change) if isinstance(change, str) else change).answer()


def gains(question: Question, changes: Sequence[str]) -> list[dict[str, Any]]:
    """What each change would do to the step that repeats. One that cannot be made says why."""
    before = question.answer()
    return [_gain(question, before, parse_change(change)) for change in changes]


def _gain(question: Question, before: Profile, change: Change) -> dict[str, Any]:
    try:
        after = what_if(question, change)
    except DomainError as error:
        return {"change": str(change), "error": str(error)}
    old, new = steady(before), steady(after)
    return {
        "change": str(change),
        "before_s": old.time_s,
        "after_s": new.time_s,
        "gain": round(old.time_s / new.time_s, 3),
        "throughput_gain": round((after.workload.batch / new.time_s) / (before.workload.batch / old.time_s), 3),
        "bound": new.bound,
        "fits": after.summary.fits,
    }


def steady(profile: Profile) -> Phase:
    """The phase that repeats: a decode step, else the forward pass, else the prompt."""
    for name in ("decode", "forward", "prefill"):
        phase = profile.phase(name)
        if phase is not None:
            return phase
    raise DomainError(f"The profile of {profile.model.name} has no phase that repeats.")


def _changed(question: Question, change: Change) -> Question:
    if change.of_device:
        return replace(question, device=changed_device(question.device, change))
    if change.key == "on":
        return replace(question, device=device_named(change.value))
    if change.key == "runtime":
        return replace(question, runtime=change.value)
    workload = question.workload
    if change.key in {"weights", "activations", "kv"}:
        precision = replace(workload.precision, **{change.key: change.value})
        return replace(question, workload=replace(workload, precision=precision))
    number = _whole(change)
    if change.key in {"tp", "pp", "ep", "dp"}:
        parallel = replace(workload.parallel, **{change.key: number})
        return replace(question, workload=replace(workload, parallel=parallel))
    sizes: dict[str, Any] = {change.key: number}
    return replace(question, workload=replace(workload, **sizes))


def _whole(change: Change) -> int:
    if not change.value.isdecimal():
        raise DomainError(f"{change.key} must be a whole number, and is {change.value!r}.")
    return int(change.value)
