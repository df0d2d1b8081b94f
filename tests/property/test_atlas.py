"""A table of published measurements beside the plain list of its rows: every column, choice and order is the same."""

import gzip
import json
import random
from dataclasses import fields, replace

import numpy as np
import pytest

from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.shipped import read_table, write_table
from inferometer.known.atlas.table import NUMBERS, TEXTS, joined, table_of

NAMES = ("a", "b", "c d", "é")
UNITS = {  # a quantity and the units it may be published in
    "forward": ("ms", "s", "us", "inputs/s"), "stream": ("inputs/s", "ms"),
    "prefill": ("tokens/s", "tokens/s/device", "s"),
    "decode": ("tokens/s", "ms", "tokens/s/device"), "tokens": ("tokens/s",), "request": ("s",),
}  # fmt: skip
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
ENDS = ((None, None), (2.0, 5.0), (5.0, 2.0), (2.0, None), (None, 5.0))


def measured(chance):
    quantity = chance.choice(sorted(UNITS))
    maybe = {name: chance.choice((None, 1, 2, 3)) for name in ("batch", "prompt", "image", "generate", "context")}
    low, high = chance.choice(ENDS)
    return PublishedMeasurement(
        dataset=chance.choice(NAMES), source=chance.choice(NAMES), file="f", line=chance.randint(2, 99),
        device_published=chance.choice(NAMES), model_published=chance.choice(NAMES), quantity=quantity,
        figure=chance.choice((0.125, 3.0, 1234567.0, 1e-3)), figure_unit=chance.choice(UNITS[quantity]),
        date=chance.choice((None, "2026-01", "2025-12")), unit=chance.choice((None, "npu", "cpu")),
        count=chance.randint(1, 4), low=low, high=high, power_w=chance.choice((None, 7.5)),
        settings={name: chance.choice(("1", "x y")) for name in NAMES if chance.random() < 0.3}, **maybe,
    )  # fmt: skip


@pytest.fixture(params=[*range(6)])
def rows(request):
    """None, one, and more rows: the same in every run."""
    chance = random.Random(request.param)  # noqa: S311 - a sample, no secret
    return [measured(chance) for _ in range((0, 1, 2, 9, 30, 60)[request.param])]


def seconds_by_hand(row):
    """A time is scaled; a rate divides the work, and one per device is of all devices."""
    if row.figure_unit in SECONDS:
        return row.figure * SECONDS[row.figure_unit]
    batch, prompt = row.batch or 1, row.prompt or 1
    work = {"forward": batch, "decode": batch, "prefill": batch * prompt}.get(row.quantity, 1)
    return work / (row.figure * (row.count if row.figure_unit == "tokens/s/device" else 1))


def test_rows_come_back_and_columns_are_theirs(rows):
    table = table_of(rows)
    assert list(table.rows()) == rows
    for name in (*TEXTS, *NUMBERS):
        if name != "settings":
            expected = [getattr(row, name) for row in rows]
            found = [None if value is None or value != value else value for value in table[name].tolist()]  # noqa: PLR0124 - NaN
            assert found == expected, name
    assert {entry.name for entry in fields(PublishedMeasurement)} == {*TEXTS, *NUMBERS}


def test_seconds_of_a_column_are_those_of_each_row_and_those_by_hand(rows):
    table = table_of(rows)
    assert np.allclose(table["seconds"], [seconds_by_hand(row) for row in rows], rtol=1e-12)
    for name in ("seconds", "low_s", "high_s"):
        of_rows = [np.nan if getattr(row, name) is None else getattr(row, name) for row in rows]
        assert np.allclose(table[name], of_rows, rtol=1e-12, equal_nan=True), name
    for row in rows:
        if row.low is not None and row.high is not None:
            ends = sorted(seconds_by_hand(replace(row, figure=end)) for end in (row.low, row.high))
            assert np.allclose([row.low_s, row.high_s], ends)


def test_parts_and_orders_are_those_of_the_list(rows):
    table = table_of(rows)
    for unit, batch, names in ((None, 1, NAMES), ("npu", None, ["a", "é"]), ("cpu", 2, ["b", "no"]), (None, None, [])):
        wanted = [row for row in rows if row.unit == unit and row.batch == batch and row.dataset in names]
        assert list(table.where(unit=unit, batch=batch, dataset=names).rows()) == wanted
    assert list(table.newest_first().rows()) == sorted(rows, key=lambda row: row.date or "", reverse=True)
    assert table.distinct("dataset") == tuple(dict.fromkeys(row.dataset for row in rows))
    cut = len(rows) // 3
    assert list(joined([table_of(rows[:cut]), table_of([]), table_of(rows[cut:])]).rows()) == rows


@pytest.mark.parametrize("times", [1, 9])
def test_a_stored_table_is_the_same_table(tmp_path, rows, times):
    """Columns that never change, that change seldom, of few values, and others, are all written in another way."""
    path = tmp_path / "t.json.gz"
    many = [replace(row, line=place) for place, row in enumerate(rows * times, start=2)]
    write_table(path, table_of(many))
    assert list(read_table(path).rows()) == many
    document = json.loads(gzip.decompress(path.read_bytes()))
    assert (document["schema"], document["rows"]) == ("inferometer.atlas/1", len(many))
