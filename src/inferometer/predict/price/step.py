"""A step priced: every row's work on a device, or on several devices side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from math import log
from typing import Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.statistics import EIGHT_IN_TEN
from inferometer.predict.price.price import Levels, Priced, exposed_host, price_streams
from inferometer.predict.price.rates import Rates
from inferometer.predict.work.collect import OpRow
from inferometer.predict.work.prepare import Quantities

_ONE_TOKEN = {"batch": 1, "query": 1}


@frozen
class Pace:
    """Every number that a phase's rows are priced with on a device.

    Those of a row are [rows, 1], those of the device plain numbers. Several devices stand side by side as columns:
    [rows, n] and [n]. `host_s` is nothing where the phase is captured and replayed as a whole. A row that is a loop
    over tokens takes `token_overhead_s` and `token_host_s` more for each, and one that routes them `routed_s` for each
    token of all sequences. A row's time on the device is multiplied by `kernels`: the time of kernels in an engine's
    step over their time alone.
    """

    inverse_peaks: Mapping[str, Any]  # seconds an operation, by the format that work is counted in
    levels: Levels
    unpack: Any  # rows whose products take as long as unpacking the weights
    compute_share: Any
    compute_ramp_s: Any
    memory_share: Any
    memory_ramp_s: Any
    overhead_s: Any
    host_s: Any
    step_s: Any
    sequence_s: Any = 0.0
    kernels: Any = 1.0
    token_overhead_s: Any = 0.0
    token_host_s: Any = 0.0
    routed_s: Any = 0.0
    # What steps ask of the numbers above, asked once:
    inverse_peak: Any = field(init=False)  # seconds an operation, whatever the format
    unpacks: bool = field(init=False)
    slows_kernels: bool = field(init=False)
    waits_for_host: bool = field(init=False)
    counts_sequences: bool = field(init=False)
    counts_tokens: bool = field(init=False)

    def __post_init__(self) -> None:
        known = {
            "inverse_peak": sum(self.inverse_peaks.values()),
            "unpacks": bool(np.any(self.unpack)),
            "slows_kernels": bool(np.any(self.kernels != 1)),
            "waits_for_host": bool(np.any(self.host_s)),
            "counts_sequences": bool(np.any(self.sequence_s)),
            "counts_tokens": bool(np.any(self.token_overhead_s) or np.any(self.routed_s)),
        }
        for name, value in known.items():
            object.__setattr__(self, name, value)

    def beside_s(self, sizes: Mapping[str, Any]) -> tuple[Any, Any]:
        """Seconds of each row beside its streams, and of its host, for the sequences and tokens of a pass."""
        if not self.counts_tokens:
            return self.overhead_s, self.host_s
        tokens, sequences = np.ravel(sizes["query"]), np.ravel(sizes["batch"])
        a_token = self.token_overhead_s + self.routed_s * sequences
        return self.overhead_s + a_token * tokens, self.host_s + self.token_host_s * tokens

    def outside_s(self, sizes: Mapping[str, Any], *, once: bool = False) -> Any:
        """Seconds of a step on no op, one number or one a column; what runs `once` a request is no step of its own."""
        if once or not self.counts_sequences:
            return 0.0 if once else self.step_s
        batch = sizes["batch"]
        if any(isinstance(size, np.ndarray) for size in sizes.values()):
            batch = np.broadcast_arrays(batch, *sizes.values())[0]
        return self.step_s + self.sequence_s * np.ravel(batch)


@frozen
class StepPrice:
    """One step of a phase: every row's price and quantities, [rows, n], and how often each row runs."""

    priced: Priced
    quantities: Quantities
    counts: Any
    step_s: Any  # spent on no op, one number or one a column
    far: Any  # of each row: how far it lies outside of its table, as a logarithm
    rates: Rates
    rows: tuple[OpRow, ...] = ()
    starting_s: Any = 0.0  # of each row: what its host takes to start it
    host_s: Any = 0.0  # of each row: what it waits for the host
    host_spread: float = 0.0  # of a step that waits for it, as a logarithm

    def interval(self) -> tuple[Any, Any]:
        """The low and the high end of the step, one number a column: eight in ten such steps lie between them.

        If whole steps were measured, their error is known, and only ops outside of their tables, or of classes that no
        such step had, add to it.
        Else rows of one class err together, classes independently of each other. A step that waits for its host is as
        uncertain as the host, and no less than what it does not wait for.
        """
        times, time, rates = self.priced.time_s, self.total("time_s"), self.rates
        doubted: Any = rates.step_spread or 0.0
        if isinstance(self.host_s, np.ndarray):
            waits = over_rows(self.counts, self.host_s) / np.where(time > 0, time, 1.0)
            doubted = np.where(waits > 0, waiting_doubt(doubted, self.host_spread, waits), doubted)
        spread = self.priced.spread
        if rates.step_spread is not None:  # the part that measured whole steps have shown already
            spread = spread - rates.spread * rates.in_steps
        own = self.counts[:, None] * times * spread
        together = [over_rows(members, own) + self._step_doubt(members) for members in rates.groups.values()]
        # Squares as products, which plain numbers round as arrays do.
        share = np.sqrt(sum([part * part for part in (*together, doubted * time)])) / np.where(time > 0, time, 1.0)
        wide = np.exp(EIGHT_IN_TEN * share)
        return np.maximum(np.minimum(self.total("floor_s"), time), time / wide), time * wide

    def _step_doubt(self, members: Any) -> Any:
        """The doubt of the seconds on no op, beside the ops that they were fitted with: both from whole steps."""
        # A spread of whole steps has these seconds among them; without a fit there are none.
        if self.rates.step_spread is not None or self.rates.prior is None:
            return 0.0
        fitted = (members[:, None] * self.rates.fitted > 0) & (self.priced.spread > 0)
        return self.step_s * float(np.max(np.where(fitted, self.priced.spread, 0.0))) if fitted.any() else 0.0

    def total(self, name: str) -> Any:
        """A price summed over the step: `time_s`, `floor_s`, `compute_s` …, one number a column."""
        total = over_rows(self.counts, _spread(getattr(self.priced, name), self.priced.time_s))
        return total + self.step_s if name == "time_s" else total

    def streams(self) -> dict[str, Any]:
        """Seconds of each resource by itself, one number a column; a link is the host's where weights come over it."""
        from_host = network = np.zeros(self.priced.time_s.shape[1])
        if self.priced.link_s is not None:
            collective = np.array([row.op_class == "collective" for row in self.rows])
            link = _spread(self.priced.link_s, self.priced.time_s)
            from_host, network = (over_rows(self.counts * mask, link) for mask in (~collective, collective))
        return {
            "compute": self.total("compute_s"),
            "memory": self.total("memory_s"),
            "host_link": from_host,
            "network": network,
            "overhead": self.total("overhead_s") + self.step_s,
        }

    def sums(self) -> Sums:
        return sums_of(self.priced, self.counts, self.step_s)

    def work(self, name: str) -> Any:
        return over_rows(self.counts, getattr(self.quantities, name))

    # below a twentieth of the time nobody gains from the note; within a factor of 2 tables continue well
    def outside(self, *, least: float = 0.05, factor: float = 2.0) -> dict[str, float]:
        """Classes with ops `factor` times outside of their tables that take a share of the time, and how far out."""
        if not isinstance(self.far, np.ndarray):
            return {}
        outside = self.far > log(factor)
        if not outside.any():
            return {}
        spent = self.counts[:, None] * self.priced.time_s * outside
        enough = least * self.total("time_s").sum()
        return {
            group: float(np.exp((members[:, None] * self.far).max()))
            for group, members in self.rates.groups.items()
            if over_rows(members, spent).sum() > enough
        }


def waiting_doubt(step_spread: Any, host_spread: float, waits: Any) -> Any:
    """What a step that `waits` for its host, as a share of it, may be off by beside its ops."""
    return np.maximum(host_spread, step_spread * (1 - waits))


@frozen
class Sums:
    """Seconds of a step in each column: in all, with the arithmetic busy, and waiting for the host or for kernels."""

    time_s: Any
    computing_s: Any
    waiting_s: Any

    def __len__(self) -> int:
        return len(self.time_s)

    def __getitem__(self, columns: Any) -> Sums:
        return Sums(
            time_s=self.time_s[columns], computing_s=self.computing_s[columns], waiting_s=self.waiting_s[columns]
        )

    def shaped(self, shape: tuple[int, ...]) -> Sums:
        return Sums(
            time_s=self.time_s.reshape(shape),
            computing_s=self.computing_s.reshape(shape),
            waiting_s=self.waiting_s.reshape(shape),
        )


def _spread(values: Any, like: Any) -> Any:
    alike = isinstance(values, np.ndarray) and values.shape == like.shape
    return values if alike else np.broadcast_to(values, like.shape)


def sums_of(priced: Priced, counts: Any, step_s: Any) -> Sums:
    overhead = _spread(priced.overhead_s, priced.time_s)
    return Sums(
        time_s=over_rows(counts, priced.time_s) + step_s,
        computing_s=over_rows(counts, priced.compute_s),
        waiting_s=over_rows(counts, overhead) + step_s,
    )


def over_rows(counts: Any, values: Any) -> Any:
    """Each column's sum over the rows. BLAS's would change in the last bit with the number of columns."""
    return counts @ values if values.shape[1] == 1 else np.einsum("r,rn->n", counts, values)


def ideals(
    q: Quantities, inverse_peaks: Mapping[str, Any], inverse_peak: Any, levels: Levels, batch: Any
) -> tuple[Any, Any, Any]:
    """Seconds at the peaks: of arithmetic alone; of arithmetic and of memory with what the runtime does on top.

    `inverse_peak` is the sum of those by format.
    """
    bare: Any = 0.0
    for key, inverse in inverse_peaks.items():
        bare = bare + q.flops_by[key] * inverse
    compute = bare + q.extra_flops * inverse_peak
    return bare, compute, levels.ideal(q.weights, q.activations, q.kv, q.extra_bytes, batch)


def price_rows(  # noqa: PLR0913 - what a price depends on
    q: Quantities,
    pace: Pace,
    counts: Any,
    *,
    resident: Any = None,
    slower: Any = None,
    at_peaks: tuple[Any, Any, Any] | None = None,
    spread: Any = 0.0,
    links: Callable[[Any], Any] | None = None,
    needed: Any = 1.0,
    done: Any = 1.0,
    sizes: Mapping[str, Any] = _ONE_TOKEN,
) -> tuple[Priced, Any]:
    """Every row's price, and its wait for the host.

    `resident` are the bytes that every step reads; without them no floor is looked at, and none is needed where shares
    of peaks are 1 at most. `slower` is what a calibration multiplies compute and memory with. `links` gives the seconds
    on links and raises the floors of what travels. `sizes` say how many tokens pass. `needed` and `done` are 0 where
    a column does not need a row, and where it is not run. `at_peaks` are the `ideals`, where somebody counted them
    before.
    """
    bare, compute, memory = at_peaks or ideals(q, pace.inverse_peaks, pace.inverse_peak, pace.levels, sizes["batch"])
    floor: Any = 0.0
    if resident is not None:
        floor = np.maximum(bare, pace.levels.floor(q.weights, q.activations, q.kv, resident, sizes["batch"]))
    link = None if links is None else links(floor)
    if pace.unpacks:
        compute = compute + pace.unpack * q.unpack * pace.inverse_peak
    compute = compute / pace.compute_share + pace.compute_ramp_s
    memory = memory / pace.memory_share + pace.memory_ramp_s
    if slower is not None:
        compute, memory = compute * slower[0], memory * slower[1]
    overhead, host = pace.beside_s(sizes)
    if pace.slows_kernels:
        compute, memory, overhead = (pace.kernels * each for each in (compute, memory, overhead))
        link = None if link is None else pace.kernels * link
    if isinstance(done, np.ndarray):
        compute, memory, overhead, host = compute * done, memory * done, overhead * done, host * done
        link = None if link is None else link * done
    if isinstance(needed, np.ndarray):
        floor = floor * needed
    priced = price_streams(
        compute_s=compute, memory_s=memory, link_s=link, overhead_s=overhead, floor_s=floor, spread=spread
    )
    return _with_host(priced, host, counts) if pace.waits_for_host else (priced, 0.0)


def _with_host(priced: Priced, host: Any, counts: Any) -> tuple[Priced, Any]:
    """Share out the time in which the device waits for the host, by what each op costs the host; and that time."""
    total = over_rows(counts, host)
    waiting = exposed_host(over_rows(counts, priced.time_s), total)
    added = host * (waiting / np.where(total > 0, total, 1.0))
    return replace(priced, overhead_s=priced.overhead_s + added, time_s=priced.time_s + added), added
