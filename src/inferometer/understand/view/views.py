"""The one door from a value to what is shown of it. Renderers (terminal, notebook, Markdown) take the View alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferometer.understand.view.cards import View

if TYPE_CHECKING:
    from inferometer.core.profile import Profile

# By the kind of value, which module lays it out and by which function: only that one is loaded.
_LAYOUTS = {
    "Comparison": ("measured", "comparison_view"),
    "Device": ("cards", "device_card"),
    "Fit": ("serving", "memory_card"),
    "Measurement": ("measured", "measurement_card"),
    "Rows": ("sweeps", "sweep_view"),
    "ServingAnswer": ("serving", "serving_card"),
}


def view_of(value: Any) -> View:
    """The headline, the tables and the charts of a profile, a comparison, a measurement, a device, a fit, a sweep."""
    module, name = _profile_layout(value) if type(value).__name__ == "Profile" else _LAYOUTS[type(value).__name__]
    shown = getattr(import_module(f"inferometer.understand.view.{module}"), name)(value)
    return shown if isinstance(shown, View) else View(card=shown)


def _profile_layout(profile: Profile) -> tuple[str, str]:
    if profile.served is not None and profile.served.levels:
        return "load_tests", "load_view"
    return ("predictions", "prediction_view") if profile.kind == "predicted" else ("profiles", "measured_view")
