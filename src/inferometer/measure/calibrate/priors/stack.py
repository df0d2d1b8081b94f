"""Published steps as arrays: the time of each, its logarithm's slopes in every parameter, for all of them at once.

A case is one published step: its ops' ideal seconds of arithmetic and of memory, their kernels, classes and repeats, as
`cost` counts them. A case costs `Σ repeats · (max(compute / share, memory / share) + kernels · seconds) + step`, and no
less than the host takes to start its kernels: the price of `predict.price`, written so that it can be differentiated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.predict.price.deviations import PARAMETERS, SHARED, Standing
from inferometer.predict.work.classes import FITTED

CLASSES, FIRST, UNPACK = len(FITTED), len(SHARED), SHARED.index("unpack")
LEAST_ODDS, MOST_ODDS = -9.0, 9.0  # shares of 1 in 8,000 and of all but that: beyond, slopes vanish and a fit is stuck


@frozen
class StackCase:
    """One published step, flattened. The arrays have a place an op: ideal seconds, kernels, repeats, class."""

    dataset: str
    model: str
    standing: Standing
    seconds: float
    compute: Any
    memory: Any
    kernels: Any
    repeats: Any
    classes: Any
    unpack: Any = None  # seconds in which each weight that is read is multiplied once; None: none is unpacked
    steps: float = 1.0
    hosted: bool = False  # kernels are started one by one by a host
    line: int = 0
    features: tuple[int, ...] | None = None  # that say which models are alike

    @property
    def tokens(self) -> bool:
        """Whether it reads or makes tokens: those have a fit of their own."""
        return self.unpack is not None

    @property
    def quantity(self) -> str:
        """The timed quantity; for tokens, the later phase that it has ops of."""
        if self.tokens:
            return "decode" if any(FITTED[place].endswith(".decode") for place in set(self.classes)) else "prefill"
        return "stream" if any(variant.startswith("stream") for variant in self.standing.variants) else "forward"

    @property
    def runs_on(self) -> str:
        """Whose usual effect it has: a kind of unit, an engine, and a phase where there are several."""
        of = f"{self.standing.unit}:{self.standing.engine}"
        return of if not self.tokens else f"{of}:{self.quantity}"

    @property
    def way(self) -> str:
        """How its model ran, as the effects of models know it: formats beside what it ran on."""
        standing = self.standing
        return self.runs_on if self.tokens else f"{self.runs_on}:{standing.weights}/{standing.activations}"


@dataclass(slots=True)
class Stack:
    """Cases one after the other: the ops of each are a run of places in the arrays."""

    compute: Any
    unpack: Any
    memory: Any
    kernels: Any
    classes: Any
    steps: Any
    case: Any  # of each op
    leaf: Any  # of each case
    logs: Any  # of the published seconds
    launches: Any
    hosted: Any
    base: Any  # [leaves, parameters]: where the sums start


def stack_of(cases: list[StackCase], leaves: Any, base: Any) -> Stack:
    """`leaves` are the places of the cases' leaves; repeats are multiplied in, since a price is linear in them."""
    sizes = [len(case.compute) for case in cases]
    at = np.repeat(np.arange(len(cases)), sizes)
    repeats = np.concatenate([case.repeats for case in cases]).astype(float)
    kernels = np.concatenate([case.kernels for case in cases]) * repeats
    return Stack(
        compute=np.concatenate([case.compute for case in cases]) * repeats,
        memory=np.concatenate([case.memory for case in cases]) * repeats,
        unpack=np.concatenate([(np.zeros(len(case.compute)) if case.unpack is None else case.unpack) for case in cases])
        * repeats,
        steps=np.array([case.steps for case in cases]),
        kernels=kernels,
        classes=np.concatenate([case.classes for case in cases]).astype(int),
        case=at,
        leaf=np.asarray(leaves),
        logs=np.log([case.seconds for case in cases]),
        launches=np.bincount(at, weights=kernels, minlength=len(cases)),
        hosted=np.array([case.hosted for case in cases]),
        base=base,
    )


def odds(share: float) -> float:
    return float(np.log(share / (1 - share)))


def log_times(stack: Stack, theta: Any, *, slopes: bool = True) -> tuple[Any, Any]:
    """The logarithm of each case's seconds, and its slope in each parameter of its leaf, [cases, parameters]."""
    sums = stack.base + theta
    of_class = sums[:, FIRST:].reshape(len(sums), 3, CLASSES) + sums[:, :3, None]
    share = 1 / (1 + np.exp(-np.clip(of_class[:, :2], LEAST_ODDS, MOST_ODDS)))
    seconds = np.exp(np.clip(of_class[:, 2], -30, 0))  # no kernel takes longer than a second to start
    leaf, cases = stack.leaf[stack.case], len(stack.logs)
    unpack = np.exp(sums[:, UNPACK])[leaf] * stack.unpack
    compute = (stack.compute + unpack) / share[leaf, 0, stack.classes]
    memory = stack.memory / share[leaf, 1, stack.classes]
    kernel = stack.kernels * seconds[leaf, stack.classes]
    computing = compute >= memory
    device = np.bincount(stack.case, weights=np.where(computing, compute, memory) + kernel, minlength=cases)
    step, host = stack.steps * np.exp(sums[stack.leaf, 3]), np.exp(sums[stack.leaf, 4]) * stack.launches
    waits = stack.hosted & (host > device)
    time = np.where(waits, host, device) + step
    if not slopes:
        return np.log(time), None
    place = stack.case * CLASSES + stack.classes

    def by_class(values: Any) -> Any:
        return np.bincount(place, weights=values, minlength=cases * CLASSES).reshape(cases, CLASSES)

    slope = np.zeros((cases, len(PARAMETERS)))
    parts = (
        by_class(np.where(computing, compute * (share[leaf, 0, stack.classes] - 1), 0.0)),
        by_class(np.where(computing, 0.0, memory * (share[leaf, 1, stack.classes] - 1))),
        by_class(kernel),
    )
    for number, part in enumerate(parts):
        start = FIRST + number * CLASSES
        slope[:, start : start + CLASSES] = part
        slope[:, number] = part.sum(axis=1)
    slope[:, UNPACK] = np.bincount(
        stack.case, weights=np.where(computing, unpack / share[leaf, 0, stack.classes], 0.0), minlength=cases
    )
    slope[waits] = 0.0
    slope[:, 3] = step
    slope[waits, 4] = host[waits]
    return np.log(time), slope / time[:, None]
