"""What this machine compiled itself: packages with native code that run here without being asked about.

Each is remembered by the hash of its content, as an empty file in the data folder, so that a copy of it under another
name is known too, and one that was changed is not.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from inferometer.core.settings import data_folder

if TYPE_CHECKING:
    from pathlib import Path

_FOLDER = "compiled-here"


def remember(path: Path) -> None:
    """Called by the tool that has just compiled the file."""
    place = _place(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()


def is_made_here(path: Path) -> bool:
    return (data_folder() / _FOLDER).is_dir() and _place(path).is_file()


def _place(path: Path) -> Path:
    with path.open("rb") as file:
        return data_folder() / _FOLDER / hashlib.file_digest(file, "sha256").hexdigest()
