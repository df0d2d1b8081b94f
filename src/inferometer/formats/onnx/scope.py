"""Names in a graph, and in the graphs around it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from zlib import crc32

from inferometer.formats.onnx.faults import MAX_PREFIX
from inferometer.formats.onnx.messages import Attribute, GraphDef, Node, TypeDef, ValueInfo
from inferometer.formats.onnx.value import Value


@dataclass(slots=True, kw_only=True)
class Scope:
    """`prefix` keeps the names of inner graphs apart; `renamed` gives results of an inlined body the outer names."""

    opsets: Mapping[str, int]
    parent: "Scope | None" = None
    prefix: str = ""
    values: dict[str, Value] = field(default_factory=dict)
    declared: Mapping[str, TypeDef] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Attribute] | None = None  # within a function: what its caller gave for its attributes
    absent: frozenset[str] = frozenset()  # within a function: inputs its caller left out
    depth: int = 0
    tentative: bool = False  # within a branch that may be for other shapes than these

    def find(self, name: str) -> Value | None:
        scope: Scope | None = self
        while scope is not None:
            value = scope.values.get(name)
            if value is not None:
                return value
            scope = scope.parent
        return None

    def full_name(self, name: str) -> str:
        return self.renamed.get(name) or f"{self.prefix}{name}"


def prefix_of(name: str) -> str:
    """What stands before the names of a graph within a node; a long one is cut and made unique by a checksum."""
    return f"{name}/" if len(name) < MAX_PREFIX else f"{name[:200]}~{crc32(name.encode()):08x}/"


def declared(*lists: tuple[ValueInfo, ...]) -> dict[str, TypeDef]:
    """Declared types by name; a later list wins."""
    return {info.name: info.type for infos in lists for info in infos if info.type is not None}


def ordered(nodes: tuple[Node, ...]) -> tuple[tuple[Node, ...], Node | None]:
    """The nodes in an order in which each comes after what it needs, and a node that has no place in any.

    Files must be written in such an order, and nearly all are: those are only checked.
    """
    made = {name for node in nodes for name in node.outputs if name}
    done: set[str] = set()
    in_order = True
    for node in nodes:
        if any(name in made and name not in done for name in needs(node)):
            in_order = False
            break
        done.update(node.outputs)
    return (nodes, None) if in_order else _sorted(nodes, made)


def _sorted(nodes: tuple[Node, ...], made: set[str]) -> tuple[tuple[Node, ...], Node | None]:
    waiting = [len({name for name in needs(node) if name in made}) for node in nodes]
    users: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        for name in {name for name in needs(node) if name in made}:
            users.setdefault(name, []).append(index)
    ready = [index for index in range(len(nodes) - 1, -1, -1) if waiting[index] == 0]
    result: list[Node] = []
    while ready:
        node = nodes[ready.pop()]
        result.append(node)
        for name in node.outputs:
            for index in users.pop(name, ()):
                waiting[index] -= 1
                if waiting[index] == 0:
                    ready.append(index)
    stuck = next((node for index, node in enumerate(nodes) if waiting[index] > 0), None)
    return tuple(result), stuck


def needs(node: Node) -> set[str]:
    """Names a node reads: its inputs, and what its subgraphs take from outside."""
    names = {name for name in node.inputs if name}
    for attribute in node.attributes.values():
        if isinstance(attribute.value, GraphDef):
            names |= _captured(attribute.value)
    return names


def _captured(graph: GraphDef) -> set[str]:
    """All names an inner graph reads and does not make; nesting is bounded by the parser."""
    own = {info.name for info in graph.inputs} | {tensor.name for tensor in graph.initializers}
    read = {info.name for info in graph.outputs}
    for node in graph.nodes:
        read |= needs(node)
        own.update(node.outputs)
    return read - own
