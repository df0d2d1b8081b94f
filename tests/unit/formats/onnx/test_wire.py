import pytest

from inferometer.formats.onnx.content import Contents, ExternalFiles
from inferometer.formats.onnx.faults import MAX_ITEMS, Fault
from inferometer.formats.onnx.messages import BYTES, FIXED32, VARINT, TensorDef, Wire, signed
from inferometer.formats.onnx.parse import _parse_type
from unit.formats.onnx.onnx_bytes import FLOAT, INT64, field, shape, varint


def fields(data):
    return list(Wire(data).fields(0, len(data)))


def test_a_message_is_its_fields_in_order():
    assert fields(field(1, 300) + field(2, b"ab")) == [(1, VARINT, 300, 3), (2, BYTES, 5, 7)]


def test_a_float_takes_four_bytes():
    assert fields(field(7, 1.5)) == [(7, FIXED32, 1, 5)]


def test_negative_numbers_are_ten_bytes_and_come_back():
    ((_, _, value, _),) = fields(field(3, -7))
    assert signed(value) == -7


def test_a_field_may_have_a_large_number():
    assert fields(field(500, 1))[0][0] == 500


def test_payloads_are_skipped_not_read():
    class Counting(bytes):
        looked = 0

        def __getitem__(self, key):
            Counting.looked += 1
            return bytes.__getitem__(self, key)

    data = Counting(field(9, bytes(100_000)) + field(1, 1))
    assert [number for number, *_ in Wire(data).fields(0, len(data))] == [9, 1]
    assert Counting.looked < 20


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x0a\x05ab", "claims 5 bytes and 2 are left"),
        (b"\x0a" + varint(2**63), "claims"),
        (b"\x08", "ends within a number"),
        (b"\x08" + b"\xff" * 11, "longer than ten bytes"),
        (b"\x00\x01", "field number 0"),
        (b"\x0b\x0c", "wire type 3"),
        (b"\x0f", "wire type 7"),
        (b"\x0d\x00", "claims 4 bytes and 1 are left"),
    ],
)
def test_what_cannot_be_is_a_fault_with_its_offset(data, why):
    with pytest.raises(Fault, match=why) as caught:
        fields(data)
    assert caught.value.offset is not None


def test_a_name_must_be_text_of_a_bearable_length():
    with pytest.raises(Fault, match="not UTF-8"):
        Wire(b"\xff\xfe").text(0, 2)
    with pytest.raises(Fault, match="a name of"):
        Wire(bytes(100_000)).text(0, 100_000)


def test_a_fault_says_where_from_the_outside_in():
    fault = Fault("it is broken", offset=12).at("tensor 'w'").at("node 'n'")
    assert str(fault) == "it is broken (node 'n', tensor 'w', byte 12)"


@pytest.mark.parametrize("before", [b"", field(6, "a denotation"), field(1, 7), field(99, b"of a later version")])
def test_a_type_is_read_whatever_stands_before_it(before):
    data = before + field(1, field(1, FLOAT) + field(2, shape((2, "n", None))))
    found = _parse_type(Wire(data), 0, len(data), depth=0)
    assert (found.group, found.dtype, found.axes) == ("tensor", "f32", (2, "n", None))


@pytest.mark.parametrize(("kind", "most"), [(INT64, MAX_ITEMS), (FLOAT, 64)], ids=["whole numbers", "floats"])
def test_contents_are_read_of_small_dense_tensors_alone(kind, most, tmp_path):
    """A sparse one's numbers are those that are not zero, and not its first ones."""

    def content(count, **how):
        held = TensorDef(name="t", dims=(count,), dtype="i64" if kind == INT64 else "f32", start=0, data_type=kind,
                         loose=(1,) * count, loose_count=count, **how)  # fmt: skip
        return Contents(Wire(b""), ExternalFiles(tmp_path)).read(held)

    assert content(most).items == (1,) * most
    assert content(most + 1) is None
    assert content(2, sparse=16) is None
