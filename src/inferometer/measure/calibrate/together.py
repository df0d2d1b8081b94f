"""Several providers as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferometer.measure.calibrate.run import Provider

if TYPE_CHECKING:
    from inferometer.measure.calibrate.run import Candidate, CandidateResult


@dataclass(slots=True)
class Together:
    """Candidates of all providers, each measured by the one it comes from."""

    providers: tuple[Provider, ...]
    _owner: dict[str, Provider]

    def __init__(self, *providers: Provider) -> None:
        self.providers, self._owner = providers, {}

    def candidates(self) -> list[Candidate]:
        candidates = []
        for provider in self.providers:
            for candidate in provider.candidates():
                self._owner[candidate.key] = provider
                candidates.append(candidate)
        return candidates

    def measure(self, candidate: Candidate) -> CandidateResult:
        return self._owner[candidate.key].measure(candidate)
