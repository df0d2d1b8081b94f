"""Many graphs in one file of the package, as `inferometer.formats.networks.archive` describes and reads it."""

import gzip
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.dims import Dim, Expression, Symbol
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.formats.networks.archive import ArchiveTables

_RECENT = 4096  # how many outputs back an input is looked for
_LEVEL = 9


def write_archive(path: Path, graphs: Mapping[str, tuple[Graph, int]]) -> None:
    """One file of graphs, each with the side of the image that it was traced at."""
    # No time in the header: the same graphs give the same file.
    path.write_bytes(gzip.compress(msgspec.json.encode(tables_of(graphs)), _LEVEL, mtime=0))


def tables_of(graphs: Mapping[str, tuple[Graph, int]]) -> ArchiveTables:
    writer = _Writer()
    for name, (graph, image) in graphs.items():
        writer.add(name, graph, image)
    return writer.tables


class _Writer:
    def __init__(self) -> None:
        self.tables = ArchiveTables()
        self.places: dict[str, dict[bytes, int]] = {}
        self.made: list[Tensor] = []

    def add(self, name: str, graph: Graph, image: int) -> None:
        self.made = []
        blocks = [self.block(block) for block in graph.blocks]
        self.tables.graphs[name] = (
            graph.name,
            graph.precision,
            image,
            self.listed(graph.inputs),
            self.listed(graph.outputs),
            blocks,
        )

    def place(self, table: str, row: Any) -> int:
        """Where the row stands, once it stands there."""
        places = self.places.setdefault(table, {})
        key = msgspec.json.encode(row)
        if key not in places:
            rows = getattr(self.tables, table)
            places[key] = len(rows)
            rows.append(row)
        return places[key]

    def dim(self, dim: Dim) -> int:
        if isinstance(dim, Expression):
            return self.place("dims", [dim.operation, self.dim(dim.left), self.dim(dim.right)])
        return self.place("dims", dim.name if isinstance(dim, Symbol) else dim)

    def tensor(self, tensor: Tensor, owner: str) -> int:
        name = tensor.name
        if owner and name.startswith(owner):
            name = "@" + name.removeprefix(owner)
        return self.place("tensors", (name, [self.dim(dim) for dim in tensor.shape], tensor.dtype, tensor.role))

    def listed(self, tensors: Iterable[Tensor], owner: str = "") -> list[int]:
        return [self.tensor(tensor, owner) for tensor in tensors]

    def taken(self, tensor: Tensor, owner: str) -> int:
        recent = self.made[-1 : -_RECENT - 1 : -1]
        return recent.index(tensor) if tensor in recent else -1 - self.tensor(tensor, owner)

    def op(self, op: Op) -> int:
        attributes = {key: self.value(value) for key, value in op.attributes.items()}
        form = self.place("forms", (op.kind, op.source_type, attributes))
        inputs = [self.taken(tensor, op.name) for tensor in op.inputs]
        outputs = self.listed(op.outputs, op.name)
        self.made.extend(op.outputs)
        return self.place("ops", (op.name, form, inputs, outputs, self.listed(op.weights, op.name)))

    def value(self, value: Any) -> Any:
        if isinstance(value, Symbol | Expression):
            return {"dim": self.dim(value)}
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [self.value(item) for item in value]
        if value is None or isinstance(value, str | int | float):
            return value
        raise TypeError(f"An attribute of type {type(value).__name__} has no place in an archive: {value!r}")

    def block(self, block: Block) -> int:
        return self.place("blocks", (block.name, block.count, block.first, [self.op(op) for op in block.ops]))
