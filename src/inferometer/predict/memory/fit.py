"""Does it fit: weights, cache, activations, workspace and reserve against a device's memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from inferometer.core.frozen import frozen
from inferometer.core.lazy import late
from inferometer.core.workload import MOST, Workload
from inferometer.known.engines import known_engine, memory_of, require_effects
from inferometer.predict.options import Options
from inferometer.predict.parallel import of_draft, replica_batch
from inferometer.predict.ready import ReadyGraph, make_layout, make_ready
from inferometer.predict.request import completed, goes_beyond, last_tokens, prefill_steps, start_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.device import Device
    from inferometer.core.engine import RuntimeEffects
    from inferometer.core.graph import Graph
    from inferometer.predict.memory.residency import MemoryUse

LONGEST = 1 << 27  # tokens to look up to where the model itself states no limit


@frozen
class Fit:
    """Bytes on the fullest device, against what it has.

    `longest_context` is for the batch asked for, `largest_batch` for the tokens asked for; 0 says that not one fits,
    None that it has no cache to grow. `devices_at_least` shares everything evenly: no fewer can hold it, whatever the
    plan. Where the capacity is not known, neither is what depends on it.
    """

    weights_bytes: int
    kv_bytes: int
    state_bytes: int
    activations_bytes: int
    workspace_bytes: int
    reserve_bytes: int | None  # of the runtime itself; where it is not known it is in no sum
    total_bytes: int
    capacity_bytes: int | None
    fits: bool | None
    free_bytes: int | None
    kv_bytes_per_token: int
    longest_context: int | None
    largest_batch: int | None
    devices: int
    devices_at_least: int | None

    def _repr_html_(self) -> str:
        return str(late("notebook", "view_html")(self))


def fit(
    graph: Graph,
    device: Device,
    *,
    workload: Workload | None = None,
    runtime: RuntimeEffects | str = "ideal",
    options: Options | None = None,
) -> Fit:
    """The memory of a whole request: the prompt being read, and the last token being written."""
    chosen, effects = options or Options(), require_effects(runtime)
    workload = completed(graph, workload or Workload(), chosen, beyond=goes_beyond(effects))
    ready = make_ready(graph, device, effects=effects, workload=workload, options=chosen)
    reserve, capacity = reserve_of(effects, device), capacity_of(device, ready.residency.weights_bytes)
    use = peak_use(ready, workload, chosen)
    total = float(use.total_bytes) + reserve

    def holds(other: Workload) -> bool:
        return capacity is not None and bool(peak_use(ready, other, chosen).total_bytes + reserve <= capacity)

    return Fit(
        weights_bytes=round(use.weights_bytes),
        kv_bytes=round(use.kv_bytes),
        state_bytes=round(use.state_bytes),
        activations_bytes=round(use.activations_bytes),
        workspace_bytes=round(use.workspace_bytes),
        reserve_bytes=None if effects.on(device.unit).reserve_bytes is None else round(reserve),
        total_bytes=round(total),
        capacity_bytes=None if capacity is None else round(capacity),
        fits=None if capacity is None else total <= capacity,
        free_bytes=None if capacity is None else round(capacity - total),
        kv_bytes_per_token=ready.residency.kv_bytes_per_token,
        longest_context=None if capacity is None else _longest(ready, workload, holds),
        largest_batch=None if capacity is None else _largest(workload, holds),
        devices=workload.parallel.devices,
        devices_at_least=None if capacity is None else _devices(use, workload, reserve, capacity),
    )


def capacity_of(device: Device, weights_bytes: float = 0.0) -> float | None:
    """Bytes of main memory that a program can fill: what the driver shows, not what the label says.

    A device that is sent what it cannot hold is no limit: that lies with its host, of which nothing is known. A
    microcontroller has room for weights in its flash too, and for nothing else there.
    """
    room = device.memory.room if device.memory and not device.streams_weights else None
    if room is None:
        return None
    # No more of the flash than the weights fill: what is left of it holds no activation.
    return float(room) + (0.0 if device.flash_bytes is None else min(weights_bytes, device.flash_bytes.value))


def reserve_of(effects: RuntimeEffects, device: Device) -> float:
    """Memory that the runtime takes for itself or leaves alone; nothing where it is not known.

    A serving engine leaves a share of the memory to others, and keeps room for its captured graphs.
    """
    engine = known_engine(effects.name)
    capacity = capacity_of(device)
    if engine is not None and engine.serving is not None and capacity is not None:
        # The share is of all memory, whatever else lies there (vLLM's --gpu-memory-utilization): the rest is left
        # alone.
        taken = memory_of(engine.serving)
        return (1 - float(taken.share)) * capacity + float(taken.own_bytes)
    reserve = effects.on(device.unit).reserve_bytes
    return 0.0 if reserve is None else float(reserve)


def peak_use(ready: ReadyGraph, workload: Workload, options: Options) -> MemoryUse:
    """The larger of reading the prompt (or a chunk of it) and writing the last token, with a draft model beside it."""
    graph, batch = ready.graph, replica_batch(workload.batch, workload.parallel)

    def use(query: int, context: int, *, first: bool) -> MemoryUse:
        sizes = {"batch": batch, "query": query, "context": context, "logits": 1}
        return ready.residency.use(sizes, first=first)

    if not ready.generative:
        return use(workload.prompt or 1, 0, first=True)
    uses = []
    if workload.prompt is not None or workload.context is None:
        steps = prefill_steps(graph, workload, options, ready.effects, encodes=ready.layout.encodes)
        uses += [use(query, context, first=True) for query, context in steps[-2:]]  # the last one may be shorter
    last = last_tokens(graph, workload)
    if workload.context is not None or last > start_tokens(graph, workload):
        uses.append(use(1, last - 1, first=False))
    most = max(uses, key=lambda candidate: candidate.total_bytes)
    if options.speculative is None:
        return most
    own = of_draft(workload)
    draft = make_layout(options.speculative.draft, effects=ready.effects, workload=own, options=Options())
    # It stays loaded and caches the same tokens; its steps run while the model waits, in the memory of the model's.
    beside = draft.residency.use({"batch": batch, "query": 1, "context": last - 1, "logits": 1}, first=False)
    return replace(
        most,
        weights_bytes=most.weights_bytes + beside.weights_bytes,
        kv_bytes=most.kv_bytes + beside.kv_bytes,
        state_bytes=most.state_bytes + beside.state_bytes,
    )


def _longest(ready: ReadyGraph, workload: Workload, holds: Callable[[Workload], bool]) -> int | None:
    """Tokens of a sequence, read in chunks of what the workload asks for, that fit into memory."""
    if not ready.generative or not ready.residency.kv_bytes_per_token:
        return None
    # Beyond the model's own limit nothing was trained, however much would fit.
    limit = ready.graph.context_limit or LONGEST
    return largest_that(limit, lambda tokens: holds(replace(workload, prompt=None, generate=None, context=tokens - 1)))


def _largest(workload: Workload, holds: Callable[[Workload], bool]) -> int:
    replicas = workload.parallel.dp
    most = MOST["batch"] // replicas
    return replicas * largest_that(most, lambda count: holds(replace(workload, batch=count * replicas)))


def largest_that(limit: int, holds: Callable[[int], bool]) -> int:
    """The largest number up to the limit for which it holds, 0 where it holds for none: more never needs less."""
    if not holds(1):
        return 0
    # Doubling first: the answer is mostly far below the limit, and each look takes as long as a footprint.
    low, high = 1, 2
    while high <= limit and holds(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)  # the first that is known not to hold, or not asked for
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _devices(use: MemoryUse, workload: Workload, reserve: float, capacity: float) -> int | None:
    """All that a replica holds, shared evenly: no plan needs less. None where the runtime itself leaves no room."""
    parallel = workload.parallel
    # What one device holds is its share; activations and workspace are not shared and stay on each.
    held = (use.weights_bytes + use.kv_bytes + use.state_bytes) * parallel.tp * parallel.pp
    room = capacity - reserve
    if room <= 0:
        return None
    needed = float(held + use.activations_bytes + use.workspace_bytes)
    return parallel.dp * max(1, math.ceil(needed / room))
