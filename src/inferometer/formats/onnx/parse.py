"""ModelProto and what it holds, from the wire to plain values. Unknown fields are skipped: later versions add some."""

from math import prod
from typing import Any

from inferometer.formats.onnx.faults import MAX_ITEMS, MAX_NESTING, MAX_NODES, MAX_NUMBER, MAX_RANK, Fault
from inferometer.formats.onnx.messages import (
    BYTES,
    ELEMENTS,
    FIXED32,
    FIXED64,
    VARINT,
    Attribute,
    Axis,
    External,
    Function,
    GraphDef,
    Node,
    OnnxModel,
    TensorDef,
    TypeDef,
    ValueInfo,
    Wire,
    element_bytes,
    signed,
)

# TensorProto, read without its data: dims, type, and where the bytes lie. Every claim is held against the file.

# Field number → how the numbers of that field are written.
_PAYLOADS = {4: "f32", 5: "i32", 6: "text", 7: "i64", 9: "raw", 10: "f64", 11: "u64"}
_FIXED = {"f32": ("f", 4), "f64": ("d", 8)}
_EXTERNAL = 1  # TensorProto.DataLocation


def parse_tensor(wire: Wire, start: int, end: int) -> TensorDef:
    dims: list[int] = []
    name, data_type, location = "", 0, 0
    payload: tuple[str, int, int] | None = None
    loose: list[Any] = []
    loose_count = 0
    entries: dict[str, str] = {}
    for number, kind, a, b in wire.fields(start, end):
        if number == 1:
            _add_dims(wire, dims, kind, a, b)
        elif number == 2 and kind == VARINT:
            data_type = a
        elif number == 8 and kind == BYTES:
            name = wire.text(a, b)
        elif number in _PAYLOADS:
            form = _PAYLOADS[number]
            if kind == BYTES and form != "text":
                if payload is not None:
                    raise Fault("a tensor's data in two places", offset=a, where=f"tensor {name!r}")
                payload = (form, a, b)
            else:
                loose_count += 1
                if loose_count <= MAX_ITEMS:
                    loose.append(_loose_number(wire, form, kind, a, b))
        elif number == 13 and kind == BYTES:
            key, value = parse_entry(wire, a, b)
            entries[key] = value
        elif number == 14 and kind == VARINT:
            location = a
    if data_type not in ELEMENTS:
        raise Fault(f"element type {data_type} is not known", offset=start, where=f"tensor {name!r}")
    tensor = TensorDef(
        name=name,
        dims=tuple(dims),
        dtype=ELEMENTS[data_type].name,
        start=start,
        data_type=data_type,
        payload=payload,
        loose=tuple(loose),
        loose_count=loose_count,
        external=_external(entries, name, start) if location == _EXTERNAL else None,
    )
    require_held(tensor)
    return tensor


def parse_sparse_tensor(wire: Wire, start: int, end: int) -> TensorDef:
    """A sparse tensor as the dense one it stands for; `sparse` is what it takes in the file."""
    values: TensorDef | None = None
    dims: list[int] = []
    stored = 0
    for number, kind, a, b in wire.fields(start, end):
        if number in {1, 2} and kind == BYTES:
            part = parse_tensor(wire, a, b)
            stored += element_bytes(part.dtype, prod(part.dims)) or 0
            values = part if number == 1 else values
        elif number == 3:
            _add_dims(wire, dims, kind, a, b)
    if values is None:
        raise Fault("a sparse tensor without values", offset=start)
    return TensorDef(
        name=values.name, dims=tuple(dims), dtype=values.dtype, start=start, data_type=values.data_type, sparse=stored
    )


def parse_entry(wire: Wire, start: int, end: int) -> tuple[str, str]:
    """A StringStringEntryProto."""
    key = value = ""
    for number, kind, a, b in wire.fields(start, end):
        if number == 1 and kind == BYTES:
            key = wire.excerpt(a, b)
        elif number == 2 and kind == BYTES:
            value = wire.excerpt(a, b)
    return key, value


def _add_dims(wire: Wire, dims: list[int], kind: int, a: int, b: int) -> None:
    for value in [a] if kind == VARINT else wire.varints(a, b):
        dim = signed(value)
        if dim < 0:
            raise Fault(f"a stored tensor with {dim} as a size", offset=a)
        dims.append(dim)
        if len(dims) > MAX_RANK:
            raise Fault(f"a tensor of more than {MAX_RANK} dimensions", offset=a)


def _loose_number(wire: Wire, form: str, kind: int, a: int, b: int) -> Any:
    if form == "text":
        return None
    if kind == VARINT:
        return signed(a)
    layout = {FIXED32: "f", FIXED64: "d"}[kind]
    return wire.unpack(layout, a, b)[0]


def _external(entries: dict[str, str], name: str, start: int) -> External:
    where = f"tensor {name!r}"
    if "location" not in entries:
        raise Fault("external data without a location", offset=start, where=where)
    numbers: dict[str, int] = {}
    for key in ("offset", "length"):
        text = entries.get(key)
        if text is None:
            continue
        if not (text.isascii() and text.isdecimal() and len(text) <= 19) or int(text) > MAX_NUMBER:
            raise Fault(f"external data with {text[:40]!r} as its {key}", offset=start, where=where)
        numbers[key] = int(text)
    return External(location=entries["location"], offset=numbers.get("offset", 0), length=numbers.get("length"))


def require_held(tensor: TensorDef) -> None:
    """The file must hold what the dims claim. A tensor without any data stands: weights may have been stripped."""
    where, count = f"tensor {tensor.name!r}", prod(tensor.dims)
    if count > MAX_NUMBER:
        raise Fault(f"a tensor of {count:,} elements", offset=tensor.start, where=where)
    if tensor.external is not None:
        _require_external(tensor, count)
        return
    if tensor.payload is None:
        parts = 2 if tensor.dtype in {"c64", "c128"} else 1
        if tensor.loose_count and not _least_varints(tensor.dtype, count) <= tensor.loose_count <= parts * count:
            message = f"{count:,} elements and {tensor.loose_count:,} numbers"
            raise Fault(message, offset=tensor.start, where=f"tensor {tensor.name!r}")
        return
    form, start, end = tensor.payload
    size = end - start
    if form == "raw":
        wanted = element_bytes(tensor.dtype, count)
        if wanted is None or size != wanted:
            raise Fault(f"{count:,} elements of {tensor.dtype} in {size:,} raw bytes", offset=start, where=where)
    elif form in _FIXED:
        parts = 2 if tensor.dtype in {"c64", "c128"} else 1
        if size != parts * count * _FIXED[form][1]:
            raise Fault(f"{count:,} elements of {tensor.dtype} in {size:,} bytes", offset=start, where=where)
    elif not _least_varints(tensor.dtype, count) <= size <= 10 * max(1, count):
        raise Fault(f"{count:,} elements in {size:,} bytes of numbers", offset=start, where=where)


def _least_varints(dtype: str, count: int) -> int:
    """A number takes a byte or more. Formats of four and two bits may share one."""
    return {"u4": -(-count // 2), "i4": -(-count // 2), "f4e2m1": -(-count // 2)}.get(
        dtype, -(-count // 4) if dtype in {"u2", "i2"} else count
    )


def _require_external(tensor: TensorDef, count: int) -> None:
    external, wanted = tensor.external, element_bytes(tensor.dtype, count)
    if external is None or external.length is None:
        return
    if wanted is None or external.length != wanted:
        message = f"{count:,} elements of {tensor.dtype} in {external.length:,} external bytes"
        raise Fault(message, offset=tensor.start, where=f"tensor {tensor.name!r}")


_OPSETS_SINCE_IR = 3  # before it a model names no operator sets
_STANDARD = "ai.onnx"


def parse_model(wire: Wire) -> OnnxModel:
    """The whole file as a ModelProto."""
    texts = {2: "", 3: ""}
    ir_version = 0
    graph: tuple[int, int] | None = None
    opsets: dict[str, int] = {}
    properties: dict[str, str] = {}
    functions: dict[tuple[str, str, str], Function] = {}
    for number, kind, a, b in wire.fields(0, wire.size):
        if number in texts and kind == BYTES:
            texts[number] = wire.excerpt(a, b)
        elif number == 1 and kind == VARINT:
            ir_version = signed(a)
        elif number == 7 and kind == BYTES:
            if graph is not None:
                raise Fault("a model with two graphs", offset=a)
            graph = (a, b)
        elif number == 8 and kind == BYTES:
            domain, version = _parse_opset(wire, a, b)
            opsets[domain] = version
        elif number == 14 and kind == BYTES:
            key, value = parse_entry(wire, a, b)
            properties[key] = value
        elif number == 25 and kind == BYTES:
            function = _parse_function(wire, a, b)
            functions[function.domain, function.name, function.overload] = function
    if graph is None:
        raise Fault("the file holds no graph" if wire.size else "the file is empty", offset=wire.size)
    if ir_version >= _OPSETS_SINCE_IR and not opsets:
        raise Fault(f"a model of IR version {ir_version} that names no operator set", offset=wire.size)
    return OnnxModel(
        graph=_parse_graph(wire, *graph, depth=0),
        ir_version=ir_version,
        opsets=opsets,
        functions=functions,
        producer=texts[2],
        producer_version=texts[3],
        properties=properties,
    )


def _parse_opset(wire: Wire, start: int, end: int) -> tuple[str, int]:
    domain, version = "", 0
    for number, kind, a, b in wire.fields(start, end):
        if number == 1 and kind == BYTES:
            domain = wire.text(a, b)
        elif number == 2 and kind == VARINT:
            version = signed(a)
    return _standard_domain(domain), version


def _standard_domain(domain: str) -> str:
    """The standard operators' domain has two names."""
    return "" if domain == _STANDARD else domain


def _parse_graph(wire: Wire, start: int, end: int, *, depth: int) -> GraphDef:
    if depth > MAX_NESTING:
        raise Fault(f"graphs nested more than {MAX_NESTING} deep", offset=start)
    name = ""
    nodes: list[tuple[int, int]] = []  # counted first: too many are refused before any is read
    initializers: list[TensorDef] = []
    infos: dict[int, list[ValueInfo]] = {11: [], 12: [], 13: []}
    for number, kind, a, b in wire.fields(start, end):
        if kind != BYTES:
            continue
        if number == 1:
            if len(nodes) >= MAX_NODES:
                raise Fault(f"a graph of more than {MAX_NODES:,} nodes", offset=a)
            nodes.append((a, b))
        elif number == 5:
            initializers.append(parse_tensor(wire, a, b))
        elif number in infos:
            infos[number].append(_parse_info(wire, a, b))
        elif number == 15:
            initializers.append(parse_sparse_tensor(wire, a, b))
        elif number == 2:
            name = wire.excerpt(a, b)
    return GraphDef(
        name=name,
        nodes=tuple(_parse_node(wire, a, b, depth=depth) for a, b in nodes),
        initializers=tuple(initializers),
        inputs=tuple(infos[11]),
        outputs=tuple(infos[12]),
        infos=tuple(infos[13]),
    )


def _parse_node(wire: Wire, start: int, end: int, *, depth: int) -> Node:
    inputs: list[str] = []
    outputs: list[str] = []
    attributes: dict[str, Attribute] = {}
    texts = {3: "", 4: "", 7: "", 8: ""}
    for number, kind, a, b in wire.fields(start, end):
        if kind != BYTES:
            continue
        if number == 1:
            inputs.append(wire.text(a, b))
        elif number == 2:
            outputs.append(wire.text(a, b))
        elif number in texts:
            texts[number] = wire.text(a, b)
        elif number == 5:
            attribute = _parse_attribute(wire, a, b, depth=depth)
            attributes[attribute.name] = attribute
    return Node(
        op_type=texts[4],
        domain=_standard_domain(texts[7]),
        name=texts[3],
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        attributes=attributes,
        overload=texts[8],
        start=start,
    )


# AttributeProto.type, and the fields a value of that type lies in.
_TYPE_FIELDS = {1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 7, 7: 8, 8: 9, 9: 10, 10: 11, 11: 22, 12: 23, 13: 14, 14: 15}
_LISTS = frozenset({7, 8, 9, 10, 11, 23, 15})
_VALUES = frozenset(_TYPE_FIELDS.values())


def _parse_attribute(wire: Wire, start: int, end: int, *, depth: int) -> Attribute:
    name, reference, declared = "", None, 0
    by_field: dict[int, list[Any]] = {}
    counts: dict[int, int] = {}
    for number, kind, a, b in wire.fields(start, end):
        if number in _VALUES:
            counts[number] = counts.get(number, 0) + _add_values(
                wire, by_field.setdefault(number, []), (number, kind, a, b), depth
            )
        elif number == 1 and kind == BYTES:
            name = wire.text(a, b)
        elif number == 20 and kind == VARINT:
            declared = a
        elif number == 21 and kind == BYTES:
            reference = wire.text(a, b)
    field = _TYPE_FIELDS.get(declared) or next(iter(by_field), 0)  # the oldest files give no type
    values = by_field.get(field, [])
    if field in _LISTS:
        return Attribute(name=name, value=tuple(values), count=counts.get(field, 0), reference=reference)
    # The value of a field that a writer left out because it is the default.
    value = values[-1] if values else {2: 0.0, 3: 0, 4: ""}.get(field)
    return Attribute(name=name, value=value, reference=reference)


def _add_values(wire: Wire, values: list[Any], field: tuple[int, int, int, int], depth: int) -> int:
    """Append the value or values of one field; how many it held. Long lists are counted and not kept."""
    number, kind, a, b = field
    if number in {2, 7}:
        if kind not in {FIXED32, BYTES}:
            return 0
        kept = min(b - a, 4 * (MAX_ITEMS - len(values))) if (b - a) % 4 == 0 else b - a
        values.extend(wire.unpack("f", a, a + kept))
        return (b - a) // 4
    if number in {3, 8}:
        if kind == VARINT:
            if len(values) < MAX_ITEMS:
                values.append(signed(a))
            return 1
        count = 0
        for value in wire.varints(a, b) if kind == BYTES else ():
            count += 1
            if len(values) < MAX_ITEMS:
                values.append(signed(value))
        return count
    if kind != BYTES:
        raise Fault(f"attribute field {number} has wire type {kind}", offset=a)
    if len(values) < MAX_ITEMS:
        values.append(_parse_value(wire, number, a, b, depth=depth))
    return 1


def _parse_value(wire: Wire, number: int, a: int, b: int, *, depth: int) -> Any:
    if number in {4, 9}:
        return wire.excerpt(a, b)
    if number in {5, 10}:
        return parse_tensor(wire, a, b)
    if number in {6, 11}:
        return _parse_graph(wire, a, b, depth=depth + 1)
    if number in {22, 23}:
        return parse_sparse_tensor(wire, a, b)
    return _parse_type(wire, a, b, depth=0)


def _parse_info(wire: Wire, start: int, end: int) -> ValueInfo:
    name, kind_of = "", None
    for number, kind, a, b in wire.fields(start, end):
        if number == 1 and kind == BYTES:
            name = wire.text(a, b)
        elif number == 2 and kind == BYTES:
            kind_of = _parse_type(wire, a, b, depth=0)
    return ValueInfo(name=name, type=kind_of)


_GROUPS = {1: "tensor", 8: "sparse", 4: "sequence", 5: "map", 9: "optional", 7: "opaque"}


def _parse_type(wire: Wire, start: int, end: int, *, depth: int) -> TypeDef:
    if depth > MAX_NESTING:
        raise Fault(f"types nested more than {MAX_NESTING} deep", offset=start)
    result = TypeDef(group="opaque")
    for number, kind, a, b in wire.fields(start, end):
        if kind != BYTES or number not in _GROUPS:
            continue
        group = _GROUPS[number]
        if group in {"tensor", "sparse"}:
            result = _parse_tensor_type(wire, a, b, group)
        elif group == "opaque":
            result = TypeDef(group=group)
        else:
            inner_field = 2 if group == "map" else 1
            inner = None
            for n, k, c, d in wire.fields(a, b):
                if n == inner_field and k == BYTES:
                    inner = _parse_type(wire, c, d, depth=depth + 1)
            result = TypeDef(group=group, inner=inner)
    return result


def _parse_tensor_type(wire: Wire, start: int, end: int, group: str) -> TypeDef:
    element: str | None = None
    axes: tuple[Axis, ...] | None = None
    for number, kind, a, b in wire.fields(start, end):
        if number == 1 and kind == VARINT and a:
            if a not in ELEMENTS:
                raise Fault(f"element type {a} is not known", offset=start)
            element = ELEMENTS[a].name
        elif number == 2 and kind == BYTES:
            axes = _parse_shape(wire, a, b)
    return TypeDef(group=group, dtype=element, axes=axes)


def _parse_shape(wire: Wire, start: int, end: int) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    for number, kind, a, b in wire.fields(start, end):
        if number != 1 or kind != BYTES:
            continue
        axis: Axis = None
        for n, k, c, d in wire.fields(a, b):
            if n == 1 and k == VARINT:
                axis = signed(c)
            elif n == 2 and k == BYTES:
                axis = wire.text(c, d) or None
        if isinstance(axis, int) and axis < 0:
            axis = None  # how some writers say "any size"
        axes.append(axis)
        if len(axes) > MAX_RANK:
            raise Fault(f"a shape of more than {MAX_RANK} dimensions", offset=start)
    return tuple(axes)


def _parse_function(wire: Wire, start: int, end: int) -> Function:
    names: dict[int, list[str]] = {4: [], 5: []}
    texts = {1: "", 10: "", 13: ""}
    nodes: list[Node] = []
    opsets: dict[str, int] = {}
    defaults: dict[str, Attribute] = {}
    infos: list[ValueInfo] = []
    for number, kind, a, b in wire.fields(start, end):
        if kind != BYTES:
            continue
        if number in names:
            names[number].append(wire.text(a, b))
        elif number in texts:
            texts[number] = wire.text(a, b)
        elif number == 7:
            if len(nodes) >= MAX_NODES:
                raise Fault(f"a function of more than {MAX_NODES:,} nodes", offset=a)
            nodes.append(_parse_node(wire, a, b, depth=0))
        elif number == 9:
            domain, version = _parse_opset(wire, a, b)
            opsets[domain] = version
        elif number == 11:
            default = _parse_attribute(wire, a, b, depth=0)
            defaults[default.name] = default
        elif number == 12:
            infos.append(_parse_info(wire, a, b))
    return Function(
        name=texts[1],
        domain=_standard_domain(texts[10]),
        inputs=tuple(names[4]),
        outputs=tuple(names[5]),
        nodes=tuple(nodes),
        opsets=opsets,
        overload=texts[13],
        defaults=defaults,
        infos=tuple(infos),
    )
