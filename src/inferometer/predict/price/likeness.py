"""How alike two models are to a machine, and the time expected of one from the measured times of similar ones.

A model's *effect* is its time over the time of its work. Siblings share it: a bigger EfficientNet is off by as much as
the smaller ones. So the effect is a Gaussian process over features of a model's graph: sizes, and shares of work by
class. Measurements of the model itself count most, and more if they are with its engine and formats.
`workshop.priors.hierarchy` solves for the pulls of the models at hand; here they are added up for one that is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.dtypes import dtype
from inferometer.predict.work.classes import FORWARD, fitted_class

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.predict.work.prepare import PreparedWork

Features = tuple[int, ...]  # hundredths

# Chosen once, on models left out of the shipped tables; design/0009-priors.md has other choices. A
# length of 0.4 lets half-alike models pull; for families that were left out whole the engine's usual effect is nearer
# than theirs (design/0018-unseen-devices.md).
LENGTH = 0.2  # of features, at which two models are hardly alike
ALIKE, OWN = 0.15, 0.1  # variances of what models that are alike share, and of what is a model's own
IN_COMMON = (0.3, 0.4, 0.3)  # of an effect: what holds for the unit, the engine, and the engine with these formats
NOISE, SCATTER = 0.03, 0.01  # variances of one device's word, and of what no number of devices tells
SHRINK = 2.0  # devices that must agree where no graph tells which models are alike
_SIZES = 0.2  # of a feature for each power of e
_TOKENS = 128  # of a text, where one is read


def features_of(prepared: PreparedWork, activations: str) -> Features:
    """Sizes as logarithms, and the square roots of shares: of operations, of bytes and of ops, by class."""
    sizes = {"batch": 1, "query": _TOKENS, "context": 0, "logits": 1}
    quantities, repeats = prepared.quantities(sizes), prepared.counts(once=False)
    names = np.array([fitted_class(row.op, "forward") or "" for row in prepared.rows])
    flops, weights, moved = (
        np.broadcast_to(values, (len(names), 1))[:, 0] * repeats
        for values in (sum(quantities.flops_by.values()), quantities.weights, quantities.activations)
    )
    width = float(dtype(activations).bits) / 8
    ops = repeats * (names != "")
    # A thousand parameters more: networks of a few, or of none, would lie far apart by their logarithms alone.
    sizes_of = (flops.sum(), prepared.graph.parameters + 1e3, moved.sum() / width, ops.sum())
    features = [_SIZES * float(np.log(size + 1.0)) for size in sizes_of]
    for values in (flops, weights + moved, ops):
        total = max(float(values.sum()), 1.0)
        features += [float(np.sqrt(values[names == name].sum() / total)) for name in FORWARD]
    # Hundredths as whole numbers: the same on every machine, so that they can be keys and lie in shipped files.
    return tuple(round(100 * feature) for feature in features)


def alike(ones: Any, others: Any) -> Any:
    """[n, features] × [m, features] → [n, m]: 1 where two are the same to a machine, 0 where nothing is alike."""
    one, other = np.asarray(ones, dtype=float) / 100, np.asarray(others, dtype=float) / 100
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :] - 2 * one @ other.T
    return np.exp(-np.maximum(squares, 0.0) / (2 * LENGTH**2))


def in_common(same_engine: Any, same_formats: Any) -> Any:
    """How much of an effect two ways of running share, on one kind of unit."""
    unit, engine, formats = IN_COMMON
    return unit + engine * same_engine + formats * same_formats


def expected_effect(
    model: str,
    likenesses: Mapping[str, float] | None,
    where: tuple[str, str],
    pulls: Mapping[str, Mapping[str, tuple[float, int]]],
) -> float:
    """The sum of all pulls on a model, `where` being its engine and formats, and `pulls` those of its kind of unit.

    `likenesses` say how like it is to each model that was measured; None where its graph is not known.
    """
    engine, formats = where
    total = 0.0
    for standing, models in pulls.items():
        other = standing.rpartition(":")[0]
        # Pulls were fitted with the same shares in common, so what another engine's rows say is weighed as it was
        # there.
        common = float(in_common(other == engine, standing == f"{engine}:{formats}"))
        own = models.get(model)
        total += 0.0 if own is None else common * OWN * own[0]
        if likenesses is not None:
            total += common * ALIKE * sum(likenesses[name] * pull for name, (pull, _) in models.items())
    return total
