"""A row that does not hold is told in one sentence with its file and key."""

from typing import Literal

import pytest

from inferometer.core.device import Sourced
from inferometer.core.errors import CatalogError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.known import device, devices, hardware, places, reference, zoo
from inferometer.known.files import of_catalog
from inferometer.known.hardware import device_from_row
from inferometer.known.load import read_rows

SOURCES = '[sources.sheet]\ntitle = "A datasheet"\nurl = "https://example.org/sheet"\ndate = "2024-05"\n'
GOOD = """
[devices.box]
title = "Box"
vendor = "Maker"
unit = "gpu"
aliases = ["b"]
source = "sheet"
peaks = { bf16 = "10 TFLOP/s", i8 = { value = "20 TOP/s", origin = "measured", date = "2025", note = "hot" } }
power = { tdp = "10 W" }
[[devices.box.memory]]
level = "dram"
capacity = "8 GiB"
bandwidth = "100 GB/s"
"""


def rows(folder, text):
    file = folder / "rows.toml"
    file.write_text(text, encoding="utf-8")
    return read_rows([file], "devices")


def box(folder, text):
    return device_from_row(rows(folder, text).by_name["box"])


def test_a_number_takes_its_rows_source_unless_it_says_otherwise(tmp_path):
    made = box(tmp_path, SOURCES + GOOD)
    assert made.peaks["bf16"].value == 10e12
    assert made.peaks["bf16"].source == "A datasheet, https://example.org/sheet"
    assert (made.peaks["bf16"].origin, made.peaks["bf16"].date) == ("datasheet", "2024-05")
    assert (made.peaks["i8"].origin, made.peaks["i8"].date, made.peaks["i8"].note) == ("measured", "2025", "hot")
    assert made.memory.capacity_bytes.value == 8 * 2**30


def test_what_a_row_does_not_say_is_unknown(tmp_path):
    made = box(tmp_path, SOURCES + GOOD)
    assert made.price_usd is None
    assert made.idle_w is None
    assert made.host_link is None


@pytest.mark.parametrize(
    ("old", "new", "place", "why"),
    [
        ('"10 TFLOP/s"', '"10 TFLOPs"', "devices.box.peaks.bf16", "ambiguous"),
        ('"10 TFLOP/s"', '"10"', "devices.box.peaks.bf16", "has no unit"),
        ('"10 TFLOP/s"', "10", "devices.box.peaks.bf16", "must be text with a unit"),
        ('"10 TFLOP/s"', '"10 GB"', "devices.box.peaks.bf16", "not a number of FLOP/s"),
        ('"10 TFLOP/s"', '"-10 TFLOP/s"', "devices.box.peaks.bf16", "out of range"),
        ("bf16 =", "bf17 =", "devices.box.peaks.bf17", "Did you mean bf16"),
        ("vendor", "vendro", "devices.box.vendro", "Did you mean vendor"),
        ('vendor = "Maker"', "", "devices.box", "vendor is missing"),
        ('"gpu"', '"gpus"', "devices.box.unit", "Known: cpu, gpu, npu, tpu"),
        ('unit = "gpu"', "unit = 3", "devices.box.unit", "must be text"),
        ('"measured"', '"rumour"', "devices.box.peaks.i8", "Known origins"),
        ("note =", "nota =", "devices.box.peaks.i8.nota", "not a known key"),
        ('source = "sheet"', 'source = "sheat"', "devices.box.peaks.bf16", "Did you mean sheet"),
        ('source = "sheet"', "", "devices.box.peaks.bf16", "has no source"),
        ('date = "2024-05"', "", "devices.box.peaks.bf16", "has no date"),
        ('aliases = ["b"]', 'aliases = ["box"]', "devices.box.aliases", "already the name of box"),
        ('aliases = ["b"]', "aliases = 3", "devices.box.aliases", "list of names"),
        ('tdp = "10 W"', 'tpd = "10 W"', "devices.box.power.tpd", "Did you mean tdp"),
        ("capacity =", "size =", "devices.box.memory[0].size", "not a known key"),
        ("[[devices.box.memory]]", "[devices.box.memory]", "devices.box.memory", "list of tables"),
        ('power = { tdp = "10 W" }', 'links = { host = "pcie-9" }', "devices.box.links.host", "not in the catalog"),
        ('power = { tdp = "10 W" }', 'energy = { flop = "1 pJ" }', "devices.box.energy", "one of flop and byte"),
        ('power = { tdp = "10 W" }', 'energy = { byte = "1 pJ" }', "devices.box.energy", "one of flop and byte"),
        ('title = "A datasheet"', "", "sources.sheet", "with a title"),
        ("url =", "link =", "sources.sheet.link", "not a known key"),
    ],
)
def test_a_malformed_row_names_the_file_the_key_and_the_remedy(tmp_path, old, new, place, why):
    text = SOURCES + GOOD
    assert old in text
    with pytest.raises(CatalogError) as caught:
        box(tmp_path, text.replace(old, new, 1))
    assert str(caught.value).startswith(f"rows.toml: {place}: ")
    assert why in str(caught.value)


def test_text_that_is_not_toml_names_the_file_and_the_line(tmp_path):
    with pytest.raises(CatalogError, match=r"rows\.toml: is not valid TOML: .*line 1"):
        rows(tmp_path, "[devices.box\n")


def test_bytes_that_are_not_text_are_not_toml(tmp_path):
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CatalogError, match="not valid TOML"):
        read_rows([tmp_path / "x.toml"], "devices")


@pytest.mark.parametrize("rows_are", ["devices = 3", 'devices = "box"', "devices = []", "devices = { box = 3 }"])
def test_rows_are_tables(tmp_path, rows_are):
    with pytest.raises(CatalogError, match=r"rows\.toml: devices.*must be a table"):
        rows(tmp_path, rows_are)


def test_two_rows_cannot_share_an_alias(tmp_path):
    second = GOOD.replace("devices.box", "devices.crate")
    with pytest.raises(CatalogError, match="already the name of box"):
        rows(tmp_path, SOURCES + GOOD + second)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(CatalogError, match="cannot be read"):
        device(str(tmp_path / "nothing.toml"))


def test_a_device_may_come_from_a_file(tmp_path):
    file = tmp_path / "box.toml"
    file.write_text(SOURCES + GOOD)
    assert device(str(file)).name == "box"
    file.write_text(SOURCES + GOOD + GOOD.replace("devices.box", "devices.crate").replace('["b"]', "[]"))
    with pytest.raises(CatalogError, match="holds 2 devices"):
        device(str(file))


def test_a_users_folder_adds_and_replaces_rows(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text(SOURCES + GOOD)
    monkeypatch.setenv("INFEROMETER_CATALOG", str(tmp_path))
    assert device("box").title == "Box"
    assert device("b").name == "box"
    assert "nvidia-h200" in devices()


def test_what_is_made_of_rows_is_kept_for_the_folders_that_the_user_names(tmp_path, monkeypatch):
    made = []

    @of_catalog
    def titles(*names):
        """How they are called."""
        made.append(names)
        return [device(name).title for name in names]

    assert titles("nvidia-h200") is titles("nvidia-h200")
    assert titles.__doc__ == "How they are called."
    (tmp_path / "mine.toml").write_text(SOURCES + GOOD.replace("devices.box", "devices.nvidia-h200"))
    monkeypatch.setenv("INFEROMETER_CATALOG", str(tmp_path))
    assert titles("nvidia-h200") == ["Box"]
    monkeypatch.delenv("INFEROMETER_CATALOG")
    assert titles("nvidia-h200") != ["Box"]
    assert made == [("nvidia-h200",)] * 2
    titles.cache_clear()
    titles("nvidia-h200")
    assert len(made) == 3


def test_a_users_folder_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setenv("INFEROMETER_CATALOG", "/nowhere/at/all")
    with pytest.raises(CatalogError, match="is not a folder"):
        devices()


def test_names_are_matched_exactly_and_never_by_a_part():
    with pytest.raises(UnknownNameError, match="Did you mean"):
        device("nvidia-h2")
    with pytest.raises(UnknownNameError, match=r"Did you mean .*nvidia-h200"):
        device("nvidia-h2000")


@pytest.mark.parametrize(
    ("named", "every", "kind"),
    [
        (device, devices, "device"), (hardware.link, hardware.links, "link"), (zoo.model, zoo.models, "model"),
        (places.instance, places.instances, "instance"), (places.grid, places.grids, "electricity grid"),
        (places.pue, places.pues, "PUE row"), (reference.memory_level, reference.memory_levels, "memory level"),
    ],
)  # fmt: skip
def test_each_list_gives_its_rows_by_name_and_says_what_it_has_none_of(named, every, kind):
    first, last = [*every()][:: len(every()) - 1]
    assert (named(first), named(last)) == (every()[first], every()[last])
    with pytest.raises(UnknownNameError, match=rf"There is no {kind} named 'zzzzzz'\."):
        named("zzzzzz")


@frozen
class _Part:
    """One field of each kind that a row is read into."""

    name: str
    title: str
    share: Sourced
    delay_s: Sourced
    rate_bytes_per_s: Sourced | None = None
    above_bytes: float = 0.0
    count: int | None = None
    size: int = 16
    way: Literal["one", "other"] = "one"
    early: bool = True
    parts: tuple[str, ...] = ()
    notes: str | None = None


def _part(tmp_path, text, **given):
    file = tmp_path / "parts.toml"
    file.write_text(f'[sources.s]\ntitle = "A page"\ndate = "2026"\n[parts.x]\nsource = "s"\n{text}')
    return read_rows([file], "parts").by_name["x"].value(_Part, **given)


def test_a_row_becomes_a_value_by_the_names_and_units_of_its_fields(tmp_path):
    least = 'title = "T"\nshare = 0.5\ndelay = "2 ms"\n'
    bare = _part(tmp_path, least)
    assert (bare.name, bare.share.value, bare.delay_s.value) == ("x", 0.5, pytest.approx(2e-3))
    assert bare == _Part(name="x", title="T", share=bare.share, delay_s=bare.delay_s)
    whole = _part(
        tmp_path,
        least + 'rate = "3 GB/s"\nabove = "8 GB"\ncount = 4\nsize = 0\nway = "other"\nearly = "no"\nparts = ["a"]\n',
        notes="given",
    )
    assert (whole.rate_bytes_per_s.value, whole.above_bytes, whole.count, whole.size) == (3e9, 8e9, 4, 0)
    assert (whole.way, whole.early, whole.parts, whole.notes) == ("other", False, ("a",), "given")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("share = 0.5\n", ""), "parts.x: share is missing."),
        (('delay = "2 ms"', 'delay = "2 GB"'), "parts.x.delay"),
        (('title = "T"\n', ""), "parts.x: title is missing."),
        (('"T"', '"T"\nway = "third"'), "parts.x.way: is 'third'. Known: one, other."),
        (('"T"', '"T"\nearly = "soon"'), "parts.x.early: is 'soon'. Known: yes, no."),
        (('"T"', '"T"\ndelay_s = "2 ms"'), "parts.x.delay_s: is not a known key. Did you mean delay?"),
        (('"T"', '"T"\nname = "y"'), "parts.x.name: is not a known key."),
    ],
)  # fmt: skip
def test_a_row_that_does_not_fit_its_value_says_which_key(tmp_path, change, words):
    text = 'title = "T"\nshare = 0.5\ndelay = "2 ms"\n'.replace(*change)
    with pytest.raises(CatalogError) as caught:
        _part(tmp_path, text)
    assert words in str(caught.value)
