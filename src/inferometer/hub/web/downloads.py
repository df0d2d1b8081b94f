"""A run as a file: the formats a profile can be saved in, by the suffix of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.codec import encode
from inferometer.core.errors import DomainError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from inferometer.core.profile import Profile
    from inferometer.core.run import Run
    from inferometer.store.values import Metric

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
    from inferometer.hub.web.pages.run_charts import chart_spec  # noqa: PLC0415 - only when it is asked for
    from inferometer.understand.view.charts.render import render  # noqa: PLC0415 - as above

    return render(chart_spec(_profile_of(run), name, width), form)


def _profile_of(run: Run) -> Profile:
    if run.profile is None:
        raise DomainError(f"Run {run.id} has no profile: it is {run.status}.", remedy="Look at its log.")
    return run.profile


def _json(_run: Run, profile: Profile) -> bytes:
    return encode(profile, indent=2) + b"\n"


def _csv(_run: Run, profile: Profile) -> bytes:
    from inferometer.understand.view.exports import layers_csv, requests_csv  # noqa: PLC0415 - as above

    return (layers_csv(profile) if profile.served is None else requests_csv(profile)).encode()


def _markdown(run: Run, profile: Profile) -> bytes:
    from inferometer.hub.web.pages.explaining import page_explanation  # noqa: PLC0415 - as above
    from inferometer.understand.view.exports import markdown  # noqa: PLC0415 - as above

    findings = page_explanation(profile, name=run.id).findings if profile.served is None else ()
    return markdown(profile, title=run.name, findings=findings).encode()


def _html(run: Run, profile: Profile, metrics: Sequence[Metric] = ()) -> bytes:
    from inferometer.hub.web.one_file import one_file  # noqa: PLC0415 - as above

    return one_file(run, profile, metrics).encode()


def _trace(_run: Run, profile: Profile) -> bytes:
    from inferometer.measure.run.spans import trace_of  # noqa: PLC0415 - as above
    from inferometer.measure.spans.build import from_trace  # noqa: PLC0415 - as above
    from inferometer.understand.view.traces import chrome  # noqa: PLC0415 - as above

    return b"".join(chrome(from_trace(trace_of(profile))))


def _drawing(_run: Run, profile: Profile) -> bytes:
    from inferometer.hub.web.pages.dataflow import dataflow_svg  # noqa: PLC0415 - as above

    drawing = dataflow_svg(profile)
    if drawing is None:
        raise DomainError(f"The profile of {profile.model.name} has no steps to draw.")
    return drawing.encode()


FORMS: dict[str, Callable[[Run, Profile], bytes]] = {
    "json": _json, "csv": _csv, "md": _markdown, "html": _html, "trace.json": _trace, "svg": _drawing,
}  # fmt: skip
