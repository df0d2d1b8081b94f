"""Ops with graphs inside: branches and loops. A branch that is known to be taken stands in place of its `If`."""

from collections.abc import Iterator
from dataclasses import replace

from inferometer.core.dims import Dim, Symbol, symbols_in
from inferometer.core.frozen import frozen
from inferometer.formats.onnx import algebra
from inferometer.formats.onnx.content import Content, Item
from inferometer.formats.onnx.faults import Fault
from inferometer.formats.onnx.messages import GraphDef, Node
from inferometer.formats.onnx.rules.common import agreed, as_dim, first_size
from inferometer.formats.onnx.rules.items import sign
from inferometer.formats.onnx.step import OnnxRow, OnnxStep, Scope, prefix_of
from inferometer.formats.onnx.value import Call, Loose, Out, Shape, Value
from inferometer.formats.onnx.walk import Walk

# How often a loop runs: a number it is given, or a counter that its body holds against a limit.

_NO_LIMIT = (1 << 31) - 1  # writers give the largest number where only the condition ends a loop
_MAX_TESTS = 64


class LoopCounters:
    """Symbols that stand for whole numbers a loop carries: place 0 is the trip's number."""

    def __init__(self, loop: str) -> None:
        self._loop = loop
        self.names: list[str] = []

    def symbol(self, index: int) -> Symbol:
        return Symbol(f"{self._loop}.counter{index}")

    def content(self, index: int) -> Content:
        self.names.append(self.symbol(index).name)
        return Content((), (self.symbol(index),))


@frozen
class Loop:
    """A loop whose body has been walked."""

    call: Call
    body: GraphDef
    inner: Scope
    counters: LoopCounters


def trips_of(loop: Loop) -> Dim | None:
    """The number of trips where it can be inferred, else None."""
    limit = first_size(loop.call, 0)
    if isinstance(limit, int) and limit >= _NO_LIMIT:
        limit = None
    goes_on = loop.inner.find(loop.body.outputs[0].name)
    if goes_on is not None and goes_on.content is not None and goes_on.content.items == (1,):
        return limit
    counted = _by_condition(loop)
    if limit is None or limit == counted:
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


def _course(loop: Loop, index: int) -> tuple[Dim | None, Dim | None]:
    """Where a carried counter begins, and how much each trip adds."""
    items = loop.call.items(index + 1)
    after = loop.inner.find(loop.body.outputs[index].name)
    if not items or after is None or after.content is None:
        return None, None
    grown = as_dim(after.content.items[0])
    return as_dim(items[0]), None if grown is None else algebra.sub(grown, loop.counters.symbol(index))


def walk_control(walk: Walk, call: Call, row: OnnxRow, scope: Scope) -> tuple[OnnxStep, ...]:
    forms = {"If": _branch, "Loop": _loop, "Scan": _scan, "SequenceMap": _sequence_map}
    return forms[call.node.op_type](walk, call, row, scope)


def _inner(scope: Scope, prefix: str) -> Scope:
    return Scope(
        opsets=scope.opsets,
        parent=scope,
        prefix=prefix_of(prefix),
        arguments=scope.arguments,
        absent=scope.absent,
        depth=scope.depth + 1,
        tentative=scope.tentative,
    )


def _output_names(graph: GraphDef) -> tuple[str, ...]:
    return tuple(info.name for info in graph.outputs)


# If


def _branch(walk: Walk, call: Call, row: OnnxRow, scope: Scope) -> tuple[OnnxStep, ...]:
    node, name = call.node, walk.unique(scope, call.node)
    branches = (call.graph("then_branch"), call.graph("else_branch"))
    items = call.items(0)
    certain = sign(items[0]) if items else None
    if certain is not None:
        walk.notes.add("branches taken", name, "then" if certain else "else")
        return _taken(walk, call, branches[0 if certain else 1], scope, name)
    if _is_squeeze(*branches):
        walk.notes.add("assumptions", name, "the size it squeezes is 1")
        return _taken(walk, call, branches[0], scope, name)
    walked: list[tuple[tuple[OnnxStep, ...], Scope, GraphDef]] = []
    faults: list[Fault] = []
    for part, graph in zip(("then", "else"), branches, strict=True):
        inner = _inner(scope, f"{name}/{part}")
        inner.tentative = True
        try:
            walked.append((walk.graph(graph, inner), inner, graph))
        except Fault as fault:  # a branch for other shapes than these
            faults.append(fault)
            walk.notes.add("assumptions", name, f"its {part} branch is never taken: {fault.reason}")
    if not walked:
        if not all(fault.of_sizes for fault in faults):
            raise faults[0]
        unknown, row = walk.not_inferred(call, scope, faults[0])
        values = [walk.value(outer, out, scope) for outer, out in zip(node.outputs, unknown, strict=True)]
        _publish(scope, node.outputs, values)
        return (OnnxStep(name=name, call=call, row=row, outs=tuple(values)),)
    if len(walked) == 1:
        walk.bind(node.outputs, _output_names(walked[0][2]), walked[0][1], scope)
        return walked[0][0]
    results = [_results(graph, inner) for _, inner, graph in walked]
    outs = []
    for index, outer in enumerate(node.outputs):
        options = [values[index] for values in results if index < len(values)]
        outs.append(walk.value(outer, _either(options), scope))
    _publish(scope, node.outputs, outs)
    bodies = tuple(steps for steps, _, _ in walked)
    return (OnnxStep(name=name, call=call, row=row, outs=tuple(outs), bodies=bodies),)


def _is_squeeze(then: GraphDef, other: GraphDef) -> bool:
    """Whether this is PyTorch's `x.squeeze(axis)` of a size it does not know: "squeeze if it is 1, else leave it".

    What follows was written for the size being gone.
    """
    kinds = [[node.op_type for node in graph.nodes if node.op_type != "Constant"] for graph in (then, other)]
    return kinds == [["Squeeze"], ["Identity"]]


def _taken(walk: Walk, call: Call, graph: GraphDef, scope: Scope, name: str) -> tuple[OnnxStep, ...]:
    inner = _inner(scope, name)
    made = {output for inner_node in graph.nodes for output in inner_node.outputs}
    inner.renamed = {
        formal: scope.full_name(actual)
        for formal, actual in zip(_output_names(graph), call.node.outputs, strict=False)
        if actual and formal in made
    }
    steps = walk.graph(graph, inner)
    walk.bind(call.node.outputs, _output_names(graph), inner, scope)
    return steps


def _results(graph: GraphDef, inner: Scope) -> list[Value]:
    values: list[Value] = []
    for name in _output_names(graph):
        value = inner.find(name)
        if value is None:
            raise Fault(f"the result {name!r} of its body is made by nothing")
        values.append(value)
    return values


def _either(options: list[Value]) -> Out:
    """What several possible results have in common."""
    first = options[0] if options else None
    if first is None:
        return Out(None, None)
    dtype = first.dtype if all(value.dtype == first.dtype for value in options) else None
    return Out(agreed(value.shape for value in options), dtype, None, first.group)


def _publish(scope: Scope, names: tuple[str, ...], values: list[Value]) -> None:
    for name, value in zip(names, values, strict=False):
        if name:
            scope.values[name] = value


# Loop


def _loop(walk: Walk, call: Call, row: OnnxRow, scope: Scope) -> tuple[OnnxStep, ...]:
    """Inputs: most trips, condition, carried values.

    The body takes the trip's number, the condition and those values, and gives the condition, the values, and what is
    stacked up over the trips.
    """
    node, name, graph = call.node, walk.unique(scope, call.node), call.graph("body")
    carried = call.inputs[2:]
    formals, results = tuple(info.name for info in graph.inputs), _output_names(graph)
    if len(formals) != len(carried) + 2 or len(results) < len(carried) + 1:
        raise Fault(f"a loop that carries {len(carried)} values through a body of {len(formals)} inputs")
    counters = LoopCounters(name)
    loose: list[Value | None] = list(carried)
    for attempt in range(3):
        inner = _inner(scope, f"{name}/body")
        _enter_loop(inner, formals, results, loose, counters)
        steps = walk.graph(graph, inner)
        outs = _results(graph, inner)
        changed = _loosened(walk, loose, outs[1 : len(carried) + 1], inner, graph)
        if changed is None or attempt == 2:
            break
        loose = changed
    trips = trips_of(Loop(call=call, body=graph, inner=inner, counters=counters))
    walk.notes.invented.update(dict.fromkeys(counters.names, name))
    stacked = outs[len(carried) + 1 :]
    values = [walk.value(outer, _either([value]), scope) for outer, value in zip(node.outputs, outs[1:], strict=False)]
    first_stacked = len(carried)
    for index, value in enumerate(stacked):
        outer = node.outputs[first_stacked + index] if first_stacked + index < len(node.outputs) else ""
        if outer:
            shape: Loose | None = None if value.shape is None else (trips, *value.shape)
            values[first_stacked + index] = walk.value(outer, Out(shape, value.dtype), scope)
    _publish(scope, node.outputs, values)
    return (OnnxStep(name=name, call=call, row=row, outs=tuple(values), bodies=(steps,), trips=trips),)


def _enter_loop(
    inner: Scope,
    formals: tuple[str, ...],
    results: tuple[str, ...],
    carried: list[Value | None],
    counters: LoopCounters,
) -> None:
    """What the body sees: a trip's number, a condition that holds, and values that may have changed since.

    A value that comes out as it went in is the same in every trip: weights pass through loops like that.
    """
    number = counters.content(0)
    inner.values[formals[0]] = Value(name=inner.full_name(formals[0]), shape=(), dtype="i64", content=number)
    holds = Content((), (1,))
    inner.values[formals[1]] = Value(name=inner.full_name(formals[1]), shape=(), dtype="bool", content=holds)
    for index, value in enumerate(carried):
        formal = formals[index + 2]
        if value is None:
            inner.values[formal] = Value(name=inner.full_name(formal), shape=None, dtype=None)
        elif results[index + 1] == formal:
            inner.values[formal] = value
        else:
            counted = value.shape == () and value.dtype in {"i32", "i64"}
            inner.values[formal] = Value(
                name=inner.full_name(formal),
                shape=value.shape,
                dtype=value.dtype,
                content=counters.content(index + 1) if counted else None,
                group=value.group,
            )


def _loosened(
    walk: Walk, before: list[Value | None], after: list[Value], inner: Scope, graph: GraphDef
) -> list[Value | None] | None:
    """Carried values whose shape the body changes, with those sizes unknown; None where it changes none."""
    changed: list[Value | None] = []
    differs = False
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        formal = graph.inputs[index + 2].name
        if old is None or graph.outputs[index + 1].name == formal or old.shape == new.shape:
            changed.append(old)
            continue
        differs = True
        common = agreed((old.shape, new.shape))
        full = inner.full_name(formal)
        shape, _ = (None, None) if common is None else walk.shaped("", full, Out(common, None), inner)
        changed.append(replace(old, shape=shape, content=None, stored=(), source=None, length=None))
    return changed if differs else None


# Scan and SequenceMap


def _scan(walk: Walk, call: Call, row: OnnxRow, scope: Scope) -> tuple[OnnxStep, ...]:
    """States, and inputs of which each trip sees one slice. Operator set 8 has a batch axis and lengths before them."""
    node, name, graph = call.node, walk.unique(scope, call.node), call.graph("body")
    batched = call.opset < 9
    inputs = call.inputs[1:] if batched else call.inputs
    count = call.integer("num_scan_inputs")
    states = len(inputs) - count
    formals = tuple(info.name for info in graph.inputs)
    if count < 1 or states < 0 or len(formals) != len(inputs):
        raise Fault(f"a scan over {count} of {len(inputs)} inputs with a body of {len(formals)}")
    axes = call.integers("scan_input_axes") or (0,) * count
    inner = _inner(scope, f"{name}/body")
    trips = None
    for index, value in enumerate(inputs):
        shape = None if value is None else value.shape
        if shape is not None and index >= states:
            axis = call.axis(1 if batched else axes[min(index - states, len(axes) - 1)], len(shape))
            trips = shape[axis] if trips is None else trips
            shape = (*shape[:axis], *shape[axis + 1 :])
        if shape is not None and batched:
            shape = shape[1:]
        full = inner.full_name(formals[index])
        inner.values[formals[index]] = Value(name=full, shape=shape, dtype=None if value is None else value.dtype)
    steps = walk.graph(graph, inner)
    outs = _results(graph, inner)
    out_axes = call.integers("scan_output_axes") or (0,) * (len(outs) - states)
    batch: Shape = ()
    if batched and inputs[-1] is not None and inputs[-1].shape:
        batch = inputs[-1].shape[:1]
    values: list[Value] = []
    for index, outer in enumerate(node.outputs[: len(outs)]):
        loose: Loose | None = outs[index].shape
        if loose is not None and index >= states:
            axis = 0 if batched else call.axis(out_axes[min(index - states, len(out_axes) - 1)], len(loose) + 1)
            loose = (*loose[:axis], trips, *loose[axis:])
        loose = None if loose is None else (*batch, *loose)
        values.append(walk.value(outer, Out(loose, outs[index].dtype), scope))
    _publish(scope, node.outputs, values)
    total = trips if trips is None or not batch else algebra.mul(trips, batch[0])
    return (OnnxStep(name=name, call=call, row=row, outs=tuple(values), bodies=(steps,), trips=total),)


def _sequence_map(walk: Walk, call: Call, row: OnnxRow, scope: Scope) -> tuple[OnnxStep, ...]:
    """The body once for each element of the first sequence."""
    node, name, graph = call.node, walk.unique(scope, call.node), call.graph("body")
    inner = _inner(scope, f"{name}/body")
    for info, value in zip(graph.inputs, call.inputs, strict=False):
        full = inner.full_name(info.name)
        shape, dtype = (None, None) if value is None else (value.shape, value.dtype)
        inner.values[info.name] = Value(name=full, shape=shape, dtype=dtype)
    steps = walk.graph(graph, inner)
    length: Item = call.value(0).length
    values = [
        walk.value(outer, Out(value.shape, value.dtype, None, "sequence", length), scope)
        for outer, value in zip(node.outputs, _results(graph, inner), strict=False)
    ]
    _publish(scope, node.outputs, values)
    return (OnnxStep(name=name, call=call, row=row, outs=tuple(values), bodies=(steps,), trips=as_dim(length)),)
