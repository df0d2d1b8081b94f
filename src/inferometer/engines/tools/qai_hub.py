"""Qualcomm AI Hub's profile of a job (`ProfileJob.download_profile()`, saved as JSON).

Shape: qai_hub/client.py, `_profile_pb_to_python_dict`. `execution_summary` holds
`estimated_inference_time` and load and compile times in microseconds, the times of every run under `all_*_times`, and
peak memory in bytes, as one number and as a range; what was not measured is null. `execution_detail` lists the layers
with `name`, `type`, `compute_unit` and, where the runtime tells it, `execution_time` in microseconds.

Which statistic the estimate is, is not documented, and is read off the times of the runs where they are there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.core.statistics import mean, median
from inferometer.engines.results.assemble import Draft, finish, leading, remainder
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import listed, mapping, number, numbers, optional, positive, size, text
from inferometer.engines.results.words import kind_of, unit_named

_LOADS = {"load": "first_load", "warm_load": "warm_load", "compile": "compile"}
_US = 1e6


class QaiHubProfile:
    name = "qai-hub"
    title = "Qualcomm AI Hub profile"

    def matches(self, document: Document) -> bool:
        return isinstance(document.keys.get("execution_summary"), dict)

    def read(self, document: Document) -> tuple[Profile, ...]:
        summary = mapping(document.keys["execution_summary"])
        draft = Draft(tool=self.title)
        for phase, stage in _LOADS.items():
            draft.phases += _once(phase, stage, summary)
        estimate = positive(summary.get("estimated_inference_time"), "`estimated_inference_time`")
        samples = _samples("inference", summary)
        if estimate is None and not samples:
            raise FormatError("Its execution summary holds no inference time.", remedy="Check that the job succeeded.")
        time_s = mean(samples) if estimate is None and samples else (estimate or 0.0) / _US
        layers = list(listed(document.keys.get("execution_detail", []), "`execution_detail`"))
        ops = add_layers(draft, layers)
        forward = Phase(
            name="forward",
            time_s=time_s,
            statistic=_statistic(time_s, samples),
            samples_s=samples,
            ops=ops,
            unattributed_s=remainder(time_s, ops, draft.notes),
        )
        draft.phases.append(forward)
        draft.headline["peak_memory_bytes"] = _peak(summary)
        return (finish(draft, document),)


def add_layers(draft: Draft, layers: Sequence[Mapping[str, Any]]) -> tuple[OpTime, ...]:
    """The layers that have a time, as ops. All of them count for the unit that runs the most layers."""
    ops = tuple(op for index, layer in enumerate(layers) for op in _layer(index, layer))
    counts: dict[str, int] = {}
    for layer in layers:
        if unit := unit_named(text(layer.get("compute_unit"))):
            counts[unit] = counts.get(unit, 0) + 1
    if counts:
        draft.headline["top_unit_by_count"] = leading(counts)
        draft.host["layers_by_unit"] = counts
    if len(ops) < len(layers):
        draft.notes.append(f"{len(layers) - len(ops)} of {len(layers)} layers have no time and are not listed")
    return ops


def _layer(index: int, layer: Mapping[str, Any]) -> list[OpTime]:
    source_type = text(layer.get("type"))
    name = text(layer.get("name")) or f"{source_type or 'layer'} {index}"
    time = optional(layer.get("execution_time"), f"`execution_time` of {name!r}")
    if time is None:
        return []
    unit = unit_named(text(layer.get("compute_unit")))
    return [OpTime(name=name, kind=kind_of(source_type), time_s=time / _US, unit=unit, kernel=source_type)]


def _once(phase: str, stage: str, summary: Mapping[str, Any]) -> list[Phase]:
    time = positive(summary.get(f"{stage}_time"), f"`{stage}_time`")
    if time is None:
        return []
    samples = _samples(stage, summary)
    return [Phase(name=phase, time_s=time / _US, statistic=_statistic(time / _US, samples), samples_s=samples)]


def _samples(stage: str, summary: Mapping[str, Any]) -> tuple[float, ...] | None:
    raw = numbers(summary.get(f"all_{stage}_times"), f"`all_{stage}_times`")
    return tuple(value / _US for value in raw) if raw else None


def _statistic(time_s: float, samples: Sequence[float] | None) -> str | None:
    """The statistic that gives this time, to the microsecond that it is rounded to."""
    if not samples or len(samples) < 2:
        return None
    candidates = {"min": min(samples), "median": median(samples), "mean": mean(samples), "max": max(samples)}
    return next((name for name, value in candidates.items() if abs(value - time_s) <= 1.0 / _US), None)


def _peak(summary: Mapping[str, Any]) -> int | None:
    known = size(summary.get("estimated_inference_peak_memory"), "`estimated_inference_peak_memory`")
    if known is not None:
        return known
    span = summary.get("inference_memory_peak_range")
    upper = span[-1] if isinstance(span, list) and span else None
    return None if upper is None else size(number(upper, "`inference_memory_peak_range`"), "the peak memory")


importer = QaiHubProfile()
