"""Several providers as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferometer.measure.calibrate.run import CandidateSource

if TYPE_CHECKING:
    from inferometer.measure.calibrate.run import CandidateResult, ProbeCandidate


@dataclass(slots=True)
class Together:
    """Candidates of all providers, each measured by the one it comes from."""

    providers: tuple[CandidateSource, ...]
    _owner: dict[str, CandidateSource]

    def __init__(self, *providers: CandidateSource) -> None:
        self.providers, self._owner = providers, {}

    def candidates(self) -> list[ProbeCandidate]:
        candidates = []
        for provider in self.providers:
            for candidate in provider.candidates():
                self._owner[candidate.key] = provider
                candidates.append(candidate)
        return candidates

    def measure(self, candidate: ProbeCandidate) -> CandidateResult:
        return self._owner[candidate.key].measure(candidate)
