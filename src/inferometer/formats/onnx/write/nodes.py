"""The ONNX graph while it grows: nodes and stored weights as plain values, and the sizes that are known at run time.

Nothing here needs the `onnx` package; `write` turns the result into a file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inferometer.core.dims import Dim, Expression, Symbol
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.formats.synth.weights import Array, Weight


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
