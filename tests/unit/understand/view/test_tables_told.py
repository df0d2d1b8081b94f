"""Tables and charts of rows made by hand: every cell, every limit of an axis, and the best row of each place."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.device import Sourced
from inferometer.core.errors import DomainError
from inferometer.predict.sweep.rows import Rows
from inferometer.predict.sweep.table import table_of
from inferometer.understand.view import accuracy
from inferometer.understand.view.calibrations import calibration_table
from inferometer.understand.view.charts.pareto import _legible, best_by, heatmap, pareto_scatter, thinned
from inferometer.understand.view.charts.render import log_axis, log_ticks, number_text
from inferometer.understand.view.profiles import growths
from inferometer.understand.view.sweeps import sweep_table
from inferometer.understand.view.table import Column, cell_text


def cells(table):
    return [[row.get(column.key) for column in table.columns] for row in table.rows]


def headings(table):
    return [column.heading for column in table.columns]


# How accurate predictions are.

STANDING = {"n": 12, "median": 0.0625, "p90": 0.5, "bias": -0.125, "covered": 0.75, "width": 1.5}


def test_shares_are_written_for_people_and_left_to_programs():
    groups = {("a", "x"): STANDING, ("b", "y"): {**STANDING, "bias": 0.25, "median": None}}
    told = accuracy.standing_table(groups, ("device", "engine"), title="T")
    assert headings(told) == [
        "device", "engine", "n", "median error", "90 % below", "bias", "80 % interval covers", "its width",
    ]  # fmt: skip
    assert cells(told) == [
        ["a", "x", 12, "6.2%", "50.0%", "-12.5%", "75.0%", "150.0%"],
        ["b", "y", 12, None, "50.0%", "+25.0%", "75.0%", "150.0%"],
    ]
    assert cells(accuracy.standing_table(groups, ("device", "engine"), text=False))[0] == [
        "a", "x", 12, 0.0625, 0.5, -0.125, 0.75, 1.5,
    ]  # fmt: skip


def test_other_tools_and_aims_stand_beside_ours():
    row = {"peer": "p", "phase": "decode", "runtime": "r", "n": 3, "median": 0.5, "p90": 1.0, "ours": 0.25}
    assert cells(accuracy.peer_table([row])) == [["p", "decode", "r", 3, "50.0%", "100.0%", "25.0%"]]
    assert cells(accuracy.peer_table([row], text=False))[0][-3:] == [0.5, 1.0, 0.25]
    aim = {"what": "w", **STANDING, "aim": "10 %", "met": True}
    for text, median in ((True, "6.2%"), (False, 0.0625)):
        told = cells(accuracy.target_table([aim], text=text))
        assert (told[0][0], told[0][2], told[0][-2:]) == ("w", median, ["10 %", True])


def test_published_steps_are_counted_and_their_errors_shares():
    group = SimpleNamespace(
        dataset="d", unit="gpu", engine="e", quantity="ttft", way="device", steps=1234, devices=5, models=6,
        median=0.125, p90=0.25, bias=-0.5, coverage=0.75, width=None, roofline=2.0,
    )  # fmt: skip
    table = accuracy.published_table([group])
    assert cells(table) == [
        ["d", "gpu", "e", "ttft", "device", 1234, 5, 6, "12.5%", "25.0%", "-50.0%", "75.0%", None, "200.0%"]
    ]
    assert [column.heading for column in table.columns if column.exact] == ["steps", "devices", "models"]
    assert cells(accuracy.published_table([group], text=False))[0][8:] == [0.125, 0.25, -0.5, 0.75, None, 2.0]


def test_the_chart_holds_every_interval_and_the_line_of_right_predictions():
    def row(measured, predicted, low, high):
        return {"measured_s": measured, "predicted_s": predicted, "low_s": low, "high_s": high, "runtime": "r",
                "phase": "decode"}  # fmt: skip

    made = accuracy.accuracy_chart([row(1.0, 2.0, 0.6, 3.0), row(0.12, 0.2, 0.15, 6.0)])
    line, shown = made["layer"]
    assert [(point["x"], point["y"]) for point in line["data"]["values"]] == [
        (pytest.approx(0.1), pytest.approx(0.1)), (pytest.approx(7.2), pytest.approx(7.2))
    ]  # fmt: skip
    bars, dots = shown["layer"]
    assert {each["encoding"]["y"]["field"] for each in (bars, dots)} == {"low_s", "predicted_s"}
    assert bars["encoding"]["y2"]["field"] == "high_s"
    assert shown["encoding"]["x"]["field"] == "measured_s"
    assert shown["data"]["values"][0]["group"] == "r decode"
    assert made["title"]["subtitle"] == "2 cases with their 80 % intervals"
    empty = accuracy.accuracy_chart([])["layer"][0]["data"]["values"]
    assert [point["x"] for point in empty] == pytest.approx([1e-3 / 1.2, 1.2])


def test_a_page_has_its_parts_in_order_without_empty_ones():
    table = accuracy.peer_table([])
    page = accuracy.accuracy_page([("One", "", table), ("Two", "Words.", table)])
    assert page.startswith("# How true predictions are\n\nEvery case")
    assert "## One\n\n|" in page
    assert "## Two\n\nWords.\n\n|" in page
    assert page.endswith("\n")
    assert not page.endswith("\n\n")


# A calibration.


def test_a_calibration_has_a_row_for_each_class_overhead_and_kind_of_step():
    over = {"axes": ("rows", "depth"), "grid": ((1.0, 2.0), (4.0,))}
    tables = tuple(
        Utilisation(op_class=name, stream="f16", **over, values=values, residual=residual)
        for name, values, residual in (("linear", (0.25, 0.5), 0.1), ("line", (0.125, 0.75), 0.2))
    )
    made = Calibration(
        device="d", runtime="r", dtype="f16", created="2026-01-01", tables=tables, points=1,
        overheads={"launch": Sourced(value=2.5e-6, origin="measured", source="s", date="2026")},
        residuals={"linear": 0.05, "step": 0.03, "step.decode": 0.07, "stepping": 0.5},
        factors={"linear": 1.2, "linear.decode": 1.25, "linearly": 9.0},
    )  # fmt: skip
    table = calibration_table(made)
    assert table.title == "r on d, f16: 1 point"
    assert cells(table) == [
        ["linear", "rows, depth", "25.0%", "50.0%", "× 1.20, decode × 1.25", "5.0%"],
        ["line", "rows, depth", "12.5%", "75.0%", None, "20.0%"],
        ["overhead: launch", "2.5 µs", None, None, None, None],
        ["whole step", None, None, None, None, "3.0%"],
        ["whole decode", None, None, None, None, "7.0%"],
    ]


# Rows of a sweep.


def swept(*records, parts=1, **same):
    """Rows in some parts: what a record leaves out is a small model on one device."""
    plain = {"model": "m", "device": "d", "runtime": "r", "tp": 1, "pp": 1, "ep": 1, "dp": 1, "batch": 1, "fits": True}
    rows = [{**plain, **same, **record} for record in records]
    size = -(-len(rows) // parts)
    return Rows([table_of(rows[start : start + size], details=True) for start in range(0, len(rows), size)])


def test_inputs_that_are_the_same_stand_under_the_table_and_ends_in_one_place():
    rows = swept(
        {"batch": 1, "tpot_s": 0.5, "tpot_low_s": 0.25, "tpot_high_s": 1.0},
        {"batch": 2, "tpot_s": 0.75, "tpot_low_s": 0.5},
        {"batch": 4, "reason": "no"},
        prompt=7,
    )
    table = sweep_table(rows)
    assert headings(table) == ["batch", "each token", "between", "fits", "why not"]
    assert [row["batch"] for row in table.rows] == [1, 2, 4]
    assert table.rows[0]["tpot_interval"] == "250 ms to 1 s"
    assert table.rows[1].get("tpot_interval") is None
    assert table.note == "Throughout: model m, device d, runtime r, prompt 7."
    shown = sweep_table(rows, most=2)
    assert len(shown.rows) == 2
    assert shown.note == (
        "Throughout: model m, device d, runtime r, prompt 7. 1 more row: --out FILE writes all of them."
    )
    only = sweep_table(rows, most=1)
    assert headings(only)[:3] == ["model", "device", "runtime"]
    assert only.note == "2 more rows: --out FILE writes all of them."
    assert sweep_table(swept({"tpot_s": 0.5})).note is None
    assert sweep_table(swept({}, {}, model=None, device=None, runtime=None)).note is None


# Charts of sweeps.

ROW = st.fixed_dictionaries({
    "device": st.sampled_from("ab"), "batch": st.sampled_from([1, 2]), "fits": st.sampled_from([True, False, None]),
    "tpot_s": st.sampled_from([None, 0.5, 1.0, 2.0]), "tokens_per_s": st.sampled_from([None, 1.0, 2.0]),
})  # fmt: skip


@given(st.lists(ROW, min_size=1, max_size=12), st.integers(1, 3), st.sampled_from(["tpot_s", "tokens_per_s"]))
def test_each_place_shows_the_best_of_its_rows(records, parts, value):
    numbered = [{**record, "prompt": place} for place, record in enumerate(records)]
    better = max if value == "tokens_per_s" else min
    wanted = {}
    for device, batch in product("ab", (1, 2)):
        usable = [
            row for row in numbered
            if (row["device"], row["batch"]) == (device, batch) and row[value] is not None and row["fits"] is not False
        ]  # fmt: skip
        if usable:
            best = better(row[value] for row in usable)
            wanted[device, batch] = next(row["prompt"] for row in usable if row[value] == best)
    found = best_by(swept(*numbered, parts=parts).parts, ["device", "batch"], value)
    assert {(row["device"], row["batch"]): row["prompt"] for row in found.records()} == wanted
    assert [row["prompt"] for row in found.records()] == sorted(wanted.values()), "in the order of the rows"


def test_a_heat_map_has_panels_labels_and_colours_by_what_is_better():
    rows = swept(
        *({"device": device, "batch": batch, "prompt": prompt, "tpot_s": batch * prompt / 100, "tokens_per_s": batch}
          for device in "ab" for batch in (1, 2, 4) for prompt in (1, 2)),
    )  # fmt: skip
    made = heatmap(rows, "batch", "prompt", "tpot_s")
    assert made["title"] == {
        "text": "Time per output token by batch and prompt tokens",
        "subtitle": "12 rows; each cell is the best of those that share it, and empty where none can be",
    }
    assert (made["facet"]["field"], made["columns"]) == ("device", 2)
    inner = made["spec"]
    assert (inner["width"], inner["height"]) == (3 * 52, 2 * 26)
    colour, label = inner["layer"]
    scale = colour["encoding"]["color"]["scale"]
    assert (scale["reverse"], scale["type"], colour["mark"]["strokeWidth"]) == (True, "log", 1)
    assert colour["encoding"]["color"]["legend"]["values"] == [0.01, 0.02, 0.05]
    test = label["encoding"]["color"]["condition"]["test"]
    assert test.startswith("datum['tpot_s'] > ")
    assert float(test.rpartition(" ")[2]) == pytest.approx((0.01 * 0.08) ** 0.5)
    assert [row["text"] for row in made["data"]["values"][:2]] == ["10 ms", "20 ms"]
    digits = heatmap(swept({"tpot_s": 0.0123456, "usd_per_million_tokens": 1.2345}), "batch", "tp", "tpot_s", by=None)
    assert digits["data"]["values"][0]["text"] == "12.3 ms"
    dollars = heatmap(swept({"usd_per_million_tokens": 1.2345}), "batch", "tp", "usd_per_million_tokens", by=None)
    assert dollars["data"]["values"][0]["text"] == "$1.2"
    more = heatmap(rows, "batch", "prompt", "tokens_per_s", by=None)
    assert "facet" not in more
    assert more["layer"][0]["encoding"]["color"]["scale"]["reverse"] is False
    assert more["layer"][1]["encoding"]["color"]["condition"]["test"].startswith("datum['tokens_per_s'] < ")
    with pytest.raises(DomainError, match="is not an input"):
        heatmap(rows, "tpot_s", "prompt", "tpot_s")
    with pytest.raises(DomainError, match="has no numbers"):
        heatmap(rows, "batch", "prompt", "reason")


@pytest.mark.parametrize(
    ("across", "up", "width", "height", "labelled", "ticks"),
    [(16, 10, 16 * 52, 10 * 26, True, None), (17, 9, 17 * 38, 9 * 47, False, None),
     (16, 11, 16 * 40, 11 * 38, False, None), (18, 2, 18 * 36, 2 * 210, False, None),
     (19, 10, 19 * 34, 10 * 42, False, [1, 4, 7, 10, 13, 16, 19])],
)  # fmt: skip
def test_cells_are_labelled_while_they_are_few(*, across, up, width, height, labelled, ticks):
    rows = swept(*({"batch": x + 1, "prompt": y + 1, "tpot_s": 1.0 + x} for x in range(across) for y in range(up)))
    made = heatmap(rows, "batch", "prompt", "tpot_s", by=None)
    assert (made["width"], made["height"], len(made["layer"]) == 2) == (width, height, labelled)
    assert made["layer"][0]["mark"]["strokeWidth"] == int(labelled)
    assert made["encoding"]["x"]["axis"].get("values") == ticks
    assert made["encoding"]["y"]["sort"] == "descending"


def test_of_very_many_values_some_are_shown_evenly():
    data = [{"batch": n, "prompt": 1} for n in range(1, 322)]
    assert [row["batch"] for row in _legible(data, ("batch", "prompt"))] == list(range(1, 322, 3))
    assert len(_legible(data[:160], ("batch", "prompt"))) == 160
    assert len(_legible(data[:161], ("batch", "prompt"))) == 81


def test_points_that_lie_on_each_other_are_drawn_once_for_each_colour():
    near = 10 ** (1 / 40)
    rows = swept(
        {"tpot_s": 1.0, "energy_j": 1.0, "prompt": 1}, {"tpot_s": near * 0.99, "energy_j": 1.0, "prompt": 2},
        {"tpot_s": near * 1.01, "energy_j": 1.0, "prompt": 3},
        {"tpot_s": 1.0, "energy_j": near * 1.01, "prompt": 4}, {"tpot_s": 1.0, "energy_j": 1.0, "prompt": 5,
                                                                "device": "e"},
        {"tpot_s": 1.0, "energy_j": 1.0, "prompt": 6, "fits": False, "device": "f"},
        {"tpot_s": 0.0, "energy_j": 1.0, "prompt": 7}, {"tpot_s": None, "energy_j": 1.0, "prompt": 8}, parts=3,
    )  # fmt: skip
    assert thinned(rows.parts, "tpot_s", "energy_j", "device")["prompt"].tolist() == [1, 3, 4, 5]


def test_more_than_can_be_drawn_are_taken_in_wider_steps():
    spread = np.logspace(0, 60, 4500)
    rows = swept(*({"tpot_s": float(value), "energy_j": 1.0} for value in spread))
    cells = {step: len({int(np.floor(np.log10(value) * step)) for value in spread}) for step in (40, 26)}
    assert cells[40] <= 4000
    assert len(thinned(rows.parts, "tpot_s", "energy_j", "device")) == cells[40]


def test_a_scatter_says_where_better_is_and_which_rows_are_on_the_front():
    rows = swept(
        {"tpot_s": 1.0, "tokens_per_s": 5.0}, {"tpot_s": 2.0, "tokens_per_s": 9.0}, {"tpot_s": 4.0, "tokens_per_s": 7.0}
    )
    made = pareto_scatter(rows, "tpot_s", "tokens_per_s")
    assert made["title"]["subtitle"] == "3 rows · 2 on the front · better towards the upper left"
    assert [point["tpot_s"] for point in made["data"]["values"] if point["front"]] == [1.0, 2.0]
    assert len([point for point in made["data"]["values"] if not point["front"]]) == 3
    behind, line, front = made["layer"]
    assert [layer["transform"][0]["filter"] for layer in (behind, line, front)] == [
        "!datum.front", "datum.front", "datum.front"
    ]  # fmt: skip
    assert (behind["mark"]["size"], front["mark"]["size"]) == (34, 90)
    turned = pareto_scatter(rows, "tokens_per_s", "tpot_s")["title"]["subtitle"]
    assert turned.endswith("better towards the lower right")
    with pytest.raises(DomainError, match="has no numbers"):
        pareto_scatter(rows, "tpot_s", "reason")
    with pytest.raises(DomainError, match="has both"):
        pareto_scatter(rows, "tpot_s", "energy_j")


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1.0, 10.0, [1, 2, 5, 10]), (1.5, 9.0, [2, 5]), (1.0, 10**2.5, [1, 2, 5, 10, 20, 50, 100, 200]),
        (1.0, 1000.0, [1, 3, 10, 30, 100, 300, 1000]), (1.0, 1e4, [1, 3, 10, 30, 100, 300, 1000, 3000, 10000]),
        (1.0, 1.1e4, [1, 10, 100, 1000, 10000]), (0.011, 0.019, []),
    ],
)  # fmt: skip
def test_ticks_are_round_numbers_and_fewer_over_more_decades(low, high, ticks):
    assert log_ticks(low, high) == ticks


def test_an_axis_has_room_around_its_values():
    many, one = log_axis("tpot_s", [2.0, 8.0]), log_axis("tpot_s", iter([6.0]))
    assert many["scale"]["domain"] == pytest.approx([2 / 1.15, 8 * 1.15])
    assert one["scale"]["domain"] == pytest.approx([2.0, 18.0])
    assert one["axis"]["values"] == [2.0, 5.0, 10.0]
    assert [number_text(name) for name in ("usd_per_million_tokens", "tokens_per_s")] == [
        "'$' + format(datum.value, ',.3~r')",
        "datum.value < 10000 ? format(datum.value, ',.4~r') : format(datum.value, ',.0f')",
    ]


# Trends and cells.


def test_a_trend_is_the_middle_slope_over_the_middle_step():
    steps = [10.0, 12.0, 11.0, 14.0, 15.0, 17.0, 16.0, 19.0, 20.0, 22.0, 90.0]
    slopes = sorted((b - a) / (j - i) for i, a in enumerate(steps) for j, b in enumerate(steps) if i < j)
    middle = slopes[len(slopes) // 2] if len(slopes) % 2 else sum(slopes[len(slopes) // 2 - 1 :][:2]) / 2
    assert growths([steps]) == [pytest.approx(middle * 10 / 16.0)]
    falling = [-step + 100 for step in steps]
    assert growths([falling, None, steps[:9], steps])[0] == pytest.approx(-middle * 10 / 84.0)
    assert growths([falling, None, steps[:9], steps])[1:3] == [None, None]


@pytest.mark.parametrize(("swaps", "sure"), [(9, True), (10, False)])
def test_a_trend_must_be_one_that_chance_makes_once_in_a_hundred(swaps, sure):
    """Of ten steps 45 pairs: the score less one must be above 2.576 × √125 = 28.8, so at least 26 pairs more rise."""
    steps = list(range(10))
    undone = 0
    for end in range(10, 0, -1):  # each swap of neighbours turns one pair round
        for place in range(end - 1):
            if undone == swaps - 2:
                break
            if steps[place] < steps[place + 1]:
                steps[place], steps[place + 1] = steps[place + 1], steps[place]
                undone += 1
    score = sum((b > a) - (b < a) for i, a in enumerate(steps) for b in steps[i + 1 :])
    assert score == 45 - 2 * (swaps - 2)
    assert (growths([[step + 1.0 for step in steps]])[0] is not None) == sure


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ({}, None, "–"), ({}, "", "–"), ({}, True, "yes"), ({}, False, "no"), ({}, [], "–"), ({}, ("a", 2), "a, 2"),
        ({}, 0, "0"), ({"unit": "s"}, 0.0125, "12.5 ms"), ({"exact": True}, 12345.6, "12,346"),
        ({"share": True}, 0.1234, "12.3 %"), ({"signed": True}, 0.126, "+13 %"), ({"signed": True}, -0.5, "-50 %"),
        ({"capacity": True}, 2**34, "16 GiB"),
    ],
)  # fmt: skip
def test_a_cell_is_written_as_its_column_says(column, value, text):
    made = Column(key="k", heading="h", **column)
    assert cell_text(made, value) == text
    assert made.numeric == bool(column)
