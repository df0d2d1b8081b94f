"""Keeping runs, for every command that measures: the options, and the line that tells where the run is."""

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from inferometer.cli.options import say

if TYPE_CHECKING:
    from inferometer.store.recording import RunRecorder
    from inferometer.store.store import Store


def store_option(function: click.decorators.FC) -> click.decorators.FC:
    """Another store than the user's own."""
    words = "Another store than yours: a file, or postgresql://…."
    return click.option("--store", metavar="FILE|URL", callback=_or_of_the_group, help=words)(function)


def _or_of_the_group(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """`inferometer runs --store FILE show last` means the same as with the option at the end."""
    above = None if context.parent is None else context.parent.params.get(parameter.name or "")
    return above if value is None else value


def storing_options(function: click.decorators.FC) -> click.decorators.FC:
    """`--project --tag --name --no-store --store`: what `recording_from` reads."""
    for option in reversed((
        click.option("--project", default="default", show_default=True, help="The project the run stands under."),
        click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag of the run; may be given again."),
        click.option("--name", help="What to call the run."),
        click.option("--no-store", is_flag=True, help="Keep no run."),
        store_option,
    )):  # fmt: skip
        function = option(function)
    return function


class StoringOptions(TypedDict):
    """What `storing_options` puts into a command's parameters."""

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


def tell(recorder: "RunRecorder") -> None:
    """Where the run is, or why it is nowhere; nothing where none was asked for."""
    if recorder.link is not None:
        say(f"Run {recorder.id}: {recorder.link}")
    elif recorder.skipped is not None:
        say(f"inferometer: the run was not stored. {recorder.skipped}")


def open_chosen(place: str | Path | None) -> "Store":
    from inferometer.store.dependency import require_database

    require_database()
    from inferometer.store.store import open_store

    return open_store(place)
