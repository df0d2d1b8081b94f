"""What a person names a result by: a value, a file, or a stored run (an id, part of it, a name, `last`, `last~1`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.core.errors import DomainError, InferometerError, MissingDependencyError, SchemaError, UnknownNameError

if TYPE_CHECKING:
    from inferometer.core.profile import Profile
    from inferometer.measure.bench.measurement import Measurement
    from inferometer.store.store import Store

    Result = Profile | Measurement | str | Path


def profile_of(what: Result, store: str | Path | None = None) -> Profile:
    """A profile as it is, of a measurement, in a file (another tool's, too), or of a stored run."""
    from inferometer.core.profile import Profile  # noqa: PLC0415 - names alone need none

    if isinstance(what, Profile):
        return what
    if not isinstance(what, str | Path):
        return what.profile
    path = Path(what)
    if not path.is_file():
        return profile_named(str(what), store)
    profiles = profiles_in(path)
    if len(profiles) > 1:
        raise DomainError(
            f"{path.name} has {len(profiles)} results.",
            remedy="Choose one: `inferometer import FILE` makes a file each.",
        )
    return profiles[0]


def profiles_in(path: Path) -> tuple[Profile, ...]:
    """The profile in a file of ours, or what an importer makes of another tool's."""
    from inferometer.engines.results.detect import import_file  # noqa: PLC0415 - as above
    from inferometer.measure.bench.files import load_profile  # noqa: PLC0415 - stored runs need none

    try:
        return (load_profile(path),)
    except SchemaError:
        if b'"inferometer.' in path.read_bytes()[:200]:
            raise  # it is ours but invalid: that error says more than "no importer knows this file"
    return import_file(path)


def name_of_result(what: Result) -> str | None:
    """What a person would call it: the file, the run; None for a value that was never named."""
    return str(what) if isinstance(what, str | Path) else None


def profile_named(what: str, store: str | Path | None) -> Profile:
    """The profile in the file of that name if there is one, else that of the stored run."""
    from inferometer.measure.bench.files import load_profile  # noqa: PLC0415 - as above
    from inferometer.store.glance import profile_at_a_glance  # noqa: PLC0415 - as above

    path = Path(what)
    if path.is_file():
        return load_profile(path)
    if "/" in what or "\\" in what:
        raise _no_file(what)
    profile = profile_at_a_glance(what, store)
    if profile is not None:
        return profile
    try:
        with open_chosen(store) as runs:
            run = runs.get(what)
    except (MissingDependencyError, UnknownNameError):
        if path.suffix:
            raise _no_file(what) from None
        raise
    if run.profile is None:
        raise DomainError(f"Run {run.id} is {run.status} and has no profile.", remedy="Measure it again.")
    return run.profile


def _no_file(what: str) -> InferometerError:
    return InferometerError(f"There is no file {what}.", remedy="Save one with `inferometer profile MODEL -o FILE`.")


def open_chosen(location: str | Path | None, *, create: bool = False) -> Store:
    """The store of that place, or the user's own. A file that is not there is made only to write into it."""
    from inferometer.store.location import require_database  # noqa: PLC0415 - only who reads runs needs it

    require_database()
    from inferometer.store.location import locate  # noqa: PLC0415 - as above
    from inferometer.store.store import open_store  # noqa: PLC0415 - as above

    file = None if location is None else locate(location).file
    if file is not None and not create and not file.exists():
        raise DomainError(
            f"There is no store {file}.", remedy="Check the name. What measures, imports or creates makes a new one."
        )
    return open_store(location)
