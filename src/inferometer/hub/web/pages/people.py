"""The pages of people and projects, and what a share link opens."""

import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from inferometer.core.profile import Run
from inferometer.hub.web.answers import HubError
from inferometer.hub.web.guard.people import may, owned_projects, seen, user_of, visitor_of
from inferometer.hub.web.guard.security import RateLimit, client_of
from inferometer.hub.web.pages.routes import RunParts, html_page, page_routes
from inferometer.hub.web.pages.run import proof_of, run_values
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
    return page_routes(table)


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


# What a share link opens: one run, or one comparison, and what those pages themselves need; nothing else.

_FORM = re.compile(r"ifl_[\w-]{43}")
# No search engine keeps it, and no page that it leads to learns of the link.
_HEADERS = {
    "x-robots-tag": "noindex, nofollow, noarchive",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def shared_routes(store: Store, wrong_tokens: RateLimit) -> list[Route]:
    pages = SharedPages(store, wrong_tokens)
    table = {
        "/shared/{link}": pages.page,
        "/shared/{link}/explanation": pages.explanation,
        "/shared/{link}/dataflow.svg": pages.dataflow,
        "/shared/{link}/graph.json": pages.graph,
        "/shared/{link}/charts/{name}.json": pages.chart,
    }
    return page_routes(table, headers=_HEADERS)


class SharedPages(RunParts):
    def __init__(self, store: Store, wrong_tokens: RateLimit) -> None:
        super().__init__(store)
        self._wrong_tokens = wrong_tokens

    def _runs(self, request: Request) -> list[Run]:
        text = request.path_params["link"]
        link = self._store.opened_link(text) if _FORM.fullmatch(text) else None
        if link is None:
            slowed = self._wrong_tokens.wait(client_of(request)) > 0
            message = "This link does not lead anywhere: it is wrong, has ended or was taken back."
            raise HubError(429 if slowed else 404, message, remedy="Ask whoever sent it for another.")
        return [self._cache.get(run)[0] for run in link.runs]

    def _run_of(self, request: Request) -> Run:
        runs = self._runs(request)
        if len(runs) > 1 or runs[0].profile is None:
            raise HubError(404, "This link shows no such page.")
        return runs[0]

    def page(self, request: Request) -> Response:
        runs = self._runs(request)
        if len(runs) > 1:
            from inferometer.hub.web.pages.compare import compare_values  # noqa: PLC0415 - charts, only where they are drawn

            return html_page("compare.html", "", shared=True, shares=False, **compare_values(runs))
        run = self._run_of(request)
        assert run.profile is not None  # noqa: S101 - `_run_of` asked for it
        values = run_values(run, run.profile, self._store.metrics(run.id))
        values |= {"at": f"/shared/{request.path_params['link']}", "proof": proof_of(self._store, run)}
        return html_page("shared_run.html", "", **values)
