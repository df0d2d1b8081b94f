"""The verbs that predict: `predict`, `fit` and `gains`. Sweeps are a package of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, overload

from inferometer.core.errors import DomainError
from inferometer.predict.ask import ask, taking
from inferometer.predict.change import OF_PROMPT, parse_change
from inferometer.predict.fields import ASKED, fields_that, in_python, require_fields
from inferometer.predict.gains import gain_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from inferometer.core.device import Device
    from inferometer.core.graph import Graph
    from inferometer.core.profile import Profile
    from inferometer.predict.asked import Asked
    from inferometer.predict.memory.fit import Fit
    from inferometer.predict.options import Options
    from inferometer.predict.question import Question
    from inferometer.predict.served.question import ServingAnswer

    Model = str | Path | Graph

_OF_MEMORY = in_python(fields_that(door="fit"))


@overload
def predict(
    model: Model, *, on: str | Device, users: int, tokens_per_user: float | None = None, options: Options | None = None,
    calibrated: bool = True, **asked: Unpack[Asked],
) -> ServingAnswer: ...  # fmt: skip
@overload
def predict(
    model: Model, *, on: str | Device, options: Options | None = None, calibrated: bool = True, **asked: Unpack[Asked]
) -> Profile: ...
@taking(ASKED)
def predict(  # noqa: PLR0913 - who is asked about, and the fields
    model: Model, *, on: str | Device, users: int | None = None, tokens_per_user: float | None = None,
    options: Options | None = None, calibrated: bool = True, **asked: Unpack[Asked],
) -> Profile | ServingAnswer:  # fmt: skip
    """How fast a model will run on a device: `predict("llama-3.2-1b", on="nvidia-h200", prompt=2048, generate=128)`.

    `model` is a catalog name, a path or a Graph; `on` is a catalog name, a TOML file or a Device. The other keywords
    are the options of `inferometer predict`, whose help says what each is for; a quantity is a number in SI base units
    or a text with its unit. `sizes` are those that a file leaves open, such as `{"height": 48, "width": 320}`.
    `calibration` replaces the newest one that fits; `priors=True` or `calibrated=False` uses none. `options` has
    options as a value; keywords go above it. With `users` the answer is the steady state of a served model.
    """
    if users is None and tokens_per_user is not None:
        raise DomainError("tokens_per_user is what each of the users should see.", remedy="Say how many: users=N.")
    question = ask(model, on=on, options=options, calibrated=calibrated, **asked)
    if users is None:
        return question.answer()
    from inferometer.predict.served.question import serving_answer  # noqa: PLC0415 - few questions are of services

    return serving_answer(question, users, tokens_per_user)


@taking(_OF_MEMORY)
def fit(model: Model, *, on: str | Device, options: Options | None = None, **asked: Unpack[Asked]) -> Fit:
    """Whether a model fits into a device's memory, and the longest context and largest batch that do."""
    require_fields(asked, _OF_MEMORY)
    return ask(model, on=on, options=options, **asked).fit()


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
