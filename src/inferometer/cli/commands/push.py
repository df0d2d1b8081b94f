"""`inferometer export --hub`, which was `inferometer push`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.old_spellings import COMMANDS, advise
from inferometer.cli.options import format_option, print_table, say
from inferometer.cli.storing import hub_options, open_chosen, store_option
from inferometer.core.errors import PlaceError
from inferometer.core.units import counted

if TYPE_CHECKING:
    from inferometer.hub.places.hub_client import Pushed


@click.command("push")
@click.argument("runs", nargs=-1, metavar="[RUN…]")
@click.option("--project", metavar="NAME", help="Put the runs into this project there.  [default: their own]")
@hub_options
@store_option
@format_option
def command(runs: tuple[str, ...], project: str | None, store: str | None, form: str, **hub: Any) -> None:
    """Send stored runs to a team's hub, and what could not be sent before: `inferometer export RUN --hub URL`."""
    advise("push", COMMANDS["push"])
    print_sent(runs, project, store, form, **hub)


def print_sent(
    runs: tuple[str, ...], project: str | None, store: str | None, form: str, *, hub: str | None, token: str | None,
    token_file: Path | None,
) -> None:  # fmt: skip
    """Send stored runs, with their profiles, metrics and files; without any, those that could not be sent before."""
    from inferometer.cli.storing import hub_client
    from inferometer.hub.places.hub_client import push
    from inferometer.understand.view.table import Column, ReportTable

    client = hub_client(hub, token, token_file)
    with open_chosen(store) as opened:
        answers = push(opened, client, [opened.resolve(run) for run in runs], project=project)
    if not answers:
        say(f"Nothing waits to be sent to {client.url}.")
        return
    columns = tuple(Column(key=name, heading=name) for name in ("run", "state", "link"))
    rows = tuple({"run": each.run, "link": each.link, "state": _state(each)} for each in answers)
    print_table(ReportTable(columns=columns, rows=rows), form)
    unsent = [each for each in answers if each.link is None]
    if unsent:
        waiting = sum(each.waits for each in unsent)
        later = f" {counted(waiting, 'run')} waiting: `inferometer export --hub {client.url}` sends them."
        raise PlaceError(f"{unsent[0].reason}{later if waiting else ''}")


def _state(pushed: "Pushed") -> str:
    if pushed.link is not None:
        return "sent"
    return "waiting" if pushed.waits else "refused"
