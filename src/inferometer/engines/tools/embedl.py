"""Embedl Hub's `profile.json`: the summary of a profiling run, with its layers.

Shape: embedl_hub/core/benchmark (2025) writes a summary with `mean_ms`, `peak_memory_usage_mb` (of 2²⁰ bytes),
`layers_by_unit` and `layer_times` (the slowest five, as [milliseconds, name, type]); `execution_detail` lists every
layer as Qualcomm AI Hub does. The summary stands alone or under the key `summary`. A run on a device of Qualcomm AI
Hub keeps that hub's own document, which `qai-hub` reads. The three headline numbers of the run's page, latency, peak
memory and the unit with the most layers (https://hub.embedl.com/docs/benchmarking-models), are all there.
"""

from collections.abc import Mapping
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish, leading, remainder
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import listed, mapping, milliseconds, size, text, whole
from inferometer.engines.results.words import kind_of, unit_named
from inferometer.engines.tools.qai_hub import add_layers

_MIB = 1 << 20


class EmbedlProfile:
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


importer = EmbedlProfile()
