"""The run page as one file: the hub's own template, styles and scripts, with Vega inside if it is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.errors import MissingDependencyError
from inferometer.hub.web.assets import Parts, bundled, html_report, own_assets, vega_bundle
from inferometer.hub.web.pages.dataflow import dataflow_svg
from inferometer.hub.web.pages.explaining import page_explanation
from inferometer.hub.web.pages.run import held_of, run_values
from inferometer.hub.web.rendering import render_template
from inferometer.understand.view.model_graph import model_graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.profile import Profile
    from inferometer.core.run import Run
    from inferometer.store.values import Metric


_PHONE = 340  # pixels of a figure there


def one_file(run: Run, profile: Profile, metrics: Sequence[Metric] = ()) -> str:
    values = {**run_values(run, profile), "held": held_of(metrics), "graph": model_graph(profile)}
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
