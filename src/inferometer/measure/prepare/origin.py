"""What a prepared file was made of, so that advice about it can begin there: most formats lead to no other.

It is kept beside the cache by the file's content, and holds wherever the file is copied to on this machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path

from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.settings import cache_folder
from inferometer.known.files import row_named
from inferometer.measure.prepare.carrying_out import model_files

_PIECE = 1 << 16  # of the beginning and the end of each file: a whole one may have gigabytes


@frozen
class Origin:
    """`model` is a name of the catalog, or a path. `image` and `sizes` are fixed in some of the files made of it."""

    model: str
    image: int | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)


def keep_origin(artifact: Path, origin: Origin) -> None:
    """A cache that cannot be written is none."""
    model = origin.model if row_named("models", origin.model) else str(Path(origin.model).resolve())
    with suppress(OSError):
        place = _place(artifact)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(asdict(replace(origin, model=model))), encoding="utf-8")


def origin_of(model: str) -> Origin | None:
    """What a file was made of here, if that is still there."""
    try:
        origin = Origin(**json.loads(_place(Path(model)).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, InferometerError):
        return None
    return origin if row_named("models", origin.model) or Path(origin.model).exists() else None


def _place(path: Path) -> Path:
    digest = hashlib.sha256()
    for file in model_files(path):
        size = file.stat().st_size
        with file.open("rb") as content:
            digest.update(f"{size}\0".encode() + content.read(_PIECE))
            content.seek(max(0, size - _PIECE))
            digest.update(content.read(_PIECE))
    return cache_folder() / "prepared" / "origins" / digest.hexdigest()[:32]
