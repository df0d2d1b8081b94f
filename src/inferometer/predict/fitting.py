"""What of a model fits into a device's memory, as the engine that would run it uses the memory."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.workload import Parallel
from inferometer.known.engines import engine
from inferometer.predict.request import completed
from inferometer.predict.served.question import Served, served

if TYPE_CHECKING:
    from inferometer.predict.question import Question

_MOST_DEVICES = 1024


@frozen
class MemoryFit:
    """Bytes of one device. `max_batch` is of sequences of `tokens` tokens, `max_context` of one sequence alone.

    `devices_at_least` are the fewest, by tensor parallelism, that hold the model and one such sequence; None where no
    number does. `kv_blocks` are those of an engine whose cache comes in blocks.
    """

    fits: bool
    usable_bytes: int
    weights_bytes: int
    activations_bytes: int
    reserve_bytes: int
    kv_bytes_per_token: int
    kv_tokens: int
    kv_blocks: int | None
    max_batch: int
    max_context: int
    tokens: int
    devices_at_least: int | None
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "notes"}


def memory_fit(question: Question) -> MemoryFit:
    """By the rules of a serving engine, or by the memory of one batch for any other."""
    if engine(question.runtime_name).serving is None:
        return _of_a_batch(question)
    what = served(question)
    workload = completed(question.graph, question.workload, question.options, beyond=True)
    tokens = (workload.prompt or 512) + (workload.generate or 128)
    memory = what.memory
    if memory is None:
        raise DomainError(f"The memory of {question.device.name} is not known.", remedy="Give it in a device file.")
    held = memory.sequences_of(tokens) * what.replicas
    limit = question.graph.context_limit or memory.kv_tokens
    return MemoryFit(
        fits=memory.fits and held >= question.workload.batch,
        usable_bytes=round(memory.usable_bytes),
        weights_bytes=round(memory.weights_bytes),
        activations_bytes=round(memory.activations_bytes),
        reserve_bytes=round(memory.reserve_bytes),
        kv_bytes_per_token=round(memory.kv_bytes_per_token),
        kv_tokens=memory.kv_tokens,
        kv_blocks=memory.kv_blocks,
        max_batch=held,
        max_context=min(limit, memory.kv_tokens),
        tokens=tokens,
        devices_at_least=_fewest(question, what, tokens),
    )


def _fewest(question: Question, what: Served, tokens: int) -> int | None:
    """Tensor-parallel devices, in powers of two as engines have them; a plan that is impossible is passed over."""
    tp = 1
    while tp <= _MOST_DEVICES:
        parallel = replace(Parallel(), tp=tp)
        try:
            memory = served(replace(question, workload=replace(question.workload, parallel=parallel, batch=1))).memory
        except DomainError:
            return None if tp > what.devices else tp
        if memory is not None and memory.sequences_of(tokens) >= 1:
            return tp
        tp *= 2
    return None


def _of_a_batch(question: Question) -> MemoryFit:
    found = question.fit()
    workload = completed(question.graph, question.workload, question.options)
    capacity, reserve = found.capacity_bytes or 0, found.reserve_bytes or 0
    taken = found.weights_bytes + found.activations_bytes + found.workspace_bytes + reserve
    each = found.kv_bytes_per_token
    return MemoryFit(
        fits=bool(found.fits),
        usable_bytes=capacity,
        weights_bytes=found.weights_bytes,
        activations_bytes=found.activations_bytes + found.workspace_bytes,
        reserve_bytes=reserve,
        kv_bytes_per_token=each,
        kv_tokens=max(0, capacity - taken) // each if each else 0,
        kv_blocks=None,
        max_batch=found.largest_batch or 0,
        max_context=found.longest_context or 0,
        tokens=(workload.prompt or 0) + (workload.generate or 0),
        devices_at_least=found.devices_at_least,
    )
