"""Places that measure a model on a device of theirs."""

from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.core.statistics import mean, median
from inferometer.engines.results.assemble import Draft, finish, leading, remainder
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import (
    listed,
    mapping,
    milliseconds,
    number,
    numbers,
    optional,
    positive,
    size,
    text,
    whole,
)
from inferometer.engines.results.words import kind_of, unit_named

_LOADS = {"load": "first_load", "warm_load": "warm_load", "compile": "compile"}
_US = 1e6


class QaiHubProfile:
    """Qualcomm AI Hub's profile of a job (`ProfileJob.download_profile()`, saved as JSON).

    Shape: qai_hub/client.py, `_profile_pb_to_python_dict`. `execution_summary` holds `estimated_inference_time` and
    load and compile times in microseconds, the times of every run under `all_*_times`, and peak memory in bytes, as one
    number and as a range; what was not measured is null. `execution_detail` lists the layers with `name`, `type`,
    `compute_unit` and, where the runtime tells it, `execution_time` in microseconds.

    Which statistic the estimate is, is not documented, and is read off the times of the runs where they are there.
    """

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


qai_hub = QaiHubProfile()


_MIB = 1 << 20


class EmbedlProfile:
    """Embedl Hub's `profile.json`: the summary of a profiling run, with its layers.

    Shape: embedl_hub/core/benchmark (2025) writes a summary with `mean_ms`, `peak_memory_usage_mb` (of 2²⁰ bytes),
    `layers_by_unit` and `layer_times` (the slowest five, as [milliseconds, name, type]); `execution_detail` lists every
    layer as Qualcomm AI Hub does. The summary stands alone or under the key `summary`. A run on a device of Qualcomm AI
    Hub keeps that hub's own document, which `qai-hub` reads. The three headline numbers of the run's page, latency,
    peak memory and the unit with the most layers (https://hub.embedl.com/docs/benchmarking-models), are all there.
    """

    name = "embedl"
    title = "Embedl Hub profile"

    def matches(self, document: Document) -> bool:
        return "mean_ms" in _summary(document) and "execution_summary" not in document.keys

    def read(self, document: Document) -> tuple[Profile, ...]:
        summary = _summary(document)
        draft = Draft(
            tool=self.title, device=_word(document, summary, "device"), runtime=_word(document, summary, "runtime")
        )
        time_s = milliseconds(summary["mean_ms"], "`mean_ms`")
        layers = summary.get("execution_detail") or document.keys.get("execution_detail") or []
        ops = add_layers(draft, list(listed(layers, "`execution_detail`")))
        if not ops and summary.get("layer_times"):
            ops = _slowest(summary["layer_times"])
            draft.notes.append(f"the file names only the {len(ops)} slowest layers, the slowest first")
        counts = {
            unit_named(unit): whole(count, f"`layers_by_unit` of {unit}")
            for unit, count in mapping(summary.get("layers_by_unit")).items()
        }
        known = {unit: count for unit, count in counts.items() if unit and count}
        if known and "layers_by_unit" not in draft.host:
            draft.headline["top_unit_by_count"] = leading(known)
            draft.host["layers_by_unit"] = known
        draft.headline["peak_memory_bytes"] = size(
            summary.get("peak_memory_usage_mb"), "`peak_memory_usage_mb`", unit=_MIB
        )
        draft.phases.append(
            Phase(
                name="forward",
                time_s=time_s,
                statistic="mean",
                ops=ops,
                unattributed_s=remainder(time_s, ops, draft.notes),
            )
        )
        return (finish(draft, document),)


def _summary(document: Document) -> Mapping[str, Any]:
    inner = mapping(document.keys.get("summary"))
    return inner if "mean_ms" in inner else document.keys


def _word(document: Document, summary: Mapping[str, Any], key: str) -> str | None:
    return text(summary.get(key)) or text(document.keys.get(key))


def _slowest(rows: Any) -> tuple[OpTime, ...]:
    if not isinstance(rows, list):
        raise FormatError("`layer_times` should be a list.")
    ops = []
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) < 3:
            raise FormatError(f"`layer_times`[{index}] should hold a time, a name and a type.")
        name, source_type = text(row[1]) or f"layer {index}", text(row[2])
        time_s = milliseconds(row[0], f"the time of {name!r}")
        ops.append(OpTime(name=name, kind=kind_of(source_type), time_s=time_s, kernel=source_type))
    return tuple(ops)


embedl = EmbedlProfile()
