"""A session with the engine's counters on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.runtimes.base import Kernel
from inferometer.runtimes.onnx_nodes import Topology, load_model, name_nodes, topology_of
from inferometer.runtimes.openvino.adopt import adopt
from inferometer.runtimes.openvino.counters import Means, Reading
from inferometer.runtimes.openvino.names import listed_layers, own_names
from inferometer.runtimes.openvino.session import ArraySession, _info
from inferometer.runtimes.serving import served

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.runtimes.base import Opened, Stage, Target
    from inferometer.runtimes.openvino.session import Clock

_MEANS = "The CPU's counters are means over steps: each step's sample is the mean since the last reading."
_EXECUTED = "EXECUTED"
_OWN = frozenset({"Reorder", "Convert", "Transpose"})  # kinds of kernels that the engine puts in


class RecordedSession(ArraySession):
    counting = True

    def __init__(self, target: Target, *, clock: Clock) -> None:
        super().__init__(target, clock=clock)
        self._original = _original(target)
        consumers = {op.get_friendly_name(): _consumers(op) for op in self._model.get_ordered_ops()}
        known = _known(self._original) if self._original else {name: name for name in consumers}
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
            for name, seconds in self._counters().items():
                self._samples.setdefault(name, [0.0] * (self._steps - 1 - self._taken)).append(seconds)

    def _counters(self) -> dict[str, float]:
        """Seconds by kernel; a number distinguishes those of one name."""
        seconds: dict[str, float] = {}
        for entry in self._request.get_profiling_info():
            if entry.status.name == _EXECUTED:
                name, count = entry.node_name, 1
                while name in seconds:
                    count += 1
                    name = f"{entry.node_name}#{count}"
                seconds[name] = entry.real_time.total_seconds()
        return seconds

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        if self._steps == self._taken:
            return {}
        if self._last_only:
            count = self._steps - self._taken
            samples = {name: (*times, *[0.0] * (count - len(times))) for name, times in self._samples.items()}
            self._samples = {}
        else:
            samples = self._means.take(Reading(steps=self._steps, means_s=self._counters()))
        self._taken = self._steps
        return {"forward": self._described(samples)}

    def _described(self, samples: Mapping[str, tuple[float, ...]]) -> tuple[Kernel, ...]:
        ops = {op.get_friendly_name(): op for op in self._compiled.get_runtime_model().get_ordered_ops()}
        facts = {name: _info(ops[name]) if name in ops else {} for name in samples}
        order = sorted(samples, key=lambda name: int(facts[name].get("execOrder", len(ops))))
        listed: Mapping[str, tuple[str, ...]] = {
            name: listed_layers(facts[name].get("originalLayersNames", ""), self._own) for name in order
        }
        if self._original is not None:
            listed = adopt(self._original, listed)
        takers = {name: _consumers(op) for name, op in ops.items()}
        serves = {name: names for name, names in served(takers, listed).items() if _kind(facts, name) in _OWN}
        return tuple(
            Kernel(
                name=name,
                kind=_kind(facts, name),
                samples_s=samples[name],
                unit=self._opened.unit,
                layers=listed[name] or serves.get(name, ()),
                own=name in serves,
                provider=facts[name].get("primitiveType") or None,
                dtype=facts[name].get("runtimePrecision") or None,
                shapes=_shapes(ops.get(name)),
            )
            for name in order
        )


def _kind(facts: Mapping[str, Mapping[str, str]], name: str) -> str:
    return facts.get(name, {}).get("layerType", "") or name


def _original(target: Target) -> Topology | None:
    """The file's nodes, where it is ONNX."""
    if target.format != "onnx":
        return None
    model = load_model(target.path)
    return topology_of(model, name_nodes(model))


def _known(original: Topology) -> dict[str, str]:
    """Names that stand for a node: its own, those of its results, and those with the number of a result."""
    known: dict[str, str] = {}
    for node in original.nodes:
        for place, name in enumerate(node.outputs):
            known.setdefault(name, node.name)
            known.setdefault(f"{node.engine_name}.{place}", node.name)
        known[node.engine_name] = node.name
    return known


def _consumers(op: Any) -> list[str]:
    return [port.get_node().get_friendly_name() for output in op.outputs() for port in output.get_target_inputs()]


def _shapes(op: Any) -> tuple[tuple[int, ...], ...]:
    if op is None:
        return ()
    shapes = [output.get_partial_shape() for output in op.outputs()]
    return tuple(tuple(shape.to_shape()) for shape in shapes if shape.is_static)
