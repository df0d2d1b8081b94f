"""`inferometer doctor`."""

import click

from inferometer.cli.options import TIME, format_option, print_document, print_table, print_text, say
from inferometer.core.errors import GateError
from inferometer.core.units import format_quantity, parse_quantity


@click.command("doctor")
@click.option("--interval", type=TIME, default="1 s", help="How long to watch the load.")
@click.option("--strict", is_flag=True, help="Exit with 1 if the machine is not quiet enough to measure on.")
@format_option
def command(interval: str, strict: bool, form: str) -> None:
    """Check in one minute whether this machine is fit to measure on.

    It looks at load, pressure, steal, memory, disk, network, kernel errors, clocks, throttling, limits, versions and
    what holds jobs of others, and prints a verdict for each, with a remedy if one is needed. What cannot be read here
    is listed with the reason.
    """
    from inferometer.hub.box.found import means_here
    from inferometer.known.machine.detect import LocalMachine, detect_host
    from inferometer.known.machine.health import judge, overall, take

    seconds = parse_quantity(interval, "s")
    machine = LocalMachine()
    say(f"Watching for {format_quantity(seconds, 's')} …")
    checks = judge(take(machine, detect_host(machine), interval_s=seconds, box=means_here))
    verdict = overall(checks)
    if form == "json":
        import msgspec

        print_document({"overall": msgspec.to_builtins(verdict), "checks": msgspec.to_builtins(checks)})
    elif form == "table":
        from inferometer.understand.view.terminal import draw_verdicts

        print_text(draw_verdicts([(check.verdict, check.title, check.found, check.remedy) for check in checks]))
        print_text("")
        print_text(draw_verdicts([(verdict.verdict, "Overall", verdict.found, None)]))
    else:
        from inferometer.understand.view.listings import check_table

        print_table(check_table(checks), form)
    if strict and not verdict.quiet:
        raise GateError(f"This machine is not fit to measure on: {verdict.found}.")
