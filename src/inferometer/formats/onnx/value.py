"""What is known of a tensor while a graph is walked, and one node as a rule sees it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from inferometer.core.dims import Dim
from inferometer.core.frozen import frozen
from inferometer.formats.onnx.content import Content, Item
from inferometer.formats.onnx.faults import MAX_FOLLOWED, MAX_NOTES, Fault, UnknownShapeError, WrongAttribute
from inferometer.formats.onnx.messages import ELEMENTS, GraphDef, Node, TensorDef

Shape = tuple[Dim, ...]
Loose = tuple[Dim | None, ...]  # as a rule gives it: None is a size it cannot tell


@frozen
class StoredTensor:
    """A tensor that is there before the model runs: in the file, or computed once, when a runtime loads it."""

    name: str
    shape: Shape
    dtype: str | None
    nbytes: int | None = None
    table: bool = False  # a stored matrix of floats, or made of one: it may be learned


@frozen
class Value:
    """A tensor, or a sequence, map or optional of them. A constant one is made of `stored` tensors alone."""

    name: str
    shape: Shape | None
    dtype: str | None
    content: Content | None = None
    stored: tuple[StoredTensor, ...] = ()
    source: TensorDef | None = None  # whose few numbers can still be read
    group: str = "tensor"
    dequantized: str | None = None  # the 8-bit format it was dequantised from
    length: Item = None  # of a sequence

    @property
    def constant(self) -> bool:
        return bool(self.stored)


class Out(NamedTuple):
    """What a rule says of one output. `shape` None: not even the rank is known."""

    shape: Loose | None
    dtype: str | None
    content: Content | None = None
    group: str = "tensor"
    length: Item = None


@dataclass(slots=True)
class Notes:
    """Remarks collected on the way: each kind has a count and its first examples."""

    counts: dict[str, int] = field(default_factory=dict)
    invented: dict[str, str] = field(default_factory=dict)  # symbols for sizes the file does not tell, and whose
    examples: dict[str, dict[str, str]] = field(default_factory=dict)
    followed: int = 0  # elements of constants that rules have looked at

    def add(self, kind: str, what: str, why: str = "") -> None:
        examples = self.examples.setdefault(kind, {})
        if what in examples:
            return
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if len(examples) < MAX_NOTES:
            examples[what] = why


@dataclass(slots=True, kw_only=True)
class Call:
    """One node with what is known of its inputs: what rules look at."""

    node: Node
    inputs: tuple[Value | None, ...]
    opset: int
    notes: Notes
    read: Callable[[TensorDef], Content | None]

    # inputs

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int) -> Value:
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise WrongAttribute(f"{self.node.op_type} has no input {index}")
        return value

    def shape(self, index: int) -> Shape:
        shape = self.value(index).shape
        if shape is None:
            raise UnknownShapeError
        return shape

    def dtype(self, index: int) -> str | None:
        return self.value(index).dtype if self.has(index) else None

    def content(self, index: int) -> Content | None:
        if not self.has(index):
            return None
        value = self.value(index)
        content = value.content
        if content is None and value.source is not None:
            content = self.read(value.source)
        if content is None or self.notes.followed > MAX_FOLLOWED:
            return None
        self.notes.followed += len(content.items)
        return content

    def items(self, index: int) -> tuple[Item, ...] | None:
        content = self.content(index)
        return None if content is None else content.items

    def whole(self, index: int) -> tuple[int, ...] | None:
        """An input's elements where all are known whole numbers."""
        items = self.items(index)
        if items is None or not all(isinstance(item, int) for item in items):
            return None
        return tuple(item for item in items if isinstance(item, int))

    # attributes

    def has_attribute(self, name: str) -> bool:
        return name in self.node.attributes

    def _attribute(self, name: str, kind: type | tuple[type, ...]) -> Any:
        attribute = self.node.attributes.get(name)
        if attribute is None:
            return None
        if not isinstance(attribute.value, kind):
            raise WrongAttribute(f"attribute {name!r} is not what {self.node.op_type} takes")
        return attribute.value

    def integer(self, name: str, default: int = 0) -> int:
        value = self._attribute(name, int)
        return default if value is None else int(value)

    def number(self, name: str, default: float = 0.0) -> float:
        value = self._attribute(name, (int, float))
        return default if value is None else float(value)

    def text(self, name: str, default: str = "") -> str:
        value = self._attribute(name, str)
        return default if value is None else str(value)

    def element(self, name: str, otherwise: str | None) -> str | None:
        """The format that an attribute names by its number."""
        number = self.integer(name)
        return ELEMENTS[number].name if number in ELEMENTS else otherwise

    def integers(self, name: str) -> tuple[int, ...] | None:
        value = self._attribute(name, tuple)
        if value is not None and not all(isinstance(item, int) for item in value):
            raise WrongAttribute(f"attribute {name!r} is not a list of whole numbers")
        return value  # type: ignore[no-any-return]  # checked above

    def tensor(self, name: str) -> TensorDef | None:
        return self._attribute(name, TensorDef)  # type: ignore[no-any-return]  # checked there

    def graph(self, name: str) -> GraphDef:
        graph = self._attribute(name, GraphDef)
        if graph is None:
            raise WrongAttribute(f"{self.node.op_type} has no {name!r}")
        return graph  # type: ignore[no-any-return]  # checked there

    def count(self, name: str) -> int:
        """How many entries a list attribute has in the file."""
        attribute = self.node.attributes.get(name)
        return 0 if attribute is None else attribute.count

    # arguments that are attributes in old operator sets and inputs in new ones

    def listed(self, name: str, index: int) -> tuple[int, ...] | None:
        """Whole numbers from an attribute, or else from an input whose elements are known.

        UnknownShapeError: the input is there and its elements are not known.
        """
        if self.has_attribute(name):
            return self.integers(name)
        if not self.has(index):
            return None
        numbers = self.whole(index)
        if numbers is None:
            raise UnknownShapeError
        return numbers

    # helpers every rule needs

    def axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise Fault(f"axis {axis} of a tensor of {rank} dimensions")
        return axis % rank

    def assume(self, why: str) -> None:
        self.notes.add("assumptions", self.node.outputs[0] if self.node.outputs else self.node.name, why)
