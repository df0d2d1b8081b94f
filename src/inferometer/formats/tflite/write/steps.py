"""The graph as a list of steps: blocks written out, every value made once, every size a number."""

from collections.abc import Mapping
from dataclasses import dataclass

from inferometer.core.dims import Dim, Symbol, evaluate, symbols_in
from inferometer.core.errors import InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, Op, Tensor
from inferometer.formats.synth.weights import Weight, executed, planned_op

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
    return TfliteProgram(steps=tuple(steps), inputs=inputs, outputs=outputs, readers=_readers(steps))


def _readers(steps: list[TfliteStep]) -> dict[TfliteValue, tuple[TfliteStep, ...]]:
    readers: dict[TfliteValue, tuple[TfliteStep, ...]] = {}
    for step in steps:
        for value in step.inputs:
            readers[value] = (*readers.get(value, ()), step)
    return readers


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
