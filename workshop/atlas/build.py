"""Make the package's tables: `python -m workshop.atlas.build FOLDER`, of CSV files in the known forms.

Only sources whose licence allows it go in (`shipped` in data/sources.toml). `--only FORM` reads the files of one form
and keeps the other tables as they are. `--names` maps the names of the tables at
hand again, without the CSV files: after the catalog has grown, or a rule has changed.
"""

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec
import numpy as np

from inferometer.core.errors import FormatError
from inferometer.known.atlas.reading import read_atlas
from inferometer.known.atlas.shipped import (
    ENDING,
    INDEX,
    TABLES,
    AtlasIndex,
    index,
    load,
    shipped_datasets,
    sources,
    write_table,
)
from inferometer.known.atlas.table import AtlasTable, joined
from workshop.atlas.renaming import renamed

_LARGE = 8000  # rows; a prediction that looks into a table should not wait for it


def build(folder: Path, only: str | None = None) -> str:
    """Write one file a dataset, and say what went in and what did not."""
    readings: dict[str, list[AtlasTable]] = defaultdict(list)
    told = []
    for path in sorted((*folder.glob("*.csv"), *folder.glob("*.csv.gz"))):
        try:
            reading = read_atlas(path)
        except FormatError:
            told.append(f"{path.name}: no table of measurements; left out")
            continue
        if only not in {None, reading.form}:
            continue
        allowed = _allowed(reading.table)
        barred = len(reading.table) - len(allowed)
        told.append(
            f"{path.name}: {len(allowed)} rows as {reading.form}, {len(reading.set_aside)} lines set aside"
            + (f", {barred} rows whose licence does not allow it" if barred else "")
        )
        if len(allowed):
            readings[reading.form].append(allowed)
    others = {} if only is None else {name: load([name]) for name in shipped_datasets() if name != only}
    _write({**others, **{form: joined(parts) for form, parts in readings.items()}})
    return "\n".join((*told, _size()))


def _write(datasets: Mapping[str, AtlasTable]) -> None:
    """One file a dataset, or one a device where that would be large; and the index of them all."""
    TABLES.mkdir(exist_ok=True)
    for path in TABLES.glob(f"*{ENDING}"):
        path.unlink()
    files: dict[str, AtlasTable] = {}
    for dataset, table in sorted(datasets.items()):
        if len(table) < _LARGE:
            files[dataset] = table
            continue
        for device in table.distinct("device_published"):
            files[f"{dataset}~{_slug(str(device))}"] = table.where(device_published=device)
    for name, table in files.items():
        write_table(TABLES / f"{name}{ENDING}", table)
    named = AtlasIndex(files=tuple(files), models=_places(files, "model"), devices=_places(files, "device"))
    INDEX.write_bytes(msgspec.json.encode(named))
    index.cache_clear()


def _places(files: Mapping[str, AtlasTable], column: str) -> dict[str, tuple[int, ...]]:
    places: dict[str, list[int]] = defaultdict(list)
    for place, table in enumerate(files.values()):
        for name in table.distinct(column):
            if name is not None:
                places[name].append(place)
    return {name: tuple(places[name]) for name in sorted(places)}


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")


def _allowed(table: AtlasTable) -> AtlasTable:
    known = sources()
    barred = [key for key in table.distinct("source") if not known[str(key)].shipped]
    return table.take(~table.texts["source"].mask(barred)) if barred else table


def map_names() -> str:
    """The names of models and devices once more, from what was published."""
    told, datasets = [], {}
    for dataset in shipped_datasets():
        before = load([dataset])
        after = datasets[dataset] = renamed(before)
        changed = int(np.sum((before["model"] != after["model"]) | (before["device"] != after["device"])))
        told.append(f"{dataset}: {changed} of {len(after)} rows have other names now")
    _write(datasets)
    return "\n".join((*told, _size()))


def _size() -> str:
    size = sum(path.stat().st_size for path in (*TABLES.glob(f"*{ENDING}"), INDEX))
    return f"{len(load())} rows in {len(shipped_datasets())} tables, {size / 1e3:.0f} kB"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m workshop.atlas.build", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="the folder with the CSV files")
    parser.add_argument("--only", metavar="FORM", help="only the files of this form")
    parser.add_argument("--names", action="store_true", help="only map names again")
    chosen = parser.parse_args(arguments)
    if not chosen.names and chosen.folder is None:
        parser.error("give a folder, or --names")
    sys.stdout.write((map_names() if chosen.names else build(cast("Path", chosen.folder), chosen.only)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
