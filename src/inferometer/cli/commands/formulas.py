"""`inferometer formulas`."""

import click

from inferometer.cli.options import ListingGroup, format_option, print_card, print_document, print_table, print_text


@click.group("formulas", cls=ListingGroup, invoke_without_command=True)
@click.option("--section", metavar="NAME", help="Only this section: cpu, gpu, latency, roofline, llm, energy …")
@format_option
@click.pass_context
def command(context: click.Context, section: str | None, form: str) -> None:
    """List performance formulas, show one, or calculate with units.

    \b
    inferometer formulas --section llm
    inferometer formulas show ring_allreduce
    inferometer formulas calc ring_allreduce n=8 bytes=1GB bandwidth=50GB/s latency=5us
    """
    if context.invoked_subcommand is not None:
        return
    from inferometer.known.formulas.listing import formula_records
    from inferometer.understand.view.listings import formula_table

    print_table(formula_table(formula_records(section)), form)


@command.command("show")
@click.argument("name")
@format_option
def show(name: str, form: str) -> None:
    """Show one formula: arguments, units, limits, source, derivation, example."""
    from inferometer.known.formulas.listing import formula_document
    from inferometer.known.formulas.registry import find_formula
    from inferometer.understand.view.cards import formula_card

    formula = find_formula(name)
    if form == "json":
        print_document(formula_document(formula))
    else:
        print_card(formula_card(formula), form)


@command.command("calc")
@click.argument("name")
@click.argument("assignments", nargs=-1, metavar="KEY=VALUE …")
@format_option
def calc(name: str, assignments: tuple[str, ...], form: str) -> None:
    """Calculate a formula.

    Values may have units: bandwidth=3.35TB/s. A list of values (1,2,4) gives a list of results.
    """
    from inferometer.known.formulas.listing import calculation_record
    from inferometer.understand.view.listings import calculation_table

    record = calculation_record(name, assignments)
    if form == "table":
        print_text(record["text"])
    elif form == "json":
        print_document({key: record[key] for key in ("formula", "inputs", "value", "unit")})
    else:
        print_table(calculation_table(record), form)
