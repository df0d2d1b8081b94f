"""How fast a host is at what it does to start kernels: the seconds of one call from Python into compiled code.

A GPU that is given its kernels one by one waits for a host that looks up attributes, packs arguments and calls into a
library, one kernel after the other on one core. A fixed piece of such work takes as long on any machine as that
machine's core, memory and Python make it, so that the ratio of two hosts' figures is about that of their launches.
"""

import time
from collections.abc import Callable
from typing import Any

_CALLS = 2000  # in a batch: a few milliseconds
_BATCHES = 24
_QUIET = 6  # the batch that counts, from the fastest: other work only ever adds time


class _Layer:
    """A layer as libraries write one: its call looks up attributes, packs arguments and ends in a small kernel."""

    def __init__(self, numpy: Any) -> None:
        self.multiply = numpy.multiply
        self.weight, self.out = numpy.ones(4, numpy.float32), numpy.empty(4, numpy.float32)

    def __call__(self, x: Any, *, scale: float = 1.0) -> Any:
        arguments = {"weight": self.weight, "scale": scale}
        return self.apply(x, **arguments)

    def apply(self, x: Any, *, weight: Any, scale: float) -> Any:
        return self.multiply(x, weight, out=self.out) if scale else x


def host_call_s(clock: Callable[[], float] = time.thread_time) -> float:
    """Seconds of one call of the fixed piece: the first quartile of some batches.

    The clock is the thread's own, which stands still while others have the core.
    """
    import numpy  # noqa: PLC0415, ICN001 - only who measures needs it

    layer, x = _Layer(numpy), numpy.ones(4, numpy.float32)
    taken = []
    for _ in range(_BATCHES):
        start = clock()
        for _ in range(_CALLS):
            layer(x)
        taken.append((clock() - start) / _CALLS)
    return sorted(taken)[_QUIET]
