"""Which operators of the file XNNPACK's kernels stand for.

XNNPACK has its own names for what it runs and does not say which operators they are, but it keeps their order. So the
two lists are laid side by side: as many kernels as possible get an operator of a fitting type, in order. Operators left
over that XNNPACK fuses into their neighbour (a ReLU into a convolution, a padding into what follows) are added to its
kernel.
"""

import re
from collections.abc import Mapping, Sequence

from inferometer.core.frozen import frozen
from inferometer.engines.base import Kernel, longest_pairing

# XNNPACK's name, without types and sizes → operators of TFLite it can be. The first that fits.
FITTING: tuple[tuple[str, frozenset[str]], ...] = tuple(
    (pattern, frozenset(types.split()))
    for pattern, types in (
        (r"(Depthwise )?Convolution \(.*\) DWConv", "DEPTHWISE_CONV_2D"),
        (r"Convolution", "CONV_2D DEPTHWISE_CONV_2D"),
        (r"Deconvolution", "TRANSPOSE_CONV Convolution2DTransposeBias"),
        (r"(Dynamic )?Fully Connected", "FULLY_CONNECTED CONV_2D"),
        (r"Batch Matrix Multiply", "BATCH_MATMUL FULLY_CONNECTED"),
        (r"Clamp", "RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 MAXIMUM MINIMUM"),
        (r"(Unary )?(Hard ?Swish)", "HARD_SWISH"),
        (r"Leaky ?ReLU", "LEAKY_RELU"),
        (r"PReLU", "PRELU"),
        (r"Sigmoid", "LOGISTIC"),
        (r"Square Root", "SQRT"),
        (r"Reciprocal Square Root", "RSQRT"),
        (r"Squared Difference", "SQUARED_DIFFERENCE"),
        (r"Square", "SQUARE"),
        (r"Negate", "NEG"),
        (r"Exp", "EXP"),
        (r"Log", "LOG"),
        (r"Add", "ADD"),
        (r"Subtract", "SUB"),
        (r"Multiply", "MUL"),
        (r"Divide", "DIV"),
        (r"Maximum", "MAXIMUM"),
        (r"Minimum", "MINIMUM"),
        (r"Constant Pad", "PAD PADV2"),
        (r"Max Pooling", "MAX_POOL_2D"),
        (r"(Global )?Average Pooling", "AVERAGE_POOL_2D MEAN"),
        (r"(Global )?Sum Pooling", "SUM"),
        (r"Mean", "MEAN AVERAGE_POOL_2D"),
        (r"(Reduce )?Sum|Normalize", "SUM MEAN"),
        (r"Reduce Max", "REDUCE_MAX"),
        (r"Reduce Min", "REDUCE_MIN"),
        (r"Resize Bilinear", "RESIZE_BILINEAR"),
        (r"Depth To Space", "DEPTH_TO_SPACE"),
        (r"Space To Depth", "SPACE_TO_DEPTH"),
        (r"Soft[Mm]ax", "SOFTMAX"),
        (r"Static (Reshape|Expand|Squeeze)", "RESHAPE EXPAND_DIMS SQUEEZE"),
        (r"Transpose", "TRANSPOSE"),
        (r"Slice", "SLICE STRIDED_SLICE"),
        (r"Concatenate|Copy", "CONCATENATION RESHAPE EXPAND_DIMS SQUEEZE SPLIT SLICE STRIDED_SLICE"),
        (r"Even Split|Split", "SPLIT"),
        (r"Convert", "QUANTIZE DEQUANTIZE CAST"),
    )
)
_FUSED_AFTER = frozenset({"RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"})  # into the kernel of what they read
_FUSED_BEFORE = frozenset({"PAD", "DEQUANTIZE"})  # into the kernel of what reads them
_ACTIVATION, _VIEW = "Clamp", "Static Reshape"
_FREE = frozenset({"RESHAPE", "EXPAND_DIMS", "SQUEEZE"})  # another view of what they read


@frozen
class Operator:
    """An operator of the file, under the name its first output has, and the names of what was `fused` into it."""

    index: int
    name: str
    type: str
    fused: tuple[str, ...] = ()
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


@frozen
class RanOperator:
    """What ran. `operator` is its number in the file, where the engine says it; else the delegate it ran in."""

    kind: str
    operator: int | None = None
    delegate: int = 0


def layers_of_kernels(
    ran: Sequence[RanOperator], operators: Sequence[Operator], partitions: Sequence[Sequence[int]] = ()
) -> tuple[tuple[str, ...], ...]:
    """For each of what ran, in order, the operators it stands for. `partitions` are those of each delegate."""
    kernel_of = {each.operator: row for row, each in enumerate(ran) if each.operator is not None}
    delegates = sorted({each.delegate for each in ran if each.operator is None})
    for index, delegate in enumerate(delegates):
        rows = [row for row, each in enumerate(ran) if each.operator is None and each.delegate == delegate]
        inside = set(partitions[index]) if len(partitions) == len(delegates) else None
        among = [
            operator
            for operator in operators
            if operator.index not in kernel_of and (inside is None or operator.index in inside)
        ]
        types = [(row, _types(ran[row])) for row in rows]
        pairs = longest_pairing(types, among, lambda each, operator: operator.type in each[1])
        kernel_of |= {operator.index: row for (row, _), operator in pairs}
    _add_fused(kernel_of, operators)
    named = {operator.name for operator in operators}
    layers: list[list[str]] = [[] for _ in ran]
    for operator in operators:
        if operator.index in kernel_of:
            # A converter lists names that it shares between operators: one that is an operator's own means that one.
            layers[kernel_of[operator.index]] += [
                operator.name,
                *(name for name in operator.fused if name not in named),
            ]
    for row in range(1, len(ran)):  # an activation inside an operator can be a kernel of its own
        if not layers[row] and ran[row].kind.startswith(_ACTIVATION) and layers[row - 1]:
            layers[row] = layers[row - 1][::-1]  # the last name may be the activation's; the first is the operator's
    for row in reversed(range(len(ran) - 1)):  # XNNPACK reshapes what it gives to a kernel that wants rows
        if not layers[row] and ran[row].kind.startswith(_VIEW):
            layers[row] = layers[row + 1]
    return tuple(tuple(dict.fromkeys(names)) for names in layers)


def _add_fused(kernel_of: dict[int, int], operators: Sequence[Operator]) -> None:
    """Operators that have no kernel of their own go to that of their neighbour."""
    made_by = {output: operator for operator in operators for output in operator.outputs}
    read_by: dict[int, Operator] = {}
    for operator in operators:
        for place in operator.inputs:
            read_by.setdefault(place, operator)
    for operator in operators:
        if operator.index not in kernel_of and operator.type in _FUSED_AFTER | _FREE and operator.inputs:
            source = made_by.get(operator.inputs[0])
            if source is not None and source.index in kernel_of:
                kernel_of[operator.index] = kernel_of[source.index]
    for operator in reversed(operators):
        if operator.index not in kernel_of and operator.type in _FUSED_BEFORE and operator.outputs:
            reader = read_by.get(operator.outputs[0])
            if reader is not None and reader.index in kernel_of:
                kernel_of[operator.index] = kernel_of[reader.index]


def _types(ran: RanOperator) -> frozenset[str]:
    return next((types for pattern, types in FITTING if re.match(pattern, ran.kind)), frozenset())


# LiteRT's profiler events, step by step, as kernels. Its clock counts whole microseconds.

# What kind of event it is, as TFLite's profiler interface numbers them.
OPERATOR, DELEGATE_INTERNAL, DELEGATE_KERNEL = 2, 4, 8
_PREFIX = "Delegate/"


@frozen
class ProfilerEvent:
    """`number` is an operator's place in the graph, or a kernel's place within its delegate."""

    tag: str
    kind: int
    elapsed_us: int
    number: int
    subgraph: int = 0


def kernel_events(events: Sequence[ProfilerEvent]) -> list[ProfilerEvent]:
    """What ran, each once: kernels of delegates, and operators that no delegate took.

    A delegate's own event holds its kernels, which come right after it; without any it is reported as a whole. What ran
    in a branch or a loop's body is in the time of the operator that called it, and we read that as one.
    """
    kernels: list[ProfilerEvent] = []
    kinds = {OPERATOR, DELEGATE_INTERNAL, DELEGATE_KERNEL}
    timed = [event for event in events if event.kind in kinds]
    timed = [event for event in timed if event.subgraph == timed[0].subgraph]
    for index, event in enumerate(timed):
        after = timed[index + 1] if index + 1 < len(timed) else None
        is_parent = event.kind == OPERATOR and after is not None and after.kind != OPERATOR and "elegate" in event.tag
        if not is_parent:
            kernels.append(event)
    return kernels


class StepEvents:
    """Events of steps, one list each. What a step did not run took no time in it."""

    def __init__(self, operators: Sequence[Operator], partitions: Sequence[Sequence[int]] = ()) -> None:
        self._operators, self._partitions = tuple(operators), tuple(partitions)
        self._steps: list[list[ProfilerEvent]] = []

    def add(self, events: Sequence[ProfilerEvent]) -> None:
        self._steps.append(kernel_events(events))

    def take(self) -> Mapping[str, tuple[Kernel, ...]]:
        """What ran since the last call; the order is that of the first step."""
        steps, self._steps = self._steps, []
        if not steps:
            return {}
        rows: dict[tuple[str, int, int], list[float]] = {}
        order: list[ProfilerEvent] = []
        for number, step in enumerate(steps):
            seen: dict[tuple[str, int], int] = {}
            for event in step:
                place = (event.tag, event.number)
                seen[place] = seen.get(place, 0) + 1
                key = (*place, seen[place])
                if key not in rows:
                    rows[key] = [0.0] * len(steps)
                    order.append(event)
                rows[key][number] = event.elapsed_us * 1e-6
        return {"forward": self._kernels(order, list(rows.values()))}

    def _kernels(self, order: Sequence[ProfilerEvent], samples: Sequence[Sequence[float]]) -> tuple[Kernel, ...]:
        ran = _ran(order, {(operator.index, operator.type) for operator in self._operators})
        layers = layers_of_kernels(ran, self._operators, self._partitions)
        names: dict[str, int] = {}
        kernels = []
        for event, each, stands_for, times in zip(order, ran, layers, samples, strict=True):
            base = stands_for[0] if stands_for else f"{each.kind}:{event.number}"
            names[base] = names.get(base, 0) + 1
            kernels.append(
                Kernel(
                    name=base if names[base] == 1 else f"{base}#{names[base]}",
                    kind=each.kind,
                    samples_s=tuple(times),
                    layers=stands_for,
                    provider="builtin" if event.kind == OPERATOR else "XNNPACK",
                )
            )
        return tuple(kernels)


def _ran(order: Sequence[ProfilerEvent], known: set[tuple[int, str]]) -> list[RanOperator]:
    """A delegate numbers its kernels from 0: where the numbers begin anew, another delegate runs."""
    kernels: list[RanOperator] = []
    delegate, before = -1, None
    for event in order:
        if event.kind != OPERATOR:
            if before is None or event.number <= before:
                delegate += 1
            before = event.number
        else:
            before = None
        is_told = event.kind == OPERATOR and (event.number, event.tag) in known
        kernels.append(
            RanOperator(
                kind=event.tag.removeprefix(_PREFIX),
                operator=event.number if is_told else None,
                delegate=-1 if event.kind == OPERATOR else delegate,
            )
        )
    return kernels
