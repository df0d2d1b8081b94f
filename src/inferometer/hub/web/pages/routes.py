"""The pages. Each reads the store or the catalog and fills a template; none computes anything itself."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.kept import Kept
from inferometer.core.profile import Run
from inferometer.hub.web.answers import error_page
from inferometer.hub.web.caches import RunCache
from inferometer.hub.web.guard.catalog_names import catalog_device
from inferometer.hub.web.guard.people import may, may_change, noted, seen
from inferometer.hub.web.pages.run import change_since, earlier_run, proof_of, run_values
from inferometer.hub.web.rendering import render_template
from inferometer.store.store import Store
from inferometer.store.values import SORTS, Filter, RunRow
from inferometer.understand.view.cards import device_card
from inferometer.understand.view.charts import RUN_METRICS, run_trend
from inferometer.understand.view.drawing import dataflow_svg, layers_svg
from inferometer.understand.view.runs import machine_names

Page = Callable[[Request], Response]

# A page of runs, as the URL asks for it: how to filter and sort, which columns to show, and where to continue.

_TEXTS = ("project", "model", "device", "machine", "runtime", "precision", "author", "kind")
_ROWS = 50


@frozen
class ListColumn:
    """A column of the list. `field` is the run's, whose values decide whether it is shown unless asked for.

    `width` is at most what it takes, in pixels, and `rank` says who comes first where there is no room for all.
    """

    key: str
    heading: str
    field: str
    rank: int
    width: int
    sort: str | None = None
    number: bool = False
    wanted: bool = True  # by default, where some run has it
    telling: bool = False  # by default only where two runs differ in it


COLUMNS = (
    ListColumn(key="when", heading="When", rank=5, width=84, field="created", sort="created"),
    ListColumn(key="run", heading="Run", rank=1, width=208, field="id", sort="name"),
    ListColumn(key="status", heading="Status", rank=2, width=88, field="status", sort="status"),
    ListColumn(key="model", heading="Model", rank=3, width=136, field="model", sort="model"),
    ListColumn(key="device", heading="Device", rank=6, width=136, field="device", sort="device"),
    ListColumn(key="latency", heading="Latency", rank=4, width=76, field="latency_s", sort="latency", number=True),
    ListColumn(key="ttft", heading="TTFT", rank=7, width=76, field="ttft_s", sort="ttft", number=True),
    ListColumn(key="tpot", heading="TPOT", rank=16, width=76, field="tpot_s", sort="tpot", number=True, wanted=False),
    ListColumn(key="tokens", heading="Tokens/s", rank=11, width=72, field="tokens_per_s", sort="tokens", number=True),
    ListColumn(key="memory", heading="Memory", rank=9, width=76, field="peak_memory_bytes", sort="memory", number=True),
    ListColumn(key="batch", heading="Batch", rank=14, width=52, field="batch", sort="batch", number=True, telling=True),
    ListColumn(
        key="precision", heading="Precision", rank=13, width=80, field="precision", sort="precision", telling=True
    ),
    ListColumn(
        key="threads", heading="Threads", rank=17, width=66, field="threads", sort="threads", number=True, wanted=False
    ),
    ListColumn(key="runtime", heading="Runtime", rank=12, width=110, field="runtime", telling=True),
    ListColumn(key="machine", heading="Machine", rank=15, width=136, field="machine_id", sort="machine", telling=True),
    ListColumn(key="author", heading="Author", rank=18, width=100, field="author", sort="author", wanted=False),
    ListColumn(key="layers", heading="Layers", rank=10, width=84, field="profile_kind"),
    ListColumn(key="tags", heading="Tags", rank=8, width=128, field="tags"),
)
_ALWAYS = {"run"}
_SAID = ("disturbed",)  # tags of which the status says the same: no person has chosen them
_ROOM = 1020  # pixels for the columns of a list beside its projects, on a screen of 1280


@frozen
class RunListing:
    filter: Filter
    query: Sequence[tuple[str, str]] = ()  # of the address, without the mark of a page
    project: str | None = None
    sort: str = "-created"
    limit: int = _ROWS
    after: str | None = None
    columns: tuple[str, ...] | None = None  # None: the columns that tell runs apart

    def chips(self) -> Iterable[tuple[str, str, str]]:
        """Each filter that is set: its name, its value, and the address without it."""
        for name in (*(name for name in _TEXTS if name != "project" or self.project is None), "words"):
            value = getattr(self.filter, name)
            if value:
                yield name, value, self.without(name, value)
        for status in self.filter.status:
            yield "status", status, self.without("status", status)
        for tag in self.filter.tags:
            yield "tag", tag, self.without("tag", tag)

    def adding(self, name: str, value: str) -> str:
        """The address with this filter too; a run has many tags, and one of everything else."""
        kept = [pair for pair in self.query if pair != (name, value) and (name == "tag" or pair[0] != name)]
        return "?" + urlencode([*kept, (name, value)])

    def without(self, name: str, value: str) -> str:
        return "?" + urlencode([pair for pair in self.query if pair != (name, value)])

    def sorting(self, key: str) -> str:
        wanted = key if self.sort == f"-{key}" else f"-{key}"
        return self.adding("sort", wanted)

    def following(self, mark: str) -> str:
        return "?" + urlencode([*self.query, ("after", mark)])

    def shown(self, rows: Sequence[RunRow]) -> Mapping[str, bool]:
        """Every column, and whether it is shown: as the address says, else where some run has something in it.

        Of those, as many as stand side by side on a laptop's screen; the others are a click away.
        """
        if self.columns is not None:
            return {column.key: column.key in self.columns or column.key in _ALWAYS for column in COLUMNS}
        known = {column.key: {getattr(row, column.field) for row in rows} - {None, (), _SAID} for column in COLUMNS}
        telling = [
            column for column in COLUMNS if column.wanted and len(known[column.key]) > (1 if column.telling else 0)
        ]
        return dict.fromkeys((column.key for column in COLUMNS), False) | dict.fromkeys(_fitting(telling), True)


def _fitting(columns: Iterable[ListColumn]) -> Iterator[str]:
    """The keys of the columns that there is room for, the most important first."""
    room = _ROOM
    for column in sorted(columns, key=lambda column: column.rank):
        if column.width <= room:
            room -= column.width
            yield column.key


def listing_from(query: QueryParams, *, project: str | None = None) -> RunListing:
    """Unknown values are ignored: URLs are typed by hand and shared, and should always show something."""
    texts: dict[str, Any] = {name: query[name] for name in _TEXTS if query.get(name)}
    if project is not None:
        texts["project"] = project
    sort = query.get("sort", "-created")
    status: Any = tuple(filter(None, query.getlist("status")))
    chosen = query.get("columns")
    return RunListing(
        filter=Filter(
            status=status, tags=tuple(filter(None, query.getlist("tag"))), words=query.get("words") or None, **texts
        ),
        query=[(key, value) for key, value in query.multi_items() if key != "after" and value],
        project=project,
        sort=sort if sort.removeprefix("-") in SORTS else "-created",
        after=query.get("after") or None,
        columns=None if chosen is None else tuple(chosen.split(",")),
    )


_MOST_COMPARED = 40
_TREND_ROWS = 200
_LOG_BYTES = 8000


def routes(store: Store, *, own_machine: bool = False) -> list[Route]:
    """`own_machine`: a click may measure on the hub's own."""
    pages = Pages(store, own_machine=own_machine)
    table: dict[str, Page] = {
        "/": pages.runs,
        "/runs": pages.runs,
        "/projects/{project}": pages.project,
        "/runs/{run}": pages.run,
        "/runs/{run}/explanation": pages.explanation,
        "/runs/{run}/files/{name:path}": pages.artifact,
        "/runs/{run}/dataflow.svg": pages.dataflow,
        "/runs/{run}/layers.svg": pages.thumbnail,
        "/runs/{run}/graph.json": pages.graph,
        "/runs/{run}/export/{form}": pages.export,
        "/runs/{run}/charts/{name}.{form}": pages.chart,
        "/compare": pages.compare,
        "/predict": pages.predict,
        "/choices.json": pages.choices,
        "/devices": pages.devices,
        "/devices/{name}": pages.device,
        "/catalog": pages.catalog,
        "/catalog/{table}": pages.catalog_table,
        "/catalog/{table}/{name}": pages.catalog_row,
        "/formulas": pages.formulas,
        "/formulas/{name}": pages.formula,
        "/sweep": pages.sweep,
        "/atlas": pages.atlas,
        "/live": pages.live,
        "/timeline": pages.timeline,
    }
    return page_routes(table)


def page_routes(table: Mapping[str, Page], headers: Mapping[str, str] | None = None) -> list[Route]:
    """Each page at its address, all with these headers; our errors are a page too, with their remedy."""

    def shown(page: Page) -> Page:
        def answered(request: Request) -> Response:
            try:
                response = page(request)
            except InferometerError as error:
                response = error_page(error)
            response.headers.update(headers or {})
            return response

        return answered

    return [Route(path, shown(page), methods=["GET"]) for path, page in table.items()]


def html_page(name: str, here: str, **values: Any) -> HTMLResponse:
    return HTMLResponse(render_template(name, {**values, "here": here}))


def json_answer(value: Any) -> Response:
    """Data that a page asks for after it is shown; it may be kept for as long as somebody looks at the page."""
    data = msgspec.json.encode(value)
    return Response(data, media_type="application/json", headers={"cache-control": "private, max-age=600"})


class RunParts:
    """The parts of a run's page that load after it is shown: of a run by its name, or by a share link."""

    def __init__(self, store: Store) -> None:
        self._store, self._cache = store, RunCache(store)

    def _run_of(self, request: Request) -> Run:
        return self._cache.get(request.path_params["run"], seen(request, self._store))[0]

    def explanation(self, request: Request) -> Response:
        """Pricing what-ifs takes a moment."""
        run, explanation = self._cache.explanation(self._run_of(request).id)
        return html_page("explanation.html", "", run=run, explanation=explanation)

    def dataflow(self, request: Request) -> Response:
        profile = self._run_of(request).profile
        drawing = None if profile is None else dataflow_svg(profile)
        if drawing is None:
            return PlainTextResponse("There is nothing to draw.\n", status_code=404)
        return Response(drawing, media_type="image/svg+xml", headers={"cache-control": "private, max-age=600"})

    def graph(self, request: Request) -> Response:
        """The model as a graph with the rows of the layer table that its times are in; the run page draws it."""
        from inferometer.understand.view.model_graph import model_graph  # noqa: PLC0415 - as above

        profile = self._run_of(request).profile
        if profile is None:
            return PlainTextResponse("There is nothing to draw.\n", status_code=404)
        return json_answer(model_graph(profile))

    def chart(self, request: Request) -> Response:
        from inferometer.hub.web.downloads import MEDIA_TYPES, exported_chart  # noqa: PLC0415 - as above

        name, form = request.path_params["name"], request.path_params.get("form", "json")
        if form not in {"svg", "png", "json"}:
            raise DomainError(f"A chart cannot be saved as {form!r}.", remedy="Use svg, png or json.")
        run, width = self._run_of(request), request.query_params.get("width", "")
        headers = {"content-disposition": f'inline; filename="{run.id}-{name}.{form}"'}
        data = exported_chart(run, name, form, int(width) if width.isdecimal() and len(width) < 6 else None)
        return Response(data, media_type=MEDIA_TYPES[form], headers=headers)


class Pages(RunParts):
    def __init__(self, store: Store, *, own_machine: bool = False) -> None:
        super().__init__(store)
        self._own_machine = own_machine
        # By what is in sight and the store's mark. Counting the runs of each takes most of a list's time, and every
        # list names them, whatever it is filtered by.
        self._projects = Kept(64)

    def runs(self, request: Request) -> Response:
        return self._list(request, listing_from(request.query_params), project=None)

    def project(self, request: Request) -> Response:
        project = request.path_params["project"]
        return self._list(request, listing_from(request.query_params, project=project), project=project)

    def _list(self, request: Request, listing: RunListing, project: str | None) -> Response:
        store = seen(request, self._store)
        page = store.list(listing.filter, sort=listing.sort, limit=listing.limit, after=listing.after)
        mark = self._store.mark()  # before the projects are read: who writes meanwhile changes it for the next
        key = (store.sight, mark)
        projects = store.projects() if mark is None else self._projects.get_or_make(key, (), store.projects)
        return html_page(
            "runs.html",
            "runs",
            rows=page.rows,
            machines=machine_names(page.rows),
            listing=listing,
            adding=cache(listing.adding),  # rows name the same models and devices again and again
            field_of=getattr,
            columns=COLUMNS,
            shown=listing.shown(page.rows),
            editable={row.id: _editable(row) for row in page.rows if may_change(request, row)},
            project=project,
            projects=projects,
            empty=not page.rows and not any(each_project.runs for each_project in projects),
            more=None if page.after is None else listing.following(page.after),
            trend=self._trend(request, listing) if project and page.rows and listing.after is None else None,
            location=str(self._store.location),
            own=self._own_machine,
        )

    def _trend(self, request: Request, listing: RunListing) -> dict[str, Any] | None:
        """One metric over the newest runs: the one the URL names, or the first that several of them have."""
        rows: tuple[RunRow, ...] = seen(request, self._store).list(listing.filter, limit=_TREND_ROWS).rows
        known = [name for name in RUN_METRICS if sum(getattr(row, name) is not None for row in rows) > 1]
        if not known:
            return None
        chosen = request.query_params.get("metric", known[0])
        if chosen not in known:
            chosen = known[0]
        return {"spec": run_trend(rows, chosen), "metric": chosen, "known": known}

    def run(self, request: Request) -> Response:
        name, store = request.path_params["run"], seen(request, self._store)
        run, row = self._cache.get(name, store)
        if run.id != name:
            return RedirectResponse(f"/runs/{run.id}", status_code=303)
        metrics = store.metrics(run.id)
        editable = {"id": row.id, **_editable(row)} if may_change(request, row) else None
        changing = {
            "projects": store.project_names(), "editable": editable, "shares": may(request, "writer", row.project),
            "proof": proof_of(store, run),
        }  # fmt: skip
        if run.profile is None:
            return html_page("open_run.html", "runs", run=run, row=row, metrics=metrics, log=self._log(run), **changing)
        values = run_values(run, run.profile, metrics)
        explanation = self._cache.cached_explanation(row)
        if explanation is not None:
            values["explanation"] = explanation
        earlier = earlier_run(store, row)
        values["change"] = None if earlier is None else change_since(self._cache.get(earlier.id, store)[0], run)
        return html_page("run.html", "runs", row=row, **changing, **values)

    def _log(self, run: Run) -> str | None:
        """The end of a run's log, if the run left nothing else."""
        if not any(artifact.name == "log.txt" for artifact in run.artifacts):
            return None
        try:
            data = self._store.artifact(run.id, "log.txt").read_bytes()[-_LOG_BYTES:]
        except (OSError, InferometerError):
            return None
        return data.decode("utf-8", "replace")

    def artifact(self, request: Request) -> Response:
        """A file of a run, always as a download: what somebody attached is never shown as a page of ours."""
        run, name = request.path_params["run"], request.path_params["name"]
        store = seen(request, self._store)
        path = store.artifact(run, name)
        noted(request, self._store, "run.export", store.row(run), f"file {name}")
        return FileResponse(path, media_type="application/octet-stream", filename=name.rpartition("/")[2])

    def thumbnail(self, request: Request) -> Response:
        """The layer chart, as small as it stands in a list. The profile of a run that has ended never changes."""
        run = seen(request, self._store).get(request.path_params["run"])
        headers = {"cache-control": "private, max-age=86400"}
        return Response(layers_svg(run.profile), media_type="image/svg+xml", headers=headers)

    def export(self, request: Request) -> Response:
        from inferometer.hub.web.downloads import MEDIA_TYPES, exported_run  # noqa: PLC0415 - as above

        form = request.path_params["form"]
        run, _ = self._cache.get(request.path_params["run"], seen(request, self._store))
        noted(request, self._store, "run.export", run, form)
        name = f"inferometer-{run.id}.{form}"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        data = exported_run(run, form, self._store.metrics(run.id))
        return Response(data, media_type=MEDIA_TYPES[form], headers=headers)

    def compare(self, request: Request) -> Response:
        from inferometer.hub.web.pages.compare import compare_values  # noqa: PLC0415 - as above

        named = [run for text in request.query_params.getlist("run") for run in text.split(",") if run]
        wanted = list(dict.fromkeys(named))
        if len(wanted) < 2:
            recent = seen(request, self._store).list(Filter(status=("finished",)), limit=60).rows
            rows = [row for row in recent if row.profile_kind is not None][:20]  # what made a file has no figures
            return html_page("choose.html", "compare", rows=rows, chosen=set(wanted))
        if len(wanted) > _MOST_COMPARED:
            raise DomainError(f"{len(wanted)} runs are too many to compare; the limit is {_MOST_COMPARED}.")
        store = seen(request, self._store)
        runs = sorted((self._cache.get(run, store)[0] for run in wanted), key=lambda run: run.created)
        # What was there first is what a change is judged by, unless the reader says otherwise.
        chosen = request.query_params.get("baseline")
        runs.sort(key=lambda run: chosen not in {run.id, run.name})
        shares = all(may(request, "writer", run.project) for run in runs)
        return html_page("compare.html", "compare", shared=False, shares=shares, **compare_values(runs))

    def predict(self, request: Request) -> Response:
        from inferometer.hub.web.pages.catalog import predict_values  # noqa: PLC0415 - as above

        return html_page("predict.html", "predict", **predict_values(request.query_params))

    def choices(self, _request: Request) -> Response:
        from inferometer.hub.web.pages.catalog import choices  # noqa: PLC0415 - as above

        return json_answer(choices())

    def devices(self, request: Request) -> Response:
        from inferometer.hub.web.pages.catalog import device_list  # noqa: PLC0415 - as above

        known = {device.name for device in seen(request, self._store).devices()}
        return html_page("devices.html", "devices", seen=known, **device_list(request.query_params))

    def device(self, request: Request) -> Response:
        device = catalog_device(request.path_params["name"])
        rows = seen(request, self._store).list(Filter(device=device.name), limit=10).rows
        return html_page("device.html", "devices", card=device_card(device), device=device, rows=rows)

    def catalog(self, _request: Request) -> Response:
        return RedirectResponse("/catalog/links", status_code=303)

    def catalog_table(self, request: Request) -> Response:
        from inferometer.hub.web.pages.catalog import catalog_values  # noqa: PLC0415 - as above

        return html_page(
            "catalog.html", "catalog", **catalog_values(request.path_params["table"]), words=_words(request)
        )

    def catalog_row(self, request: Request) -> Response:
        from inferometer.understand.view.catalog_tables import catalog_table  # noqa: PLC0415 - as above

        table = catalog_table(request.path_params["table"])
        card = table.card(table.find(request.path_params["name"]))
        return html_page("catalog_row.html", "catalog", table=table, card=card)

    def formulas(self, request: Request) -> Response:
        from inferometer.hub.web.pages.catalog import formula_sections  # noqa: PLC0415 - as above

        return html_page("formulas.html", "formulas", sections=formula_sections(), words=_words(request))

    def formula(self, request: Request) -> Response:
        from inferometer.hub.web.pages.catalog import formula_values  # noqa: PLC0415 - as above

        return html_page("formula.html", "formulas", **formula_values(request.path_params["name"]))

    def sweep(self, request: Request) -> Response:
        from inferometer.hub.web.pages.catalog import sweep_values  # noqa: PLC0415 - as above

        return html_page("sweep.html", "sweep", **sweep_values(request.query_params))

    def atlas(self, request: Request) -> Response:
        from inferometer.hub.web.pages.catalog import atlas_values  # noqa: PLC0415 - as above

        return html_page("atlas.html", "atlas", **atlas_values(request.query_params))

    def timeline(self, request: Request) -> Response:
        """A page that reads traces in the browser; with `run`, that of a run."""
        name = request.query_params.get("run")
        run = None if name is None else self._cache.get(name, seen(request, self._store))[0]
        return html_page("timeline.html", "timeline", run=run)

    def live(self, request: Request) -> Response:
        rows = seen(request, self._store).list(Filter(status=("running", "pending"))).rows
        return html_page("live.html", "live", rows=rows)


def _editable(row: RunRow) -> dict[str, Any]:
    """The values that the page needs to change a run."""
    return {"name": row.name, "tags": row.tags, "note": row.note, "project": row.project}


def _words(request: Request) -> str:
    return request.query_params.get("words", "")[:200]
