"""`inferometer export`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferometer.cli.options import say
from inferometer.cli.outputs import OutputFile
from inferometer.cli.storing import open_chosen, store_option
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from inferometer.core.run import Run
    from inferometer.store.values import Metric

_FORMS = ("trace.json", "html", "md", "csv", "json", "svg", "png")


@click.command("export")
@click.argument("run")
@click.option(
    "-o",
    "--out",
    type=OutputFile(),
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
    from inferometer.hub.downloads import exported_chart, exported_run
    from inferometer.hub.serving import require_web
    from inferometer.profiler.files import write_whole

    form = _form(out, chart)
    if form == "html":
        require_web()
    stored, metrics = _run_and_metrics(run, store)
    data = exported_run(stored, form, metrics) if chart is None else exported_chart(stored, chart, form)
    write_whole(out, [data])
    say(f"Saved {out}.")


def _form(path: Path, chart: str | None) -> str:
    name = path.name.lower()
    form = next((form for form in _FORMS if name == form or name.endswith(f".{form}")), None)
    if form is None:
        raise DomainError(
            f"{path.name!r} has no suffix that says what to save.", remedy="Use .html, .md, .csv, .json or .svg."
        )
    if chart is not None and form not in {"svg", "png", "json"}:
        raise DomainError(f"A chart cannot be saved as {path.name!r}.", remedy="Use .svg, .png or .json.")
    if chart is None and form == "png":
        raise DomainError("A .png can only be a chart.", remedy="Name one, for example --chart layers.")
    return form


def _run_and_metrics(run: str, store: str | None) -> "tuple[Run, tuple[Metric, ...]]":
    path = Path(run)
    if path.suffix == ".json" and path.is_file():
        from inferometer.bench.files import load_profile
        from inferometer.core.run import Run

        profile = load_profile(path)
        created = profile.provenance.created if profile.provenance else ""
        return Run(id=path.stem, project="file", status="finished", created=created, profile=profile), ()
    with open_chosen(store) as opened:
        stored = opened.get(run)
        return stored, opened.metrics(stored.id)
