"""`inferometer devices`."""

import click

from inferometer.cli.options import format_option, print_card, print_document, print_table
from inferometer.cli.subcommands import Listing


@click.group("devices", cls=Listing, invoke_without_command=True)
@click.option(
    "--where", multiple=True, metavar="CONDITION", help="Keep those it holds for; may be given several times."
)
@format_option
@click.pass_context
def command(context: click.Context, where: tuple[str, ...], form: str) -> None:
    """List devices, or show one with the source of every number.

    \b
    inferometer devices --where unit=gpu --where "memory>=80GB"
    inferometer devices show nvidia-h200
    inferometer devices show nvidia-h200 --format json
    inferometer devices show my-board.toml
    inferometer devices show local

    Fields for --where: name, title, vendor, unit, kind, family, chip, year, memory, bandwidth, power, price, cores,
    clock, ops_per_joule, and each number format (f32, bf16, i8 …) for its peak. Comparisons: = != > >= < <= and ~
    (contains). A device whose figure is not known is left out.
    """
    if context.invoked_subcommand is not None:
        return
    from inferometer.catalog import devices
    from inferometer.catalog.where import matching
    from inferometer.report.listings import device_table
    from inferometer.report.records import DEVICE_FIELDS, device_record

    efficiency = any("ops_per_joule" in condition for condition in where)
    records = [device_record(found, efficiency=efficiency) for found in devices().values()]
    print_table(device_table(matching(records, where, DEVICE_FIELDS)), form)


@command.command("show")
@click.argument("name")
@format_option
def show(name: str, form: str) -> None:
    """Show one device: a catalog name or alias, a TOML file, or `local`."""
    from inferometer.catalog import device
    from inferometer.core.codec import document
    from inferometer.report.cards import device_card

    found = device(name)
    if form == "json":
        print_document(document(found))
    else:
        print_card(device_card(found), form)
