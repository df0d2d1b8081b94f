"""`inferometer accuracy`."""

from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.options import OutputFile, Whole, format_option, print_document, print_table, say
from inferometer.core.errors import DomainError, UnknownNameError, same_but_for_case

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.understand.accuracy.judge import Judged

_ALONE = (
    "No calibration: what a device that nobody measured gets. The priors were made from measurements on an H200 and "
    "from published speeds of some of these devices, so these are no blind test; *Published measurements* has one."
)
_PEERS = (
    "Their predictions for the same models and sizes on an H200. They do not model the runtime, so each is compared "
    "with the measurements of every runtime."
)
_GROUPS = {
    "phase": ("device", "runtime", "phase", "format", "how"),
    "family": ("family", "runtime", "how"),
    "model": ("model", "runtime", "how"),
    "op": ("longest op", "runtime", "how"),
}
_MOST_PROCESSES = 8  # that a long table is shared out among: each holds graphs and priors of its own, some 0.5 GB
_REASONS = 25  # why rows are not predicted, that are listed
_EVIDENCE = (
    "The rows of *Published measurements* together, told apart by what the fit had: rows of the same table with the "
    "same device, its other models being judged; only other tables, which have the device with that engine or do not; "
    "or no table with the engine, so that others' engines stand in."
)
_PUBLISHED = (
    "What others published, predicted by a fit that lacked what *way* names: the device, its siblings being there; "
    "its whole family (every device of a generation of chips on such a unit: all of Ampere, every chip with a Hexagon"
    " v73, every CPU with a Cortex-A76); all that the engine ran on of its maker, while other engines tell of the "
    "device; the model with its siblings (all ResNets, all YOLOs), everywhere; or the source, a table with its "
    "harness, its releases and its clocks, so that its device, model and engine are known from other tables or not at"
    " all. Last, a device is known from ten of its models (timm: twenty; half of a shorter list). A model that was "
    "measured elsewhere is predicted with what it took there over what its work says. The width of each interval "
    "comes from the other half of the models; of a source left out from other sources. Of a dataset with more than "
    "8,000 steps the steps of some models are judged. *Roofline* is the median error of every op at the longer of its"
    " two peaks."
)


@click.command("accuracy")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="")
@click.option("--device", metavar="NAME", help="Only cases of this device.")
@click.option("--runtime", metavar="NAME", help="Only cases of this runtime.")
@click.option("--by", type=click.Choice(tuple(_GROUPS)), default="phase", help="How to group the cases.")
@click.option("--priors", is_flag=True, help="Use no calibrations: datasheets and class priors alone.")
@click.option("--peers", is_flag=True, help="Show the errors of other tools on the same cases.")
@click.option("--published", is_flag=True, help="What others measured, each device and model left out of the fit.")
@click.option(
    "--atlas",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Judge tables of published measurements (.csv, .csv.gz).",
)
@click.option(
    "--from-models",
    type=Whole(1, 1_000_000),
    metavar="N",
    help="With --atlas: calibrate each device from N of its models there, and judge the others.",
)
@click.option("--aims", is_flag=True, help="Show the accuracy aimed for, and whether it is reached.")
@click.option(
    "--cases", "folder", type=click.Path(path_type=Path), metavar="FOLDER", help="Your own cases (JSON lines)."
)
@click.option("--chart", type=OutputFile(), metavar="FILE", help="Save a chart: .svg, .png, .html or .json.")
@format_option
def command(
    files: tuple[Path, ...],
    device: str | None,
    runtime: str | None,
    by: str,
    priors: bool,
    peers: bool,
    published: bool,
    atlas: tuple[Path, ...],
    from_models: int | None,
    aims: bool,
    folder: Path | None,
    chart: Path | None,
    form: str,
) -> None:
    """Show how far predictions are from measurements, and how often their intervals hold.

    \b
    inferometer accuracy --device nvidia-h200
    inferometer accuracy --runtime torch-compile --by model --chart accuracy.svg
    inferometer accuracy --priors
    inferometer accuracy --published
    inferometer accuracy --atlas qai_hub_perf.csv.gz
    inferometer accuracy --atlas mine.csv --from-models 10 --format json

    A case that a calibration was fitted to is predicted with one fitted again without its model.
    """
    if (from_models is not None or files) and not atlas:
        raise DomainError("A table to judge, and --from-models, need --atlas.", remedy="Ask: --atlas FILE [FILE …].")
    if atlas:
        _print_atlas((*atlas, *files), from_models, form)
        return
    if published:
        _print_published(form)
        return
    from inferometer.predict.basis.files import own_folder
    from inferometer.understand.accuracy.cases import CASES, read_cases, read_peers
    from inferometer.understand.accuracy.judge import by_group, judge_cases, peer_errors
    from inferometer.understand.view.accuracy import peer_table, standing_table, target_table

    if chart is not None:
        from inferometer.understand.view.charts.render import require_form

        require_form(chart)
    cases = _select_cases(read_cases(folder or CASES), device, runtime)
    judged, refused = judge_cases(cases, priors=priors, folders=(own_folder(),))
    for reason in refused:
        say(f"inferometer: left out {reason}")
    text = form in {"table", "md"}
    if aims:
        from inferometer.understand.view.accuracy import against_aims

        print_table(target_table(against_aims(judged), text=text), form)
    elif peers:
        print_table(peer_table(peer_errors(judged, read_peers(folder or CASES)), text=text), form)
    else:
        groups = by_group(judged, _group(by))
        print_table(standing_table(groups, _GROUPS[by], text=text), form)
    if chart is not None:
        _save_chart(judged, chart)


def _print_published(form: str) -> None:
    from inferometer.understand.view.accuracy import left_out_results, published_table

    print_table(published_table(left_out_results(), text=form in {"table", "md"}), form)


def _print_atlas(paths: "Sequence[Path]", from_models: int | None, form: str) -> None:
    """The groups of every file; why rows were not predicted goes to the terminal's words."""
    from inferometer.understand.accuracy.atlas_file import accuracy_document, judge_atlas
    from inferometer.understand.view.accuracy import published_table

    engine = f"local:{min(_MOST_PROCESSES, cpu_count() or 1)}"
    sets = [judge_atlas(path, from_models=from_models, engine=engine) for path in paths]
    groups = [group for judged in sets for group in judged.file.groups]
    if form == "json":
        print_document(accuracy_document(sets))
    elif groups or form != "table":
        print_table(published_table(groups, text=form in {"table", "md"}), form)
    for judged in sets:
        aside = f", {len(judged.set_aside)} lines set aside" if judged.set_aside else ""
        refused = judged.file.rows - judged.asked
        names = f" ({judged.unmapped} with a name that nobody here knows)" if judged.unmapped else ""
        say(f"{judged.file.rows} rows of {judged.name}{aside}: {judged.asked} predicted, {refused} not{names}:")
        _say_reasons(judged.file.left)
        if judged.aside:
            say("Lines set aside, which state no such figure:")
            _say_reasons(judged.aside)


def _say_reasons(counted: "Mapping[str, int]") -> None:
    for reason, rows in sorted(counted.items(), key=lambda each: -each[1])[:_REASONS]:
        say(f"  {rows:5}  {reason}")
    if len(counted) > _REASONS:
        say(f"         and {len(counted) - _REASONS} more reasons: --format json has all of them")


def page() -> str:
    """docs/accuracy.md: every shipped case, with the shipped calibrations and with priors alone."""
    from inferometer.measure.calibrate.priors.judged import EVERY
    from inferometer.understand.view.accuracy import (
        accuracy_findings,
        accuracy_page,
        left_out_results,
        peer_table,
        published_table,
        standing_table,
        target_table,
    )

    evaluation = accuracy_findings()
    together, apart = (
        [each for each in left_out_results() if (each.dataset == EVERY) == every] for every in (True, False)
    )
    return accuracy_page(
        [
            ("Aims", "", target_table(evaluation.aims)),
            ("By phase", "", standing_table(evaluation.by_phase, _GROUPS["phase"])),
            ("By family", "", standing_table(evaluation.by_family, _GROUPS["family"])),
            ("By the kind of op that is longest", "", standing_table(evaluation.by_op, _GROUPS["op"])),
            ("Datasheets and priors alone", _ALONE, standing_table(evaluation.priors_by_phase, _GROUPS["phase"])),
            ("By what stands behind an answer", _EVIDENCE, published_table(together)),
            ("Published measurements", _PUBLISHED, published_table(apart)),
            ("Other tools", _PEERS, peer_table(evaluation.peers)),
        ]
    )


def _select_cases(cases: "Sequence[Any]", device: str | None, runtime: str | None) -> list[Any]:
    if not cases:
        raise DomainError("There are no measured cases in this folder.", remedy="Give a folder with cases: --cases.")
    device = _known_name("device", device, {case.device for case in cases})
    of_device = [case for case in cases if device in {None, case.device}]
    runtime = _known_name("runtime", runtime, {case.runtime for case in cases})
    selected = [case for case in of_device if runtime in {None, case.runtime}]
    if not selected:
        known = sorted({case.runtime for case in of_device})
        raise DomainError(
            f"There are no measured cases of {runtime} on {device}.", remedy=f"There are cases of {', '.join(known)}."
        )
    return selected


def _known_name(kind: str, asked: str | None, known: set[str]) -> str | None:
    """The name as the cases have it; one that none of them has is refused with theirs."""
    if asked is None:
        return None
    name = same_but_for_case(asked, known)
    if name is None:
        listing = f"There are cases of {', '.join(sorted(known))}."
        raise UnknownNameError(f"{kind} with measured cases", asked, known, listing=listing)
    return name


def _group(by: str) -> Any:
    from inferometer.understand.accuracy.judge import groups_of

    names = groups_of(by)
    return lambda judged: (*names(judged), judged.how)


def _save_chart(judged: "Sequence[Judged]", path: Path) -> None:
    from inferometer.understand.accuracy.judge import chart_rows
    from inferometer.understand.view.accuracy import accuracy_chart
    from inferometer.understand.view.charts.render import save

    save(accuracy_chart(chart_rows(judged)), path)
    say(f"Saved {path}.")
