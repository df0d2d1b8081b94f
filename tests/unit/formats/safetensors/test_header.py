import json
import re
import struct

import pytest

from inferometer.core.dtypes import DTYPES
from inferometer.core.errors import FormatError
from inferometer.formats.safetensors import _FORMATS, _MANY_FILES, _by_index, read_header
from unit.formats.safetensors.safetensors_bytes import described, packed, write

TENSORS = {"a": ("F32", [2, 3]), "b": ("BF16", [4]), "empty": ("F16", [0, 7]), "scalar": ("I64", [])}


def test_formats_shapes_and_bytes_come_from_the_header(tmp_path):
    path = tmp_path / "m.safetensors"
    write(path, {**TENSORS, "c": ("F8_E4M3", [8]), "d": ("F4", [6]), "e": ("F6_E2M3", [4])}, {"format": "pt"})
    found = read_header(path)
    assert {t.name: (t.dtype, t.shape, t.nbytes) for t in found.tensors} == {
        "a": ("f32", (2, 3), 24), "b": ("bf16", (4,), 8), "empty": ("f16", (0, 7), 0), "scalar": ("i64", (), 8),
        "c": ("f8e4m3", (8,), 8), "d": ("f4e2m1", (6,), 3), "e": (found.tensors[-1].dtype, (4,), 3),
    }  # fmt: skip
    assert found.metadata == {"format": "pt"}
    assert found.header_bytes + sum(t.nbytes for t in found.tensors) == found.file_bytes == path.stat().st_size


def test_a_format_is_ours_of_its_name_and_has_the_bits_its_name_says(tmp_path):
    """Three numbers of each: their bits are rounded up to bytes. `core.dtypes` and the names are a second way."""
    others = {"F8_E4M3FNUZ": "f8e4m3", "F8_E5M2FNUZ": "f8e5m2", "F4": "f4e2m1", "BOOL": "bool"}
    bits = {name: int((re.search(r"\d+", name) or ["8"])[0]) for name in _FORMATS}
    entries, offset = {}, 0
    for name in _FORMATS:
        size = -(-3 * bits[name] // 8)
        entries[name] = entry(name, (3,), (offset, offset + size))
        offset += size
    (tmp_path / "m").write_bytes(packed(entries, offset))
    for tensor in read_header(tmp_path / "m").tensors:
        ours = others.get(tensor.name, tensor.name.lower().replace("_", ""))
        assert tensor.dtype == (ours if ours in DTYPES else None)
        assert ours not in DTYPES or DTYPES[ours].bits == bits[tensor.name], tensor.name


def test_a_header_may_be_padded_with_spaces(tmp_path):
    entries, size = described(TENSORS)
    (tmp_path / "m").write_bytes(packed(entries, size, pad=13))
    assert len(read_header(tmp_path / "m").tensors) == 4


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "is said to have 0 bytes"),
        (b"\x01\x02", "header is said to have"),
        (struct.pack("<Q", 2**63) + b"{}", "2\\^63 or more bytes"),
        (struct.pack("<Q", 99) + b"{}", "99 bytes at byte 0, of a file of 10"),
        (packed(b"{"), "not the JSON"),
        (packed(b"[]"), "not the JSON"),
        (packed(b"\xff\xff"), "not the JSON"),
        (packed(b"[" * 100_000), "not the JSON"),
        (packed({"__metadata__": {"a": 1}}), "not the JSON"),
        (packed({"t": 3}), "tensor 't' is not described"),
        (packed({"t": {"dtype": "F32"}}), "tensor 't' is not described"),
        (packed({"t": entry(shape=["x"])}, 8), "tensor 't' is not described"),
        (packed({"t": entry(dtype="Q9")}, 8), "unknown format 'Q9'"),
        (packed({"t": entry(shape=(-2,))}, 8), "impossible"),
        (packed({"t": entry(shape=(2**62,))}, 8), "impossible"),
        (packed({"t": entry(shape=(2**40, 2**40))}, 8), "2\\^62 or more"),
        (packed({"t": entry(offsets=(8, 0))}, 8), "impossible"),
        (packed({"t": entry(offsets=(0, 7))}, 8), "7 bytes where its shape needs 8"),
        (packed({"t": entry(offsets=(8, 16))}, 16), "leaves a hole after the header"),
        (packed({"t": entry(), "u": entry(offsets=(12, 20))}, 20), "leaves a hole after 't'"),
        (packed({"t": entry(), "u": entry(offsets=(4, 12))}, 12), "overlaps 't'"),
        (packed({"t": entry()}, 4), "ends before the last tensor"),
        (packed({"t": entry()}, 12), "goes on after the last tensor"),
    ],
)
def test_what_breaks_the_rules_is_refused_by_name(tmp_path, raw, says):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(raw)
    with pytest.raises(FormatError, match=says) as caught:
        read_header(path)
    assert "bad.safetensors" in caught.value.message


def test_a_file_that_is_not_there_is_said_plainly(tmp_path):
    with pytest.raises(FormatError, match="There is no file"):
        read_header(tmp_path / "none")
    with pytest.raises(FormatError, match="cannot be read"):
        read_header(tmp_path)


def indexed(folder, mapping, **files):
    """An index with its files, each of which holds tensors of one number."""
    for name, held in files.items():
        write(folder / f"{name}.safetensors", {tensor: ("F32", [1]) for tensor in held})
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": mapping}))
    return path


@pytest.mark.parametrize(
    ("mapping", "files", "why"),
    [
        ({"a": "one.safetensors"}, {"one": "ab", "two": "b"}, None),
        ({"a": "one.safetensors", "b": "two.safetensors"}, {"one": "ab", "two": "b"}, "hold a tensor twice"),
        (
            {"a": "one.safetensors", "c": "one.safetensors"},
            {"one": "ab"},
            "says 'c' is in one.safetensors; it is in no file",
        ),
        ({"a": "two.safetensors", "b": "one.safetensors"}, {"one": "ab", "two": "c"}, "it is in one.safetensors"),
        ({"a": "one.bin"}, {"one": "a"}, "no safetensors file beside it"),
        ({"a": "../one.safetensors"}, {"one": "a"}, "no safetensors file beside it"),
        ({"a": "x\\one.safetensors"}, {"one": "a"}, "no safetensors file beside it"),
        ({"a": "c:one.safetensors"}, {"one": "a"}, "no safetensors file beside it"),
        ({"a": 3}, {}, "has no weight_map"),
        ([], {}, "has no weight_map"),
        ({str(number): f"{number}.safetensors" for number in range(_MANY_FILES + 1)}, {}, "files; at most"),
    ],
)
def test_an_index_names_files_beside_it_that_agree(tmp_path, mapping, files, why):
    path = indexed(tmp_path, mapping, **files)
    if why is None:
        assert [header.path.name for header in _by_index(path)] == ["one.safetensors"]
        return
    with pytest.raises(FormatError, match=re.escape(why)):
        _by_index(path)
