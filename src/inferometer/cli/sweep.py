"""`inferometer sweep`."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.options import format_option, print_document, print_table, say
from inferometer.errors import DomainError, FormatError
from inferometer.units import format_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from inferometer.sweep import Progress, Rows, RowSource, Spec, Study

_FILES = {".csv", ".parquet", ".sqlite", ".db"}
_BAR = 24
_REDRAW_S = 0.1
_AXES = {
    "models": "Names of the catalog, files or folders.",
    "devices": "Names of the catalog, or TOML files.",
    "runtimes": "Whose overheads to count.  [default: by the kind of device]",
    "weights": "Formats.  [default: the model's]",
    "activations": "Formats.",
    "kv": "Formats.",
    "batch": "Sequences at once.",
    "prompt": "Tokens to read.",
    "generate": "Tokens to write.",
    "context": "Tokens in the cache at a decode step.",
    "image": "Pixels a side.",
    "tp": "Devices that share each layer.",
    "pp": "Devices that share the layers.",
    "ep": "Devices that share the experts.",
    "dp": "Replicas.",
}


def _axis_options(function: click.decorators.FC) -> click.decorators.FC:
    for name, words in reversed(_AXES.items()):
        function = click.option(f"--{name}", metavar="LIST", help=words)(function)
    return function


@click.command("sweep")
@click.argument("source", required=False, type=click.Path(path_type=Path), metavar="[SPEC.toml|FILE]")
@_axis_options
@click.option("--priors", is_flag=True, help="Without the calibrations of devices, where there are some.")
@click.option("--details", is_flag=True, help="Also columns with the ends of each time's interval, and with bounds.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write rows: .csv, .parquet or .sqlite.")
@click.option("--engine", default="local", show_default=True, help="local, local:N processes, or dask://HOST:PORT.")
@click.option("--resume", is_flag=True, help="Continue the unfinished sweep of --out, if there is one.")
@click.option("--pareto", metavar="A,B", help="Show the rows that no other is better than in these columns.")
@click.option("--cheapest", multiple=True, metavar="CONDITION", help='Show the cheapest device with "tpot_s<=50ms".')
@click.option("--by", default="usd_per_million_tokens", show_default=True, help="What --cheapest means by cheap.")
@click.option("--heatmap", metavar="X,Y,VALUE", help="What --chart draws, unless it draws --pareto.")
@click.option("--chart", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: .svg, .png, .html or .json.")
@click.option("--rows", "most", default=20, show_default=True, help="Rows to show in a table.")
@format_option
def command(
    source: Path | None,
    priors: bool,
    details: bool,
    out: Path | None,
    engine: str,
    resume: bool,
    form: str,
    **asked: Any,
) -> None:
    """Predict every combination of models, devices, formats and sizes: each row is what `predict` says of it.

    \b
    inferometer sweep --models llama-3.1-8b --devices nvidia-l4,nvidia-h200 --batch 1-64*2 --context 1024,8192
    inferometer sweep grid.toml --out rows.parquet --engine local:4
    inferometer sweep rows.parquet --pareto tpot_s,usd_per_million_tokens --chart front.svg
    inferometer sweep rows.csv --cheapest "tpot_s<=50ms" --cheapest "ttft_s<=1s"

    A LIST has commas; numbers may be ranges: 1-8, 0-4096+512, 1-64*2. SPEC.toml has the same names as keys; options
    stand above it. FILE is what --out has written. What cannot be is a row that says why.
    """
    axes = {name: asked.pop(name) for name in _AXES}
    _require_questions(asked)
    if source is not None and source.suffix.lower() in _FILES:
        _require_alone(source, axes, out)
        from inferometer.sweep import Saved

        _answer(Saved(source), asked, form)
        return
    study = _study(_spec(source), axes, priors=priors, details=details or _asks_details(asked))
    if out is None:
        if resume:
            raise DomainError("--resume needs --out: without a file there is nothing to continue.")
        _answer(_computed(study, engine), asked, form)
        return
    _write(study, out, engine, resume=resume)
    if asked["pareto"] or asked["cheapest"] or asked["chart"]:
        from inferometer.sweep import Saved

        _answer(Saved(out), asked, form)


def _require_questions(asked: dict[str, Any]) -> None:
    """What cannot be answered is said before anything is computed."""
    from inferometer.sweep import parse_condition
    from inferometer.sweep.columns import column_named

    columns, cells = _split(asked["pareto"]), _split(asked["heatmap"])
    for name in (*columns, *cells, asked["by"]):
        column_named(name)
    for condition in asked["cheapest"]:
        parse_condition(condition)
    if cells and len(cells) != 3:
        raise DomainError("--heatmap takes three columns: two inputs and a value.", remedy="batch,context,tpot_s")
    if cells and asked["chart"] is None:
        raise DomainError("--heatmap says what --chart draws.", remedy="Add --chart FILE.svg.")
    if asked["chart"] is not None:
        from inferometer.report.charts.render import require_form

        require_form(asked["chart"])
        if not cells and len(columns) != 2:
            raise DomainError(
                "--chart draws a front or a heat map.",
                remedy="Add --pareto A,B with two columns, or --heatmap X,Y,VALUE.",
            )


def _asks_details(asked: dict[str, Any]) -> bool:
    """Whether a question is about a column that only rows with details have."""
    from inferometer.sweep import DETAILS, parse_condition

    limited = (parse_condition(text).column for text in asked["cheapest"])
    return not DETAILS.keys().isdisjoint((*_split(asked["pareto"]), *_split(asked["heatmap"]), asked["by"], *limited))


def _require_alone(source: Path, axes: dict[str, str | None], out: Path | None) -> None:
    given = [f"--{name}" for name, value in axes.items() if value is not None] + (["--out"] if out else [])
    if given:
        raise DomainError(f"{source} has its rows already; {given[0]} cannot change them.", remedy="Leave it out.")


def _spec(source: Path | None) -> "Spec":
    from inferometer.sweep import Spec, parse_spec

    if source is None:
        return Spec()
    try:
        return parse_spec(source.read_text(encoding="utf-8"), source.name)
    except OSError as error:
        raise FormatError(f"{source} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise FormatError(f"{source} is no text.", remedy="A spec is a TOML file.") from None


def _study(spec: "Spec", given: dict[str, str | None], *, priors: bool, details: bool) -> "Study":
    """Lists on the command line stand above the spec's."""
    from inferometer.asking.ask import device_for, model_graph
    from inferometer.sweep import parse_axis, study_of

    lists = {name: parse_axis(name, text) for name, text in given.items() if text is not None}
    axes: dict[str, Any] = {**spec.axes, **lists}
    finders: dict[str, Callable[[Any], Any]] = {"models": model_graph, "devices": device_for}
    for name, find in finders.items():
        if isinstance(axes.get(name), list):
            axes[name] = [find(entry) if isinstance(entry, str) else entry for entry in axes[name]]
    calibrated = not (priors or spec.priors)
    return study_of(axes, calibrated=calibrated, options=spec.options, details=details or spec.details)


def _computed(study: "Study", engine: str) -> "Rows":
    from inferometer.sweep import run_study

    bar = _progress_bar()
    try:
        return run_study(study, engine=engine, progress=bar)
    finally:
        _wipe(bar)


def _write(study: "Study", out: Path, engine: str, *, resume: bool) -> None:
    from inferometer.sweep import stream

    bar = _progress_bar()
    try:
        written = stream(study, out, engine=engine, resume=resume, progress=bar)
    except KeyboardInterrupt:
        _wipe(bar)
        say(f"What was computed of {out} is kept beside it. The same command with --resume goes on from there.")
        raise
    finally:
        _wipe(bar)
    rate = (written.rows - written.kept) / written.seconds if written.seconds else 0.0
    kept = f", {written.kept:,} of them from before" if written.kept else ""
    impossible = f" {written.impossible:,} of them cannot be, and say why." if written.impossible else ""
    say(f"Wrote {written.rows:,} rows to {out}{kept} ({rate:,.0f} rows/s).{impossible}")


def _answer(rows: "RowSource", asked: dict[str, Any], form: str) -> None:
    """What was asked about the rows; the rows themselves where nothing was."""
    columns = _split(asked["pareto"])
    if columns:
        front = rows.pareto(*columns, ties=False)
        _show(front, form, asked["most"], f"Nothing is better in {' and '.join(columns)}")
    if asked["cheapest"]:
        found, wanted = rows.cheapest(*asked["cheapest"], by=asked["by"]), " and ".join(asked["cheapest"])
        if not len(found):
            raise DomainError(
                f"No row that fits into memory meets {wanted} and has its {asked['by']} known.",
                remedy="Loosen a condition, or choose another column with --by.",
            )
        _show(found, form, asked["most"], f"The cheapest of each device with {wanted}, by {asked['by']}")
    if asked["chart"] is not None:
        _draw(rows, asked, columns)
    if not (columns or asked["cheapest"] or asked["chart"]):
        _show(rows, form, asked["most"], None)


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _show(rows: "RowSource", form: str, most: int, title: str | None) -> None:
    from inferometer.report.sweeps import sweep_table

    if form == "csv":
        for text in _csv(rows):
            sys.stdout.write(text)
    elif form == "json":
        print_document(list(rows.records()))
    else:
        print_table(sweep_table(rows, most=most, title=title), form)


def _csv(rows: "RowSource") -> "Iterator[str]":
    from inferometer.sweep import COLUMNS
    from inferometer.sweep.formats import as_csv, csv_head

    columns: Iterable[str] | None = None
    for part in rows.parts:
        if columns is None:
            columns = part.columns
            yield csv_head(columns).decode()
        yield as_csv([part]).decode()
    if columns is None:
        yield csv_head(COLUMNS).decode()


def _draw(rows: "RowSource", asked: dict[str, Any], columns: list[str]) -> None:
    from inferometer.report.charts import heatmap, pareto_scatter
    from inferometer.report.charts.render import save

    cells = _split(asked["heatmap"])
    drawn = heatmap(rows, *cells) if cells else pareto_scatter(rows, *columns)
    save(drawn, asked["chart"])
    say(f"Drew {asked['chart']}.")


def _progress_bar() -> "Callable[[Progress], None] | None":
    """A line on stderr that is drawn over again; None where nobody would see it."""
    if not sys.stderr.isatty():
        return None
    drawn = 0.0

    def draw(progress: "Progress") -> None:
        nonlocal drawn
        now = time.monotonic()
        if now - drawn < _REDRAW_S:
            return
        drawn = now
        share = progress.done / progress.total
        full, left = round(_BAR * share), progress.remaining_s
        wait = "" if left is None else f", {format_quantity(left, 's', digits=2)} left"
        bar = "█" * full + "·" * (_BAR - full)
        rows = f"{progress.done:,} of {progress.total:,} rows, {progress.rate:,.0f} rows/s"
        sys.stderr.write(f"\r\x1b[K{bar} {share:.0%}  {rows}{wait}")
        sys.stderr.flush()

    return draw


def _wipe(bar: object) -> None:
    if bar is not None:
        sys.stderr.write("\r\x1b[K")
