"""Many graphs in little room: what is equal in two of them is written once.

A file holds the graphs of one family as JSON, gzipped. It is made of tables; a row of a table refers to rows of the
tables before it by their places, and equal rows are one:

    dims      an integer; the name of a size ("batch"); or [operation, left, right], places of earlier rows of `dims`
    tensors   [name, shape, dtype, role]: places in `dims` make the shape; a name that starts with "@" goes on where the
              name of the op that holds the tensor ends ("@.weight" in the op "conv1" is "conv1.weight")
    forms     [kind, source_type, attributes]: what an op is but for its tensors. A dimension among the attributes is
              {"dim": place}; a list stands for a tuple
    ops       [name, form, inputs, outputs, weights]. An input n ≥ 0 is the tensor that came out n outputs ago (0: the
              last one); an input n < 0 is row -n - 1 of `tensors`. Outputs and weights are rows of `tensors`
    blocks    [name, count, first, ops]
    graphs    by name: [title, precision, image, inputs, outputs, blocks]; `image` is the side of the image that the
              graph was traced at

Reading one graph decodes the file's tables and builds the rows that the graph needs. Ops that hold other ops (loops,
branches) have no form here: no network of the archive has one.
"""

import gzip
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.dims import Dim, Expression, Symbol
from inferometer.core.graph import Block, Graph, Op, Role, Tensor

_RECENT = 4096  # how many outputs back an input is looked for
_LEVEL = 9


class ArchiveTables(msgspec.Struct, omit_defaults=True):
    """The tables of one file, as the docstring of this module says."""

    dims: list[Any] = []
    tensors: list[tuple[str, list[int], str | None, Role]] = []
    forms: list[tuple[str, str | None, dict[str, Any]]] = []
    ops: list[tuple[str, int, list[int], list[int], list[int]]] = []
    blocks: list[tuple[str, int, int, list[int]]] = []
    graphs: dict[str, tuple[str, str | None, int, list[int], list[int], list[int]]] = {}


def write_archive(path: Path, graphs: Mapping[str, tuple[Graph, int]]) -> None:
    """One file of graphs, each with the side of the image that it was traced at."""
    writer = _Writer()
    for name, (graph, image) in graphs.items():
        writer.add(name, graph, image)
    # No time in the header: the same graphs give the same file.
    path.write_bytes(gzip.compress(msgspec.json.encode(writer.tables), _LEVEL, mtime=0))


def read_tables(path: Path) -> ArchiveTables:
    return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=ArchiveTables)


def graph_in(tables: ArchiveTables, name: str) -> tuple[Graph, int]:
    """A graph of a file, and the side of the image that it was traced at."""
    title, precision, image, inputs, outputs, blocks = tables.graphs[name]
    rows = _Rows(tables)
    built = tuple(rows.block(place) for place in blocks)
    graph = Graph(
        name=title,
        blocks=built,
        inputs=tuple(rows.tensor(place, "") for place in inputs),
        outputs=tuple(rows.tensor(place, "") for place in outputs),
        precision=precision,
    )
    return graph, image


class _Rows:
    """Rows as values, each made once; ops in the order of the graph, since their inputs count back."""

    def __init__(self, tables: ArchiveTables) -> None:
        self.tables = tables
        self.dims: dict[int, Dim] = {}
        self.tensors: dict[tuple[int, str], Tensor] = {}
        self.made: list[Tensor] = []

    def dim(self, place: int) -> Dim:
        if place not in self.dims:
            row = self.tables.dims[place]
            if isinstance(row, list):
                row = Expression(row[0], self.dim(row[1]), self.dim(row[2]))
            self.dims[place] = Symbol(row) if isinstance(row, str) else row
        return self.dims[place]

    def tensor(self, place: int, owner: str) -> Tensor:
        name, shape, dtype, role = self.tables.tensors[place]
        relative = name.startswith("@")
        key = (place, owner if relative else "")
        if key not in self.tensors:
            self.tensors[key] = Tensor(
                name=owner + name[1:] if relative else name,
                shape=tuple(map(self.dim, shape)),
                dtype=dtype,
                role=role,
            )
        return self.tensors[key]

    def op(self, place: int) -> Op:
        name, form, inputs, outputs, weights = self.tables.ops[place]
        kind, source_type, attributes = self.tables.forms[form]
        taken = tuple(self.made[-1 - n] if n >= 0 else self.tensor(-n - 1, name) for n in inputs)
        given = tuple(self.tensor(n, name) for n in outputs)
        self.made.extend(given)
        return Op(
            name=name,
            kind=kind,
            inputs=taken,
            outputs=given,
            weights=tuple(self.tensor(n, name) for n in weights),
            attributes={key: self.value(value) for key, value in attributes.items()},
            source_type=source_type,
        )

    def value(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(self.value, value))
        return self.dim(value["dim"]) if isinstance(value, dict) else value

    def block(self, place: int) -> Block:
        name, count, first, ops = self.tables.blocks[place]
        return Block(name=name, ops=tuple(map(self.op, ops)), count=count, first=first)


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
