"""Many graphs in little room: what is equal in two of them is written once.

A file holds the graphs of one family as JSON, gzipped. It is made of tables; a row of a table refers to rows of the
tables before it by their places, and equal rows are one:

    dims      an integer; the name of a size ("batch"); or [operation, left, right], places of earlier rows of `dims`
    tensors   [name, shape, dtype, role]: places in `dims` make the shape; a name that starts with "@" goes on where the
              name of the op that holds the tensor ends ("@.weight" in the op "conv1" is "conv1.weight")
    forms     [kind, source_type, attributes]: what an op is but for its tensors. A dimension among the attributes is
              {"dim": index}; a list stands for a tuple
    ops       [name, form, inputs, outputs, weights]. An input n ≥ 0 is the tensor that came out n outputs ago (0: the
              last one); an input n < 0 is row -n - 1 of `tensors`. Outputs and weights are rows of `tensors`
    blocks    [name, count, first, ops]
    graphs    by name: [title, precision, image, inputs, outputs, blocks]; `image` is the side of the image that the
              graph was traced at

Reading one graph decodes the file's tables and builds the rows that the graph needs. Ops that hold other ops (loops,
branches) have no form here: no network of the archive has one.
"""

import gzip
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.codec import settled
from inferometer.core.dims import Dim, Expression, Symbol
from inferometer.core.graph import Block, Graph, Op, Role, Tensor


class ArchiveTables(msgspec.Struct, omit_defaults=True):
    """The tables of one file, as the docstring of this module says."""

    dims: list[Any] = []
    tensors: list[tuple[str, list[int], str | None, Role]] = []
    forms: list[tuple[str, str | None, dict[str, Any]]] = []
    ops: list[tuple[str, int, list[int], list[int], list[int]]] = []
    blocks: list[tuple[str, int, int, list[int]]] = []
    graphs: dict[str, tuple[str, str | None, int, list[int], list[int], list[int]]] = {}


def read_tables(path: Path) -> ArchiveTables:
    return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=settled(ArchiveTables))


def graph_in(tables: ArchiveTables, name: str) -> tuple[Graph, int]:
    """A graph of a file, and the side of the image that it was traced at."""
    title, precision, image, inputs, outputs, blocks = tables.graphs[name]
    rows = _Rows(tables)
    built = tuple(rows.block(index) for index in blocks)
    graph = Graph(
        name=title,
        blocks=built,
        inputs=tuple(rows.tensor(index, "") for index in inputs),
        outputs=tuple(rows.tensor(index, "") for index in outputs),
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

    def dim(self, index: int) -> Dim:
        if index not in self.dims:
            row = self.tables.dims[index]
            if isinstance(row, list):
                row = Expression(row[0], self.dim(row[1]), self.dim(row[2]))
            self.dims[index] = Symbol(row) if isinstance(row, str) else row
        return self.dims[index]

    def tensor(self, index: int, owner: str) -> Tensor:
        name, shape, dtype, role = self.tables.tensors[index]
        relative = name.startswith("@")
        key = (index, owner if relative else "")
        if key not in self.tensors:
            self.tensors[key] = Tensor(
                name=owner + name[1:] if relative else name,
                shape=tuple(map(self.dim, shape)),
                dtype=dtype,
                role=role,
            )
        return self.tensors[key]

    def op(self, index: int) -> Op:
        name, form, inputs, outputs, weights = self.tables.ops[index]
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

    def block(self, index: int) -> Block:
        name, count, first, ops = self.tables.blocks[index]
        return Block(name=name, ops=tuple(map(self.op, ops)), count=count, first=first)
