"""`inferometer export`."""

from pathlib import Path

import click

from inferometer.cli.options import say
from inferometer.cli.outputs import OutputFile
from inferometer.cli.storing import store_option


@click.command("export")
@click.argument("run")
@click.option(
    "-o",
    "--out",
    type=OutputFile(there=True),
    required=True,
    metavar="FILE",
    help="The file to write: .html .md .csv .json .svg .png",
)
@click.option("--chart", metavar="NAME", help="Save one chart instead, as .svg, .png or .json.")
@store_option
def command(run: str, out: Path, chart: str | None, store: str | None) -> None:
    """Save a run as a file: a page that needs no server, Markdown, CSV, JSON, a trace, or a chart.

    \b
    inferometer export last -o report.html
    inferometer export last -o summary.md
    inferometer export last -o layers.csv
    inferometer export last -o trace.json
    inferometer export last -o dataflow.svg
    inferometer export last -o roofline.svg --chart roofline
    inferometer export profile.json -o report.html

    RUN is a run as `inferometer runs` lists it, or the file of a saved profile. trace.json, or any name that ends with
    .trace.json, is a trace for Perfetto and Chrome; any other .json is the profile. Charts: layers, kinds, kinds-count,
    units, units-count, roofline, histogram, tokens, memory; of a load test ttft-load, tpot-load, e2e-load,
    throughput-load, timeline, in-flight, ttft-histogram, tpot-histogram, e2e-histogram, gap-histogram. The .csv of a
    load test has a row a request.
    """
    from inferometer.hub.web.exporting import export

    export(run, out, chart=chart, store=store)
    say(f"Saved {out}.")
