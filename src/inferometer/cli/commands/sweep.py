"""`inferometer sweep`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.options import (
    OutputFile,
    Whole,
    field_options,
    format_option,
    list_option,
    list_options,
    listed,
    option_of,
    print_document,
    print_table,
    print_text,
    say,
    taken,
)
from inferometer.cli.progress import bar, progress_line
from inferometer.core.errors import DomainError, FormatError, InferometerError
from inferometer.core.units import counted, format_duration
from inferometer.predict.fields import AXES, FIELDS, SWEPT, fields_that
from inferometer.predict.flags import FLAGS, options_from, parse_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from inferometer.predict.options import Options
    from inferometer.predict.sweep import Progress, Rows, RowSource, Spec, Study

_FILES = {".csv", ".parquet", ".sqlite", ".db"}  # what --out writes; any other file is a spec
_LISTS = {name: field for axis in AXES for name, field in FIELDS.items() if field.axis == axis}
_FOR_ALL = {name: field for name, field in FIELDS.items() if (field.keyword or name) in SWEPT and not field.axis}


@click.command("sweep")
@click.argument("source", required=False, type=click.Path(path_type=Path), metavar="[SPEC.toml|FILE]")
@list_option("--models", help="Catalog names, files or folders.")
@list_option("--on", "devices", help="Devices: catalog names or TOML files.")
@list_options(_LISTS)
@field_options(_FOR_ALL | fields_that("users"))
@click.option("--details", is_flag=True, help="Add columns for the interval of each time and for what bounds it.")
@click.option("-o", "--out", type=OutputFile(), metavar="FILE", help="Write the rows: .csv, .parquet or .sqlite.")
@click.option("--engine", default="local", metavar="WHERE", help="local, local:N (processes), or dask://HOST:PORT.")
@click.option("--resume", is_flag=True, help="Continue an unfinished sweep to --out.")
@click.option("--pareto", metavar="A,B", help="Show the Pareto front: rows that no other beats in these columns.")
@click.option(
    "--cheapest", multiple=True, metavar="CONDITION", help='Show the cheapest row of each device with "tpot_s<=50ms".'
)
@click.option("--by", default="usd_per_million_tokens", metavar="COLUMN", help="What --cheapest minimises.")
@click.option("--heatmap", metavar="X,Y,VALUE", help="Draw a heat map with --chart, instead of --pareto.")
@click.option("--chart", type=OutputFile(), metavar="FILE", help="Save a chart: .svg, .png, .html or .json.")
@click.option("--rows", "most", type=Whole(1, 10_000_000), default=20, help="Rows to print in a table.")
@format_option
def command(
    source: Path | None,
    sizes: tuple[str, ...],
    priors: bool,
    prefill_on: str | None,
    details: bool,
    out: Path | None,
    engine: str,
    resume: bool,
    users: int | None,
    tokens_per_user: float | None,
    form: str,
    **questions: Any,
) -> None:
    """Predict every combination of models, devices, formats and sizes: each row is what `predict` says.

    \b
    inferometer sweep --models llama-3.1-8b --on nvidia-l4,nvidia-h200 --batch 1-64*2 --context 1024,8192
    inferometer sweep grid.toml --out rows.parquet --engine local:4
    inferometer sweep rows.parquet --pareto tpot_s,usd_per_million_tokens --chart front.svg
    inferometer sweep --models qwen3-32b --users 64 --tokens-per-user 30
    inferometer sweep rows.csv --cheapest "tpot_s<=50ms" --cheapest "ttft_s<=1s"

    A LIST is separated by commas, or the option repeated; numbers may be ranges: 1-8, 0-4096+512, 1-64*2. SPEC.toml has
    the same names as keys (devices, runtimes); options override it. FILE is what --out wrote. A combination that is
    impossible is a row that says why.
    """
    axes = {name: questions.pop(name) for name in ("models", "devices", *AXES)}
    flags = taken(questions, FLAGS)
    if users is not None or tokens_per_user is not None:
        print_cheapest(axes, options_from(flags), users, tokens_per_user, form, most=questions["most"])
        return
    _require_answerable(questions)
    if source is not None and source.suffix.lower() in _FILES:
        _require_alone(source, {**axes, "size": "".join(sizes) or None, "prefill-on": prefill_on, **flags}, out)
        from inferometer.predict.sweep import Saved

        _print_answers(Saved(source), questions, form)
        return
    spec = _spec(source)
    options = options_from(flags, spec.options)
    spec = replace(
        spec,
        options=replace(options, sizes={**options.sizes, **parse_sizes(sizes)}),
        prefill_on=prefill_on or spec.prefill_on,
        priors=priors or spec.priors,
        details=details or spec.details or _asks_details(questions),
    )
    with _study(spec, axes) as study:
        for note in study.window_notes():
            say(note)
        if out is None:
            if resume:
                raise DomainError("--resume needs --out: without a file there is nothing to continue.")
            _print_answers(_computed(study, engine), questions, form)
            return
        _write(study, out, engine, resume=resume)
    if questions["pareto"] or questions["cheapest"] or questions["chart"]:
        from inferometer.predict.sweep import Saved

        _print_answers(Saved(out), questions, form)


def _require_answerable(questions: dict[str, Any]) -> None:
    """Refuse what cannot be answered before anything is computed."""
    from inferometer.predict.sweep import parse_condition
    from inferometer.predict.sweep.columns import column_named

    columns, cells = listed(questions["pareto"]), listed(questions["heatmap"])
    for name in (*columns, *cells, questions["by"]):
        column_named(name)
    for condition in questions["cheapest"]:
        parse_condition(condition)
    if cells and len(cells) != 3:
        raise DomainError(
            "--heatmap takes three columns: two inputs and a value.", remedy="For example batch,context,tpot_s."
        )
    if cells and questions["chart"] is None:
        raise DomainError("--heatmap needs a file to draw to.", remedy="Add --chart FILE.svg.")
    if questions["chart"] is not None:
        from inferometer.understand.view.charts.render import require_form

        require_form(questions["chart"])
        if not cells and len(columns) != 2:
            raise DomainError(
                "--chart draws a Pareto front or a heat map.",
                remedy="Add --pareto A,B with two columns, or --heatmap X,Y,VALUE.",
            )


def _asks_details(questions: dict[str, Any]) -> bool:
    """Whether a question needs a column that only --details adds."""
    from inferometer.predict.sweep import DETAILS, parse_condition

    limited = (parse_condition(text).column for text in questions["cheapest"])
    return not DETAILS.keys().isdisjoint(
        (*listed(questions["pareto"]), *listed(questions["heatmap"]), questions["by"], *limited)
    )


def _require_alone(source: Path, values: dict[str, Any], out: Path | None) -> None:
    given = [option_of(name) for name, value in values.items() if value is not None]
    given += ["--out"] if out else []
    if given:
        raise DomainError(f"{source} already has its rows; {given[0]} cannot change them.", remedy="Leave it out.")


def _spec(source: Path | None) -> Spec:
    from inferometer.predict.sweep import Spec, parse_spec

    if source is None:
        return Spec()
    try:
        return parse_spec(source.read_text(encoding="utf-8"), source.name)
    except OSError as error:
        raise FormatError(f"{source} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise FormatError(f"{source} is not a text file.", remedy="A spec is a TOML file.") from None


def _study(spec: Spec, given: dict[str, str | None]) -> AbstractContextManager[Study]:
    """The study to run. Lists on the command line override the spec's."""
    from inferometer.predict.sweep import begun_study, parse_axis

    lists = {name: parse_axis(name, text) for name, text in given.items() if text is not None}
    return begun_study(
        {**spec.axes, **lists},
        calibrated=not spec.priors,
        options=spec.options,
        prefill_on=spec.prefill_on,
        details=spec.details,
    )


def _computed(study: Study, engine: str) -> Rows:
    from inferometer.predict.sweep import run_study

    with progress_line(_progress_text) as progress:
        return run_study(study, engine=engine, progress=progress)


def _write(study: Study, out: Path, engine: str, *, resume: bool) -> None:
    from inferometer.predict.sweep import journal_of, stream

    try:
        with progress_line(_progress_text) as progress:
            written = stream(study, out, engine=engine, resume=resume, progress=progress)
    except KeyboardInterrupt:
        if journal_of(out).exists():  # else there is nothing yet
            say(f"The rows computed so far are kept beside {out}. The same command with --resume continues from there.")
        else:
            say(f"No row of {out} was kept yet: the same command begins again.")
        raise
    rate = (written.rows - written.kept) / written.seconds if written.seconds else 0.0
    kept = f", {written.kept:,} of them from an earlier run" if written.kept else ""
    impossible = f" {written.impossible:,} of them are impossible, and say why." if written.impossible else ""
    say(f"Wrote {counted(written.rows, 'row')} to {out}{kept} ({rate:,.0f} rows/s).{impossible}")


def _print_answers(rows: RowSource, questions: dict[str, Any], form: str) -> None:
    """Print what was asked about the rows, or else the rows themselves."""
    from inferometer.predict.sweep.rows import without_figures
    from inferometer.understand.view.charts.render import column_title

    def words_of(column: str) -> str:
        title = column_title(column)
        return title if title[:2].isupper() else title[0].lower() + title[1:]

    columns = listed(questions["pareto"])
    if columns:
        front = rows.pareto(*columns, ties=False)
        _print_rows(front, form, questions["most"], f"Pareto front of {' and '.join(map(words_of, columns))}")
        for device, missing in without_figures(rows.parts, columns).items():
            say(f"{device} is not in it: its {' and '.join(map(words_of, missing))} is not known.")
    if questions["cheapest"]:
        cheapest, wanted = (
            rows.cheapest(*questions["cheapest"], by=questions["by"]),
            " and ".join(questions["cheapest"]),
        )
        if not len(cheapest):
            raise DomainError(
                f"No row that fits into memory meets {wanted} and has a known {questions['by']}.",
                remedy="Loosen a condition, or choose another column with --by.",
            )
        _print_rows(
            cheapest,
            form,
            questions["most"],
            f"The cheapest row of each device with {wanted}, by {words_of(questions['by'])}",
        )
    if questions["chart"] is not None:
        _save_chart(rows, questions, columns)
    if not (columns or questions["cheapest"] or questions["chart"]):
        _print_rows(rows, form, questions["most"], None)


def _print_rows(rows: RowSource, form: str, most: int, title: str | None) -> None:
    from inferometer.understand.view.sweeps import sweep_table

    if form == "csv":
        for text in _csv(rows):
            sys.stdout.write(text)
    elif form == "json":
        print_document(list(rows.records()))
    else:
        print_table(sweep_table(rows, most=most, title=title), form)


def _csv(rows: RowSource) -> Iterator[str]:
    from inferometer.predict.sweep import COLUMNS
    from inferometer.predict.sweep.formats import as_csv, csv_head

    columns: Iterable[str] | None = None
    for part in rows.parts:
        if columns is None:
            columns = part.columns
            yield csv_head(columns).decode()
        yield from (lines.decode() for lines in as_csv([part]))
    if columns is None:
        yield csv_head(COLUMNS).decode()


def _save_chart(rows: RowSource, questions: dict[str, Any], columns: tuple[str, ...]) -> None:
    from inferometer.understand.view.charts import heatmap, pareto_scatter
    from inferometer.understand.view.charts.render import save

    cells = listed(questions["heatmap"])
    chart = heatmap(rows, *cells) if cells else pareto_scatter(rows, *columns)
    save(chart, questions["chart"])
    say(f"Saved {questions['chart']}.")


def _progress_text(progress: Progress) -> str:
    left = progress.remaining_s
    wait = "" if left is None else f", {format_duration(left)} left"
    rows = f"{progress.done:,} of {progress.total:,} rows, {progress.rate:,.0f} rows/s"
    return f"{bar(progress.done / progress.total)}  {rows}{wait}"


# `inferometer sweep --users`: the cheapest way to serve so many users.

_SPLIT = ("devices", "runtimes", "weights", "tp")


def print_cheapest(
    axes: Mapping[str, str | None],
    options: Options,
    users: int | None,
    tokens_per_user: float | None,
    form: str,
    *,
    most: int,
) -> None:
    from inferometer.predict.sweep.serving import ServingSearch, cheapest_serving
    from inferometer.understand.view.serving import serving_table

    if users is None or axes["models"] is None:
        raise DomainError(
            "--users takes a number of users and --models the model that they use.",
            remedy="For example --models qwen3-32b --users 64 --tokens-per-user 30.",
        )
    unused = [
        name for name, value in axes.items() if value and name not in {*_SPLIT, "models", "kv", "prompt", "generate"}
    ]
    if unused:
        raise DomainError(
            f"{option_of(unused[0])} is not searched for users.",
            remedy=f"Searched: {', '.join(map(option_of, _SPLIT))} (lists).",
        )
    lists = {name: listed(axes[name]) for name in _SPLIT}
    search = ServingSearch(
        models=listed(axes["models"]),
        devices=lists["devices"],
        runtimes=lists["runtimes"],
        weights=lists["weights"],
        tp=tuple(_whole("tp", text) for text in lists["tp"]),
        kv=axes["kv"],
        prompt=_whole("prompt", axes["prompt"] or "1024"),
        generate=_whole("generate", axes["generate"] or "512"),
        users=users,
        tokens_per_user=tokens_per_user,
        options=options,
    )
    rows = cheapest_serving(search)
    if form == "json":
        print_document(rows)
        return
    print_table(serving_table(rows[:most]), form)
    if form == "table" and len(rows) > most:
        print_text(f"{len(rows) - most} more plans: --rows {len(rows)} shows them.")
    if tokens_per_user is not None and not any(row.get("meets") for row in rows):
        raise InferometerError(f"No plan gives {users} users {tokens_per_user:g} tokens/s each.")


def _whole(name: str, text: Any) -> int:
    try:
        return int(text)
    except ValueError:
        raise DomainError(f"--{name} takes whole numbers here, and not {text!r}.") from None
