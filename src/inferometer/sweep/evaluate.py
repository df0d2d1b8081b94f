"""One combination over all its sizes: the vector twin of `predict_graph`, from the same plan and the same memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.frozen import frozen
from inferometer.core.workload import Workload
from inferometer.cost.memory.fit import capacity_of, reserve_of
from inferometer.cost.money import carbon_grams, hourly_price, million_tokens_usd
from inferometer.cost.options import Options
from inferometer.cost.phases import Site, site_of
from inferometer.cost.precision import resolved_precision
from inferometer.cost.ready import Ready, make_ready
from inferometer.cost.request import encodes_prompt
from inferometer.errors import DomainError
from inferometer.sweep.answer import Answer, joined
from inferometer.sweep.grid import Combination
from inferometer.sweep.points import points_of, price_points
from inferometer.sweep.singly import one_by_one
from inferometer.sweep.stage import Stage, absent_stage
from inferometer.sweep.workloads import Asked, asked_of

if TYPE_CHECKING:
    from inferometer.sweep.grid import Chunk, Sizes, Study
    from inferometer.sweep.table import Table

__all__ = ["evaluate", "evaluate_chunk"]


def evaluate_chunk(study: Study, chunk: Chunk) -> list[Answer | Table]:
    sizes = study.sizes.part(chunk.tile)
    return [
        evaluate(study.combination(number), sizes, study.options, details=study.details)
        for number in chunk.combinations
    ]


def evaluate(combination: Combination, sizes: Sizes, options: Options, *, details: bool = False) -> Answer | Table:
    """Every row of a combination. One that cannot be has a reason instead of numbers, as has each row of its own."""
    if options.chunk or options.speculative:
        return one_by_one(combination, sizes, options, details=details)  # the steps differ from row to row
    if "encoder" not in combination.graph.metadata.get("default_sizes", {}):
        return _vector(combination, sizes, options, details=details)
    if not encodes_prompt(combination.graph) or None in sizes.prompt:
        return one_by_one(combination, sizes, options, details=details)
    parts = [_vector(combination, each, options, details=details) for each in sizes.by_prompt()]  # a plan each
    answers = [part for part in parts if isinstance(part, Answer)]
    return joined(answers) if len(answers) == len(parts) else one_by_one(combination, sizes, options, details=details)


def _vector(combination: Combination, sizes: Sizes, options: Options, *, details: bool) -> Answer | Table:
    asked = asked_of(combination, sizes, options)
    try:
        ready = make_ready(
            combination.graph,
            combination.device,
            effects=combination.effects,
            workload=_workload(combination, sizes),
            options=options,
            calibration=combination.calibration,
        )
        if ready.residency.first is None:
            return one_by_one(combination, sizes, options, details=details)
        site = site_of(combination.device, ready.graph, combination.parallel, options)
        return _Evaluation(
            ready=ready, combination=combination, options=options, asked=asked, site=site, details=details
        ).answer()
    except DomainError as error:
        return _refused(combination, asked, str(error), details=details)


def _workload(combination: Combination, sizes: Sizes) -> Workload:
    """What a plan depends on; the prompt where an encoder reads it."""
    prompt = sizes.prompt[0] if encodes_prompt(combination.graph) else None
    return Workload(
        precision=combination.precision, parallel=combination.parallel, image=combination.image, prompt=prompt
    )


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


def _refused(combination: Combination, asked: Asked, reason: str, *, details: bool) -> Answer:
    return Answer(
        shape=asked.shape,
        constants=_constants(combination),
        batch=asked.batch,
        prompt=asked.prompt,
        generate=asked.generate,
        context=asked.context,
        first=absent_stage(details=details),
        step=absent_stage(details=details),
        reasons=(*asked.reasons, np.array(reason, dtype=object)),
    )


@frozen
class _Evaluation:
    """A combination under evaluation."""

    ready: Ready
    combination: Combination
    options: Options
    asked: Asked
    site: Site
    details: bool

    def answer(self) -> Answer:
        asked, device = self.asked, self.combination.device
        capacity, place = capacity_of(device), self.options.place
        price = hourly_price(device, self.combination.parallel.devices, place)
        step_s = self.ready.plan.overheads.step_s
        generative = self.ready.generative
        return Answer(
            shape=asked.shape,
            constants=_constants(self.combination),
            batch=asked.batch,
            prompt=asked.prompt,
            generate=asked.generate,
            context=asked.context,
            first=self._first() if generative else self._forward(),
            step=self._step() if generative else absent_stage(details=self.details),
            unattributed_s=0.0 if step_s is None else self.site.stretch * float(step_s),
            room_bytes=None if capacity is None else capacity - reserve_of(self.combination.effects, device),
            usd_rate=None if price is None else float(million_tokens_usd(price, 1.0)),
            grams_per_j=carbon_grams(1.0, place),
            single=not generative,
            unit=device.unit,
            reasons=asked.reasons,
        )

    def _forward(self) -> Stage:
        found = self._phase("forward", query=self.asked.known_prompt, context=0)
        return found.scaled(self.options.steps or 1)

    def _first(self) -> Stage:
        """What comes before and with the first token; NaN where no prompt is read."""
        asked, host, encodes = self.asked, self.options.host, self.ready.layout.encodes
        done = 0 if encodes else self.options.cached_prefix
        query = np.maximum(1.0, asked.start - done)
        found = self._phase("prefill", query=query, context=done)
        if encodes:
            found = found.after(self._phase("prefill", query=query, context=done, once=True))
        if host.tokenise_s_per_token is not None:
            found = found.with_host(host.tokenise_s_per_token * asked.prompt * asked.batch)
        if host.sampling_s is not None:
            found = found.with_host(host.sampling_s)
        return found.only(~np.isnan(asked.prompt))

    def _step(self) -> Stage:
        """A decode step with what the host does around it; NaN where none is asked for."""
        asked, host = self.asked, self.options.host
        found = self._phase("decode", query=1, context=asked.step_context, last=asked.last_context)
        if host.sampling_s is not None:
            found = found.with_host(host.sampling_s)
        if host.detokenise_s_per_token is not None:
            writes = np.nan_to_num(asked.generate) > 0
            found = found.with_host(np.where(writes, host.detokenise_s_per_token * asked.batch, 0.0))
        return found.only(~np.isnan(asked.context) | (np.nan_to_num(asked.generate) > 1))

    def _phase(self, phase: str, *, query: Any, context: Any, last: Any = None, once: bool = False) -> Stage:
        """The price at `context`, and the memory there or, where a later step needs more of it, at `last`."""
        asked, decodes = self.asked, phase == "decode"
        points = points_of(asked.device_batch, query, context)
        found = price_points(self.ready.plan, self.site, phase, points, once=once, details=self.details)
        held = context if last is None else last
        if held is not context or asked.replica_batch is not asked.device_batch:
            points = points_of(asked.replica_batch, query, held)
        sizes, shape = points
        used = self.ready.residency.use(sizes, first=not decodes).total_bytes
        return replace(found, bytes=np.asarray(used, dtype=float).reshape(shape))
