"""Where catalog rows come from: the built-in files, then the folders the user names."""

from functools import cache
from pathlib import Path

from inferometer import settings
from inferometer.catalog.load import Row, Rows, read_rows
from inferometer.errors import CatalogError

__all__ = ["row_named", "rows_of"]

_BUILT_IN = Path(__file__).parent / "data"


def rows_of(kind: str) -> Rows:
    """The rows of one kind: devices, models, links, instances, grids, pue, levels, dtypes."""
    return _rows(kind, settings.catalog_folders())


def row_named(kind: str, name: str) -> Row | None:
    """The row of that name or alias. Only files that hold the name are parsed: one row should not cost all of them."""
    return _row(kind, name, settings.catalog_folders())


@cache
def _row(kind: str, name: str, folders: tuple[Path, ...]) -> Row | None:
    rows = read_rows([file for file in _files(kind, folders) if name in _text(file)], kind)
    canonical = rows.canonical(name)
    return None if canonical is None else rows.by_name[canonical]


@cache
def _rows(kind: str, folders: tuple[Path, ...]) -> Rows:
    return read_rows(_files(kind, folders), kind)


def _files(kind: str, folders: tuple[Path, ...]) -> list[Path]:
    own = sorted((_BUILT_IN / kind).glob("*.toml")) or [_BUILT_IN / _FILES[kind]]
    return [*own, *(file for folder in folders for file in _toml_files(folder))]


def _text(file: Path) -> str:
    """What a file says, as far as it is text: parsing it will tell what is wrong with it."""
    return file.read_text(encoding="utf-8", errors="replace")


_FILES = {
    "links": "links.toml",
    "instances": "instances.toml",
    "grids": "grids.toml",
    "pue": "grids.toml",
    "levels": "hierarchy.toml",
    "dtypes": "dtypes.toml",
}


def _toml_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise CatalogError(
            f"INFEROMETER_CATALOG names {str(folder)!r}, which is not a folder.",
            remedy="Name folders that hold TOML files, or unset it.",
        )
    return sorted(folder.glob("*.toml"))
