"""Calibration files: written atomically, checked against their hash when read, named so that the newest sorts last.

One JSON document a calibration, `DEVICE-RUNTIME-DTYPE-DATE-HASH.json`. The hash is the SHA-256 of the document without
it, with sorted keys and no spaces: a file that was truncated, edited or mixed up is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.core import settings
from inferometer.core.cache import write_whole
from inferometer.core.calibration import Calibration
from inferometer.core.errors import FormatError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

SHIPPED = Path(__file__).parents[2] / "known" / "data" / "calibrations"
_UNSAFE = re.compile(r"[^a-z0-9.]+")


def own_folder() -> Path:
    """Where this user's calibrations are kept."""
    return settings.data_folder() / "calibrations"


def content_hash(calibration: Calibration) -> str:
    """SHA-256 of everything but the hash itself."""
    from inferometer.core.codec import document  # noqa: PLC0415 - most devices have no calibration to read

    plain = document(replace(calibration, content_hash=None))
    for name in ("kernels", "forms", "parameters", "host_call_s"):
        if plain[name] in (None, {}):  # files from before these fields keep their hash
            del plain[name]
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(calibration: Calibration) -> Calibration:
    """The calibration as it is written, with its hash filled in.

    A figure keeps twelve digits: what stands behind them is the rounding of sums, and was a sixth of a file.
    """
    from inferometer.core.codec import decode, encode  # noqa: PLC0415 - as above

    short = json.loads(encode(calibration), parse_float=lambda figure: float(f"{float(figure):.12g}"))
    calibration = decode(json.dumps(short), Calibration)
    return replace(calibration, content_hash=content_hash(calibration))


def name_start(*parts: str) -> str:
    """The start of a file name, from the device, the runtime, the format and the date."""
    return "-".join(_UNSAFE.sub("-", part.casefold()).strip("-") for part in parts)


def file_name(calibration: Calibration) -> str:
    start = name_start(calibration.device, calibration.runtime, calibration.dtype, calibration.created[:10])
    return f"{start}-{content_hash(calibration)[:8]}.json"


def write_calibration(calibration: Calibration, target: Path) -> Path:
    """Write it into a folder under its own name, or to the `.json` file given. It is written whole or not at all."""
    from inferometer.core.codec import encode  # noqa: PLC0415 - as above

    calibration = sealed(calibration)
    path = target if target.suffix == ".json" else target / file_name(calibration)
    try:
        write_whole(path, encode(calibration, indent=1) + b"\n")
    except OSError as error:
        raise FormatError(f"{path} cannot be written: {error.strerror or error}.") from None
    return path


def read_calibration(path: Path) -> Calibration:
    """Read one file. A truncated, edited or foreign file is an error that says which of these it is."""
    from inferometer.core.codec import decode  # noqa: PLC0415 - as above

    try:
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(f"The calibration {path} cannot be read: {error.strerror or error}.") from None
    try:
        calibration = decode(data, Calibration)
    except SchemaError as error:
        raise FormatError(
            f"{path} is not a usable calibration: {error.message}",
            remedy=error.remedy or "If it was truncated, copy it again; otherwise run `inferometer calibrate`.",
        ) from None
    if calibration.content_hash is None:
        raise FormatError(f"{path} has no content hash, so it cannot be checked.", remedy=_AGAIN)
    if calibration.content_hash != content_hash(calibration):
        raise FormatError(f"{path} was changed after it was written: its hash does not match.", remedy=_AGAIN)
    return calibration


_AGAIN = "Use the file as `inferometer calibrate` wrote it, or calibrate again."


def files_in(folders: Iterable[Path]) -> tuple[Path, ...]:
    """The calibration files of some folders, in no particular order; a missing folder has none."""
    return tuple(path for folder in folders if folder.is_dir() for path in sorted(folder.glob("*.json")))
