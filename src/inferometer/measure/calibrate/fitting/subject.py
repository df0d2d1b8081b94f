"""The subject of a calibration: device, engine and circumstances, and the steps measured on it, as plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from inferometer.core.device import Device, Sourced
from inferometer.core.engine import RuntimeEffects
from inferometer.core.frozen import frozen
from inferometer.core.kept import Kept
from inferometer.core.workload import Workload
from inferometer.predict.basis.calibrations import formats_of
from inferometer.predict.options import Options
from inferometer.predict.ready import make_ready

if TYPE_CHECKING:
    from inferometer.core.calibration import Calibration
    from inferometer.core.graph import Graph
    from inferometer.measure.calibrate.fitting.points import StepPoint
    from inferometer.predict.price.plan import PricePlan


@frozen
class CalibrationSubject:
    """The device as it is priced, the runtime's effects, and the circumstances of the measurement."""

    device: Device
    runtime: RuntimeEffects
    dtype: str
    created: str
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None
    host_call_s: float | None = None
    source: str = "inferometer calibrate"
    reached: bool = False  # the device's peaks were reached by probes: its row states none

    def sourced(self, value: float, note: str | None = None) -> Sourced:
        return Sourced(value=value, origin="calibrated", source=self.source, date=self.created[:10], note=note)


def workload_of(subject: CalibrationSubject, step: StepPoint) -> Workload:
    """The workload of a step, in the engine's formats for the step's."""
    precision = formats_of(subject.runtime.name, step.dtype)
    return Workload(batch=step.batch, prompt=step.query, image=step.image, precision=precision)


_probing = Kept()


def plan_of(subject: CalibrationSubject, step: StepPoint, calibration: Calibration | None = None) -> PricePlan:
    runtime = subject.runtime
    if step.config:  # a probe routes rows by itself, and moves none beside its products
        runtime = _probing.get_or_make((), (runtime,), lambda: replace(runtime, routed=None))
    return make_ready(
        graph_of_step(step), subject.device, effects=runtime, workload=workload_of(subject, step),
        options=Options(), calibration=calibration,
    ).plan  # fmt: skip


_GRAPHS: dict[str, Graph] = {}


def graph_of_step(step: StepPoint) -> Graph:
    """The model of a step. It is read once, because pricing caches its preparations with the graph."""
    from inferometer.formats.huggingface import graph_from_config  # noqa: PLC0415 - only whole steps need a reader
    from inferometer.formats.resolve import read  # noqa: PLC0415 - as above

    # Engines have probes of one name alike; a package's network has a graph for each size of image.
    key = f"{step.model} {sorted(step.config.items()) if step.config else step.image}"
    if key not in _GRAPHS:
        graph = graph_from_config(step.config, name=step.model) if step.config else read(step.model, image=step.image)
        # no limit: what was measured beyond the window was measured with a longer one
        _GRAPHS[key] = replace(graph, context_limit=None)
    return _GRAPHS[key]
