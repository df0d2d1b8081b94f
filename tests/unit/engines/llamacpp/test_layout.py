"""Where the fields of llama.cpp's structures lie, by the defaults of real releases."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.engines.llamacpp.library import context_fields, model_fields, tensor_fields

UNSET, OFF = 0xFFFFFFFF, 0xBF800000  # −1, and −1.0f


def packed(words):
    return struct.pack(f"<{len(words)}I", *words) + bytes(512 - 4 * len(words))


# As xllamacpp 2026.10.11549 fills them, word by word.
CONTEXT = [
    512, 2048, 512, 1, 0, 0, 1, 4, 4, 0, UNSET, UNSET, UNSET, UNSET, 0, 0, OFF, OFF, OFF, OFF, 0, OFF,
    0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0x1010100, 1,
]  # fmt: skip
# llama.h of September 2025: threads come earlier, nothing between them and the rope's kind.
EARLIER = [
    512, 2048, 512, 1, 4, 4, UNSET, UNSET, UNSET, UNSET, 0, 0, OFF, 0x3F800000, 0, 0, 0, OFF, 0, 0, 0, 0, 1, 1,
    0, 0, 0, 0,
]  # fmt: skip
MODEL = [0, 0, 0, 0, UNSET, 1, UNSET, 1]


def test_the_fields_of_a_release_are_found():
    fields = context_fields(packed(CONTEXT))
    assert (fields.threads, fields.flash, fields.callback, fields.type_k) == (28, 52, 88, 104)


def test_the_fields_of_an_earlier_release_are_found_elsewhere():
    fields = context_fields(packed(EARLIER))
    assert (fields.threads, fields.flash, fields.callback, fields.type_k) == (16, 36, 72, 88)


def test_a_release_without_a_kind_of_flash_attention_has_no_such_field():
    words = [*EARLIER[:9], *EARLIER[10:18], 0, *EARLIER[18:]]
    fields = context_fields(packed(words))
    assert fields.threads == 16
    assert fields.flash is None


def test_a_callback_that_is_not_where_it_should_be_is_not_used():
    words = list(CONTEXT)
    words[26] = 8  # the caches are kept in something else
    fields = context_fields(packed(words))
    assert fields.callback is None
    assert fields.type_k is None


@pytest.mark.parametrize("place", [0, 1, 2, 3, 7])
def test_a_structure_that_begins_otherwise_is_not_known(place):
    words = list(CONTEXT)
    words[place] = 77
    assert context_fields(packed(words)) is None


def test_the_model_has_its_devices_first_and_layers_after_them():
    fields = model_fields(packed(MODEL))
    assert (fields.devices, fields.layers) == (0, 16)
    assert model_fields(packed([1, *MODEL[1:]])) is None
    assert model_fields(packed([*MODEL[:5], 7])) is None


def test_a_tensors_name_says_whether_it_has_the_known_shape():
    fields = tensor_fields(name_at=256)
    assert (fields.sources, fields.count, fields.name, fields.op) == (152, 10, 256, 80)
    assert tensor_fields(name_at=264) is None
    assert tensor_fields(name_at=264, sources=11) is not None


@given(st.binary(min_size=512, max_size=512))
def test_any_bytes_give_fields_within_them_or_none(raw):
    context_fields(raw)
    model_fields(raw)
