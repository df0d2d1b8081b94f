"""The tables of ONNX Runtime's format as ONNX's messages.

Source: onnxruntime/core/flatbuffers/schema/ort.fbs. A field's number is its place in its table there, fields that are
no longer used counted too. A union takes two: its kind, and its value.
"""

from mmap import mmap
from pathlib import Path
from typing import Any

from inferometer.formats.flatbuffer import Buffer, FlatTable
from inferometer.formats.onnx.faults import MAX_ITEMS, MAX_NESTING, MAX_NODES, MAX_RANK, Fault
from inferometer.formats.onnx.messages import (
    ELEMENTS,
    Attribute,
    Axis,
    External,
    GraphDef,
    Node,
    OnnxModel,
    TensorDef,
    TypeDef,
    ValueInfo,
)
from inferometer.formats.onnx.parse import require_held

_MANY = 1 << 20  # tensors or values of one graph
_SIZE, _NAME = 1, 2  # DimensionValueType
_TENSOR, _SEQUENCE, _MAP = 1, 2, 3  # TypeInfoValue


def parse_session(data: mmap | bytes, path: Path) -> OnnxModel:
    """An InferenceSession, which holds the version that wrote it and the model."""
    session = Buffer(data, path, kind="ORT").root()
    model = session.table(1, "the model")
    graph = None if model is None else model.table(7, "the graph")
    if model is None or graph is None:
        raise Fault("the file holds no graph")
    opsets = {
        _domain(entry.text(0, "a domain")): entry.number(1, "q")
        for entry in model.tables(1, "operator set", most=MAX_ITEMS)
    }
    properties = {
        entry.text(0, "a key") or "": entry.text(1, "a value") or ""
        for entry in model.tables(9, "property", most=MAX_ITEMS)
    }
    return OnnxModel(
        graph=_Parser(path).graph(graph, depth=0),
        ir_version=model.number(0, "q"),
        opsets=opsets,
        producer=model.text(2, "the producer") or "",
        producer_version=model.text(3, "the producer's version") or "",
        properties=properties | {"ort_version": session.text(0, "the version") or ""},
    )


def _domain(name: str | None) -> str:
    return "" if name in {None, "ai.onnx"} else str(name)


class _Parser:
    def __init__(self, path: Path) -> None:
        self._beside = f"{path.name}.data"  # where a training checkpoint's tensors lie

    def graph(self, table: FlatTable, *, depth: int) -> GraphDef:
        if depth > MAX_NESTING:
            raise Fault(f"graphs nested more than {MAX_NESTING} deep", offset=table.position)
        infos = {info.name: info for info in map(_info, table.tables(1, "value", most=_MANY))}
        ends = [table.texts(field, what, most=_MANY) for field, what in ((5, "input"), (6, "output"))]
        inputs, outputs = ([infos.get(name, ValueInfo(name=name)) for name in names] for names in ends)
        stored = [self.tensor(entry) for entry in table.tables(0, "stored tensor", most=_MANY)]
        stored += [self._sparse(entry) for entry in table.tables(7, "sparse tensor", most=_MANY)]
        return GraphDef(
            name="",
            nodes=tuple(self._node(entry, depth) for entry in table.tables(2, "node", most=MAX_NODES)),
            initializers=tuple(stored),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            infos=tuple(info for name, info in infos.items() if name),
        )

    def tensor(self, table: FlatTable) -> TensorDef:
        name, kind = table.text(0, "a name") or "", table.number(3, "i")
        dims = table.numbers(2, "q", "the shape of a tensor", most=MAX_RANK)
        if kind not in ELEMENTS:
            raise Fault(f"element type {kind} is not known", offset=table.position, where=f"tensor {name!r}")
        if any(dim < 0 for dim in dims):
            raise Fault(f"a stored tensor of the shape {list(dims)}", offset=table.position, where=f"tensor {name!r}")
        span, away = table.span(4, 1, f"the data of {name!r}"), table.number(6, "q", -1)
        tensor = TensorDef(
            name=name,
            dims=dims,
            dtype=ELEMENTS[kind].name,
            start=table.position,
            data_type=kind,
            payload=None if span is None else ("raw", span[0], span[0] + span[1]),
            external=External(location=self._beside, offset=away) if away >= 0 else None,
        )
        require_held(tensor)
        return tensor

    def _sparse(self, table: FlatTable) -> TensorDef:
        parts = [table.table(field, what) for field, what in ((0, "values"), (1, "indices"))]
        values, indices = (None if part is None else self.tensor(part) for part in parts)
        if values is None:
            raise Fault("a sparse tensor without values", offset=table.position)
        held = sum(part.payload[2] - part.payload[1] for part in (values, indices) if part and part.payload)
        dims = table.numbers(2, "q", "the shape of a tensor", most=MAX_RANK)
        return TensorDef(
            name=values.name, dims=dims, dtype=values.dtype, start=table.position, data_type=values.data_type,
            sparse=held,
        )  # fmt: skip

    def _node(self, table: FlatTable, depth: int) -> Node:
        attributes = [self._attribute(entry, depth) for entry in table.tables(10, "attribute", most=MAX_ITEMS)]
        return Node(
            op_type=table.text(5, "an operator") or "",
            domain=_domain(table.text(2, "a domain")),
            name=table.text(0, "a name") or "",
            inputs=table.texts(8, "input", most=_MANY),
            outputs=table.texts(9, "output", most=_MANY),
            attributes={attribute.name: attribute for attribute in attributes},
            start=table.position,
        )

    def _attribute(self, table: FlatTable, depth: int) -> Attribute:
        """AttributeType numbers its values as they follow each other: a float is kind 1 and field 3."""
        name, kind = table.text(0, "a name") or "", table.number(2, "i")
        value: Any = None
        match kind:
            case 1:
                value = table.number(3, "f", 0.0)
            case 2:
                value = table.number(4, "q")
            case 3:
                value = table.text(5, f"attribute {name!r}") or ""
            case 4 | 5:
                inner = table.table(kind + 2, f"attribute {name!r}")
                if inner is None:
                    raise Fault(f"attribute {name!r} without its value", offset=table.position)
                value = self.tensor(inner) if kind == 4 else self.graph(inner, depth=depth + 1)
            case 6 | 7:
                value = table.numbers(kind + 2, "f" if kind == 6 else "q", f"attribute {name!r}", most=_MANY)
            case 8:
                value = table.texts(10, f"attribute {name!r}", most=_MANY)
            case 9:
                value = tuple(self.tensor(entry) for entry in table.tables(11, "tensor", most=MAX_ITEMS))
            case 10:
                value = tuple(self.graph(entry, depth=depth + 1) for entry in table.tables(12, "graph", most=MAX_ITEMS))
        count = len(value) if isinstance(value, tuple) else 1
        return Attribute(name=name, value=value[:MAX_ITEMS] if isinstance(value, tuple) else value, count=count)


def _info(table: FlatTable) -> ValueInfo:
    kind = table.table(2, "a type")
    return ValueInfo(name=table.text(0, "a name") or "", type=None if kind is None else _type(kind, depth=0))


def _type(table: FlatTable, *, depth: int) -> TypeDef:
    if depth > MAX_NESTING:
        raise Fault(f"types nested more than {MAX_NESTING} deep", offset=table.position)
    group, value = table.number(1, "B"), table.table(2, "a type")
    if value is None or group not in {_TENSOR, _SEQUENCE, _MAP}:
        return TypeDef(group="opaque")
    if group == _TENSOR:
        element = ELEMENTS.get(value.number(0, "i"))
        shape = value.table(1, "a shape")
        axes = None if shape is None else tuple(map(_axis, shape.tables(0, "size", most=MAX_RANK)))
        return TypeDef(group="tensor", dtype=None if element is None else element.name, axes=axes)
    inner = value.table(0 if group == _SEQUENCE else 1, "an inner type")
    name = "sequence" if group == _SEQUENCE else "map"
    return TypeDef(group=name, inner=None if inner is None else _type(inner, depth=depth + 1))


def _axis(table: FlatTable) -> Axis:
    value = table.table(0, "a size")
    kind = 0 if value is None else value.number(0, "b")
    if value is None or kind not in {_SIZE, _NAME}:
        return None
    if kind == _NAME:
        return value.text(2, "the name of a size") or None
    size: int = value.number(1, "q")
    return None if size < 0 else size
