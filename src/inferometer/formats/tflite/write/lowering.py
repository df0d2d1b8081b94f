"""Lowering: steps of a graph become TFLite operators.

A graph's planes are [batch, channels, height, width], TFLite's [batch, height, width, channels]: every plane is stored
with its channels last, and what only moves channels there or back becomes nothing. A batch norm and a ReLU right after
a convolution become part of it, as converters do it and XNNPACK wants it.

The last operator of a layer has the layer's name, with the names of the layers fused into it behind semicolons; what
comes before it is named `layer/OPERATOR`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from inferometer.core.dims import Dim, Symbol, evaluate, symbols_in
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, Op, Tensor
from inferometer.formats.synth.weights import Array, Weight, executed, planned_op, whole
from inferometer.formats.tflite.write.network import Network, TfliteStored

# The graph as a list of steps: blocks written out, every value made once, every size a number.

BATCH = "batch"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TfliteValue:
    """What flows, in the shape the graph says; `shape` has a batch of 1 where that is open. Compared as itself."""

    name: str
    shape: tuple[int, ...]
    open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TfliteStep:
    """One op in one repetition of its block. Names and weights are full ones."""

    op: Op
    name: str
    inputs: tuple[TfliteValue, ...]
    outputs: tuple[TfliteValue, ...]
    weights: tuple[Weight, ...]

    @property
    def result(self) -> TfliteValue:
        return self.outputs[0]

    @property
    def function(self) -> str:
        return str(self.op.get("norm") if self.op.kind == "norm" else self.op.get("function", ""))

    def refuse(self, why: str) -> InferometerError:
        return InferometerError(
            f"{self.name!r} ({self.op.kind}) cannot be written as TFLite: {why}.",
            remedy="Write this model as .onnx, or choose another.",
        )


@frozen
class TfliteProgram:
    steps: tuple[TfliteStep, ...]
    inputs: tuple[TfliteValue, ...]
    outputs: tuple[TfliteValue, ...]
    readers: Mapping[TfliteValue, tuple[TfliteStep, ...]]

    def only_reader(self, value: TfliteValue) -> TfliteStep | None:
        """The one step that reads a value, where nothing else does and the model does not give it."""
        readers = self.readers.get(value, ())
        return readers[0] if len(readers) == 1 and value not in self.outputs else None


def written_out(graph: Graph, sizes: Mapping[str, int]) -> TfliteProgram:
    """`sizes` fixes symbols; only the batch may stay open, as a first size."""
    made = {tensor.name: _value(tensor.name, tensor, sizes) for tensor in graph.inputs}
    inputs = tuple(made.values())
    steps: list[TfliteStep] = []
    for block, repetition, op in executed(graph):
        name = block.full_name(op.name, repetition)
        step = TfliteStep(
            op=op,
            name=name,
            inputs=tuple(_read(name, block.full_name(tensor.name, repetition), made) for tensor in op.inputs),
            outputs=tuple(_value(block.full_name(tensor.name, repetition), tensor, sizes) for tensor in op.outputs),
            weights=planned_op(block, op, repetition),
        )
        _require_shapes(step, sizes)
        made |= {value.name: value for value in step.outputs}
        steps.append(step)
    outputs = tuple(made[tensor.name] for tensor in graph.outputs)
    readers: dict[TfliteValue, tuple[TfliteStep, ...]] = {}
    for step in steps:
        for value in step.inputs:
            readers[value] = (*readers.get(value, ()), step)
    return TfliteProgram(steps=tuple(steps), inputs=inputs, outputs=outputs, readers=readers)


def _read(reader: str, name: str, made: Mapping[str, TfliteValue]) -> TfliteValue:
    if name not in made:
        raise InferometerError(f"{reader!r} reads {name!r}, which no op before it makes: the graph cannot be run.")
    return made[name]


def _require_shapes(step: TfliteStep, sizes: Mapping[str, int]) -> None:
    for value, tensor in zip(step.inputs, step.op.inputs, strict=True):
        seen = _value(value.name, tensor, sizes).shape
        if seen != value.shape:
            raise step.refuse(f"it looks at {value.name!r}, {list(value.shape)}, as {list(seen)}")


def _value(name: str, tensor: Tensor, sizes: Mapping[str, int]) -> TfliteValue:
    if tensor.role == "index":
        raise InferometerError(
            f"{name!r} holds indices, and TFLite files are written for models of pictures alone.",
            remedy="Write this model as .onnx or .gguf.",
        )
    known = {BATCH: 1, **sizes}
    is_open = BATCH not in sizes and bool(tensor.shape) and tensor.shape[0] == Symbol(BATCH)
    return TfliteValue(name=name, shape=tuple(_size(name, dim, known) for dim in tensor.shape), open=is_open)


def _size(name: str, dim: Dim, known: Mapping[str, int]) -> int:
    unknown = sorted(symbols_in(dim) - known.keys())
    if unknown:
        raise InferometerError(
            f"{name!r} has the size {dim}, and TFLite files leave only the batch open.",
            remedy=f"Fix it: {' '.join(f'--size {each}=N' for each in unknown)}.",
        )
    return int(evaluate(dim, known))


Rule = Callable[["TfliteLowering", TfliteStep], None]
RULES: dict[str, Rule] = {}
CLAMPS = frozenset({"relu", "relu6"})  # activations that are a part of the operator before them
_PLANE = 4


def rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Register how ops of these kinds are lowered."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, function))
        return function

    return register


@frozen
class TfliteForm:
    """A value in the file. `moved`: its channels are last there and second in the graph.

    `flat` is the [channels, height, width] of a plane whose numbers stand in a row, channels fastest. `positive`: no
    number of it is below zero.
    """

    tensor: int
    moved: bool = False
    flat: tuple[int, int, int] | None = None
    positive: bool = False


@frozen
class Tail:
    """What follows an op and becomes a part of it: at most a batch norm and a clamp."""

    result: TfliteValue
    norm: TfliteStep | None = None
    clamp: str | None = None
    names: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class TfliteLowering:
    program: TfliteProgram
    network: Network
    epsilon: float  # of a layer norm
    seed: int
    forms: dict[TfliteValue, TfliteForm] = field(default_factory=dict)
    fused: set[TfliteStep] = field(default_factory=set)

    def form(self, value: TfliteValue) -> TfliteForm:
        return self.forms[value]

    def numbers(self, weight: Weight) -> Array:
        return whole(weight, self.seed)

    def tail(self, step: TfliteStep, *, norm: bool = False) -> Tail:
        """What of the steps after this one is fused into it; they are then done."""
        result, folded, names = step.result, None, [step.name]
        after = self.program.only_reader(result)
        if norm and after is not None and after.op.kind == "norm" and after.function == "batch":
            folded, result = after, after.result
            names.append(after.name)
            self.fused.add(after)
            after = self.program.only_reader(result)
        if after is None or after.op.kind != "activation" or after.function not in CLAMPS:
            return Tail(result=result, norm=folded, names=tuple(names))
        self.fused.add(after)
        return Tail(result=after.result, norm=folded, clamp=after.function, names=(*names, after.name))

    def add(
        self,
        step: TfliteStep,
        kind: str,
        inputs: tuple[int, ...],
        shape: tuple[int, ...],
        *,
        name: str = "",
        **options: Any,
    ) -> int:
        """An operator of a step, with a result of this stored shape. Without a name it is one of several."""
        result = TfliteStored(name=name or f"{step.name}/{kind}", shape=shape, open=step.result.open)
        return self.network.add(kind, inputs, result, **options)

    def give(self, tail: Tail, tensor: int, **form: Any) -> None:
        self.forms[tail.result] = TfliteForm(tensor=tensor, positive=tail.clamp is not None, **form)


def lower(graph: Graph, sizes: Mapping[str, int], *, epsilon: float, seed: int) -> Network:
    """The graph as a network. `sizes` fixes symbols; the batch stays open unless it is among them."""
    program = written_out(graph, sizes)
    lowering = TfliteLowering(program=program, network=Network(graph.name), epsilon=epsilon, seed=seed)
    for value in program.inputs:
        moved = len(value.shape) == _PLANE
        shape = (value.shape[0], *value.shape[2:], value.shape[1]) if moved else value.shape
        tensor = lowering.network.tensor(TfliteStored(name=value.name, shape=shape, open=value.open))
        lowering.network.inputs.append(tensor)
        lowering.forms[value] = TfliteForm(tensor=tensor, moved=moved)
    for step in program.steps:
        if step not in lowering.fused:
            if step.op.kind not in RULES:
                raise step.refuse(f"there is no rule for {step.op.kind}")
            try:
                RULES[step.op.kind](lowering, step)
            except (LookupError, TypeError, ValueError) as error:
                raise step.refuse(f"its form is not known ({type(error).__name__}: {error})") from error
    for value in program.outputs:
        form = lowering.form(value)
        if form.flat is not None:
            raise InferometerError(f"{graph.name} gives a plane in a row, which TFLite would give in another order.")
        lowering.network.outputs.append(form.tensor)
    return lowering.network
