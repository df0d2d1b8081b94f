import pytest

from inferometer.report import terminal
from inferometer.report.table import Column, Table
from inferometer.report.terminal import draw_fields, draw_table, draw_verdicts

TABLE = Table(
    columns=(
        Column(key="name", heading="device"),
        Column(key="words", heading="words"),
        Column(key="memory", heading="memory", unit="B"),
        Column(key="power", heading="power", unit="W"),
    ),
    rows=(
        {"name": "a-rather-long-device-name", "words": "many words " * 6, "memory": 24e9, "power": 700},
        {"name": "short", "words": "few", "memory": 8e9, "power": None},
    ),
)


@pytest.fixture
def width(monkeypatch):
    def narrow(columns):
        monkeypatch.setattr(terminal, "_width", lambda: columns)

    return narrow


@pytest.mark.parametrize("columns", [60, 80, 120, 300])
def test_no_line_is_wider_than_the_terminal(width, columns):
    width(columns)
    assert max(map(len, draw_table(TABLE).splitlines())) <= columns


def test_numbers_stand_right_and_text_left(width):
    width(120)
    rows = draw_table(TABLE).splitlines()
    assert rows[2].startswith("a-rather-long-device-name  many")
    assert rows[2].endswith("24 GB  700 W")
    assert rows[3].endswith("8 GB      –")


def test_text_wraps_before_a_column_goes_and_names_stay_whole(width):
    width(70)
    text = draw_table(TABLE)
    assert "a-rather-long-device-name" in text
    assert "700 W" in text


def test_columns_that_do_not_fit_are_named(width):
    width(60)
    assert draw_table(TABLE).splitlines()[-1] == "Too narrow here for: power."


def test_nothing_is_coloured_in_a_pipe(capsys):
    for text in (draw_table(TABLE), draw_fields([("a", "b", "c")]), draw_verdicts([("bad", "T", "found", "do")])):
        assert "\x1b" not in text


def test_a_remedy_stands_under_the_line_it_belongs_to():
    text = draw_verdicts([("bad", "Load", "load 9", "stop it"), ("good", "Disk", "fine", "nothing to say")])
    assert "→ stop it" in text.splitlines()[1]
    assert "nothing to say" not in text
