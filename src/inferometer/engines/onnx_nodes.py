"""The edge to the `onnx` package: which nodes a model file has and how they hang together, weights left alone.

A node within the graph of another (a branch, a loop's body) has that other's name before its own, as in
`If_0/then/Conv_3`. A node without a name has that of its first result. No two have the same. Two branches may each make
a tensor of one name; it then has the name of the node around it too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

from inferometer.core.errors import DomainError, FormatError, MissingDependencyError, UnknownNameError
from inferometer.core.frozen import frozen

_PARTS = {"then_branch": "then", "else_branch": "else"}  # a loop's body keeps its name
_BITS = {
    1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128, 16: 16,
    17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2, 27: 6, 28: 6,
}  # fmt: skip


@frozen
class NodeRow:
    """A node. Names of tensors within a nested graph stand as they are, unless several graphs make one of that name."""

    name: str  # unique, with the names of the nodes around it
    engine_name: str  # as the engine will print it
    kind: str
    domain: str = ""
    inputs: tuple[str, ...] = ()  # of a node with graphs inside: also what those take from outside
    outputs: tuple[str, ...] = ()
    inside: str | None = None  # the node whose graph it is in
    results: tuple[str, ...] = ()  # of a node with graphs inside: what those give
    printed: str = ""  # what the engine prints where it was not given `engine_name`; "" for its kind and a number


@frozen
class Topology:
    """Nodes in the file's order, which is topological; a nested node comes after the one it is in."""

    nodes: tuple[NodeRow, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    stored: Mapping[str, float] = field(default_factory=dict)  # tensors in the file, and their bytes

    def users(self) -> dict[str, list[NodeRow]]:
        """By tensor, the nodes that take it."""
        users: dict[str, list[NodeRow]] = {}
        for node in self.nodes:
            for name in node.inputs:
                users.setdefault(name, []).append(node)
        return users


def load_model(path: Path) -> Any:
    """The file without the data that lies beside it."""
    try:
        onnx = import_module("onnx")
    except ImportError:
        raise MissingDependencyError(
            "Reading which nodes an ONNX model has needs the package onnx, which is not installed.",
            remedy="pip install 'inferometer[onnxruntime]'",
        ) from None
    try:
        return onnx.load(str(path), load_external_data=False)
    except FileNotFoundError:
        raise FormatError(f"There is no file {str(path)!r}.") from None
    except Exception as error:  # noqa: BLE001 - protobuf's decoder has its own kinds
        raise FormatError(f"{str(path)!r} cannot be read as ONNX: {error}.") from None


def open_sizes(model: Any) -> tuple[str, ...]:
    """Names of the dims that the inputs leave open."""
    names = (dim.dim_param for port in model.graph.input for dim in port.type.tensor_type.shape.dim)
    return tuple(dict.fromkeys(name for name in names if name))


def name_nodes(model: Any) -> dict[str, str]:
    """Give every node a name that no other has, in place: what was given, and the name it stands for in the file."""
    nodes = list(_all_nodes(model.graph))
    taken = {node.name for node in nodes if node.name}
    seen: set[str] = set()
    given: dict[str, str] = {}
    for node in nodes:
        if not node.name or node.name in seen:
            stem = node.name or next((name for name in node.output if name), "") or node.op_type
            name, count = stem, 1
            while name in taken:
                count += 1
                name = f"{stem}#{count}"
            node.name, given[name] = name, stem
            taken.add(name)
        seen.add(node.name)
    return given


def topology_of(model: Any, given: Mapping[str, str] | None = None) -> Topology:
    """The nodes of a model after `name_nodes`, which returned the names that were `given`."""
    counts = Counter(name for one in _all_graphs(model.graph) for name in set(_made(one)))
    made_twice = frozenset(name for name, count in counts.items() if count > 1)
    names = _Names(given=given or {}, shared=made_twice)
    rows = tuple(names.walk(model.graph))
    stored = dict(names.stored(model.graph))
    inputs = tuple(port.name for port in model.graph.input if port.name not in stored)
    return Topology(nodes=rows, inputs=inputs, outputs=tuple(port.name for port in model.graph.output), stored=stored)


@dataclass(slots=True, kw_only=True)
class _Names:
    """Names as the file has them, made unique by the nodes around them, and then by a number."""

    given: Mapping[str, str]
    shared: frozenset[str] = frozenset()  # tensors that several graphs make
    shown: dict[str, str] = field(default_factory=dict)  # by the engine's name
    counts: dict[str, int] = field(default_factory=dict)

    def unique(self, prefix: str, engine_name: str) -> str:
        if engine_name not in self.shown:
            name = prefix + self.given.get(engine_name, engine_name)
            count = self.counts[name] = self.counts.get(name, 0) + 1
            self.shown[engine_name] = name if count == 1 else f"{name}#{count}"
        return self.shown[engine_name]

    def walk(
        self, graph: Any, prefix: str = "", outer: str | None = None, tensors: Mapping[str, str] | None = None
    ) -> Iterator[NodeRow]:
        """`tensors` are the full names of those made around and in the graph, where they are not their own."""
        tensors = tensors or {}
        for node in graph.node:
            name = self.unique(prefix, node.name)
            inner = [(f"{name}/{part}/", within) for part, within in _graphs(node)]
            around = [{**tensors, **self._within(within, place)} for place, within in inner]
            results = (
                known.get(port.name, port.name)
                for known, (_, within) in zip(around, inner, strict=True)
                for port in within.output
            )
            row = _row(node, name, outer, tensors)
            yield replace(row, results=tuple(results), printed=self._printed(node))
            for known, (place, within) in zip(around, inner, strict=True):
                yield from self.walk(within, place, name, known)

    def _printed(self, node: Any) -> str:
        """A name that was given to a node without one is that of its result."""
        stands_for = str(self.given.get(node.name, node.name))
        return "" if node.name in self.given and stands_for in {*node.output, node.op_type} else stands_for

    def stored(self, graph: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
        """Tensors that the graph and those inside it store, and their bytes."""
        known = self._within(graph, prefix)
        for tensor in (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)):
            yield known.get(tensor.name, tensor.name), prod(tensor.dims) * _BITS.get(tensor.data_type, 0) / 8
        for node in graph.node:
            name = self.unique(prefix, node.name)
            for part, inner in _graphs(node):
                yield from self.stored(inner, f"{name}/{part}/")

    def _within(self, graph: Any, prefix: str) -> dict[str, str]:
        return {name: prefix + name for name in _made(graph) if name in self.shared}


def _all_nodes(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield node
        for _, inner in _graphs(node):
            yield from _all_nodes(inner)


def _graphs(node: Any) -> Iterator[tuple[str, Any]]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield _PARTS.get(attribute.name, attribute.name), attribute.g


def _row(node: Any, name: str, outer: str | None, tensors: Mapping[str, str]) -> NodeRow:
    captured = [name for _, graph in _graphs(node) for name in _captured(graph)]
    return NodeRow(
        name=name,
        engine_name=node.name,
        kind=node.op_type,
        domain=node.domain,
        inputs=tuple(dict.fromkeys(tensors.get(name, name) for name in (*node.input, *captured) if name)),
        outputs=tuple(tensors.get(name, name) for name in node.output if name),
        inside=outer,
    )


def _made(graph: Any) -> Iterator[str]:
    """Names that belong to a graph: those it is given, stores and makes."""
    yield from (port.name for port in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (name for node in graph.node for name in node.output if name)


def _all_graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for _, inner in _graphs(node):
            yield from _all_graphs(inner)


def _captured(graph: Any) -> list[str]:
    """What a graph takes from the one around it."""
    made = {port.name for port in graph.input} | {tensor.name for tensor in graph.initializer}
    taken: list[str] = []
    for node in graph.node:
        inner = (name for _, within in _graphs(node) for name in _captured(within))
        taken.extend(name for name in (*node.input, *inner) if name and name not in made)
        made.update(node.output)
    taken.extend(port.name for port in graph.output if port.name not in made)
    return taken


def require_sizes(model: Any, path: Path, sizes: Mapping[str, int]) -> None:
    """Sizes must be of dims that the file leaves open, and whole numbers."""
    known = open_sizes(model)
    for name, size in sizes.items():
        if name not in known:
            listing = f"It leaves open: {', '.join(known) or 'none'}."
            raise UnknownNameError(f"open size of {str(path)!r}", name, known, listing=listing)
        if isinstance(size, bool) or size < 1:
            raise DomainError(f"The size {name} must be a whole number of 1 or more, and is {size!r}.")
