"""Several providers as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferometer.calibrate.run import Provider

if TYPE_CHECKING:
    from inferometer.calibrate.run import Candidate, Measured


@dataclass(slots=True)
class Together:
    """Candidates of all, each measured by the one it comes from."""

    providers: tuple[Provider, ...]
    _owner: dict[str, Provider]

    def __init__(self, *providers: Provider) -> None:
        self.providers, self._owner = providers, {}

    def candidates(self) -> list[Candidate]:
        found = []
        for provider in self.providers:
            for candidate in provider.candidates():
                self._owner[candidate.key] = provider
                found.append(candidate)
        return found

    def measure(self, candidate: Candidate) -> Measured:
        return self._owner[candidate.key].measure(candidate)
