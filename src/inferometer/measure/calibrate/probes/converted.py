"""Probes for engines that open a format of their own: written as ONNX or as exported PyTorch programs, then converted.

The tools are those that `prepare` uses. One keeps the names of layers or gives its own. With its own, a probe's layers
are those of the file that it made: times are matched with them, and priced as that graph says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path

from inferometer.core.errors import EngineError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph
from inferometer.core.sizes import bind
from inferometer.engines.base import FileNode
from inferometer.engines.order import ToolOrder
from inferometer.formats.resolve import read
from inferometer.measure.calibrate.probes.models import Probe, ProbeRun, file_of, graph_of
from inferometer.measure.prepare.calibration import ports_of
from inferometer.measure.prepare.carrying_out import Tools, carry_out
from inferometer.measure.prepare.steps import STEPS, PrepareStep
from inferometer.measure.run.inputs import input_shapes
from inferometer.measure.run.model_file import file_nodes

WRITTEN, EXPORTED = "onnx", "pt2"
# A process, the tool and its reader take a second for most probes. Exported programs are lowered for ten.
MAKING_S = {WRITTEN: 2.0, EXPORTED: 10.0}
_LONGEST_S = 180.0  # for a tool to convert a probe of some MB: one that takes longer hangs
_EXPORT = PrepareStep(
    name="probe-program", title="a probe as an exported PyTorch program", takes=("config",), gives=EXPORTED,
    packages=("torch",), modules=("torch",), extra="torch", work="inferometer.measure.calibrate.torch.programs:export",
    fixed=True,
)  # fmt: skip


@frozen
class ConvertedProbe:
    """A file, the graph its layers are known by, and the shapes it was converted for.

    `nodes` are the file's, for an engine that cannot list them. Where images are not `laid_out` as in other graphs,
    their channels first, shapes of its ops say nothing of theirs.
    """

    path: Path
    graph: Graph = field(repr=False)
    shapes: Mapping[str, tuple[int, ...]]
    nodes: tuple[FileNode, ...] = ()
    laid_out: bool = True


def converter_to(formats: Iterable[str]) -> PrepareStep | None:
    """The step that makes one of these formats of what probes are written as, and leaves its numbers as they are."""
    wanted = frozenset(formats) - {WRITTEN}
    plain = [step for step in STEPS if step.place == "way" and step.quantises is None and not step.runtimes]
    able = (step for step in plain if source_of(step) is not None and step.gives in wanted)
    return next(able, None)


def source_of(step: PrepareStep) -> str | None:
    """The file format of a step's probes."""
    return next((kind for kind in (WRITTEN, EXPORTED) if kind in step.takes), None)


def converted_probe(  # noqa: PLR0913 - what is made, of what, by what and where
    step: PrepareStep, probe: Probe, run: ProbeRun, *, weights: str, folder: Path, tools: Tools | None = None
) -> ConvertedProbe:
    """The probe's file, made once and kept by what went in."""
    key = (step.name, probe.name, run, weights, folder)
    if key not in _MADE:
        _MADE[key] = _converted(step, probe, run, weights, folder, tools)
    return _MADE[key]


_MADE: dict[tuple[str, str, ProbeRun, str, Path], ConvertedProbe] = {}


def _converted(  # noqa: PLR0913, PLR0917 - as above
    step: PrepareStep, probe: Probe, run: ProbeRun, weights: str, folder: Path, tools: Tools | None
) -> ConvertedProbe:
    exported = source_of(step) == EXPORTED
    order = _program(probe, run, folder, tools) if exported else _network(probe, run, weights, folder)
    to = ToolOrder(
        source=order.source, target=order.source, format=step.gives, shapes=order.shapes, dtypes=order.dtypes
    )
    made = carry_out(step, to, folder, seconds_at_most=_LONGEST_S, tools=tools)
    if not (step.renames or exported):
        return ConvertedProbe(path=made.path, graph=graph_of(probe), shapes=order.shapes)
    graph = read(str(made.path))
    if graph.symbols:  # of a layer that only this engine has: nothing after it has a known size
        raise EngineError(f"{step.tool} merges layers of {probe.name} into ones whose sizes are not known.")
    binding = bind(graph, run.workload())
    return ConvertedProbe(
        path=made.path,
        graph=graph,
        shapes=input_shapes(graph, binding),
        nodes=file_nodes(graph, binding),
        laid_out=not exported,
    )


def _network(probe: Probe, run: ProbeRun, weights: str, folder: Path) -> ToolOrder:
    source = file_of(probe, run, format=WRITTEN, weights=weights, folder=folder)
    written = read(str(source))
    shapes = input_shapes(written, bind(written, run.workload()))
    dtypes = {port.name: port.dtype for port in ports_of(written, shapes)}
    return ToolOrder(source=source, target=source, format=WRITTEN, shapes=shapes, dtypes=dtypes)


def _program(probe: Probe, run: ProbeRun, folder: Path, tools: Tools | None) -> ToolOrder:
    source = file_of(probe, run, format="config", weights="f32", folder=folder)
    graph = graph_of(probe)
    shapes = input_shapes(graph, bind(graph, run.workload()))
    order = ToolOrder(source=source, target=source, format=EXPORTED, shapes=shapes)
    made = carry_out(_EXPORT, order, folder, seconds_at_most=_LONGEST_S, tools=tools)
    return ToolOrder(source=made.path, target=made.path, format=EXPORTED, shapes=shapes)
