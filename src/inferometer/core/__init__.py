"""The values everything else is made of: frozen, in SI base units, without I/O."""

from inferometer.core.binding import Binding
from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.device import Device, Link, Memory, Sourced
from inferometer.core.dims import Dim, Symbol, evaluate
from inferometer.core.dtype import DTYPES, DType, dtype
from inferometer.core.estimate import Estimate
from inferometer.core.finding import Finding
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.profile import (
    DeviceFacts,
    Environment,
    Headline,
    ModelFacts,
    OpTime,
    Phase,
    Profile,
    Provenance,
)
from inferometer.core.run import Artifact, Run
from inferometer.core.sample import Interval, Sample, Summary
from inferometer.core.trace import Segment, Span, Trace
from inferometer.core.work import Work
from inferometer.core.workload import Parallel, Precision, Workload

__all__ = [
    "DTYPES", "Artifact", "Binding", "Block", "Calibration", "DType", "Device", "DeviceFacts", "Dim", "Environment",
    "Estimate", "Finding", "Graph", "Headline", "Interval", "Link", "Memory", "ModelFacts", "Op", "OpTime", "Parallel",
    "Phase", "Precision", "Profile", "Provenance", "Run", "Sample", "Segment", "Sourced", "Span", "Summary", "Symbol",
    "Tensor", "Trace", "Utilisation", "Work", "Workload", "dtype", "evaluate",
]  # fmt: skip
