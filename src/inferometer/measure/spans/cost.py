"""What recording a span costs, measured in the process that records: only a known overhead can be corrected for."""

import time
from collections.abc import Callable
from itertools import repeat

from inferometer.measure.spans.record import Making

_SPANS, _ROUNDS = 50, 20  # short rounds: on a busy machine some of them are left in peace


def span_cost_s(
    make: Making, *, clock: Callable[[], int] = time.perf_counter_ns, spans: int = _SPANS, rounds: int = _ROUNDS
) -> float:
    """Seconds that one empty span takes, the loop around it taken off: the least of a few rounds.

    The least, because everything that disturbs makes it longer. About half of it falls inside the span itself.
    """
    with_spans = min(_timed(make, clock, spans) for _ in range(rounds))
    without = min(_timed(None, clock, spans) for _ in range(rounds))
    return max(with_spans - without, 0) / spans * 1e-9


def _timed(make: Making | None, clock: Callable[[], int], spans: int) -> int:
    begin = clock()
    if make is None:
        for _ in repeat(None, spans):
            pass
    else:
        for _ in repeat(None, spans):
            with make("cost"):
                pass
    return clock() - begin
