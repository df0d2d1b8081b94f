"""`inferometer push`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferometer.cli.options import format_option, print_table, say
from inferometer.cli.storing import hub_options, open_chosen, store_option
from inferometer.core.errors import PlaceError
from inferometer.core.units import counted

if TYPE_CHECKING:
    from inferometer.hub.places.pushing import Pushed


@click.command("push")
@click.argument("runs", nargs=-1, metavar="[RUN…]")
@click.option("--project", metavar="NAME", help="Put the runs into this project there.  [default: their own]")
@hub_options
@store_option
@format_option
def command(
    runs: tuple[str, ...], project: str | None, hub: str | None, token: str | None, token_file: Path | None,
    store: str | None, form: str,
) -> None:  # fmt: skip
    """Send stored runs to a team's hub, with their profiles, metrics and files.

    \b
    inferometer push last --hub https://bench-box:8077
    inferometer push 574p191w9czk nightly --project phones
    inferometer push

    Without RUN it sends what could not be sent before. A run keeps its id: sent twice, it is there once. The hub comes
    from --hub, or the setting INFEROMETER_PUSH, or INFEROMETER_HUB; its token from --token, --token-file or
    INFEROMETER_TOKEN, with the scope write.
    """
    from inferometer.cli.storing import hub_client
    from inferometer.hub.places.pushing import push
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
        later = f" {counted(waiting, 'run')} waiting: `inferometer push` sends them." if waiting else ""
        raise PlaceError(f"{unsent[0].reason}{later}")


def _state(pushed: "Pushed") -> str:
    if pushed.link is not None:
        return "sent"
    return "waiting" if pushed.waits else "refused"
