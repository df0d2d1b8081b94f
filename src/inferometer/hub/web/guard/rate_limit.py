"""How often one client may ask: a token bucket that refills at a steady rate and holds a burst."""

import time
from collections import OrderedDict
from collections.abc import Callable

_MOST_CLIENTS = 4096


class RateLimit:
    """One bucket per client; the clients that asked longest ago are forgotten first."""

    def __init__(self, per_s: float, burst: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._clock = per_s, float(burst), clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, client: str, cost: float = 1.0) -> float:
        """Take `cost` from the client's bucket and return 0, or take nothing and return the seconds to wait."""
        now = self._clock()
        left = self._left(client, now)
        if left < cost:
            return (cost - left) / self._per_s
        self._put(client, left - cost, now)
        return 0.0

    def spent(self, client: str) -> bool:
        """Whether nothing is left for this client, without taking anything."""
        return self._left(client, self._clock()) < 1.0

    def _left(self, client: str, now: float) -> float:
        left, since = self._buckets.get(client, (self._burst, now))
        return min(self._burst, left + (now - since) * self._per_s)

    def _put(self, client: str, left: float, now: float) -> None:
        self._buckets[client] = (left, now)
        self._buckets.move_to_end(client)
        while len(self._buckets) > _MOST_CLIENTS:
            self._buckets.popitem(last=False)
