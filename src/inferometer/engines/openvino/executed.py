"""The operations that OpenVINO executes, as its runtime model shows them, and what lies between those with a name."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from inferometer.core.frozen import frozen
from inferometer.engines.base import FileNode
from inferometer.engines.onnx_nodes import NodeRow, Topology

_ENDS = frozenset({"Input", "Output"})
OUTSIDE = ""  # the label of the model's inputs and outputs


@frozen
class Executed:
    """An operation of the runtime model."""

    name: str
    kind: str  # `layerType`: Convolution, Subgraph, Reorder
    originals: str = ""  # `originalLayersNames`: what it was made from, with commas; the engine's own ones have none
    takers: tuple[str, ...] = ()

    @property
    def is_end(self) -> bool:
        return self.kind in _ENDS


@frozen
class NameFlow:
    """Which names need which, in topological order. `labels` are known names, and what each is known as."""

    before: Mapping[str, Sequence[str]]
    labels: Mapping[str, str]

    def after(self) -> dict[str, list[str]]:
        after: dict[str, list[str]] = {name: [] for name in self.before}
        for name, sources in self.before.items():
            for source in sources:
                after[source].append(name)
        return after

    def labels_before(self) -> dict[str, frozenset[str]]:
        """By name, the nearest labels on the ways to it."""
        return self._nearest(self.before, self.before)

    def labels_after(self) -> dict[str, frozenset[str]]:
        """By name, the nearest labels on the ways from it."""
        return self._nearest(reversed(list(self.before)), self.after())

    def _nearest(self, order: Iterable[str], beside: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
        nearest: dict[str, frozenset[str]] = {}
        for name in order:
            labels = ({self.labels[other]} if other in self.labels else nearest[other] for other in beside[name])
            nearest[name] = frozenset().union(*labels)
        return nearest

    def in_line(self, names: Sequence[str]) -> bool:
        """Whether each is on a way to the next."""
        for first, second in pairwise(names):
            reached = {first}
            for name, sources in self.before.items():
                if not reached.isdisjoint(sources):
                    reached.add(name)
            if second not in reached:
                return False
        return True

    def unlabelled(self) -> list[list[str]]:
        """Names without a label in groups that hang together, each in order."""
        group_of: dict[str, list[str]] = {}
        for name, sources in self.before.items():
            if name in self.labels:
                continue
            group = [name]
            for source in sources:
                if source in group_of and group_of[source] is not group:
                    group = group_of[source] + group
                    group_of.update(dict.fromkeys(group, group))
            group_of.update(dict.fromkeys(group, group))
        place = {name: index for index, name in enumerate(self.before)}
        groups = {id(group): group for group in group_of.values()}
        return [sorted(group, key=place.__getitem__) for group in groups.values()]

    def without(self, passed: Collection[str]) -> "NameFlow":
        """The same with some names left out: what needed one of them needs what it needed."""
        sources: dict[str, tuple[str, ...]] = {}
        for name, needed in self.before.items():
            direct = ((source,) if source not in passed else sources[source] for source in needed)
            sources[name] = tuple(dict.fromkeys(one for several in direct for one in several))
        return NameFlow(before={name: sources[name] for name in self.before if name not in passed}, labels=self.labels)


def running(executed: Sequence[Executed]) -> dict[str, Executed]:
    """By name, in order. What rests on constants alone was computed at load, and is left out."""
    ops = {op.name: op for op in executed}
    constant: set[str] = set()
    for name, sources in needed(ops).items():
        if ops[name].kind == "Const" or (sources and constant.issuperset(sources)):
            constant.add(name)
    return {name: op for name, op in ops.items() if name not in constant}


def needed(ops: Mapping[str, Executed]) -> dict[str, list[str]]:
    """By operation, those of them that it needs."""
    sources: dict[str, list[str]] = {name: [] for name in ops}
    for name, op in ops.items():
        for taker in op.takers:
            if taker in sources:
                sources[taker].append(name)
    return sources


# The nodes that a file's reader found, as the topology in which kernels are adopted: its kinds are those of ONNX.

_KINDS = {
    # TFLite
    "CONV_2D": "Conv", "DEPTHWISE_CONV_2D": "Conv", "CONV_3D": "Conv", "TRANSPOSE_CONV": "ConvTranspose",
    "Convolution2DTransposeBias": "ConvTranspose", "FULLY_CONNECTED": "Gemm", "BATCH_MATMUL": "MatMul",
    "RESHAPE": "Reshape", "EXPAND_DIMS": "Unsqueeze", "SQUEEZE": "Squeeze", "SHAPE": "Shape",
    # OpenVINO's own format
    "Convolution": "Conv", "GroupConvolution": "Conv", "ConvolutionBackpropData": "ConvTranspose",
    "GroupConvolutionBackpropData": "ConvTranspose", "ShapeOf": "Shape",
}  # fmt: skip


def file_topology(nodes: Sequence[FileNode]) -> Topology:
    made = {name for node in nodes for name in node.outputs}
    taken = {name for node in nodes for name in node.inputs}
    rows = tuple(
        NodeRow(
            name=node.name,
            engine_name=node.name,
            kind=_KINDS.get(node.kind, node.kind),
            inputs=node.inputs,
            outputs=node.outputs,
        )
        for node in nodes
    )
    return Topology(nodes=rows, inputs=tuple(sorted(taken - made)), outputs=tuple(sorted(made - taken)))


# The engine's counters into one sample a step.
#
# On the CPU a counter is the mean over all steps since the model was compiled, in whole microseconds, rounded down. So
# the total of the steps between two readings is known to half a microsecond a step, and what each took is not: every
# step gets their mean. Other devices give the last step's times.


@frozen
class CounterReading:
    """Seconds by kernel, as the counters stood after a number of steps."""

    steps: int = 0
    means_s: Mapping[str, float] = field(default_factory=dict)


def mean_between(before: CounterReading, after: CounterReading, *, tick_s: float = 1e-6) -> dict[str, float]:
    """Mean seconds a step from one reading to the other, by kernel. Half a tick makes up for rounding down."""
    count = after.steps - before.steps
    if count <= 0:
        return {}
    means: dict[str, float] = {}
    for name, mean_s in after.means_s.items():
        total = after.steps * (mean_s + tick_s / 2)
        earlier = before.means_s.get(name)
        spent = total - (before.steps * (earlier + tick_s / 2) if earlier is not None else 0.0)
        means[name] = max(0.0, spent / count)
    return means


@dataclass(slots=True)
class RunningMeans:
    """Readings of running means, one after the other."""

    last: CounterReading = field(default_factory=CounterReading)

    def take(self, after: CounterReading) -> dict[str, tuple[float, ...]]:
        """By kernel, a sample for every step since the last reading."""
        count = after.steps - self.last.steps
        samples = {name: (mean_s,) * count for name, mean_s in mean_between(self.last, after).items()}
        self.last = after
        return samples
