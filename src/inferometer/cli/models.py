"""`inferometer models`."""

import click

from inferometer.cli.options import format_option, print_card, print_document, print_table
from inferometer.cli.subcommands import Listing

__all__ = ["command"]


@click.group("models", cls=Listing, invoke_without_command=True)
@click.option(
    "--where", multiple=True, metavar="CONDITION", help="Keep those it holds for; may be given several times."
)
@format_option
@click.pass_context
def command(context: click.Context, where: tuple[str, ...], form: str) -> None:
    r"""List models, or show one.

    \b
    inferometer models --where family=llama
    inferometer models --where "parameters<=2e9"
    inferometer models show llama-3.2-1b

    Fields for --where: name, title, family, year, parameters, active, context, layers, hidden.
    """
    if context.invoked_subcommand is not None:
        return
    from inferometer.catalog import models
    from inferometer.catalog.records import MODEL_FIELDS, model_record
    from inferometer.catalog.where import matching
    from inferometer.report.listings import model_table

    records = matching(map(model_record, models().values()), where, MODEL_FIELDS)
    print_table(model_table(records), form)


@command.command("show")
@click.argument("name")
@format_option
def show(name: str, form: str) -> None:
    """Show one model of the catalog: what was published of it, and its config."""
    import msgspec

    from inferometer.catalog import model
    from inferometer.report.cards import model_card

    found = model(name)
    if form == "json":
        print_document(msgspec.to_builtins(found))
    else:
        print_card(model_card(found), form)
