"""The walk through a graph: node by node, what is known of every tensor, and what kind of op each node is."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from inferometer.core.dims import Dim, Symbol, symbols_in
from inferometer.formats.onnx.content import Content, Contents, ExternalFiles, bounded, vector
from inferometer.formats.onnx.faults import MAX_NESTING, MAX_NODES, MAX_NUMBER, Fault, UnknownShapeError, WrongAttribute
from inferometer.formats.onnx.messages import Function, GraphDef, Node, OnnxModel, TensorDef, element_bytes, is_float
from inferometer.formats.onnx.rules.common import nothing_known, static, unknown
from inferometer.formats.onnx.step import OnnxRow, OnnxStep, Scope, declared, ordered, prefix_of
from inferometer.formats.onnx.symbols import Symbols
from inferometer.formats.onnx.tables import table
from inferometer.formats.onnx.value import Call, Loose, Notes, Out, Shape, StoredTensor, Value

_EIGHT_BITS = frozenset({"u8", "i8"})


class Walk:
    """One pass over a model. It collects notes, and counts nodes so that no file can make it run for ever."""

    def __init__(self, model: OnnxModel, symbols: Symbols, contents: Contents, files: ExternalFiles) -> None:
        self.model = model
        self.symbols = symbols
        self.notes = Notes()
        self.contents = contents
        self.files = files
        self.folded: dict[tuple[str, int], str] = {}  # nodes that are computed when the model is loaded
        self.used: set[str] = set()  # names of outermost tensors that something reads
        self._left = MAX_NODES
        self._names: dict[tuple[str, int], str] = {}
        self._counts: dict[str, int] = {}
        self._table = table()

    def graph(self, graph: GraphDef, scope: Scope) -> tuple[OnnxStep, ...]:
        """Walk a graph whose inputs stand in the scope already."""
        if scope.depth > MAX_NESTING:
            raise Fault(f"graphs or functions nested more than {MAX_NESTING} deep")
        scope.declared = declared(graph.infos, graph.outputs)
        self.store(graph, scope)
        return self.nodes(graph.nodes, scope)

    def store(self, graph: GraphDef, scope: Scope) -> None:
        seen: set[str] = set()
        for tensor in graph.initializers:
            if tensor.name in seen:
                raise Fault(f"two stored tensors named {tensor.name!r}", offset=tensor.start)
            seen.add(tensor.name)
            scope.values[tensor.name] = self.stored(tensor, scope.full_name(tensor.name), initializer=True)

    def stored(self, tensor: TensorDef, name: str, *, initializer: bool = False) -> Value:
        count = prod(tensor.dims)
        self.files.check(tensor, count)
        size = tensor.sparse if tensor.sparse is not None else element_bytes(tensor.dtype, count)
        table = initializer and is_float(tensor.dtype) and sum(dim != 1 for dim in tensor.dims) > 1
        stored = StoredTensor(name=name, shape=tensor.dims, dtype=tensor.dtype, nbytes=size, table=table)
        return Value(name=name, shape=tensor.dims, dtype=tensor.dtype, stored=(stored,), source=tensor)

    def nodes(self, nodes: tuple[Node, ...], scope: Scope) -> tuple[OnnxStep, ...]:
        inside, stuck = ordered(nodes)
        if stuck is not None:
            raise Fault("it needs its own result: the graph is cyclic", where=describe(stuck), offset=stuck.start)
        steps: list[OnnxStep] = []
        for node in inside:
            try:
                steps += self.node(node, scope)
            except Fault as fault:
                if fault.where is None:
                    fault.where = describe(node)
                if fault.offset is None:
                    fault.offset = node.start
                raise
        return tuple(steps)

    def node(self, node: Node, scope: Scope) -> tuple[OnnxStep, ...]:
        self._left -= 1
        if self._left < 0:
            raise Fault(f"more than {MAX_NODES:,} nodes, repeated ones counted")
        if repeated := next((name for name in node.outputs if name and name in scope.values), None):
            raise Fault(f"a second tensor named {repeated!r}")
        node = _with_arguments(node, scope)
        inputs = tuple(self._input(name, scope) for name in node.inputs)
        function = self.model.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return self._inlined(node, function, inputs, scope)
        row = self._table.get((node.domain, node.op_type))
        if row is None:
            self.notes.add("unknown operators", operator(node))
            row = _UNKNOWN
        if row.kind == "control":
            from inferometer.formats.onnx.control import walk_control  # noqa: PLC0415 - it walks bodies with this class

            return walk_control(self, self.call(node, inputs, scope), row, scope)
        if node.op_type == "Constant" and not node.domain and node.outputs:
            self._count_folded(node, scope)
            scope.values[node.outputs[0]] = self._constant(node, scope)
            return ()
        if row.kind == "custom" and (held := tuple(self._held_inside(node, scope))):
            places = range(len(inputs), len(inputs) + len(held))
            inputs, row = (*inputs, *held), replace(row, weights=(*row.weights, *places))
        return self._plain(self.call(node, inputs, scope), row, scope)

    def _held_inside(self, node: Node, scope: Scope) -> Iterator[Value]:
        """What the graphs inside a node store that is not walked: a search holds a whole decoder, and so the model."""
        inside = [attribute.value for attribute in node.attributes.values() if isinstance(attribute.value, GraphDef)]
        prefix = prefix_of(self.unique(scope, node))
        while inside:
            graph = inside.pop()
            yield from (self.stored(tensor, prefix + tensor.name, initializer=True) for tensor in graph.initializers)
            inner = (attribute.value for each in graph.nodes for attribute in each.attributes.values())
            inside += [value for value in inner if isinstance(value, GraphDef)]

    def call(self, node: Node, inputs: tuple[Value | None, ...], scope: Scope) -> Call:
        opset = scope.opsets.get(node.domain, 1)
        return Call(node=node, inputs=inputs, opset=opset, notes=self.notes, read=self.contents.read)

    def _plain(self, call: Call, row: OnnxRow, scope: Scope) -> tuple[OnnxStep, ...]:
        node = call.node
        given = [value for value in call.inputs if value is not None]
        if len(given) < row.least:
            raise Fault(f"{len(given)} inputs where {row.least} are needed")
        try:
            outs = row.infer(call)
        except UnknownShapeError:
            outs = [unknown(given[0].dtype if given else None) for _ in node.outputs]
        except (IndexError, ValueError):  # a rule reached for a dimension that is not there
            outs, row = self.not_inferred(call, scope, Fault("an input has fewer or more dimensions than it takes"))
        except WrongAttribute:
            raise
        except Fault as fault:
            outs, row = self.not_inferred(call, scope, fault)
        outs += [unknown()] * (len(node.outputs) - len(outs))
        # A stored tensor in another shape is stored still, also where the shape is worked out from an input's.
        aside = row.settings if row.passes else ()
        holding = [value for index, value in enumerate(call.inputs) if value is not None and index not in aside]
        constant = row.folds and bool(holding) and all(value.constant for value in holding)
        values = tuple(
            self.value(name, out, scope, (call, row, constant)) for name, out in zip(node.outputs, outs, strict=False)
        )
        for name, value in zip(node.outputs, values, strict=True):
            if name:
                scope.values[name] = value
        if constant and all(value.constant or not value.name for value in values):
            self._count_folded(node, scope)
            return ()
        return (OnnxStep(name=self.unique(scope, node), call=call, row=row, outs=values),)

    def not_inferred(self, call: Call, scope: Scope, fault: Fault) -> tuple[list[Out], OnnxRow]:
        """Unknown results, where sizes that do not fit may be our inference's: in a loop's body, or after a guess.

        Numbers that the file itself gives, and that no engine could use, are the file's fault; in a branch that may
        never be taken they are how one finds out that it is not.
        """
        shapes = [value.shape for value in call.inputs if value is not None]
        guessed = "assumptions" in self.notes.counts or bool(self.notes.invented)
        given = scope.depth == 0 and not guessed and all(static(shape) is not None for shape in shapes)
        if given or scope.tentative:
            fault.of_sizes = True
            raise fault
        self.notes.add("shapes not inferred", self.unique(scope, call.node), fault.reason)
        reason = f"its shapes could not be inferred: {fault.reason}"
        row = OnnxRow(kind="custom", infer=nothing_known, attributes={"reason": reason}, folds=False)
        return nothing_known(call), row

    def value(self, name: str, out: Out, scope: Scope, made_by: tuple[Call, OnnxRow, bool] | None = None) -> Value:
        """A result, with what the file declares of it where the rule did not know."""
        if not name:
            return Value(name="", shape=(), dtype=None)
        full = scope.full_name(name)
        shape, dtype = self.shaped(name, full, out, scope)
        # Known elements, where they are as many as the shape says.
        content = out.content
        fitting = content if content is not None and content.shape == shape else None
        value = Value(name=full, shape=shape, dtype=dtype, content=fitting, group=out.group, length=out.length)
        if made_by is None:
            return value
        call, row, constant = made_by
        first = call.inputs[0] if call.inputs else None
        if row.kind == "dequantize" and first is not None and first.dtype in _EIGHT_BITS:
            value = replace(value, dequantized=first.dtype)
        elif row.kind in {"view", "copy"} and first is not None and first.dequantized:
            value = replace(value, dequantized=first.dequantized)
        if constant and out.group == "tensor" and static(shape) is not None:
            return replace(value, stored=_origin(value, call, row))
        return value

    def shaped(self, name: str, full: str, out: Out, scope: Scope) -> tuple[Shape | None, str | None]:
        """What the rule inferred, then what the file declares, then a new symbol for a size that neither gives."""
        stated = scope.declared.get(name)
        axes = stated.axes if stated is not None and stated.group in {"tensor", "sparse"} else None
        file_says: Loose | None = None if axes is None else tuple(self.symbols.dim(axis) for axis in axes)
        dtype = out.dtype or (stated.dtype if stated is not None else None)
        if out.shape is None:
            if file_says is None:
                if out.group == "tensor":
                    self.notes.add("unknown shapes", full, "not even the number of dimensions")
                return None, dtype
            return tuple(self._or_invented(dim, full, axis) for axis, dim in enumerate(file_says)), dtype
        if file_says is not None and len(file_says) != len(out.shape):
            self.notes.add(
                "disagreements", full, f"the file declares {len(file_says)} dimensions, not {len(out.shape)}"
            )
            file_says = None
        shape = tuple(
            self._merged(dim, None if file_says is None else file_says[axis], full, axis)
            for axis, dim in enumerate(out.shape)
        )
        return shape, dtype

    def _merged(self, inferred: Dim | None, stated: Dim | None, full: str, axis: int) -> Dim:
        if inferred is None or stated is None:
            return self._or_invented(stated if inferred is None else inferred, full, axis)
        if isinstance(inferred, int):
            if isinstance(stated, int) and stated != inferred:
                self.notes.add(
                    "disagreements", full, f"the file declares {stated} for size {axis}, which is {inferred}"
                )
            return self._or_invented(inferred, full, axis)
        if symbols_in(inferred) & self.notes.invented.keys():
            return stated  # the file knows what the rules had to call unknown
        return inferred

    def _or_invented(self, dim: Dim | None, full: str, axis: int) -> Dim:
        if dim is None:
            symbol = Symbol(f"{full}.{axis}")
            self.notes.invented.setdefault(symbol.name, full)
            return symbol
        if isinstance(dim, int) and not 0 <= dim <= MAX_NUMBER:
            raise Fault(f"tensor {full!r} would have the size {dim}")
        return dim

    def _input(self, name: str, scope: Scope) -> Value | None:
        if not name:
            return None
        value = scope.find(name)
        if value is not None and value.source is not None:
            self.used.add(value.name)
        if value is None and name not in scope.absent:
            raise Fault(f"its input {name!r} is made by nothing")
        return value

    def _constant(self, node: Node, scope: Scope) -> Value:
        """A Constant node: one of several attributes holds the value."""
        name = scope.full_name(node.outputs[0])
        for key, attribute in node.attributes.items():
            value = attribute.value
            if key in {"value", "sparse_value"} and value is not None and hasattr(value, "dims"):
                return self.stored(value, name)
            if key in {"value_int", "value_float"} and isinstance(value, int | float):
                return _listed(name, Content((), (bounded(value),)), "i64" if key == "value_int" else "f32", 1)
            if key in {"value_ints", "value_floats"} and isinstance(value, tuple):
                content = vector(map(bounded, value)) if attribute.count == len(value) else None
                return _listed(name, content, "i64" if key == "value_ints" else "f32", attribute.count)
            if key in {"value_string", "value_strings"}:
                return _listed(name, None, "string", attribute.count)
        raise Fault("a constant without a value")

    def _inlined(
        self, node: Node, function: Function, inputs: tuple[Value | None, ...], scope: Scope
    ) -> tuple[OnnxStep, ...]:
        """A function of the file's own, its body in place of the call."""
        if scope.depth >= MAX_NESTING:
            raise Fault(f"functions nested more than {MAX_NESTING} deep")
        self.notes.add("inlined functions", operator(node))
        inner = Scope(
            opsets=function.opsets or scope.opsets,
            prefix=prefix_of(self.unique(scope, node)),
            declared=declared(function.infos),
            renamed={
                formal: scope.full_name(actual)
                for formal, actual in zip(function.outputs, node.outputs, strict=False)
                if actual
            },
            arguments={**function.defaults, **node.attributes},
            absent=frozenset(function.inputs),
            depth=scope.depth + 1,
        )
        for formal, value in zip(function.inputs, inputs, strict=False):
            if value is not None:
                inner.values[formal] = value
        steps = self.nodes(function.nodes, inner)
        self.bind(node.outputs, function.outputs, inner, scope)
        return steps

    def bind(self, outer: tuple[str, ...], names: tuple[str, ...], inner: Scope, scope: Scope) -> None:
        """Give results of a body their names outside."""
        for actual, formal in zip(outer, names, strict=False):
            if actual:
                value = inner.find(formal)
                if value is None:
                    raise Fault(f"the result {formal!r} of its body is made by nothing")
                scope.values[actual] = value
        if len(names) < len([name for name in outer if name]):
            raise Fault(f"{len(outer)} outputs of a body that has {len(names)}")

    def unique(self, scope: Scope, node: Node) -> str:
        """A name for a node that no other has: its own, or that of its result."""
        place = (scope.prefix, node.start)  # a loop's body may be walked more than once
        if place not in self._names:
            name = scope.prefix + (node.name or next((n for n in node.outputs if n), "") or node.op_type)
            count = self._counts[name] = self._counts.get(name, 0) + 1
            self._names[place] = name if count == 1 else f"{name}#{count}"
        return self._names[place]

    def _count_folded(self, node: Node, scope: Scope) -> None:
        self.folded[scope.prefix, node.start] = operator(node)


def _listed(name: str, content: Content | None, dtype: str, count: int) -> Value:
    shape: Shape = () if content is not None and content.shape == () else (count,)
    stored = StoredTensor(name=name, shape=shape, dtype=dtype, nbytes=element_bytes(dtype, count))
    return Value(name=name, shape=shape, dtype=dtype, content=content, stored=(stored,))


def _origin(value: Value, call: Call, row: OnnxRow) -> tuple[StoredTensor, ...]:
    """What a constant result is made of: the stored tensor itself, or one that is computed when the model is loaded."""
    first = call.inputs[0] if call.inputs else None
    shape = static(value.shape) or ()
    # Whether what is looked up once, at loading, is as large as the table: then the table itself is named
    if first is not None and (
        row.passes or (row.kind == "gather" and (prod(static(first.shape) or ()) <= prod(shape)))
    ):
        scales = (
            stored
            for i, other in enumerate(call.inputs[1:], start=1)
            if other is not None and i not in row.settings
            for stored in other.stored
        )
        return (*first.stored, *scales)
    table = any(other is not None and other.stored[0].table for other in call.inputs)
    return (StoredTensor(name=value.name, shape=shape, dtype=value.dtype, table=table),)


def _with_arguments(node: Node, scope: Scope) -> Node:
    """Within a function: the caller's attributes in place of references to them."""
    if scope.arguments is None or not any(attribute.reference for attribute in node.attributes.values()):
        return node
    attributes = {}
    for name, attribute in node.attributes.items():
        if not attribute.reference:
            attributes[name] = attribute
        elif (given := scope.arguments.get(attribute.reference)) is not None and given.reference is None:
            attributes[name] = replace(given, name=name)
    return replace(node, attributes=attributes)


def describe(node: Node) -> str:
    name = node.name or next((name for name in node.outputs if name), "")
    return f"node {name!r} ({operator(node)})"


def operator(node: Node) -> str:
    return node.source or f"{node.domain}.{node.op_type}" if node.domain else node.op_type


_UNKNOWN = OnnxRow(kind="custom", infer=nothing_known, attributes={"reason": "the operator is not known"}, folds=False)
