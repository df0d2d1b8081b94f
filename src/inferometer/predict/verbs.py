"""The verbs that predict: `predict`, `fit` and `gains`. Sweeps are a package of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.predict.ask import ask
from inferometer.predict.change import OF_PROMPT, parse_change
from inferometer.predict.gains import gain_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device
    from inferometer.core.engine import RuntimeEffects
    from inferometer.core.graph import Graph
    from inferometer.core.profile import Profile
    from inferometer.predict.memory.fit import Fit
    from inferometer.predict.options import Options
    from inferometer.predict.question import Question


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
    sizes: Mapping[str, int] | None = None,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    dp: int = 1,
    threads: int | None = None,
    calibration: Calibration | None = None,
    calibrated: bool = True,
    prefill_on: str | Device | None = None,
    options: Options | None = None,
) -> Profile:
    """How fast a model will run on a device: `predict("llama-3.2-1b", on="nvidia-h200", prompt=2048, generate=128)`.

    `model` is a catalog name, a path or a Graph; `on` is a catalog name, a TOML file or a Device. `sizes` are those
    that a file leaves open, such as `{"height": 48, "width": 320}`. With `context` the decode phase is a single step
    with that many tokens in the cache. `threads` are the engine's on a CPU. `calibration` replaces the newest one that
    fits; `calibrated=False` uses none. `prefill_on` reads the prompt on another device. `options` has the rest: chunked
    prefill, a cached prefix, offloading, speculative decoding, prices, a battery.
    """
    return ask(
        model, on=on, runtime=runtime, weights=weights, activations=activations, kv=kv, batch=batch, prompt=prompt,
        generate=generate, context=context, image=image, sizes=sizes, tp=tp, pp=pp, ep=ep, dp=dp,
        threads=threads, calibration=calibration, calibrated=calibrated, prefill_on=prefill_on, options=options,
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
    sizes: Mapping[str, int] | None = None,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    dp: int = 1,
    options: Options | None = None,
) -> Fit:
    """Whether a model fits into a device's memory, and the longest context and largest batch that do."""
    return ask(
        model, on=on, runtime=runtime, weights=weights, activations=activations, kv=kv, batch=batch, prompt=prompt,
        generate=generate, context=context, image=image, sizes=sizes, tp=tp, pp=pp, ep=ep, dp=dp, options=options,
    ).fit()  # fmt: skip


def gains(question: Question, changes: Sequence[str]) -> list[dict[str, Any]]:
    """What each change would gain in the phase that repeats, or in reading the prompt where that is what it changes.

    A change that is impossible has an `error` instead.
    """
    before = question.answer()
    return [_gain(question, before, change) for change in changes]


def _gain(question: Question, before: Profile, change: str) -> dict[str, Any]:
    parsed = parse_change(change)  # outside of `try`: a change that cannot be read stops the command
    try:
        after = question.changed(parsed).answer()
    except DomainError as error:
        return {"change": change, "error": str(error)}
    repeating = before.steady.name if before.steady is not None else ""
    phase = "prefill" if parsed.key in OF_PROMPT and before.phase("prefill") is not None else repeating
    if (gain := gain_of(change, phase, before, after)) is None:
        return {"change": change, "error": "There is no phase that repeats."}
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
