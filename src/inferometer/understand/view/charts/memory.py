"""What peak memory consists of: weights, the KV cache at its longest, and the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.core.units import format_quantity
from inferometer.understand.view.charts.theme import COLOURS, number_text, spec, tooltip

if TYPE_CHECKING:
    from inferometer.core.profile import Profile


def memory_parts(profile: Profile) -> dict[str, int]:
    """Bytes at the peak by what they are for. The rest is the peak less what is known to be in it."""
    peak, model, workload = profile.summary.peak_memory_bytes, profile.model, profile.workload
    if not peak:
        return {}
    tokens = (workload.context or 0) + (workload.prompt or 0) + (workload.generate or 0)
    known = {
        "weights": model.weight_bytes or 0,
        "KV cache": (model.kv_bytes_per_token or 0) * tokens * workload.batch,
    }
    count = max(profile.device.count, 1)
    parts = {name: value // count for name, value in known.items() if value}
    if sum(parts.values()) > peak:
        return {"peak": peak}  # shared or mapped memory: what is resident is less than what is used
    return {**parts, "activations and the rest": peak - sum(parts.values())}


def memory_chart(profile: Profile) -> dict[str, Any]:
    parts = memory_parts(profile)
    if not parts:
        raise DomainError(f"The profile of {profile.model.name} has no peak memory.")
    data = [{"what": what, "bytes": value, "text": format_quantity(value, "B")} for what, value in parts.items()]
    scale = {"domain": list(parts), "range": [COLOURS[0], COLOURS[4], "#b4b9c0"]}
    x = {"field": "bytes", "type": "quantitative",
         "axis": {"title": "Peak memory", "labelExpr": number_text("peak_memory_bytes")}}  # fmt: skip
    return spec(
        title=f"{profile.model.name}: peak memory",
        subtitle=f"{format_quantity(sum(parts.values()), 'B')} on the fullest device",
        body={"width": 560, "height": 44, "data": {"values": data}, "mark": "bar",
              "encoding": {"x": x, "color": {"field": "what", "scale": scale, "title": None, "sort": None},
                           "order": {"field": "what"}, "tooltip": tooltip({"what": "What", "text": "Bytes"})}},
    )  # fmt: skip
