"""Storing runs, for every command that measures: the options, and the line that says where the run is."""

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from inferometer.cli.options import say
from inferometer.errors import DomainError, InferometerError, MissingDependencyError, UnknownNameError

if TYPE_CHECKING:
    from inferometer.core.profile import Profile
    from inferometer.store.recording import RunRecorder
    from inferometer.store.store import Store


def store_option(function: click.decorators.FC) -> click.decorators.FC:
    """Use another store than the user's own."""
    explanation = "Where runs are stored: a file, or postgresql://….  [default: your own store]"
    return click.option("--store", metavar="FILE|URL", callback=_or_from_the_group, help=explanation)(function)


def _or_from_the_group(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """`inferometer runs --store FILE show last` means the same as with the option at the end."""
    above = None if context.parent is None else context.parent.params.get(parameter.name or "")
    return above if value is None else value


def storing_options(function: click.decorators.FC) -> click.decorators.FC:
    """`--project --tag --name --no-store --store`: what `recording_from` reads."""
    for option in reversed((
        click.option("--project", default="default", metavar="NAME", help="The project to store the run in."),
        click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag the run; may be repeated."),
        click.option("--name", metavar="NAME", help="Name the run."),
        click.option("--no-store", is_flag=True, help="Do not store the run."),
        store_option,
    )):  # fmt: skip
        function = option(function)
    return function


class StoringOptions(TypedDict):
    """The values of `storing_options`."""

    project: str
    tags: tuple[str, ...]
    name: str | None
    no_store: bool
    store: str | None


def recording_from(options: StoringOptions, *, kind: str, **parameters: str) -> "RunRecorder":
    """The recorder that the options ask for."""
    from inferometer.store.recording import recording

    return recording(
        options["project"],
        store=options["store"],
        enabled=not options["no_store"],
        name=options["name"],
        tags=options["tags"],
        kind=kind,
        parameters=parameters,
    )


def print_run_link(recorder: "RunRecorder") -> None:
    """Say where the run is, or why it was not stored; nothing if it was not meant to be."""
    if recorder.link is not None:
        say(f"Run {recorder.id}: {recorder.link}")
    elif recorder.skipped is not None:
        say(f"inferometer: the run was not stored. {recorder.skipped}")


def profile_named(what: str, store: str | None) -> "Profile":
    """The profile in the file of that name if there is one, else that of the stored run."""
    from inferometer.bench.files import load_profile

    path = Path(what)
    if path.is_file():
        return load_profile(path)
    if "/" in what or "\\" in what:
        raise _no_file(what)
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


def open_chosen(location: str | Path | None) -> "Store":
    from inferometer.store.dependency import require_database

    require_database()
    from inferometer.store.store import open_store

    return open_store(location)
