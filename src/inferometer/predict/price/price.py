"""The price of work on a device: `max over streams(work / (peak · utilisation)) + overhead`.

Plain functions over numbers or arrays. A stream is arithmetic, a level of memory, or a link; its *ideal* time is the
work over the peak. Utilisation lies in (0, 1], so no price is below the floor, which is every stream at its peak.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.statistics import NINE_IN_TEN

if TYPE_CHECKING:
    from inferometer.core.device import Device, Sourced
    from inferometer.core.profile import Bound

BOUNDS: tuple[Bound, ...] = ("compute", "memory", "link", "overhead")


@frozen
class Levels:
    """A device's memory as it is priced: main memory, and the largest cache where there is one.

    Every byte passes the cache where its bandwidth is known. Activations that fit into the cache, and everything where
    the whole model fits, need not come from main memory: the floor leaves them out. Where the cache's bandwidth is not
    known the estimate still takes them from main memory, which is never too fast.
    """

    main: str
    bandwidth: Any  # numbers, or a vector where several devices stand side by side
    cache_bytes: Any = 0.0
    cache_bandwidth: Any = None
    spill_bytes: Any = 0.0  # the estimate, too, leaves out activations up to this size
    one_by_one: bool = False  # whether a batch whose activations would not fit may be read one input after the other

    def floor(self, weights: Any, activations: Any, kv: Any, resident: Any, batch: Any = 1.0) -> Any:
        """Seconds that memory needs at its peak."""
        # A floor must hold for the best engine: a model that fits the cache as a whole may have been read before the
        # step.
        if isinstance(resident, float) and isinstance(
            self.cache_bytes, float
        ):  # a lone step, where numpy's calls count
            away: Any = float(resident > self.cache_bytes)
        else:
            away = np.where(resident <= self.cache_bytes, 0.0, 1.0)
        far = self._far(away * (weights + kv), away * weights, activations, self.cache_bytes, batch)
        main = far / self.bandwidth
        if self.cache_bandwidth is None:
            return main
        return np.maximum(main, (weights + activations + kv) / self.cache_bandwidth)

    def ideal(self, weights: Any, activations: Any, kv: Any, extra: Any, batch: Any = 1.0) -> Any:
        """Seconds at the peak as the runtime moves the bytes; never less than the floor."""
        others = weights + kv + extra
        if self.cache_bandwidth is None:
            return (others + activations) / self.bandwidth
        main = self._far(others, weights, activations, self.spill_bytes, batch) / self.bandwidth
        return np.maximum(main, (others + activations) / self.cache_bandwidth)

    def _far(self, others: Any, weights: Any, activations: Any, room: Any, batch: Any) -> Any:
        """Bytes that come from main memory, in the cheaper of two orders; `others` are all but the activations.

        All inputs op by op read the weights once, and activations that find no room. One input after the other reads
        the weights for each, and what finds no room is told of one input: eight inputs never take longer than eight
        times one. Compilers of NPUs choose: of 120 networks that were published at two batches not one took longer an
        input in the larger (SOPHON; 0.90 of it in the middle).
        """
        together = others + _beyond(activations, room)
        if not self.one_by_one:
            return together
        return np.minimum(together, others + (batch - 1) * weights + _beyond(activations, batch * room))


def _beyond(activations: Any, cache_bytes: Any) -> Any:
    """The bytes that reach memory: none if the activations fit into the cache, otherwise all."""
    some = bool(cache_bytes) if isinstance(cache_bytes, float) else np.any(cache_bytes)
    # a product: to choose between two arrays takes ten times as long
    return activations * (activations > cache_bytes) if some else activations


def over_columns(values: Any) -> Any:
    """The sum of each row; of one column the column itself."""
    return values[:, 0] if values.shape[1] == 1 else values.sum(axis=1)


def require_rate(rate: Sourced, what: str) -> float:
    """The rate, which work is divided by: a finite number above 0."""
    if not (isfinite(rate.value) and rate.value > 0):
        raise DomainError(f"{what} must be greater than 0, and is {rate.value!r} ({rate.source}).")
    return rate.value


def levels_of(device: Device) -> Levels:
    """A device's memory levels; without a bandwidth nothing can be priced."""
    memory = device.memory
    if memory is None or memory.bandwidth_bytes_per_s is None:
        raise DomainError(
            f"The memory bandwidth of {device.name} is not known, so nothing can be priced on it.",
            remedy="Give it in a device file of your own, or calibrate the device.",
        )
    require_rate(memory.bandwidth_bytes_per_s, f"The memory bandwidth of {device.name}")
    caches = [level for level in device.memories[1:] if level.capacity_bytes is not None]
    # One cache is priced: a nearer one is smaller and faster, and would seldom be the stream that a row waits for.
    largest = max(caches, key=lambda level: float(level.capacity_bytes or 0), default=None)
    if largest is None or largest.capacity_bytes is None:
        return Levels(main=memory.level, bandwidth=float(memory.bandwidth_bytes_per_s))
    rate = largest.bandwidth_bytes_per_s
    return Levels(
        main=memory.level,
        bandwidth=float(memory.bandwidth_bytes_per_s),
        cache_bytes=float(largest.capacity_bytes),
        # Never below main memory's, whatever a row says: every byte passes here, and the floor would rise above the
        # memory's.
        cache_bandwidth=None if rate is None else max(float(rate), float(memory.bandwidth_bytes_per_s)),
        # Without the cache's bandwidth its bytes have no cost of their own, so they are taken from main memory.
        spill_bytes=0.0 if rate is None else float(largest.capacity_bytes),
        one_by_one=device.unit in {"npu", "tpu"},
    )


@frozen
class Priced:
    """Seconds of each row, [rows, n]: by stream, together, and at the peaks.

    `spread` is the standard deviation of the logarithm of the time. The interval is time / spread … time · spread,
    with nine in ten rows inside, and never below the floor.
    """

    compute_s: Any
    memory_s: Any
    link_s: Any
    overhead_s: Any
    time_s: Any
    floor_s: Any
    spread: Any = 0.0

    @property
    def low_s(self) -> Any:
        return np.maximum(self.floor_s, self.time_s / np.exp(NINE_IN_TEN * self.spread))

    @property
    def high_s(self) -> Any:
        return self.time_s * np.exp(NINE_IN_TEN * self.spread)


def price_streams(  # noqa: PLR0913 - the streams of an op
    *, compute_s: Any, memory_s: Any, link_s: Any, overhead_s: Any, floor_s: Any, spread: Any = 0.0
) -> Priced:
    """The longest stream and the overhead, and no less than the floor."""
    longest = np.maximum(compute_s, memory_s)
    if link_s is not None:
        longest = np.maximum(longest, link_s)
    return Priced(
        compute_s=compute_s,
        memory_s=memory_s,
        link_s=link_s,
        overhead_s=overhead_s,
        time_s=np.maximum(longest + overhead_s, floor_s) if isinstance(floor_s, np.ndarray) else longest + overhead_s,
        floor_s=floor_s,
        spread=spread,
    )


def exposed_host(device_s: Any, host_s: Any) -> Any:
    """Seconds in which the device waits for the host to start the next kernel.

    The host runs ahead of the device and queues kernels, so a step takes the longer of the two, not the sum.
    """
    return np.maximum(0.0, host_s - device_s)


def bound_names(priced: Priced) -> list[Bound]:
    """What bounds each row, over all columns: the longest of its streams, or its overhead where that is longer."""
    rows, columns = priced.time_s.shape
    seconds = np.zeros((len(BOUNDS), rows))
    for number, stream in enumerate((priced.compute_s, priced.memory_s, priced.link_s, priced.overhead_s)):
        if stream is not None:  # what is the same in all columns stands there once
            seconds[number] = stream[:, 0] * columns if stream.shape[1] == 1 else stream.sum(axis=1)
    # Of two that are equal the first is named, so arithmetic before memory.
    return [BOUNDS[number] for number in seconds.argmax(axis=0).tolist()]
