import gzip

import pytest

from inferometer.core.errors import FormatError
from inferometer.engines.results.detect import load_document
from unit.engines.results.sources import written


def loaded(folder, data, **asked):
    path = folder / "file"
    path.write_bytes(data)
    return load_document(path, **asked)


def test_one_value_is_both_the_json_and_the_only_record(tmp_path):
    document = loaded(tmp_path, b'\n {"a": 1}')
    assert document.json == document.keys == {"a": 1}
    assert document.records == ({"a": 1},)


def test_a_value_a_line_gives_records_and_no_json(tmp_path):
    document = loaded(tmp_path, b'{"a": 1}\n\n{"a": 2}\n')
    assert document.json is None
    assert document.records == ({"a": 1}, {"a": 2})


@pytest.mark.parametrize(
    "data",
    [
        '{"a": "é"}'.encode(),
        b"\xef\xbb\xbf" + '{"a": "é"}'.encode(),
        '{"a": "é"}'.encode("utf-16"),
        gzip.compress('{"a": "é"}'.encode(), mtime=0),
    ],
)
def test_the_encoding_and_packing_do_not_matter(tmp_path, data):
    assert loaded(tmp_path, data).json == {"a": "é"}


def test_nan_is_read_so_that_the_error_can_name_it(tmp_path):
    assert loaded(tmp_path, b'{"a": NaN, "b": [Infinity]}').json["b"] == [float("inf")]


@pytest.mark.parametrize("data", [b'{"a": [1, 2', b"[1, 2", b'{"a"', b"{", b'{"a": 1}}', b'{"a": 1}\n{"b"', b"[NaN"])
def test_json_that_is_cut_has_a_flaw(tmp_path, data):
    document = loaded(tmp_path, data)
    assert document.flaw
    assert document.records == ()


def test_text_is_no_json_and_has_no_flaw(tmp_path):
    document = loaded(tmp_path, b"layerName;execStatus")
    assert (document.json, document.flaw, document.text) == (None, None, "layerName;execStatus")


def test_depth_without_end_is_a_flaw(tmp_path):
    assert "deeply" in loaded(tmp_path, b"[" * 200_000).flaw


def test_a_file_over_the_limit_is_refused_before_it_is_parsed(tmp_path):
    with pytest.raises(FormatError, match="larger than 100 B"):
        loaded(tmp_path, b" " * 101, limit=100)
    with pytest.raises(FormatError, match="larger than 1 kB"):
        loaded(tmp_path, gzip.compress(b" " * 1_000_000), limit=1000)


def test_a_damaged_archive_is_an_error_that_names_it(tmp_path):
    packed = gzip.compress(b'{"a": 1}' * 1000, mtime=0)
    for broken in (packed[:-20], packed[:12], packed[:15] + b"\x00\xff" + packed[17:]):
        with pytest.raises(FormatError, match="cannot be read"):
            loaded(tmp_path, broken)


def test_what_is_not_there_and_what_is_a_folder(tmp_path):
    with pytest.raises(FormatError, match="There is no file"):
        load_document(tmp_path / "missing.json")
    with pytest.raises(FormatError, match="is a folder"):
        load_document(tmp_path)


def test_a_path_with_a_null_byte_is_an_error(tmp_path):
    with pytest.raises(FormatError):
        load_document(written(tmp_path, "x").with_name("a\0b"))
