"""A run as a file: the formats a profile can be saved in, by the suffix of the file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from inferometer.api.naming import open_chosen, profile_of
from inferometer.core.cache import write_asked_for
from inferometer.core.codec import encode
from inferometer.core.errors import DomainError, MissingDependencyError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile, Run
from inferometer.hub.web import require_web
from inferometer.hub.web.assets import Parts, bundled, html_report, own_assets, vega_bundle
from inferometer.hub.web.guard.catalog_names import roofs_of
from inferometer.hub.web.pages.run import page_explanation, run_values
from inferometer.hub.web.rendering import render_template
from inferometer.measure.bench.measurement import Measurement
from inferometer.measure.spans.build import from_trace
from inferometer.store.values import Metric
from inferometer.understand.view.charts.render import render, save
from inferometer.understand.view.drawing import dataflow_svg
from inferometer.understand.view.model_graph import model_graph
from inferometer.understand.view.page import page_of

MEDIA_TYPES = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "md": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "trace.json": "application/json",
    "svg": "image/svg+xml",
    "png": "image/png",
}


def exported_run(run: Run, form: str, metrics: Sequence[Metric] = ()) -> bytes:
    """The run's profile as json, csv, md, html, trace.json or svg (the dataflow drawing).

    `metrics` are the run's; the html page draws the memory over time from them.
    """
    if form not in FORMS:
        raise UnknownNameError("format", form, FORMS, listing=f"Known: {', '.join(FORMS)}.")
    profile = _profile_of(run)
    return _html(run, profile, metrics) if form == "html" else FORMS[form](run, profile)


def exported_chart(run: Run, name: str, form: str, width: int | None = None) -> bytes:
    """One chart of the run's profile as SVG, PNG or its Vega-Lite spec, for a figure of that width."""
    return render(_chart_spec(_profile_of(run), name, width), form)


def _chart_spec(profile: Profile, name: str, width: int | None = None) -> dict[str, Any]:
    return page_of(profile, roofs_of(profile)).chart_spec(name, width)


def _profile_of(run: Run) -> Profile:
    if run.profile is None:
        raise DomainError(f"Run {run.id} has no profile: it is {run.status}.", remedy="Look at its log.")
    return run.profile


def _json(_run: Run, profile: Profile) -> bytes:
    return encode(profile, indent=2) + b"\n"


def _csv(_run: Run, profile: Profile) -> bytes:
    from inferometer.understand.view.exports import profile_csv  # noqa: PLC0415 - as above

    return profile_csv(profile).encode()


def _markdown(run: Run, profile: Profile) -> bytes:
    from inferometer.understand.view.exports import markdown  # noqa: PLC0415 - as above

    findings = page_explanation(profile, name=run.id).findings if profile.served is None else ()
    return markdown(profile, title=run.name, findings=findings).encode()


def _html(run: Run, profile: Profile, metrics: Sequence[Metric] = ()) -> bytes:

    return one_file(run, profile, metrics).encode()


def _trace(_run: Run, profile: Profile) -> bytes:
    from inferometer.measure.run.spans import trace_of  # noqa: PLC0415 - as above
    from inferometer.understand.view.traces import chrome  # noqa: PLC0415 - as above

    return b"".join(chrome(from_trace(trace_of(profile))))


def _drawing(_run: Run, profile: Profile) -> bytes:
    drawing = dataflow_svg(profile)
    if drawing is None:
        raise DomainError(f"The profile of {profile.model.name} has no steps to draw.")
    return drawing.encode()


FORMS: dict[str, Callable[[Run, Profile], bytes]] = {
    "json": _json, "csv": _csv, "md": _markdown, "html": _html, "trace.json": _trace, "svg": _drawing,
}  # fmt: skip


# The verbs that save a result as a file, and draw a chart of it: the hub's own pages and charts, without the hub.

_FORMS = ("trace.json", "html", "md", "csv", "json", "svg", "png")


@frozen
class DrawnChart:
    """A chart as its Vega-Lite `spec`. A notebook shows it; `save` writes .svg, .png, .html or .json."""

    spec: dict[str, Any]

    def __repr__(self) -> str:
        title = self.spec.get("title", {})
        return f"<chart: {title.get('text', '') if isinstance(title, dict) else title}>"

    def save(self, path: str | Path) -> None:
        save(self.spec, Path(path))

    def _repr_svg_(self) -> str:
        return render(self.spec, "svg").decode()


def chart(
    what: Profile | Measurement | str | Path, name: str = "layers", *, store: str | Path | None = None
) -> DrawnChart:
    """One chart of a result: `chart("last", "roofline")`.

    Names: layers, kinds, kinds-count, units, units-count, roofline, histogram, tokens, memory. A name that the
    result has no chart of is refused with those it has. `what` is a profile, a measurement, a file, or a stored run.
    """
    return DrawnChart(spec=_chart_spec(profile_of(what, store), name))


def export(
    what: Profile | Measurement | str | Path,
    out: str | Path,
    *,
    chart: str | None = None,
    store: str | Path | None = None,
) -> Path:
    """Save a result as a file whose name says what it is: a page, Markdown, CSV, JSON, a trace, the dataflow, a chart.

    `export("last", "report.html")`. `what` is a profile, a measurement, a file, or a stored run; `chart` saves that one
    chart as .svg, .png or .json.
    """
    path = Path(out)
    form = _form(path, chart)
    if form == "html":
        require_web()
    run, metrics = _run_and_metrics(what, store)
    data = exported_run(run, form, metrics) if chart is None else exported_chart(run, chart, form)
    write_asked_for(path, [data])
    return path


def _form(path: Path, chart: str | None) -> str:
    name = path.name.lower()
    form = next((form for form in _FORMS if name == form or name.endswith(f".{form}")), None)
    if form is None:
        raise DomainError(
            f"{path.name!r} has no suffix that says what to save.", remedy="Use .html, .md, .csv, .json or .svg."
        )
    if chart is not None and form not in {"svg", "png", "json"}:
        raise DomainError(f"A chart cannot be saved as {path.name!r}.", remedy="Use .svg, .png or .json.")
    if chart is None and form == "png":
        raise DomainError("A .png can only be a chart.", remedy="Name one, for example --chart layers.")
    return form


def _run_and_metrics(
    what: Profile | Measurement | str | Path, store: str | Path | None
) -> tuple[Run, tuple[Metric, ...]]:
    """A stored run with what it recorded over time; anything else becomes a run that was never stored."""
    if isinstance(what, str) and not Path(what).is_file():
        with open_chosen(store) as opened:
            stored = opened.get(what)
            return stored, opened.metrics(stored.id)
    profile = profile_of(what, store)
    name = Path(what).stem if isinstance(what, str | Path) else profile.model.name
    created = profile.provenance.created if profile.provenance else ""
    return Run(id=name, project="file", status="finished", created=created, profile=profile), ()


# The run page as one file: the hub's own template, styles and scripts, with Vega inside if it is installed.

_PHONE = 340  # pixels of a figure there


def one_file(run: Run, profile: Profile, metrics: Sequence[Metric] = ()) -> str:
    values = {**run_values(run, profile, metrics), "graph": model_graph(profile)}
    drawing = dataflow_svg(profile)
    explanation = page_explanation(profile, name=run.id)
    specs = {chart.name: chart.spec() for chart in values["charts"]}
    specs |= {
        f"{chart.name}-narrow": chart.at_width(_PHONE) for chart in values["charts"] if chart.at_width is not None
    }
    body = render_template("report.html", {**values, "drawing": drawing, "specs": specs, "explanation": explanation})
    modules = {name: data.decode() for name, data in own_assets().items() if name.endswith(".js")}
    return html_report(
        Parts(
            title=values["title"],
            styles=own_assets()["hub.css"].decode(),
            body=body,
            early=(modules["theme.js"], *_vega_scripts(needed=bool(values["charts"]))),
            late=(bundled("run.js", modules),),
        )
    )


def _vega_scripts(*, needed: bool) -> tuple[str, ...]:
    try:
        return (vega_bundle().decode(),) if needed else ()
    except MissingDependencyError:
        return ()
