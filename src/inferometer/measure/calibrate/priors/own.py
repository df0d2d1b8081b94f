"""The levels of one device alone, fitted from its own rows: its parents are as the shipped file has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import InferometerError
from inferometer.measure.calibrate.priors.hierarchy import KINDS, Hierarchy, HierarchyLevel, pool_of
from inferometer.measure.calibrate.priors.stack import StackCase, stack_of
from inferometer.predict.price.deviations import (
    PARAMETERS,
    ModelEffect,
    Standing,
    known_deviations,
    known_unit,
    sums_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


OWN = frozenset({"device", "device+engine", "device+format", "run"})  # kinds of levels that are of the device itself
_ROUNDS = 12  # of a fit of one device's levels, all others being as they were
_LEAST = 0.05  # the least spread of a level: one whose fitted variance is 0 could learn nothing


def own_levels(cases: Sequence[StackCase], effects: Sequence[ModelEffect]) -> Hierarchy:
    """Each way of running is a leaf; all of them share the device's level. Models count without their effects."""
    standings = list(dict.fromkeys(case.standing for case in cases))
    places = {standing: index for index, standing in enumerate(standings)}
    leaf = np.array([places[case.standing] for case in cases])
    tokens = cases[0].tokens
    known = [known_unit(standing, tokens=tokens) for standing in standings]
    base = np.array([_parents(standing, tokens=tokens) for standing in known])
    stack = stack_of(list(cases), leaf, base)
    stack.logs = stack.logs - np.log([effect.times for effect in effects])
    leaves = [tuple(level for level in standing.levels() if level.partition(":")[0] in OWN) for standing in standings]
    members: dict[str, list[int]] = {}
    for index, names in enumerate(leaves):
        for name in names:
            members.setdefault(name, []).append(index)
    fit = Hierarchy(
        cases=list(cases),
        stack=stack,
        leaves=leaves,
        levels={name: HierarchyLevel(name=name, members=np.array(at)) for name, at in members.items()},
        variances=own_variances(known[0], tokens=tokens),
        weights=np.ones(len(cases)),
        noise=np.full(len(leaves), 0.2),  # in logarithms: rows of one table on one device scatter so
    )
    fit.fit(_ROUNDS)
    return fit


def _parents(standing: Standing, *, tokens: bool) -> Any:
    known = known_deviations(tokens=tokens)
    if standing.unit not in known.base:
        raise InferometerError(f"No priors are fitted for a {standing.unit}, so there is nothing to begin from.")
    parents = sums_of(standing, without=OWN, tokens=tokens)
    return np.array([parents.get(name, 0.0) for name in PARAMETERS])


def own_variances(standing: Standing, *, tokens: bool) -> dict[str, Any]:
    """How far devices lie from their parents; every level without a row adds its own to the device's."""
    known = known_deviations(tokens=tokens)

    def variance(kind: str) -> Any:
        stated = known.variances.get(pool_of(kind, standing.unit)) or known.variances.get(kind)
        if stated is None:
            return np.zeros(len(PARAMETERS))
        return np.array([stated.get(str(parameter), 0.0) for parameter in KINDS]) ** 2

    lacking = {level.partition(":")[0] for level in standing.levels() if level not in known.levels} - OWN
    device = variance("device") + sum((variance(kind) for kind in sorted(lacking)), np.zeros(len(PARAMETERS)))
    return {kind: np.maximum(device if kind == "device" else variance(kind), _LEAST**2) for kind in sorted(OWN)}
