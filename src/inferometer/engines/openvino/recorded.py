"""A session with the engine's counters on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.engines.base import Kernel
from inferometer.engines.onnx_nodes import Topology, load_model, name_nodes, topology_of
from inferometer.engines.openvino.adopt import kernel_roles
from inferometer.engines.openvino.counters import Means, Reading
from inferometer.engines.openvino.executed import Executed
from inferometer.engines.openvino.names import known_names, own_names
from inferometer.engines.openvino.session import ArraySession, info_of
from inferometer.engines.openvino.tflite import Operation, known_operators
from inferometer.engines.openvino.topology import file_topology

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.engines.base import Opened, Stage, Target
    from inferometer.engines.openvino.session import Clock

_MEANS = "The CPU's counters are means over steps: each step's sample is the mean since the last reading."
_EXECUTED = "EXECUTED"


class RecordedSession(ArraySession):
    counting = True

    def __init__(self, target: Target, *, clock: Clock) -> None:
        super().__init__(target, clock=clock)
        self._original = _original(target)
        ops = self._model.get_ordered_ops()
        consumers = {op.get_friendly_name(): consumers_of(op) for op in ops}
        if target.format == "tflite" and self._original is not None:
            # The operation that is known is an operator's first, not its last: a bias and an activation follow it.
            self._own = known_operators(target.nodes, [_operation(op) for op in ops])
        else:
            known = {name: name for name in consumers}
            if self._original is not None and target.format == "onnx":
                known = known_names(self._original)
            self._own = {**known, **own_names(consumers, known)}

    def _compile(self, stages: tuple[Stage, ...]) -> tuple[Any, Any, Opened]:
        compiled, request, opened = super()._compile(stages)
        self._means, self._steps, self._last_only = Means(), 0, opened.unit != "cpu"
        self._samples: dict[str, list[float]] = {}
        self._taken = 0
        notes = opened.notes if self._last_only else (*opened.notes, _MEANS)
        return compiled, request, replace(opened, notes=notes)

    def step(self) -> None:
        super().step()
        self._steps += 1
        if self._last_only:
            for name, seconds in executed_seconds(self._request).items():
                self._samples.setdefault(name, [0.0] * (self._steps - 1 - self._taken)).append(seconds)

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        if self._steps == self._taken:
            return {}
        if self._last_only:
            count = self._steps - self._taken
            samples = {name: (*times, *[0.0] * (count - len(times))) for name, times in self._samples.items()}
            self._samples = {}
        else:
            samples = self._means.take(Reading(steps=self._steps, means_s=executed_seconds(self._request)))
        self._taken = self._steps
        return {"forward": self._described(samples)}

    def _described(self, samples: Mapping[str, tuple[float, ...]]) -> tuple[Kernel, ...]:
        ops = {op.get_friendly_name(): op for op in self._compiled.get_runtime_model().get_ordered_ops()}
        facts = {name: info_of(op) for name, op in ops.items()}
        order = sorted(samples, key=lambda name: int(facts.get(name, {}).get("execOrder", len(ops))))
        executed = [executed_of(name, op, facts[name]) for name, op in ops.items()]
        roles = kernel_roles(self._original, executed, self._own, order)
        return tuple(
            Kernel(
                name=name,
                kind=facts.get(name, {}).get("layerType") or name,
                samples_s=samples[name],
                unit=self._opened.unit,
                layers=roles[name].layers,
                own=roles[name].own,
                provider=facts.get(name, {}).get("primitiveType") or None,
                dtype=facts.get(name, {}).get("runtimePrecision") or None,
                shapes=_shapes(ops.get(name)),
            )
            for name in order
        )


def executed_seconds(request: Any) -> dict[str, float]:
    """Seconds by kernel; a number distinguishes those of one name."""
    seconds: dict[str, float] = {}
    for entry in request.get_profiling_info():
        if entry.status.name == _EXECUTED:
            name, count = entry.node_name, 1
            while name in seconds:
                count += 1
                name = f"{entry.node_name}#{count}"
            seconds[name] = entry.real_time.total_seconds()
    return seconds


def executed_of(name: str, op: Any, facts: Mapping[str, str]) -> Executed:
    return Executed(
        name=name,
        kind=facts.get("layerType", ""),
        originals=facts.get("originalLayersNames", ""),
        takers=tuple(consumers_of(op)),
    )


def _original(target: Target) -> Topology | None:
    """The file's nodes, where they are known apart from the engine's operations."""
    if target.format != "onnx":
        return file_topology(target.nodes) if target.nodes else None
    model = load_model(target.path)
    return topology_of(model, name_nodes(model))


def consumers_of(op: Any) -> list[str]:
    return [port.get_node().get_friendly_name() for output in op.outputs() for port in output.get_target_inputs()]


def _operation(op: Any) -> Operation:
    outputs = op.outputs()
    shape = outputs[0].get_partial_shape() if outputs else ()
    return Operation(
        name=op.get_friendly_name(),
        type=op.get_type_name(),
        results=tuple(name for output in outputs for name in sorted(output.get_names())),
        shape=tuple(dim.get_length() if dim.is_static else None for dim in shape),
    )


def _shapes(op: Any) -> tuple[tuple[int, ...], ...]:
    if op is None:
        return ()
    shapes = [output.get_partial_shape() for output in op.outputs()]
    return tuple(tuple(shape.to_shape()) for shape in shapes if shape.is_static)
