"""`inferometer demo`."""

import click

from inferometer.cli.options import print_text

__all__ = ["command"]


@click.command("demo")
def command() -> None:
    """Show what Inferometer knows about this machine, a formula and a device."""
    from inferometer.report.demo import demo_page

    print_text(demo_page())
