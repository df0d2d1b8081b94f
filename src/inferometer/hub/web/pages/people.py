"""The pages of people: my tokens and sessions, a project's members and links, and the audit log."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from inferometer.hub.web.guard.people import may, owned_projects, seen, user_of, visitor_of
from inferometer.hub.web.pages.routes import html_page, with_error_page
from inferometer.store.audit import AuditFilter
from inferometer.store.store import Store
from inferometer.store.values import ROLES, SCOPES

_ENTRIES = 100


def people_routes(store: Store) -> list[Route]:
    pages = PeoplePages(store)
    table = {
        "/settings": pages.mine,
        "/projects/{project}/settings": pages.project,
        "/audit": pages.audit,
    }
    return [Route(path, with_error_page(page), methods=["GET"]) for path, page in table.items()]


class PeoplePages:
    def __init__(self, store: Store) -> None:
        self._store = store

    def mine(self, request: Request) -> Response:
        visitor, user = visitor_of(request), user_of(request)
        tokens = self._store.tokens(None if visitor is None or visitor.sees_all else visitor.user)
        now = self._store.now()
        return html_page(
            "settings.html",
            "settings",
            visitor=visitor,
            tokens=[token for token in tokens if token.holds(now)],
            sessions=self._store.sessions(user) if visitor is not None else (),
            scopes=[scope for scope in SCOPES if visitor is None or visitor.allows(scope)],
            projects=seen(request, self._store).project_names(),
            audits=visitor is None or visitor.sees_all or bool(owned_projects(request)),
            links=self._store.links(user=user, projects=frozenset()) if visitor is not None else self._store.links(),
        )

    def project(self, request: Request) -> Response:
        name = request.path_params["project"]
        project = seen(request, self._store).project(name)
        owner = may(request, "owner", name)
        links = self._store.links(user="", projects=frozenset({name})) if owner else ()
        return html_page(
            "project_settings.html",
            "runs",
            project=project,
            members=self._store.members(name),
            roles=ROLES,
            owner=owner,
            links=links,
            kept=self._store.retention(name),
        )

    def audit(self, request: Request) -> Response:
        from inferometer.hub.web.api.people import audited  # noqa: PLC0415 - FastAPI, behind the first page

        query = request.query_params
        project, user = query.get("project") or None, query.get("user") or None
        before = query.get("before", "")
        wanted = AuditFilter(
            projects=audited(request, self._store, project), user=user,
            before=int(before) if before.isdecimal() and len(before) < 18 else None,
        )  # fmt: skip
        entries = self._store.audit(wanted, limit=_ENTRIES + 1)
        return html_page(
            "audit.html",
            "settings",
            entries=entries[:_ENTRIES],
            older=entries[_ENTRIES - 1].number if len(entries) > _ENTRIES else None,
            project=project,
            user=user,
        )
