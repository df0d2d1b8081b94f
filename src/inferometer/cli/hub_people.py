"""`inferometer hub member`, `project`, `device` and `audit`: who may do what on a hub, and who did."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from inferometer.cli.options import Whole, format_option, print_document, print_rows, say
from inferometer.cli.storing import open_chosen, store_option

if TYPE_CHECKING:
    from inferometer.store.opened import OpenedStore

_ROLES = ("reader", "writer", "owner")
Acting = TypeVar("Acting", bound="OpenedStore")


def doing(store: Acting, action: str, project: str | None = None, **about: Any) -> Acting:
    """The store, with what is written through it in the audit log: done by this machine's user, by a command."""
    from inferometer.store.audit import Deed

    return store.doing(Deed(user="local", action=action, project=project, **about))


@click.group("member")
def member_group() -> None:
    """Add, list and remove members of a project.

    A reader sees a project, a writer adds runs and jobs to it, an owner decides who is a member. A token of the scope
    admin may do everything everywhere.
    """


@member_group.command("add")
@click.argument("project")
@click.argument("person")
@click.option("--role", type=click.Choice(_ROLES), default="reader", show_default=True, help="What they may do.")
@store_option
def add_member(project: str, person: str, role: Any, store: str | None) -> None:
    """Make somebody a member of a project, or change their role.

    Both are created if new. Somebody who signs in through a provider of identities is named by their e-mail address.
    """
    with open_chosen(store, create=True) as opened:
        if person not in {user.name for user in opened.users()}:
            opened.create_user(person)
        if project not in {known.name for known in opened.projects()}:
            opened.create_project(project)
        doing(opened, "member.set", project, subject=person, detail=role).set_member(project, person, role)
    say(f"{person} is {'an' if role == 'owner' else 'a'} {role} of {project}.")


@member_group.command("list")
@click.argument("project", required=False)
@store_option
@format_option
def list_members(project: str | None, store: str | None, form: str) -> None:
    """List the members of a project, or of all, with their roles."""
    with open_chosen(store) as opened:
        known = [opened.project(project)] if project is not None else opened.projects()
        rows = tuple(
            {"project": each.name, "person": member.user, "role": member.role}
            for each in known
            for member in opened.members(each.name)
        )
    none = "There are no members yet. `inferometer hub member add PROJECT PERSON` adds one."
    print_rows(rows, ("project", "person", "role"), form, none)


@member_group.command("remove")
@click.argument("project")
@click.argument("person")
@store_option
def remove_member(project: str, person: str, store: str | None) -> None:
    """Remove somebody from a project: they do not see it any more, from their next request on."""
    with open_chosen(store) as opened:
        doing(opened, "member.remove", project, subject=person).remove_member(project, person)
    say(f"{person} is no member of {project} any more.")


@click.command("project")
@click.argument("name")
@click.option(
    "--open/--closed", "opened_up", default=None, help="Let everybody who is signed in read it, or members only."
)
@click.option("--writer-priority", type=Whole(-100, 100), help="Highest priority of a writer's jobs.")
@click.option("--owner-priority", type=Whole(-100, 100), help="Highest priority of an owner's jobs.")
@store_option
@format_option
def project_command(
    name: str, opened_up: bool | None, writer_priority: int | None, owner_priority: int | None, store: str | None,
    form: str,
) -> None:  # fmt: skip
    """Show who may read a project and how high the priorities of its jobs may be; change it with the options."""
    given = {"open": opened_up, "writer_priority": writer_priority, "owner_priority": owner_priority}
    values: Any = {key: value for key, value in given.items() if value is not None}
    with open_chosen(store) as opened:
        if values:
            detail = ", ".join(f"{key} {value}" for key, value in values.items())
            doing(opened, "project.change", name, detail=detail).change_project(name, **values)
        project = opened.project(name)
    row = {
        "project": project.name, "read by": "everybody signed in" if project.open else "members",
        "writers": project.writer_priority, "owners": project.owner_priority,
    }  # fmt: skip
    print_rows((row,), tuple(row), form)


@click.group("device")
def device_group() -> None:
    """Say which projects a device of the fleet works for."""


@device_group.command("share")
@click.argument("name")
@click.argument("project", required=False)
@click.option("--everyone", is_flag=True, help="With every project, also those to come.")
@store_option
def share(name: str, project: str | None, everyone: bool, store: str | None) -> None:
    """Let a device take the jobs of a project, and its members see it."""
    _share(name, project, store, everyone=everyone, shared=True)
    say(f"{name} works for {'every project' if everyone else project}.")


@device_group.command("unshare")
@click.argument("name")
@click.argument("project", required=False)
@click.option("--everyone", is_flag=True, help="Not with every project any more: only with those it is shared with.")
@store_option
def unshare(name: str, project: str | None, everyone: bool, store: str | None) -> None:
    """Let a device take no more jobs of a project. The one that it has goes back into the queue."""
    _share(name, project, store, everyone=everyone, shared=False)
    say(f"{name} does not work for {'every project' if everyone else project} any more.")


def _share(name: str, project: str | None, store: str | None, *, everyone: bool, shared: bool) -> None:
    from inferometer.store.queue.fleet import Fleet

    if everyone == (project is not None):
        raise click.UsageError("Name a project, or give --everyone.")
    with open_chosen(store) as opened:
        action = "device.share" if shared else "device.unshare"
        doing(Fleet.of(opened), action, project, subject=name).share(name, project, shared=shared)


@device_group.command("list")
@store_option
@format_option
def list_devices(store: str | None, form: str) -> None:
    """List the devices of the fleet: whose each is, and which projects it works for."""
    from inferometer.store.queue.fleet import Fleet

    with open_chosen(store) as opened:
        fleet = Fleet.of(opened)
        rows = tuple(
            {
                "device": device.name, "of": device.user, "state": device.state,
                "works for": "every project" if device.everyone else ", ".join(fleet.projects_of(device.name)),
            }
            for device in fleet.devices(facts=False)
        )  # fmt: skip
    none = "No device is registered yet. `inferometer hub agent --hub URL` on one registers it."
    print_rows(rows, ("device", "of", "state", "works for"), form, none)


@click.command("audit")
@click.option("--project", metavar="NAME", help="Only what was done in this project.")
@click.option("--user", metavar="NAME", help="Only what this user did.")
@click.option("--since", metavar="WHEN", help="Only since then: 2h, 3d, 2025-11-01, 2025-11-01T08:30.")
@click.option("--limit", type=Whole(1, 10_000), default=100, show_default=True, help="Entries at most.")
@store_option
@format_option
def audit_command(
    project: str | None, user: str | None, since: str | None, limit: int, store: str | None, form: str
) -> None:
    """List who did what, when and from where: signing in, tokens, members, runs, jobs, devices, links and exports.

    The newest first. Nothing changes an entry; entries go after 400 days.
    """
    from inferometer.cli.commands.runs import timestamp
    from inferometer.store.audit import AuditFilter

    with open_chosen(store) as opened:
        only = None if project is None else frozenset({opened.project(project).name})
        wanted = AuditFilter(projects=only, user=user, since=None if since is None else timestamp(since))
        entries = opened.audit(wanted, limit=limit)
    if form == "json":
        print_document([asdict(entry) for entry in entries])
        return
    rows = [asdict(entry) | {"at": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.at))} for entry in entries]
    shown = ("at", "user", "action", "project", "subject", "detail", "address", "token", "session")
    print_rows(rows, shown, form, "Nothing is noted yet.")
