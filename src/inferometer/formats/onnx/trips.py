"""How often a loop runs: a number it is given, or a counter that its body holds against a limit."""

from collections.abc import Iterator
from dataclasses import dataclass

from inferometer.core.dims import Dim, Symbol, symbols_in
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.content import Content
from inferometer.formats.onnx.messages import GraphDef, Node
from inferometer.formats.onnx.rules.common import as_dim, first_size
from inferometer.formats.onnx.scope import Scope
from inferometer.formats.onnx.value import Call, Value

_NO_LIMIT = (1 << 31) - 1  # writers give the largest number where only the condition ends a loop
_MAX_TESTS = 64


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop whose body has been walked."""

    call: Call
    body: GraphDef
    inner: Scope
    counters: Counters


def trips_of(loop: Loop) -> Dim | None:
    """The number of trips where it can be inferred, else None."""
    limit = first_size(loop.call, 0)
    if isinstance(limit, int) and limit >= _NO_LIMIT:
        limit = None
    goes_on = loop.inner.find(loop.body.outputs[0].name)
    if goes_on is not None and goes_on.content is not None and goes_on.content.items == (1,):
        return limit
    counted = _by_condition(loop)
    if counted is None or limit is None or limit == counted:
        return counted
    return min(limit, counted) if isinstance(limit, int) and isinstance(counted, int) else None


def _by_condition(loop: Loop) -> Dim | None:
    """`counter < limit`, or several such tests joined by And that all end at once."""
    made = {name: node for node in loop.body.nodes for name in node.outputs if name}
    counts: set[Dim | None] = set()
    for left, right in _tests(loop.body.outputs[0].name, made):
        smaller, larger = _size(loop, left), _size(loop, right)
        if smaller is None or larger is None:
            return None
        counts.add(_until(loop, smaller, larger))
    return counts.pop() if len(counts) == 1 else None


def _tests(name: str, made: dict[str, Node]) -> Iterator[tuple[str, str]]:
    """The comparisons behind a condition, each as (smaller, larger); an unknown one as names that lead nowhere."""
    pending, seen = [name], 0
    while pending:
        seen += 1
        node = made.get(pending.pop())
        if node is None or seen > _MAX_TESTS or not node.inputs:
            yield "", ""
        elif node.op_type in {"Identity", "Cast", "Squeeze", "Reshape"}:
            pending.append(node.inputs[0])
        elif node.op_type == "And":
            pending += node.inputs
        elif node.op_type in {"Less", "Greater"} and len(node.inputs) == 2:
            first, second = node.inputs
            yield (first, second) if node.op_type == "Less" else (second, first)
        else:
            yield "", ""


def _size(loop: Loop, name: str) -> Dim | None:
    value: Value | None = loop.inner.find(name) if name else None
    if value is None:
        return None
    content = value.content
    if content is None and value.source is not None:
        content = loop.call.read(value.source)
    return as_dim(content.items[0]) if content is not None and len(content.items) == 1 else None


def _until(loop: Loop, left: Dim, right: Dim) -> Dim | None:
    """⌈(right − start − offset) / step⌉ + 1 trips.

    The first trip runs; another follows while start + step·trip + offset < right.
    """
    for index in range(len(loop.call.inputs) - 1):
        symbol = loop.counters.symbol(index)
        if symbol.name not in symbols_in(left) or symbol.name in symbols_in(right):
            continue
        offset = algebra.sub(left, symbol)
        start, step = (0, 1) if index == 0 else _course(loop, index)
        if not isinstance(offset, int) or start is None or not isinstance(step, int) or step < 1:
            return None
        return algebra.add(algebra.ceildiv(algebra.sub(algebra.sub(right, start), offset), step), 1)
    return None


def _course(loop: Loop, place: int) -> tuple[Dim | None, Dim | None]:
    """Where a carried counter begins, and how much each trip adds."""
    items = loop.call.items(place + 1)
    after = loop.inner.find(loop.body.outputs[place].name)
    if not items or after is None or after.content is None:
        return None, None
    grown = as_dim(after.content.items[0])
    return as_dim(items[0]), None if grown is None else algebra.sub(grown, loop.counters.symbol(place))
