"""How often a loop runs: a number it is given, or a counter that its body holds against a limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from inferometer.core.dims import Dim, Symbol, symbols_in
from inferometer.readers.onnx import algebra
from inferometer.readers.onnx.content import Content
from inferometer.readers.onnx.rules.common import as_dim

if TYPE_CHECKING:
    from inferometer.readers.onnx.messages import GraphDef, Node
    from inferometer.readers.onnx.scope import Scope
    from inferometer.readers.onnx.value import Call, Value
    from inferometer.readers.onnx.walk import Walk

__all__ = ["Counters", "trips_of"]

_NO_LIMIT = (1 << 31) - 1  # writers give the largest number where only the condition ends a loop


class Counters:
    """Symbols that stand for whole numbers a loop carries: place 0 is the trip's number."""

    def __init__(self, loop: str) -> None:
        self._loop = loop
        self.names: list[str] = []

    def symbol(self, place: int) -> Symbol:
        return Symbol(f"{self._loop}.counter{place}")

    def content(self, place: int) -> Content:
        self.names.append(self.symbol(place).name)
        return Content((), (self.symbol(place),))


def trips_of(
    walk: Walk, call: Call, graph: GraphDef, inner: Scope, counters: Counters, carried: tuple[Value | None, ...]
) -> Dim | None:
    """The number of trips where it can be told, else None."""
    most = call.items(0)
    limit = as_dim(most[0]) if most else None
    if isinstance(limit, int) and limit >= _NO_LIMIT:
        limit = None
    ends = inner.find(graph.outputs[0].name)
    if ends is not None and ends.content is not None and ends.content.items == (1,):
        return limit
    counted = _by_condition(walk, graph, inner, counters, carried, call)
    if counted is None:
        return None
    if limit is None or limit == counted:
        return counted
    return min(limit, counted) if isinstance(limit, int) and isinstance(counted, int) else None


def _by_condition(
    walk: Walk,
    graph: GraphDef,
    inner: Scope,
    counters: Counters,
    carried: tuple[Value | None, ...],
    call: Call,
) -> Dim | None:
    """`counter < limit`, or several such tests joined by And that all end at once."""
    made = {name: node for node in graph.nodes for name in node.outputs if name}
    counts: set[Dim | None] = set()
    for left, right in _tests(graph.outputs[0].name, made):
        sides = [_size(walk, inner.find(name)) for name in (left, right)]
        if sides[0] is None or sides[1] is None:
            return None
        counts.add(_until(sides[0], sides[1], graph, inner, counters, carried, call))
    return counts.pop() if len(counts) == 1 else None


def _tests(name: str, made: dict[str, Node]) -> Iterator[tuple[str, str]]:
    """The comparisons behind a condition, each as (smaller, larger); an unknown one as names that lead nowhere."""
    pending, seen = [name], 0
    while pending:
        seen += 1
        node = made.get(pending.pop())
        if node is None or seen > 64 or not node.inputs:
            yield "", ""
        elif node.op_type in {"Identity", "Cast", "Squeeze", "Reshape"}:
            pending.append(node.inputs[0])
        elif node.op_type == "And":
            pending += node.inputs
        elif node.op_type == "Less":
            yield node.inputs[0], node.inputs[1]
        elif node.op_type == "Greater":
            yield node.inputs[1], node.inputs[0]
        else:
            yield "", ""


def _size(walk: Walk, value: Value | None) -> Dim | None:
    if value is None:
        return None
    content = value.content
    if content is None and value.source is not None:
        content = walk.contents.read(value.source)
    return as_dim(content.items[0]) if content is not None and len(content.items) == 1 else None


def _until(
    left: Dim,
    right: Dim,
    graph: GraphDef,
    inner: Scope,
    counters: Counters,
    carried: tuple[Value | None, ...],
    call: Call,
) -> Dim | None:
    """The first trip runs; another follows while start + step·trip + offset < right, so ⌈(right − start − offset) /
    step⌉ + 1 in all.
    """
    for place in range(len(carried) + 1):
        symbol = counters.symbol(place)
        if symbol.name not in symbols_in(left) or symbol.name in symbols_in(right):
            continue
        offset = algebra.sub(left, symbol)
        start, step = (0, 1) if place == 0 else _course(place, symbol, graph, inner, call)
        if not isinstance(offset, int) or start is None or not isinstance(step, int) or step < 1:
            return None
        return algebra.add(algebra.ceildiv(algebra.sub(algebra.sub(right, start), offset), step), 1)
    return None


def _course(place: int, symbol: Symbol, graph: GraphDef, inner: Scope, call: Call) -> tuple[Dim | None, Dim | None]:
    """Where a carried counter begins, and how much each trip adds."""
    items = call.items(place + 1)
    after = inner.find(graph.outputs[place].name)
    if not items or after is None or after.content is None:
        return None, None
    grown = as_dim(after.content.items[0])
    return as_dim(items[0]), None if grown is None else algebra.sub(grown, symbol)
