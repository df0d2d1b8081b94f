"""What a prepared file was made of, so that advice about it can begin there: most formats lead to no other.

It is kept beside the cache by the file's content, and holds wherever the file is copied to on this machine.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from inferometer.catalog.files import row_named
from inferometer.errors import InferometerError
from inferometer.prepare.carrying_out import model_files
from inferometer.settings import cache_folder

_PIECE = 1 << 16  # of the beginning and the end of each file: a whole one may have gigabytes


def keep_origin(artifact: Path, model: str) -> None:
    """`model` is a name of the catalog, or a path. A cache that cannot be written is none."""
    with suppress(OSError):
        place = _place(artifact)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(model if row_named("models", model) else str(Path(model).resolve()), encoding="utf-8")


def origin_of(model: str) -> str | None:
    """What a file was made of here, if that is still there."""
    try:
        origin = _place(Path(model)).read_text(encoding="utf-8")
    except (OSError, InferometerError):
        return None
    return origin if row_named("models", origin) or Path(origin).exists() else None


def _place(path: Path) -> Path:
    digest = hashlib.sha256()
    for file in model_files(path):
        size = file.stat().st_size
        with file.open("rb") as content:
            digest.update(f"{size}\0".encode() + content.read(_PIECE))
            content.seek(max(0, size - _PIECE))
            digest.update(content.read(_PIECE))
    return cache_folder() / "prepared" / "origins" / digest.hexdigest()[:32]
