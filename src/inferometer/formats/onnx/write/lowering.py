"""Lowering: each op of a graph becomes ONNX nodes, in the order of execution.

A rule a kind, in the modules beside this one. What the graph leaves open (the numbers of a norm or a rotation, which
change no size and no time) comes from the config.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inferometer.core.dims import Dim, Expression, Symbol, evaluate, symbols_in
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, Op, Tensor
from inferometer.formats.synth.files import epsilon_of, rope_theta_of
from inferometer.formats.synth.weights import Array, Weight, executed, planned_op

# The ONNX graph while it grows: nodes and stored weights as plain values, and the sizes that are known at run time.
#
# Nothing here needs the `onnx` package; `write` turns the result into a file.


@frozen
class WrittenNode:
    kind: str  # ONNX's op type
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@frozen
class WrittenWeight:
    """A weight as the file holds it: `transposed` swaps its two axes."""

    weight: Weight
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.weight.shape[::-1] if self.transposed else self.weight.shape


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """A tensor that flows: its name in the ONNX graph and the shape it has there."""

    name: str
    shape: tuple[Dim, ...]


@frozen
class WrittenPort:
    """An input or output of the model. `integer` is int64; everything else has the weights' format."""

    name: str
    shape: tuple[Dim, ...]
    integer: bool = False


class Nodes:
    """Collects nodes.

    `scope` is the op being lowered: its name begins every node's name, so that what a runtime measures can be put back
    to the layer it came from.
    """

    def __init__(self, float_type: str) -> None:
        self.float_type = np.dtype(float_type)
        self.nodes: list[WrittenNode] = []
        self.stored: dict[str, WrittenWeight] = {}
        self.inputs: list[WrittenPort] = []
        self.outputs: list[WrittenPort] = []
        self.scope = ""
        self._names: dict[str, int] = {}
        self._made: dict[Any, str] = {}
        self._symbols: dict[str, tuple[str, int]] = {}

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; the name of its output, or of all of them where it has several."""
        name = self._fresh(f"{self.scope}/{kind}")
        names = (name,) if outputs == 1 else tuple(f"{name}.{index}" for index in range(outputs))
        self.nodes.append(WrittenNode(kind=kind, name=name, inputs=inputs, outputs=names, attributes=attributes))
        return names[0] if outputs == 1 else names

    def floats(self, *values: float) -> str:
        """A constant in the model's format: a scalar for one value."""
        return self.constant(np.array(values[0] if len(values) == 1 else values, self.float_type))

    def wholes(self, *values: int) -> str:
        """A constant vector of int64: axes, shapes, positions."""
        return self.constant(np.array(values, np.int64))

    def scalar(self, value: int) -> str:
        """A constant int64 without axes."""
        return self.constant(np.array(value, np.int64))

    def number(self, dim: Dim) -> str:
        """A dimension as an int64 without axes."""
        if isinstance(dim, int):
            return self.scalar(dim)
        return self.once(
            ("number", dim), lambda: self.add("Squeeze", self.size(dim), self.wholes(0)), scope=f"sizes/{dim}"
        )

    def named(self, name: str, value: str) -> str:
        """Give a value a name of its own, as outputs have."""
        self.nodes.append(WrittenNode(kind="Identity", name=f"{self.scope}/{name}", inputs=(value,), outputs=(name,)))
        return name

    def constant(self, array: Array) -> str:
        key = ("constant", array.dtype.str, array.shape, array.tobytes())
        return self.once(key, lambda: self.add("Constant", value=array), scope="constants")

    def once(self, key: Any, make: Any, *, scope: str) -> str:
        """What is the same for every layer is made by the first that asks."""
        if key not in self._made:
            before, self.scope = self.scope, scope
            self._made[key] = make()
            self.scope = before
        return self._made[key]

    def weight(self, weight: Weight, *, transposed: bool = False) -> str | None:
        """Store a weight and give its name; None where it is stored already the other way round."""
        known = self.stored.setdefault(weight.name, WrittenWeight(weight=weight, transposed=transposed))
        return weight.name if known.transposed == transposed or len(weight.shape) < 2 else None

    def accept(self, port: WrittenPort) -> WrittenValue:
        """Add an input of the model; from then on its symbolic axes give the symbols' sizes."""
        self.inputs.append(port)
        for axis, dim in enumerate(port.shape):
            if isinstance(dim, Symbol):
                self._symbols.setdefault(dim.name, (port.name, axis))
        return WrittenValue(port.name, port.shape)

    def size(self, dim: Dim) -> str:
        """A dimension as an int64 vector of one element."""
        if isinstance(dim, int):
            return self.wholes(dim)
        return self.once(("size", dim), lambda: self._measured(dim), scope=f"sizes/{dim}")

    def shape(self, dims: Sequence[Dim]) -> str:
        """Dimensions as an int64 vector."""
        whole = [dim for dim in dims if isinstance(dim, int)]
        if len(whole) == len(dims):
            return self.wholes(*whole)
        return self.once(
            ("shape", tuple(dims)), lambda: self.add("Concat", *[self.size(dim) for dim in dims], axis=0), scope="sizes"
        )

    def _measured(self, dim: Symbol | Expression) -> str:
        if isinstance(dim, Symbol):
            if dim.name not in self._symbols:
                raise InferometerError(
                    f"{self.scope!r} needs the size {dim.name!r}, which no input of the model tells.",
                    remedy=f"Fix it: sizes={{{dim.name!r}: …}}.",
                )
            source, axis = self._symbols[dim.name]
            shape = self.once(("shape of", source), lambda: self.add("Shape", source), scope="sizes")
            return str(self.add("Gather", shape, self.wholes(axis), axis=0))
        kind = {"+": "Add", "-": "Sub", "*": "Mul", "//": "Div", "%": "Mod"}[dim.operation]
        return str(self.add(kind, self.size(dim.left), self.size(dim.right)))

    def _fresh(self, name: str) -> str:
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return name if count == 0 else f"{name}_{count}"


# Shapes: fixing sizes, comparing them, and turning one shape into another.
#
# The graph says that a tensor is looked at in another shape, not how: what moves is read off the two shapes.

_OPERATIONS: dict[str, Any] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
_PRIMES = (7919, 104_729, 1_299_709, 15_485_863, 179_424_673, 2_038_074_743)


def fixed(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    """The dimension with the symbols that `sizes` knows replaced."""
    if isinstance(dim, Symbol):
        return sizes.get(dim.name, dim)
    if isinstance(dim, Expression):
        combined: Dim = _OPERATIONS[dim.operation](fixed(dim.left, sizes), fixed(dim.right, sizes))
        return combined
    return dim


def probe(dims: Sequence[Dim]) -> tuple[int, ...]:
    """Sizes as plain numbers, for comparing: each symbol stands for a prime of its own that no real size is."""
    names = sorted({"batch", "query", "context"} | set().union(*(symbols_in(dim) for dim in dims)))
    values = {name: _PRIMES[index % len(_PRIMES)] + 2 * (index // len(_PRIMES)) for index, name in enumerate(names)}
    return tuple(int(evaluate(dim, values)) for dim in dims)


def reshaped(nodes: Nodes, value: WrittenValue, shape: Sequence[Dim]) -> WrittenValue:
    """The same numbers in another shape. Sizes that stay in place, and one more, need not be computed at run time."""
    shape = tuple(shape)
    if value.shape == shape:
        return value
    kept = [index < len(value.shape) and dim == value.shape[index] for index, dim in enumerate(shape)]
    target: list[int] = []
    for dim, same in zip(shape, kept, strict=True):
        target.append(dim if isinstance(dim, int) else 0 if same else -1)
    if target.count(-1) <= 1:
        name = nodes.add("Reshape", value.name, nodes.wholes(*target))
    else:
        name = nodes.add("Reshape", value.name, nodes.shape(shape))
    return WrittenValue(name, shape)


def transposed(nodes: Nodes, value: WrittenValue, *order: int) -> WrittenValue:
    name = nodes.add("Transpose", value.name, perm=list(order))
    return WrittenValue(name, tuple(value.shape[axis] for axis in order))


def reinterpreted(nodes: Nodes, value: WrittenValue, shape: Sequence[Dim], *, last: bool = False) -> WrittenValue:
    """Look at a value in another shape: a reshape, a transpose, or a part of it (`last`: from the end)."""
    shape = tuple(shape)
    have, want = probe((*value.shape, *shape))[: len(value.shape)], probe((*value.shape, *shape))[len(value.shape) :]
    if have == want:
        return WrittenValue(value.name, shape)
    if sorted(have) == sorted(want):
        left = list(enumerate(have))
        order = []
        for size in want:
            place = next(index for index, (_, other) in enumerate(left) if other == size)
            order.append(left.pop(place)[0])
        return transposed(nodes, value, *order)
    if len(have) == 4 and want == (have[0], have[2] * have[3], have[1]):  # a plane as a sequence of tokens
        rows = reshaped(nodes, value, (value.shape[0], value.shape[1], shape[1]))
        return transposed(nodes, rows, 0, 2, 1)
    if len(want) == 4 and have == (want[0], want[2] * want[3], want[1]):  # and back
        columns = transposed(nodes, value, 0, 2, 1)
        return reshaped(nodes, columns, shape)
    if _product(have) == _product(want):
        return reshaped(nodes, value, shape)
    return _part(nodes, value, shape, (have, want), last=last)


def _part(
    nodes: Nodes,
    value: WrittenValue,
    shape: tuple[Dim, ...],
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    last: bool,
) -> WrittenValue:
    """One axis dropped (its first or last entry), or one axis shortened."""
    have, want = sizes
    if len(want) == len(have) - 1:
        axis = next(axis for axis in range(len(have)) if have[:axis] + have[axis + 1 :] == want)
        name = nodes.add("Gather", value.name, nodes.scalar(-1 if last else 0), axis=axis)
        return WrittenValue(name, shape)
    differing = [axis for axis in range(len(have)) if len(have) == len(want) and have[axis] != want[axis]]
    if len(differing) == 1 and isinstance(shape[differing[0]], int):
        axis, count = differing[0], want[differing[0]]
        start, end = (-count, 2**62) if last else (0, count)
        # `end` may lie beyond the axis.
        name = nodes.add("Slice", value.name, nodes.wholes(start), nodes.wholes(end), nodes.wholes(axis))
        length = end - start
        part = WrittenValue(name, (*value.shape[:axis], length, *value.shape[axis + 1 :]))
        return WrittenValue(part.name, shape)
    raise InferometerError(
        f"{nodes.scope!r} looks at {shown(value.shape)} as {shown(shape)}, which cannot be lowered to ONNX."
    )


def concat_axis(parts: Sequence[tuple[Dim, ...]], whole: tuple[Dim, ...]) -> int | None:
    """The axis along which the parts make the whole, or None."""
    flat = probe([*whole, *(dim for part in parts for dim in part)])
    rank = len(whole)
    if any(len(part) != rank for part in parts):
        return None
    total, rest = flat[:rank], flat[rank:]
    sizes = [rest[start : start + rank] for start in range(0, len(rest), rank)]
    for axis in range(rank - 1, -1, -1):
        others = all(size[:axis] + size[axis + 1 :] == total[:axis] + total[axis + 1 :] for size in sizes)
        if others and sum(size[axis] for size in sizes) == total[axis]:
            return axis
    return None


def shown(shape: Sequence[Dim]) -> str:
    """A shape in a message."""
    return "[" + ", ".join(str(dim) for dim in shape) + "]"


def _product(sizes: tuple[int, ...]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


Rule = Callable[["OnnxLowering", Op], None]
RULES: dict[str, Rule] = {}


def rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Register how ops of these kinds are lowered."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, function))
        return function

    return register


@frozen
class Numbers:
    """What a config says and a graph need not know."""

    epsilon: float = 1e-5
    rope_theta: float = 10_000.0
    attention_scale: float | None = None
    attention_cap: float = 50.0
    logit_cap: float = 30.0


def numbers_of(config: Mapping[str, Any]) -> Numbers:
    scalar = config.get("query_pre_attn_scalar")
    return Numbers(
        epsilon=max(epsilon_of(config), 1e-12),
        rope_theta=rope_theta_of(config),
        attention_scale=float(scalar) ** -0.5 if scalar else None,
        attention_cap=float(config.get("attn_logit_softcapping") or 50.0),
        logit_cap=float(config.get("final_logit_softcapping") or 30.0),
    )


@dataclass(slots=True)
class OnnxLowering:
    """The state of one lowering: what has been made under which name, and where in the graph it stands."""

    nodes: Nodes
    sizes: Mapping[str, int]
    numbers: Numbers = field(default_factory=Numbers)
    made: dict[str, WrittenValue] = field(default_factory=dict)
    notes: dict[Any, Any] = field(default_factory=dict)  # what an op leaves for a later one of its layer
    used: set[str] = field(default_factory=set)
    caches: int = 0  # attention ops with a cache so far
    block: Any = None
    repetition: int = 0

    def full(self, name: str) -> str:
        named: str = self.block.full_name(name, self.repetition)
        return named

    def shape(self, tensor: Tensor) -> tuple[Dim, ...]:
        return tuple(fixed(dim, self.sizes) for dim in tensor.shape)

    def size(self, dim: Dim) -> Dim:
        return fixed(dim, self.sizes)

    def read(self, tensor: Tensor) -> WrittenValue:
        """The value of an op's input, in the shape the op sees it in."""
        name = self.full(tensor.name)
        shape = self.shape(tensor)
        if name not in self.made:
            if tensor.role != "index":
                raise InferometerError(
                    f"{self.nodes.scope!r} reads {name!r}, which no op before it makes: the graph cannot be run."
                )
            self.made[name] = self._index(name, shape)
        self.used.add(self.made[name].name)
        return reinterpreted(self.nodes, self.made[name], shape)

    def give(self, tensor: Tensor, value: WrittenValue | str) -> None:
        """The op's output. It must have the shape that the graph says."""
        shape = self.shape(tensor)
        if isinstance(value, WrittenValue):
            both = probe((*value.shape, *shape))
            if both[: len(value.shape)] != both[len(value.shape) :]:
                raise InferometerError(
                    f"{self.nodes.scope!r} gives {shown(value.shape)}, and the graph says {shown(shape)}."
                )
            value = value.name
        self.made[self.full(tensor.name)] = WrittenValue(value, shape)

    def weights(self, op: Op) -> tuple[Weight, ...]:
        return planned_op(self.block, op, self.repetition)

    def refuse(self, op: Op, why: str) -> InferometerError:
        return InferometerError(
            f"{self.full(op.name)!r} ({op.kind}) cannot be lowered to ONNX: {why}.",
            remedy="Write this model as .gguf or .safetensors where that fits, or choose another.",
        )

    def _index(self, name: str, shape: tuple[Dim, ...]) -> WrittenValue:
        """Indices that the model makes itself: positions count on from the cache, token types are 0."""
        if "position" in name and len(shape) <= 2:
            return WrittenValue(positions(self, shape[-1]), (shape[-1],)) if len(shape) == 1 else self._rows(shape)
        if "types" in name:
            zero = np.zeros(1, np.int64)
            made = self.nodes.add("ConstantOfShape", self.nodes.shape(shape), value=zero)
            return WrittenValue(made, shape)
        raise InferometerError(f"{self.nodes.scope!r} needs the indices {name!r}, which nothing in the graph gives.")

    def _rows(self, shape: tuple[Dim, ...]) -> WrittenValue:
        """The same positions for every sequence."""
        row = positions(self, shape[-1])
        return WrittenValue(self.nodes.add("Expand", row, self.nodes.shape(shape)), shape)


def positions(lowering: OnnxLowering, count: Dim) -> str:
    """Positions of the new tokens as an int64 vector: they begin where the cache ends."""
    nodes = lowering.nodes
    start: Dim = Symbol("context") if lowering.notes.get("cached") and count == Symbol("query") else 0
    begin = lowering.size(start)

    def make() -> str:
        first, last = nodes.number(begin), nodes.number(begin + count)
        return str(nodes.add("Range", first, last, nodes.scalar(1)))

    return nodes.once(("positions", begin, count), make, scope="positions")


def lower(graph: Graph, numbers: Numbers, sizes: Mapping[str, int], *, float_type: str = "float32") -> Nodes:
    """The graph as ONNX nodes. `sizes` fixes symbols; the others stay open and are named after themselves."""
    lowering = OnnxLowering(nodes=Nodes(float_type), sizes=sizes, numbers=numbers)
    _accept(lowering, graph)
    for block, repetition, op in executed(graph):
        lowering.block, lowering.repetition = block, repetition
        lowering.nodes.scope = lowering.full(op.name)
        if op.kind not in RULES:
            raise lowering.refuse(op, f"there is no rule for {op.kind}")
        try:
            RULES[op.kind](lowering, op)
        except (LookupError, TypeError, ValueError) as error:
            raise lowering.refuse(op, f"its form is not known ({type(error).__name__}: {error})") from error
        for weight in lowering.weights(
            op
        ):  # a parameter that no node reads (a token only training uses) is still stored
            if weight.parameter:
                lowering.nodes.weight(weight)
    # Name the outputs: a language model's is called logits, as its users expect. What an op gives and no other reads is
    # an output too, or runtimes would leave out what makes it.
    nodes, named = lowering.nodes, tuple(dict.fromkeys(tensor.name for tensor in graph.outputs))
    nodes.scope = "outputs"
    loose = [name for name, value in lowering.made.items() if value.name not in lowering.used and name not in named]
    given = {port.name for port in nodes.inputs} | set(nodes.stored)
    results = []
    for name in (*named, *(name for name in loose if name not in given)):
        value = lowering.made[name]
        shown = "logits" if lowering.notes["cached"] and named == (name,) else name
        shown = f"{shown}.output" if shown in given else shown
        results.append(WrittenPort(name=nodes.named(shown, value.name), shape=value.shape))
    nodes.outputs[:0] = results
    return lowering.nodes


def _accept(lowering: OnnxLowering, graph: Graph) -> None:
    """The model's inputs, and the caches that its attention reads."""
    for tensor in graph.inputs:
        port = WrittenPort(name=tensor.name, shape=lowering.shape(tensor), integer=tensor.role == "index")
        lowering.made[tensor.name] = lowering.nodes.accept(port)
    ops = (op for _, _, op in executed(graph))
    cached = [op for op in ops if op.kind == "attention" and op.get("cached") and not op.get("cross")]
    for index, op in enumerate(cached):
        _accept_cache(lowering, op, index)
    lowering.notes["cached"] = bool(cached)


def _accept_cache(lowering: OnnxLowering, op: Op, index: int) -> None:
    batch = lowering.size(op.inputs[0].shape[0])
    context = lowering.size(op["context"])
    for part, features in (("key", op["head_dim"]), ("value", op.get("value_dim", op["head_dim"]))):
        name = f"past_key_values.{index}.{part}"
        port = WrittenPort(name=name, shape=(batch, op["kv_heads"], context, features))
        lowering.made[name] = lowering.nodes.accept(port)
