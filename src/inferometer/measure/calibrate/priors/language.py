"""Published speeds of language models → cases: prefill, decoding and whole requests, counted as predictions are.

A request is its prefill and all of its decoding steps in one case; the step in the middle of a generation stands for
all of them, because a step's time grows evenly with its context. An engine that splits the layers among several cards
runs a sequence through one after the other, and takes as long as one card that held them all, but for long prompts,
parts of which are under way at once. Any other engine splits each layer; what its devices tell each other is part of
what the level of such runs has learned.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, is_generative
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.known.engines import known_engine
from inferometer.measure.calibrate.priors.cases import CaseReading, device_as_run, has_device, no_engine
from inferometer.measure.calibrate.priors.stack import StackCase
from inferometer.predict.ask import model_graph
from inferometer.predict.options import Options
from inferometer.predict.price.plan import PricePlan, plan_of, standing_in
from inferometer.predict.ready import Layout, make_layout
from inferometer.predict.work.classes import FREE, PLACE, fitted_class

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inferometer.core.device import Device
    from inferometer.core.engine import EngineDescriptor
    from inferometer.known.atlas import PublishedMeasurement

QUANTITIES = frozenset({"prefill", "decode", "request", "tokens"})
_TYPICAL_CONTEXT = 256  # of a chat, where a table states none
_ONE_BY_ONE = frozenset({"decode", "request"})  # what a sequence takes through layers that are split among cards
_MICRO_BATCH = 512  # tokens of a prompt that llama.cpp sends from card to card at once
_VARIANTS = ("form", "decoding", "fork")
_SMALL_HOST = re.compile(r"(?i)(?:raspberry )?pi\b")  # a card on one lane of a Raspberry Pi waits for its host


@frozen
class Steps:
    """A run of alike steps of a request, `times` long, priced at the middle step's context."""

    phase: str
    query: int
    context: float
    times: float


def steps_of(row: PublishedMeasurement, reads: int | None = None) -> tuple[Steps, ...]:
    """The steps whose time a row's seconds are. An engine that `reads` a number of tokens at a time pads the last."""
    before, prompt, generate = row.context or 0, row.prompt or 0, row.generate or 0
    if row.quantity == "decode":
        unstated = row.context is None and row.generate is None
        context = _TYPICAL_CONTEXT if unstated else before + generate / 2
        return (Steps(phase="decode", query=1, context=context, times=1),)
    chunk = reads or min(int(row.settings.get("chunk", prompt)), prompt)
    whole = -(-prompt // chunk)
    read = whole * chunk if reads else prompt
    context = before + (read - read / whole) / 2
    reading = Steps(phase="prefill", query=-(-read // whole), context=context, times=whole)
    if row.quantity == "prefill":
        return (reading,)
    return reading, Steps(phase="decode", query=1, context=prompt + generate / 2, times=max(1, generate - 1))


def sequences_of(row: PublishedMeasurement) -> int:
    return row.batch or row.concurrency or 1


def seconds_of(row: PublishedMeasurement) -> float:
    """The seconds of all of its steps: a token of a busy system is one of many."""
    if row.quantity == "tokens":
        return float(row.seconds * sequences_of(row) * (row.generate or 1))
    return float(row.seconds)


def language_cases(rows: Iterable[PublishedMeasurement]) -> CaseReading:
    """The cases of rows that read or make tokens. What cannot be asked is counted by its reason."""
    left: Counter[str] = Counter()
    cases, counted = [], _Counted()
    for row in rows:
        reason = _not_asked(row)
        if reason is None:
            try:
                cases.append(counted.case(row))
            except (InferometerError, OverflowError, ValueError) as error:
                reason = f"{row.model}: {error}".partition("\n")[0]
        if reason is not None:
            left[reason] += 1
    return CaseReading(cases=tuple(cases), left=left)


def _not_asked(row: PublishedMeasurement) -> str | None:  # noqa: PLR0911 - one reason after the other
    if row.quantity not in QUANTITIES:
        return f"{row.quantity} is no speed of tokens"
    if row.model is None:
        return f"the model {row.model_published} has no graph here"
    if row.unit == "cpu+gpu":
        return "a CPU and a GPU shared the layers"
    if row.unit == "cpu" and row.count != 1:
        return "several machines shared the layers over a network"
    if not has_device(row):
        return f"the device {row.device_published} is not in the catalog"
    engine = None if row.engine is None else known_engine(row.engine)
    if engine is None:
        return no_engine(row)
    if engine.serving is not None:
        return f"{engine.name} serves many users: its own rules predict it, and not these priors"
    if row.count != 1 and _splits_layers(engine) and row.quantity not in {*_ONE_BY_ONE, "prefill"}:
        return "more than one device"
    if row.weights is None:
        return "no number format is stated"
    if row.quantity != "decode" and not row.prompt:
        return "no length of the prompt is stated"
    if row.quantity == "tokens" and not (row.generate and (row.batch or row.concurrency)):
        return "how many sequences ran at once is not stated"
    graph = graph_without_limit(row.model)
    if not is_generative(graph):
        return f"{row.model} makes no tokens"
    encodes = row.quantity != "decode" and {"encoder", "frames"} & set(graph.metadata.get("default_sizes", {}))
    return f"an encoder reads what {row.model} is asked" if encodes else None


def _pipelined(row: PublishedMeasurement) -> float:
    """The time of a prompt through cards that each hold some layers, over the time of one card with all layers.

    Its parts go from card to card: the last card is done with m parts when the first would have done m + n − 1.
    """
    if row.quantity != "prefill" or row.count == 1 or not row.prompt:
        return 1.0
    parts = -(-row.prompt // _MICRO_BATCH)
    return (parts + row.count - 1) / (parts * row.count)


def _splits_layers(engine: EngineDescriptor) -> bool:
    """Whether several cards each hold some of the layers, and not a part of each."""
    return engine.opens == ("gguf",)


@cache
def graph_without_limit(model: str) -> Graph:
    """Rows beyond a model's window were measured with a longer one."""
    return replace(model_graph(model), context_limit=None)


class _Counted:
    """Layouts and plans, each made once; and what steps of them are made of."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Any, ...], tuple[Layout, PricePlan]] = {}
        self._parts: dict[tuple[Any, ...], dict[str, Any]] = {}

    def case(self, row: PublishedMeasurement) -> StackCase:
        device = device_as_run(row)
        layout, plan = self._plan(row, device)
        steps = steps_of(row, layout.prepared.effects.reads)
        parts = [self._part(layout, plan, sequences_of(row), step) for step in steps]
        share = _pipelined(row)
        repeats = [part["repeats"] * step.times * share for part, step in zip(parts, steps, strict=True)]
        arrays: dict[str, Any] = {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "repeats"
        }
        return StackCase(
            dataset=row.dataset,
            model=row.model or "",
            standing=replace(standing_in(layout.prepared, device), variants=variants_of(row)),
            seconds=seconds_of(row),
            repeats=np.concatenate(repeats),
            steps=sum(step.times for step in steps),
            line=row.line or 0,
            **arrays,
        )

    def _plan(self, row: PublishedMeasurement, device: Device) -> tuple[Layout, PricePlan]:
        precision = Precision(weights=row.weights, activations=row.activations)
        engine = known_engine(row.engine or "")
        if engine is None:
            raise ValueError(f"{row.engine} is not described")
        together = 1 if _splits_layers(engine) else row.count
        key = (row.model, row.engine, precision, together, id(device))
        if key not in self._plans:
            layout = make_layout(
                graph_without_limit(row.model or ""),
                effects=engine.effects.at(device),
                workload=Workload(precision=precision, parallel=Parallel(tp=together)),
                options=Options(),
            )
            plan = plan_of(layout.prepared, device, weights_bytes=layout.residency.weights_bytes)
            self._plans[key] = layout, plan
        return self._plans[key]

    def _part(self, layout: Layout, plan: PricePlan, batch: int, step: Steps) -> dict[str, Any]:
        key = (id(plan), batch, step.phase, step.query, step.context)
        if key not in self._parts:
            self._parts[key] = _part(layout, plan, batch, step)
        return self._parts[key]


def _part(layout: Layout, plan: PricePlan, batch: int, step: Steps) -> dict[str, Any]:
    """A step's ops that cost anything, in the form that cases have them."""
    prepared, rows = layout.prepared, layout.prepared.rows
    quantities = prepared.quantities({"batch": batch, "query": step.query, "context": step.context, "logits": 1})
    compute, memory = plan.ideals(quantities, batch)
    unpack = quantities.unpack * sum(plan.inverse_peaks.values())
    names = [fitted_class(row.op, step.phase) for row in rows]
    repeats = prepared.counts(once=False)
    kept = np.array([name is not None and repeats[at] > 0 for at, name in enumerate(names)])
    return {
        "compute": np.broadcast_to(compute, (len(rows), 1))[kept, 0],
        "memory": np.broadcast_to(memory, (len(rows), 1))[kept, 0],
        "unpack": np.broadcast_to(unpack, (len(rows), 1))[kept, 0],
        "kernels": np.array([0.0 if row.op_class in FREE else row.fused.launches for row in rows])[kept],
        "repeats": repeats[kept],
        "classes": np.array([PLACE.get(name or "", 0) for name in names])[kept],
    }


def variants_of(row: PublishedMeasurement) -> tuple[str, ...]:
    """Settings of a published row beyond those of a question."""
    stated = {f"{name}={row.settings[name]}" for name in _VARIANTS if name in row.settings}
    backend = row.settings.get("backend", "").casefold()
    if "vulkan" in backend:
        stated.add("backend=vulkan")
    if row.settings.get("flash_attention") == "0":
        stated.add("flash_attention=0")
    if _SMALL_HOST.match(row.settings.get("host", "")):
        stated.add("host=small")
    if row.count > 1:
        stated.add("split")
    if row.quantity in {"request", "tokens"}:
        stated.add("served" if sequences_of(row) > 1 else "request")
    return tuple(sorted(stated))
