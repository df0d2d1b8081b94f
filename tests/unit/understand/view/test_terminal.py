from dataclasses import replace
from types import SimpleNamespace

import pytest

from inferometer.understand.view import terminal
from inferometer.understand.view.cards import Card
from inferometer.understand.view.table import Column, ReportTable
from inferometer.understand.view.terminal import draw_card, draw_fields, draw_heading, draw_table, draw_verdicts

TABLE = ReportTable(
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


def test_what_a_terminal_would_obey_is_left_out_of_names():
    evil = "a\x1b]0;title\x07b\x1b[2Jc\x1b[31md\x9b5ne\u202ef\r"
    row = ReportTable(columns=(Column(key="name", heading="model"),), rows=({"name": evil},))
    drawn = [draw_table(row), draw_heading(evil, evil), draw_fields([(evil, evil, evil)])]
    drawn += [terminal.visible(evil).replace("\x1b[31m", "")]
    assert not any(letter in "".join(drawn) for letter in "\x1b\x07\x9b\u202e\r")
    assert terminal.visible("\x1b[1mbold\x1b[0m\n\ttab") == "\x1b[1mbold\x1b[0m\n\ttab"  # ours


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
    assert draw_table(TABLE).splitlines()[-1] == "Hidden, as the terminal is too narrow: power."


def test_columns_that_stand_aside_go_before_the_last(width):
    words = ("name", "engine", "time", "made")
    table = ReportTable(
        columns=tuple(Column(key=key, heading=key * 3, exact=True, aside=key == "engine") for key in words),
        rows=({"name": 1, "engine": 2, "time": 3, "made": 4},),
    )
    width(40)
    assert draw_table(table).splitlines()[0].split() == ["namenamename", "timetimetime", "mademademade"]
    assert draw_table(table).splitlines()[2].split() == ["1", "3", "4"]
    assert draw_table(table).endswith("Hidden, as the terminal is too narrow: engineengineengine.")
    width(30)
    assert draw_table(table).splitlines()[2].split() == ["1", "3"]


FACTS = [
    ("first token", "9.919 ms", "7.083 ms to 14.14 ms, 2.1 × its floor, bound by compute"),
    ("a note", "a value of many words that goes on for longer than half a terminal is wide", ""),
    ("address", "https://example.org/" + "x" * 60, "and a remark that has quite a few words of its own as well"),
    ("nothing", "", ""),
]


@pytest.mark.parametrize("columns", [40, 60, 80, 160])
def test_facts_fit_the_terminal_and_lose_no_word(width, columns):
    width(columns)
    lines = draw_fields(FACTS).splitlines()
    assert max(map(len, lines)) <= columns
    assert not any(line != line.rstrip() for line in lines)
    said = "".join(sorted("".join(lines).replace(" ", "")))
    assert said == "".join(sorted("".join(map("".join, FACTS)).replace(" ", "")))


def test_facts_stand_in_three_columns(width):
    width(160)
    assert draw_fields([FACTS[0], ("b", "1", "c"), ("d", "", "e"), ("f", "2", "")]).splitlines() == [
        "first token  9.919 ms  7.083 ms to 14.14 ms, 2.1 × its floor, bound by compute",
        "b            1         c",
        "d                      e",
        "f            2",
    ]
    assert draw_fields([]) == ""


def test_a_line_of_a_fact_is_a_line(width):
    width(160)
    assert draw_fields([("a", "one\ntwo", "b")]).splitlines() == ["a  one  b", "   two"]


def test_a_long_remark_wraps_under_itself_and_a_short_value_stays_whole(width):
    width(60)
    assert draw_fields(FACTS[:1]).splitlines() == [
        "first token  9.919 ms  7.083 ms to 14.14 ms, 2.1 × its",
        "                       floor, bound by compute",
    ]


def test_a_heading_that_is_too_long_goes_on_below(width):
    width(30)
    assert draw_heading("a model on a device", "asked") == "a model on a device  asked"
    assert draw_heading("a model on a device", "this much was asked of it") == (
        "a model on a device\nthis much was asked of it"
    )
    assert draw_heading("a model of many words on a device") == "a model of many words on a\ndevice"


def test_on_a_terminal_the_title_is_bold_and_what_stands_beside_is_dim(monkeypatch, width):
    monkeypatch.setattr(terminal, "_on_terminal", lambda: True)
    width(80)
    assert draw_heading("T", "s") == "\x1b[1mT\x1b[0m\x1b[2m  s\x1b[0m"
    assert draw_fields([("a", "b", "c")]) == "\x1b[2ma\x1b[0m  b  \x1b[2mc\x1b[0m"


def test_nothing_is_coloured_in_a_pipe(capsys):
    drawn = (draw_table(TABLE), draw_fields([("a", "b", "c")]), draw_verdicts([("bad", "T", "found", "do")]))
    for text in (*drawn, draw_heading("T", "s")):
        assert "\x1b" not in text


def test_a_remedy_stands_under_the_line_it_belongs_to():
    text = draw_verdicts([("bad", "Load", "load 9", "stop it"), ("good", "Disk", "fine", "nothing to say")])
    assert "→ stop it" in text.splitlines()[1]
    assert "nothing to say" not in text


def test_a_checklist_is_laid_out_to_the_letter(width):
    width(40)
    rows = [
        ("bad", "Load", "load 9 of many words that do not fit", "stop it now and wait"),
        ("good", "Disk space", "fine", "nothing to say"),
        ("unknown", "GPU", "not here", "nor here"),
    ]
    assert draw_verdicts(rows).splitlines() == [
        "✗  Load        load 9 of many words that",
        "               do not fit",
        "               → stop it now and wait",
        "✓  Disk space  fine",
        "·  GPU         not here",
    ]
    assert draw_verdicts([]) == ""
    width(10)
    assert draw_verdicts([("warn", "T", "x" * 24, None)]) == f"!  T  {'x' * 24}", "never narrower than a few words"


def test_columns_give_way_from_the_widest_and_go_from_the_last(width):
    def fitted(columns, right=None):
        kinds = [Column(key="a", heading="a", exact=exact) for exact in right or [False] * len(columns)]
        return [*terminal._fitted([["x" * count] for count in columns], kinds).values()]

    width(60)
    assert fitted([10, 20, 26]) == [10, 20, 26], "60 with the gaps between them"
    assert fitted([10, 20, 27]) == [10, 20, 26]
    assert fitted([8, 40, 60]) == [8, 24, 24], "down to a few words each"
    assert fitted([9, 40, 60]) == [9, 24], "62 are too many"
    assert fitted([50, 30, 30]) == [50], "what does not fit goes, and the name stays"
    assert fitted([10, 30, 30], [False, True, True]) == [10, 30], "numbers are not cut"
    assert fitted([99]) == [99]
    assert [terminal._shared(*row) for row in ((3, 4, 7), (9, 3, 10), (3, 9, 10), (9, 9, 11), (6, 6, 11))] == [
        (3, 4), (7, 3), (3, 7), (6, 5), (6, 5),
    ]  # fmt: skip


def test_a_card_has_its_text_between_its_heading_and_its_facts(width):
    width(80)
    card = Card(title="T", subtitle="s", facts=(("a", "1", ""),), text="Words.", sources=("[1] x",))
    assert draw_card(card) == "T  s\n\nWords.\n\na  1\n[1] x"
    assert draw_card(replace(card, text=None, sources=())) == "T  s\na  1"


def test_a_pipe_has_lines_of_its_own_length_and_a_terminal_at_least_sixty(monkeypatch):
    assert terminal._width() == 160
    monkeypatch.setattr(terminal, "_on_terminal", lambda: True)
    for columns, wide in ((59, 60), (61, 61)):
        monkeypatch.setattr("shutil.get_terminal_size", lambda _, columns=columns: SimpleNamespace(columns=columns))
        assert terminal._width() == wide
