import csv
import io
import json

import pytest

from inferometer.understand.view.render import FORMATS, render
from inferometer.understand.view.table import Column, ReportTable, columns, share_text

TABLE = ReportTable(
    title="Things",
    columns=(
        Column(key="name", heading="thing"),
        Column(key="memory", heading="memory", label="memory_bytes", unit="B"),
        Column(key="count", heading="count", exact=True),
        Column(key="tags", heading="tags"),
    ),
    rows=(
        {"name": "a|b", "memory": 24e9, "count": 1_235_814_400, "tags": ["x", "y"]},
        {"name": "[bold]c[/bold]", "memory": None, "count": None, "tags": []},
    ),
)


def test_machines_get_raw_numbers_with_the_unit_in_the_key():
    rows = json.loads(render(TABLE, "json"))
    assert rows[0] == {"name": "a|b", "memory_bytes": 24e9, "count": 1_235_814_400, "tags": ["x", "y"]}
    assert rows[1]["memory_bytes"] is None


def test_no_cell_of_a_file_is_a_formula_for_a_spreadsheet():
    table = ReportTable(columns=columns("name", "time_s"), rows=({"name": "=1+1", "time_s": -1.0},))
    assert render(table, "csv").splitlines()[1] == "'=1+1,-1.0"


@pytest.mark.parametrize("form", ["table", "csv", "md"])
def test_no_cell_holds_what_a_terminal_obeys_or_what_turns_text_round(form):
    hostile = "\x1b[2J\x1b]0;mine\x07\x9b31mnet\u202e"
    written = render(ReportTable(columns=columns("name"), rows=({"name": hostile},)), form)
    assert "net" in written
    assert not set(written) & set("\x1b\x07\x9b\u202e")


def test_a_control_character_hides_no_formula():
    table = ReportTable(columns=columns("name"), rows=({"name": "\x00=1+1"},))
    assert render(table, "csv").splitlines()[1] == "'=1+1"


def test_csv_reads_back():
    rows = list(csv.reader(io.StringIO(render(TABLE, "csv"))))
    assert rows == [["name", "memory_bytes", "count", "tags"], ["a|b", "24000000000.0", "1235814400", "x y"],
                    ["[bold]c[/bold]", "", "", ""]]  # fmt: skip


def test_people_get_prefixes_and_a_dash_for_the_unknown():
    text = render(TABLE, "table")
    assert "24 GB" in text
    assert "1,235,814,400" in text
    assert "–" in text


def test_markup_in_data_stays_text():
    assert "[bold]c[/bold]" in render(TABLE, "table")


def test_markdown_escapes_what_would_break_the_row():
    lines = render(TABLE, "md").splitlines()
    assert lines[1] == "| --- | ---: | ---: | --- |"
    assert lines[2].startswith("| a\\|b |")


@pytest.mark.parametrize("form", FORMATS)
def test_an_empty_table_has_every_form(form):
    assert isinstance(render(ReportTable(columns=TABLE.columns, rows=()), form), str)


@pytest.mark.parametrize(("share", "text"), [(0.123, "12.3 %"), (9.99, "999.0 %"), (831003.9, "831,004 ×")])
def test_many_times_the_whole_is_no_percentage(share, text):
    assert share_text(share) == text
