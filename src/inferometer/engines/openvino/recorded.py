"""A session with the engine's counters on."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.engines.base import FileNode, Kernel, Opened, Stage, Target, longest_pairing
from inferometer.engines.onnx_nodes import Topology, load_model, name_nodes, topology_of
from inferometer.engines.openvino.adopt import kernel_roles, known_names, own_names
from inferometer.engines.openvino.executed import CounterReading, Executed, RunningMeans, file_topology
from inferometer.engines.openvino.session import Clock, OpenvinoSession, info_of

# From the operations that OpenVINO makes of a TFLite file back to the file's operators.
#
# Its front end gives operations names of its own (`Convolution_113`, `161`). What an operator gives keeps the file's
# name for it, unless it was laid out anew. Most others are found by their order: the front end reads operators as the
# file lists them, and numbers operations as it makes them. So both lists are laid side by side, and as many as possible
# get an operator of a fitting type and size. Those that were renamed since come after, in the order in which they will
# run.

# Operations that an operator becomes one of, and which operators those are.
_FITTING = {
    "Convolution": frozenset({"CONV_2D", "CONV_3D", "FULLY_CONNECTED"}),
    "GroupConvolution": frozenset({"DEPTHWISE_CONV_2D", "CONV_2D"}),
    "ConvolutionBackpropData": frozenset({"TRANSPOSE_CONV", "Convolution2DTransposeBias"}),
    "MatMul": frozenset({"FULLY_CONNECTED", "BATCH_MATMUL"}),
    "MaxPool": frozenset({"MAX_POOL_2D"}),
    "AvgPool": frozenset({"AVERAGE_POOL_2D"}),
    "ReduceMean": frozenset({"MEAN"}),
    "Interpolate": frozenset({"RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"}),
    "Pad": frozenset({"PAD", "PADV2", "MIRROR_PAD"}),
    "Concat": frozenset({"CONCATENATION"}),
}
_ONE_OPERATION = frozenset().union(*_FITTING.values())
_PASSING_ON = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Convert", "Result"})


@frozen
class Operation:
    """An operation of the model as it was read. Sizes that are open then are None."""

    name: str
    type: str
    results: tuple[str, ...] = ()  # names of the tensors that it gives
    shape: tuple[int | None, ...] = ()


def known_operators(nodes: Sequence[FileNode], operations: Sequence[Operation]) -> dict[str, str]:
    """By operation, the operator that it stands for, where that is certain."""
    # What lays a result out anew or gives it to the caller has its name, too, and is not what made it.
    makers = {name: node for node in nodes for name in node.outputs}
    known: dict[str, str] = {}
    for operation in operations:
        node = next((makers[name] for name in operation.results if name in makers), None)
        if node is not None and not (operation.type in _PASSING_ON and node.kind in _ONE_OPERATION):
            known[operation.name] = node.name
    numbered = sorted((each for each in operations if _number(each) is not None), key=lambda each: _number(each) or 0)
    for ordered in (numbered, operations):
        # Again for what a change of order left over, until nothing fits any more.
        while pairs := _paired(nodes, [each for each in ordered if each.name not in known], set(known.values())):
            known |= pairs
    return known


def _paired(nodes: Sequence[FileNode], operations: Sequence[Operation], taken: AbstractSet[str]) -> dict[str, str]:
    free = [node for node in nodes if node.name not in taken and node.kind in _ONE_OPERATION]
    pairs = longest_pairing([each for each in operations if each.type in _FITTING], free, _fits)
    return {operation.name: node.name for operation, node in pairs}


def _number(operation: Operation) -> int | None:
    """The place in the order of making, of an operation that kept the name it was made with."""
    match = re.fullmatch(rf"{operation.type}_(\d+)", operation.name)
    return int(match[1]) if match else None


def _fits(operation: Operation, node: FileNode) -> bool:
    return node.kind in _FITTING.get(operation.type, ()) and _same_size(operation.shape, node.shape)


def _same_size(shape: Sequence[int | None], other: Sequence[int] | None) -> bool:
    """Whether both may be the same sizes in another order. An open size may be any."""
    if other is None:
        return True
    left, right = (Counter(size for size in each if size is not None and size != 1) for each in (shape, other))
    return left <= right if None in shape else left == right


_MEANS = "The CPU's counters are means over steps: each step's sample is the mean since the last reading."
_EXECUTED = "EXECUTED"


class OpenvinoRecordedSession(OpenvinoSession):
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
        self._means, self._steps, self._last_only = RunningMeans(), 0, opened.unit != "cpu"
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
            samples = self._means.take(CounterReading(steps=self._steps, means_s=executed_seconds(self._request)))
        self._taken = self._steps
        return {"forward": self._described(samples)}

    def _described(self, samples: Mapping[str, tuple[float, ...]]) -> tuple[Kernel, ...]:
        ops, facts, order = executed_order(self._compiled, samples)
        executed = [executed_of(name, op, facts[name]) for name, op in ops.items()]
        roles = kernel_roles(self._original, executed, self._own, order)
        return tuple(
            Kernel(
                name=name,
                kind=facts.get(name, {}).get("layerType") or name,
                samples_s=samples[name],
                unit=self.opened.unit,
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


def executed_order(compiled: Any, names: Iterable[str]) -> tuple[dict[str, Any], dict[str, dict[str, str]], list[str]]:
    """The operations of what runs, what it says of each, and the names in the order they run in."""
    ops = {op.get_friendly_name(): op for op in compiled.get_runtime_model().get_ordered_ops()}
    facts = {name: info_of(op) for name, op in ops.items()}
    return ops, facts, sorted(names, key=lambda name: int(facts.get(name, {}).get("execOrder", len(ops))))


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
