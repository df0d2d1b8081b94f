"""`inferometer export`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferometer.cli.options import say
from inferometer.cli.storing import open_chosen, store_option
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from inferometer.core.run import Run
    from inferometer.store.values import Metric

_FORMS = ("trace.json", "html", "md", "csv", "json", "svg", "png")


@click.command("export")
@click.argument("run")
@click.option("-o", "--out", required=True, metavar="FILE", help="The ending says what: .html .md .csv .json .svg .png")
@click.option("--chart", metavar="NAME", help="For .svg, .png and .json: one chart, such as layers or roofline.")
@store_option
def command(run: str, out: str, chart: str | None, store: str | None) -> None:
    """Save a run as a file: a page that needs no server, Markdown, CSV, JSON, a trace, or a chart.

    \b
    inferometer export last -o report.html
    inferometer export last -o summary.md
    inferometer export last -o layers.csv
    inferometer export last -o trace.json
    inferometer export last -o dataflow.svg
    inferometer export last -o roofline.svg --chart roofline
    inferometer export profile.json -o report.html

    RUN is a run as `inferometer runs` names it, or the file of a profile. trace.json, or a name that ends with
    .trace.json, is for Perfetto and Chrome; any other .json is the profile. Charts: layers, kinds, kinds-count, units,
    units-count, roofline, histogram, tokens, memory.
    """
    from inferometer.hub.downloads import made
    from inferometer.hub.serving import require_web
    from inferometer.profiler.files import write_whole

    form = _form(Path(out), chart)
    if form == "html":
        require_web()
    found, metrics = _found(run, store)
    write_whole(Path(out), [made(found, form, metrics) if chart is None else _drawn(found, chart, form)])
    say(f"Saved {out}.")


def _form(path: Path, chart: str | None) -> str:
    name = path.name.lower()
    form = next((form for form in _FORMS if name == form or name.endswith(f".{form}")), None)
    if form is None:
        raise DomainError(
            f"{path.name!r} does not say what to save.", remedy="End the name with .html, .md, .csv, .json or .svg."
        )
    if chart is not None and form not in {"svg", "png", "json"}:
        raise DomainError(f"A chart cannot be saved as {path.name!r}.", remedy="End the name with .svg, .png or .json.")
    if chart is None and form == "png":
        raise DomainError("A .png is of one chart.", remedy="Say which with --chart, as in --chart layers.")
    return form


def _found(run: str, store: str | None) -> "tuple[Run, tuple[Metric, ...]]":
    path = Path(run)
    if path.suffix == ".json" and path.is_file():
        from inferometer.bench.files import load_profile
        from inferometer.core.run import Run

        profile = load_profile(path)
        created = profile.provenance.created if profile.provenance else ""
        return Run(id=path.stem, project="file", status="finished", created=created, profile=profile), ()
    with open_chosen(store) as opened:
        found = opened.get(run)
        return found, opened.metrics(found.id)


def _drawn(run: "Run", name: str, form: str) -> bytes:
    from inferometer.hub.downloads import chart

    if run.profile is None:
        raise DomainError(f"Run {run.id} has no profile to draw: it is {run.status}.")
    return chart(run.profile, name, form)
