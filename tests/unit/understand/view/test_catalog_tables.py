"""The catalog's other tables: every row is listed, filtered and shown with its sources, as text, page and JSON."""

import csv
import io
import json
import re

import pytest
from click.testing import CliRunner

from inferometer.cli.run import cli
from inferometer.core.dtypes import DTYPES
from inferometer.known.files import rows_of
from inferometer.understand.view.catalog_tables import TABLES
from unit.hub.web.samples import hub

KINDS = {"links": "links", "instances": "instances", "grids": "grids", "pue": "pue", "memory": "levels"}


def run(*arguments):
    return CliRunner().invoke(cli, ["catalog", *arguments])


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with hub(tmp_path_factory.mktemp("hub")) as (_, opened):
        yield opened


def test_every_kind_of_rows_has_a_table():
    names = {name: [*rows_of(kind).by_name] for name, kind in KINDS.items()} | {"formats": [*DTYPES]}
    assert {name: [row["name"] for row in table.records()] for name, table in TABLES.items()} == names
    listed = {row["name"]: row["rows"] for row in json.loads(run("--format", "json").stdout)}
    assert listed == {name: len(rows) for name, rows in names.items()}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_listed_filtered_and_shown_in_every_form(name, client):
    table = TABLES[name]
    condition, row = table.example
    rows = json.loads(run(name, "--format", "json").stdout)
    kept = json.loads(run(name, "--where", condition, "--format", "json").stdout)
    assert 0 < len(kept) < len(rows)
    assert len([*csv.DictReader(io.StringIO(run(name, "--format", "csv").stdout))]) == len(rows)
    assert client.get(f"/api/v1/catalog/{name}").json() == rows
    shown = json.loads(run(name, "show", row, "--format", "json").stdout)
    assert (shown["table"], shown["name"]) == (name, row)
    assert client.get(f"/api/v1/catalog/{name}/{row}").json() == shown
    card = table.card(table.find(row))
    for _, value, _ in card.facts:
        assert value in run(name, "show", row).stdout
    page = client.get(f"/catalog/{name}").text
    assert page.count("<tr data-words=") == len(rows)
    assert '<a href="/catalog" aria-current="page">Catalog</a>' in page
    words = re.sub("<[^>]+>", "", client.get(f"/catalog/{name}/{row}").text).replace("&#39;", "'")  # without links
    assert all(source.partition("]")[2][:30].strip() in words for source in card.sources)


def test_a_row_is_as_old_as_the_number_that_it_shows():
    """The memory of this instance is from 2025, its price from a year later."""
    (row,) = (each for each in TABLES["instances"].records() if each["name"] == "azure-nc-a100-v4")
    assert row["date"] == TABLES["instances"].find(row["name"]).usd_per_hour.date == "2026-09-17"


@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_a_card(name):
    for row in TABLES[name].rows().values():
        assert TABLES[name].card(row).facts, row.name


@pytest.mark.parametrize(("arguments", "words"), [
    (["lnks"], "Did you mean links?"),
    (["links", "nvlink-4"], "Known: show."),
    (["links", "show", "nvlink-44"], "`inferometer catalog links` lists them."),
    (["links", "--where", "bandwith>3GB/s"], "Did you mean bandwidth?"),
    (["formats", "show", "q4"], "no number format named 'q4'"),
])  # fmt: skip
def test_a_name_that_is_not_there_is_an_error_that_helps(arguments, words):
    error = run(*arguments).exception
    assert words in str(error)
