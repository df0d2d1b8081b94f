"""The charts that a profile has data for, by name. Each is made when asked for: a page draws what comes into view."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.hub.web.guard.catalog_names import roofs_of
from inferometer.understand.roofline import drawn_roofs
from inferometer.understand.view.charts.layers import kind_chart, layer_chart, memory_chart, phases_with_ops, unit_chart
from inferometer.understand.view.charts.roofline import roofline
from inferometer.understand.view.charts.samples import histogram, token_trend

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.core.profile import Phase, Profile


_AXIS, _BESIDE, _ROOMY = 110, 220, 620  # pixels


@frozen
class Chart:
    """`spec` makes the Vega-Lite spec. If not `shown`, the page draws the same data itself."""

    name: str
    title: str
    spec: Callable[[], dict[str, Any]]
    shown: bool = True
    at_width: Callable[[int], dict[str, Any]] | None = None  # for a figure of so many pixels, where that matters


def charts_of(profile: Profile) -> dict[str, Chart]:
    if profile.served is not None and profile.served.levels:
        from inferometer.hub.web.pages.load_view import load_charts  # noqa: PLC0415 - for these runs alone

        return load_charts(profile.served)
    charts = [*_layer_charts(profile), *_sample_charts(profile)]
    if profile.summary.peak_memory_bytes:
        charts.append(Chart(name="memory", title="Peak memory", spec=lambda: memory_chart(profile), shown=False))
    charts += _rooflines(profile)
    return {chart.name: chart for chart in charts}


def chart_spec(profile: Profile, name: str, width: int | None = None) -> dict[str, Any]:
    """The Vega-Lite spec of one chart. `roofline` by itself is that of the last phase; `width` is of the figure."""
    known = charts_of(profile)
    if name == "roofline":
        name = next((chart for chart in reversed(known) if chart.startswith("roofline-")), name)
    if name not in known:
        raise UnknownNameError("chart of this run", name, known, listing=f"Known: {', '.join(known)}.")
    chart = known[name]
    return chart.spec() if width is None or chart.at_width is None else chart.at_width(width)


def _layer_charts(profile: Profile) -> list[Chart]:
    if not phases_with_ops(profile):
        return []
    specs: dict[str, Callable[[], dict[str, Any]]] = {
        "layers": lambda: layer_chart(profile),
        "kinds": lambda: kind_chart(profile),
        "kinds-count": lambda: kind_chart(profile, "count"),
        "units": lambda: unit_chart(profile),
        "units-count": lambda: unit_chart(profile, "count"),
    }
    return [Chart(name=name, title=name, spec=spec, shown=False) for name, spec in specs.items()]


def _sample_charts(profile: Profile) -> list[Chart]:
    charts = []
    known = [phase for phase in map(profile.phase, ("forward", "decode", "prefill")) if phase is not None]
    sampled = next((phase.name for phase in (*known, *profile.phases) if phase.samples_s), None)
    if sampled is not None:
        charts.append(Chart(name="histogram", title="Spread of the readings", spec=lambda: histogram(profile, sampled)))
    decode = profile.phase("decode")
    if decode is not None and decode.context and decode.samples_s:
        charts.append(Chart(name="tokens", title="Token by token", spec=lambda: token_trend(profile)))
    return charts


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
    """Whether an op can be placed in a roofline: it has work, bytes and more than a trace of the time."""
    return bool(op.flops and op.bytes and op.time_s > 1e-4 * phase.time_s)


def _roofline(profile: Profile, device: Device, phase: Phase) -> Chart:
    return Chart(
        name=f"roofline-{phase.name}",
        title=f"Roofline of {phase.name}",
        spec=lambda: roofline(profile, device, phase=phase.name),
        # Beside the plane stand the numbers of its axis and, where there is room, the key.
        at_width=lambda width: roofline(
            profile, device, phase=phase.name, width=width - (_BESIDE if width >= _ROOMY else _AXIS)
        ),
    )
