"""Probes for engines that open a format of their own: written as ONNX, then converted by the tool `prepare` uses.

A converter keeps the names of layers or gives its own. With its own, a probe's layers are those of the file that it
made: times are matched with them, and priced as that graph says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.calibrate.probes.models import Probe, ProbeRun, file_of, graph_of
from inferometer.core.graph import Graph
from inferometer.errors import EngineError
from inferometer.measure.inputs import input_shapes
from inferometer.prepare.calibration import ports_of
from inferometer.prepare.carrying_out import carry_out
from inferometer.prepare.order import ToolOrder
from inferometer.prepare.steps import STEPS, Step
from inferometer.readers.resolve import read
from inferometer.readers.sizes import bind

if TYPE_CHECKING:
    from collections.abc import Iterable

SOURCE = "onnx"
CONVERTING_S = 2.0  # a process, the tool and its reader: a second for most probes, three for the largest
_LONGEST_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedProbe:
    """A file, the graph its layers are known by, and the shapes it was converted for."""

    path: Path
    graph: Graph = field(repr=False)
    shapes: Mapping[str, tuple[int, ...]]


def converter_to(formats: Iterable[str]) -> Step | None:
    """The step that makes one of these formats of an ONNX file and leaves its numbers as they are."""
    wanted = frozenset(formats) - {SOURCE}
    plain = (step for step in STEPS if step.place == "way" and step.quantises is None and not step.runtimes)
    return next((step for step in plain if SOURCE in step.takes and step.gives in wanted), None)


def converted_probe(step: Step, probe: Probe, run: ProbeRun, *, weights: str, folder: Path) -> ConvertedProbe:
    """The probe's file, made once and kept by what went in."""
    source = file_of(probe, run, format=SOURCE, weights=weights, folder=folder)
    return _converted(step.name, source, probe, run, folder)


@cache
def _converted(name: str, source: Path, probe: Probe, run: ProbeRun, folder: Path) -> ConvertedProbe:
    step = next(step for step in STEPS if step.name == name)
    written = read(str(source))
    workload = run.workload()
    shapes = input_shapes(written, bind(written, workload))
    dtypes = {port.name: port.dtype for port in ports_of(written, shapes)}
    order = ToolOrder(source=source, target=source, format=step.gives, shapes=shapes, dtypes=dtypes)
    made = carry_out(step, order, folder, seconds_at_most=_LONGEST_S)
    if not step.renames:
        return ConvertedProbe(path=made.path, graph=graph_of(probe), shapes=shapes)
    graph = read(str(made.path))
    if graph.symbols:  # of a layer that only this engine has: nothing after it has a known size
        raise EngineError(f"{step.tool} merges layers of {probe.name} into ones whose sizes are not known.")
    return ConvertedProbe(path=made.path, graph=graph, shapes=input_shapes(graph, bind(graph, workload)))
