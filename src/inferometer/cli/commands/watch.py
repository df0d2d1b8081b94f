"""`inferometer runs watch`."""

from pathlib import Path

import click

from inferometer.cli.options import OutputFile, Whole, format_option, print_card, print_document, print_table, say
from inferometer.cli.storing import open_chosen, store_option
from inferometer.core.errors import DomainError, GateError, PlaceError
from inferometer.core.units import parse_quantity


@click.command("watch")
@click.argument("run", default="last")
@click.option("--branch", metavar="NAME", help="The series of this branch: runs with the tag branch:NAME.")
@click.option("--against", metavar="NAME", help="The branch whose runs are the baseline.  [default: as --branch]")
@click.option("--baseline", metavar="MODEL", help="The model as it was: confirm a suspicion in turns with it.")
@click.option("--rounds", type=Whole(11, 100), default=12, help="Of confirming.")
@click.option("--threshold", default="2%", metavar="SHARE", help="The smallest change that counts.")
@click.option(
    "--tell", "--webhook", "places", multiple=True, metavar="PLACE",
    help="Tell a confirmed change: https://ADDRESS, mailto:ADDRESS, github:OWNER/REPO#PULL, gitlab:…!MERGE, …@COMMIT.",
)  # fmt: skip
@click.option("--badge", type=OutputFile(), metavar="FILE", help="Write an .svg, or .json for services that draw them.")
@store_option
@format_option
def command(
    run: str,
    branch: str | None,
    against: str | None,
    baseline: str | None,
    rounds: int,
    threshold: str,
    places: tuple[str, ...],
    badge: Path | None,
    store: str | None,
    form: str,
) -> None:
    """Say whether a run is slower than its series has been, and confirm it before anybody is told.

    \b
    inferometer profile model.onnx --tag branch:main && inferometer runs watch --branch main
    inferometer runs watch --branch fix-7 --against main --baseline main/model.onnx --tell https://ci.example/hook

    A series is a model, an engine, a machine and a workload on a branch. A run that stands out from the noise of its
    series is suspected. With --baseline, both are measured in turns, round after round, and only what these show is
    confirmed. What changed on the machine is named before the code. Exit code 1: it is slower, confirmed. A place that
    names a commit gets its state either way; the others hear of what is confirmed.
    """
    from inferometer.api.watching import watch
    from inferometer.hub.telling import tell_alarm, write_badge
    from inferometer.understand.series import AlarmRule
    from inferometer.understand.view.runs import alarm_card, alarm_table

    if places and baseline is None:
        raise DomainError("Only what is confirmed is told.", remedy="Give --baseline too.")
    rule = AlarmRule(threshold=parse_quantity(threshold, "1"))
    alarm = watch(run, branch=branch, against=against, store=store, rule=rule, baseline=baseline, rounds=rounds)
    if alarm.state in {"suspected", "confirmed"}:
        with open_chosen(store) as opened:
            opened.retag(alarm.run, add=(f"alarm:{alarm.state}",))
    if form == "json":
        print_document(alarm.document())
    elif form == "csv":
        print_table(alarm_table(alarm), form)
    else:
        print_card(alarm_card(alarm), form)
    if badge is not None:
        write_badge(alarm, badge)
    for place in places:
        try:
            tell_alarm(place, alarm)
        except PlaceError as error:
            say(f"inferometer: {error}")  # the verdict stands, whoever hears of it
    if alarm.told and (alarm.ratio or 0) > 1:
        raise GateError(alarm.sentence)
