"""TensorProto, read without its data: dims, type, and where the bytes lie. Every claim is held against the file."""

from math import prod
from typing import Any

from inferometer.formats.onnx.elements import ELEMENTS, element_bytes
from inferometer.formats.onnx.faults import MAX_ITEMS, MAX_NUMBER, MAX_RANK, Fault
from inferometer.formats.onnx.messages import External, TensorDef
from inferometer.formats.onnx.wire import BYTES, FIXED32, FIXED64, VARINT, Wire, signed

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
        _require_loose(tensor, count)
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


def _require_loose(tensor: TensorDef, count: int) -> None:
    parts = 2 if tensor.dtype in {"c64", "c128"} else 1
    if tensor.loose_count and not _least_varints(tensor.dtype, count) <= tensor.loose_count <= parts * count:
        message = f"{count:,} elements and {tensor.loose_count:,} numbers"
        raise Fault(message, offset=tensor.start, where=f"tensor {tensor.name!r}")


def _require_external(tensor: TensorDef, count: int) -> None:
    external, wanted = tensor.external, element_bytes(tensor.dtype, count)
    if external is None or external.length is None:
        return
    if wanted is None or external.length != wanted:
        message = f"{count:,} elements of {tensor.dtype} in {external.length:,} external bytes"
        raise Fault(message, offset=tensor.start, where=f"tensor {tensor.name!r}")
