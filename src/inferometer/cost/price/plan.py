"""A prepared graph on a device: every number that pricing needs, as vectors over the graph's rows.

`Plan.step` prices one step for one workload or, where sizes are arrays, for as many as they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from inferometer.core.calibration import Calibration
from inferometer.core.device import Device, Link, Origin, Sourced
from inferometer.core.engine import Overheads
from inferometer.cost.precision import arithmetic_for
from inferometer.cost.price.collectives import between_devices, message_floor, message_seconds
from inferometer.cost.price.price import Levels, levels_of, require_rate
from inferometer.cost.price.priors import prior_for
from inferometer.cost.price.rates import Rates, rates_of
from inferometer.cost.price.step import Pace, Step, ideals, over_rows, price_rows
from inferometer.cost.work.classes import MATRIX, class_of
from inferometer.cost.work.prepare import Prepared, Quantities
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.cost.work.collect import OpRow


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
    arithmetic: tuple[str, ...] = ()  # the formats that matrix products are computed in
    rates: dict[str, Rates] = field(default_factory=dict)
    paces: dict[str, Pace] = field(default_factory=dict)

    def step(self, sizes: Mapping[str, Any], phase: str, *, once: bool = False, doubt: bool = True) -> Step:
        """Price a step. `once` looks at the ops that run once a request instead of those of every step.

        Columns without logits (`sizes["logits"]` of 0) leave out the ops that make them, unless the runtime does not.
        Without `doubt` nobody asks for intervals: floors and how far ops lie outside of their tables are looked at only
        where they decide the time.
        """
        needed, sizes = _needed(self.prepared.rows, sizes)
        quantities = self.prepared.quantities(sizes)
        pace, rates, counts = self.pace(phase), self.rates_in(phase), self.prepared.counts(once=once)
        slower, far = None, 0.0
        if rates.covered:
            slower, far = rates.slower(self.prepared.binding(sizes), quantities, doubt=doubt)
        priced, waiting = price_rows(
            quantities,
            pace,
            counts,
            resident=self.resident(quantities) if doubt or self.needs_floor(quantities) else None,
            slower=slower,
            spread=rates.spread * (1 + far),  # outside of a table's grid the doubt grows with the distance
            links=self.links(quantities),
            needed=needed,
            done=needed if self.prepared.effects.logits == "prompt" else 1.0,
        )
        if np.ndim(needed):
            quantities = replace(quantities, flops=quantities.flops * needed, bytes=quantities.bytes * needed)
        return Step(
            priced=priced,
            quantities=quantities,
            counts=counts,
            step_s=0.0 if once else pace.step_s,
            far=far,
            rates=rates,
            rows=self.prepared.rows,
            host_s=waiting,
        )

    def rates_in(self, phase: str) -> Rates:
        if phase not in self.rates:
            prepared, unit = self.prepared, self.device.unit
            self.rates[phase] = rates_of(prepared.collected, prepared.effects, unit, phase, self.calibration)
        return self.rates[phase]

    def pace(self, phase: str) -> Pace:
        if phase not in self.paces:
            rates, overheads = self.rates_in(phase), self.overheads
            compute_share, compute_ramp_s = self._stated(rates, "compute")
            memory_share, memory_ramp_s = self._stated(rates, "memory")
            captured = phase in overheads.captured
            kernel, host, step = (
                0.0 if each is None else float(each)
                for each in (overheads.kernel_s, None if captured else overheads.host_s, overheads.step_s)
            )
            self.paces[phase] = Pace(
                inverse_peaks=self.inverse_peaks,
                levels=self.levels,
                compute_share=compute_share,
                compute_ramp_s=compute_ramp_s,
                memory_share=memory_share,
                memory_ramp_s=memory_ramp_s,
                overhead_s=kernel * rates.launches,
                host_s=host * rates.launches,
                step_s=step,
            )
        return self.paces[phase]

    def _stated(self, rates: Rates, stream: Literal["compute", "memory"]) -> tuple[Any, Any]:
        """The share of a peak that each row reaches, and its ramp: what the device's row states instead of a prior."""
        share, ramp = getattr(rates, f"{stream}_share"), getattr(rates, f"{stream}_ramp_s")
        stated = getattr(self.device.shares, stream)
        if stated is None:
            return share, ramp
        return np.where(rates.tabled, share, float(stated)), np.where(rates.tabled, ramp, 0.0)

    def origins_in(self, phase: str) -> tuple[Origin, ...]:
        """Where the rates of each row come from."""
        rates, shares = self.rates_in(phase), self.device.shares
        stated = shares.compute or shares.memory
        if stated is None:
            return rates.origins
        return tuple(
            origin if tabled else stated.origin
            for origin, tabled in zip(rates.origins, rates.tabled[:, 0].tolist(), strict=True)
        )

    def ideals(self, quantities: Quantities) -> tuple[Any, Any]:
        """Seconds of arithmetic and of memory at their peaks, with what the runtime does on top of the ops' work."""
        return ideals(quantities, self.inverse_peaks, self.levels)[1:]

    def needs_floor(self, quantities: Quantities) -> bool:
        """Whether a price could lie below its floor: a calibration's factors may be below 1, and links raise floors."""
        return self.calibration is not None or bool(quantities.link.any())

    def resident(self, quantities: Quantities) -> Any:
        """Bytes that every step reads: where they fit into a cache, nothing has to come from main memory."""
        return self.weights_bytes + over_rows(self.prepared.counts(once=False), quantities.kv)

    def links(self, q: Quantities) -> Callable[[Any], Any] | None:
        """What gives the seconds on links and raises their floors in place; None where nothing travels."""
        return partial(self._links, q) if q.link.any() else None

    def _links(self, q: Quantities, floor: Any) -> Any:
        seconds = np.zeros_like(floor)
        for number, row in enumerate(self.prepared.rows):
            if row.op_class == "collective":
                seconds[number], floor[number] = self._message(row, q.link[number])
            elif row.offloaded:
                seconds[number], least = self._streamed(q.link[number])
                floor[number] = np.maximum(floor[number], least)
        return seconds

    def _message(self, row: OpRow, nbytes: Any) -> tuple[Any, Any]:
        link, share = between_devices(self.device, self.link), self._link_share(self.device.shares.network)
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
        return ideal / self._link_share(self.device.shares.host), ideal

    def _link_share(self, stated: Sourced | None) -> float:
        """The share of a link's bandwidth that messages reach: the device's own, else its class's."""
        if stated is not None:
            return float(stated)
        prior = prior_for(self.device.unit, ("collective",))
        return 1.0 if prior is None or prior.link_share is None else float(prior.link_share)


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
    inverse, arithmetic, notes = _inverse_peaks(prepared, device)
    notes = (*notes, *_stated_shares(device))
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
        arithmetic=arithmetic,
    )


def _calibrated_by(calibration: Calibration) -> str:
    return (
        f"Calibrated on {calibration.created[:10]} with {calibration.runtime} on {calibration.device}, "
        f"{calibration.dtype}; eight in ten steps lie between low and high."
    )


def _inverse_peaks(prepared: Prepared, device: Device) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """For each format that work is counted in, seconds an operation on each row.

    Also the formats that matrix products are computed in, and what is to be said.
    """
    inverse = {key.removeprefix("flops:"): np.zeros((len(prepared.rows), 1)) for key in prepared.keys}
    binding = prepared.binding({})
    notes: dict[str, None] = {}
    arithmetic: dict[str, None] = {}
    for counted in prepared.arithmetic:
        found = arithmetic_for(counted.op, counted.key, binding, device, prepared.effects)
        if found.name is not None:
            peak = require_rate(device.peaks[found.name], f"The {found.name} peak of {device.name}")
            inverse[counted.key][counted.rows, 0] = 1 / peak
            if device.peaks[found.name].origin == "prior":
                notes[_estimated_peak(device, found.name)] = None
            if class_of(counted.op) in MATRIX:
                arithmetic[found.name] = None
        if found.note:
            notes[found.note] = None
    return inverse, tuple(arithmetic), tuple(notes)


def _stated_shares(device: Device) -> list[str]:
    """What is said where a device's own row states what it reaches of its peaks."""
    named = {"peaks": device.shares.compute, "memory bandwidth": device.shares.memory}
    known = {what: share for what, share in named.items() if share is not None}
    stated = " and ".join(f"{100 * share.value:.3g} % of its {what} ({share.source})" for what, share in known.items())
    return [f"{device.name} reaches {stated} where nothing was measured, as its row states."] if stated else []


def _estimated_peak(device: Device, name: str) -> str:
    """What is said where a peak is an estimate and not the maker's figure: the floor is one, too."""
    peak = device.peaks[name]
    return f"The {name} peak of {device.name} is an estimate: {peak.note or peak.source}."


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


def _needed(rows: tuple[OpRow, ...], sizes: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """1, or [rows, n] with 0 for ops that make logits in columns that need none; and sizes to count such ops with."""
    logits = sizes.get("logits", 1)
    if np.all(logits):
        return 1.0, sizes
    makes = np.array([["logits" in row.op.symbols] for row in rows])
    return np.where(makes & (np.ravel(logits) == 0), 0.0, 1.0), {**sizes, "logits": np.maximum(1, logits)}
