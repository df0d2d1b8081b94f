"""`inferometer runs`."""

import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from inferometer.cli.options import format_option, print_card, print_document, print_table, say
from inferometer.cli.storing import open_chosen, store_option
from inferometer.cli.subcommands import Listing
from inferometer.core.run import Status
from inferometer.errors import DomainError, UnknownNameError

if TYPE_CHECKING:
    from inferometer.store.store import Store
    from inferometer.store.values import Filter

_STATUSES = ("pending", "running", "finished", "failed", "killed")
_SPANS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days", "day": "days", "w": "weeks", "week": "weeks"}
_TEACHING = (
    "There are no runs in {place} yet. Measuring keeps one: try `inferometer bench -- COMMAND`, or take one in with "
    "`inferometer runs import FILE`."
)


class ListOptions(TypedDict):
    """What `_filter_options` puts into a command's parameters."""

    project: str | None
    tags: tuple[str, ...]
    model: str | None
    device: str | None
    runtime: str | None
    status: tuple[Status, ...]
    since: str | None
    until: str | None
    words: str | None
    sort: str
    limit: int
    after: str | None
    store: str | None


def _filter_options(function: click.decorators.FC) -> click.decorators.FC:
    for option in reversed((
        click.option("--project", help="Runs of this project."),
        click.option("--tag", "tags", multiple=True, metavar="TAG", help="Runs with this tag; with all, if several."),
        click.option("--model", help="Runs of this model."),
        click.option("--device", help="Runs on this device."),
        click.option("--runtime", help="Runs by this runtime."),
        click.option("--status", multiple=True, type=click.Choice(_STATUSES), help="Runs that are this; or that."),
        click.option("--since", metavar="WHEN", help="Runs from then on: 2h, 3d, 2025-11-01, 2025-11-01T08:30."),
        click.option("--until", metavar="WHEN", help="Runs before then."),
        click.option("--search", "words", metavar="WORDS", help="Runs with these words in name, model, device, tags."),
        click.option("--sort", default="-created", show_default=True, metavar="KEY",
                     help="created, name, model, device, status, latency, ttft, tpot, tokens or memory; -KEY falls."),
        click.option("--limit", default=50, show_default=True, help="Runs at most."),
        click.option("--after", metavar="MARK", help="Go on where the last list ended; it says the mark."),
        store_option,
    )):  # fmt: skip
        function = option(function)
    return function


@click.group("runs", cls=Listing, invoke_without_command=True)
@_filter_options
@format_option
@click.pass_context
def command(context: click.Context, /, form: str, **options: Unpack[ListOptions]) -> None:
    """List the runs that were kept; show, tag, rename, delete, export or import them.

    \b
    inferometer runs --project phones --since 7d --sort latency
    inferometer runs --tag nightly --search "resnet int8"
    inferometer runs show last
    inferometer runs tag 574p191w9czk +good -todo
    inferometer runs export last -o run.zip
    inferometer runs import run.zip

    A RUN is an id, the beginning or the end of one, a name that only one run has, or `last`. Runs of processes that
    were killed are marked so when they are next looked at.
    """
    if context.invoked_subcommand is None:
        _print_list(options, form)


@command.command("list")
@_filter_options
@format_option
def list_(form: str, **options: Unpack[ListOptions]) -> None:
    """List runs, newest first."""
    _print_list(options, form)


def _print_list(options: ListOptions, form: str) -> None:
    from inferometer.report.runs import run_table

    with open_chosen(options["store"]) as store:
        wanted = _filter_from(options)
        page = store.list(wanted, sort=options["sort"], limit=options["limit"], after=options["after"])
        if not page.rows:
            _explain_nothing(store, wanted)
        if page.rows or form != "table":
            print_table(run_table(page.rows, form), form)
        if page.after:
            say(f"There are more: --after {page.after}")


def _filter_from(options: ListOptions) -> "Filter":
    from inferometer.store.values import Filter

    since, until = options["since"], options["until"]
    return Filter(
        project=options["project"],
        tags=options["tags"],
        model=options["model"],
        device=options["device"],
        runtime=options["runtime"],
        status=options["status"],
        since=None if since is None else _moment(since),
        until=None if until is None else _moment(until),
        words=options["words"],
    )


def _moment(text: str, *, now: datetime | None = None) -> float:
    """A time, or how long ago. A time without a zone is on the user's clock."""
    now = now or datetime.now().astimezone()
    ago = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|days?|w|weeks?)(?: ago)?", text.strip())
    try:
        if ago:
            span = _SPANS[ago[2].removesuffix("s") or "s"]
            return (now - timedelta(**{span: float(ago[1])})).timestamp()
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise DomainError(f"{text!r} is no time.", remedy="Give 2h, 3d, 2w, 2025-11-01 or 2025-11-01T08:30.") from None


def _explain_nothing(store: "Store", wanted: "Filter") -> None:
    """An empty list is right where nothing matches, and a mistake where a name is not known at all."""
    for what, asked in (("model", wanted.model), ("device", wanted.device), ("runtime", wanted.runtime)):
        if asked is not None:
            _require_known(store, what, asked)
    for tag in wanted.tags:
        _require_known(store, "tag", tag)
    if store.count():
        say("No run matches.")
    else:
        say(_TEACHING.format(place=store.location))


def _require_known(store: "Store", what: str, asked: str) -> None:
    known = store.known(what)
    if known and asked not in known:
        raise UnknownNameError(f"{what} among the runs", asked, known)


@command.command("show")
@click.argument("run")
@store_option
@format_option
def show(run: str, store: str | None, form: str) -> None:
    """Show one run: what was measured, with what, and how it ended."""
    from inferometer.report.runs import run_card, run_document
    from inferometer.store.recording import hub_link

    with open_chosen(store) as opened:
        found = opened.get(run)
        row, metrics = opened.row(found.id), opened.metrics(found.id)
    if form == "json":
        print_document(run_document(found, row, metrics, hub_link(found.id)))
    else:
        print_card(run_card(found, row, metrics, hub_link(found.id)), form)


class _Signed(click.Command):
    """`+a -b` are tags, not options: each minus that is no option of ours is turned before click sees it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        turned = [f"~{word[1:]}" if re.match(r"-[^-]", word) and word != "-h" else word for word in args]
        return super().parse_args(ctx, turned)


@command.command("tag", cls=_Signed)
@click.argument("run")
@click.argument("changes", nargs=-1, required=True, metavar="+TAG|-TAG…")
@store_option
@format_option
def tag(run: str, changes: tuple[str, ...], store: str | None, form: str) -> None:
    """Add tags to a run and take others off: `+good -todo`."""
    unsigned = next((word for word in changes if word[0] not in "+~" or len(word) < 2), None)
    if unsigned is not None:
        raise DomainError(
            f"{unsigned!r} says neither add nor remove.", remedy=f"Write +{unsigned.lstrip('+~')} to add the tag."
        )
    with open_chosen(store) as opened:
        found = opened.resolve(run)
        add, remove = (tuple(word[1:] for word in changes if word[0] == sign) for sign in "+~")
        opened.retag(found, add=add, remove=remove)
        _print_rows(opened, [found], form)


@command.command("rename")
@click.argument("run")
@click.argument("name")
@store_option
@format_option
def rename(run: str, name: str, store: str | None, form: str) -> None:
    """Give a run another name."""
    with open_chosen(store) as opened:
        found = opened.resolve(run)
        opened.rename(found, name)
        _print_rows(opened, [found], form)


@command.command("delete")
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@click.option("--yes", is_flag=True, help="Do not ask.")
@store_option
@format_option
def delete(runs: tuple[str, ...], yes: bool, store: str | None, form: str) -> None:
    """Delete runs for good, with their files. On a terminal it asks first."""
    from inferometer.report.runs import run_table

    with open_chosen(store) as opened:
        rows = [opened.row(run) for run in runs]
        if not yes and sys.stdin.isatty():
            names = ", ".join(f"{row.id} ({row.name})" if row.name else row.id for row in rows)
            click.confirm(f"Delete {names}?", abort=True, err=True)
        opened.delete(*(row.id for row in rows))
    print_table(run_table(rows, form), form)
    say(f"Deleted {len(rows)} {'run' if len(rows) == 1 else 'runs'}.")


@command.command("export")
@click.argument("run")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The archive; without it, run-ID.zip here.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@store_option
@format_option
def export(run: str, output: Path | None, force: bool, store: str | None, form: str) -> None:
    """Write a run with its profile, metrics and files into one archive."""
    from inferometer.report.runs import file_table

    with open_chosen(store) as opened:
        found = opened.resolve(run)
        to = output or Path(f"run-{found}.zip")
        if to.is_dir():
            to /= f"run-{found}.zip"
        if to.exists() and not force:
            raise DomainError(f"{to} is there already.", remedy="Write over it with --force, or name another file.")
        opened.export(found, to)
    print_table(file_table(found, to), form)


@command.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option("--project", help="Put them under this project instead of their own.")
@click.option("--new-id", is_flag=True, help="Give each a new id: the run may be here twice then.")
@store_option
@format_option
def import_(files: tuple[Path, ...], project: str | None, new_id: bool, store: str | None, form: str) -> None:
    """Take in runs: archives made by `runs export`, or documents of runs or profiles."""
    with open_chosen(store) as opened:
        _print_rows(opened, [opened.import_(file, project=project, new_id=new_id) for file in files], form)


def _print_rows(opened: "Store", found: list[str], form: str) -> None:
    from inferometer.report.runs import run_table

    print_table(run_table([opened.row(run) for run in found], form), form)
