"""TFLite files made by hand: a flatbuffer writer of a few lines, and the schema's tables as plain calls."""

import struct
from dataclasses import dataclass, field

F32, F16, I32, U8, I64, I8 = 0, 1, 2, 3, 4, 9


@dataclass
class Table:
    """Fields by number: ("i", 5) is a number, a str is text, bytes are raw, a list holds texts or tables."""

    fields: dict = field(default_factory=dict)


@dataclass
class Numbers:
    letter: str
    values: tuple


@dataclass
class Repeated:
    """A list whose entries all point to the same table, as only a hostile file has it."""

    table: Table
    count: int


def serialised(root: Table, identifier: bytes = b"TFL3") -> bytes:
    out = bytearray(struct.pack("<I4s", 0, identifier))
    struct.pack_into("<I", out, 0, _table(out, root))
    return bytes(out)


def _table(out: bytearray, table: Table) -> int:
    """The vtable, the table, then what it points to. Everything pointed to lies further on, as the format wants."""
    fields = {number: value for number, value in table.fields.items() if value is not None}
    places, inline = {}, b""
    for number, value in fields.items():
        places[number] = 4 + len(inline)
        inline += struct.pack("<" + value[0], value[1]) if isinstance(value, tuple) else bytes(4)
    count = max(fields, default=-1) + 1
    start = len(out)
    out += struct.pack("<HH", 4 + 2 * count, 4 + len(inline))
    out += struct.pack(f"<{count}H", *(places.get(number, 0) for number in range(count)))
    position = len(out)
    out += struct.pack("<i", position - start) + inline
    for number, value in fields.items():
        if not isinstance(value, tuple):
            place = position + places[number]
            struct.pack_into("<I", out, place, _pointed(out, value) - place)
    return position


def _pointed(out: bytearray, value) -> int:
    if isinstance(value, Table):
        return _table(out, value)
    position = len(out)
    if isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        out += struct.pack("<I", len(raw)) + raw + (b"\0" if isinstance(value, str) else b"")
    elif isinstance(value, Repeated):
        out += struct.pack("<I", value.count) + bytes(4 * value.count)
        target = _table(out, value.table)
        places = range(position + 4, position + 4 + 4 * value.count, 4)
        struct.pack_into(f"<{value.count}I", out, position + 4, *(target - place for place in places))
    elif isinstance(value, Numbers):
        out += struct.pack(f"<I{len(value.values)}{value.letter}", len(value.values), *value.values)
    else:
        out += struct.pack("<I", len(value)) + bytes(4 * len(value))
        for index, entry in enumerate(value):
            place = position + 4 + 4 * index
            struct.pack_into("<I", out, place, _pointed(out, entry) - place)
    return position


def ints(*values: int) -> Numbers:
    return Numbers("i", values)


def quantised(scales: int = 1, axis: int = 0, zero_points: int | None = None) -> Table:
    count = scales if zero_points is None else zero_points
    return Table({2: Numbers("f", (0.5,) * scales), 3: Numbers("q", (0,) * count), 6: ("i", axis)})


def tensor(name, shape, kind=F32, *, buffer=0, signature=None, quantization=None, variable=False, sparsity=None):
    return Table({
        0: ints(*shape), 1: ("b", kind), 2: ("I", buffer), 3: name, 4: quantization, 5: ("?", variable),
        6: sparsity, 7: None if signature is None else ints(*signature),
    })  # fmt: skip


def operator(code, inputs, outputs, options=None, options_2=None):
    """`code` is an index into the model's operator codes; options are (number in the union, table)."""
    fields = {0: ("I", code), 1: ints(*inputs), 2: ints(*outputs)}
    if options:
        fields |= {3: ("B", options[0]), 4: Table(options[1])}
    if options_2:
        fields |= {11: ("B", options_2[0]), 12: Table(options_2[1])}
    return Table(fields)


def subgraph(tensors, inputs, outputs, operators, name="main"):
    steps = operators if isinstance(operators, Repeated) else list(operators)
    held = tensors if isinstance(tensors, Repeated) else list(tensors)
    return Table({0: held, 1: ints(*inputs), 2: ints(*outputs), 3: steps, 4: name})


def code(number, custom=None):
    return Table({0: ("b", min(number, 127)), 1: custom, 3: ("i", number)})


def model(codes, subgraphs, buffers=(), signatures=None, version=3):
    """Buffer 0 is empty, as the schema wants; `buffers` are numbered from 1."""
    return serialised(
        Table(
            {
                0: ("I", version),
                1: [code(*entry) if isinstance(entry, tuple) else code(entry) for entry in codes],
                2: list(subgraphs),
                3: "made by hand",
                4: [Table({}), *(entry if isinstance(entry, Table) else Table({0: entry}) for entry in buffers)],
                7: [Table({2: key, 4: ("I", index)}) for key, index in (signatures or {}).items()],
            }
        )
    )


def convolution(batch=1):
    """x [batch, 8, 8, 3] → CONV_2D 3×3 stride 2 to 4 channels, ReLU6 fused → y [batch, 4, 4, 4]."""
    signature = None if batch == 1 else (-1, 8, 8, 3)
    made = None if batch == 1 else (-1, 4, 4, 4)
    tensors = [
        tensor("x", (1, 8, 8, 3), signature=signature), tensor("filters", (4, 3, 3, 3), buffer=1),
        tensor("bias", (4,), buffer=2), tensor("y", (1, 4, 4, 4), signature=made),
    ]  # fmt: skip
    options = (1, {0: ("b", 0), 1: ("i", 2), 2: ("i", 2), 3: ("b", 3)})
    steps = [operator(0, (0, 1, 2), (3,), options)]
    return model([3], [subgraph(tensors, (0,), (3,), steps)], [bytes(4 * 108), bytes(16)])
