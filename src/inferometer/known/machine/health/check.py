"""What a check is: a topic says what is looked at and why, a judge turns readings into a verdict.

`Topic` is callable: `topic(readings) → Check`. Verdicts: good, warn (measure, but read the remedy), bad (a measurement
taken now would not be trusted), unknown (not measurable here, and why).
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Literal

from inferometer.core.frozen import frozen
from inferometer.known.machine.health.readings import Absent, Readings, UnreadableError

Verdict = Literal["good", "warn", "bad", "unknown"]
Bearing = Literal["disturbs", "colours", "none"]
Numbers = Mapping[str, float]


@frozen
class Check:
    """One line of the doctor's report. `numbers` are in SI base units; shares are of 1."""

    code: str
    title: str
    verdict: Verdict
    found: str
    numbers: Numbers
    remedy: str | None


@frozen
class Outcome:
    """What a judge says. Without a remedy of its own, the topic's is given for warn and bad."""

    verdict: Verdict
    found: str
    numbers: Numbers = field(default_factory=dict)
    remedy: str | None = None


Judge = Callable[[Readings], Outcome]


@frozen
class Topic:
    """What one check is about: the documentation, its bearing on a measurement, and the judge.

    A topic that `disturbs` makes the machine unfit while it is bad; one that `colours` a result does so steadily, and
    equally for everything measured meanwhile; `none` is about the set-up.
    """

    code: str
    title: str
    what: str
    why: str
    remedy: str
    bearing: Bearing
    judge: Judge

    @property
    def about(self) -> str:
        """One paragraph: what is looked at, why it matters to a measurement, what to do."""
        return f"{self.what} {self.why} {self.remedy}"

    def __call__(self, readings: Readings) -> Check:
        try:
            outcome = self.judge(readings)
        except UnreadableError as error:
            outcome = unknown(str(error))
        wanted = self.remedy if outcome.verdict in {"warn", "bad"} else None
        return Check(
            code=self.code,
            title=self.title,
            verdict=outcome.verdict,
            found=outcome.found,
            numbers=outcome.numbers,
            remedy=outcome.remedy or wanted,
        )


def topic(  # noqa: PLR0913 - the columns of a row
    code: str, *, title: str, what: str, why: str, remedy: str, bearing: Bearing = "colours"
) -> Callable[[Judge], Topic]:
    """Make the decorated judge a topic."""

    def made(judge: Judge) -> Topic:
        return Topic(code=code, title=title, what=what, why=why, remedy=remedy, bearing=bearing, judge=judge)

    return made


def good(found: str, numbers: Numbers | None = None) -> Outcome:
    return Outcome(verdict="good", found=found, numbers=numbers or {})


def warn(found: str, numbers: Numbers | None = None) -> Outcome:
    return Outcome(verdict="warn", found=found, numbers=numbers or {})


def bad(found: str, numbers: Numbers | None = None) -> Outcome:
    return Outcome(verdict="bad", found=found, numbers=numbers or {})


def unknown(why: str | Absent, *, remedy: str | None = None) -> Outcome:
    reason = why.why if isinstance(why, Absent) else why
    return Outcome(verdict="unknown", found=f"not measurable here: {reason}", remedy=remedy)


def grade(value: float, warn_at: float, bad_at: float) -> Verdict:
    """The verdict on a number that should be small."""
    return "bad" if value >= bad_at else "warn" if value >= warn_at else "good"
