"""The deviations of all levels of the atlas at once, how far the members of a level spread, and what models take.

The variance of a kind of level is estimated from how far its members lie apart. Speeds of tokens have variances for
each kind of unit: the engines of NPUs lie far apart, those of GPUs near together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.measure.calibrate.priors.hierarchy import KINDS, Hierarchy, HierarchyLevel
from inferometer.measure.calibrate.priors.stack import FIRST, StackCase, log_times, odds, stack_of
from inferometer.predict.price.deviations import PARAMETERS
from inferometer.predict.price.likeness import ALIKE, NOISE, OWN, SCATTER, SHRINK, alike, in_common

if TYPE_CHECKING:
    from collections.abc import Sequence


# What models take over what their work says, from the residuals of the rows at hand: a Gaussian process.
#
# `predict.price.likeness` has the kernel. A group is one model with one engine and formats (of tokens: with an engine
# in a phase); a device's rows of a group are one word, and the words of several devices are averaged. What is left of
# them over the engine's usual effect is solved for the pull of each group. Where no features are known, as of language
# models, a model pulls only on itself.

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
        """The usual effect of each engine, and the pull of each group. A group without rows has none."""
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


def effects_of(cases: Sequence[StackCase]) -> ModelEffects:
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


_FEW_TOLD = 30.0  # rows of a level that say as much of its sources as the level above does
FULL_ROWS = 60.0  # rows of one leaf err together (its clock, its power): more of them say less each
_SPREADS = {
    "compute": 0.4,
    "memory": 0.4,
    "kernel": 0.6,
    "step": 0.8,
    "host": 0.4,
    "unpack": 0.5,
}  # where nothing is known yet
_OF_CLASSES = 0.6  # a class deviates less from its unit than the unit does
_WIDER = {"unit": 2.5, "engine": 1.5}  # first guesses, times a device's: kinds of unit differ most, then engines


def starting_point(unit: str) -> Any:
    """Where sums begin before anything is known: middling shares, microseconds a kernel."""
    compute, memory, kernel = {"cpu": (0.4, 0.5, 2e-6), "gpu": (0.4, 0.7, 4e-6)}.get(unit, (0.15, 0.4, 4e-6))
    point = np.zeros(len(PARAMETERS))
    unpack = 3.0 if unit == "cpu" else 16.0
    # Where hosts are slow to start kernels, published steps of one input take 17 to 30 µs a kernel, whatever the GPU. A
    # fit that begins below never waits for the host, and has each kernel take what belongs to that.
    point[:FIRST] = odds(compute), odds(memory), np.log(kernel), np.log(1e-5), np.log(25e-6), np.log(unpack)
    return point


@dataclass(slots=True)
class SharedHierarchy(Hierarchy):
    """The levels of every device, with the effects of models that several of them ran."""

    effects: ModelEffects | None = None

    def learn_effects(self) -> None:
        """What each model takes over what its work says, from the rows that are not left out."""
        if self.effects is not None:
            bare = self.stack.logs - log_times(self.stack, self.theta(), slopes=False)[0]
            self.offsets = self.effects.of_rows(bare, self.weights > 0)

    def fit(self, rounds: int = 8, *, spreads: bool = True, log: Any = None) -> None:
        for number, before, after in self.steps(rounds):
            if spreads and number >= 1:
                self.estimate_spreads()
            if log is not None:
                log(f"{number}: {before:.0f} → {after:.0f}, median {np.median(np.abs(self.residuals())):.3f}")

    def fit_with_effects(self, rounds: int, *, log: Any = None) -> None:
        """The levels first, then what is left of each model, and the levels again without it."""
        self.fit(rounds, log=log)
        for _ in range(2):
            self.learn_effects()
            self.fit(2, log=log)
        self.learn_effects()

    def estimate_spreads(self) -> None:
        """The variance of each kind of level, by kind of parameter: the members' own, and what is not known of them."""
        pools: dict[str, list[HierarchyLevel]] = {}
        for level in self.levels.values():
            if level.kind != "unit" and level.posterior is not None:
                pools.setdefault(level.pool, []).append(level)
        for pool, members in pools.items():
            squares = np.mean([level.value**2 + np.diag(level.posterior) for level in members], axis=0)
            start = _first_variance(members[0].kind)
            for parameter in dict.fromkeys(KINDS):
                chosen = parameter == KINDS
                # the first guess weighs as much as four members, and never less than a tenth of them
                told = min(len(members), 40) / (min(len(members), 40) + 4)
                variance = told * float(squares[chosen].mean()) + (1 - told) * float(start[chosen][0])
                self.variances[pool][chosen] = np.clip(variance, 0.03**2, 4.0)  # at 0 a kind could learn no more

    def answered(self) -> SharedHierarchy:
        """As answers have it: without the sources' own levels, and with what those behind each level have in common.

        A fit pulls each source to nothing, so that a vendor's table of five thousand rows and a blogger's of five share
        evenly what differs between them, and answers would be of neither. Here each row counts for its source, and
        `_FEW_TOLD` for what the wider level has: a device that one table measured is answered as that table has it.
        """
        rows = np.bincount(self.stack.leaf, weights=self.weights > 0, minlength=len(self.leaves))
        source = [self.levels[names[-1]].value if names[-1].startswith("source:") else None for names in self.leaves]
        levels = {name: replace(level) for name, level in self.levels.items() if level.kind != "source"}
        shared = np.zeros((len(self.leaves), len(PARAMETERS)))  # what each leaf has from wider levels so far
        for kind in ("engine", "engine+family", "device+engine"):
            for level in levels.values():
                told = [leaf for leaf in level.members.tolist() if source[leaf] is not None and rows[leaf]]
                if level.kind == kind and told:
                    wider = shared[told[0]].copy()
                    of_sources = sum(rows[leaf] * source[leaf] for leaf in told)
                    common = (of_sources + _FEW_TOLD * wider) / (rows[told].sum() + _FEW_TOLD)
                    level.value = level.value + common - wider
                    shared[level.members] = common
        return replace(self, levels=levels)

    def without(self, rows: Any, *, rounds: int = 1) -> SharedHierarchy:
        other = self.bare(rows)
        if self.effects is not None:
            # The effects of the other models hold the levels where the rows left out had put them: they go first.
            other.offsets = 0.0
            for _ in range(2):
                other.improve(12, noise=False)
        for _ in range(rounds):
            other.learn_effects()
            other.improve(12, noise=False)
        other.learn_effects()
        return other


def _first_variance(kind: str) -> Any:
    wider = _WIDER.get(kind, 1.0)
    spread = np.array([
        _SPREADS[parameter.rstrip(":")] * (_OF_CLASSES if parameter.endswith(":") else 1.0) for parameter in KINDS
    ])  # fmt: skip
    return (wider * spread) ** 2


def hierarchy_of(cases: list[StackCase]) -> SharedHierarchy:
    """A leaf is a standing in one source. The habits of a source (its harness, releases, clocks) are its own level.

    Nobody who asks is one of the sources, so answers leave that level out, and have what the sources have in common
    (`answered`). Where an engine has but one source nothing tells the two apart: all of it is the engine's.
    """
    sources: dict[tuple[str, str], set[str]] = {}
    for case in cases:
        sources.setdefault((case.standing.unit, case.standing.engine), set()).add(case.dataset)
    told_apart = {key for key, names in sources.items() if len(names) > 1}
    ran = [
        (case.standing, case.dataset if (case.standing.unit, case.standing.engine) in told_apart else "")
        for case in cases
    ]
    places = {each: index for index, each in enumerate(dict.fromkeys(ran))}
    leaf = np.array([places[each] for each in ran])
    standings = [standing for standing, _ in places]
    leaves = [
        (*standing.levels(), *([f"source:{standing.unit}:{standing.engine}:{source}"] if source else []))
        for standing, source in places
    ]
    base = np.array([starting_point(standing.unit) for standing in standings])
    members: dict[str, list[int]] = {}
    for index, names in enumerate(leaves):
        for name in names:
            members.setdefault(name, []).append(index)
    apart = cases[0].tokens
    units = [standing.unit if apart else "" for standing in standings]
    levels = {name: HierarchyLevel(name=name, members=np.array(at), unit=units[at[0]]) for name, at in members.items()}
    often: dict[str, list[tuple[int, float]]] = {}
    for index, standing in enumerate(standings):
        for name, times in () if apart else standing.slopes():
            often.setdefault(name, []).append((index, times))
    for name, each in often.items():
        levels[name] = HierarchyLevel(
            name=name, members=np.array([at for at, _ in each]), times=np.array([[times] for _, times in each])
        )
    counts = np.bincount(leaf, minlength=len(leaves))
    return SharedHierarchy(
        cases=cases,
        stack=stack_of(cases, leaf, base),
        leaves=leaves,
        levels=levels,
        variances={level.pool: _first_variance(level.kind) for level in levels.values()},
        weights=np.minimum(1.0, np.sqrt(FULL_ROWS / counts))[leaf],
        noise=np.full(len(leaves), 0.3),  # in logarithms, until residuals show it
        pools=np.array([sorted(set(units)).index(unit) for unit in units]),
        effects=effects_of(cases),
    )
