"""What was parsed is kept, and never outlives the text that it was parsed from."""

import json

from inferometer.known import files
from inferometer.known.files import parsed_files

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
