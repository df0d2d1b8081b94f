"""`inferometer catalog`: the tables beside devices and models."""

from __future__ import annotations

import click

from inferometer.cli.options import ListingGroup, format_option, print_card, print_document, print_table, where_option
from inferometer.understand.view.catalog_tables import TABLES, CatalogTable, tables_table


@click.group("catalog", cls=ListingGroup, invoke_without_command=True)
@format_option
@click.pass_context
def command(context: click.Context, form: str) -> None:
    """List the catalog's other tables: links, instances, grids, PUE, memory, number formats.

    \b
    inferometer catalog
    inferometer catalog instances --where device=nvidia-h200
    inferometer catalog links show nvlink-4

    Devices and models have commands of their own: `inferometer devices`, `inferometer models`.
    """
    if context.invoked_subcommand is None:
        print_table(tables_table(), form)


def _add(table: CatalogTable) -> None:
    """The list of one table, and `show` for one of its rows."""
    condition, example = table.example
    words = f"""{table.about}

    \b
    inferometer catalog {table.name} --where "{condition}"
    inferometer catalog {table.name} show {example}

    Fields for --where: {", ".join(table.conditions)}.
    """

    @command.group(table.name, cls=ListingGroup, invoke_without_command=True, help=words)
    @where_option
    @format_option
    @click.pass_context
    def listing(context: click.Context, where: tuple[str, ...], form: str) -> None:
        if context.invoked_subcommand is not None:
            return
        from inferometer.known.where import matching

        print_table(table.table(matching(table.records(), where, table.conditions)), form)

    @listing.command("show", help="Show one row, with the source of every number.")
    @click.argument("name")
    @format_option
    def show(name: str, form: str) -> None:
        value = table.find(name)
        if form == "json":
            print_document(table.document(value))
        else:
            print_card(table.card(value), form)


for _table in TABLES.values():
    _add(_table)
