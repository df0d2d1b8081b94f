"""A file with everything that a model may hold, field by field; and fields of later versions, which change nothing."""

import struct
from dataclasses import fields as fields_of
from dataclasses import is_dataclass

import pytest

from inferometer.formats.onnx.faults import Fault
from inferometer.formats.onnx.messages import BYTES, FIXED32, FIXED64, VARINT, Wire
from inferometer.formats.onnx.parse import parse_model, parse_tensor
from unit.formats.onnx.onnx_bytes import FLOAT, INT64, field, fields, ints, model, node, tensor, value, varint

DOUBLE, COMPLEX = 11, 14
# What lies in each message: a message, a text (or bytes), a number, or numbers in either form.
TEXT, NUMBER, EITHER = "text", "number", "either"
SHAPE = {1: {1: NUMBER, 2: TEXT}}
TENSOR_TYPE = {1: NUMBER, 2: SHAPE}
PLAIN_TYPE = {1: TENSOR_TYPE, 8: TENSOR_TYPE}
TYPE = {**PLAIN_TYPE, 4: {1: PLAIN_TYPE}, 9: {1: PLAIN_TYPE}, 5: {1: NUMBER, 2: PLAIN_TYPE}, 7: {1: TEXT}}
PAIR = {1: TEXT, 2: TEXT}
TENSOR = {1: EITHER, 2: NUMBER, 4: EITHER, 5: EITHER, 7: EITHER, 8: TEXT, 9: EITHER, 10: EITHER, 13: PAIR, 14: NUMBER}
SPARSE = {1: TENSOR, 2: TENSOR, 3: EITHER}
INFO = {1: TEXT, 2: TYPE}
INNER = {2: TEXT, 5: TENSOR, 11: INFO}
ATTRIBUTE = {
    1: TEXT, 2: EITHER, 3: EITHER, 4: TEXT, 5: TENSOR, 6: INNER, 7: EITHER, 8: EITHER, 9: TEXT, 14: TYPE, 20: NUMBER,
    21: TEXT, 22: SPARSE,
}  # fmt: skip
NODE = {1: TEXT, 2: TEXT, 3: TEXT, 4: TEXT, 5: ATTRIBUTE, 7: TEXT, 8: TEXT}
GRAPH = {1: NODE, 2: TEXT, 5: TENSOR, 11: INFO, 12: INFO, 13: INFO, 15: SPARSE}
OPSET = {1: TEXT, 2: NUMBER}
FUNCTION = {1: TEXT, 4: TEXT, 5: TEXT, 7: NODE, 9: OPSET, 10: TEXT, 11: ATTRIBUTE, 12: INFO, 13: TEXT}
MODEL = {1: NUMBER, 2: TEXT, 3: TEXT, 7: GRAPH, 8: OPSET, 14: PAIR, 25: FUNCTION}


def typed(name, kind):
    return field(1, name) + field(2, kind)


FLOATS = field(1, field(1, FLOAT) + field(2, field(1, field(1, 3)) + field(1, field(2, "n")) + field(1, field(1, -1))))
SPARSE_TENSOR = field(1, tensor("kept", (2,))) + field(2, ints("places", 1, 4)) + fields(3, (5,))
ATTRIBUTES = (
    field(1, "f") + field(2, 0.5) + field(20, 1),
    field(1, "i") + field(3, -3) + field(20, 2),
    field(1, "s") + field(4, "words") + field(20, 3),
    field(1, "t") + field(5, ints("inner", 7)) + field(20, 4),
    field(1, "g") + field(6, field(2, "body") + field(5, ints("k", 1)) + field(11, typed("x", FLOATS))) + field(20, 5),
    field(1, "fs") + fields(7, (0.5, 2.0)) + field(7, struct.pack("<2f", 4.0, 8.0)) + field(20, 6),
    field(1, "is") + fields(8, (1, -2)) + field(8, varint(3) + varint(-4)) + field(20, 7),
    field(1, "ss") + fields(9, ("a", "b")) + field(20, 8),
    field(1, "tp") + field(14, FLOATS) + field(20, 13),
    field(1, "sp") + field(22, SPARSE_TENSOR) + field(20, 11),
    field(1, "old") + fields(8, (5, 6)),
    field(1, "none") + field(20, 2),
    field(1, "ref") + field(20, 2) + field(21, "outer"),
)
LOOSE = (
    field(1, varint(2) + varint(2)) + field(2, FLOAT) + field(8, "packed") + field(4, struct.pack("<4f", 1, 2, 3, 4)),
    fields(1, (2,)) + field(2, FLOAT) + field(8, "apart") + fields(4, (1.5, 2.5)),
    fields(1, (3,)) + field(2, INT64) + field(8, "longs") + field(7, varint(1) + varint(-1) + varint(300)),
    fields(1, (1,)) + field(2, DOUBLE) + field(8, "double") + varint(10 << 3 | 1) + struct.pack("<d", 0.25),
    fields(1, (1,)) + field(2, COMPLEX) + field(8, "complex") + field(4, struct.pack("<2f", 1, 2)),
    tensor("beside", (2,), external={"location": "w.bin", "offset": 8, "length": 8}),
)
INNER_NODE = node("Add", "a b", "c")
FUNCTION_BYTES = (
    field(1, "twice") + fields(4, ("a", "b")) + fields(5, ("c",)) + field(7, INNER_NODE) + field(9, field(2, 20))
    + field(10, "own") + field(11, field(1, "alpha") + field(2, 0.5) + field(20, 1)) + field(12, typed("c", FLOATS))
    + field(13, "loud")
)  # fmt: skip
CALL = node("Act", "x", "y", name="n", domain="own") + field(8, "loud") + fields(5, ATTRIBUTES)
BODY = (
    field(1, CALL) + field(2, "g") + fields(5, LOOSE) + field(15, SPARSE_TENSOR) + fields(13, (typed("h", FLOATS),))
    + fields(11, (
        value("x", (2, "n", None)), typed("s", field(4, field(1, FLOATS))), typed("o", field(9, field(1, FLOATS))),
        typed("m", field(5, field(1, 7) + field(2, FLOATS))), typed("q", field(7, b"")), field(1, "untyped"),
        typed("z", field(8, field(1, FLOAT))),
    )) + fields(12, (value("y"),))
)  # fmt: skip
MODEL_BYTES = model(BODY, version=20, functions=(FUNCTION_BYTES,), domains=("own", "ai.onnx.ml")) + (
    field(3, "2.1") + field(14, field(1, "key") + field(2, "said"))
)


def strangers(known):
    """Fields that no version has, of every form; and those it has, in a form that they do not have."""
    any_form = [field(99, 7), field(99, 0.5), varint(99 << 3 | 1) + bytes(8), field(99, b"later")]
    other = [field(n, 1) if form == TEXT or isinstance(form, dict) else field(n, b"odd")
             for n, form in known.items() if form != EITHER]  # fmt: skip
    return any_form, other


def with_strangers(raw, known, *, attribute=False):
    """Around every field of a message, and of those within it."""
    any_form, other = strangers(known)
    out = b"".join([*any_form, *(() if attribute else other)])
    data = Wire(raw)
    for number, kind, a, b in data.fields(0, len(raw)):
        inner = known.get(number)
        if kind == BYTES:
            part = raw[a:b]
            out += field(number, with_strangers(part, inner, attribute=inner is ATTRIBUTE) if isinstance(inner, dict)
                         else part)  # fmt: skip
        else:
            width = {VARINT: varint(a), FIXED32: raw[a:b], FIXED64: raw[a:b]}[kind]
            out += varint(number << 3 | kind) + width
        out += b"".join(any_form)
    return out + b"".join(() if attribute else other)


def plain(found, raw):
    """What was read, without the places where it stands."""
    if is_dataclass(found):
        values = {entry.name: getattr(found, entry.name) for entry in fields_of(found) if entry.name != "start"}
        if values.get("payload"):
            form, start, end = values["payload"]
            values["payload"] = (form, raw[start:end])
        return {name: plain(part, raw) for name, part in values.items()}
    if isinstance(found, dict):
        return {key: plain(part, raw) for key, part in found.items()}
    return [plain(part, raw) for part in found] if isinstance(found, tuple | list) else found


def test_fields_of_later_versions_change_nothing():
    more = with_strangers(MODEL_BYTES, MODEL)
    assert len(more) > 5 * len(MODEL_BYTES)
    assert plain(parse_model(Wire(more)), more) == plain(parse_model(Wire(MODEL_BYTES)), MODEL_BYTES)


def test_every_field_comes_out_under_its_name():
    found = parse_model(Wire(MODEL_BYTES))
    assert (found.ir_version, found.producer, found.producer_version) == (8, "test", "2.1")
    assert (found.opsets, found.properties) == ({"": 20, "own": 1, "ai.onnx.ml": 1}, {"key": "said"})
    ((key, function),) = found.functions.items()
    assert key == ("own", "twice", "loud")
    assert (function.inputs, function.outputs, function.opsets) == (("a", "b"), ("c",), {"": 20})
    assert (function.defaults["alpha"].value, function.infos[0].type.axes) == (0.5, (3, "n", None))
    (called,) = found.graph.nodes
    assert (called.op_type, called.domain, called.name, called.overload) == ("Act", "own", "n", "loud")
    attributes = {name: (entry.value, entry.count) for name, entry in called.attributes.items()}
    assert {name: attributes[name] for name in ("f", "i", "s", "fs", "is", "ss", "old", "none")} == {
        "f": (0.5, 1), "i": (-3, 1), "s": ("words", 1), "fs": ((0.5, 2.0, 4.0, 8.0), 4), "is": ((1, -2, 3, -4), 4),
        "ss": (("a", "b"), 2), "old": ((5, 6), 2), "none": (0, 1),
    }  # fmt: skip
    assert (called.attributes["ref"].reference, called.attributes["f"].reference) == ("outer", None)
    assert (attributes["t"][0].name, attributes["tp"][0].axes) == ("inner", (3, "n", None))
    body = attributes["g"][0]
    assert (body.name, [t.name for t in body.initializers], [i.name for i in body.inputs]) == ("body", ["k"], ["x"])
    stored = {entry.name: entry for entry in (*found.graph.initializers, attributes["sp"][0])}
    kept = stored["kept"]  # two floats and two places
    assert (kept.dims, kept.dtype, kept.sparse) == ((5,), "f32", 2 * 4 + 2 * 8)
    assert {name: (entry.dims, entry.dtype, entry.loose) for name, entry in stored.items() if name != "kept"} == {
        "packed": ((2, 2), "f32", ()), "apart": ((2,), "f32", (1.5, 2.5)), "longs": ((3,), "i64", ()),
        "double": ((1,), "f64", (0.25,)), "complex": ((1,), "c64", ()), "beside": ((2,), "f32", ()),
    }  # fmt: skip
    external = stored["beside"].external
    assert (external.location, external.offset, external.length) == ("w.bin", 8, 8)
    kinds = {entry.name: entry.type for entry in found.graph.inputs}
    assert {name: (kind.group, kind.inner and kind.inner.axes) for name, kind in kinds.items() if kind} == {
        "x": ("tensor", None), "s": ("sequence", (3, "n", None)), "o": ("optional", (3, "n", None)),
        "m": ("map", (3, "n", None)), "q": ("opaque", None), "z": ("sparse", None),
    }  # fmt: skip
    assert kinds["untyped"] is None
    assert [entry.name for entry in (*found.graph.outputs, *found.graph.infos)] == ["y", "h"]


@pytest.mark.parametrize(
    ("body", "held"),
    [
        (fields(1, (2,)) + field(2, FLOAT) + field(4, bytes(8)), True),
        (fields(1, (2,)) + field(2, FLOAT) + field(4, bytes(12)), False),
        (fields(1, (1,)) + field(2, COMPLEX) + field(4, bytes(4)), False),
        (fields(1, (2,)) + field(2, DOUBLE) + field(10, bytes(16)), True),
        (fields(1, (2,)) + field(2, DOUBLE) + field(10, bytes(8)), False),
        (fields(1, (3,)) + field(2, INT64) + field(7, bytes(3)), True),
        (fields(1, (3,)) + field(2, INT64) + field(7, bytes(2)), False),
        (fields(1, (3,)) + field(2, INT64) + field(7, bytes(31)), False),
        (fields(1, (3,)) + field(2, 22) + field(5, bytes(2)), True),  # i4: two in a number
        (fields(1, (5,)) + field(2, 22) + field(5, bytes(2)), False),
        (fields(1, (5,)) + field(2, 26) + field(5, bytes(2)), True),  # i2: four in a number
        (fields(1, (9,)) + field(2, 26) + field(5, bytes(2)), False),
        (fields(1, (2,)) + field(2, FLOAT) + field(4, 1.0), False),
        (fields(1, (2,)) + field(2, FLOAT) + fields(4, (1.0, 2.0, 3.0)), False),
        (fields(1, (1,)) + field(2, COMPLEX) + fields(4, (1.0, 2.0)), True),
        (fields(1, (2,)) + field(2, FLOAT), True),  # stripped of its numbers
        (fields(1, (2,)) + field(2, FLOAT) + field(9, bytes(8)) + field(4, bytes(8)), False),
        (fields(1, (-2,)) + field(2, FLOAT), False),
        (fields(1, (2,)) + field(2, 99), False),
    ],
)
def test_a_tensor_holds_as_many_numbers_as_it_says(body, held):
    if held:
        assert parse_tensor(Wire(body), 0, len(body)).dims
    else:
        with pytest.raises(Fault):
            parse_tensor(Wire(body), 0, len(body))
