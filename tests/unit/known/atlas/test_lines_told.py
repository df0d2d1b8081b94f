"""What lines of every published form become, those with gaps and odd cells too: each field that is set.

`lines_told.txt` has a case in a line: the form and its cells. `python tests/unit/known/atlas/test_lines_told.py` writes
the lines below the cases anew (with src and tests on the path): read them, each is what a person makes of the cells.
What is looked up in the catalog is only told here, and not found: `lines.py` has names that are.
"""

import csv
import tempfile
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from unittest.mock import patch

from inferometer.core.errors import InferometerError
from inferometer.known.atlas.form import CsvLine
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.reading import forms, read_atlas
from unit.formats.listing import cases_in, holds, rewrite

TOLD = Path(__file__).parent / "lines_told.txt"
LEFT_OUT = frozenset({"file", "line", "dataset", "source", "quantity", "figure", "figure_unit"})
NEEDED = {form.name: sorted(form.columns) for form in forms()}


def device_asked(name, unit):
    return f"{name} as {unit}"


def model_asked(name, dataset=None, part=None):
    return f"{name} of {dataset}" + (f", {part}" if part else "")


SOURCES = "inferometer.known.atlas.sources"
LOOKED_UP = (
    patch("inferometer.known.atlas.form.catalog_device", device_asked),
    patch("inferometer.known.atlas.form.match_model", model_asked),
    patch(f"{SOURCES}.tidy.catalog_device", device_asked), patch(f"{SOURCES}.tidy.match_model", model_asked),
    patch(f"{SOURCES}.llamacpp.card_gib", lambda _: 24),
)  # fmt: skip


def looked_up():
    patched = ExitStack()
    for each in LOOKED_UP:
        patched.enter_context(each)
    return patched


def cells_of(case):
    form, *given = case.split(" | ")
    return form, dict(cell.partition("=")[::2] for cell in given)


def read(case):
    form, cells = cells_of(case)
    header = [*NEEDED[form], *(name for name in cells if name not in NEEDED[form])]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.csv")
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, [cells.get(name, "") for name in header]])
        with looked_up():
            reading = read_atlas(path)
    assert reading.form == form
    yield from (f"set aside: {aside.reason}" for aside in reading.set_aside)
    for row in reading.table.rows():
        facts = {entry.name: getattr(row, entry.name) for entry in fields(PublishedMeasurement)}
        told = [f"{name}={value}" for name, value in facts.items() if value not in (None, {}) and name not in LEFT_OUT]
        yield f"{row.source}: {row.quantity} {row.figure:g} {row.figure_unit} = {row.seconds:.6g} s, {', '.join(told)}"


test_every_line_becomes_what_is_written_below_it = holds(TOLD, read)


class Asked(dict):
    """Cells, and which of them a reader looked at."""

    def __init__(self, cells):
        super().__init__(cells)
        self.names = set()

    def get(self, name, otherwise=None):
        self.names.add(name)
        return super().get(name, otherwise)


def others(cell):
    """What may stand in a cell instead."""
    yield f"{float(cell) * 2:g}" if cell.replace(".", "", 1).isdecimal() else f"{cell} 2"
    yield ""


def test_every_cell_that_a_form_looks_at_shows_in_what_one_of_its_lines_becomes():
    """Else nobody would notice that it is forgotten, or taken for another."""
    readers, looked_at, shown = {form.name: form.read for form in forms()}, set(), set()

    def rows(form, cells):
        asked = Asked(cells)
        try:
            return [*readers[form](CsvLine(file="file.csv", number=2, cells=asked))]
        except InferometerError:
            return []
        finally:
            looked_at.update((form, name) for name in asked.names)

    with looked_up():
        for case in cases_in(TOLD):
            form, cells = cells_of(case)
            if told := rows(form, cells):
                for name, cell in cells.items():
                    if (
                        cell
                        and (form, name) not in shown
                        and any(rows(form, cells | {name: it}) != told for it in others(cell))
                    ):
                        shown.add((form, name))
    assert sorted(looked_at - shown) == []


if __name__ == "__main__":
    rewrite(TOLD, read)
