"""Inferometer: predict, measure and explain how fast a model runs on a device.

The public names load what they need when they are first used; `import inferometer` itself loads nothing.
"""

from inferometer.core.lazy import attributes, shown_by
from inferometer.version import __version__

TYPE_CHECKING = False  # see inferometer.core

if TYPE_CHECKING:
    from inferometer.api.explanations import compare, explain
    from inferometer.api.measurements import profile, verify
    from inferometer.api.services import load, plan, simulate
    from inferometer.core import Device, Graph, Profile, Work, Workload, dtype
    from inferometer.core.codec import decode, encode
    from inferometer.core.errors import InferometerError
    from inferometer.core.units import format_quantity, parse_quantity
    from inferometer.formats.resolve import read
    from inferometer.hub.web.downloads import chart, export
    from inferometer.known import device, devices, model, models
    from inferometer.known.atlas.looking import atlas
    from inferometer.known.machine.detect import detect_host
    from inferometer.measure.bench.guard import Guard, NoGuard
    from inferometer.measure.bench.plan import Plan
    from inferometer.measure.bench.run import bench
    from inferometer.measure.calibrate.from_table import calibrate_from
    from inferometer.measure.prepare.run import prepare
    from inferometer.measure.spans import Profiler
    from inferometer.predict.placing import can_i_run
    from inferometer.predict.sweep import sweep
    from inferometer.predict.verbs import fit, predict

_HOMES = {
    "inferometer.known.atlas.looking": ("atlas",),
    "inferometer.measure.bench.guard": ("Guard", "NoGuard"),
    "inferometer.measure.bench.plan": ("Plan",),
    "inferometer.measure.bench.run": ("bench",),
    "inferometer.known": ("device", "devices", "model", "models"),
    "inferometer.known.machine.detect": ("detect_host",),
    "inferometer.core": ("Device", "Graph", "Profile", "Work", "Workload", "dtype"),
    "inferometer.core.codec": ("decode", "encode"),
    "inferometer.core.errors": ("InferometerError",),
    "inferometer.hub.web.downloads": ("chart", "export"),
    "inferometer.measure.prepare.run": ("prepare",),
    "inferometer.measure.spans": ("Profiler",),
    "inferometer.formats.resolve": ("read",),
    "inferometer.measure.calibrate.from_table": ("calibrate_from",),
    "inferometer.api.explanations": ("compare", "explain"),
    "inferometer.api.measurements": ("profile", "verify"),
    "inferometer.predict.placing": ("can_i_run",),
    "inferometer.predict.verbs": ("fit", "predict"),
    "inferometer.api.services": ("load", "plan", "simulate"),
    "inferometer.predict.sweep": ("sweep",),
    "inferometer.core.units": ("format_quantity", "parse_quantity"),
}

__all__ = [
    "Device",
    "Graph",
    "Guard",
    "InferometerError",
    "NoGuard",
    "Plan",
    "Profile",
    "Profiler",
    "Work",
    "Workload",
    "__version__",
    "atlas",
    "bench",
    "calibrate_from",
    "can_i_run",
    "chart",
    "compare",
    "decode",
    "detect_host",
    "device",
    "devices",
    "dtype",
    "encode",
    "explain",
    "export",
    "fit",
    "format_quantity",
    "load",
    "model",
    "models",
    "parse_quantity",
    "plan",
    "predict",
    "prepare",
    "profile",
    "read",
    "simulate",
    "sweep",
    "verify",
]


__getattr__ = attributes(__name__, _HOMES)
shown_by("inferometer.understand.view")


def __dir__() -> list[str]:
    return sorted(__all__)
