"""What is written as a flatbuffer is read back by the reader, and lies where the format says."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.formats.flatbuffer import Buffer
from inferometer.formats.tflite.write.network import (
    Blob,
    FlatNumbers,
    FlatText,
    Scalar,
    TableNode,
    Tables,
    placed,
    write,
)


def written(root):
    file = io.BytesIO()
    total = write(file, root, b"TEST")
    assert total == len(file.getvalue())
    return file.getvalue()


def read(root):
    return Buffer(written(root), Path("test")).root()


def test_the_identifier_stands_after_the_way_to_the_root():
    raw = written(TableNode({0: Scalar("i", 7)}))
    assert raw[4:8] == b"TEST"
    (root,) = struct.unpack_from("<I", raw)
    (back,) = struct.unpack_from("<i", raw, root)
    assert struct.unpack_from("<3H", raw, root - back) == (6, 8, 4)  # bytes of vtable and table, and the field's place


@given(
    st.dictionaries(
        st.integers(0, 12),
        st.one_of(
            st.tuples(st.just("i"), st.integers(-(2**31), 2**31 - 1)),
            st.tuples(st.just("b"), st.integers(-128, 127)),
            st.tuples(st.just("I"), st.integers(0, 2**32 - 1)),
            st.tuples(st.just("?"), st.booleans()),
        ),
        max_size=8,
    )
)
def test_numbers_come_back_and_the_others_have_their_default(fields):
    table = read(TableNode({number: Scalar(*field) for number, field in fields.items()}))
    for number in range(13):
        letter, value = fields.get(number, ("i", None))
        assert table.number(number, letter, default=None) == value


@given(st.text(max_size=40), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20), st.binary(max_size=50))
def test_texts_vectors_and_bytes_come_back(text, values, raw):
    root = TableNode({0: FlatText(text), 1: FlatNumbers("i", tuple(values)), 2: Blob(len(raw), lambda: [raw])})
    table = read(root)
    assert (table.text(0, "text") or "") == text
    assert table.numbers(1, "i", "numbers", most=100) == tuple(values)
    start, count = table.span(2, 1, "bytes")
    assert written(root)[start : start + count] == raw
    assert start % 16 == 0


def test_tables_in_tables_keep_their_order():
    inner = tuple(TableNode({1: Scalar("i", number), 0: FlatText(f"name {number}")}) for number in range(5))
    table = read(TableNode({3: Tables(inner), 0: Scalar("b", 1)}))
    found = [(each.number(1, "i"), each.text(0, "name")) for each in table.tables(3, "entry", most=10)]
    assert found == [(number, f"name {number}") for number in range(5)]


def test_every_number_lies_at_a_multiple_of_its_size():
    inner = Tables((TableNode({0: Scalar("?", 1)}),))
    root = TableNode({0: Scalar("b", 1), 1: FlatText("odd"), 2: Scalar("i", 2), 3: inner})
    nodes, _ = placed(root)
    assert all(start % 4 == 0 for _, start in nodes)


def test_bytes_are_made_only_when_they_are_written():
    made = []
    blob = Blob(8, lambda: made.append(1) or [memoryview(np.arange(2, dtype="<f4"))])
    root = TableNode({0: blob})
    _, total = placed(root)
    assert made == []
    assert len(written(root)) == total
    assert made == [1]


def test_a_field_that_does_not_fit_is_no_silent_wrap():
    with pytest.raises(struct.error):
        written(TableNode({0: Scalar("b", 200)}))
