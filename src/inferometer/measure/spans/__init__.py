"""Spans in your own code: recorded cheaply, understood later.

`record` is the hot path; `batch`, `nest` and `build` turn what it left into a `Recording`; `stats` and the reports are
made of that.
"""

from inferometer.measure.spans.build import from_trace
from inferometer.measure.spans.files import load, merge, save
from inferometer.measure.spans.keeping import Everything, Reservoir, Ring
from inferometer.measure.spans.profiler import Profiler, export
from inferometer.measure.spans.recorder import Measure
from inferometer.measure.spans.recording import Recording
from inferometer.measure.spans.span_stats import SpanStats, stats, stats_of_all

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
