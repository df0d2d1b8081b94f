"""Low-rank adapters beside a model's products: what their own two thin products add to a step.

An adapter of rank r adds (x · A) · B to a product x · W, with A of [in, r] and B of [r, out]. Engines compute it for
the tokens of all adapters in one call of each (Punica's shrink and expand; what reads the same is one call), and read
the matrices of every adapter that a step has. `a` adapters with t tokens together are priced as one product of a · r
columns for t / a tokens: as many operations, as many bytes of matrices, and tiles of as many rows. That the second one
adds to what is there, and so reads it, is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.dims import Symbol
from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.workload import Parallel
from inferometer.predict.parallel import place
from inferometer.predict.served.step import Grid2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.predict.parallel import Placed
    from inferometer.predict.question import Question
    from inferometer.predict.ready import ReadyGraph

_MARK = ".lora_"
_TOKENS = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536])  # of an adapter


@frozen
class AdapterSeconds:
    """Seconds that the products of adapters add to a step, of which at most `slots` are in it; and their kernels."""

    slots: int
    grid: Grid2
    launches: int

    def at(self, tokens: float, sequences: int) -> float:
        """Of the tokens of so many sequences, each with one of the adapters."""
        used = self.used(sequences)
        return self.grid.at(used, tokens / used) if sequences else 0.0

    def used(self, sequences: int) -> float:
        """Different adapters among them, on average, where each has one of the slots' by chance."""
        return max(1.0, self.slots * (1 - (1 - 1 / self.slots) ** sequences))


def adapted_products(graph: Graph) -> Iterator[tuple[Block, Op]]:
    """The products that adapters stand beside: of the layers, and not of the vocabulary."""
    return ((block, op) for block, op in graph.ops() if op.kind == "linear" and "logits" not in op.symbols)


def with_products(graph: Graph, parallel: Parallel, rank: int, dtype: str) -> Graph:
    """The graph with the products of one adapter behind each block, as large as they are on one device."""
    blocks = []
    for block, placed in zip(graph.blocks, place(graph, parallel), strict=True):
        groups: dict[str, list[Placed]] = {}
        for entry in placed:
            if entry.op.kind == "linear" and "logits" not in entry.op.symbols:
                groups.setdefault(entry.op.inputs[0].name, []).append(entry)
        ops = [op for entries in groups.values() for op in _pair(entries, rank, dtype)]
        blocks += [block, *([replace(block, name=f"{block.name}{_MARK}ops", ops=tuple(ops))] if ops else [])]
    return replace(graph, blocks=tuple(blocks))


def _pair(entries: list[Placed], rank: int, dtype: str) -> Iterator[Op]:
    """The two products beside those that read one tensor. A device has its slice of the side that is split."""
    first = entries[0].op
    is_summed = any(message.function == "all_reduce" for message in entries[0].messages)
    share = entries[0].scale.weights
    inside = round(first["in_features"] * (share if is_summed else 1.0))
    outside = round(sum(entry.op["out_features"] for entry in entries) * (1.0 if is_summed else share))
    middle, name = rank * len(entries), f"{first.name}{_MARK}"
    rows = (Symbol(name="batch"), Symbol(name="query"))
    x, y, z = (
        Tensor(name=f"{name}{part}", shape=(*rows, size))
        for part, size in (("x", inside), ("y", middle), ("z", outside))
    )
    for part, before, after, contracted in (("a", x, y, inside), ("b", y, z, rank)):
        shape = (after.shape[-1], contracted)
        yield Op(
            name=f"{name}{part}", kind="linear", inputs=(before,), outputs=(after,),
            weights=(Tensor(name=f"{name}{part}.weight", shape=shape, dtype=dtype, role="weight"),),
            attributes={"in_features": contracted, "out_features": after.shape[-1], "contracted": contracted},
        )  # fmt: skip


def adapter_seconds(question: Question, rank: int, adapters: int, slots: int) -> AdapterSeconds:
    """What adapters add to the steps of a question's engine, of which a step has `slots` at most."""
    from inferometer.predict.served.question import made_ready  # noqa: PLC0415 - it has an adapter's seconds in turn

    most = min(adapters, slots)
    counts = sorted({1, 2, most, *(1 << power for power in range(most.bit_length()))})
    workload = question.workload
    dtype = question.basis().precision.activations or "bf16"
    found, launches = [], 0
    for count in counts:
        graph = with_products(question.graph, workload.parallel, rank * count, dtype)
        alone = replace(question, graph=graph, workload=replace(workload, parallel=Parallel(), batch=1))
        ready = made_ready(alone, question.basis())[1]
        seconds, launches = _products(ready)
        found.append(seconds)
    return AdapterSeconds(
        slots=most, grid=Grid2(rows=counts, columns=_TOKENS, seconds=np.stack(found)), launches=launches
    )


def _products(ready: ReadyGraph) -> tuple[Any, int]:
    """Seconds of the adapters' products over the tokens of a step, and their kernels."""
    rows, counts = ready.plan.prepared.rows, ready.plan.prepared.counts(once=False)
    own = np.array([_MARK in row.op.name for row in rows])
    sizes = {"batch": _TOKENS, "query": 1, "context": 1, "logits": 1}
    step = ready.plan.step(sizes, "decode", doubt=False)
    seconds = (step.priced.time_s * step.counts[:, None])[own].sum(axis=0)
    kernels = sum(count * row.fused.launches for count, row in zip(counts, rows, strict=True) if _MARK in row.op.name)
    return seconds, round(kernels)
