"""`inferometer devices`."""

import click

from inferometer.cli.options import ListingGroup, format_option, print_card, print_document, print_table, where_option


@click.group("devices", cls=ListingGroup, invoke_without_command=True)
@where_option
@format_option
@click.pass_context
def command(context: click.Context, where: tuple[str, ...], form: str) -> None:
    """List devices, or show one, with the source of every number.

    \b
    inferometer devices --where unit=gpu --where "memory>=80GB"
    inferometer devices show nvidia-h200
    inferometer devices show nvidia-h200 --format json
    inferometer devices show my-board.toml
    inferometer devices show local

    Fields for --where: name, title, vendor, unit, kind, family, chip, year, memory, bandwidth, power, price, cores,
    clock, ops_per_joule, and each number format (f32, bf16, i8 …) for its peak. Comparisons: = != > >= < <= and ~
    (contains). Devices whose figure is unknown are left out.
    """
    if context.invoked_subcommand is not None:
        return
    from inferometer.known.where import matching
    from inferometer.understand.view.listings import device_table
    from inferometer.understand.view.records import DEVICE_FIELDS, device_records

    efficiency = any("ops_per_joule" in condition for condition in where)
    print_table(device_table(matching(device_records(efficiency=efficiency), where, DEVICE_FIELDS)), form)


@command.command("show")
@click.argument("name")
@format_option
def show(name: str, form: str) -> None:
    """Show one device: a catalog name or alias, a TOML file, or `local`."""
    from inferometer.core.codec import document
    from inferometer.known import device as device_named
    from inferometer.understand.view.cards import device_card

    device = device_named(name)
    if form == "json":
        print_document(document(device))
    else:
        print_card(device_card(device), form)
