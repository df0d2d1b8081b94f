"""From a graph to its work at some sizes, exactly, and to how much of the graph that work covers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from inferometer.core.binding import Binding
from inferometer.core.dims import Expression, Symbol, symbols_in
from inferometer.core.frozen import frozen
from inferometer.core.kept import Kept
from inferometer.core.work import Work
from inferometer.predict.work.rules import covered, work_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.core.graph import Block, Graph, Op

# Sizes a workload can bind in any graph; a file's inputs may name more.
SYMBOLS = frozenset({
    "batch", "query", "context", "logits", "image", "height", "width", "frames", "encoder", "steps",
})  # fmt: skip


@frozen
class Uncovered:
    """An op whose work is not in the sum, and why."""

    block: str
    op: str
    kind: str
    source_type: str | None
    reason: str
    count: int  # how often it stands in the graph


@frozen
class Coverage:
    """How many of the graph's ops the work rules count, each repetition of a block and the ops in loops included."""

    ops: int
    covered: int
    uncovered: tuple[Uncovered, ...] = ()

    @property
    def share(self) -> float:
        return self.covered / self.ops if self.ops else 1.0


def graph_work(graph: Graph, binding: Binding) -> Work:
    """The work of running the whole graph once. What `coverage` calls uncovered is not in it."""
    return sum((block.count * work for block, _, work in op_works(graph, binding)), Work())


def op_works(graph: Graph, binding: Binding) -> list[tuple[Block, Op, Work]]:
    """Each op once, in the order of execution, with the work of one repetition of its block."""
    unknown = unknown_sizes(graph, binding)
    bound = with_formats(graph, binding)
    return [
        (block, op, work_of(part, bound) if (part := known_part(op, unknown)) else Work()) for block, op in graph.ops()
    ]


def coverage(graph: Graph, binding: Binding | None = None) -> Coverage:
    """Which ops have no rule, or sizes that only running the model would show."""
    unknown = unknown_sizes(graph, binding or Binding())
    verdicts = [
        (block, op, reason) for block, outer in graph.ops() for op, reason in _verdicts(outer, unknown, inherited=None)
    ]
    uncovered = tuple(
        Uncovered(
            block=block.name, op=op.name, kind=op.kind, source_type=op.source_type, reason=reason, count=block.count
        )
        for block, op, reason in verdicts
        if reason
    )
    total = sum(block.count for block, _, _ in verdicts)
    return Coverage(ops=total, covered=total - sum(entry.count for entry in uncovered), uncovered=uncovered)


def with_formats(graph: Graph, binding: Binding) -> Binding:
    """The binding, with the graph's own precision where none is asked for."""
    # A format that is asked for goes before the graph's: the graph's is what its file stores.
    if graph.precision is None:
        return binding
    precision, own = binding.precision, graph.precision
    filled = replace(precision, weights=precision.weights or own, activations=precision.activations or own)
    return replace(binding, precision=filled)


_named = Kept()  # the sizes that the ops of a graph name


def unknown_sizes(graph: Graph, binding: Binding) -> frozenset[str]:
    """Symbols that neither the binding has nor a workload could bind: sizes that depend on the data.

    A size that a workload can bind and did not is no unknown: counting with it is an error that names it.
    """
    # What an input of the graph is called a workload can bind; a size that first stands further in comes out of the
    # data.
    known = SYMBOLS.union(binding.sizes, *(tensor.symbols for tensor in graph.inputs))
    return (
        _named.get_or_make("sizes", (graph,), lambda: frozenset().union(*(op.symbols for _, op in graph.ops()))) - known
    )


def _own_symbols(op: Op) -> frozenset[str]:
    """The symbols a rule needs. A view needs none, and what flows in and out of a loop its body counts."""
    if op.kind == "view":
        return frozenset()
    if op.kind == "control":
        trips = op.get("trips")
        return symbols_in(trips) if isinstance(trips, Symbol | Expression) else frozenset()
    return op.symbols


def _reason(op: Op, unknown: frozenset[str]) -> str | None:
    if op.kind == "custom":
        return str(op.get("reason", "unknown op"))
    if not covered(op):
        return "unknown number of trips" if op.kind == "control" else f"no rule for {op.kind}"
    if unknown and (missing := _own_symbols(op) & unknown):  # looking through an op takes longer than asking
        return f"unknown size: {', '.join(sorted(missing))}"
    return None


def _verdicts(op: Op, unknown: frozenset[str], *, inherited: str | None) -> Iterator[tuple[Op, str | None]]:
    """An op and those inside it, each with why it is not counted. Inside a loop that is not counted none is."""
    reason = inherited or _reason(op, unknown)
    yield op, reason
    for body in op.get("bodies", ()):
        for inner in body:
            yield from _verdicts(inner, unknown, inherited=reason)


def known_part(op: Op, unknown: frozenset[str]) -> Op | None:
    """The op as far as it can be counted: None where it cannot, a loop without the ops in it that cannot."""
    if _reason(op, unknown):
        return None
    if op.kind != "control":
        return op
    bodies = tuple(tuple(part for inner in body if (part := known_part(inner, unknown))) for body in op["bodies"])
    return replace(op, attributes={**op.attributes, "bodies": bodies})
