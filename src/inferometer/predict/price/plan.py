"""A prepared graph on a device: every number that pricing needs, as vectors over the graph's rows.

`Plan.step` prices one step for one workload or, where sizes are arrays, for as many as they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.calibration import Calibration, FormRates, KernelRates, PublishedRates, TableRates
from inferometer.core.device import Device, Link, Sourced
from inferometer.core.engine import Overheads
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, is_generative
from inferometer.core.request import BETWEEN
from inferometer.predict.precision import arithmetic_for, counted_precision, widened_to
from inferometer.predict.price.collectives import (
    Route,
    bandwidth_of,
    chosen_link,
    message_floor,
    message_seconds,
    route_of,
)
from inferometer.predict.price.deviations import (
    NO_EFFECT,
    ModelEffect,
    Standing,
    fitted_prior,
    model_effect,
    standing_of,
)
from inferometer.predict.price.hosts import FORWARD_DOUBT
from inferometer.predict.price.kernel_floors import PeakRates, peak_rates
from inferometer.predict.price.kernels import kernel_curve, kernel_sizes, kernel_tables
from inferometer.predict.price.likeness import features_of
from inferometer.predict.price.price import Levels, levels_of, require_rate
from inferometer.predict.price.priors import prior_for
from inferometer.predict.price.rates import Rates, rates_of
from inferometer.predict.price.step import Pace, StepPrice, ideals, over_rows, price_rows
from inferometer.predict.price.utilisation import step_residual
from inferometer.predict.price.variants import knows_variant
from inferometer.predict.work.classes import MATRIX, class_of, fitted_class
from inferometer.predict.work.prepare import PreparedWork, Quantities

if TYPE_CHECKING:
    from inferometer.predict.work.collect import OpRow


# Of a phase, in a sentence: "Measured models like this one read a prompt 5 % faster than …".
_SAID = {"forward": "run", "prefill": "read a prompt", "decode": "make tokens"}


@frozen
class PricePlan:
    prepared: PreparedWork
    device: Device
    standing: Standing  # with the settings of the run that fitted levels know
    levels: Levels
    peaks: PeakRates
    inverse_peaks: Mapping[str, Any]
    weights_bytes: float
    overheads: Overheads
    calibration: Calibration | None = None
    link: Link | None = None
    overlap: float = 0.0
    notes: tuple[str, ...] = ()
    arithmetic: tuple[str, ...] = ()  # the formats that matrix products are computed in
    effects: Mapping[str, ModelEffect] = field(default_factory=dict)  # by phase, of rows that are priced by the fit
    host_speed: float = 1.0  # over the host that the overheads were measured on
    host_spread: float | None = None  # of a step that waits for it; None: as the calibration says
    stage: int = 1  # devices that share a layer
    streamed: float = 0.0  # the share of the weights that the device cannot hold: its host sends them at every step
    rates: dict[str, Rates] = field(default_factory=dict)
    paces: dict[str, Pace] = field(default_factory=dict)
    parts: dict[Any, Any] = field(default_factory=dict)  # by phase: see `over`

    def step(self, sizes: Mapping[str, Any], phase: str, *, once: bool = False, doubt: bool = True) -> StepPrice:
        """Price a step. `once` looks at the ops that run once a request instead of those of every step.

        Where a column asks for no logits (`sizes["logits"]` is 0), the head of the model is left out: `_head_mask`.
        Without `doubt` nobody asks for intervals: floors and how far ops lie outside of their tables are looked at only
        where they decide the time.
        """
        needed, sizes = _head_mask(self.prepared.rows, sizes)
        quantities = self.prepared.quantities(sizes)
        pace, rates, counts = self.pace(phase), self.rates_in(phase), self.prepared.counts(once=once)
        slower, far = None, 0.0
        if rates.covered:
            slower, far = rates.slower(self.prepared.binding(sizes), quantities, doubt=doubt)
        at_peaks = ideals(quantities, pace.inverse_peaks, pace.inverse_peak, pace.levels, sizes["batch"])
        if rates.curves:  # a calibration has tables or kernels
            slower = self.as_measured(rates, sizes, at_peaks[1:])
        priced, waiting = price_rows(
            quantities,
            pace,
            counts,
            resident=self.resident(quantities) if doubt or self.needs_floor(quantities) else None,
            slower=slower,
            at_peaks=at_peaks,
            spread=rates.spread
            * self.doubt(rates, phase)
            * (1 + far),  # outside of a table's grid the doubt grows with the distance
            links=self.links(quantities, rates),
            needed=needed,
            # Some runtimes run the head whether anybody needs its logits or not: it takes its time, without a floor.
            done=needed if self.prepared.effects.logits == "prompt" else 1.0,
            sizes=sizes,
        )
        if np.ndim(needed):
            quantities = replace(quantities, flops=quantities.flops * needed, bytes=quantities.bytes * needed)
        return StepPrice(
            priced=priced,
            quantities=quantities,
            counts=counts,
            step_s=pace.outside_s(sizes, once=once),
            far=far,
            rates=rates,
            rows=self.prepared.rows,
            starting_s=pace.beside_s(sizes)[1],
            host_s=waiting,
            host_spread=self.host_doubt(phase),
        )

    def host_doubt(self, phase: str) -> float:
        if self.host_spread is None:
            return self.rates_in(phase).host_spread
        return self.host_spread * (FORWARD_DOUBT if phase == "forward" else 1.0)

    def rates_in(self, phase: str) -> Rates:
        if phase not in self.rates:
            prepared, shares = self.prepared, self.device.shares
            # Kept by what decides them, not by plan: a sweep over sizes or links asks for the same rates again.
            self.rates[phase] = rates_of(
                prepared.collected,
                prepared.effects,
                self.standing,
                phase,
                self.calibration,
                prepared.binding({}),
                stated=shares if shares.compute or shares.memory else None,
            )
        return self.rates[phase]

    def pace(self, phase: str) -> Pace:
        if phase not in self.paces:
            rates, overheads = self.rates_in(phase), self.overheads
            effect = self.effects.get(phase, NO_EFFECT)
            # The model effect is of whole models, so it multiplies what was fitted from whole models and nothing else:
            # kernels and probes were timed without any model around them.
            slower = np.where(rates.fitted > 0, effect.times, 1.0)
            captured = phase in overheads.captured  # replayed as one graph: the host starts nothing between kernels
            kernel, host, step, sequence = (
                0.0 if each is None else float(each)
                for each in (
                    overheads.kernel_in(phase),
                    None if captured else overheads.host_in(phase),
                    overheads.step_in(phase),
                    overheads.sequence_s,
                )
            )
            host, step = self._fitted(rates, host, step, effect)
            step += self._loop_s(phase)
            if self.device.unit == "cpu":
                sequence += self._words_s(phase)
            host /= self.host_speed
            # A loop runs the same few lines for each token: the host does not start them as it starts a prompt.
            stated = overheads.host_in(phase)
            again = 1.0 if stated is None or overheads.host_s is None else overheads.host_s.value / stated.value
            factors = {} if self.calibration is None else self.calibration.factors
            self.paces[phase] = Pace(
                inverse_peaks=self.inverse_peaks,
                levels=self.levels,
                unpack=self._unpack(rates),
                compute_share=rates.compute_share / slower,
                compute_ramp_s=rates.compute_ramp_s * slower,
                memory_share=rates.memory_share / slower,
                memory_ramp_s=rates.memory_ramp_s * slower,
                overhead_s=kernel * rates.kernels,
                # What was fitted from published steps counted kernels alone.
                host_s=host * (rates.launches if self._is_fitted(rates) else rates.calls) * slower,
                step_s=step,
                sequence_s=sequence,
                kernels=factors.get(f"kernels.{phase}", 1.0),
                token_overhead_s=kernel * rates.a_token,
                token_host_s=host * again * rates.a_token * slower,
                routed_s=rates.routed / self.levels.bandwidth,
            )
        return self.paces[phase]

    def _loop_s(self, phase: str) -> float:
        """Seconds of the loop around a model in a step: steps were calibrated without it.

        It writes a prompt, reads the new tokens, and goes on.
        """
        if not self._is_looped(phase):
            return 0.0
        around_s = sum(self.overheads.looped_s(part, phase) for part in ("write", "read", BETWEEN))
        return around_s / self.host_speed + self.choosing_s(phase, 0 if self.device.unit == "cpu" else 1)

    def _is_looped(self, phase: str) -> bool:
        return phase in {"prefill", "decode"} and self.calibration is not None and not self.calibration.is_published

    def choosing_s(self, phase: str, sequences: float = 1) -> float:
        """Seconds to choose a token for each sequence, one after the other; a GPU chooses all of them as one."""
        if not self._is_looped(phase):
            return 0.0
        return self.overheads.looped_s("choose", phase) + sequences * self._words_s(phase)

    def _words_s(self, phase: str) -> float:
        """Seconds to look at the words of one sequence."""
        if not self._is_looped(phase):
            return 0.0
        heads = [row.op.outputs[0].shape[-1] for row in self.prepared.rows if "logits" in row.op.symbols]
        words = max((each for each in heads if isinstance(each, int)), default=0)
        return words * self.overheads.looped_s("word", phase)

    def _unpack(self, rates: Rates) -> Any:
        """Rows whose products take as long as unpacking the weights: fitted ones, else the runtime's own."""
        fitted = 0.0 if rates.prior is None else rates.prior.unpack
        stated = self.prepared.effects.unpack
        own = ~rates.tabled * (0.0 if stated is None else stated.value)
        return rates.unpacks * (rates.fitted * fitted + (1 - rates.fitted) * own)

    def doubt(self, rates: Rates, phase: str) -> Any:
        """The additional spread of a fitted row if the model was never measured."""
        known = self.effects.get(phase, NO_EFFECT).known
        if rates.prior is None or known == "known" or not rates.prior.spread:
            return 1.0
        return np.where(rates.fitted > 0, rates.prior.unmeasured[known] / rates.prior.spread, 1.0)

    def _is_fitted(self, rates: Rates) -> bool:
        """Whether the seconds of a launch and of a step are of published steps: this device's were not measured."""
        return rates.prior is not None and (self.calibration is None or self.calibration.is_published)

    def _fitted(self, rates: Rates, host: float, step: float, effect: ModelEffect) -> tuple[float, float]:
        if rates.prior is None or not self._is_fitted(rates):
            return host, step
        step_s = rates.prior.step_s * effect.times
        return rates.prior.host_s if host and self.device.launch_s is None else host, step_s

    def ideals(self, quantities: Quantities, batch: Any) -> tuple[Any, Any]:
        """Seconds of arithmetic and of memory at their peaks, with what the runtime does on top of the ops' work."""
        return ideals(quantities, self.inverse_peaks, sum(self.inverse_peaks.values()), self.levels, batch)[1:]

    def needs_floor(self, quantities: Quantities) -> bool:
        """Whether a price could lie below its floor: factors and effects may be below 1, and links raise floors."""
        return self.may_undercut or bool(self.streamed or quantities.link.any())

    @property
    def may_undercut(self) -> bool:
        return self.calibration is not None or any(effect.times < 1 for effect in self.effects.values())

    def resident(self, quantities: Quantities) -> Any:
        """Bytes that every step reads: where they fit into a cache, nothing has to come from main memory."""
        return self.weights_bytes + over_rows(self.prepared.counts(once=False), quantities.kv)

    def as_measured(self, rates: Rates, sizes: Mapping[str, Any], at_peaks: tuple[Any, Any]) -> Any:
        """The factors that stretch the longer stream of each row to the measured time of its kernel, [2, rows, n].

        `at_peaks` are the seconds of arithmetic and of memory that `ideals` gives.
        """
        longer = np.maximum(*at_peaks)
        slower = np.ones((2, *longer.shape))
        binding, known = self.prepared.binding(sizes), dict[int, Mapping[str, Any]]()
        numbers = [*rates.timed]
        seconds = np.empty((len(numbers), longer.shape[1]))
        for index, (number, alike) in enumerate(rates.timed.items()):
            if alike not in known:
                known[alike] = kernel_sizes(self.prepared.rows[alike], binding)
            taken = rates.curves[number].seconds(self.peaks, known[alike])
            seconds[index] = taken if isinstance(taken, float) else np.ravel(taken)
        # A femtosecond is far below any op: it only keeps a row without work from dividing by nothing.
        slower[:, numbers] = seconds / np.maximum(longer[numbers], 1e-15)
        return slower

    def links(self, q: Quantities, rates: Rates | None = None) -> Callable[[Any], Any] | None:
        """A function for the seconds on links, which raises their floors in place; None if nothing travels."""
        return partial(self._links, q, rates) if self.streamed or q.link.any() else None

    def _links(self, q: Quantities, rates: Rates | None, floor: Any) -> Any:
        seconds = np.zeros_like(floor)
        curves = {} if rates is None else rates.curves
        for number, row in enumerate(self.prepared.rows):
            if row.op_class == "collective":
                seconds[number], floor[number] = self._message(row, q.link[number])
                if number in curves:
                    measured = curves[number].seconds(self.peaks, {"bytes": q.link[number]})
                    # Kernels of messages were timed alone; what runs beside other work is not waited for.
                    measured = np.maximum(floor[number], measured * (1 - self.overlap))
                    seconds[number] = self._as_measured(row, measured, seconds[number])
            elif row.offloaded or self.streamed:
                seconds[number], least = self._streamed(
                    q.link[number] if row.offloaded else self.streamed * q.weights[number]
                )
                floor[number] = np.maximum(floor[number], least)
        return seconds

    def _as_measured(self, row: OpRow, measured: Any, counted: Any) -> Any:
        """A message as it was measured over the devices' own link, which is the least where it goes a slower way."""
        route, own = self._route(row), chosen_link(self.device)
        if own is None or own.bandwidth_bytes_per_s is None:
            return counted
        if route.within == own and not self._leaves(row, route):
            return measured
        return np.maximum(measured, counted) if bandwidth_of(route.within) <= bandwidth_of(own) else counted

    def _route(self, row: OpRow) -> Route:
        """The links of a message: each stage of a pipeline is as large as the largest group that sums."""
        return route_of(self.device, self.link, self._stage(row) * self.prepared.terms.stages)

    def _stage(self, row: OpRow) -> int:
        return self.stage if row.op["function"] == "send" else max(self.stage, row.op["devices"])

    def _leaves(self, row: OpRow, route: Route) -> float:
        """The share of such messages that leave a machine."""
        if row.op["function"] == "send":
            return route.crossings(self._stage(row), self.prepared.terms.stages)
        return float(route.between is not None and row.op["devices"] > route.machine)

    def _message(self, row: OpRow, nbytes: Any) -> tuple[Any, Any]:
        """Seconds of a message, and their floor.

        Of devices in several machines each machine sums, gathers or scatters for itself, and then each device does so
        with its share of the bytes with those in its place elsewhere. With links of one rate that sends as much as one
        ring of all does; it is never taken to be quicker than that ring.
        """
        route, share = self._route(row), self._link_share(self.device.shares.network)
        function, devices, exposed = row.op["function"], row.op["devices"], 1 - self.overlap

        def both(count: int, sent: Any, link: Link) -> Any:
            time = message_seconds(function, count, sent, link, share=share, overlap=self.overlap)
            return np.array([time, message_floor(function, count, sent, link) * exposed])

        near, leaves = both(devices, nbytes, route.within), self._leaves(row, route)
        if leaves and route.between is not None:
            if function == "send":
                near = np.maximum(near, leaves * both(2, nbytes, route.between) + (1 - leaves) * near)
            else:
                machines = -(-devices // route.machine)
                each = -(-devices // machines)
                far = both(machines, nbytes / each, route.between)
                near = np.maximum(near, both(each, nbytes, route.within) + far)
        return near[0], near[1]

    def message(self, row: OpRow, function: str, nbytes: Any) -> Any:
        """Seconds of a collective (`function`) of `nbytes` among the devices of a collective's row."""
        other = replace(row, op=replace(row.op, attributes={**row.op.attributes, "function": function}))
        curve = kernel_curve(other, "decode", kernel_tables(self.calibration), self.prepared.binding({"batch": 1}))
        counted = self._message(other, nbytes)[0]
        if curve is None:
            return counted
        return self._as_measured(other, curve.seconds(self.peaks, {"bytes": nbytes}), counted)

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
        # The class's share is of links between accelerators; a unit without a prior is counted at the link's bandwidth.
        prior = prior_for(self.device.unit, ("collective",))
        return 1.0 if prior is None or prior.link_share is None else float(prior.link_share)


def streamed_share(device: Device, weights_bytes: float) -> float:
    """The share of the weights that a device without a memory beside its chip has to be sent at every step."""
    room = device.memory.room if device.memory else None
    if not device.streams_weights or room is None or weights_bytes <= float(room):
        return 0.0
    return 1 - float(room) / weights_bytes


def _streaming(device: Device, streamed: float) -> tuple[str, ...]:
    if not streamed or device.host_link is None:
        return ()
    link = device.host_link.title
    return (f"{streamed:.0%} of the weights do not fit on {device.name}: they cross {link} at every inference.",)


def standing_in(prepared: PreparedWork, device: Device, variants: tuple[str, ...] = ()) -> Standing:
    """A graph's standing on a device among the levels, with the format of most of its weights.

    A setting counts only if published steps of this engine name it. Steps that do not were run in many ways that
    nobody wrote down, with all cores among them.
    """
    precision = counted_precision(prepared.graph, prepared.terms.precision)
    kind = "convolution" if any(row.op.kind == "convolution" for row in prepared.rows) else "linear"
    name = widened_to(kind, precision, device, prepared.effects)
    precision = precision if name is None else replace(precision, weights=name, activations=name)
    standing, tokens = standing_of(device, prepared.effects.name, precision), is_generative(prepared.graph)
    return replace(
        standing, variants=tuple(variant for variant in variants if knows_variant(standing, variant, tokens=tokens))
    )


def plan_of(  # noqa: PLR0913 - what a plan is made of
    prepared: PreparedWork,
    device: Device,
    *,
    weights_bytes: float,
    calibration: Calibration | None = None,
    link: Link | None = None,
    overlap: float = 0.0,
    model: str | None = None,
    variants: tuple[str, ...] = (),
    host_speed: float = 1.0,
    host_spread: float | None = None,
    ideal: bool = False,
) -> PricePlan:
    """Match the graph with the device: the peak of each row's arithmetic, the memory, the runtime's overheads.

    `ideal` asks for ideal times alone: model effects are then not looked up.
    """
    if not 0 <= overlap <= 1:
        raise DomainError(f"overlap is a share from 0 to 1, and not {overlap!r}.")
    levels = levels_of(device)
    measured = calibration is not None and not calibration.is_published
    narrower = 1.0 if measured else prepared.effects.narrower(device)  # a calibration's shares have it in them
    inverse, arithmetic, notes = _inverse_peaks(prepared, device, narrower)
    streamed = streamed_share(device, weights_bytes)
    notes = (*notes, *_stated_shares(device), *_streaming(device, streamed))
    effects: dict[str, ModelEffect] = {}
    standing = standing_in(prepared, device, variants)
    if not ideal and (calibration is None or calibration.is_published):
        phases = ("prefill", "decode") if is_generative(prepared.graph) else ("forward",)
        features = cache(partial(features_of, prepared, standing.activations))
        effects = {phase: model_effect(model or prepared.graph.name, standing, phase, features) for phase in phases}
        notes = (*notes, *_fitted_by(standing, prepared, effects, calibration))
    if calibration is not None:
        notes = (*notes, _calibrated_by(calibration), *calibration.notes)
    groups = (row.op for row in prepared.rows if row.op_class == "collective")
    return PricePlan(
        prepared=prepared,
        device=device,
        standing=standing,
        levels=levels,
        peaks=peak_rates(device),
        inverse_peaks=inverse,
        weights_bytes=weights_bytes,
        overheads=_overheads(prepared, device, calibration),
        calibration=calibration,
        link=link,
        overlap=overlap,
        notes=notes,
        arithmetic=arithmetic,
        effects=effects,
        host_speed=host_speed,
        host_spread=host_spread,
        stage=max((op["devices"] for op in groups if op["function"] != "send"), default=1),
        streamed=streamed,
    )


def _fitted_by(
    standing: Standing, prepared: PreparedWork, effects: Mapping[str, ModelEffect], calibration: Calibration | None
) -> list[str]:
    """The notes about the shipped fit and the model effects, for a graph that has ops of a fitted class."""
    phase = list(effects)[-1]
    prior = fitted_prior(standing, phase)
    if prior is None or not any(fitted_class(row.op, phase) in prior.classes for row in prepared.rows):
        return []
    notes = [note for name, effect in effects.items() if (note := effect.note(_SAID[name]))]
    if calibration is not None:
        return notes
    return [f"Nothing was measured here: the rates are {prior.source}.", *notes]


def _calibrated_by(calibration: Calibration) -> str:
    runtime, device = calibration.runtime, calibration.device
    match calibration.rates:
        case PublishedRates():
            return (
                f"Fitted from {len(calibration.fitted_on)} published models of {device} with {runtime}, "
                f"{calibration.dtype}; eight in ten left-out models lay between low and high."
            )
        case FormRates():
            return (
                f"Priced by the forms that kernels of {runtime} follow on {device}: half of them are within a sixth of "
                "theirs."
            )
        case KernelRates():
            return f"Priced by kernels of {runtime} that were measured on {device}."
        case TableRates():
            return (
                f"Calibrated on {calibration.created[:10]} with {runtime} on {device}, {calibration.dtype}; eight in "
                "ten steps lie between low and high."
            )


def _inverse_peaks(
    prepared: PreparedWork, device: Device, narrower: float
) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """For each format that work is counted in, seconds an operation on each row: at the peak, or `narrower` than it.

    Also the formats that matrix products are computed in, and what is to be said.
    """
    inverse = {key.removeprefix("flops:"): np.zeros((len(prepared.rows), 1)) for key in prepared.keys}
    binding = prepared.binding({})

    def stored(op: Op) -> str:
        return binding.format(op.weights[0]).name if op.weights else ""

    notes: dict[str, None] = {}
    arithmetic: dict[str, None] = {}
    for counted in prepared.arithmetic:
        found = arithmetic_for(counted.op, counted.key, binding, device, prepared.effects)
        if found.name is not None:
            peak = require_rate(device.peaks[found.name], f"The {found.name} peak of {device.name}")
            ops = [prepared.rows[number].op for number in counted.rows]
            formats = [(stored(op) or counted.key, counted.key, found.name) for op in ops]
            plainly = [prepared.effects.plainly(op, *given) for op, given in zip(ops, formats, strict=True)]
            fewer = [prepared.effects.fewer_products(op) for op in ops]
            inverse[counted.key][counted.rows, 0] = narrower * np.array(plainly) / (peak * np.array(fewer))
            if max(plainly) > 1:
                joins = f"{counted.op.kind}:joined" in prepared.effects.reference
                which = "in front of a join " if joins and any(op.get("joined") for op in ops) else ""
                slow = f"{which}are computed in floats by plain loops of {prepared.effects.name}"
                slowest = int(np.argmax(plainly))
                named = f"{counted.op.kind} ops of {formats[slowest][0]}"
                named = "Fourier transforms" if ops[slowest].get("function") == "fft" else named
                notes[f"{named} {slow}."] = None
            if device.peaks[found.name].origin == "prior":
                notes[_estimated_peak(device, found.name)] = None
            if class_of(counted.op) in MATRIX:
                arithmetic[found.name] = None
        if found.note:
            notes[found.note] = None
    if narrower > 1 and prepared.effects.vectors is not None:
        bits = f"{prepared.effects.vectors.value:.0f} bits"
        notes[f"{prepared.effects.name} computes in vectors of {bits}, 1/{narrower:g} of this device's widest."] = None
    return inverse, tuple(arithmetic), tuple(notes)


def _stated_shares(device: Device) -> list[str]:
    """The note about stated utilisation."""
    named = {"peaks": device.shares.compute, "memory bandwidth": device.shares.memory}
    known = {what: share for what, share in named.items() if share is not None}
    stated = " and ".join(f"{100 * share.value:.3g} % of its {what} ({share.source})" for what, share in known.items())
    return [f"{device.name} reaches {stated} where nothing was measured, as its row states."] if stated else []


def _estimated_peak(device: Device, name: str) -> str:
    """The note about an estimated peak: the floor is then an estimate, too."""
    peak = device.peaks[name]
    return f"The {name} peak of {device.name} is an estimate: {peak.note or peak.source}."


def _overheads(prepared: PreparedWork, device: Device, calibration: Calibration | None) -> Overheads:
    """The runtime's, with what the calibration measured (kernel, host, step) in their place.

    If a kernel is a host's work around modules, its time in other networks says nothing about decoders.
    """
    stated = prepared.effects.on(device.unit).at(device)
    # The launch time of the device's own host is nearer than the engine's figure, which is another host's.
    if device.launch_s is not None and stated.host_s is not None:
        stated = replace(stated, host_s=device.launch_s)
    measured = {} if calibration is None else calibration.overheads
    apart = {name: seconds for name, seconds in measured.items() if name.endswith((".prefill", ".decode"))}
    around_modules = stated.call_s is not None and stated.kernel_s is not None
    if calibration is not None and around_modules and step_residual(calibration, "decode") is None:
        apart = {f"kernel.{phase}": stated.kernel_s for phase in ("prefill", "decode") if stated.kernel_s}
    return replace(  # what was measured here counts before what the engine's row states
        stated,
        apart=apart,
        kernel_s=measured.get("kernel", stated.kernel_s),
        host_s=measured.get("host", stated.host_s),
        step_s=measured.get("step", stated.step_s),
        sequence_s=measured.get("sequence", stated.sequence_s),
    )


def _head_mask(rows: tuple[OpRow, ...], sizes: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """A mask over [rows, columns], 0 for the head of the model in columns without logits; or 1 where all have some.

    Also the sizes with at least one position of logits, so that the head can be counted.
    """
    logits = sizes.get("logits", 1)
    if (isinstance(logits, int) and logits) or np.all(logits):
        return 1.0, sizes
    # A size of 0 would count no work at all, and shares of nothing: the head is counted for one position, then masked.
    makes = np.array([["logits" in row.op.symbols] for row in rows])
    return np.where(makes & (np.ravel(logits) == 0), 0.0, 1.0), {**sizes, "logits": np.maximum(1, logits)}
