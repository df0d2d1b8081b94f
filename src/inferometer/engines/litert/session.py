"""Opens a TFLite file: in LiteRT's interpreter for plain times, in its compiled model with the profiler for kernels."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from inferometer.core.errors import DomainError, EngineError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.engines.base import Kernel, Opened, Port, Session, Stage, Target
from inferometer.engines.feeding import alive, require_fitting
from inferometer.engines.host import captured_stderr, threads_of
from inferometer.engines.litert.capi import Profiled, library_path
from inferometer.engines.litert.check import profiling_works
from inferometer.engines.litert.mapping import Operator, StepEvents

# Inputs and outputs of a TFLite file, and what is wrong with what was given for them.


@frozen
class FileTensor:
    """A tensor of the file. `signature` has −1 where the size is open, `shape` the size it has now."""

    name: str
    index: int
    dtype: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]

    def port(self) -> Port:
        return Port(name=self.name, dtype=self.dtype, shape=tuple(None if dim < 0 else dim for dim in self.signature))


def tensors_of(details: Sequence[Mapping[str, Any]]) -> tuple[FileTensor, ...]:
    """From the interpreter's details of its inputs or outputs. A number distinguishes two of one name."""
    names = [str(detail["name"]) for detail in details]
    tensors = []
    for detail, name in zip(details, names, strict=True):
        shape = tuple(int(dim) for dim in detail["shape"])
        signature = tuple(int(dim) for dim in detail.get("shape_signature", ()))
        tensors.append(
            FileTensor(
                name=name if names.count(name) == 1 else f"{name}:{detail['index']}",
                index=int(detail["index"]),
                dtype=_dtype_name(detail["dtype"]),
                shape=shape,
                signature=signature if len(signature) == len(shape) else shape,
            )
        )
    return tuple(tensors)


def _dtype_name(dtype: Any) -> str:
    name: str = np.dtype(dtype).name
    return name


def concrete(tensor: FileTensor, *, batch: int, asked: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """The shape to open an input with: what is asked for, else the batch on an open first axis and 1 on the others."""
    if asked is not None and len(asked) != len(tensor.shape):
        raise DomainError(
            f"The input {tensor.name!r} has {len(tensor.shape)} axes in the file; {list(asked)} was asked for."
        )
    shape = []
    for axis, (dim, now) in enumerate(zip(tensor.signature, tensor.shape, strict=True)):
        wanted = None if asked is None else asked[axis]
        if dim >= 0:
            if wanted not in {None, dim}:
                raise DomainError(f"Axis {axis} of the input {tensor.name!r} is {dim} in the file, not {wanted}.")
            shape.append(dim)
        else:
            shape.append(wanted or (batch if axis == 0 and batch > 1 else max(1, now)))
    if batch > 1 and (not shape or shape[0] != batch):
        raise DomainError(
            f"A batch of {batch} was asked for; the input {tensor.name!r} is {list(tensor.signature)} in the file.",
            remedy="Use the batch of the file, or export the model with an open first axis.",
        )
    return tuple(shape)


def check_inputs(wanted: Sequence[FileTensor], given: Mapping[str, np.ndarray[Any, Any]]) -> None:
    require_fitting([tensor.port() for tensor in wanted], given)
    for name, array in given.items():
        if not array.size:
            raise DomainError(f"The input {name!r} has the shape {list(array.shape)}: it holds nothing.")


# A TFLite file in LiteRT's interpreter, with XNNPACK unless something else is asked for.

# The file's operators, as the interpreter lists them.

_DELEGATE = "DELEGATE"
# They unpack a constant, or are computed when the model is loaded: engines do them once.
_ONCE = frozenset({"DENSIFY"})
_UNPACKING = frozenset({"DEQUANTIZE", "DENSIFY"})


def operators_of(details: Sequence[Mapping[str, Any]], tensors: Mapping[int, str]) -> tuple[Operator, ...]:
    """Those of the file, under the names its reader gives them; what a delegate put beside them is left out."""
    mine = [detail for detail in details if detail["op_name"] not in {_DELEGATE, *_ONCE}]
    firsts = [next((tensors.get(int(place), "") for place in each["outputs"] if int(place) >= 0), "") for each in mine]
    makers = (first for first, detail in zip(firsts, mine, strict=True) if detail["op_name"] not in _UNPACKING)
    heads = Counter(first.partition(";")[0] for first in makers)
    return tuple(_operator(detail, first, heads) for detail, first in zip(mine, firsts, strict=True))


def _operator(detail: Mapping[str, Any], first: str, heads: Mapping[str, int]) -> Operator:
    """An operator has no name of its own: its first output's, which lists what was fused into it after semicolons.

    Where the names of several operators begin with the same, each has its whole.
    """
    name, *fused = first.split(";")
    if heads.get(name, 0) > 1 and detail["op_name"] not in _UNPACKING:
        name, fused = first, []
    return Operator(
        index=int(detail["index"]),
        name=name or f"{str(detail['op_name']).lower()}_{detail['index']}",
        type=str(detail["op_name"]),
        fused=tuple(fused),
        inputs=tuple(int(place) for place in detail["inputs"]),
        outputs=tuple(int(place) for place in detail["outputs"]),
    )


def placed(
    operators: Sequence[Operator], details: Sequence[Mapping[str, Any]], has_memory: Callable[[int], bool]
) -> dict[str, int]:
    """How many operators XNNPACK took, and how many the interpreter runs itself.

    What lies between two operators of a delegate has no memory in the interpreter; what a delegate hands over is among
    its outputs.
    """
    handed = {int(place) for detail in details if detail["op_name"] == _DELEGATE for place in detail["outputs"]}
    taken = sum(
        bool(handed) and any(place in handed or not has_memory(place) for place in operator.outputs if place >= 0)
        for operator in operators
    )
    counts = {"XNNPACK": taken, "builtin": len(operators) - taken}
    return {name: count for name, count in counts.items() if count}


def partitions_of(details: Sequence[Mapping[str, Any]], operators: Sequence[Operator]) -> tuple[tuple[int, ...], ...]:
    """The operators of each delegate, in order: from what it hands over back to what it is given."""
    made_by = {place: operator for operator in operators for place in operator.outputs}
    partitions = []
    for detail in details:
        if detail["op_name"] == _DELEGATE:
            given = {int(place) for place in detail["inputs"]}
            inside: set[int] = set()
            ahead = [int(place) for place in detail["outputs"]]
            while ahead:
                operator = made_by.get(ahead.pop())
                if operator is not None and operator.index not in inside:
                    inside.add(operator.index)
                    ahead += [place for place in operator.inputs if place not in given]
            partitions.append(tuple(sorted(inside)))
    return tuple(partitions)


def open_interpreter(target: Target, threads: int, *, clock: Callable[[], float]) -> "PlainSession":
    with captured_stderr() as stderr:
        try:
            start = clock()
            interpreter = _interpreter(target, threads)
            loaded = clock()
            inputs = tensors_of(interpreter.get_input_details())
            for tensor in inputs:
                shape = concrete(tensor, batch=target.batch, asked=target.shapes.get(tensor.name))
                if shape != tensor.shape:
                    interpreter.resize_tensor_input(tensor.index, list(shape), strict=True)
            middle = clock()
            interpreter.allocate_tensors()
            compiled = clock()
        except (ValueError, RuntimeError, OSError, TypeError) as error:
            raise refused(target.path, f"{error} {_errors(stderr())}") from error
    stages = (Stage(name="load", seconds=loaded - start), Stage(name="compile", seconds=compiled - middle))
    return PlainSession(interpreter, stages, threads, wanted=target.providers)


def _interpreter(target: Target, threads: int) -> Any:
    from ai_edge_litert.interpreter import (  # noqa: PLC0415 - the engine is imported when a model is opened
        Interpreter,
        OpResolverType,
        load_delegate,
    )

    kinds = OpResolverType
    plain = bool(target.providers) and "XNNPACK" not in target.providers
    libraries = [name for name in target.providers if name not in {"XNNPACK", "builtin"}]
    return Interpreter(
        model_path=str(target.path),
        num_threads=threads,
        experimental_delegates=[load_delegate(str(Path(name).resolve())) for name in libraries] or None,
        experimental_op_resolver_type=kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES if plain else kinds.AUTO,
    )


def _errors(log: str) -> str:
    return " ".join(line.removeprefix("ERROR: ") for line in log.splitlines() if line.startswith("ERROR"))


def refused(path: object, words: str) -> EngineError:
    reason = " ".join(words.split()).rstrip(".") or "it gave no reason"
    return EngineError(f"LiteRT refused {str(path)!r}: {reason}.")


class PlainSession:
    """A Session. `step` is the interpreter's own `invoke` and nothing else."""

    cost_per_kernel_s: float | None = None  # its timers cost next to nothing, or it has none

    def __init__(
        self, interpreter: Any, stages: tuple[Stage, ...], threads: int, *, wanted: tuple[str, ...] = ()
    ) -> None:
        self._interpreter: Any = interpreter
        self._inputs, self._outputs = self._tensors()
        details = interpreter._get_ops_details()  # noqa: SLF001 - the interpreter lists its operators nowhere else
        self.operators = operators_of(
            details, {int(each["index"]): str(each["name"]) for each in self._interpreter.get_tensor_details()}
        )
        self.partitions = partitions_of(details, self.operators)
        counts = placed(self.operators, details, self._has_memory)
        self.opened = Opened(
            stages=stages,
            versions={"ai-edge-litert": version("ai-edge-litert")},
            inputs=tuple(tensor.port() for tensor in self._inputs),
            outputs=tuple(tensor.port() for tensor in self._outputs),
            threads=threads,
            placed=counts,
            notes=_notes(counts, len(self.operators), wanted),
        )

    def _tensors(self) -> tuple[tuple[FileTensor, ...], tuple[FileTensor, ...]]:
        interpreter = self._interpreter
        return tensors_of(interpreter.get_input_details()), tensors_of(interpreter.get_output_details())

    def _has_memory(self, index: int) -> bool:
        try:
            self._interpreter.tensor(index)()
        except (ValueError, RuntimeError):
            return False
        return True

    def note(self, words: str) -> None:
        self.opened = replace(self.opened, notes=(*self.opened.notes, words))

    def input_shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tensor.shape for tensor in self._inputs)

    @property
    def inputs(self) -> tuple[FileTensor, ...]:
        return self._inputs

    @property
    def results(self) -> tuple[FileTensor, ...]:
        return self._outputs

    def feed(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
        alive(self._interpreter)
        check_inputs(self._inputs, inputs)
        changed = [tensor for tensor in self._inputs if tensor.shape != inputs[tensor.name].shape]
        if changed:
            with captured_stderr():
                for tensor in changed:
                    self._interpreter.resize_tensor_input(tensor.index, list(inputs[tensor.name].shape), strict=True)
                self._interpreter.allocate_tensors()
            self._inputs, self._outputs = self._tensors()
        for tensor in self._inputs:
            self._interpreter.set_tensor(tensor.index, inputs[tensor.name])

    def step(self) -> None:
        try:
            self._interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise EngineError(f"LiteRT failed in a step: {' '.join(str(error).split())}") from error
        except AttributeError:
            alive(self._interpreter)
            raise

    def outputs(self) -> Mapping[str, np.ndarray[Any, Any]]:
        alive(self._interpreter)
        return {tensor.name: self._interpreter.get_tensor(tensor.index) for tensor in self._outputs}

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return {}

    def close(self) -> None:
        self._interpreter = None


def _notes(counts: Mapping[str, int], total: int, wanted: tuple[str, ...]) -> tuple[str, ...]:
    if "XNNPACK" in wanted or not wanted:
        left = total - counts.get("XNNPACK", 0)
        if left:
            return (f"{left} of {total} operators run in the interpreter, not in XNNPACK.",)
    return ()


# A TFLite file in LiteRT's compiled model with its profiler on: what XNNPACK ran, kernel by kernel.

_NOTE = "Kernels are XNNPACK's, timed by LiteRT's profiler in whole microseconds; their order says which operators."
_FRESH = (
    "The sizes of this model's results are decided while it runs, and LiteRT's compiled model runs such a model once: "
    "each instrumented step is a first run, and the results are the interpreter's."
)


def open_profiled(
    target: Target, plain: PlainSession, threads: int, *, clock: Callable[[], float]
) -> "ProfiledSession":
    """`plain` is the same file in the interpreter, which knows its operators. Two passes show whether it works."""
    library = library_path()
    if library is None:
        raise EngineError("LiteRT came without its library of C functions.")

    def make() -> Profiled:
        return Profiled(library, target.path, threads, plain.input_shapes())

    with captured_stderr() as stderr:
        try:
            start = clock()
            profiled = make()
            seconds = clock() - start
            _write(profiled, {tensor.name: _zeros(tensor) for tensor in plain.inputs}, plain.inputs)
            profiled.run()
        except EngineError as error:
            last = [line for line in stderr().splitlines() if line.startswith("ERROR")]
            raise EngineError(f"{error.message} {last[-1].removeprefix('ERROR: ') if last else ''}".strip()) from error
        again = _runs(profiled)
    opened = replace(
        plain.opened,
        stages=(Stage(name="load", seconds=seconds),),
        notes=(*plain.opened.notes, _NOTE, *(() if again else (_FRESH,))),
    )
    return ProfiledSession(profiled, opened, plain, make=None if again else make)


def _runs(profiled: Profiled) -> bool:
    try:
        profiled.run()
    except EngineError:
        return False
    return True


def _zeros(tensor: FileTensor) -> np.ndarray[Any, Any]:
    return np.zeros(tensor.shape, tensor.dtype)


def _write(profiled: Profiled, given: Mapping[str, np.ndarray[Any, Any]], inputs: tuple[FileTensor, ...]) -> None:
    for tensor in inputs:
        profiled.write(_place(profiled.input_names, tensor, len(inputs)), given[tensor.name].tobytes())


def _place(names: tuple[str, ...], tensor: FileTensor, count: int) -> int:
    """Signatures list tensors in an order of their own."""
    if tensor.name in names:
        return names.index(tensor.name)
    if count == 1 and len(names) == 1:
        return 0
    raise EngineError(f"LiteRT's signature does not have the tensor {tensor.name!r}.")


class ProfiledSession:
    """A Session of the same ports as the plain one. `step` reads the profiler too: it is not for timing.

    Where `make` is given, a compiled model runs once, and each step is one of its own.
    """

    cost_per_kernel_s: float | None = None  # its timers cost next to nothing, or it has none

    def __init__(
        self, profiled: Profiled, opened: Opened, plain: PlainSession, *, make: Callable[[], Profiled] | None
    ) -> None:
        self._profiled: Profiled | None = profiled
        self.opened, self._plain, self._make = opened, plain, make
        self._inputs, self._results = plain.inputs, plain.results
        self._given: Mapping[str, np.ndarray[Any, Any]] = {}
        self._steps = StepEvents(plain.operators, plain.partitions)

    def feed(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
        profiled = alive(self._profiled)
        check_inputs(self._inputs, inputs)
        if any(tensor.shape != inputs[tensor.name].shape for tensor in self._inputs):
            raise EngineError(
                "An instrumented session keeps the shapes it was opened with.",
                remedy="Open it with the `shapes` that will be fed.",
            )
        self._given = dict(inputs)
        if self._make is None:
            _write(profiled, inputs, self._inputs)
        else:
            self._plain.feed(inputs)

    def step(self) -> None:
        profiled = alive(self._profiled) if self._make is None else self._renewed(self._make)
        profiled.run()
        self._steps.add(profiled.events())

    def _renewed(self, make: Callable[[], Profiled]) -> Profiled:
        with captured_stderr():
            alive(self._profiled).close()
            self._profiled = profiled = make()
        _write(profiled, self._given, self._inputs)
        return profiled

    def outputs(self) -> Mapping[str, np.ndarray[Any, Any]]:
        profiled, arrays = alive(self._profiled), {}
        if self._make is not None:
            self._plain.step()
            return self._plain.outputs()
        for tensor in self._results:
            place = _place(profiled.output_names, tensor, len(self._results))
            size = int(np.prod(tensor.shape)) * np.dtype(tensor.dtype).itemsize
            arrays[tensor.name] = np.frombuffer(profiled.read(place, size), tensor.dtype).reshape(tensor.shape)
        return arrays

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return self._steps.take()

    def close(self) -> None:
        if self._profiled is not None:
            with captured_stderr():
                self._profiled.close()
            self._profiled = None
            self._plain.close()


_PROVIDERS = ("XNNPACK", "builtin")


def open_session(target: Target, name: str, *, clock: Callable[[], float] = time.perf_counter) -> Session:
    _check(target, name)
    threads = threads_of(target.threads)
    plain = open_interpreter(target, threads, clock=clock)
    if not target.instrument:
        return plain
    reason: str | None  # why the profiler is not used
    if target.providers and target.providers != ("XNNPACK",):
        reason = f"LiteRT's profiler is read with XNNPACK only, and {', '.join(target.providers)} was asked for."
    else:
        reason = profiling_works(target.path, threads, plain.input_shapes())
    if reason is None:
        try:
            return open_profiled(target, plain, threads, clock=clock)
        except EngineError as error:
            reason = error.message
    plain.note(f"The time of each operator is not known: {reason}")
    return plain


def _check(target: Target, name: str) -> None:
    if target.text:
        raise DomainError(f"{name} opens models of arrays; a language model was asked for.")
    if not target.path.is_file():
        raise EngineError(
            f"{name} was given {str(target.path)!r}, which is no file.", remedy="Give the path of a TFLite file."
        )
    if target.unit is not None and target.unit.removesuffix(":0") != "cpu":
        raise EngineError(f"LiteRT has no unit {target.unit!r} here.", remedy="There is: cpu.")
    for option in target.options:
        raise UnknownNameError("option of LiteRT", option, (), listing="It has none: choose providers and threads.")
    for provider in target.providers:
        if provider not in _PROVIDERS and "." not in provider:
            raise UnknownNameError(
                "provider of LiteRT",
                provider,
                _PROVIDERS,
                listing=f"There are: {', '.join(_PROVIDERS)}, or the path of a delegate's library.",
            )
        if provider not in _PROVIDERS and not Path(provider).is_file():
            raise EngineError(f"There is no delegate's library {provider!r}.", remedy="Give the path of one.")
