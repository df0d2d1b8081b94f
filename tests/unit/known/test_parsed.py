"""What was parsed is kept, and never outlives the text that it was parsed from."""

import json

from inferometer.known import devices, files
from inferometer.known.files import parsed_files
from inferometer.understand.view import records

ROW = '[devices.one]\ntitle = "One"\nyear = 2024\n'


def test_a_file_is_parsed_again_only_when_it_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_WORTH_IT", 0)
    file = tmp_path / "rows.toml"
    file.write_text(ROW)
    first = parsed_files("devices", [file], tmp_path)
    assert first == [(file, {"devices": {"one": {"title": "One", "year": 2024}}})]
    monkeypatch.setattr(files, "parse_text", None)
    assert parsed_files("devices", [file], tmp_path) == first
    monkeypatch.undo()
    monkeypatch.setattr(files, "_WORTH_IT", 0)
    file.write_text(ROW.replace("2024", "2025"))  # of the same length, perhaps within the same tick of the clock
    assert parsed_files("devices", [file], tmp_path)[0][1]["devices"]["one"]["year"] == 2025


def test_what_cannot_be_kept_or_read_is_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_WORTH_IT", 0)
    file = tmp_path / "rows.toml"
    file.write_text(ROW + "day = 2024-11-16\n")
    kept = tmp_path / "catalog" / "devices.json"
    assert parsed_files("devices", [file], tmp_path)[0][1]["devices"]["one"]["day"].year == 2024
    assert not kept.exists()
    file.write_text(ROW)
    first = parsed_files("devices", [file], tmp_path)
    for damaged in ("", "[1]", json.dumps({"mark": json.loads(kept.read_text())["mark"]})):
        kept.write_text(damaged)
        assert parsed_files("devices", [file], tmp_path) == first
    assert parsed_files("devices", [file], file) == first  # no folder


BOARD = """
[sources.mine]
title = "My board"
date = "2026-01"
[devices.my-board]
title = "My board"
vendor = "Me"
unit = "cpu"
source = "mine"
clock = "1 GHz"
"""


def test_the_list_of_devices_is_made_again_only_when_the_catalog_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path / "cache"))
    first = records.device_records()
    assert first == [records.device_record(device) for device in devices().values()]
    with monkeypatch.context() as without:
        without.setattr(records, "devices", None)
        assert records.device_records() == first
    monkeypatch.setenv("INFEROMETER_CATALOG", str(tmp_path))
    for stated, clock_hz in (("1 GHz", 1e9), ("2 GHz", 2e9)):
        (tmp_path / "mine.toml").write_text(BOARD.replace("1 GHz", stated))
        files._READ.clear()
        files.all_of.cache_clear()
        assert records.device_records()[-1]["clock"] == clock_hz


def test_a_list_is_made_where_nothing_can_be_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path / "file"))
    assert len(records.device_records()) == len(devices())
