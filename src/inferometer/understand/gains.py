"""What a change would gain, for findings: the question behind a profile, asked again with one thing changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from inferometer.core.errors import InferometerError
from inferometer.predict.gains import Gain, gain_of

if TYPE_CHECKING:
    from inferometer.core.profile import Profile
    from inferometer.predict.question import Question

Price = Callable[[str, str], Gain | None]  # (change, phase) → its gain; None if it cannot be predicted


def unpriced(change: str, phase: str) -> Gain | None:  # noqa: ARG001 - the Price for a profile without a graph
    return None


def pricer(question: Question, before: Profile) -> Price:
    """A Price for changes to `question`, whose answer is `before`. Each change is predicted once, for all phases."""
    answers: dict[str, Profile | None] = {}

    def price(change: str, phase: str) -> Gain | None:
        if change not in answers:
            answers[change] = _answer(question, change)
        after = answers[change]
        return None if after is None else gain_of(change, phase, before, after)

    return price


def _answer(question: Question, change: str) -> Profile | None:
    try:
        return question.changed(change).answer()
    except InferometerError:
        return None
