"""The charts that a profile can fill, by name: asked for one at a time, since a page draws what comes in sight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inferometer.errors import UnknownNameError
from inferometer.explain.roofline import drawn_roofs
from inferometer.hub.catalogue import roofs_of
from inferometer.report.charts.layers import kind_chart, layer_chart, phases_with_ops, unit_chart
from inferometer.report.charts.memory import memory_chart
from inferometer.report.charts.roofline import roofline
from inferometer.report.charts.samples import histogram, token_trend

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.core.profile import Phase, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """`made` gives the Vega-Lite spec. What is not `shown` is drawn by the page in a way of its own."""

    name: str
    title: str
    made: Callable[[], dict[str, Any]]
    shown: bool = True


def charts_of(profile: Profile) -> dict[str, Chart]:
    found = [*_layers(profile), *_samples(profile)]
    if profile.summary.peak_memory_bytes:
        found.append(Chart(name="memory", title="Peak memory", made=lambda: memory_chart(profile), shown=False))
    found += _rooflines(profile)
    return {chart.name: chart for chart in found}


def chart_of(profile: Profile, name: str) -> dict[str, Any]:
    """One of them; `roofline` alone is that of the last phase."""
    known = charts_of(profile)
    if name == "roofline":
        name = next((each for each in reversed(known) if each.startswith("roofline-")), name)
    if name not in known:
        raise UnknownNameError("chart of this run", name, known, listing=f"There is: {', '.join(known)}.")
    return known[name].made()


def _layers(profile: Profile) -> list[Chart]:
    if not phases_with_ops(profile):
        return []
    made: dict[str, Callable[[], dict[str, Any]]] = {
        "layers": lambda: layer_chart(profile),
        "kinds": lambda: kind_chart(profile),
        "kinds-count": lambda: kind_chart(profile, "count"),
        "units": lambda: unit_chart(profile),
        "units-count": lambda: unit_chart(profile, "count"),
    }
    return [Chart(name=name, title=name, made=make, shown=False) for name, make in made.items()]


def _samples(profile: Profile) -> list[Chart]:
    found = []
    if any(phase.samples_s for phase in map(profile.phase, ("forward", "decode", "prefill")) if phase is not None):
        found.append(Chart(name="histogram", title="Spread of the readings", made=lambda: histogram(profile)))
    decode = profile.phase("decode")
    if decode is not None and decode.context and decode.samples_s:
        found.append(Chart(name="tokens", title="Token by token", made=lambda: token_trend(profile)))
    return found


def _rooflines(profile: Profile) -> list[Chart]:
    roofs = roofs_of(profile)
    if roofs is None or not _has_roof(roofs.device):
        return []
    device = drawn_roofs(roofs)
    phases = [phase for phase in phases_with_ops(profile) if any(_placed(op, phase) for op in phase.ops)]
    return [_roofline(profile, device, phase) for phase in phases]


def _has_roof(device: Device) -> bool:
    return bool(device.peaks) and device.memory is not None and device.memory.bandwidth_bytes_per_s is not None


def _placed(op: Any, phase: Phase) -> bool:
    """Whether an op has a place on the plane: work, bytes and more than a trace of the time."""
    return bool(op.flops and op.bytes and op.time_s > 1e-4 * phase.time_s)


def _roofline(profile: Profile, device: Device, phase: Phase) -> Chart:
    return Chart(
        name=f"roofline-{phase.name}",
        title=f"Roofline of {phase.name}",
        made=lambda: roofline(profile, device, phase=phase.name),
    )
