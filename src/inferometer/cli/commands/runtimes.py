"""`inferometer runtimes`."""

import click

from inferometer.cli.options import format_option, print_table, say


@click.command("runtimes")
@format_option
def command(form: str) -> None:
    """List the engines that can run a model, and what each still needs.

    No engine is imported.
    """
    from inferometer.core.plugins import listed
    from inferometer.engines.listing import runtime_records
    from inferometer.understand.view.listings import runtime_table

    records, broken = runtime_records(listed("inferometer.runtimes"))
    print_table(runtime_table(records), form)
    for error in broken:
        say(f"inferometer: {error}")
