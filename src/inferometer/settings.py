"""Settings: the environment variables Inferometer reads, all of them, in one table.

Nothing else in the program looks at the environment, and nothing sets it.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path


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
        name="INFEROMETER_ARTIFACTS",
        default=None,
        meaning="Folder of the files that belong to runs.  Without it: beside the database.",
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
        name="INFEROMETER_DATA",
        default=None,
        meaning="Folder for runs and calibrations.  Without it: `inferometer` in the user's data folder.",
    ),
    Setting(
        name="INFEROMETER_PORT",
        default="8077",
        meaning="The hub's port, and the one in the links that commands print.",
    ),
    Setting(
        name="INFEROMETER_PROFILE",
        default="1",
        meaning="0 switches every `Profiler` off that is not switched on in code: its spans then record nothing.",
    ),
    Setting(
        name="INFEROMETER_STORE",
        default=None,
        meaning="Where runs are kept: a file, a folder or postgresql://…  Without it: in the data folder.",
    ),
)


def value_of(name: str) -> str | None:
    setting = next(setting for setting in SETTINGS if setting.name == name)
    return os.environ.get(name, setting.default)  # noqa: TID251 - the one place that reads it


def cache_folder() -> Path:
    """Where files are kept that can be made again."""
    homes = {"win32": ("LOCALAPPDATA", "~/AppData/Local"), "darwin": (None, "~/Library/Caches")}
    return _folder("INFEROMETER_CACHE", *homes.get(sys.platform, ("XDG_CACHE_HOME", "~/.cache")))


def data_folder() -> Path:
    """Where runs and calibrations are kept."""
    homes = {"win32": ("LOCALAPPDATA", "~/AppData/Local"), "darwin": (None, "~/Library/Application Support")}
    return _folder("INFEROMETER_DATA", *homes.get(sys.platform, ("XDG_DATA_HOME", "~/.local/share")))


def _folder(setting: str, variable: str | None, otherwise: str) -> Path:
    """The folder a setting names, or ours in the one that the system has for such files."""
    chosen = value_of(setting)
    if chosen:
        return Path(chosen).expanduser()
    home = os.environ.get(variable) if variable else None  # noqa: TID251 - the one place that reads it
    return Path(home or otherwise).expanduser() / "inferometer"


def catalog_folders() -> tuple[Path, ...]:
    text = value_of("INFEROMETER_CATALOG") or ""
    return tuple(Path(part).expanduser() for part in text.split(os.pathsep) if part)


def styled_terminal() -> bool:
    """Whether a terminal may get bold and colour: not where NO_COLOR is set (no-color.org), nor on a dumb one."""
    variables = os.environ  # noqa: TID251 - the one place that reads it
    return not variables.get("NO_COLOR") and variables.get("TERM") != "dumb"


def debug() -> bool:
    return value_of("INFEROMETER_DEBUG") not in {None, "", "0"}


def profiling() -> bool:
    return value_of("INFEROMETER_PROFILE") not in {None, "", "0"}
