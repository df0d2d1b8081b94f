"""ONNX's element types: their numbers in a file, the format each is stored in, and how raw bytes are unpacked."""

from inferometer.core.dtypes import dtype
from inferometer.core.frozen import frozen


@frozen
class Element:
    """`name` is ours for the format; `layout` is a struct letter where raw bytes can be unpacked without more ado."""

    name: str
    layout: str | None = None
    integer: bool = False


def _integer(name: str, layout: str | None = None) -> Element:
    return Element(name=name, layout=layout, integer=True)


# onnx.proto, TensorProto.DataType. Formats that differ only in how they say infinity or NaN are stored alike.
ELEMENTS: dict[int, Element] = {
    1: Element(name="f32", layout="f"),
    2: _integer("u8", "B"),
    3: _integer("i8", "b"),
    4: _integer("u16", "H"),
    5: _integer("i16", "h"),
    6: _integer("i32", "i"),
    7: _integer("i64", "q"),
    8: Element(name="string"),
    9: _integer("bool", "B"),
    10: Element(name="f16", layout="e"),
    11: Element(name="f64", layout="d"),
    12: _integer("u32", "I"),
    13: _integer("u64", "Q"),
    14: Element(name="c64"),
    15: Element(name="c128"),
    16: Element(name="bf16"),
    17: Element(name="f8e4m3"),
    18: Element(name="f8e4m3"),  # fnuz: no negative zero
    19: Element(name="f8e5m2"),
    20: Element(name="f8e5m2"),  # fnuz
    21: _integer("u4"),
    22: _integer("i4"),
    23: Element(name="f4e2m1"),
    24: Element(name="f8e8m0"),
    25: _integer("u2"),
    26: _integer("i2"),
    27: Element(name="f6e2m3"),
    28: Element(name="f6e3m2"),
}

_INTEGERS = frozenset(element.name for element in ELEMENTS.values() if element.integer)
_BITS = {"string": None, "f8e8m0": 8, "u2": 2, "f6e2m3": 6, "f6e3m2": 6}  # formats the core has no row for


def element_bytes(name: str, count: int) -> int | None:
    """Bytes that so many elements take when stored raw; None for text, which has no size of its own."""
    if name in _BITS:
        bits = _BITS[name]
        return None if bits is None else -(-count * bits // 8)
    size: int = dtype(name).nbytes(count)
    return size


def is_integer(name: str | None) -> bool:
    return name in _INTEGERS


def is_float(name: str | None) -> bool:
    return name is not None and name not in _INTEGERS and name != "string"
