"""The API of people: my tokens and sessions, a project's members and retention, share links, and the audit log."""

import csv
import io
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from inferometer.core.errors import DomainError
from inferometer.hub.web.answers import ERRORS, HubError, answer, json_response
from inferometer.hub.web.api.bodies import Body, LongName, Name, PathId, PathName
from inferometer.hub.web.guard.people import acting, author_of, owned_projects, require_role, seen, user_of, visitor_of
from inferometer.hub.web.guard.rules import Rules
from inferometer.store.audit import MOST_ENTRIES, AuditFilter
from inferometer.store.retention import Retention
from inferometer.store.store import Store
from inferometer.store.values import AuditEntry, Role, Scope, Visitor

_DAY_S = 86_400.0
_MOST_COMPARED = 40
_MOST_KEPT_S = 100 * 366 * _DAY_S
_TABLE = json_response([None])
_TABLE["content"]["text/csv"] = {"schema": {"type": "string"}}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class NewTokenRequest(Body):
    """A token for whoever asks, or for `user` where an administrator asks. It may do no more than its maker."""

    name: Name = "token"
    scopes: list[Literal["read", "write", "admin", "agent"]] = Field(default=["read"], min_length=1, max_length=4)
    days: float = Field(default=90, gt=0, le=366)
    project: Name | None = None
    user: Name | None = None


class MemberChange(Body):
    role: Role


class ProjectSettings(Body):
    """What to change in a project; the rest stays."""

    open: bool | None = None
    writer_priority: Annotated[int, Field(ge=-100, le=100)] | None = None
    owner_priority: Annotated[int, Field(ge=-100, le=100)] | None = None
    description: Annotated[str, Field(max_length=2000)] | None = None


class RetentionRules(Body):
    """For how many seconds what has ended is kept; null: for ever. Runs with one of `keep_tags` stay in any case."""

    runs_s: Annotated[float, Field(gt=0, le=_MOST_KEPT_S)] | None = None
    artifacts_s: Annotated[float, Field(gt=0, le=_MOST_KEPT_S)] | None = None
    jobs_s: Annotated[float, Field(gt=0, le=_MOST_KEPT_S)] | None = None
    keep_tags: list[Name] = Field(default=[], max_length=50)


class NewLink(Body):
    """A link to a run; with several, to their comparison, the baseline first."""

    runs: list[LongName] = Field(min_length=1, max_length=_MOST_COMPARED)
    days: float = Field(default=7, gt=0, le=366)


def router(store: Store, rules: Rules) -> APIRouter:
    api = APIRouter(responses=ERRORS)
    _add_tokens(api, store)
    _add_members(api, store)
    _add_retention(api, store)
    _add_links(api, store, rules)
    _add_audit(api, store)
    return api


def _add_tokens(api: APIRouter, store: Store) -> None:
    @api.get("/tokens", tags=["people"], responses={200: json_response([None])})
    def list_tokens(request: Request) -> Response:
        """My tokens; an administrator's list has everybody's. Never the tokens themselves."""
        return answer(request, store.tokens(_whose(request)))

    @api.post("/tokens", tags=["people"], status_code=201, responses={201: json_response()})
    def create_token(request: Request, wanted: NewTokenRequest) -> Response:
        """A new token: `text` is shown this once."""
        user, scopes = wanted.user or user_of(request), tuple(wanted.scopes)
        _require_no_more(request, store, wanted)
        making = acting(
            request, store, "token.create", project=wanted.project, subject=lambda made: str(made.token.id),
            detail=f"{user}: {', '.join(scopes)}",
        )  # fmt: skip
        lasts_s = wanted.days * _DAY_S
        secret = making.create_token(user, name=wanted.name, scopes=scopes, lasts_s=lasts_s, project=wanted.project)
        return answer(request, {**asdict(secret.token), "text": secret.text}, status=201)

    @api.delete("/tokens/{token}", tags=["people"], status_code=204)
    def revoke_token(request: Request, token: PathId) -> Response:
        """Revoke a token of mine, and end the sessions begun with it."""
        mine = {each.id: each for each in store.tokens(_whose(request))}
        if token not in mine:
            raise HubError(404, f"There is no token {token}.")
        acting(request, store, "token.revoke", subject=token, detail=mine[token].user).revoke_token(token)
        return Response(status_code=204)

    @api.get("/sessions", tags=["people"], responses={200: json_response([None])})
    def list_sessions(request: Request) -> Response:
        """The browsers in which I am signed in."""
        return answer(request, store.sessions(user_of(request)))

    @api.delete("/sessions/{session}", tags=["people"], status_code=204)
    def end_session(request: Request, session: PathId) -> Response:
        user = user_of(request)
        acting(request, store, "session.end", subject=session).end_session(session, user=user)
        return Response(status_code=204)


def _whose(request: Request) -> str | None:
    """The user whose tokens are shown; None, everybody's, for an administrator."""
    visitor = visitor_of(request)
    return None if visitor is None or visitor.sees_all else visitor.user


def _require_no_more(request: Request, store: Store, wanted: NewTokenRequest) -> None:
    """A token may do no more than who makes it: scopes, project, and how long it lasts."""
    visitor = visitor_of(request)
    if visitor is None and wanted.user is None:
        raise DomainError("Whose token is it to be?", remedy="Give a `user`: at this hub nobody is signed in.")
    if visitor is None or visitor.sees_all:
        return
    if wanted.user not in {None, visitor.user}:
        raise HubError(403, "Only a token with the scope admin makes tokens for others.")
    for scope in wanted.scopes:
        if not _grants(visitor, scope, wanted.project):
            remedy = "An agent's token is for a project that you may write to." if scope == "agent" else None
            raise HubError(403, f"{visitor.user} may not make a token with the scope {scope}.", remedy=remedy)
    if visitor.project is not None and wanted.project != visitor.project:
        raise HubError(403, f"This token is for the project {visitor.project}, and makes tokens for it only.")
    if wanted.project is not None and not visitor.may("reader", wanted.project):
        raise HubError(404, f"There is no project {wanted.project!r}.")
    made_with = next((token for token in store.tokens(visitor.user) if token.id == visitor.token), None)
    left_s = None if made_with is None or made_with.expires is None else made_with.expires - store.now()
    if left_s is not None and wanted.days * _DAY_S > left_s:
        raise HubError(
            403, f"The token this is made with ends in {left_s / _DAY_S:.1f} days: the new one may not outlast it."
        )


def _grants(visitor: Visitor, scope: Scope, project: str | None) -> bool:
    if scope == "agent":
        return visitor.allows("write") and project is not None and visitor.may("writer", project)
    return visitor.allows(scope) and scope != "admin"  # who sees all was let through before


def _add_members(api: APIRouter, store: Store) -> None:
    @api.get("/projects/{project}/members", tags=["projects"], responses={200: json_response([None])})
    def list_members(request: Request, project: PathName) -> Response:
        seen(request, store).project(project)
        return answer(request, store.members(project))

    @api.put("/projects/{project}/members/{user}", tags=["projects"], status_code=204)
    def set_member(request: Request, project: PathName, user: PathName, change: MemberChange) -> Response:
        """Make somebody a member, or change their role. An owner may. An e-mail address invites who has it."""
        _owned(request, store, project)
        if user not in {known.name for known in store.users()}:
            if "@" not in user:
                raise HubError(404, f"There is nobody named {user!r} on this hub.", remedy="Invite an e-mail address.")
            store.create_user(user)
        acting(request, store, "member.set", project=project, subject=user, detail=change.role).set_member(
            project, user, change.role
        )
        return Response(status_code=204)

    @api.delete("/projects/{project}/members/{user}", tags=["projects"], status_code=204)
    def remove_member(request: Request, project: PathName, user: PathName) -> Response:
        """Remove a member. An owner may; and everybody may leave."""
        seen(request, store).project(project)
        if user != author_of(request):
            require_role(request, "owner", project)
        if user not in {member.user for member in store.members(project)}:
            raise HubError(404, f"{user!r} is no member of {project}.")
        acting(request, store, "member.remove", project=project, subject=user).remove_member(project, user)
        return Response(status_code=204)

    @api.patch("/projects/{project}", tags=["projects"], responses={200: json_response()})
    def change_project(request: Request, project: PathName, change: ProjectSettings) -> Response:
        """Open a project to every reader, or set the ceilings of its priorities. An owner may, up to 50."""
        _owned(request, store, project)
        values: dict[str, Any] = {key: value for key, value in change.model_dump().items() if value is not None}
        visitor, most = visitor_of(request), 50
        if (
            visitor is not None
            and not visitor.sees_all
            and max(values.get("writer_priority", 0), values.get("owner_priority", 0)) > most
        ):
            raise HubError(403, f"An owner sets ceilings up to {most}; only an administrator sets higher ones.")
        detail = ", ".join(f"{key} {value}" for key, value in values.items())
        acting(request, store, "project.change", project=project, detail=detail).change_project(project, **values)
        return answer(request, store.project(project))


def _add_retention(api: APIRouter, store: Store) -> None:
    @api.get("/projects/{project}/retention", tags=["projects"], responses={200: json_response()})
    def show_retention(request: Request, project: PathName) -> Response:
        """What the project keeps, and for how long. Its owners may."""
        _owned(request, store, project)
        return answer(request, store.retention(project))

    @api.put("/projects/{project}/retention", tags=["projects"], responses={200: json_response()})
    def set_retention(request: Request, project: PathName, chosen: RetentionRules) -> Response:
        """The rules from now on, in place of those before. They are applied once a day. An owner may."""
        _owned(request, store, project)
        values = chosen.model_dump()
        detail = ", ".join(f"{key} {value}" for key, value in values.items() if value)
        setting = acting(request, store, "project.retention", project=project, detail=detail or "keeps everything")
        setting.set_retention(Retention(project=project, **{**values, "keep_tags": tuple(chosen.keep_tags)}))
        return answer(request, store.retention(project))


def _owned(request: Request, store: Store, project: str) -> None:
    seen(request, store).project(project)
    require_role(request, "owner", project)


def _add_links(api: APIRouter, store: Store, rules: Rules) -> None:
    @api.get("/links", tags=["people"], responses={200: json_response([None])})
    def list_links(request: Request) -> Response:
        """Share links that hold: mine, and those to runs of projects that I own."""
        return answer(request, _links_of(request, store))

    @api.post("/links", tags=["people"], status_code=201, responses={201: json_response()})
    def create_link(request: Request, wanted: NewLink) -> Response:
        """Show a run, or a comparison, to everyone with the `link`, shown this once. Writers of its project may."""
        rows = [seen(request, store).row(run) for run in wanted.runs]
        for row in rows:
            require_role(request, "writer", row.project)
            if row.profile_kind is None:
                raise DomainError(f"Run {row.id} has no profile to show: it is {row.status}.")
        found = list(dict.fromkeys(row.id for row in rows))
        making = acting(request, store, "link.create", project=rows[0].project, subject=" ".join(found))
        text = making.create_link(found, user=author_of(request), lasts_s=wanted.days * _DAY_S)
        base = rules.url or str(request.base_url.replace(path=""))
        return answer(request, {"link": f"{base.rstrip('/')}/shared/{text}", "days": wanted.days}, status=201)

    @api.delete("/links/{link}", tags=["people"], status_code=204)
    def revoke_link(request: Request, link: PathId) -> Response:
        """End a link. Its maker may, and an owner of the project of a run that it shows."""
        mine = {each.id: each for each in _links_of(request, store)}
        if link not in mine:
            raise HubError(404, f"There is no link {link}.")
        runs = " ".join(mine[link].runs)
        acting(request, store, "link.revoke", subject=link, detail=runs).revoke_link(link)
        return Response(status_code=204)


def _links_of(request: Request, store: Store) -> tuple[Any, ...]:
    visitor = visitor_of(request)
    if visitor is None or visitor.sees_all:
        return store.links()
    return store.links(user=visitor.user, projects=owned_projects(request))


def _add_audit(api: APIRouter, store: Store) -> None:
    @api.get("/audit", tags=["people"], responses={200: _TABLE})
    def list_audit(  # noqa: PLR0913, PLR0917 - all that it is narrowed by; FastAPI passes them by name
        request: Request,
        project: Name | None = None,
        user: Name | None = None,
        action: Name | None = None,
        since: Annotated[float | None, Query(ge=0, le=1e11)] = None,
        before: Annotated[int | None, Query(ge=0, le=2**62)] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_ENTRIES)] = 100,
        form: Annotated[Literal["json", "csv"], Query(alias="format")] = "json",
    ) -> Response:
        """Who did what, the newest first. Owners read what was done in their projects, an administrator everything."""
        wanted = AuditFilter(
            projects=audited(request, store, project), user=user, action=action, since=since, before=before
        )
        entries = store.audit(wanted, limit=limit)
        if form == "json":
            return answer(request, entries)
        acting(request, store, "audit.export", project=project).note_deed()
        headers = {"content-disposition": 'attachment; filename="inferometer-audit.csv"'}
        return Response(_csv(entries), media_type="text/csv; charset=utf-8", headers=headers)


def audited(request: Request, store: Store, project: str | None) -> frozenset[str] | None:
    """The projects whose audit log is shown to whoever asks; None: everything."""
    if project is not None:
        _owned(request, store, project)
        return frozenset({project})
    visitor = visitor_of(request)
    if visitor is None or visitor.sees_all:
        return None
    owned = owned_projects(request)
    if not owned:
        raise HubError(403, f"{visitor.user} owns no project: only owners read the audit log.")
    return owned


def _csv(entries: tuple[AuditEntry, ...]) -> str:
    """A name that a spreadsheet would take for a formula is text: it begins with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [field.name for field in fields(AuditEntry)]
    writer.writerow(names)
    for entry in entries:
        values = [getattr(entry, name) for name in names]
        writer.writerow(
            [f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value for value in values]
        )
    return text.getvalue()
