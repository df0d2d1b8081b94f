import struct
from pathlib import Path

import pytest

from inferometer.core.errors import FormatError
from inferometer.formats.gguf.header import TENSOR_TYPES, CountedValue, parse_header, read_header
from unit.formats.gguf.gguf_bytes import header, text, typed, write

HERE = Path("model.gguf")
TENSORS = {"a.weight": ((4, 64), "q4_0"), "b.weight": ((64,), "f32"), "c.weight": ((2, 256), "q6_k")}


def parsed(metadata, tensors=None, **how):
    raw, size = header(metadata, tensors or {}, **how)
    return parse_header(raw + bytes(size), HERE)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3])
def test_every_value_type_is_read_in_both_byte_orders(order, version):
    values = {
        "a": ("u8", 200), "b": ("i8", -3), "c": ("u16", 60_000), "d": ("i16", -5), "e": ("u32", 4_000_000_000),
        "f": ("i32", -7), "g": ("f32", 0.5), "h": ("bool", True), "i": "text", "j": ("u64", 2**63), "k": ("i64", -9),
        "l": ("f64", 0.1),
    }  # fmt: skip
    found = parsed(values, order=order, version=version)
    plain = {key: value[1] if isinstance(value, tuple) else value for key, value in values.items()}
    assert found.metadata == plain
    assert found.version == version
    assert found.byte_order == ("little" if order == "<" else "big")


@pytest.mark.parametrize(("byte", "is_true"), [(0, False), (1, True), (2, True), (255, True)])
def test_any_byte_but_zero_is_true_alone_and_in_a_list(byte, is_true):
    raw, _ = header({"alone": ("bool", True), "list": ("bool", [True])}, {})
    written = raw.replace(b"\x07\0\0\0\x01", b"\x07\0\0\0" + bytes([byte]), 1)
    at = written.rindex(b"\x01")
    found = parse_header(written[:at] + bytes([byte]) + written[at + 1 :], HERE).metadata
    assert (found["alone"], found["list"]) == (is_true, (is_true,))
    assert type(found["alone"]) is type(found["list"][0]) is bool


def test_small_arrays_are_kept_and_large_ones_are_counted():
    found = parsed(
        {
            "pattern": ("bool", [True, False, True]),
            "lengths": ("u32", [1, 2, 3]),
            "languages": ["en", "fr"],
            "tokens": [f"t{index}" for index in range(1000)],
            "scores": ("f32", [0.0] * 5000),
            "nested": [["a"], ["b", "c"]],
            "many": [["a"]] * 100,
        }
    )
    assert found.metadata["pattern"] == (True, False, True)
    assert found.metadata["lengths"] == (1, 2, 3)
    assert found.metadata["languages"] == ("en", "fr")
    assert found.metadata["tokens"] == CountedValue(type="string", count=1000)
    assert found.metadata["scores"] == CountedValue(type="f32", count=5000)
    assert found.metadata["nested"] == (("a",), ("b", "c"))
    assert found.metadata["many"] == CountedValue(type="array", count=100)


def test_a_text_too_long_to_keep_is_counted():
    assert parsed({"template": "x" * 2_000_000}).metadata["template"] == CountedValue(type="string", count=2_000_000)


def test_bytes_that_are_no_text_do_not_stop_a_value():
    raw, _ = header({"key": "ab"}, {})
    assert parse_header(raw.replace(b"ab", b"\xff\xfe"), HERE).metadata["key"] == "\ufffd\ufffd"


@pytest.mark.parametrize("alignment", [32, 64, 1])
def test_the_file_is_the_header_the_tensors_and_the_padding(tmp_path, alignment):
    path = tmp_path / "model.gguf"
    write(path, {"general.alignment": alignment}, TENSORS)
    found = read_header(path)
    assert [tensor.nbytes for tensor in found.tensors] == [4 * 2 * 18, 256, 2 * 210]
    assert found.data_offset + found.tensor_bytes + found.padding_bytes == path.stat().st_size
    assert found.alignment == alignment
    assert all(tensor.offset % alignment == 0 for tensor in found.tensors)


def test_a_header_alone_ends_where_the_file_does():
    """Without tensors nothing is padded up to where they would begin."""
    raw, _ = header({"general.name": "xyz"}, {})
    found = parse_header(raw.rstrip(b"\0"), HERE)
    assert (found.data_offset, found.padding_bytes) == (found.file_bytes, 0)


def test_interleaved_rows_are_of_the_format_they_are_made_from():
    """ggml.h had Q4_0_4_4, Q4_0_4_8 and Q4_0_8_8 as 31 to 33, and IQ4_NL_4_4, _4_8 and _8_8 as 36 to 38."""
    names = {number: TENSOR_TYPES[number][0].name for number in (31, 32, 33, 36, 37, 38)}
    assert names == {31: "q4_0", 32: "q4_0", 33: "q4_0", 36: "iq4_nl", 37: "iq4_nl", 38: "iq4_nl"}


def test_shapes_have_the_outermost_axis_first():
    assert parsed({}, TENSORS).tensors[0].shape == (4, 64)


@pytest.mark.parametrize("cut", [0, 3, 7, 15, 23, 30, 60, 100, 140])
def test_a_truncated_header_names_the_file_and_the_byte(cut):
    raw, _ = header({"general.name": "x", "numbers": ("u32", [1, 2, 3])}, TENSORS)
    with pytest.raises(FormatError, match=r"'model.gguf' .* at byte \d"):
        parse_header(raw[:cut], HERE)


def test_truncated_tensors_are_named():
    raw, size = header({}, TENSORS)
    with pytest.raises(FormatError, match=r"'c.weight' ends at byte [\d,]+ of a file that has"):
        parse_header(raw + bytes(size - 400), HERE)


def claim(tensors=0, keys=0, rest=b"", version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def info(name=b"t", axes=(64,), kind=0, offset=0, count=None):
    head = text(name) + struct.pack("<I", len(axes) if count is None else count)
    return head + struct.pack(f"<{len(axes)}Q", *axes) + struct.pack("<IQ", kind, offset)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"GGML" + bytes(60), "magic number"),
        (claim(version=1), "version 1"),
        (claim(version=4), "version 4"),
        (claim(version=0), "version 0"),
        (claim(tensors=2**63), "9,223,372,036,854,775,808 tensors"),
        (claim(keys=2**63), "metadata keys"),
        (claim(tensors=1000), "1,000 tensors needs 24,000 bytes"),
        (claim(keys=1, rest=struct.pack("<Q", 2**62) + bytes(20)), "said to have 2\\^62 or more bytes"),
        (claim(keys=1, rest=text("k") + struct.pack("<IIQ", 9, 8, 2**60) + bytes(8)), "the array 'k'"),
        (claim(keys=1, rest=text("k") + struct.pack("<IIQ", 9, 4, 2**60) + bytes(8)), "the array 'k'"),
        (claim(keys=1, rest=text("k") + struct.pack("<IQ", 8, 2**60) + bytes(8)), "the text of 'k'"),
        (claim(keys=1, rest=text("k") + struct.pack("<I", 77) + bytes(8)), "unknown value type 77"),
        (claim(keys=2, rest=2 * (text("k") + typed(1))), "'k' stands twice"),
        (claim(keys=1, rest=text(b"\xff") + typed(1)), "not UTF-8"),
        (claim(keys=1, rest=text("general.alignment") + typed(48)), "not a power of two"),
        (claim(keys=1, rest=text("general.alignment") + typed(0)), "not a power of two"),
        (claim(keys=1, rest=text("general.alignment") + typed("x")), "not a power of two"),
        (claim(tensors=1, rest=info(kind=4) + bytes(64)), "unknown type 4"),
        (claim(tensors=1, rest=info(count=2**31) + bytes(64)), "axes"),
        (claim(tensors=1, rest=info(axes=(2**63, 2**63)) + bytes(64)), "2\\^63 or more"),
        (claim(tensors=1, rest=info(offset=2**63) + bytes(64)), "ends at byte"),
        (claim(tensors=1, rest=info(offset=7) + bytes(640)), "not a multiple of 32"),
        (claim(tensors=1, rest=info(axes=(33,), kind=2) + bytes(640)), "no multiple of q4_0's 32"),
        (claim(tensors=2, rest=2 * info() + bytes(640)), "'t' stands twice"),
        (claim(tensors=2, rest=info() + info(name=b"u", offset=32) + bytes(640)), "'t' and 'u' overlap"),
    ],
)
def test_a_hostile_header_is_refused_for_what_it_claims(raw, says):
    with pytest.raises(FormatError, match=says):
        parse_header(raw, HERE)


def test_arrays_cannot_nest_without_end():
    deep = struct.pack("<IQ", 9, 1) * 40
    with pytest.raises(FormatError, match="nests arrays"):
        parse_header(claim(keys=1, rest=text("k") + struct.pack("<I", 9) + deep + bytes(16)), HERE)


def test_a_file_that_is_not_there_or_empty_is_said_plainly(tmp_path):
    with pytest.raises(FormatError, match="There is no file"):
        read_header(tmp_path / "none.gguf")
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(FormatError, match=r"empty\.gguf"):
        read_header(tmp_path / "empty.gguf")
    with pytest.raises(FormatError):
        read_header(tmp_path)


def test_every_type_ggml_has_is_known_with_its_size():
    constants = pytest.importorskip("gguf.constants")
    from inferometer.formats.gguf.header import TENSOR_TYPES

    for kind, (elements, size) in constants.GGML_QUANT_SIZES.items():
        if kind.name == "Q8_1":  # gguf counts two 32-bit scales; ggml's block has two 16-bit ones, and no file holds it
            continue
        entry, multiple = TENSOR_TYPES[kind.value]
        assert (entry.nbytes(elements), multiple) == (size, elements), kind.name
