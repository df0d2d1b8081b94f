"""The pages of people and projects, and what a share link opens."""

import re
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from inferometer.core.profile import Profile, Run
from inferometer.hub.web.answers import HubError
from inferometer.hub.web.caches import RunCache
from inferometer.hub.web.guard.people import may, owned_projects, seen, user_of, visitor_of
from inferometer.hub.web.guard.security import RateLimit, client_of
from inferometer.hub.web.pages.routes import html_page, json_answer, with_error_page
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
    return [Route(path, _private(with_error_page(page)), methods=["GET"]) for path, page in table.items()]


def _private(page: Callable[[Request], Response]) -> Callable[[Request], Response]:
    def answered(request: Request) -> Response:
        response = page(request)
        response.headers.update(_HEADERS)
        return response

    return answered


class SharedPages:
    def __init__(self, store: Store, wrong_tokens: RateLimit) -> None:
        self._store, self._wrong_tokens = store, wrong_tokens
        self._cache = RunCache(store)

    def _runs(self, request: Request) -> list[Run]:
        text = request.path_params["link"]
        link = self._store.opened_link(text) if _FORM.fullmatch(text) else None
        if link is None:
            slowed = self._wrong_tokens.wait(client_of(request)) > 0
            message = "This link does not lead anywhere: it is wrong, has ended or was taken back."
            raise HubError(429 if slowed else 404, message, remedy="Ask whoever sent it for another.")
        return [self._cache.get(run)[0] for run in link.runs]

    def _run(self, request: Request) -> tuple[Run, Profile]:
        runs = self._runs(request)
        if len(runs) > 1 or runs[0].profile is None:
            raise HubError(404, "This link shows no such page.")
        return runs[0], runs[0].profile

    def page(self, request: Request) -> Response:
        runs = self._runs(request)
        if len(runs) > 1:
            from inferometer.hub.web.pages.compare import compare_values  # noqa: PLC0415 - charts, only where they are drawn

            return html_page("compare.html", "", shared=True, shares=False, **compare_values(runs))
        from inferometer.hub.web.pages.run import HELD, PROGRESS, held_of, proof_of, run_values  # noqa: PLC0415 - as above

        run, profile = self._run(request)
        metrics = self._store.metrics(run.id)
        shown = [metric for metric in metrics if metric.name not in {PROGRESS, HELD}]
        values: dict[str, Any] = run_values(run, profile) | {"at": f"/shared/{request.path_params['link']}"}
        proof = proof_of(self._store, run)
        return html_page("shared_run.html", "", metrics=shown, held=held_of(metrics), proof=proof, **values)

    def explanation(self, request: Request) -> Response:
        run, _ = self._run(request)
        _, explanation = self._cache.explanation(run.id)
        return html_page("explanation.html", "", run=run, explanation=explanation)

    def dataflow(self, request: Request) -> Response:
        from inferometer.understand.view.drawing import dataflow_svg  # noqa: PLC0415 - as above

        drawing = dataflow_svg(self._run(request)[1])
        if drawing is None:
            return PlainTextResponse("There is nothing to draw.\n", status_code=404)
        return Response(drawing, media_type="image/svg+xml")

    def graph(self, request: Request) -> Response:
        from inferometer.understand.view.model_graph import model_graph  # noqa: PLC0415 - as above

        return json_answer(model_graph(self._run(request)[1]))

    def chart(self, request: Request) -> Response:
        from inferometer.hub.web.downloads import exported_chart  # noqa: PLC0415 - as above

        run, _ = self._run(request)
        width = request.query_params.get("width", "")
        wide = int(width) if width.isdecimal() and len(width) < 6 else None
        return Response(exported_chart(run, request.path_params["name"], "json", wide), media_type="application/json")
