"""What of a model fits into a device's memory, as the engine that would run it uses the memory."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.workload import Parallel
from inferometer.known.engines import engine
from inferometer.predict.applicable import require_applicable
from inferometer.predict.memory.fit import LONGEST, largest_that
from inferometer.predict.request import completed
from inferometer.predict.served.question import ServedReplica, served

if TYPE_CHECKING:
    from inferometer.predict.question import Question

_MOST_DEVICES = 1024


@frozen
class MemoryFit:
    """Bytes of one device. `max_batch` is of sequences of `tokens` tokens, `max_context` of one sequence alone.

    `devices_at_least` are the fewest, by tensor parallelism, that hold the model and one such sequence; None where no
    number does. `kv_blocks` are those of an engine whose cache comes in blocks. Where layers have windows, a token of
    such a sequence takes `kv_bytes_per_token` on average. What depends on a capacity or a reserve that nobody states is
    None, and so is the longest context of a model without a cache.
    """

    fits: bool | None
    usable_bytes: int | None
    weights_bytes: int
    activations_bytes: int
    reserve_bytes: int | None
    kv_bytes_per_token: int
    kv_tokens: int | None
    kv_blocks: int | None
    max_batch: int | None
    max_context: int | None
    tokens: int
    devices_at_least: int | None
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "notes"}


def memory_fit(question: Question) -> MemoryFit:
    """By the rules of a serving engine, or by the memory of one batch for any other."""
    require_applicable(question)
    if engine(question.runtime_name).serving is None:
        return _of_a_batch(question)
    what = served(question)
    workload = completed(question.graph, question.workload, question.options, beyond=True)
    tokens = workload.context or (workload.prompt or 512) + (workload.generate or 128)
    memory = what.memory
    if memory is None:
        raise DomainError(f"The memory of {question.device.name} is not known.", remedy="Give it in a device file.")
    held = memory.sequences_of(tokens) * what.replicas
    limit = question.graph.context_limit or LONGEST
    return MemoryFit(
        fits=memory.fits and held >= question.workload.batch,
        usable_bytes=round(memory.usable_bytes),
        weights_bytes=round(memory.weights_bytes),
        activations_bytes=round(memory.activations_bytes),
        reserve_bytes=round(memory.reserve_bytes),
        kv_bytes_per_token=round(memory.sequence_bytes(tokens) / memory.padded(tokens)),
        kv_tokens=memory.tokens_of(tokens),
        kv_blocks=memory.tokens_of(tokens) // memory.block_tokens,
        max_batch=held,
        max_context=largest_that(limit, lambda length: memory.sequences_of(length) >= 1)
        if memory.kv_bytes_per_token
        else None,
        tokens=tokens,
        devices_at_least=_fewest(question, what, tokens),
    )


def _fewest(question: Question, what: ServedReplica, tokens: int) -> int | None:
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
    capacity, each = found.capacity_bytes, found.kv_bytes_per_token
    taken = found.weights_bytes + found.activations_bytes + found.workspace_bytes + (found.reserve_bytes or 0)
    return MemoryFit(
        fits=found.fits,
        usable_bytes=capacity,
        weights_bytes=found.weights_bytes,
        activations_bytes=found.activations_bytes + found.workspace_bytes,
        reserve_bytes=found.reserve_bytes,
        kv_bytes_per_token=each,
        kv_tokens=None if capacity is None else max(0, capacity - taken) // each if each else 0,
        kv_blocks=None,
        max_batch=found.largest_batch,
        max_context=found.longest_context,
        tokens=workload.context or (workload.prompt or 0) + (workload.generate or 0),
        devices_at_least=found.devices_at_least,
    )
