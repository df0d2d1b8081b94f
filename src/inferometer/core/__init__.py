"""The values everything else is made of: frozen, in SI base units, without I/O."""

from inferometer.core.lazy import attributes

TYPE_CHECKING = False  # as type checkers know it; the module `typing` would be a third of a command's first page

if TYPE_CHECKING:
    from inferometer.core.binding import Binding
    from inferometer.core.calibration import Calibration, Utilisation
    from inferometer.core.device import CoreGroup, Device, Link, Memory, Sourced
    from inferometer.core.dims import Dim, Symbol, evaluate
    from inferometer.core.dtypes import DTYPES, DType, dtype
    from inferometer.core.finding import Finding
    from inferometer.core.graph import Block, Graph, Op, Tensor
    from inferometer.core.job import Job, JobEvent, JobResult
    from inferometer.core.profile import (
        Artifact,
        DeviceFacts,
        Environment,
        Estimate,
        Headline,
        ModelFacts,
        OpTime,
        Phase,
        Profile,
        Provenance,
        Run,
    )
    from inferometer.core.statistics import Interval, Sample, Summary
    from inferometer.core.trace import Segment, Span, Trace
    from inferometer.core.work import Work
    from inferometer.core.workload import Parallel, Precision, Workload

__all__ = [
    "DTYPES", "Artifact", "Binding", "Block", "Calibration", "CoreGroup", "DType", "Device", "DeviceFacts", "Dim",
    "Environment", "Estimate", "Finding", "Graph", "Headline", "Interval", "Job", "JobEvent", "JobResult", "Link",
    "Memory", "ModelFacts", "Op", "OpTime", "Parallel", "Phase", "Precision", "Profile", "Provenance", "Run",
    "Sample", "Segment", "Sourced", "Span", "Summary", "Symbol", "Tensor", "Trace", "Utilisation", "Work", "Workload",
    "dtype", "evaluate",
]  # fmt: skip

__getattr__ = attributes(__name__, {
    "inferometer.core.binding": ("Binding",),
    "inferometer.core.calibration": ("Calibration", "Utilisation"),
    "inferometer.core.device": ("CoreGroup", "Device", "Link", "Memory", "Sourced"),
    "inferometer.core.dims": ("Dim", "Symbol", "evaluate"),
    "inferometer.core.dtypes": ("DTYPES", "DType", "dtype"),
    "inferometer.core.finding": ("Finding",),
    "inferometer.core.graph": ("Block", "Graph", "Op", "Tensor"),
    "inferometer.core.job": ("Job", "JobEvent", "JobResult"),
    "inferometer.core.profile": (
        "Artifact", "DeviceFacts", "Environment", "Estimate", "Headline", "ModelFacts", "OpTime", "Phase", "Profile",
        "Provenance", "Run",
    ),
    "inferometer.core.statistics": ("Interval", "Sample", "Summary"),
    "inferometer.core.trace": ("Segment", "Span", "Trace"),
    "inferometer.core.work": ("Work",),
    "inferometer.core.workload": ("Parallel", "Precision", "Workload"),
})  # fmt: skip
