"""Calibration files: written whole, read with their hash checked, named so that the newest is found by its name.

One JSON document a calibration, `DEVICE-RUNTIME-DTYPE-DATE-HASH.json`. The hash is the SHA-256 of the document without
it, keys sorted and no spaces: a file that was cut off, edited or mixed up is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer import settings
from inferometer.core.calibration import Calibration
from inferometer.errors import FormatError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

SHIPPED = Path(__file__).parent.parent / "catalog" / "data" / "calibrations"
_UNSAFE = re.compile(r"[^a-z0-9.]+")


def own_folder() -> Path:
    """Where this user's calibrations are kept."""
    return settings.data_folder() / "calibrations"


def content_hash(calibration: Calibration) -> str:
    """SHA-256 of everything but the hash itself."""
    from inferometer.core.codec import document  # noqa: PLC0415 - most devices have no calibration to read

    plain = document(replace(calibration, content_hash=None))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(calibration: Calibration) -> Calibration:
    """With its hash."""
    return replace(calibration, content_hash=content_hash(calibration))


def name_start(*parts: str) -> str:
    """What the names of files begin with: the device, the runtime, the format, the date."""
    return "-".join(_UNSAFE.sub("-", part.casefold()).strip("-") for part in parts)


def file_name(calibration: Calibration) -> str:
    named = name_start(calibration.device, calibration.runtime, calibration.dtype, calibration.created[:10])
    return f"{named}-{content_hash(calibration)[:8]}.json"


def write_calibration(calibration: Calibration, target: Path) -> Path:
    """Write it into a folder under its own name, or to the file named. It stands there whole or not at all."""
    from inferometer.core.codec import encode  # noqa: PLC0415 - as above

    whole = sealed(calibration)
    path = target if target.suffix == ".json" else target / file_name(whole)
    partial = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(encode(whole, indent=1) + b"\n")
        partial.replace(path)
    except OSError as error:
        raise FormatError(f"{path} cannot be written: {error.strerror or error}.") from None
    return path


def read_calibration(path: Path) -> Calibration:
    """One file. What is cut off, edited or of another kind is an error that says which."""
    from inferometer.core.codec import decode  # noqa: PLC0415 - as above

    try:
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(f"The calibration {path} cannot be read: {error.strerror or error}.") from None
    try:
        found = decode(data, Calibration)
    except SchemaError as error:
        raise FormatError(
            f"{path} is no calibration that can be used: {error.message}",
            remedy=error.remedy or "If it was cut off, copy it again; else run `inferometer calibrate`.",
        ) from None
    if found.content_hash is None:
        raise FormatError(f"{path} has no content hash, so nothing says that it is whole.", remedy=_AGAIN)
    if found.content_hash != content_hash(found):
        raise FormatError(f"{path} was changed after it was written: its hash does not fit its content.", remedy=_AGAIN)
    return found


_AGAIN = "Take the file as `inferometer calibrate` wrote it, or run it again."


def files_in(folders: Iterable[Path]) -> tuple[Path, ...]:
    """The calibration files of some folders, in no particular order; a folder that is not there has none."""
    return tuple(path for folder in folders if folder.is_dir() for path in sorted(folder.glob("*.json")))
