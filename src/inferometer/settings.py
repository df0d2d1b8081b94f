"""Settings: the environment variables Inferometer reads, all of them, in one table.

Nothing else in the program looks at the environment, and nothing sets it.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SETTINGS", "Setting", "cache_folder", "catalog_folders", "debug", "profiling", "value_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    default: str | None
    meaning: str


SETTINGS = (
    Setting(
        name="INFEROMETER_CACHE",
        default=None,
        meaning="Folder for model files with made-up weights.  Without it: `inferometer` in the user's cache folder.",
    ),
    Setting(
        name="INFEROMETER_CATALOG",
        default=None,
        meaning="Folders with your own catalog rows (TOML), separated like PATH; read after the built-in ones.",
    ),
    Setting(
        name="INFEROMETER_DEBUG",
        default="0",
        meaning="1 shows the traceback behind an error, as `--debug` does.",
    ),
    Setting(
        name="INFEROMETER_PROFILE",
        default="1",
        meaning="0 switches every `Profiler` off that is not switched on in code: its spans then record nothing.",
    ),
)


def value_of(name: str) -> str | None:
    setting = next(setting for setting in SETTINGS if setting.name == name)
    return os.environ.get(name, setting.default)  # noqa: TID251 - the one place that reads it


def cache_folder() -> Path:
    """Where files are kept that can be made again."""
    chosen = value_of("INFEROMETER_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~")).expanduser() / "inferometer" / "cache"  # noqa: TID251 - as below
    if sys.platform == "darwin":
        return Path("~/Library/Caches/inferometer").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "inferometer"  # noqa: TID251 - as below


def catalog_folders() -> tuple[Path, ...]:
    text = value_of("INFEROMETER_CATALOG") or ""
    return tuple(Path(part).expanduser() for part in text.split(os.pathsep) if part)


def debug() -> bool:
    return value_of("INFEROMETER_DEBUG") not in {None, "", "0"}


def profiling() -> bool:
    return value_of("INFEROMETER_PROFILE") not in {None, "", "0"}
