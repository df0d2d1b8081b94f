"""`inferometer atlas`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.options import ListingGroup, Whole, format_option, print_document, print_table, print_text, say
from inferometer.core.errors import DomainError, FormatError

if TYPE_CHECKING:
    from inferometer.known.atlas.table import AtlasTable

_SHOWN = 30  # rows that fit on a screen
_DEVICES = 6  # that an error names
_NAMED = 20  # lines set aside that are told one by one


@click.group("atlas", cls=ListingGroup, invoke_without_command=True)
@click.option("--model", metavar="NAME", help="Only this model: a catalog name, or words of the published one.")
@click.option("--device", metavar="NAME", help="Only this device: a catalog name, or words of the published one.")
@click.option("--runtime", metavar="NAME", help="Only this engine.")
@click.option("--dataset", metavar="NAME", help="Only this dataset.")
@click.option("--quantity", metavar="NAME", help="Only this: forward, prefill, decode, ttft, request …")
@click.option("--unit", metavar="NAME", help="Only this unit of a chip: cpu, gpu, npu.")
@click.option("--weights", metavar="FORMAT", help="Only this format of weights.")
@click.option("--limit", type=Whole(1, 10_000_000), default=_SHOWN, help="Rows to print as a table.")
@format_option
@click.pass_context
def command(
    context: click.Context,
    model: str | None,
    device: str | None,
    runtime: str | None,
    dataset: str | None,
    quantity: str | None,
    unit: str | None,
    weights: str | None,
    limit: int,
    form: str,
) -> None:
    """Show what others have measured: published times with their sources, newest first.

    \b
    inferometer atlas --model resnet50 --device nvidia-rtx-4090
    inferometer atlas --device "galaxy s25" --runtime qnn
    inferometer atlas --model llama-3.2-1b --quantity decode --format csv
    inferometer atlas add my-table.csv

    Without any of the options it lists the datasets. --format csv writes every column, in the form that `atlas add`
    reads.
    """
    if context.invoked_subcommand is not None:
        return
    asked = {
        "model": model, "device": device, "runtime": runtime, "dataset": dataset, "quantity": quantity, "unit": unit,
        "weights": weights,
    }  # fmt: skip
    if not any(asked.values()):
        _print_sources(form)
        return
    from inferometer.known.atlas.looking import atlas

    table = atlas(**asked)
    if not len(table):
        raise _nothing(asked)
    _print_rows(table, limit, form)


def _print_rows(table: "AtlasTable", limit: int, form: str) -> None:
    from inferometer.known.atlas.shipped import source_named
    from inferometer.understand.view.published import atlas_document, listing_row, listing_table, tidy_table

    if form == "json":
        print_document(atlas_document(table))
    elif form == "csv":
        print_table(tidy_table(table.rows()), form)
    else:
        shown = table.take(range(min(limit, len(table))))
        rows = [listing_row(row, source_named(row.source)) for row in shown.rows()]
        print_table(listing_table(rows, more=len(table) - len(shown)), form)
        print_text("")
        for key in shown.distinct("source"):
            source = source_named(str(key))
            terms = "" if source.licence == "yours" else f", {source.licence}"
            print_text(f"{source.short}: {source.title}{terms}. {source.link(None)}".rstrip())


def _nothing(asked: dict[str, str | None]) -> DomainError:
    """Each name is known, but not together: say where the model was measured instead."""
    from inferometer.known.atlas.looking import atlas

    told = ", ".join(f"{name} {value}" for name, value in asked.items() if value)
    wider = {name: value for name, value in asked.items() if value and name in {"model", "device"}}
    if len(wider) == 2:
        measured = atlas(model=asked["model"])
        unnamed = measured.where(device=None).distinct("device_published")
        devices = [str(name) for name in (*measured.distinct("device"), *unnamed) if name]
        others = f" and {len(devices) - _DEVICES} other devices" if len(devices) > _DEVICES else ""
        remedy = f"{asked['model']} was measured on {', '.join(devices[:_DEVICES])}{others}."
    else:
        remedy = "Leave one of the options out."
    return DomainError(f"Nobody has published a measurement of {told}.", remedy=remedy)


@command.command("sources")
@format_option
def sources_command(form: str) -> None:
    """List the datasets with their sources and licences, and what is read but not shipped."""
    _print_sources(form)


def _print_sources(form: str) -> None:
    from inferometer.known.atlas.shipped import load, own_datasets, shipped_datasets, source_named, sources
    from inferometer.understand.view.published import source_table

    rows: list[dict[str, Any]] = []
    own = own_datasets()
    for dataset in (*shipped_datasets(), *own):
        table = load([dataset])
        for key in table.distinct("source"):
            source, part = source_named(str(key)), table.where(source=str(key))
            dates = [date for date in part.distinct("date") if date]
            rows.append(
                {
                    "dataset": dataset, "rows": len(part), "devices": len(part.distinct("device_published")),
                    "models": len(part.distinct("model_published")), "date": max(dates, default=source.date),
                    "licence": source.licence, "whose": "yours" if dataset in own else "package",
                    "title": source.title, "url": source.link(None),
                }
            )  # fmt: skip
    rows += [
        {
            "dataset": source.key, "licence": source.licence, "whose": "not shipped", "date": source.date,
            "title": source.title, "url": source.link(None),
        }
        for source in sources().values()
        if not source.shipped
    ]  # fmt: skip
    print_table(source_table(rows, addresses=form != "table"), form)


@command.command("add")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="What to call it.  [default: the file's name]")
@click.option("--again", is_flag=True, help="Replace your table of that name.")
def add_command(file: Path, name: str | None, again: bool) -> None:
    """Join a table of your own: a CSV file in our form, or in any form that the atlas reads.

    \b
    device,model,engine,quantity,figure,figure_unit,batch,weights
    raspberry-pi-5,yolov8n,litert,forward,80,ms,1,i8
    raspberry-pi-5,llama-3.2-1b,llamacpp,decode,9.5,tokens/s,1,q4_0

    A line with a wrong unit, a figure that is there already, or a time that the device cannot reach is set aside, with
    the reason. docs/atlas.md has every column.
    """
    from inferometer.known.atlas.reading import add
    from inferometer.predict.published_rows import impossible

    added = add(file, name=name, again=again, doubts=(impossible,))
    for aside in added.set_aside[:_NAMED]:
        say(f"inferometer: set aside {aside}")
    if len(added.set_aside) > _NAMED:
        say(f"inferometer: and {len(added.set_aside) - _NAMED} more lines.")
    lines = f"{len(added.set_aside)} line{'s' if len(added.set_aside) != 1 else ''} set aside"
    if not added.rows:
        raise FormatError(f"{file} has no line that can be taken: {lines}.", remedy="Mend it, and add it again.")
    say(f"Added {added.rows} measurement{'s' if added.rows != 1 else ''} as {added.dataset}; {lines}.")


@command.command("remove")
@click.argument("name")
def remove_command(name: str) -> None:
    """Remove a table of your own."""
    from inferometer.known.atlas.reading import remove

    remove(name)
    say(f"Removed {name}.")
