"""A prepared graph on a device: every number that pricing needs, as vectors over the graph's rows.

`Plan.step` prices one step for one workload or, where sizes are arrays, for as many as they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.device import Device, Link, Origin
from inferometer.core.dims import Dim
from inferometer.core.engine import Overheads
from inferometer.cost.precision import arithmetic_for
from inferometer.cost.price.collectives import between_devices, message_floor, message_seconds
from inferometer.cost.price.price import Levels, Priced, exposed_host, levels_of, price_streams, require_rate
from inferometer.cost.price.priors import Prior, prior_for
from inferometer.cost.price.utilisation import (
    beyond,
    factor_for,
    interpolate,
    is_compute,
    residual_of,
    step_residual,
    tables_for,
)
from inferometer.cost.work.classes import FREE, MATRIX, attention_path, class_path, dims_of
from inferometer.cost.work.prepare import Prepared, Quantities
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.binding import Binding
    from inferometer.cost.work.collect import Row

__all__ = ["DATASHEET_SPREAD", "Plan", "Rates", "Step", "plan_of", "shape_in"]

DATASHEET_SPREAD = 3.0  # nothing is known of how near to its peak such an op comes
NINE_IN_TEN, EIGHT_IN_TEN = 1.645, 1.2816  # standard deviations on each side that hold so many readings
_REMEMBERED = 10_000  # shapes at most
_HOST_RESIDUAL = 0.3  # what hosts take to start kernels differs by as much from run to run


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """A row that the calibration has tables of, and what of its shape they ask for.

    `factor` is what it takes inside a model over what it takes alone. `dims` are sizes of the op, each with the share
    of it that one device has; `moved` are counted from its work.
    """

    tables: tuple[Utilisation, ...]
    factor: float
    dims: Mapping[str, tuple[Dim, float]]
    moved: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How near each row comes to its peaks in one phase: columns over the rows.

    `spread` is the standard deviation of the logarithm of the time; rows of one of the `groups` (its members are 1) err
    together. Those whose class was in the whole steps that were measured are `in_steps`. Rows that the calibration has
    tables of are `covered`.
    """

    compute_share: Any
    compute_ramp_s: Any
    memory_share: Any
    memory_ramp_s: Any
    spread: Any
    overhead_s: Any
    host_s: Any
    step_spread: float | None
    host_spread: float
    groups: Mapping[str, Any]
    in_steps: Any
    origins: tuple[Origin, ...]
    covered: Mapping[int, Covered]
    remembered: dict[tuple[Any, ...], tuple[list[Any], Any]] = field(default_factory=dict)

    def read(self, tables: tuple[Utilisation, ...], shape: Mapping[str, Any]) -> tuple[list[Any], Any]:
        """The share that each table has, and how far outside the shape lies.

        Most shapes come again, in the next layer and in the next question: single ones are remembered.
        """
        key = (tables[0].op_class, *shape.values())
        try:
            found = self.remembered.get(key)
        except TypeError:  # arrays
            return _read(tables, shape)
        if found is None:
            if len(self.remembered) > _REMEMBERED:
                self.remembered.clear()
            found = self.remembered[key] = _read(tables, shape)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a phase: every row's price and quantities, [rows, n], and how often each row runs."""

    priced: Priced
    quantities: Quantities
    counts: Any
    step_s: float  # spent once, on no op
    spread: Any  # of each row: the standard deviation of the logarithm of its time
    usual: Any  # what of it the whole steps that were measured have shown already
    far: Any  # of each row: how far it lies outside of its table, as a logarithm
    groups: Mapping[str, Any]
    step_spread: float | None = None
    host_spread: float = _HOST_RESIDUAL
    host_s: Any = 0.0  # of each row: what it waits for the host

    def interval(self) -> tuple[Any, Any]:
        """The low and the high end of the step, one number a column: eight in ten such steps lie between them.

        Where whole steps were measured, what they are off by is known, and only ops outside of their tables or of
        classes that no such step had add to it.
        Else rows of one class err together, classes independently of each other. A step that waits for its host is as
        uncertain as the host.
        """
        times, time = self.priced.time_s, self.total("time_s")
        waiting = self.counts @ np.broadcast_to(self.host_s, times.shape)
        known = self.step_spread is not None
        own = self.counts[:, None] * times * (self.spread - self.usual if known else self.spread)
        together = (members @ own for members in self.groups.values())
        whole = np.where(waiting > 0, self.host_spread, self.step_spread or 0.0) * time
        share = np.sqrt(sum(part**2 for part in (*together, whole))) / np.where(time > 0, time, 1.0)
        wide = np.exp(EIGHT_IN_TEN * share)
        return np.maximum(np.minimum(self.total("floor_s"), time), time / wide), time * wide

    def total(self, name: str) -> Any:
        """A price summed over the step: `time_s`, `low_s`, `high_s`, `floor_s`, `compute_s` …, one number a column."""
        extra = self.step_s if name in {"time_s", "low_s", "high_s"} else 0.0
        return self.counts @ np.broadcast_to(getattr(self.priced, name), self.priced.time_s.shape) + extra

    def work(self, name: str) -> Any:
        return self.counts @ getattr(self.quantities, name)

    def outside(self, *, least: float = 0.05, factor: float = 2.0) -> dict[str, float]:
        """Classes with ops `factor` times outside of their tables that take a share of the time, and how far out."""
        outside = self.far > log(factor)
        if not outside.any():
            return {}
        spent = self.counts[:, None] * self.priced.time_s * outside
        enough = least * self.total("time_s").sum()
        return {
            group: float(np.exp((members[:, None] * self.far).max()))
            for group, members in self.groups.items()
            if (members @ spent).sum() > enough
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    prepared: Prepared
    device: Device
    levels: Levels
    inverse_peaks: Mapping[str, Any]
    weights_bytes: float
    overheads: Overheads
    calibration: Calibration | None = None
    link: Link | None = None
    overlap: float = 0.0
    notes: tuple[str, ...] = ()
    rates: dict[str, Rates] = field(default_factory=dict)

    def step(self, sizes: Mapping[str, Any], phase: str, *, once: bool = False) -> Step:
        """Price a step. `once` looks at the ops that run once a request instead of those of every step.

        Columns without logits (`sizes["logits"]` of 0) leave out the ops that make them, unless the runtime does not.
        """
        needed, sizes = _needed(self.prepared.rows, sizes)
        done = needed if self.prepared.effects.logits == "prompt" else 1.0
        quantities = self.prepared.quantities(sizes)
        rates = self.rates_in(phase)
        spread = np.broadcast_to(rates.spread, quantities.bytes.shape).copy()
        far = np.zeros_like(spread)
        compute, memory = self._streams(quantities, rates, sizes, (spread, far))
        floor = self._floor(quantities)
        link = self._links(quantities, floor)
        priced = price_streams(
            compute_s=compute * done,
            memory_s=memory * done,
            link_s=None if link is None else link * done,
            overhead_s=rates.overhead_s * done,
            floor_s=floor * needed,
            spread=np.exp(NINE_IN_TEN * spread),
        )
        counts = self.prepared.counts(once=once)
        captured = phase in self.overheads.captured
        waiting: Any = 0.0
        if not captured and rates.host_s.any():
            priced, waiting = _with_host(priced, rates.host_s * done, counts, np.exp(NINE_IN_TEN * spread))
        if np.ndim(needed):
            quantities = replace(quantities, flops=quantities.flops * needed, bytes=quantities.bytes * needed)
        step_s = 0.0 if self.overheads.step_s is None else float(self.overheads.step_s)
        return Step(
            priced=priced,
            quantities=quantities,
            counts=counts,
            step_s=0.0 if once else step_s,
            spread=spread,
            usual=rates.spread * rates.in_steps,
            groups=rates.groups,
            step_spread=rates.step_spread,
            host_spread=rates.host_spread,
            host_s=waiting,
            far=far,
        )

    def rates_in(self, phase: str) -> Rates:
        if phase not in self.rates:
            self.rates[phase] = _rates(self, phase)
        return self.rates[phase]

    def compute_ideal(self, quantities: Quantities) -> Any:
        ideal: Any = 0.0
        for key, inverse in self.inverse_peaks.items():
            ideal = ideal + quantities.flops_by[key] * inverse
        return ideal

    def ideals(self, quantities: Quantities) -> tuple[Any, Any]:
        """Seconds of arithmetic and of memory at their peaks, with what the runtime does on top of the ops' work."""
        compute = self.compute_ideal(quantities) + quantities.extra_flops * sum(self.inverse_peaks.values())
        memory = self.levels.ideal(
            weights=quantities.weights,
            activations=quantities.activations,
            kv=quantities.kv,
            extra=quantities.extra_bytes,
        )
        return compute, memory

    def _streams(
        self, quantities: Quantities, rates: Rates, sizes: Mapping[str, Any], doubt: tuple[Any, Any]
    ) -> tuple[Any, Any]:
        compute, memory = self.ideals(quantities)
        priced = (
            compute / rates.compute_share + rates.compute_ramp_s,
            memory / rates.memory_share + rates.memory_ramp_s,
        )
        if rates.covered:
            self._calibrated(priced, rates, quantities, sizes=sizes, doubt=doubt)
        return priced

    def _calibrated(
        self, priced: tuple[Any, Any], rates: Rates, q: Quantities, *, sizes: Mapping[str, Any], doubt: tuple[Any, Any]
    ) -> None:
        """Slow down the rows that the calibration covers. A stream it says nothing of counts at its peak.

        Outside of a table's grid its edge is held and the doubt grows with the distance.
        """
        spread, outside = doubt
        binding = self.prepared.binding(sizes)
        slower = np.ones((2, *outside.shape))
        for number, row in rates.covered.items():
            shape = {axis: binding.size(dim) * share for axis, (dim, share) in row.dims.items()}
            for axis in row.moved:
                shape[axis] = _moved(q, axis, number)
            shares, outside[number] = rates.read(row.tables, shape)
            for table, share in zip(row.tables, shares, strict=True):
                slower[_streams_of(table), number] = row.factor / share
        for stream in (0, 1):
            np.multiply(priced[stream], slower[stream], out=priced[stream])
        spread *= 1 + outside

    def _floor(self, q: Quantities) -> Any:
        resident = self.weights_bytes + self.prepared.counts(once=False) @ q.kv
        memory = self.levels.floor(weights=q.weights, activations=q.activations, kv=q.kv, resident=resident)
        return np.maximum(self.compute_ideal(q), memory)

    def _links(self, q: Quantities, floor: Any) -> Any:
        """Seconds on links, or None where nothing travels. Their floors are raised in place."""
        if not q.link.any():
            return None
        seconds = np.zeros_like(floor)
        for number, row in enumerate(self.prepared.rows):
            if row.op_class == "collective":
                seconds[number], floor[number] = self._message(row, q.link[number])
            elif row.offloaded:
                seconds[number], least = self._streamed(q.link[number])
                floor[number] = np.maximum(floor[number], least)
        return seconds

    def _message(self, row: Row, nbytes: Any) -> tuple[Any, Any]:
        link, share = between_devices(self.device, self.link), 1.0
        prior = prior_for(self.device.unit, ("collective",))
        if prior is not None and prior.link_share is not None:
            share = float(prior.link_share)
        function, devices = row.op["function"], row.op["devices"]
        exposed = 1 - self.overlap
        floor = message_floor(function, devices, nbytes, link) * exposed
        return message_seconds(function, devices, nbytes, link, share=share, overlap=self.overlap), floor

    def _streamed(self, nbytes: Any) -> tuple[Any, Any]:
        link = self.device.host_link
        if link is None or link.bandwidth_bytes_per_s is None:
            raise DomainError(
                f"{self.device.name} has no link to its host whose bandwidth is known, so nothing can lie there.",
                remedy="Keep every layer on the device, or give the link in a device file.",
            )
        ideal = nbytes / require_rate(link.bandwidth_bytes_per_s, f"The bandwidth of {link.name}")
        prior = prior_for(self.device.unit, ("collective",))
        share = 1.0 if prior is None or prior.link_share is None else float(prior.link_share)
        return ideal / share, ideal


def plan_of(  # noqa: PLR0913 - what a plan is made of
    prepared: Prepared,
    device: Device,
    *,
    weights_bytes: float,
    calibration: Calibration | None = None,
    link: Link | None = None,
    overlap: float = 0.0,
) -> Plan:
    """Match the graph with the device: the peak of each row's arithmetic, the memory, the runtime's overheads."""
    if not 0 <= overlap <= 1:
        raise DomainError(f"overlap is a share from 0 to 1, and not {overlap!r}.")
    levels = levels_of(device)
    inverse, notes = _inverse_peaks(prepared, device)
    if calibration is not None:
        notes = (*notes, _calibrated_by(calibration), *calibration.notes)
    return Plan(
        prepared=prepared,
        device=device,
        levels=levels,
        inverse_peaks=inverse,
        weights_bytes=weights_bytes,
        overheads=_overheads(prepared, device, calibration),
        calibration=calibration,
        link=link,
        overlap=overlap,
        notes=notes,
    )


def _calibrated_by(calibration: Calibration) -> str:
    return (
        f"Calibrated on {calibration.created[:10]} with {calibration.runtime} on {calibration.device}, "
        f"{calibration.dtype}; eight in ten steps lie between low and high."
    )


def _inverse_peaks(prepared: Prepared, device: Device) -> tuple[dict[str, Any], tuple[str, ...]]:
    """For each format that work is counted in, seconds an operation on each row; and what is to be said."""
    keys = [key.removeprefix("flops:") for key in prepared.keys]
    inverse = {key: np.zeros((len(prepared.rows), 1)) for key in keys}
    binding = prepared.binding({})
    notes: dict[str, None] = {}
    for number, row in enumerate(prepared.rows):
        if row.op_class in FREE or row.op_class == "collective":
            continue
        for key in row.arithmetic:
            found = arithmetic_for(row.op, key, binding, device, prepared.effects)
            if found.name is not None:
                peak = require_rate(device.peaks[found.name], f"The {found.name} peak of {device.name}")
                inverse[key][number] = 1 / peak
            if found.note:
                notes[found.note] = None
    return inverse, tuple(notes)


def _overheads(prepared: Prepared, device: Device, calibration: Calibration | None) -> Overheads:
    """The runtime's, with what the calibration measured (kernel, host, step) in their place."""
    stated = prepared.effects.on(device.unit)
    if device.launch_s is not None and stated.host_s is not None:
        stated = replace(stated, host_s=device.launch_s)
    measured = {} if calibration is None else calibration.overheads
    return replace(
        stated,
        kernel_s=measured.get("kernel", stated.kernel_s),
        host_s=measured.get("host", stated.host_s),
        step_s=measured.get("step", stated.step_s),
    )


def _rates(plan: Plan, phase: str) -> Rates:
    rows, unit = plan.prepared.rows, plan.device.unit
    numbers = np.zeros((len(rows), 7))
    origins: list[Origin] = []
    groups: list[str] = []
    whole: list[bool] = []
    covered: dict[int, Covered] = {}
    for number, row in enumerate(rows):
        path = attention_path(row.op, plan.prepared.effects.attention)
        classes = class_path(row.op, phase, path, fused=row.fused.launches == 0)
        found = () if plan.calibration is None else tables_for(plan.calibration, classes)
        prior = prior_for(unit, classes)
        origins.append("calibrated" if found else "datasheet" if prior is None else "prior")
        groups.append(found[0].op_class if found else "prior")
        factor = factor_for(plan.calibration, classes)
        whole.append(factor is not None or row.op_class in FREE)
        factor = 1.0 if factor is None else factor
        if found:
            covered[number] = _covered(row, found, factor)
        numbers[number] = _rate(plan, row, None if found else prior, found, factor)
    columns = [numbers[:, place : place + 1] for place in range(7)]
    known = plan.calibration
    return Rates(
        compute_share=columns[0],
        compute_ramp_s=columns[1],
        memory_share=columns[2],
        memory_ramp_s=columns[3],
        spread=columns[4],
        overhead_s=columns[5],
        host_s=columns[6],
        step_spread=None if known is None else step_residual(known, phase),
        host_spread=_HOST_RESIDUAL if known is None else known.residuals.get("host", _HOST_RESIDUAL),
        groups={group: np.array([float(name == group) for name in groups]) for group in dict.fromkeys(groups)},
        in_steps=np.array(whole)[:, None],
        origins=tuple(origins),
        covered=covered,
    )


def _covered(row: Row, tables: tuple[Utilisation, ...], factor: float) -> Covered:
    axes = {axis for table in tables for axis in table.axes}
    return Covered(
        tables=tables,
        factor=factor,
        dims={name: dim for name, dim in _dims_on_device(row).items() if name in axes},
        moved=tuple(name for name in _MOVED if name in axes),
    )


def _read(tables: tuple[Utilisation, ...], shape: Mapping[str, Any]) -> tuple[list[Any], Any]:
    return [interpolate(table, shape) for table in tables], beyond(tables[0], shape)


def _streams_of(table: Utilisation) -> slice | int:
    """What of (compute, memory) a table is a share of."""
    return slice(None) if table.stream == "floor" else 0 if is_compute(table) else 1


def _rate(
    plan: Plan, row: Row, prior: Prior | None, tables: tuple[Utilisation, ...], factor: float
) -> tuple[float, ...]:
    launches = row.fused.launches if row.op_class not in FREE | {"collective"} else 0
    kernel, host = (float(value) if value else 0.0 for value in (plan.overheads.kernel_s, plan.overheads.host_s))
    if tables and plan.calibration is not None:
        spread = max(residual_of(plan.calibration, table) for table in tables)
        return 1.0, 0.0, 1.0, 0.0, spread, kernel * launches, host * launches
    if prior is None:
        spread = 0.0 if row.op_class in FREE else log(DATASHEET_SPREAD) / NINE_IN_TEN
        return 1.0, 0.0, 1.0, 0.0, spread, kernel * launches, host * launches
    computes = row.op_class in MATRIX
    return (
        float(prior.compute_share or 1.0) / factor,
        factor * float(prior.compute_ramp_s or 0.0) * min(1, launches) if computes else 0.0,
        float(prior.memory_share or 1.0) / factor,
        factor * float(prior.memory_ramp_s or 0.0) * launches,
        log(float(prior.spread)) / NINE_IN_TEN,
        kernel * launches,
        host * launches,
    )


def _needed(rows: tuple[Row, ...], sizes: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """1, or [rows, n] with 0 for ops that make logits in columns that need none; and sizes to count such ops with."""
    logits = sizes.get("logits", 1)
    if np.all(logits):
        return 1.0, sizes
    makes = np.array([["logits" in row.op.symbols] for row in rows])
    return np.where(makes & (np.ravel(logits) == 0), 0.0, 1.0), {**sizes, "logits": np.maximum(1, logits)}


def _with_host(priced: Priced, host: Any, counts: Any, spread: Any) -> tuple[Priced, Any]:
    """Share out the time in which the device waits for the host, by what each op costs the host; and that time."""
    total = counts @ host
    waiting = exposed_host(counts @ priced.time_s, total)
    added = host * (waiting / np.where(total > 0, total, 1.0))
    time = priced.time_s + added
    told = replace(
        priced,
        overhead_s=priced.overhead_s + added,
        time_s=time,
        low_s=np.maximum(priced.floor_s, time / spread),
        high_s=time * spread,
    )
    return told, added


def shape_in(row: Row, binding: Binding, q: Quantities, number: int) -> dict[str, Any]:
    """A row's whole shape on one device: every axis that a table may have."""
    shape = {name: binding.size(dim) * share for name, (dim, share) in _dims_on_device(row).items()}
    return shape | {name: _moved(q, name, number) for name in _MOVED}


def _dims_on_device(row: Row) -> dict[str, tuple[Dim, float]]:
    """The axes that the op itself gives, each with the share of it that one device has."""
    shares = {"heads": row.scale.flops, "kv_heads": row.scale.kv}
    if row.op_class == "linear" and row.scale.flops < 1:
        shares["out_features" if row.scale.writes < 1 else "in_features"] = row.scale.flops
    return {name: (dim, shares.get(name, 1)) for name, dim in dims_of(row.op).items()}


_MOVED: dict[str, Callable[[Quantities, int], Any]] = {
    "flops": lambda q, number: sum(values[number] for values in q.flops_by.values()),
    "bytes": lambda q, number: q.weights[number] + q.activations[number] + q.kv[number],
    "weight_bytes": lambda q, number: q.weights[number],
    "kv_bytes": lambda q, number: q.kv[number],
}


def _moved(q: Quantities, axis: str, number: int) -> Any:
    values = _MOVED[axis](q, number)
    return values if len(values) > 1 else float(values[0])
