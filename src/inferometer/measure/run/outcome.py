"""What a measurement leaves, here or elsewhere: the profiles, how it ended, and what is stored beside them."""

from collections.abc import Mapping
from dataclasses import field

from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile
from inferometer.measure.run.model import MeasuredRun, remedy_of
from inferometer.measure.run.raw import series_of


@frozen
class MeasuredOutcome:
    """`series` are values over time, by name and millisecond. `strict`: a disturbed measurement is a failed check."""

    profiles: tuple[Profile, ...]
    ended: str
    error: str | None = None
    remedy: str | None = None
    log: str = ""
    series: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    strict: bool = False

    @property
    def profile(self) -> Profile:
        return self.profiles[0]

    @property
    def disturbances(self) -> tuple[str, ...]:
        environment = self.profile.environment
        return environment.reasons if environment is not None and environment.disturbed else ()


def outcome_of(measured: MeasuredRun) -> MeasuredOutcome:
    raw = measured.raw
    return MeasuredOutcome(
        profiles=measured.profiles,
        ended=raw.ended,
        error=raw.error,
        remedy=raw.remedy or remedy_of(raw),
        log=raw.log,
        series=series_of(raw),
        strict=measured.strict,
    )
