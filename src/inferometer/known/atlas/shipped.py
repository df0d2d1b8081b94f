"""The tables at hand: those of the package, and the user's own in the data folder.

A dataset is one file, or one a device where it is large (`timm~nvidia-rtx-4090`). `index.json` says which files have a
model and which a device, so that a question about one model reads a few thousand rows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path

import msgspec

from inferometer.core import settings
from inferometer.core.codec import settled
from inferometer.core.errors import UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.known.atlas.measurement import AtlasSource
from inferometer.known.atlas.names import DATA
from inferometer.known.atlas.storing import read_table
from inferometer.known.atlas.table import AtlasTable, joined

TABLES = DATA / "tables"
INDEX = DATA / "index.json"
ENDING = ".json.gz"


@frozen
class AtlasIndex:
    """The package's files by the models and devices in them."""

    files: tuple[str, ...] = ()
    models: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    devices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def own_folder() -> Path:
    return settings.data_folder() / "atlas"


def shipped_datasets() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.partition("~")[0] for name in index().files))


def own_datasets() -> tuple[str, ...]:
    return tuple(sorted(path.name.removesuffix(ENDING) for path in own_folder().glob(f"*{ENDING}")))


def files_of(dataset: str) -> tuple[Path, ...]:
    """The files of a dataset; a user's own comes first, and an unknown name is an error with suggestions."""
    own = own_folder() / f"{dataset}{ENDING}"
    if own.is_file():
        return (own,)
    shipped = tuple(_shipped(name) for name in index().files if name.partition("~")[0] == dataset)
    if not shipped:
        known = (*shipped_datasets(), *own_datasets())
        raise UnknownNameError("dataset", dataset, known, listing=f"There are: {', '.join(known)}.")
    return shipped


def load(datasets: Iterable[str] | None = None) -> AtlasTable:
    """The rows of these datasets, or of all: the package's, then the user's own."""
    wanted = (*shipped_datasets(), *own_datasets()) if datasets is None else tuple(dict.fromkeys(datasets))
    return joined([table_in(path) for dataset in wanted for path in files_of(dataset)])


def tables_with(models: Iterable[str], device: str | None = None) -> tuple[AtlasTable, ...]:
    """The tables that have one of these models, and the device if one is named; the user's own are always looked at."""
    known = index()
    places = {place for model in models for place in known.models.get(model, ())}
    if device is not None:
        places &= set(known.devices.get(device, ()))
    shipped = (_shipped(known.files[place]) for place in sorted(places))
    own = (own_folder() / f"{dataset}{ENDING}" for dataset in own_datasets())
    return tuple(table_in(path) for path in (*shipped, *own))


def table_in(path: Path) -> AtlasTable:
    return _loaded(path, path.stat().st_mtime_ns)


def known_models() -> frozenset[str]:
    return frozenset(index().models)


def _shipped(name: str) -> Path:
    return TABLES / f"{name}{ENDING}"


@cache
def _loaded(path: Path, stamp: int) -> AtlasTable:  # noqa: ARG001 - part of the key: a changed file is read again
    return read_table(path)


@cache
def index() -> AtlasIndex:
    return msgspec.json.decode(INDEX.read_bytes(), type=settled(AtlasIndex))


@cache
def sources() -> Mapping[str, AtlasSource]:
    """Every source by its key, whether its rows are in the package or not."""
    import tomllib  # noqa: PLC0415 - a prediction that nobody's figure stands beside needs no sources

    rows = tomllib.loads((DATA / "sources.toml").read_text(encoding="utf-8"))
    return {key: AtlasSource(key=key, **fields) for key, fields in rows.items()}


def source_named(key: str) -> AtlasSource:
    """A user's own rows may name a source that nobody else knows: its name is then all there is."""
    known = sources().get(key)
    return known or AtlasSource(key=key, title="a table of yours", short=key, url="", licence="yours")
