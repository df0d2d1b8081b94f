"""Inferometer: predict, measure and explain how fast a model runs on a device.

The public names load what they need when they are first used; `import inferometer` itself loads nothing.
"""

from typing import TYPE_CHECKING

from inferometer.lazy import attributes
from inferometer.version import __version__

if TYPE_CHECKING:
    from inferometer.atlas.looking import atlas
    from inferometer.bench.run import bench
    from inferometer.catalog import device, devices, model, models
    from inferometer.catalog.detect import detect_host
    from inferometer.core import Device, Graph, Profile, Work, Workload, dtype
    from inferometer.core.codec import decode, encode
    from inferometer.errors import InferometerError
    from inferometer.hub.exporting import chart, export
    from inferometer.prepare.run import prepare
    from inferometer.profiler import Profiler
    from inferometer.readers.resolve import read
    from inferometer.sweep.run import sweep
    from inferometer.units import format_quantity, parse_quantity
    from inferometer.verbs.calibrating import calibrate_from
    from inferometer.verbs.comparing import compare
    from inferometer.verbs.explanations import explain
    from inferometer.verbs.measurements import profile, verify
    from inferometer.verbs.questions import fit, predict
    from inferometer.verbs.services import load, plan, simulate

_HOMES = {
    "inferometer.atlas": ("atlas",),
    "inferometer.bench": ("bench",),
    "inferometer.catalog": ("device", "devices", "model", "models"),
    "inferometer.catalog.detect": ("detect_host",),
    "inferometer.core": ("Device", "Graph", "Profile", "Work", "Workload", "dtype"),
    "inferometer.core.codec": ("decode", "encode"),
    "inferometer.errors": ("InferometerError",),
    "inferometer.explain": ("explain",),
    "inferometer.hub.exporting": ("chart", "export"),
    "inferometer.prepare": ("prepare",),
    "inferometer.profiler": ("Profiler",),
    "inferometer.readers.resolve": ("read",),
    "inferometer.verbs.calibrating": ("calibrate_from",),
    "inferometer.verbs.comparing": ("compare",),
    "inferometer.verbs.measurements": ("profile", "verify"),
    "inferometer.verbs.questions": ("fit", "predict"),
    "inferometer.verbs.services": ("load", "plan", "simulate"),
    "inferometer.sweep": ("sweep",),
    "inferometer.units": ("format_quantity", "parse_quantity"),
}

__all__ = [
    "Device",
    "Graph",
    "InferometerError",
    "Profile",
    "Profiler",
    "Work",
    "Workload",
    "__version__",
    "atlas",
    "bench",
    "calibrate_from",
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


def __dir__() -> list[str]:
    return sorted(__all__)
