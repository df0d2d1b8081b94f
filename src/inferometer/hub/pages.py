"""The pages. Each reads the store or the catalog, fills a template, and computes nothing itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

from anyio import to_thread
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from inferometer.errors import DomainError, InferometerError
from inferometer.hub.failures import status_of
from inferometer.hub.keeping import Kept
from inferometer.hub.listing import listed_from
from inferometer.hub.rendering import render
from inferometer.hub.security import COOKIE
from inferometer.store.values import Filter

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from inferometer.hub.listing import Listed
    from inferometer.store.store import Store
    from inferometer.store.values import RunRow

    Page = Callable[[Request], Response]

_MOST_COMPARED = 8
_TREND_ROWS = 200
_NUMBERS = ("latency_s", "ttft_s", "tpot_s", "tokens_per_s", "peak_memory_bytes")


def routes(store: Store) -> list[Route]:
    pages = Pages(store)
    table: dict[str, Page] = {
        "/": pages.runs,
        "/projects/{project}": pages.project,
        "/runs/{run}": pages.run,
        "/runs/{run}/explanation": pages.explanation,
        "/runs/{run}/files/{name:path}": pages.artifact,
        "/runs/{run}/dataflow.svg": pages.dataflow,
        "/runs/{run}/export/{form}": pages.export,
        "/runs/{run}/charts/{name}.{form}": pages.chart,
        "/compare": pages.compare,
        "/predict": pages.predict,
        "/devices": pages.devices,
        "/devices/{name}": pages.device,
        "/formulas": pages.formulas,
        "/formulas/{name}": pages.formula,
        "/sweep": pages.sweep,
        "/live": pages.live,
    }
    return [Route(path, _told(page), methods=["GET"]) for path, page in table.items()]


def _told(page: Page) -> Page:
    """Errors of ours as a page in their own words."""

    def told(request: Request) -> Response:
        try:
            return page(request)
        except InferometerError as error:
            values = {"message": error.message, "remedy": error.remedy, "here": ""}
            return HTMLResponse(render("error.html", values), status_code=status_of(error))

    return told


def _html(name: str, here: str, **values: Any) -> HTMLResponse:
    return HTMLResponse(render(name, {**values, "here": here}))


class Pages:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept = Kept(store)

    def runs(self, request: Request) -> Response:
        return self._list(request, listed_from(request.query_params), project=None)

    def project(self, request: Request) -> Response:
        project = request.path_params["project"]
        return self._list(request, listed_from(request.query_params, project=project), project=project)

    def _list(self, request: Request, asked: Listed, project: str | None) -> Response:
        page = self._store.list(asked.wanted, sort=asked.sort, limit=asked.limit, after=asked.after)
        query = [(key, value) for key, value in request.query_params.multi_items() if key not in {"after", "sort"}]
        projects = self._store.projects()
        empty = not page.rows and not any(each.runs for each in projects)
        return _html(
            "runs.html",
            "runs",
            rows=page.rows,
            asked=asked,
            project=project,
            projects=projects,
            empty=empty,
            told={name for name in _NUMBERS if any(getattr(row, name) is not None for row in page.rows)},
            more=None if page.after is None else urlencode([*query, ("sort", asked.sort), ("after", page.after)]),
            query=urlencode(query),
            trend=self._trend(request, asked) if project is not None and page.rows else None,
            place=str(self._store.location),
        )

    def _trend(self, request: Request, asked: Listed) -> dict[str, Any] | None:
        """A number over the newest runs, by the first that any of them has."""
        from inferometer.report.charts.runs import RUN_METRICS, run_trend  # noqa: PLC0415 - only where it is drawn

        rows: tuple[RunRow, ...] = self._store.list(asked.wanted, limit=_TREND_ROWS).rows
        known = [name for name in RUN_METRICS if sum(getattr(row, name) is not None for row in rows) > 1]
        if not known:
            return None
        chosen = request.query_params.get("metric", known[0])
        if chosen not in known:
            chosen = known[0]
        return {"spec": run_trend(rows, chosen), "metric": chosen, "known": known}

    def run(self, request: Request) -> Response:
        from inferometer.hub.run_page import HELD, PROGRESS, held_of, run_values  # noqa: PLC0415 - the list does without charts

        asked = request.path_params["run"]
        found, row = self._kept.get(asked)
        if found.id != asked:
            return RedirectResponse(f"/runs/{found.id}", status_code=303)
        metrics = self._store.metrics(found.id)
        if found.profile is None:
            return _html("open_run.html", "runs", run=found, row=row, metrics=metrics)
        values = run_values(found, found.profile)
        known = self._kept.explained_before(row)
        if known is not None:
            values["explained"] = known
        shown = [metric for metric in metrics if metric.name not in {PROGRESS, HELD}]
        return _html("run.html", "runs", row=row, metrics=shown, held=held_of(metrics), **values)

    def explanation(self, request: Request) -> Response:
        """A part of the run page, which asks for it when it is drawn: pricing what-ifs takes a moment."""
        run, found = self._kept.explained(request.path_params["run"])
        return _html("explanation.html", "", run=run, explained=found)

    def artifact(self, request: Request) -> Response:
        """A run's file, always to be saved: what somebody attached is never shown as a page of ours."""
        run, name = request.path_params["run"], request.path_params["name"]
        path = self._store.artifact(run, name)
        return FileResponse(path, media_type="application/octet-stream", filename=name.rpartition("/")[2])

    def dataflow(self, request: Request) -> Response:
        from inferometer.hub.dataflow import dataflow_svg  # noqa: PLC0415 - as above

        found, _ = self._kept.get(request.path_params["run"])
        drawing = None if found.profile is None else dataflow_svg(found.profile)
        if drawing is None:
            return PlainTextResponse("There is nothing to draw.\n", status_code=404)
        return Response(drawing, media_type="image/svg+xml", headers={"cache-control": "private, max-age=600"})

    def export(self, request: Request) -> Response:
        from inferometer.hub.downloads import made, media_type  # noqa: PLC0415 - as above

        form = request.path_params["form"]
        run, _ = self._kept.get(request.path_params["run"])
        name = f"inferometer-{run.id}.{form}"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(made(run, form, self._store.metrics(run.id)), media_type=media_type(form), headers=headers)

    def chart(self, request: Request) -> Response:
        from inferometer.hub.downloads import chart, media_type  # noqa: PLC0415 - as above

        run, name, form = (request.path_params[key] for key in ("run", "name", "form"))
        found, _ = self._kept.get(run)
        if found.profile is None:
            raise DomainError(f"Run {found.id} has no profile to draw: it is {found.status}.")
        if form not in {"svg", "png", "json"}:
            raise DomainError(f"A chart cannot be made {form!r}.", remedy="It can be svg, png or json.")
        headers = {"content-disposition": f'inline; filename="{found.id}-{name}.{form}"'}
        return Response(chart(found.profile, name, form), media_type=media_type(form), headers=headers)

    def compare(self, request: Request) -> Response:
        from inferometer.hub.compare_page import compare_values  # noqa: PLC0415 - as above

        named = [run for text in request.query_params.getlist("run") for run in text.split(",") if run]
        wanted = list(dict.fromkeys(named))
        if len(wanted) < 2:
            recent = self._store.list(Filter(status=("finished",)), limit=20).rows
            return _html("choose.html", "compare", rows=recent, chosen=set(wanted))
        if len(wanted) > _MOST_COMPARED:
            raise DomainError(f"{len(wanted)} runs were asked for; {_MOST_COMPARED} can be compared.")
        return _html("compare.html", "compare", **compare_values([self._kept.get(run)[0] for run in wanted]))

    def predict(self, request: Request) -> Response:
        from inferometer.hub.catalog_pages import predict_values  # noqa: PLC0415 - as above

        return _html("predict.html", "predict", **predict_values(request.query_params))

    def devices(self, request: Request) -> Response:
        from inferometer.hub.catalog_pages import device_rows  # noqa: PLC0415 - as above

        seen = {device.name for device in self._store.devices()}
        return _html("devices.html", "devices", devices=device_rows(), seen=seen, words=_words(request))

    def device(self, request: Request) -> Response:
        from inferometer.hub.catalogue import device_named  # noqa: PLC0415 - as above
        from inferometer.report.cards import device_card  # noqa: PLC0415 - as above

        found = device_named(request.path_params["name"])
        rows = self._store.list(Filter(device=found.name), limit=10).rows
        return _html("device.html", "devices", card=device_card(found), device=found, rows=rows)

    def formulas(self, request: Request) -> Response:
        from inferometer.hub.catalog_pages import formula_sections  # noqa: PLC0415 - as above

        return _html("formulas.html", "formulas", sections=formula_sections(), words=_words(request))

    def formula(self, request: Request) -> Response:
        from inferometer.hub.catalog_pages import formula_values  # noqa: PLC0415 - as above

        return _html("formula.html", "formulas", **formula_values(request.path_params["name"]))

    def sweep(self, request: Request) -> Response:
        from inferometer.hub.catalog_pages import sweep_values  # noqa: PLC0415 - as above

        return _html("sweep.html", "sweep", **sweep_values(request.query_params))

    def live(self, _request: Request) -> Response:
        return _html("live.html", "live", rows=self._store.list(Filter(status=("running", "pending"))).rows)


def _words(request: Request) -> str:
    return request.query_params.get("words", "")[:200]


def sign_in_routes(store: Store) -> list[Route]:
    async def sign_in(request: Request) -> Response:
        to = request.query_params.get("to", "/")
        to = to if to.startswith("/") and not to.startswith(("//", "/\\")) else "/"
        if request.method == "GET":
            return _html("sign_in.html", "", to=to, wrong=False)
        given = parse_qs((await request.body()).decode("utf-8", "replace")).get("token", [""])[0].strip()
        token = await to_thread.run_sync(store.admitted, given) if given else None
        if token is None:
            return HTMLResponse(render("sign_in.html", {"to": to, "wrong": True, "here": ""}), status_code=403)
        answer = RedirectResponse(to, status_code=303)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, given, httponly=True, samesite="strict", secure=secure, max_age=30 * 86400)
        return answer

    def sign_out(_request: Request) -> Response:
        answer = RedirectResponse("/sign-in", status_code=303)
        answer.delete_cookie(COOKIE)
        return answer

    return [
        Route("/sign-in", sign_in, methods=["GET", "POST"]),
        Route("/sign-out", sign_out, methods=["POST"]),
    ]
