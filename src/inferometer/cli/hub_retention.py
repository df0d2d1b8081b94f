"""`inferometer hub retention`: what a project keeps, and for how long."""

import re
import time
from typing import TYPE_CHECKING

import click

from inferometer.cli.options import format_option, print_document, print_table, say
from inferometer.cli.storing import open_chosen, store_option
from inferometer.core.errors import DomainError
from inferometer.core.units import counted

if TYPE_CHECKING:
    from inferometer.store.retention import Deletion

_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "y": 365.0}
_DAY_S = 86_400.0


@click.group("retention")
def retention_group() -> None:
    """Say how long projects keep runs, files and jobs, and delete what is older."""


@retention_group.command("set")
@click.argument("project")
@click.option("--runs", metavar="TIME", help="Keep runs for this long: 90d, 8w, 1y.  [default: for ever]")
@click.option("--artifacts", metavar="TIME", help="Keep the files of runs for this long.  [default: as the runs]")
@click.option("--jobs", metavar="TIME", help="Keep the record of jobs that ended for this long.  [default: for ever]")
@click.option("--keep-tagged", "tags", multiple=True, metavar="TAG", help="Never delete runs with this tag.")
@store_option
def set_(
    project: str, runs: str | None, artifacts: str | None, jobs: str | None, tags: tuple[str, ...], store: str | None
) -> None:
    """Set a project's rules, in place of those it had; without options, it keeps everything.

    \b
    inferometer hub retention set nightly --runs 365d --artifacts 90d --jobs 30d --keep-tagged release

    Runs with the tags baseline and pinned, runs that a link shows, and runs that these belong to are always kept. The
    hub applies the rules once a day.
    """
    with open_chosen(store) as opened:
        from inferometer.store.retention import Retention

        opened.set_retention(
            Retention(
                project=project, runs_s=_seconds(runs), artifacts_s=_seconds(artifacts), jobs_s=_seconds(jobs),
                keep_tags=tags,
            )
        )  # fmt: skip
        would_go = [gone for gone in opened.apply_retention(dry_run=True) if gone.project == project]
    say(f"The rules of {project} are set. {_said(would_go, 'would go now')}")


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([hdwy])", text.strip())
    if found is None:
        raise DomainError(f"{text!r} is not how long something is kept.", remedy="Write 12h, 90d, 8w or 1y.")
    return float(found[1]) * _DAYS[found[2]] * _DAY_S


@retention_group.command("show")
@store_option
@format_option
def show(store: str | None, form: str) -> None:
    """Show each project's rules, and what went by them lately."""
    from dataclasses import asdict

    from inferometer.understand.view.table import Column, ReportTable, columns

    with open_chosen(store) as opened:
        rules, gone = opened.retentions(), opened.deletions()
    if form == "json":
        print_document({"rules": [asdict(rule) for rule in rules], "deletions": [asdict(each) for each in gone]})
        return
    rows = tuple(
        {"project": rule.project, "runs": _kept(rule.runs_s), "artifacts": _kept(rule.artifacts_s),
         "jobs": _kept(rule.jobs_s), "tags": ", ".join(rule.keep_tags)}
        for rule in rules
    )  # fmt: skip
    shown = columns("project", "runs", "artifacts", "jobs", Column(key="tags", heading="keeps tagged"))
    print_table(ReportTable(columns=shown, rows=rows), form)
    for each in gone:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.at))
        say(f"{day}  {_counted(each)} of {each.project} went.")


def _kept(seconds: float | None) -> str:
    return "for ever" if seconds is None else f"{seconds / _DAY_S:g} d"


@retention_group.command("apply")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@store_option
def apply(dry_run: bool, store: str | None) -> None:
    """Delete now what is older than the projects' rules allow."""
    with open_chosen(store) as opened:
        gone = opened.apply_retention(dry_run=dry_run)
    say(_said(gone, "would go" if dry_run else "went"))


def _said(gone: "list[Deletion] | tuple[Deletion, ...]", happens: str) -> str:
    if not gone:
        return f"Nothing {happens}."
    return "\n".join(f"{_counted(each)} of {each.project} {happens}." for each in gone)


def _counted(each: "Deletion") -> str:
    return counted(each.count, {"runs": "run", "artifacts": "file", "jobs": "job"}[each.rule])
