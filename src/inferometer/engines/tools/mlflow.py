"""A run of MLflow, as `mlflow runs describe` and its REST interface (`runs/get`, `runs/search`) give it.

Shape: mlflow.org, "REST API", Run: `info` (run_id, run_name, start_time and end_time in milliseconds) and `data` with
`metrics`, `params` and `tags`, as objects, or as lists of `key` and `value`. The run is the phase run; its metrics are
figures of the profile, its parameters stand in the environment.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish, keep_figures
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import mapping, milliseconds, moment, text


class Mlflow:
    name = "mlflow"
    title = "MLflow"

    def matches(self, document: Document) -> bool:
        return any("run_id" in mapping(run.get("info")) and "data" in run for run in _runs(document))

    def read(self, document: Document) -> tuple[Profile, ...]:
        return tuple(finish(_draft(run), document) for run in _runs(document))


def _runs(document: Document) -> Iterator[Mapping[str, Any]]:
    """The run that it is, that it has, or all those it lists."""
    keys = document.keys
    listed = keys.get("runs")
    for run in listed if isinstance(listed, list) else [keys.get("run", keys)]:
        if isinstance(run, dict):
            yield run


def _draft(run: Mapping[str, Any]) -> Draft:
    info, data = mapping(run.get("info")), mapping(run.get("data"))
    name = text(info.get("run_name")) or text(info.get("run_id"))
    draft = Draft(tool="MLflow", model=ModelFacts(name=name) if name else None)
    figures = {name: moment(value, f"`metrics.{name}`") for name, value in _pairs(data.get("metrics")).items()}
    start, end = info.get("start_time"), info.get("end_time")
    if start is not None and end is not None:
        took = milliseconds(end, "`end_time`") - milliseconds(start, "`start_time`")
        if took < 0:
            raise FormatError("The run ended before it started.", remedy="Check `start_time` and `end_time`.")
        draft.phases.append(Phase(name="run", time_s=took, statistic="sum"))
    if not figures and not draft.phases:
        raise FormatError("The run has no metrics and no times.", remedy="Take one that has ended.")
    keep_figures(draft, figures)
    draft.host |= {f"param {key}": text(value) for key, value in _pairs(data.get("params")).items()}
    return draft


def _pairs(values: Any) -> dict[str, Any]:
    if isinstance(values, dict):
        return values
    rows = values if isinstance(values, list) else []
    return {str(row["key"])[:200]: row.get("value") for row in rows if isinstance(row, dict) and "key" in row}


importer = Mlflow()
