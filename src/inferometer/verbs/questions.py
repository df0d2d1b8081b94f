"""The verbs that predict: `predict`, `fit`, `sweep`, and what a change would gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from inferometer.asking.ask import ask, device_for, model_graph
from inferometer.asking.change import parse_change
from inferometer.asking.gains import gain_of
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from inferometer.asking.question import Question
    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.engine import RuntimeEffects
    from inferometer.core.graph import Graph
    from inferometer.core.profile import Profile
    from inferometer.cost.memory.fit import Fit
    from inferometer.cost.options import Options
    from inferometer.sweep import Rows

__all__ = ["fit", "gains", "predict", "sweep"]


def predict(  # noqa: PLR0913 - everything a prediction depends on
    model: str | Path | Graph,
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
    prefill_on: str | Device | None = None,
    options: Options | None = None,
) -> Profile:
    """How fast a model will run on a device: `predict("llama-3.2-1b", on="nvidia-h200", prompt=2048, generate=128)`.

    `model` is a catalog name, a path or a Graph; `on` a catalog name, a TOML file or a Device. With `context` the
    decode phase is one step with so many tokens in the cache. The newest calibration that fits is used, or the one
    given; `calibrated=False` leaves it out. `prefill_on` reads the prompt on another device. `options` hold the rest:
    chunked prefill, a cached prefix, offloading, speculative decoding, prices, a battery.
    """
    return ask(
        model, on=on, runtime=runtime, weights=weights, activations=activations, kv=kv, batch=batch, prompt=prompt,
        generate=generate, context=context, image=image, tp=tp, pp=pp, ep=ep, dp=dp, calibration=calibration,
        calibrated=calibrated, prefill_on=prefill_on, options=options,
    ).answer()  # fmt: skip


def fit(  # noqa: PLR0913 - everything that memory depends on
    model: str | Path | Graph,
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
    options: Options | None = None,
) -> Fit:
    """Whether a model fits into a device's memory, and the longest context and largest batch that do."""
    return ask(
        model, on=on, runtime=runtime, weights=weights, activations=activations, kv=kv, batch=batch, prompt=prompt,
        generate=generate, context=context, image=image, tp=tp, pp=pp, ep=ep, dp=dp, options=options,
    ).fit()  # fmt: skip


Names = str | None | Sequence[str | None]
Counts = int | None | Sequence[int | None]


def sweep(  # noqa: PLR0913 - the axes, and what holds for all rows
    *,
    models: str | Graph | Sequence[str | Graph],
    devices: str | Device | Sequence[str | Device],
    runtimes: RuntimeEffects | str | Sequence[RuntimeEffects | str | None] | None = None,
    weights: Names = None,
    activations: Names = None,
    kv: Names = None,
    tp: Counts = None,
    pp: Counts = None,
    ep: Counts = None,
    dp: Counts = None,
    image: Counts = None,
    batch: Counts = None,
    prompt: Counts = None,
    generate: Counts = None,
    context: Counts = None,
    calibrated: bool = True,
    calibrations: Iterable[Calibration] = (),
    options: Options | None = None,
    details: bool = False,
    engine: str = "local",
) -> Rows:
    """Predict the cross product of the lists given, each row as `predict` would.

    Models and devices are names, paths or values. The rows are columns of numpy arrays; one that cannot be says why.
    """
    from inferometer.sweep import sweep as sweep_graphs  # noqa: PLC0415 - a name of its own inside this module

    return sweep_graphs(
        [model_graph(model) for model in _as_list(models)],
        [device_for(device) for device in _as_list(devices)],
        runtimes=runtimes, weights=weights, activations=activations, kv=kv, tp=tp, pp=pp, ep=ep, dp=dp, image=image,
        batch=batch, prompt=prompt, generate=generate, context=context, calibrated=calibrated,
        calibrations=calibrations, options=options, details=details, engine=engine,
    )  # fmt: skip


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def gains(question: Question, changes: Sequence[str]) -> list[dict[str, Any]]:
    """What each change would do to the phase that repeats. One that cannot be made says why."""
    before = question.answer()
    return [_gain(question, before, change) for change in changes]


def _gain(question: Question, before: Profile, change: str) -> dict[str, Any]:
    parsed = parse_change(change)
    try:
        after = question.changed(parsed).answer()
    except DomainError as error:
        return {"change": change, "error": str(error)}
    if before.steady is None or (gain := gain_of(change, before.steady.name, before, after)) is None:
        return {"change": change, "error": "It has no phase that repeats."}
    return {
        "change": change,
        "phase": gain.phase,
        "before_s": gain.before_s,
        "after_s": gain.after_s,
        "gain": round(gain.gain, 3),
        "gain_low": round(gain.low, 3),
        "gain_high": round(gain.high, 3),
        "throughput_gain": round(gain.throughput_gain, 3),
        "bound": gain.bound,
        "fits": gain.fits,
    }
