"""`inferometer hub backup`, `restore` and `copy`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferometer.cli.options import say
from inferometer.cli.progress import progress_line
from inferometer.cli.storing import open_chosen, store_option
from inferometer.core.units import counted, format_quantity

if TYPE_CHECKING:
    from inferometer.store.backup import Manifest


def _line(text: str) -> str:
    return text


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--with-models", is_flag=True, help="Also the models that the fleet's jobs brought along.")
@click.option("--verify", is_flag=True, help="Restore it into a store that is thrown away, and compare every row.")
@store_option
def backup(file: Path, with_models: bool, verify: bool, store: str | None) -> None:
    """Write everything in the store into one file, while the hub goes on.

    \b
    inferometer hub backup hub.zip --verify
    inferometer hub backup hub.zip --with-models --store postgresql://hub@db/runs

    All projects, runs and their files, jobs, users, and tokens as hashes, as they are when it begins. Whoever has the
    file can read all of it.
    """
    with open_chosen(store) as opened, progress_line(_line) as draw:
        from inferometer.store.backup import check_backup, write_backup

        manifest = write_backup(opened, file, models=with_models, tell=draw)
        if verify:
            check_backup(file, tell=draw)
    say(f"{file} has {_content(manifest)}, {format_quantity(file.stat().st_size, 'B')} in all.")
    _say_lost(manifest.lost)
    if verify:
        say("It was read again, and its rows restored into a store of their own: all are the same.")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--check", is_flag=True, help="Only try it: read all of it, restore it nowhere.")
@store_option
def restore(file: Path, check: bool, store: str | None) -> None:
    """Write a backup into a store that is new or empty: all of it, or nothing.

    \b
    inferometer hub restore hub.zip --check
    inferometer hub restore hub.zip --store new.db

    A store that holds anything is never written over.
    """
    from inferometer.store.location import require_database

    require_database()
    from inferometer.store.backup import check_backup, restore_backup
    from inferometer.store.transfer import opened_to_fill

    with progress_line(_line) as draw:
        if check:
            manifest = check_backup(file, tell=draw)
        else:
            with opened_to_fill(store) as opened:
                manifest, place = restore_backup(file, opened, tell=draw), opened.location
    outcome = "can be restored" if check else f"is restored to {place}"
    say(f"{file} of {manifest.created} {outcome}: {_content(manifest)}.")
    _say_lost(manifest.lost)


@click.command()
@click.option("--to", required=True, metavar="FILE|URL", help="The new or empty store: a file, or postgresql://….")
@click.option("--with-models", is_flag=True, help="Also the models that the fleet's jobs brought along.")
@store_option
def copy(to: str, with_models: bool, store: str | None) -> None:
    """Copy the store into another database, from SQLite to PostgreSQL or back.

    \b
    inferometer hub copy --to postgresql://hub@db/runs

    What is written to the store while it is copied stays behind: stop the hub first, and start it with --store.
    """
    with open_chosen(store) as opened, progress_line(_line) as draw:
        from inferometer.store.backup import copy_store
        from inferometer.store.transfer import opened_to_fill

        with opened_to_fill(to) as target:
            lost = copy_store(opened, target, models=with_models, tell=draw)
            place, source = target.location, opened.location
    say(f"Everything in {source} is in {place} now.")
    _say_lost(lost)


def _content(manifest: "Manifest") -> str:
    files = manifest.artifacts.count
    models = f" and {counted(manifest.models.count, 'file')} of models" if manifest.models.count else ""
    jobs = counted(manifest.rows("fleet_jobs"), "job")
    return f"{counted(manifest.rows('runs'), 'run')} with {counted(files, 'file')}{models}, and {jobs}"


def _say_lost(lost: tuple[str, ...]) -> None:
    if lost:
        names = ", ".join(f"{sha256[:12]}…" for sha256 in lost[:3])
        say(f"inferometer: {counted(len(lost), 'file')} of runs gone or damaged on the disk: {names}")
