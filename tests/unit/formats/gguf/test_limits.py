"""Each bound of a header, at its number and one beyond; and how metadata becomes a config."""

import struct
from pathlib import Path

import pytest

from inferometer.core.errors import FormatError
from inferometer.formats.gguf import header
from inferometer.formats.gguf.architecture import Architecture, _holds, _rotated_share, config_of
from inferometer.formats.gguf.header import TENSOR_TYPES, CountedValue, parse_header
from unit.formats.gguf.gguf_bytes import header as written


def read(metadata, tensors=None):
    raw, size = written(metadata, tensors or {})
    return parse_header(raw + bytes(size), Path("m.gguf"))


@pytest.mark.parametrize(
    ("module", "limit", "number", "within", "beyond"),
    [
        (header, "_NAME_LIMIT", 5, {"abcde": 1}, {"abcdef": 1}),
        (header, "_WALK_LIMIT", 4, {"a": ["x", "y"], "b": ["x", "y"]}, {"a": ["x", "y"], "b": ["x", "y", "z"]}),
        (header, "_WALK_LIMIT", 3, {"a": [["x"], ["y"]][:1], "b": ["x"]}, {"a": [["x"], ["y"]], "b": ["x"]}),
        (header, "_MANY_KEYS", 2, {"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}),
        (header, "_DEEP", 2, {"a": [["x"]]}, {"a": [[["x"]]]}),
    ],
)
def test_a_header_may_have_so_much_and_no_more(monkeypatch, module, limit, number, within, beyond):  # noqa: PLR0917
    monkeypatch.setattr(module, limit, number)
    assert read(within).metadata.keys() == within.keys()
    with pytest.raises(FormatError):
        read(beyond)


@pytest.mark.parametrize(
    ("limit", "number", "metadata", "kept"),
    [
        ("_KEPT_TEXT", 3, {"a": "abc", "b": "abcd"}, {"a": "abc", "b": CountedValue(type="string", count=4)}),
        ("_KEPT_BYTES", 5, {"a": "abc", "b": "de", "c": "f"},
         {"a": "abc", "b": "de", "c": CountedValue(type="string", count=1)}),
        ("_KEPT_STRINGS", 2, {"a": ["x", "y"], "b": ["x", "y", "z"]},
         {"a": ("x", "y"), "b": CountedValue(type="string", count=3)}),
        ("_KEPT_NUMBERS", 2, {"a": ("u16", [1, 2]), "b": ("u16", [1, 2, 3])},
         {"a": (1, 2), "b": CountedValue(type="u16", count=3)}),
        ("_KEPT_STRINGS", 1, {"a": [["x"], ["y"]], "b": 7}, {"a": CountedValue(type="array", count=2), "b": 7}),
    ],
)  # fmt: skip
def test_what_is_kept_and_what_is_only_counted(monkeypatch, limit, number, metadata, kept):
    """A value that follows what was stepped over is read from the right place."""
    monkeypatch.setattr(header, limit, number)
    assert read({**metadata, "last": 9}).metadata == {**kept, "last": 9}


def test_axes_tensors_and_the_bytes_of_a_header_are_bounded(monkeypatch):
    monkeypatch.setattr(header, "_MANY_AXES", 2)
    monkeypatch.setattr(header, "_MANY_TENSORS", 2)
    two = {"a": ((2, 3), "f32"), "b": ((5,), "f32")}
    assert [tensor.nbytes for tensor in read({}, two).tensors] == [24, 20]
    with pytest.raises(FormatError, match="3 axes"):
        read({}, {"a": ((1, 2, 3), "f32")})
    with pytest.raises(FormatError, match="claims 3 tensors"):
        read({}, {**two, "c": ((1,), "f32")})
    raw = written({"a": 1}, {})[0]
    monkeypatch.setattr(header, "_HEADER_LIMIT", len(raw.rstrip(b"\0")) + 3)
    assert parse_header(raw, Path("m.gguf")).metadata == {"a": 1}
    monkeypatch.setattr(header, "_HEADER_LIMIT", 30)
    with pytest.raises(FormatError, match="beyond the 30 bytes"):
        parse_header(raw, Path("m.gguf"))


def test_tensors_may_touch_and_not_overlap():
    raw, size = written({"general.alignment": 4}, {"a": ((2,), "f32"), "b": ((1,), "f32")})
    second = raw.rindex(struct.pack("<Q", 8))
    for offset, sound in ((8, True), (4, False)):
        changed = raw[:second] + struct.pack("<Q", offset) + raw[second + 8 :]
        if sound:
            assert [tensor.offset - len(raw) for tensor in parse_header(changed + bytes(size), Path("m")).tensors] == [
                0,
                8,
            ]
        else:
            with pytest.raises(FormatError, match="'a' and 'b' overlap"):
                parse_header(changed + bytes(size), Path("m"))
    with pytest.raises(FormatError, match=f"ends at byte {len(raw) + 12}"):
        parse_header(raw + bytes(11), Path("m"))


def test_formats_that_ggml_has_no_number_for_are_no_tensor_types():
    assert None not in TENSOR_TYPES
    assert TENSOR_TYPES[40][1] == 64, "nvfp4 is stored four blocks of 16 at a time"


# Metadata as a config

ROW = Architecture(
    name="a", model_type="t", prefix="layers.{}.", body={"embed": "token_embd"}, set={"fixed": 3}, apart=(),
    tries=({},),
    keys={"whole": "x", "either": ["y", "x"], "ratio": "p / q", "rest": "p - q"},
    layer={"q": "attn_q", "qkv": ["attn_qkv", "attn_q + attn_k"], "norm.weight": "special"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("metadata", "config"),
    [
        ({}, {}), ({"x": 5}, {"whole": 5, "either": 5}), ({"x": 5, "y": 6}, {"whole": 5, "either": 6}),
        ({"x": (5, 5)}, {"whole": 5, "either": 5}), ({"x": (5, 6)}, {}), ({"x": ()}, {}), ({"x": "5"}, {}),
        ({"p": 12, "q": 4}, {"ratio": 3, "rest": 8}), ({"p": 12, "q": 5}, {"rest": 7}),
        ({"p": 12, "q": 0}, {"rest": 12}), ({"p": 12.0, "q": 4}, {}), ({"p": 12}, {}),
        ({"rope.dimension_count": 16, "attention.key_length": 64}, {"partial_rotary_factor": 0.25}),
        ({"rope.dimension_count": 64, "attention.key_length": 64}, {"partial_rotary_factor": 1.0}),
        ({"rope.dimension_count": 65, "attention.key_length": 64}, {}),
        ({"rope.dimension_count": 0, "attention.key_length": 64}, {}), ({"rope.dimension_count": 8}, {}),
        ({"rope.dimension_count": 8, "attention.key_length": 0}, {}),
        ({"rope.dimension_count": 8, "embedding_length": 64, "attention.head_count": 4},
         {"partial_rotary_factor": 0.5}),
        ({"rope.dimension_count": 8, "embedding_length": 64, "attention.head_count": 5}, {}),
    ],
)  # fmt: skip
def test_values_of_a_config_are_those_that_the_file_has(metadata, config):
    named = {f"a.{key}": value for key, value in metadata.items()}
    plain = {"model_type": "t", "tie_word_embeddings": True, "fixed": 3}
    assert config_of(ROW, named, vocabulary=None, tied=True) == {**plain, **config}
    assert config_of(ROW, named, vocabulary=9, tied=False) == {
        **plain, "tie_word_embeddings": False, **config, "vocab_size": 9
    }  # fmt: skip
    assert _rotated_share("other", named) is None


@pytest.mark.parametrize(
    ("weight", "places"),
    [
        ("embed.weight", [("token_embd.weight",)]), ("layers.{}.q.bias", [("blk.{}.attn_q.bias",)]),
        ("layers.{}.qkv.weight", [("blk.{}.attn_qkv.weight",), ("blk.{}.attn_q.weight", "blk.{}.attn_k.weight")]),
        ("layers.{}.norm.weight", [("blk.{}.special",)]), ("layers.{}.embed.weight", []), ("q.weight", []),
    ],
)  # fmt: skip
def test_a_weight_is_looked_for_in_each_of_its_places(weight, places):
    assert list(ROW.places(weight)) == places


@pytest.mark.parametrize(
    ("variant", "holds"),
    [
        ({}, True), ({"tensor": "t"}, True), ({"tensor": "no"}, False), ({"lacks": "t"}, False),
        ({"lacks": "no"}, True),
        ({"above": {"n": 2}}, True), ({"above": {"n": 3}}, False), ({"above": {"m": 0}}, False),
        ({"above": {"n": 2}, "tensor": "no"}, False), ({"tensor": "t", "lacks": "t"}, False),
    ],
)  # fmt: skip
def test_a_variant_holds_by_tensors_and_by_numbers(variant, holds):
    assert _holds(variant, "a", {"a.n": 3}, ["t"]) is holds
