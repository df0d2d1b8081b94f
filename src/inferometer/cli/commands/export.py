"""`inferometer export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.options import OutputFile, format_option, print_table, refuse_given, say
from inferometer.cli.storing import hub_client, hub_options, open_chosen, store_option
from inferometer.core.errors import PlaceError
from inferometer.core.settings import value_of
from inferometer.core.units import counted
from inferometer.understand.view.table import Column, ReportTable

if TYPE_CHECKING:
    from inferometer.hub.places.hub_client import Pushed


@click.command("export")
@click.argument("runs", nargs=-1, metavar="[RUN…]")
@click.option(
    "-o", "--out", type=OutputFile(there=True), metavar="FILE",
    help="The file to write: .html .md .csv .json .svg .png, or .zip for the whole run.",
)  # fmt: skip
@click.option("--chart", metavar="NAME", help="Save one chart instead, as .svg, .png or .json.")
@click.option("--force", is_flag=True, help="Overwrite an archive that exists.")
@click.option("--send", is_flag=True, help="Send it to the hub that is set, else to this machine's own.")
@click.option("--project", metavar="NAME", help="With --hub: put the runs into this project there.")
@hub_options
@store_option
@format_option
def command(
    runs: tuple[str, ...], out: Path | None, chart: str | None, force: bool, send: bool, project: str | None,
    store: str | None, form: str, **hub: Any,
) -> None:  # fmt: skip
    """Save a run as a file: a page that needs no server, Markdown, CSV, JSON, a trace, a chart, or the whole run.

    \b
    inferometer export last -o report.html
    inferometer export last -o summary.md
    inferometer export last -o layers.csv
    inferometer export last -o trace.json
    inferometer export last -o dataflow.svg
    inferometer export last -o roofline.svg --chart roofline
    inferometer export last -o run.zip
    inferometer export last nightly --hub https://bench-box:8077

    RUN is a run as `inferometer runs` lists it, or the file of a saved profile. trace.json, or any name that ends with
    .trace.json, is a trace for Perfetto and Chrome; any other .json is the profile. Charts: layers, kinds, kinds-count,
    units, units-count, roofline, histogram, tokens, memory; of a load test ttft-load, tpot-load, e2e-load,
    throughput-load, timeline, in-flight, ttft-histogram, tpot-histogram, e2e-histogram, gap-histogram. The .csv of a
    load test has a row a request. run.zip has the run with its profile, metrics and files: `import` takes it in again.

    Without -o, runs are sent to a team's hub: --hub, or the setting INFEROMETER_PUSH or INFEROMETER_HUB, with a token
    of the scope write. Without RUN it sends what could not be sent before. A run keeps its id: sent twice, it is there
    once.
    """
    if out is None:
        if not (send or hub["hub"] or value_of("INFEROMETER_PUSH") or value_of("INFEROMETER_HUB")):
            raise click.UsageError("Say where to: -o FILE, or --hub URL.", ctx=click.get_current_context())
        _print_sent(runs, project, store, form, **hub)
        return
    refuse_given({"send"}, "{} sends, and -o saves.", "Say one of them.")
    if len(runs) != 1:
        raise click.UsageError(f"{out} takes one run, and {len(runs)} are named.", ctx=click.get_current_context())
    if out.suffix == ".zip":
        from inferometer.cli.commands.runs import print_archived

        print_archived(runs[0], out, store, form, force=force)
        return
    from inferometer.hub.web.downloads import export

    export(runs[0], out, chart=chart, store=store)
    say(f"Saved {out}.")


def _print_sent(
    runs: tuple[str, ...], project: str | None, store: str | None, form: str, *, hub: str | None, token: str | None,
    token_file: Path | None,
) -> None:  # fmt: skip
    """Send stored runs, with their profiles, metrics and files; without any, those that could not be sent before."""
    from inferometer.hub.places.hub_client import push

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
