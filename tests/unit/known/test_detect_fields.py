"""Numbers and lists as systems write them; text that does not fit is None."""

import pytest

from inferometer.known.machine.detect.fields import (
    blocks,
    cpu_list,
    decoded,
    kib,
    number,
    pairs,
    rows,
    scaled,
    size_bytes,
    stripped,
    whole,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42\n", 42),
        ("-1", -1),
        ("0xd0c", 0xD0C),
        ("16162516 kB", 16162516),
        ("max", None),
        ("", None),
        (None, None),
        ("1.5", None),
        ("9" * 5000, None),
    ],
)
def test_a_whole_number_at_the_start_of_a_text(text, value):
    assert whole(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("2.5\n", 2.5), ("nan", None), ("inf", None), ("1_000", None), ("٣", None), ("", None), (None, None)],
)
def test_numbers_are_finite_and_plain(text, value):
    assert number(text) == value


def test_kernel_units_become_ours():
    assert scaled("2400000", 1e3) == 2.4e9
    assert kib("1024 kB") == 1024 * 1024
    assert kib("-5 kB") is None


@pytest.mark.parametrize(
    ("text", "size"), [("48K", 49152), ("2048K", 2 * 2**20), ("16 GB", 16 * 2**30), ("512", 512), ("big", None)]
)
def test_sizes_of_memories_have_binary_prefixes(text, size):
    assert size_bytes(text) == size


def test_cpu_lists():
    assert cpu_list("0-3,8\n") == (0, 1, 2, 3, 8)
    assert cpu_list("5") == (5,)
    assert cpu_list("3-1") == ()
    assert cpu_list("0-99999999999") == ()  # a range beyond any machine would fill the memory
    assert cpu_list("a-b,,-") == ()


def test_the_nul_that_ends_device_tree_strings_is_cut():
    assert stripped("Raspberry Pi 5 Model B Rev 1.0\0") == "Raspberry Pi 5 Model B Rev 1.0"
    assert stripped("\0\n") is None


def test_the_first_of_a_repeated_key_counts():
    assert pairs("a: 1\na: 2\nno mark\n: 3") == {"a": "1"}


def test_paragraphs_become_blocks():
    assert blocks("processor: 0\nx: 1\n\nprocessor: 1\n\n\n") == [{"processor": "0", "x": "1"}, {"processor": "1"}]


def test_json_that_is_not_is_none():
    assert decoded('{"a": 1}') == {"a": 1}
    assert decoded("{") is None
    assert decoded("[" * 100_000) is None
    assert rows({"a": 1}) == [{"a": 1}]
    assert rows([{"a": 1}, 2]) == [{"a": 1}]
    assert rows("text") == []
