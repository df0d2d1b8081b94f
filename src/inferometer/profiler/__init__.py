"""Spans in your own code: recorded cheaply, understood later.

`record` is the hot path; `batch`, `nest` and `build` turn what it left into a `Recording`; `stats` and the reports are
made of that.
"""

from inferometer.profiler.build import from_trace
from inferometer.profiler.keeping import Everything, Reservoir, Ring
from inferometer.profiler.loading import load, merge, save
from inferometer.profiler.profiler import Profiler, export
from inferometer.profiler.recorder import Measure
from inferometer.profiler.recording import Recording
from inferometer.profiler.span_stats import SpanStats, stats, stats_of_all

__all__ = [
    "Everything",
    "Measure",
    "Profiler",
    "Recording",
    "Reservoir",
    "Ring",
    "SpanStats",
    "export",
    "from_trace",
    "load",
    "merge",
    "save",
    "stats",
    "stats_of_all",
]
