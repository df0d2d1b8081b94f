"""`inferometer accuracy`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.options import format_option, print_table, say
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.accuracy.judge import Judged

_ALONE = (
    "No calibration: what a device that nobody measured gets. Class priors were made from measurements on an H200 and "
    "with published speeds in sight, so those cases are seen here."
)
_LEFT_OUT = (
    "The same with each device left out: what the cases of all others say of the priors is put in before it is "
    "predicted, so that nothing of its own is in its prediction. How wide intervals are was chosen over all of them."
)
_PEERS = (
    "What they say of the same models and sizes on an H200. They know no runtime: each stands beside what was measured "
    "with every one."
)
_GROUPS = {
    "phase": ("device", "runtime", "phase", "format", "how"),
    "family": ("family", "runtime", "how"),
    "model": ("model", "runtime", "how"),
    "op": ("longest op", "runtime", "how"),
}
_DEVICES = ("unit", "device", "how")


@click.command("accuracy")
@click.option("--device", metavar="NAME", help="Cases of one device.")
@click.option("--runtime", metavar="NAME", help="Cases of one runtime.")
@click.option("--by", type=click.Choice(tuple(_GROUPS)), default="phase", show_default=True, help="How to group them.")
@click.option("--priors", is_flag=True, help="Without calibrations: datasheets and class priors alone.")
@click.option("--left-out", is_flag=True, help="As --priors, with each device left out of them in turn.")
@click.option("--peers", is_flag=True, help="Other tools' errors on the same cases.")
@click.option("--aims", is_flag=True, help="What is aimed at, and whether it is reached.")
@click.option(
    "--cases", "folder", type=click.Path(path_type=Path), metavar="FOLDER", help="Your own cases (JSON lines)."
)
@click.option("--chart", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: .svg, .png, .html or .json.")
@format_option
def command(
    device: str | None,
    runtime: str | None,
    by: str,
    priors: bool,
    left_out: bool,
    peers: bool,
    aims: bool,
    folder: Path | None,
    chart: Path | None,
    form: str,
) -> None:
    """Predict measured cases and say how far off the predictions are, and how often their intervals hold.

    \b
    inferometer accuracy --device nvidia-h200
    inferometer accuracy --runtime torch-compile --by model --chart accuracy.svg
    inferometer accuracy --priors
    inferometer accuracy --left-out

    Cases that a calibration was fitted to are predicted by one fitted again without their model.
    """
    from inferometer.accuracy.cases import CASES, read_cases, read_peers
    from inferometer.accuracy.judge import by_group, judge_cases, peer_errors
    from inferometer.accuracy.left_out import device_errors, leave_devices_out, unseen
    from inferometer.asking.files import own_folder
    from inferometer.report.accuracy import peer_table, standing_table, target_table

    if chart is not None:
        from inferometer.report.charts.render import require_form

        require_form(chart)
    cases = _chosen(read_cases(folder or CASES), device, runtime)
    if left_out:
        devices, refused = leave_devices_out(cases)
        judged = unseen(devices)
    else:
        judged, refused = judge_cases(cases, priors=priors, folders=(own_folder(),))
    for reason in refused:
        say(f"inferometer: left out {reason}")
    words = form in {"table", "md"}
    if aims:
        from inferometer.accuracy.targets import against_aims

        print_table(target_table(against_aims(judged, unseen(leave_devices_out(cases)[0])), text=words), form)
    elif left_out:
        print_table(standing_table(device_errors(devices), _DEVICES, text=words), form)
    elif peers:
        print_table(peer_table(peer_errors(judged, read_peers(folder or CASES)), text=words), form)
    else:
        groups = by_group(judged, _group(by))
        print_table(standing_table(groups, _GROUPS[by], text=words), form)
    if chart is not None:
        _draw(judged, chart)


def page() -> str:
    """docs/accuracy.md: every shipped case, with the shipped calibrations and with priors alone."""
    from inferometer.accuracy.page import accuracy_findings
    from inferometer.report.accuracy import accuracy_page, peer_table, standing_table, target_table

    found = accuracy_findings()
    return accuracy_page(
        [
            ("Aims", "", target_table(found.aims)),
            ("By phase", "", standing_table(found.by_phase, _GROUPS["phase"])),
            ("By family", "", standing_table(found.by_family, _GROUPS["family"])),
            ("By the kind of op that is longest", "", standing_table(found.by_op, _GROUPS["op"])),
            (
                "Datasheets and priors alone",
                _ALONE,
                standing_table(found.priors_by_phase, _GROUPS["phase"]),
            ),
            ("Devices left out", _LEFT_OUT, standing_table(found.devices_left_out, _DEVICES)),
            (
                "Other tools",
                _PEERS,
                peer_table(found.peers),
            ),
        ]
    )


def _chosen(cases: "Sequence[Any]", device: str | None, runtime: str | None) -> list[Any]:
    found = [case for case in cases if device in {None, case.device} and runtime in {None, case.runtime}]
    if not found:
        there = [case for case in cases if case.device == device]  # then only the runtime is another
        known = sorted({case.runtime for case in there} or {case.device for case in cases})
        raise DomainError(
            f"There are no measured cases of {runtime or 'any runtime'} on {device or 'any device'}.",
            remedy=f"There are some of {', '.join(known)}." if known else "Give a folder with cases: --cases.",
        )
    return found


def _group(by: str) -> Any:
    from inferometer.accuracy.judge import groups_of

    names = groups_of(by)
    return lambda each: (*names(each), each.how)


def _draw(judged: "Sequence[Judged]", path: Path) -> None:
    from inferometer.accuracy.judge import chart_rows
    from inferometer.report.accuracy import accuracy_chart
    from inferometer.report.charts.render import save

    save(accuracy_chart(chart_rows(judged)), path)
    say(f"Drew {path}.")
