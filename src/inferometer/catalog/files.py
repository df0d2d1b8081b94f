"""Where catalog rows come from: the built-in files, then the folders the user names."""

from functools import cache
from pathlib import Path

from inferometer import settings
from inferometer.catalog.load import Rows, read_rows
from inferometer.errors import CatalogError

__all__ = ["rows_of"]

_BUILT_IN = Path(__file__).parent / "data"


def rows_of(kind: str) -> Rows:
    """The rows of one kind: devices, models, links, instances, grids, pue, levels, dtypes."""
    return _rows(kind, settings.catalog_folders())


@cache
def _rows(kind: str, folders: tuple[Path, ...]) -> Rows:
    own = sorted((_BUILT_IN / kind).glob("*.toml")) or [_BUILT_IN / _FILES[kind]]
    return read_rows([*own, *(file for folder in folders for file in _toml_files(folder))], kind)


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
