"""Who asks, and what they may do: the one place that decides it, for pages and API alike.

What somebody may not see is not there: stores and queues are asked as that visitor sees them (`seen`), so that a run of
a project that is not theirs is answered like one that does not exist. What they may see but not change is refused with
403. A hub without tokens has one user, who owns everything.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypedDict, TypeVar, Unpack

from starlette.requests import Request

from inferometer.core.profile import Run
from inferometer.hub.web.answers import HubError
from inferometer.hub.web.guard.security import VISITOR, client_of
from inferometer.store import names
from inferometer.store.audit import Deed
from inferometer.store.errors import StoreError
from inferometer.store.opened import OpenedStore
from inferometer.store.queue.values import FleetDevice, JobRow
from inferometer.store.store import Store
from inferometer.store.values import Project, Role, RunRow, Visitor

LOCAL_USER = "local"  # whoever uses a hub that needs no token: this machine's user
Seen = TypeVar("Seen", bound=OpenedStore)


def visitor_of(request: Request) -> Visitor | None:
    """Whoever a token or a cookie says it is; None at a hub that needs none."""
    visitor: Visitor | None = request.scope.get(VISITOR)
    return visitor


def user_of(request: Request) -> str:
    visitor = visitor_of(request)
    return LOCAL_USER if visitor is None else visitor.user


def author_of(request: Request) -> str | None:
    visitor = visitor_of(request)
    return None if visitor is None else visitor.user


def seen(request: Request, store: Seen) -> Seen:
    """The store, or the queue, as whoever asks may see it."""
    visitor = visitor_of(request)
    return store.seen_with(None if visitor is None else visitor.sight)


def acting(
    request: Request, store: Seen, action: str, *, project: str | None = None, **about: "Unpack[About]"
) -> Seen:  # fmt: skip
    """The store, or the queue, as whoever asks sees it; what they write through it goes into the audit log."""
    return seen(request, store).doing(_deed(request, action, project=project, **about))


def _deed(request: Request, action: str, *, project: str | None = None, **about: "Unpack[About]") -> Deed:
    visitor = visitor_of(request)
    return Deed(
        user=user_of(request), action=action, project=project, address=client_of(request), **about,
        token=None if visitor is None else visitor.token, session=None if visitor is None else visitor.session,
    )  # fmt: skip


def noted(request: Request, store: Store, action: str, row: RunRow | Run, detail: str | None = None) -> None:
    """Write down that somebody took something away, unless there are no others: or the store takes no writes."""
    if visitor_of(request) is not None:
        with suppress(StoreError):
            acting(request, store, action, project=row.project, subject=row.id, detail=detail).note_deed()


class About(TypedDict, total=False):
    """What a deed is done to; the subject may be made of what comes of it."""

    subject: str | Callable[[Any], str] | None
    detail: str | None


def may(request: Request, role: Role, project: str) -> bool:
    visitor = visitor_of(request)
    return visitor is None or visitor.may(role, project)


def require_role(request: Request, role: Role, project: str) -> None:
    if not may(request, role, project):
        raise HubError(
            403,
            f"Only {_AS[role]} of {project} may do this, and {user_of(request)} is none.",
            remedy=f"Ask an owner of {project} for the role.",
        )


_AS = {"reader": "a member", "writer": "a writer", "owner": "an owner"}


def owned_projects(request: Request) -> frozenset[str]:
    """The projects that whoever asks is an owner of; none for who owns everything, who is asked before."""
    visitor = visitor_of(request)
    roles = {} if visitor is None or visitor.roles is None else visitor.roles
    return frozenset(name for name, role in roles.items() if role == "owner")


def founding(request: Request, store: Seen, project: str) -> Seen:
    """The store, or the queue, to bring something to a project with. Whoever does is a writer there.

    One that is not there yet is made with what is brought, and is theirs; what is refused makes none.
    """
    visitor = visitor_of(request)
    if visitor is None or visitor.sees_all:
        return store
    name = names.valid_name("project", project)
    if visitor.may("reader", name):
        require_role(request, "writer", name)
        return store
    if visitor.project not in {None, name}:
        raise HubError(403, f"This token is for the project {visitor.project}, and not for {name}.")
    return store.founding(name, _deed(request, "project.create"))


def may_change(request: Request, row: RunRow) -> bool:
    """Whoever brought a run may change it, and an owner of its project; if nobody knows who did, any writer there."""
    visitor = visitor_of(request)
    if visitor is None or visitor.may("owner", row.project):
        return True
    return visitor.may("writer", row.project) and row.author in {None, visitor.user}


def require_change(request: Request, row: RunRow, *, deleting: bool = False) -> None:
    """A run whose author is not known is not any writer's to delete."""
    if may_change(request, row) and not (deleting and row.author is None and not may(request, "owner", row.project)):
        return
    whose = "nobody's that is known" if row.author is None else f"{row.author}'s"
    raise HubError(
        403,
        f"Run {row.id} is {whose}, and {user_of(request)} is no owner of {row.project}.",
        remedy=f"Its author, or an owner of {row.project}, may {'delete' if deleting else 'change'} it.",
    )


def may_cancel(request: Request, job: JobRow) -> bool:
    visitor = visitor_of(request)
    if visitor is None or visitor.may("owner", job.project):
        return True
    return visitor.may("writer", job.project) and job.user == visitor.user


def require_cancelling(request: Request, job: JobRow) -> None:
    if not may_cancel(request, job):
        raise HubError(
            403,
            f"Job {job.id} is {job.user}'s, and {user_of(request)} is no owner of {job.project}.",
            remedy=f"Its submitter, or an owner of {job.project}, may cancel it.",
        )


def require_priority(request: Request, store: Store, project: str, priority: int) -> None:
    """Each role has a ceiling, which is a setting of the project; administrators have none but the highest."""
    visitor = visitor_of(request)
    if visitor is None or visitor.sees_all or priority <= 0:
        return
    theirs = visitor.may("reader", project)
    owner = not theirs or visitor.may("owner", project)  # one that is made by this job is theirs
    settings = store.project(project) if theirs else Project(name=project, created=0.0)
    ceiling = settings.owner_priority if owner else settings.writer_priority
    if priority > ceiling:
        role = "An owner's" if owner else "A writer's"
        raise HubError(
            403,
            f"{role} jobs in {project} have a priority of {ceiling} at most, and {priority} was asked for.",
            remedy=f"Ask for {ceiling}, or ask an owner of {project} to raise the ceiling.",
        )


def may_control(request: Request, device: FleetDevice, served: tuple[str, ...]) -> bool:
    """Whose device it is may take it out and put it back, and so may an owner of a project that it was given to."""
    visitor = visitor_of(request)
    if visitor is None or visitor.sees_all:
        return True
    return visitor.allows("write") and (
        device.user == visitor.user or any(visitor.may("owner", name) for name in served)
    )


def require_control(request: Request, device: FleetDevice, served: tuple[str, ...]) -> None:
    if not may_control(request, device, served):
        raise HubError(
            403,
            f"{device.name} is a device of {device.user}, and {user_of(request)} owns no project it was given to.",
            remedy="Ask its owner.",
        )
