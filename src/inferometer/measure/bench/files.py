"""Profiles in files. A result is written to a temporary file and then renamed, so that a full disk loses nothing."""

import os
from pathlib import Path

from inferometer.core.cache import write_whole
from inferometer.core.codec import decode, encode
from inferometer.core.errors import FormatError, InferometerError, SchemaError
from inferometer.core.profile import Profile, Run


def load_profile(path: Path) -> Profile:
    """A saved profile, or the profile in a saved run."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FormatError(
            f"{path}: cannot be read ({error.strerror or error}).", remedy="Save one with `inferometer bench -o FILE`."
        ) from None
    try:
        if b'"inferometer.run/' not in data[:200]:
            return decode(data, Profile)
        run = decode(data, Run)
    except SchemaError as error:
        raise SchemaError(f"{path}: {error.message}", remedy=error.remedy) from None
    if run.profile is None:
        raise FormatError(f"{path}: run {run.id} is {run.status} and has no profile.")
    return run.profile


def require_room(path: Path) -> None:
    """Make the folder of a file to come, before anything is measured for it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise InferometerError(f"{path} is a folder: a result cannot be saved there.", remedy="Name a file in it.")
        if not os.access(path.parent, os.W_OK):
            raise InferometerError(f"{path.parent} may not be written to.", remedy="Choose another folder.")
    except OSError as error:
        raise InferometerError(
            f"The folder {path.parent} cannot be made ({error.strerror or error}).", remedy="Choose another folder."
        ) from None


def save_profile(profile: Profile, path: Path) -> None:
    require_room(path)
    try:
        write_whole(path, encode(profile, indent=2) + b"\n")
    except OSError as error:
        raise InferometerError(
            f"The result could not be written to {path} ({error.strerror or error}); what was there is unchanged.",
            remedy="Make room or choose another folder; the result is printed in full with --format json.",
        ) from None
