"""Storing runs, for every command that measures: the options, and the line that says where the run is."""

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from inferometer.api.naming import open_chosen, profile_named
from inferometer.cli.options import say, together
from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.settings import value_of
from inferometer.core.units import counted

if TYPE_CHECKING:
    from inferometer.hub.places.hub_client import HubClient
    from inferometer.store.recording import RunRecorder
    from inferometer.store.store import Store

__all__ = [
    "StoringOptions", "hub_client", "hub_options", "open_chosen", "print_run_link", "profile_named", "read_token",
    "recording_from", "store_option", "storing_options",
]  # fmt: skip


_LISTENS_S = 0.2  # this machine answers in microseconds


def store_option(function: click.decorators.FC) -> click.decorators.FC:
    """Use another store than the user's own."""
    explanation = "Where runs are stored: a file, or postgresql://….  [default: your own store]"
    return click.option("--store", metavar="FILE|URL", callback=_or_from_the_group, help=explanation)(function)


def _or_from_the_group(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """`inferometer runs --store FILE show last` means the same as with the option at the end."""
    above = None if context.parent is None else context.parent.params.get(parameter.name or "")
    return above if value is None else value


# What `hub_client` reads.
hub_options = together(
    click.option("--hub", metavar="URL", help="Also send the run to this hub.  [default: INFEROMETER_PUSH]"),
    click.option(
        "--token", metavar="TOKEN", help="Its token, better kept out of the command line.  [default: INFEROMETER_TOKEN]"
    ),
    click.option(
        "--token-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="A file with it."
    ),
)


def hub_client(hub: str | None, token: str | None, token_file: Path | None) -> "HubClient":
    from inferometer.hub.places.hub_client import HubClient, hub_address

    client = HubClient(hub_address(hub or value_of("INFEROMETER_PUSH"), token or read_token(token_file)))
    if client.in_the_clear:
        say(f"inferometer: the token goes to {client.url} unencrypted; https keeps it from others on the network.")
    return client


def read_token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise DomainError(f"The token in {path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None


# What `recording_from` reads.
storing_options = together(
    click.option("--project", default="default", metavar="NAME", help="The project to store the run in."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag the run; may be repeated."),
    click.option("--name", metavar="NAME", help="Name the run."),
    click.option("--no-store", is_flag=True, help="Do not store the run."),
    store_option,
    hub_options,
)


class StoringOptions(TypedDict):
    """The values of `storing_options`."""

    project: str
    tags: tuple[str, ...]
    name: str | None
    no_store: bool
    store: str | None
    hub: str | None
    token: str | None
    token_file: Path | None


def recording_from(
    options: StoringOptions, *, kind: str, enabled: bool = True, **parameters: str
) -> "RunRecorder":  # fmt: skip
    """The recorder that the options ask for; none, unless it is `enabled`: somebody else stores the run."""
    from inferometer.store.recording import recording

    to_hub = enabled and bool(options["hub"] or value_of("INFEROMETER_PUSH"))
    if options["hub"] and options["no_store"]:
        raise DomainError("--hub sends a stored run, and --no-store stores none.", remedy="Leave one of them out.")
    # A command that never starts is told from others by its first word, as one that was measured is.
    model = parameters.get("model") or next(iter(shlex.split(parameters.get("command", ""))), "")
    subject = {} if not model else {"model": Path(model).name if Path(model).exists() else model}
    recorder = recording(
        options["project"],
        store=options["store"],
        enabled=enabled and not options["no_store"],
        name=options["name"],
        tags=options["tags"],
        kind=kind,
        parameters=parameters,
        subject=subject,
    )
    if to_hub and not options["no_store"]:
        client = hub_client(options["hub"], options["token"], options["token_file"])  # a wrong address is told now
        recorder.then = partial(_push_and_say, client)
    return recorder


def _push_and_say(client: "HubClient", store: "Store", run: str) -> None:
    """Send the run, and what waited for this hub; that a hub is away is no reason for a measurement to fail."""
    from inferometer.hub.places.hub_client import push

    try:
        answers = push(store, client, [run])
    except InferometerError as error:
        say(f"inferometer: run {run} was not sent to {client.url}. {error}")
        return
    sent = [answer for answer in answers if answer.link is not None]
    for answer in sent:
        say(f"Run {answer.run} is at {answer.link}")
    unsent = [answer for answer in answers if answer.link is None]
    if unsent:
        waiting = counted(sum(answer.waits for answer in unsent), "run")
        waits = f" {waiting} waiting: `inferometer export --hub {client.url}` sends them."
        say(f"inferometer: {unsent[-1].reason}{waits if any(answer.waits for answer in unsent) else ''}")


def _is_served(link: str) -> bool:
    """Whether somebody listens there: of this machine it is found out at once, of others it is believed."""
    import socket
    from urllib.parse import urlsplit

    place = urlsplit(link)
    if place.hostname not in {"127.0.0.1", "localhost", "::1"}:
        return True
    try:
        with socket.create_connection((place.hostname, place.port or 80), timeout=_LISTENS_S):
            return True
    except OSError:
        return False


def print_run_link(recorder: "RunRecorder") -> None:
    """Say where the run is, or why it was not stored; nothing if it was not meant to be."""
    if recorder.link is not None:
        link = recorder.link
        say(f"Run {recorder.id}: {link if _is_served(link) else f'`inferometer hub` shows it at {link}'}")
    elif recorder.skipped is not None:
        say(f"inferometer: the run was not stored. {recorder.skipped}")
