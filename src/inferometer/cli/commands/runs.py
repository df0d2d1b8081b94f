"""`inferometer runs`."""

import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from inferometer.cli.old_spellings import advise
from inferometer.cli.options import (
    ListingGroup,
    OutputFile,
    Whole,
    format_option,
    print_card,
    print_document,
    print_table,
    say,
    together,
)
from inferometer.cli.storing import open_chosen, store_option
from inferometer.core.errors import DomainError, GateError, PlaceError, UnknownNameError
from inferometer.core.profile import Status
from inferometer.core.units import counted, parse_quantity

if TYPE_CHECKING:
    from inferometer.store.store import Store
    from inferometer.store.values import Filter

_STATUSES = ("pending", "running", "finished", "failed", "killed")
_SPANS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days", "day": "days", "w": "weeks", "week": "weeks"}
_NO_RUNS = (
    "There are no runs in {location} yet. Measure something, for example `inferometer bench -- COMMAND`, or import a "
    "run with `inferometer import FILE`."
)


class ListOptions(TypedDict):
    """The values of `_filter_options`."""

    project: str | None
    tags: tuple[str, ...]
    model: str | None
    device: str | None
    runtime: str | None
    machine: str | None
    status: tuple[Status, ...]
    since: str | None
    until: str | None
    words: str | None
    sort: str
    limit: int
    after: str | None
    store: str | None


_filter_options = together(
    click.option("--project", metavar="NAME", help="Only runs of this project."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only runs with this tag; may be repeated."),
    click.option("--model", metavar="NAME", help="Only runs of this model."),
    click.option("--device", metavar="NAME", help="Only runs on this device."),
    click.option("--runtime", metavar="NAME", help="Only runs with this runtime."),
    click.option("--machine", metavar="NAME|ID", help="Only runs measured on this machine."),
    click.option("--status", multiple=True, type=click.Choice(_STATUSES), help="Only runs with one of these."),
    click.option("--since", metavar="WHEN", help="Only runs since then: 2h, 3d, 2025-11-01, 2025-11-01T08:30."),
    click.option("--until", metavar="WHEN", help="Only runs before then."),
    click.option("--search", "words", metavar="TEXT", help="Only runs whose names or tags match."),
    click.option(
        "--sort",
        default="-created",
        metavar="KEY",
        help="created, name, model, device, machine, author, batch, precision, threads, "
        "status, latency, ttft, tpot, tokens, memory; -KEY: "
        "the other way round.",
    ),
    click.option("--limit", type=Whole(1, 10_000_000), default=50, help="Maximum number of runs to list."),
    click.option("--after", metavar="MARK", help="Continue a list; the end of the list prints its MARK."),
    store_option,
)


@click.group("runs", cls=ListingGroup, invoke_without_command=True)
@_filter_options
@format_option
@click.pass_context
def command(context: click.Context, /, form: str, **options: Unpack[ListOptions]) -> None:
    """List stored runs; show, tag, rename or delete them.

    \b
    inferometer runs --project phones --since 7d --sort latency
    inferometer runs --tag nightly --search "resnet int8"
    inferometer runs show last
    inferometer runs tag 574p191w9czk +good -todo

    RUN is an id, the beginning or end of one, a name that only one run has, or `last`, the last that finished; `last~1`
    is the one before it. `inferometer export` writes a run to a file, `inferometer import` takes one in. Runs whose
    process was killed are marked as killed when they are next listed.
    """
    if context.invoked_subcommand is None:
        _print_list(options, form)


@command.command("list", hidden=True)
@_filter_options
@format_option
def list_(form: str, **options: Unpack[ListOptions]) -> None:
    """List runs, newest first."""
    _print_list(options, form)


def _print_list(options: ListOptions, form: str) -> None:
    from inferometer.understand.view.runs import run_table

    with open_chosen(options["store"]) as store:
        runs = _filter_from(options)
        page = store.list(runs, sort=options["sort"], limit=options["limit"], after=options["after"])
        if not page.rows:
            # an unknown name is an error; a filter that nothing matches is not
            for kind, name in (
                ("model", runs.model), ("device", runs.device), ("runtime", runs.runtime), ("machine", runs.machine),
            ):  # fmt: skip
                if name is not None:
                    _require_known(store, kind, name)
            for tag in runs.tags:
                _require_known(store, "tag", tag)
            if store.count():
                say("No run matches.")
            else:
                say(_NO_RUNS.format(location=store.location))
        if page.rows or form != "table":
            print_table(run_table(page.rows, form), form)
        if page.after:
            say(f"There are more: continue with --after {page.after}")


def _filter_from(options: ListOptions) -> "Filter":
    from inferometer.store.values import Filter

    since, until = options["since"], options["until"]
    return Filter(
        project=options["project"],
        tags=options["tags"],
        model=options["model"],
        device=options["device"],
        runtime=options["runtime"],
        machine=options["machine"],
        status=options["status"],
        since=None if since is None else timestamp(since),
        until=None if until is None else timestamp(until),
        words=options["words"],
    )


def timestamp(text: str, *, now: datetime | None = None) -> float:
    """A point in time, given as such or as how long ago. Without a time zone it is local time."""
    now = now or datetime.now().astimezone()
    ago = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|days?|w|weeks?)(?: ago)?", text.strip())
    try:
        if ago:
            span = _SPANS[ago[2].removesuffix("s") or "s"]
            return (now - timedelta(**{span: float(ago[1])})).timestamp()
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise DomainError(
            f"{text!r} is not a time.", remedy="Write 2h, 3d, 2w, 2025-11-01 or 2025-11-01T08:30."
        ) from None


def _require_known(store: "Store", kind: str, name: str) -> None:
    known = store.known(kind)
    if known and name not in known:
        raise UnknownNameError(f"{kind} among the runs", name, known)


@command.command("show")
@click.argument("run")
@store_option
@format_option
def show(run: str, store: str | None, form: str) -> None:
    """Show one run: what was measured, with what, and how it ended."""
    from inferometer.store.recording import hub_link
    from inferometer.understand.view.runs import run_card, run_document

    with open_chosen(store) as opened:
        stored = opened.get(run)
        row, metrics = opened.row(stored.id), opened.metrics(stored.id)
    if form == "json":
        print_document(run_document(stored, row, metrics, hub_link(stored.id)))
    else:
        print_card(run_card(stored, row, metrics, hub_link(stored.id)), form)


class _TagCommand(click.Command):
    """`-b` in `+a -b` is a tag to remove, not an option: its minus becomes a tilde before click sees it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        turned = [f"~{word[1:]}" if re.match(r"-[^-]", word) and word != "-h" else word for word in args]
        return super().parse_args(ctx, turned)


@command.command("tag", cls=_TagCommand)
@click.argument("run")
@click.argument("changes", nargs=-1, required=True, metavar="+TAG|-TAG…")
@store_option
@format_option
def tag(run: str, changes: tuple[str, ...], store: str | None, form: str) -> None:
    """Add tags to a run and remove others: `+good -todo`."""
    unsigned = next((word for word in changes if word[0] not in "+~" or len(word) < 2), None)
    if unsigned is not None:
        raise DomainError(
            f"{unsigned!r} has no sign.", remedy=f"Write +{unsigned.lstrip('+~')} to add the tag, - to remove it."
        )
    with open_chosen(store) as opened:
        run_id = opened.resolve(run)
        add, remove = (tuple(word[1:] for word in changes if word[0] == sign) for sign in "+~")
        opened.retag(run_id, add=add, remove=remove)
        _print_rows(opened, [run_id], form)


@command.command("rename")
@click.argument("run")
@click.argument("name")
@store_option
@format_option
def rename(run: str, name: str, store: str | None, form: str) -> None:
    """Rename a run."""
    with open_chosen(store) as opened:
        run_id = opened.resolve(run)
        opened.rename(run_id, name)
        _print_rows(opened, [run_id], form)


@command.command("delete")
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_option
@format_option
def delete(runs: tuple[str, ...], yes: bool, store: str | None, form: str) -> None:
    """Delete runs permanently, with their files.

    On a terminal it asks for confirmation.
    """
    from inferometer.understand.view.runs import run_table

    with open_chosen(store) as opened:
        rows = [opened.row(run) for run in runs]
        if not yes and sys.stdin.isatty():
            names = ", ".join(f"{row.id} ({row.name})" if row.name else row.id for row in rows)
            click.confirm(f"Delete {names}?", abort=True, err=True)
        opened.delete(*(row.id for row in rows))
    print_table(run_table(rows, form), form)
    say(f"Deleted {counted(len(rows), 'run')}.")


@command.command("export", hidden=True)
@click.argument("run")
@click.option(
    "-o", "--out", type=OutputFile(folders=True), metavar="FILE", help="The archive to write.  [default: run-ID.zip]"
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@store_option
@format_option
def export(run: str, out: Path | None, force: bool, store: str | None, form: str) -> None:
    """Write a run, with its profile, metrics and files, to an archive: `inferometer export RUN -o run.zip`."""
    advise("runs export", "export RUN -o run.zip")
    print_archived(run, out, store, form, force=force)


def print_archived(run: str, out: Path | None, store: str | None, form: str, *, force: bool) -> None:
    """Write a run, with its profile, metrics and files, to an archive."""
    from inferometer.understand.view.runs import file_table

    with open_chosen(store) as opened:
        run_id = opened.resolve(run)
        archive = out or Path(f"run-{run_id}.zip")
        if archive.is_dir():
            archive /= f"run-{run_id}.zip"
        if archive.exists() and not force:
            raise DomainError(f"{archive} exists already.", remedy="Overwrite it with --force, or name another file.")
        opened.export(run_id, archive)
    print_table(file_table(run_id, archive), form)


@command.command("import", hidden=True)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option("--project", metavar="NAME", help="Put the runs into this project instead of their own.")
@click.option("--new-id", is_flag=True, help="Give each run a new id, so that it can be imported twice.")
@store_option
@format_option
def import_(files: tuple[Path, ...], project: str | None, new_id: bool, store: str | None, form: str) -> None:
    """Import archives of runs, or documents of runs or profiles: `inferometer import FILE`."""
    advise("runs import", "import")
    print_taken_in(files, project, store, form, new_id=new_id)


def print_taken_in(
    files: tuple[Path, ...],
    project: str | None,
    store: str | None,
    form: str,
    *,
    new_id: bool,
    name: str | None = None,
    tags: tuple[str, ...] = (),
) -> None:
    """Take in archives of runs, or documents of runs or profiles; a name and tags are added to what they say."""
    from inferometer.store.names import valid_name

    if name:
        valid_name("run", name)
    for tag in tags:  # all of it before anything is stored
        valid_name("tag", tag)
    with open_chosen(store, create=True) as opened:
        taken = [opened.import_(file, project=project, new_id=new_id) for file in files]
        for run in taken:
            if name:
                opened.rename(run, name)
            opened.tag(run, *tags)
        _print_rows(opened, taken, form)


def _print_rows(opened: "Store", runs: list[str], form: str) -> None:
    from inferometer.understand.view.runs import run_table

    print_table(run_table([opened.row(run) for run in runs], form), form)


# `inferometer runs watch`.


@command.command("watch")
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
def watch_run(
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


# `inferometer runs projects`.


@command.group("projects", cls=ListingGroup, invoke_without_command=True)
@store_option
@format_option
@click.pass_context
def projects(context: click.Context, store: str | None, form: str) -> None:
    """List the projects that runs belong to; create, rename or delete one.

    \b
    inferometer runs projects
    inferometer runs projects create phones --description "what ships in the app"
    inferometer runs projects rename phones mobile
    inferometer runs projects delete mobile

    A new project is also created by its first run: `inferometer bench --project phones …`.
    """
    if context.invoked_subcommand is None:
        _print_projects(store, form)


@projects.command("list", hidden=True)
@store_option
@format_option
def list_projects(store: str | None, form: str) -> None:
    """List projects with their number of runs."""
    _print_projects(store, form)


@projects.command("create")
@click.argument("name")
@click.option("--description", help="What the project is for.")
@store_option
@format_option
def create_project(name: str, description: str | None, store: str | None, form: str) -> None:
    """Create a project."""
    with open_chosen(store, create=True) as opened:
        opened.create_project(name, description=description)
    _print_projects(store, form, only=name.strip())


@projects.command("rename")
@click.argument("name")
@click.argument("to")
@store_option
@format_option
def rename_project(name: str, to: str, store: str | None, form: str) -> None:
    """Rename a project; its runs stay in it."""
    with open_chosen(store) as opened:
        opened.rename_project(name, to)
    _print_projects(store, form, only=to.strip())


@projects.command("delete")
@click.argument("name")
@click.option("--with-runs", is_flag=True, help="Also delete its runs, permanently.")
@store_option
@format_option
def delete_project(name: str, with_runs: bool, store: str | None, form: str) -> None:
    """Delete a project without runs, or with --with-runs one and all its runs."""
    with open_chosen(store) as opened:
        opened.delete_project(name, with_runs=with_runs)
    say(f"Deleted project {name}.")
    if form != "table":
        _print_projects(store, form)


def _print_projects(store: str | None, form: str, *, only: str | None = None) -> None:
    from inferometer.understand.view.runs import project_table

    with open_chosen(store) as opened:
        projects = [project for project in opened.projects() if only in {None, project.name}]
        location = opened.location
    if not projects:
        say(f"There are no projects in {location} yet. A run creates its own, or `inferometer runs projects create`.")
    if projects or form != "table":
        print_table(project_table(projects, form), form)
