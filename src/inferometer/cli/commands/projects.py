"""`inferometer runs projects`."""

import click

from inferometer.cli.options import ListingGroup, format_option, print_table, say
from inferometer.cli.storing import open_chosen, store_option


@click.group("projects", cls=ListingGroup, invoke_without_command=True)
@store_option
@format_option
@click.pass_context
def command(context: click.Context, store: str | None, form: str) -> None:
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


@command.command("list", hidden=True)
@store_option
@format_option
def list_(store: str | None, form: str) -> None:
    """List projects with their number of runs."""
    _print_projects(store, form)


@command.command("create")
@click.argument("name")
@click.option("--description", help="What the project is for.")
@store_option
@format_option
def create(name: str, description: str | None, store: str | None, form: str) -> None:
    """Create a project."""
    with open_chosen(store, create=True) as opened:
        opened.create_project(name, description=description)
    _print_projects(store, form, only=name.strip())


@command.command("rename")
@click.argument("name")
@click.argument("to")
@store_option
@format_option
def rename(name: str, to: str, store: str | None, form: str) -> None:
    """Rename a project; its runs stay in it."""
    with open_chosen(store) as opened:
        opened.rename_project(name, to)
    _print_projects(store, form, only=to.strip())


@command.command("delete")
@click.argument("name")
@click.option("--with-runs", is_flag=True, help="Also delete its runs, permanently.")
@store_option
@format_option
def delete(name: str, with_runs: bool, store: str | None, form: str) -> None:
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
