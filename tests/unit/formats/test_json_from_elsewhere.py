"""JSON that others wrote is parsed in one place: a nest too deep for Python's stack is an error of the text."""

import ast
import json
import re
from pathlib import Path

import pytest

import inferometer
from inferometer.core.errors import FormatError
from inferometer.core.json_text import parse_json
from inferometer.formats.resolve import read

SOURCE = Path(inferometer.__file__).parent
DEEP = "[" * 100_000


def test_what_it_says_is_what_json_says():
    for text in ('{"a": [1, 2.5, null]}', b"[]", '"\\u00e4"'):
        assert parse_json(text) == json.loads(text)
    for text in ("", "{", DEEP, DEEP.encode()):
        with pytest.raises(ValueError, match=r"Expecting|nested too deeply"):
            parse_json(text)


def test_no_reader_and_no_engine_parses_it_by_itself():
    own = {"formats/networks/named.py"}  # its index comes with us
    found = [
        f"{path.relative_to(SOURCE).as_posix()}:{node.lineno}"
        for folder in ("formats", "engines")
        for path in (SOURCE / folder).rglob("*.py")
        if path.relative_to(SOURCE).as_posix() not in own
        if re.search(r"\bloads\b", text := path.read_text(encoding="utf-8"))  # to parse all would take long
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr == "loads" and getattr(node.value, "id", None) == "json"
    ]
    assert found == []


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "genai_config.json"])
def test_a_folder_with_such_a_file_is_refused_and_not_a_crash(tmp_path, name):
    (tmp_path / name).write_text(DEEP, encoding="utf-8")
    with pytest.raises(FormatError):
        read(str(tmp_path))
