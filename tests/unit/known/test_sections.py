"""One row out of a file: the same row that parsing all of the file gives."""

import tomllib
from pathlib import Path

import pytest

import inferometer.formats.huggingface
import inferometer.known
from inferometer.core.errors import CatalogError, UnknownNameError
from inferometer.known.files import excerpt, row_named, rows_of, rows_with, tables
from inferometer.known.hardware import device
from inferometer.known.places import instances, instances_with

KINDS = ("devices", "models", "links", "instances", "grids", "pue", "levels", "dtypes")
DATA = Path(inferometer.known.__file__).parent / "data"
FAMILIES = Path(inferometer.formats.huggingface.__file__).parent / "families"

TEXT = """# A file.
[sources.one]
title = "One"
[sources.two]
title = "Two"

[devices.box]
aliases = ["b"]
source = "one"
[devices.box.peaks]
f32 = "1 TFLOP/s"
[[devices.box.memory]]
level = "hbm"
[[devices.box.memory]]
level = "l2"

[devices."crate-1.5"]
source = "two"
"""


def test_the_tables_of_a_text_have_the_first_two_keys_of_their_headers():
    assert [keys for keys, _ in tables(TEXT)] == [
        ("sources", "one"), ("sources", "two"), ("devices", "box"), ("devices", "box"), ("devices", "box"),
        ("devices", "box"), ("devices", "crate-1.5"),
    ]  # fmt: skip
    assert [keys for keys, _ in tables('[llama]\nx = 1\n["a.b"]\n')] == [("llama", ""), ("a.b", "")]
    assert tables("") == []


@pytest.mark.parametrize("word", ["box", '"b"', "hbm"])
def test_an_excerpt_has_every_table_of_the_row_and_what_it_cites(word):
    assert tomllib.loads(excerpt(TEXT, "devices", word)) == {
        "sources": {"one": {"title": "One"}},
        "devices": {"box": tomllib.loads(TEXT)["devices"]["box"]},
    }


def test_what_no_row_says_gives_nothing():
    assert excerpt(TEXT, "devices", "nowhere") == ""
    assert excerpt(TEXT, "links", "box") == ""


@pytest.mark.parametrize(
    "file", [*sorted(DATA.rglob("*.toml")), *sorted(FAMILIES.glob("*.toml"))], ids=lambda f: f.stem
)
def test_our_files_are_written_so_that_tables_can_be_told_apart(file):
    text = file.read_text(encoding="utf-8")
    whole = tomllib.loads(text)
    apart: dict[str, str] = {}
    for (first, _), part in tables(text):
        apart[first] = apart.get(first, "") + part
    assert {name: tomllib.loads(part)[name] for name, part in apart.items()} == whole


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_by_its_name_or_alias_is_the_row_of_the_whole_catalog(kind):
    for name, row in rows_of(kind).by_name.items():
        for asked in (name, *row.names("aliases")):
            found = row_named(kind, asked)
            assert (found.name, found.place, found.fields) == (name, row.place, row.fields)
            assert all(row.sources[key] == found.sources[key] for key in found.sources)
            assert _cited(row.fields) <= found.sources.keys()


def _cited(fields):
    """Every source that is named anywhere in a row."""
    own = {fields["source"]} if "source" in fields else set()
    inner = [part for value in fields.values() for part in (value if isinstance(value, list) else [value])]
    return own.union(*(_cited(part) for part in inner if isinstance(part, dict)))


def test_the_instances_with_a_device_are_those_of_the_whole_catalog():
    every = instances().values()
    for name in {instance.device for instance in every}:
        assert instances_with(name) == tuple(instance for instance in every if instance.device == name)
    assert instances_with("no-such-device") == ()


def test_a_users_row_is_found_by_what_it_says(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text(TEXT.replace('aliases = ["b"]', 'aliases = ["b"]\ntitle = "Box"'), "utf-8")
    monkeypatch.setenv("INFEROMETER_CATALOG", str(tmp_path))
    assert row_named("devices", "b").name == "box"
    assert {"box"} <= rows_with("devices", "box").by_name.keys()


def test_any_toml_will_do_for_a_users_file(tmp_path, monkeypatch):
    """Brackets at the start of lines that are no headers, and headers that are not at the start of one."""
    (tmp_path / "mine.toml").write_text(
        'devices = { "odd-box" = { title = """\n[devices.not-this]\n""", aliases = [\n"odd",\n] } }\n', "utf-8"
    )
    monkeypatch.setenv("INFEROMETER_CATALOG", str(tmp_path))
    assert row_named("devices", "odd").fields["title"] == "[devices.not-this]\n"
    assert row_named("devices", "not-this") is None


def test_a_users_file_that_is_no_toml_is_named(tmp_path, monkeypatch):
    (tmp_path / "broken.toml").write_text("[devices.nvidia-h200\n", "utf-8")
    monkeypatch.setenv("INFEROMETER_CATALOG", str(tmp_path))
    with pytest.raises(CatalogError, match=r"broken\.toml: is not valid TOML"):
        row_named("devices", "nvidia-h200")


def test_a_device_of_a_users_folder_is_gone_with_the_folder(tmp_path, monkeypatch):
    text = (DATA / "devices" / "nvidia.toml").read_text("utf-8")
    for end in "].":
        text = text.replace(f"devices.nvidia-h200{end}", f"devices.my-h200{end}")
    (tmp_path / "mine.toml").write_text(excerpt(text, "devices", "my-h200").replace("aliases", "# aliases"), "utf-8")
    monkeypatch.setenv("INFEROMETER_CATALOG", str(tmp_path))
    assert device("my-h200").peaks == device("nvidia-h200").peaks
    monkeypatch.delenv("INFEROMETER_CATALOG")
    with pytest.raises(UnknownNameError, match="my-h200"):
        device("my-h200")
