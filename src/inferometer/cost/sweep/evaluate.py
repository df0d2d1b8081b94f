"""One combination over all its sizes: the vector twin of `predict_graph`, from the same plan and the same memory."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.workload import Workload
from inferometer.cost.energy import power_model
from inferometer.cost.fit import capacity_of, reserve_of
from inferometer.cost.money import carbon_grams, hourly_price, million_tokens_usd
from inferometer.cost.options import Options
from inferometer.cost.parallel import stage_share
from inferometer.cost.phases import Site
from inferometer.cost.precision import resolved_precision
from inferometer.cost.ready import Ready, make_ready
from inferometer.cost.sweep.answer import Answer
from inferometer.cost.sweep.closed import closed_form, step_sums
from inferometer.cost.sweep.grid import Combination
from inferometer.cost.sweep.singly import one_by_one
from inferometer.cost.sweep.workloads import Asked, asked_of
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from inferometer.cost.sweep.closed import Sums
    from inferometer.cost.sweep.grid import Chunk, Sizes, Study
    from inferometer.cost.sweep.table import Table

__all__ = ["evaluate", "evaluate_chunk"]


_one_at_a_time = Lock()  # a Dask worker has several threads, and they share what was made ready


def evaluate_chunk(study: Study, chunk: Chunk) -> list[Answer | Table]:
    sizes = study.sizes.part(chunk.tile)
    return [evaluate(study.combination(number), sizes, study.options) for number in chunk.combinations]


def evaluate(combination: Combination, sizes: Sizes, options: Options) -> Answer | Table:
    """Every row of a combination. One that cannot be has a reason instead of numbers, as has each row of its own."""
    graph, device = combination.graph, combination.device
    asked = asked_of(combination, sizes, options)
    workload = Workload(precision=combination.precision, parallel=combination.parallel, image=combination.image)
    if "encoder" in graph.metadata.get("default_sizes", {}) or options.chunk or options.speculative:
        return one_by_one(combination, sizes, options)  # these change the plan, or the steps, from row to row
    try:
        with _one_at_a_time:
            ready = make_ready(
                graph,
                device,
                effects=combination.effects,
                workload=workload,
                options=options,
                calibration=combination.calibration,
            )
        if ready.residency.timeline is None:
            return one_by_one(combination, sizes, options)
        return _Evaluation(ready=ready, combination=combination, options=options, asked=asked).answer()
    except DomainError as error:
        return _refused(combination, asked, str(error))


def _constants(combination: Combination) -> dict[str, Any]:
    precision, parallel = resolved_precision(combination.graph, combination.precision), combination.parallel
    return {
        "model": combination.graph.name,
        "device": combination.device.name,
        "runtime": combination.effects.name,
        "weights": precision.weights,
        "activations": precision.activations,
        "kv": precision.kv,
        "tp": parallel.tp,
        "pp": parallel.pp,
        "ep": parallel.ep,
        "dp": parallel.dp,
        "image": np.nan if combination.image is None else combination.image,
    }


def _refused(combination: Combination, asked: Asked, reason: str) -> Answer:
    nothing = np.array(np.nan)
    return Answer(
        shape=asked.shape,
        constants=_constants(combination),
        batch=asked.batch,
        prompt=asked.prompt,
        generate=asked.generate,
        context=asked.context,
        first_s=nothing,
        step_s=nothing,
        first_j=nothing,
        step_j=nothing,
        first_bytes=nothing,
        step_bytes=nothing,
        reasons=(*asked.reasons, np.array(reason, dtype=object)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    """Seconds and joules of a phase at every point it depends on."""

    time_s: Any
    energy_j: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation:
    """A combination under evaluation."""

    ready: Ready
    combination: Combination
    options: Options
    asked: Asked

    @property
    def site(self) -> Site:
        """As in `predict_graph`: through p stages m micro-batches take m + p − 1 times the longest."""
        parallel, micro = self.combination.parallel, self.options.micro_batches
        stretch = float(micro)
        if parallel.pp > 1:
            stretch = (micro + parallel.pp - 1) * stage_share(self.ready.graph, parallel.pp)
        busy = min(1.0, micro / (parallel.pp * stretch))
        return Site(power=power_model(self.combination.device), devices=parallel.devices, stretch=stretch, busy=busy)

    @property
    def step_s(self) -> float:
        """Spent once a step, on no op."""
        stated = self.ready.plan.overheads.step_s
        return 0.0 if stated is None else self.site.stretch * float(stated)

    def answer(self) -> Answer:
        asked, device = self.asked, self.combination.device
        capacity, place = capacity_of(device), self.options.place
        price = hourly_price(device, self.combination.parallel.devices, place)
        first, step = (self._forward(), None) if not self.ready.generative else (self._first(), self._step())
        nothing = np.array(np.nan)
        return Answer(
            shape=asked.shape,
            constants=_constants(self.combination),
            batch=asked.batch,
            prompt=asked.prompt,
            generate=asked.generate,
            context=asked.context,
            first_s=first.time_s,
            step_s=nothing if step is None else step.time_s,
            first_j=first.energy_j,
            step_j=nothing if step is None else step.energy_j,
            first_bytes=self._bytes(query=asked.known_prompt, context=0),
            step_bytes=nothing if step is None else self._bytes(query=1, context=asked.last_context),
            first_unattributed_s=self.step_s,
            step_unattributed_s=self.step_s,
            room_bytes=None if capacity is None else capacity - reserve_of(self.combination.effects, device),
            usd_rate=None if price is None else float(million_tokens_usd(price, 1.0)),
            grams_per_j=carbon_grams(1.0, place),
            single=not self.ready.generative,
            unit=device.unit,
            reasons=asked.reasons,
        )

    def _forward(self) -> _Priced:
        found = self._phase("forward", query=self.asked.known_prompt, context=0)
        steps = self.options.steps or 1
        return _Priced(time_s=steps * found.time_s, energy_j=steps * found.energy_j)

    def _first(self) -> _Priced:
        """What comes before and with the first token; NaN where no prompt is read."""
        done = 0 if self.ready.layout.encodes else self.options.cached_prefix
        query = np.maximum(1.0, self.asked.known_prompt - done)
        found = self._phase("prefill", query=query, context=done)
        time, energy = found.time_s, found.energy_j
        if self.ready.layout.encodes:
            encoded = self._phase("prefill", query=query, context=done, once=True)
            time, energy = encoded.time_s + time, encoded.energy_j + energy
        host = self.options.host
        if host.tokenise_s_per_token is not None:
            time = host.tokenise_s_per_token * self.asked.prompt * self.asked.batch + time
        time = time + (host.sampling_s or 0.0)
        return _Priced(time_s=np.where(np.isnan(self.asked.prompt), np.nan, time), energy_j=energy)

    def _step(self) -> _Priced:
        """A decode step with what the host does around it; NaN where none is asked for."""
        asked, host = self.asked, self.options.host
        found = self._phase("decode", query=1, context=asked.step_context)
        time = found.time_s + (host.sampling_s or 0.0)
        if host.detokenise_s_per_token is not None:
            writes = np.nan_to_num(asked.generate) > 0
            time = time + np.where(writes, host.detokenise_s_per_token * asked.batch, 0.0)
        decodes = ~np.isnan(asked.context) | (np.nan_to_num(asked.generate) > 1)
        return _Priced(time_s=time if decodes.all() else np.where(decodes, time, np.nan), energy_j=found.energy_j)

    def _phase(self, phase: str, *, query: Any, context: Any, once: bool = False) -> _Priced:
        plan, (sizes, shape) = self.ready.plan, _points(self.asked.device_batch, query, context)
        sums = step_sums(plan, closed_form(plan, phase, once=once), sizes, phase, once=once)
        time = self.site.stretch * sums.time_s
        return _Priced(time_s=time.reshape(shape), energy_j=_joules(self.site, time, sums).reshape(shape))

    def _bytes(self, *, query: Any, context: Any) -> Any:
        sizes, shape = _points(self.asked.replica_batch, query, context)
        return np.asarray(self.ready.residency.use(sizes).total_bytes, dtype=float).reshape(shape)


def _joules(site: Site, time: Any, sums: Sums) -> Any:
    """Energy of all devices. Each waits for the host, and for its turn in a pipeline."""
    if site.power is None:
        return np.full(len(time), np.nan)
    idle = (1 - site.busy) * time + site.busy * site.stretch * sums.waiting_s
    computing = site.busy * site.stretch * sums.computing_s
    return site.devices * site.power.joules(time_s=time, computing_s=computing, waiting_s=idle)


def _points(batch: Any, query: Any, context: Any) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Sizes as vectors over the points that they span together, and the axes of those. Numbers stay numbers."""
    shape = np.broadcast_shapes(np.shape(batch), np.shape(query), np.shape(context))
    named = {"batch": batch, "query": query, "context": context}
    sizes = {name: np.broadcast_to(value, shape).ravel() if np.ndim(value) else value for name, value in named.items()}
    return {**sizes, "logits": 1}, shape
