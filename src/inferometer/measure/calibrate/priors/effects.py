"""What models take over what their work says, from the residuals of the rows at hand: a Gaussian process.

`predict.price.likeness` has the kernel. A group is one model with one engine and formats (of tokens: with an engine in
a phase); a device's rows of a group are one word, and the words of several devices are averaged. What is left of them
over the engine's usual effect is solved for the pull of each group. Where no features are known, as of language models,
a model pulls only on itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.predict.price.likeness import ALIKE, NOISE, OWN, SCATTER, SHRINK, alike, in_common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.measure.calibrate.priors.stack import Case

ENOUGH_MODELS = 5  # that say what is usual
_MOST, _MOST_OF_TOKENS = 1.2, 0.5  # a wild row counts as a bounded one


@dataclass(slots=True)
class Kin:
    """The groups of one kind of unit, and how much each shares with each."""

    groups: Any
    kernel: Any


@dataclass(slots=True)
class ModelEffects:
    group: Any  # of each case
    device: Any  # of each case: the place of its (group, device)
    device_group: Any  # of each (group, device)
    engine: Any  # of each group: the place of what its usual effect is of
    engines: tuple[str, ...]
    names: tuple[tuple[str, str], ...]  # of each group: its model, and where it ran
    kin: tuple[Kin, ...]  # none where no features are known
    most: float

    def of_rows(self, residuals: Any, kept: Any) -> Any:
        """The effect of each case's model, from the rows that are `kept`."""
        means, counts = self.means(residuals, kept)
        return self._expected(means, counts)[self.group]

    def _expected(self, means: Any, counts: Any) -> Any:
        usual, pulls = self.pulls(means, counts)
        expected = usual[self.engine]
        if not self.kin:
            return expected + pulls
        for kin in self.kin:
            expected[kin.groups] += kin.kernel @ pulls[kin.groups]
        return expected

    def pulls(self, means: Any, counts: Any) -> tuple[Any, Any]:
        """The usual effect of each engine, and the pull of each group; none of those that no row is kept of."""
        usual = self.usual(means, counts)
        left, pulls = means - usual[self.engine], np.zeros(len(means))
        if not self.kin:  # language models: each by itself, shrunk
            return usual, np.where(counts > 0, left * counts / (counts + SHRINK), 0.0)
        for kin in self.kin:
            chosen = counts[kin.groups] > 0
            told = kin.groups[chosen]
            if len(told):
                doubt = np.diag(SCATTER + NOISE / counts[told])
                pulls[told] = np.linalg.solve(kin.kernel[np.ix_(chosen, chosen)] + doubt, left[told])
        return usual, pulls

    def usual(self, means: Any, counts: Any) -> Any:
        """Of each engine the median of its models' effects: what a model that nobody measured is expected to have."""
        told = [means[(self.engine == index) & (counts > 0)] for index in range(len(self.engines))]
        return np.array([float(np.median(values)) if len(values) >= ENOUGH_MODELS else 0.0 for values in told])

    def means(self, residuals: Any, kept: Any) -> tuple[Any, Any]:
        """Of each group the mean over its devices, and how many there are."""
        weight, bounded = kept.astype(float), np.clip(residuals, -self.most, self.most)
        rows = np.bincount(self.device, weights=weight, minlength=len(self.device_group))
        sums = np.bincount(self.device, weights=weight * bounded, minlength=len(self.device_group))
        there, size = rows > 0, len(self.names)
        counts = np.bincount(self.device_group, weights=there.astype(float), minlength=size)
        total = np.bincount(self.device_group, weights=np.where(there, sums / np.maximum(rows, 1), 0.0), minlength=size)
        return total / np.maximum(counts, 1), counts


def effects_of(cases: Sequence[Case]) -> ModelEffects:
    groups: dict[tuple[str, str], int] = {}
    pairs: dict[tuple[int, str], int] = {}
    features: dict[str, tuple[int, ...]] = {}
    group, device = [], []
    for case in cases:
        place = groups.setdefault((case.model, case.way), len(groups))
        group.append(place)
        device.append(pairs.setdefault((place, case.standing.device), len(pairs)))
        if case.features is not None:
            features.setdefault(case.model, case.features)
    ways = {case.way: case.runs_on for case in cases}
    engines = tuple(dict.fromkeys(ways[way] for _, way in groups))
    return ModelEffects(
        group=np.array(group),
        device=np.array(device),
        device_group=np.array([place for place, _ in pairs]),
        engine=np.array([engines.index(ways[way]) for _, way in groups]),
        engines=engines,
        names=tuple(groups),
        kin=_kin(list(groups), ways, features) if features else (),
        most=_MOST if features else _MOST_OF_TOKENS,
    )


def _kin(
    names: Sequence[tuple[str, str]], ways: dict[str, str], features: dict[str, tuple[int, ...]]
) -> tuple[Kin, ...]:
    units = np.array([way.partition(":")[0] for _, way in names])
    return tuple(
        _kin_of(np.flatnonzero(units == unit), names, ways, features) for unit in dict.fromkeys(units.tolist())
    )


def _kin_of(
    places: Any, names: Sequence[tuple[str, str]], ways: dict[str, str], features: dict[str, tuple[int, ...]]
) -> Kin:
    chosen = [names[place] for place in places.tolist()]
    models, way, engine = (_codes(each) for each in zip(*((m, w, ways[w]) for m, w in chosen), strict=True))
    known = np.array([features[model] for model, _ in chosen])
    common = in_common(engine[:, None] == engine[None, :], way[:, None] == way[None, :])
    kernel = (ALIKE * alike(known, known) + OWN * (models[:, None] == models[None, :])) * common
    return Kin(groups=places, kernel=kernel)


def _codes(names: Sequence[str]) -> Any:
    known: dict[str, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names])
