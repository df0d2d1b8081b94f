"""The deviations of several levels at once: penalised least squares.

Robust (Student's) log residuals of whole steps, linearised at the present sums and solved level by level; a level's
deviations are pulled to nothing by the variance of its kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from inferometer.measure.calibrate.priors.stack import CLASSES, FIRST, Stack, StackCase, log_times
from inferometer.predict.price.deviations import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Iterator


FREEDOM = 4.0  # of Student's distribution: one row in ten that is twice off moves little
_MOST_STEP = 1.0  # in logarithms: a round changes no level by more than a factor of e, so it cannot run away
KINDS = np.array([name.partition(":")[0] + (":" if ":" in name else "") for name in PARAMETERS])


@dataclass(slots=True)
class HierarchyLevel:
    name: str
    members: Any  # places of leaves
    unit: str = ""  # whose levels spread as this one does; empty: those of all units
    times: Any = 1.0  # how often it counts in each member, [members, 1]
    value: Any = field(default_factory=lambda: np.zeros(len(PARAMETERS)))
    posterior: Any = None

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]

    @property
    def pool(self) -> str:
        """The pool that its variance belongs to."""
        return pool_of(self.kind, self.unit)


def pool_of(kind: str, unit: str) -> str:
    return f"{kind}:{unit}" if unit else kind


@dataclass(slots=True)
class Hierarchy:
    cases: list[StackCase]
    stack: Stack
    leaves: list[tuple[str, ...]]  # the levels of each
    levels: dict[str, HierarchyLevel]
    variances: dict[str, Any]
    weights: Any  # of each case
    noise: Any  # of each leaf
    pools: Any = None  # of each leaf: the number of its pool, whose leaves scatter alike; None: one pool
    offsets: Any = 0.0  # of each case: the effect of its model
    information: Any = None  # [leaves, parameters, parameters]
    pull: Any = None  # [leaves, parameters]

    def theta(self) -> Any:
        sums = np.zeros((len(self.leaves), len(PARAMETERS)))
        for level in self.levels.values():
            sums[level.members] += level.times * level.value
        return sums

    def residuals(self) -> Any:
        return self.stack.logs - self.offsets - log_times(self.stack, self.theta(), slopes=False)[0]

    def linearise(self, *, noise: bool = True) -> None:
        logs, slopes = log_times(self.stack, self.theta())
        residuals = self.stack.logs - self.offsets - logs
        if noise:
            self.noise = _noise(residuals, self.stack.leaf, len(self.leaves), self.pools)
        weights = self._weights(residuals)
        count = len(PARAMETERS)
        self.information = np.zeros((len(self.leaves), count, count))
        self.pull = np.zeros((len(self.leaves), count))
        order = np.argsort(self.stack.leaf, kind="stable")
        bounds = np.searchsorted(self.stack.leaf[order], np.arange(len(self.leaves) + 1))
        for leaf in range(len(self.leaves)):
            rows = order[bounds[leaf] : bounds[leaf + 1]]
            if len(rows):
                slope, weight = slopes[rows], weights[rows]
                self.information[leaf] = (slope.T * weight) @ slope
                self.pull[leaf] = slope.T @ (weight * residuals[rows])

    def _weights(self, residuals: Any) -> Any:
        noise = self.noise[self.stack.leaf]
        return self.weights * (FREEDOM + 1) / (FREEDOM + (residuals / noise) ** 2) / noise**2

    def objective(self) -> float:
        scaled = self.residuals() / self.noise[self.stack.leaf]
        loss = float(np.sum(self.weights * (FREEDOM + 1) / 2 * np.log1p(scaled**2 / FREEDOM)))
        return loss + sum(
            float(0.5 * np.sum(each.value**2 / self.variances[each.pool])) for each in self.levels.values()
        )

    def sweep(self, times: int = 15, tolerance: float = 2e-3) -> None:
        """Solve the linearised problem, level after level, until nothing moves."""
        names = [level for level in self.levels.values() if len(level.members)]
        # A forward pass has no parameter of a prompt's ops: what no row leans on is nothing, and that is half of them.
        leant_on = np.flatnonzero(np.diagonal(self.information, axis1=1, axis2=2).any(axis=0))
        information = self.information[:, leant_on[:, None], leant_on[None, :]]
        variances = {pool: variance[leant_on] for pool, variance in self.variances.items()}
        values = [level.value[leant_on] for level in names]
        blocks = [information[level.members] for level in names]  # once: taking them is most of a sweep
        inverse = np.linalg.inv(np.array([
            np.diag(1 / variances[level.pool]) + (np.asarray(level.times)[..., None] ** 2 * block).sum(axis=0)
            for level, block in zip(names, blocks, strict=True)
        ]))  # fmt: skip
        pull = self.pull[:, leant_on]  # what is left of the gradient at the present sums
        for _ in range(times):
            most = 0.0
            for index, level in enumerate(names):
                gradient = (level.times * pull[level.members]).sum(axis=0) - values[index] / variances[level.pool]
                step = np.clip(inverse[index] @ gradient, -_MOST_STEP, _MOST_STEP)
                values[index] = values[index] + step
                pull[level.members] -= level.times * (blocks[index] @ step)
                most = max(most, float(np.abs(step).max(initial=0.0)))
            if most < tolerance:
                break
        for index, level in enumerate(names):
            level.value = np.zeros(len(PARAMETERS))
            level.value[leant_on] = values[index]
            level.posterior = np.diag(self.variances[level.pool]).copy()
            level.posterior[leant_on[:, None], leant_on[None, :]] = inverse[index]

    def improve(self, times: int = 15, *, noise: bool = True) -> tuple[float, float]:
        """A step to where the linearised problem has its least, or as far towards it as rows and levels gain from."""
        self.linearise(noise=noise)
        before, values = self.objective(), {name: level.value for name, level in self.levels.items()}
        self.sweep(times)
        after, share = self.objective(), 1.0
        while after > before and share > 0.05:  # five halvings; if none helps, where it stood is as good as it gets
            share /= 2
            for name, level in self.levels.items():
                level.value = (values[name] + level.value) / 2
            after = self.objective()
        return before, after

    def steps(self, rounds: int) -> Iterator[tuple[int, float, float]]:
        """Each round's number, and the objective before and after it, until it hardly falls."""
        for number in range(rounds):
            before, after = self.improve()
            yield number, before, after
            if number > 2 and abs(before - after) < 2e-3 * abs(before):  # spreads change in the first rounds
                return

    def fit(self, rounds: int) -> None:
        for _ in self.steps(rounds):
            pass

    def without(self, rows: Any, *, rounds: int = 1) -> Self:
        """The same with some rows left out: it begins from here, so that few steps are left."""
        other = self.bare(rows)
        for _ in range(rounds):
            other.improve(12, noise=False)
        return other

    def bare(self, rows: Any) -> Self:
        """A copy in which some rows count for nothing, before any step.

        A level that loses all of its rows goes back to nothing, and its leaves to the sum of the others.
        """
        other = replace(
            self,
            levels={name: replace(level, value=level.value.copy()) for name, level in self.levels.items()},
            weights=np.where(rows, 0.0, self.weights),
        )
        kept = np.bincount(self.stack.leaf, weights=other.weights, minlength=len(self.leaves)) > 0
        for level in other.levels.values():
            if not kept[level.members].any():
                level.value[:] = 0.0
        return other


def _noise(residuals: Any, leaf: Any, leaves: int, pools: Any = None) -> Any:
    """The scatter of each leaf's residuals, pulled to the usual of its pool where there are few rows."""
    squares = np.bincount(leaf, weights=np.minimum(np.abs(residuals), 1.0) ** 2, minlength=leaves)
    count = np.bincount(leaf, minlength=leaves)
    usual = np.full(leaves, np.median(np.abs(residuals)) * 1.4826)  # a normal's deviation by its median error
    for pool in () if pools is None else np.unique(pools[leaf]).tolist():
        usual[pools == pool] = np.median(np.abs(residuals[pools[leaf] == pool])) * 1.4826
    # the pool weighs as much as eight rows; a table neither repeats to better than 5 % nor is of no worth at all
    return np.clip(np.sqrt((squares + 8 * usual**2) / (count + 8)), 0.05, 0.6)


assert len(PARAMETERS) == FIRST + 3 * CLASSES  # noqa: S101 - the layout that `stack` cuts by
