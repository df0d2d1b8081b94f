"""Opens ExecuTorch's programs (.pte) through its runtime alone: the tools that make them are not imported.

A program does not name its inputs and outputs; they are called `input_0`, `output_0` and so on, as the reader calls
them. Their sizes are fixed, or the largest ones that it takes.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
import time
from collections import Counter
from contextlib import suppress
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from inferometer.core.errors import EngineError
from inferometer.core.frozen import frozen
from inferometer.engines.base import FileNode, Kernel, Opened, Port, Stage, Target, longest_pairing
from inferometer.engines.feeding import alive, require_arrays_on_cpu, require_fitting
from inferometer.engines.host import captured_stderr, threads_of
from inferometer.formats.flatbuffer import Buffer, FlatTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# ETDump, ExecuTorch's record of what it ran: a flatbuffer with a list of timed events for each run.
#
# An instruction of the program is an event of its own (`OPERATOR_CALL`, `DELEGATE_CALL`), written when it ends, after
# the events inside it: the kernel that an operator call ran, or what a delegate tells of its own kernels. XNNPACK
# tells each kernel's name and whole microseconds, and ExecuTorch writes them down once all have run.
#
# Source of the fields: devtools/etdump/etdump_schema_flatcc.fbs of pytorch/executorch; of what is written of XNNPACK:
# backends/xnnpack/runtime/profiling/XNNProfiler.cpp there, and `xnn_get_elapsed_time` of google/XNNPACK.

_PREFIX = 4  # bytes before the flatbuffer: how long it is
_TICK_S = 1e-9  # of the clock that the engine has on every system with a wheel
_TOLD = 1000  # ticks of a microsecond, the least that XNNPACK tells of a kernel
_MOST = 1 << 22  # runs, events
_KERNEL, _OPERATOR, _DELEGATE, _WHOLE = "native_call_", "OPERATOR_CALL", "DELEGATE_CALL", "Method::execute"


@frozen
class RanKernel:
    """What ran within an instruction of the program. `rest` is what a delegate did outside its own kernels.

    XNNPACK's rest comes before them: the engine tells it the inputs' sizes, and it works out all others again.
    """

    kind: str
    instruction: int
    seconds: float
    delegated: bool = False
    rest: bool = False


@frozen
class _Event:
    name: str
    instruction: int
    began: int  # ticks
    ended: int
    told: bool  # by a delegate, of what it did inside

    @property
    def seconds(self) -> float:
        return max(0, self.ended - self.began) * _TICK_S


def steps_of(data: bytes, path: Path) -> list[list[RanKernel]]:
    """What each run of the method did, in order; the loading of the program is none of them."""
    root = Buffer(data[_PREFIX:], path, kind="ETDump").root()
    runs = (list(_events(run)) for run in root.tables(1, "run", most=_MOST))
    return [_kernels(events) for events in runs if any(event.name == _WHOLE for event in events)]


def _events(run: FlatTable) -> Iterator[_Event]:
    for entry in run.tables(3, "event", most=_MOST):
        event = entry.table(0, "a timed event")
        if event is None:  # an allocation, or a tensor that was kept to look at
            continue
        own = event.text(4, "a delegate's name of an event")
        number = event.number(3, "i", -1)
        began, ended = (event.number(field, "Q") for field in (6, 7))
        yield _Event(
            name=event.text(0, "the name of an event") or own or f"kernel {number}",
            instruction=event.number(2, "i", -1),
            began=began,
            ended=ended,
            told=own is not None or number >= 0,
        )


def _kernels(events: list[_Event]) -> list[RanKernel]:
    kernels: list[RanKernel] = []
    inside: list[_Event] = []
    for event in events:
        if event.name == _OPERATOR:
            # The kernel alone where it is the only one: the events around it cost the rest of the call.
            kernel = inside[0] if len(inside) == 1 else event
            kind = inside[0].name.removeprefix(_KERNEL) if inside else _OPERATOR
            kernels.append(RanKernel(kind=kind, instruction=event.instruction, seconds=kernel.seconds))
        elif event.name == _DELEGATE:
            kernels += _delegated(event, inside)
        elif event.told or event.name.startswith(_KERNEL):
            inside.append(event)
            continue
        inside = []
    return kernels


def _delegated(call: _Event, inside: list[_Event]) -> list[RanKernel]:
    """Each kernel of a delegate that tells of them; one that tells nothing is a kernel as a whole."""
    place = call.instruction
    if not inside:
        return [RanKernel(kind=_DELEGATE, instruction=place, seconds=call.seconds, delegated=True)]
    rest_s, cut_s = _written_after(call, inside) or (call.seconds - sum(one.seconds for one in inside), 0.0)
    told = [RanKernel(kind=one.name, instruction=place, seconds=one.seconds + cut_s, delegated=True) for one in inside]
    return [*told, RanKernel(kind=_DELEGATE, instruction=place, seconds=max(0.0, rest_s), delegated=True, rest=True)]


def _written_after(call: _Event, inside: list[_Event]) -> tuple[float, float] | None:
    """What came before the first kernel, and what was cut off each: of a record written once all kernels had run.

    Such kernels last whole microseconds and follow one another without a gap. The call goes on after the last of them
    for as long as the parts of microseconds that were cut off, half a one in the mean, and for the writing, which
    only a run that is recorded does: ocr-cls, with 275 kernels of 11 µs, wrote for 130 µs.
    """
    whole = all((one.ended - one.began) % _TOLD == 0 for one in inside)
    if not whole or any(one.ended != after.began for one, after in pairwise(inside)):
        return None
    left = max(0, call.ended - inside[-1].ended)
    cut = min(_TOLD / 2, left / len(inside))
    return (inside[0].began - call.began) * _TICK_S, cut * _TICK_S


# Which nodes of the file the kernels stand for.
#
# An operator call says the number of its instruction, which is in the name of the file's node (`convolution_4`).
# XNNPACK has names of its own for what it runs and keeps the order of its nodes (`conv2d_0.3` is the fourth node of
# the delegate that instruction 0 calls), so kernels and nodes are laid side by side. A limit on a node's results (a
# ReLU) may be a kernel of its own, right after the node's.

_PLACE = re.compile(r"_(\d+)(?:\.(\d+))?$")
_KERNEL_TYPES = re.compile(r"\s*(?:\(|#\d)")  # where the types and the number of a kernel's name begin
_LIMIT, _VIEWS = "Clamp", ("Static Reshape", "Copy", "Transpose")
# XNNPACK's names of kernels → nodes of the file that they can be, where the names themselves do not agree.
FITTING = {
    "Convolution": ("Conv2d", "DepthwiseConv2d"),
    "Depthwise Convolution": ("DepthwiseConv2d",),
    "Deconvolution": ("ConvTranspose2d",),
    "Fully Connected": ("FullyConnected", "Conv2d"),  # a window of one place is a product of matrices
    "Dynamic Fully Connected": ("FullyConnected",),
    "Divide": ("Div",),
    "Average Pooling": ("AvgPooling2d", "GlobalAvgPooling2d"),
    "Global Average Pooling": ("GlobalAvgPooling2d",),
    "Mean": ("GlobalAvgPooling2d",),
    "Max Pooling": ("MaxPooling2d",),
    "ArgMax Pooling": ("ArgMaxPooling2d",),
    "Resize Bilinear": ("StaticResizeBilinear2D",),
    "Constant Pad": ("StaticConstantPad",),
    "Transpose": ("StaticTranspose",),
    "Slice": ("StaticSlice",),
    "Copy": ("Copy", "StaticReshape", "Concatenate", "StaticSlice"),
    "Concatenate": ("Concatenate",),
    "Leaky ReLU": ("LeakyReLU",),
    "Dynamic Batch Matrix Multiply": ("BatchMatrixMultiply",),
}


def layers_of(kernels: Sequence[RanKernel], nodes: Sequence[FileNode]) -> tuple[tuple[str, ...], ...]:
    """For each kernel the names of the nodes it stands for; none where the file's reader gave no such names."""
    operators, delegates = _placed(nodes)
    layers: list[tuple[str, ...]] = [() for _ in kernels]
    for instruction in dict.fromkeys(kernel.instruction for kernel in kernels):
        rows = [row for row, kernel in enumerate(kernels) if kernel.instruction == instruction and not kernel.rest]
        inside = delegates.get(instruction, [])
        if rows and not kernels[rows[0]].delegated:
            layers[rows[0]] = operators.get(instruction, ())
        elif len(rows) == 1 and len(inside) != 1:  # a delegate that tells nothing of its kernels
            layers[rows[0]] = tuple(node.name for node in inside) or operators.get(instruction, ())
        else:
            _lay_side_by_side(kernels, rows, inside, layers)
    return tuple(layers)


def _placed(nodes: Sequence[FileNode]) -> tuple[dict[int, tuple[str, ...]], dict[int, list[FileNode]]]:
    """The nodes of operator calls, and those of delegates in their order, by the number of the instruction."""
    operators: dict[int, tuple[str, ...]] = {}
    delegates: dict[int, list[FileNode]] = {}
    for node in nodes:
        found = _PLACE.search(node.name)
        if found is None:
            continue
        instruction = int(found[1])
        if found[2] is None:
            operators[instruction] = (*operators.get(instruction, ()), node.name)
        else:
            delegates.setdefault(instruction, []).append(node)
    return operators, delegates


def _lay_side_by_side(
    kernels: Sequence[RanKernel], rows: list[int], nodes: list[FileNode], layers: list[tuple[str, ...]]
) -> None:
    for row, node in longest_pairing(rows, nodes, lambda row, node: _fits(kernels[row].kind, node.kind)):
        layers[row] = (node.name,)
    for before, row in pairwise(rows):
        if not layers[row] and kernels[row].kind.startswith(_LIMIT):
            layers[row] = layers[before]
    for row, after in reversed(list(pairwise(rows))):
        if not layers[row] and kernels[row].kind.startswith(_VIEWS):  # lays out what the next kernel reads
            layers[row] = layers[after]


def _fits(kernel: str, node: str) -> bool:
    name = _KERNEL_TYPES.split(kernel, maxsplit=1)[0]
    kind = node.removeprefix("XNN").rstrip("2345") if node.startswith("XNNConcat") else node.removeprefix("XNN")
    return kind in FITTING.get(name, (name.replace(" ", ""),)) or kind.casefold() == name.replace(" ", "").casefold()


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    Array = np.ndarray[Any, Any]

_METHOD = "forward"
_KERNELS = ("lib/libexecutorch_kernels_quantized.so",)  # of the wheel, which its bindings do not load
# The engine's numbers of types: runtime/core/portable_type/scalar_type.h.
_TYPES = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 11: "bool",
}  # fmt: skip
_OPEN: WeakSet[ExecutorchSession] = WeakSet()  # the engine has one pool of threads, which open programs hold on to


def open_session(target: Target, name: str, *, clock: Callable[[], float] = time.perf_counter) -> ExecutorchSession:
    _check(target, name)
    engine = loaded_engine()
    threads = threads_of(target.threads)
    with captured_stderr() as printed:
        _share_out(engine, threads)
        start = clock()
        try:
            program = engine._load_program(  # noqa: SLF001 - the engine has no other name for it
                str(target.path),
                enable_etdump=target.instrument,
                program_verification=engine.Verification.InternalConsistency,
            )
            method = program.load_method(_chosen(program, target))
        except RuntimeError as error:
            raise _refused(target, str(error), printed()) from error
        loaded = clock() - start
    about = method.method_meta()
    opened = Opened(
        stages=(Stage(name="load", seconds=loaded),),
        versions={"executorch": version("executorch"), "torch": version("torch")},
        inputs=_ports("input", about.num_inputs(), about.input_tensor_meta, target),
        outputs=_ports("output", about.num_outputs(), about.output_tensor_meta, target),
        threads=threads,
        placed=dict(
            Counter(("XnnpackBackend" if node.kind.startswith("XNN") else "portable") for node in target.nodes)
        ),
    )
    session = ExecutorchSession(program, method, opened, target)
    _OPEN.add(session)
    return session


def loaded_engine() -> Any:
    """The engine's bindings, with the kernels that its wheel has beside them."""
    try:
        import torch  # noqa: F401, PLC0415, TID251 - its libraries must be there before the engine's
        from executorch.extension.pybindings import _C  # noqa: PLC0415 - imported when a model is opened
    except ImportError as error:
        raise EngineError(
            f"ExecuTorch {version('executorch')} cannot be loaded with torch {version('torch')}: {error}.",
            remedy="Install the pair that was released together: pip install --upgrade executorch torch.",
        ) from error
    for path in _KERNELS:  # loading such a library makes its kernels known to the engine
        with suppress(OSError):
            ctypes.CDLL(str(Path(_C.__file__).parents[2] / path))
    return _C


def _check(target: Target, name: str) -> None:
    require_arrays_on_cpu(target, name, "ExecuTorch", listing="It has none: choose threads.")
    if not target.path.is_file():
        raise EngineError(f"{name} was given {str(target.path)!r}, which is no file.", remedy="Give the .pte file.")


def _share_out(engine: Any, threads: int) -> None:
    """Make the pool of threads that large. A program that is open would go on with one that is gone."""
    if engine._threadpool_get_thread_count() == threads:  # noqa: SLF001 - the engine has no other name for it
        return
    other = next(iter(_OPEN), None)
    if other is not None:
        raise EngineError(
            f"ExecuTorch has one pool of threads, and a program holds on to one of {other.opened.threads}; "
            f"{threads} were asked for.",
            remedy="Close the other session first, or ask for as many.",
        )
    engine._unsafe_reset_threadpool(threads)  # noqa: SLF001 - as above


def _chosen(program: Any, target: Target) -> str:
    names = [str(program.get_method_name(number)) for number in range(program.num_methods())]
    if _METHOD in names or len(names) == 1:
        return _METHOD if _METHOD in names else names[0]
    raise EngineError(
        f"{target.path.name!r} has the methods {', '.join(names)}, and none is called {_METHOD!r}.",
        remedy=f"Export the method to measure as {_METHOD!r}.",
    )


def _refused(target: Target, words: str, printed: str) -> EngineError:
    """Its exception has a number; why is among the lines that it prints, after the name of the source file."""
    lines = [line.partition("] ")[2] or line for line in printed.splitlines() if "cpuinfo" not in line]
    said = " ".join(line.strip() for line in lines if line.strip() and "threadpool" not in line)
    reason = " ".join(f"{words} {said}".split()).rstrip(".")
    return EngineError(
        f"ExecuTorch refused {str(target.path)!r}: {reason or 'it gave no reason'}.",
        remedy="Convert the model again (`inferometer prepare MODEL --for executorch`); what it lacks must be in this "
        "build of the engine: an operator, or the backend that the program was lowered for.",
    )


def _ports(word: str, count: int, about: Callable[[int], Any], target: Target) -> tuple[Port, ...]:
    return tuple(_port(f"{word}_{number}", about, number, target) for number in range(count))


def _port(name: str, about: Callable[[int], Any], number: int, target: Target) -> Port:
    try:
        tensor = about(number)
    except (RuntimeError, IndexError):  # which of the two depends on the version
        raise EngineError(
            f"{name} of {target.path.name!r} is no tensor, and only tensors can be given to it here.",
            remedy="Export the model with that argument fixed.",
        ) from None
    if tensor.dtype() not in _TYPES:
        raise EngineError(
            f"{name} of {target.path.name!r} is in a type that numpy does not have (number {tensor.dtype()}).",
            remedy="Export the model with inputs and outputs in f32.",
        )
    most = tuple(tensor.sizes())
    shape = tuple(target.shapes.get(name, most))
    fits = len(shape) == len(most) and all(size <= largest for size, largest in zip(shape, most, strict=True))
    return Port(name=name, dtype=_TYPES[tensor.dtype()], shape=shape if fits else most)


class ExecutorchSession:
    """A Session. A step copies the inputs in and runs the method: the engine uses their memory again for results."""

    cost_per_kernel_s: float | None = None  # XNNPACK reads the clock once between two kernels: it is not told apart

    def __init__(self, program: Any, method: Any, opened: Opened, target: Target) -> None:
        self.opened, self._program, self._method = opened, program, method
        self._nodes, self._instrument, self._label = target.nodes, target.instrument, target.path
        self._fed: tuple[Any, ...] = ()
        self._recorded = 0  # steps since the record was last written: writing an empty one crashes

    def feed(self, inputs: Mapping[str, Array]) -> None:
        import numpy as np  # noqa: PLC0415 - arrays are needed only here
        import torch  # noqa: PLC0415, TID251 - the engine takes its tensors

        alive(self._method)
        require_fitting(self.opened.inputs, inputs)
        rows = (np.ascontiguousarray(inputs[port.name]) for port in self.opened.inputs)
        self._fed = tuple(torch.from_numpy(row if row.flags.writeable else row.copy()) for row in rows)

    def step(self) -> None:
        method = alive(self._method)
        try:
            method.set_inputs(self._fed)
            method.execute()
        except RuntimeError as error:
            raise EngineError(f"ExecuTorch failed in a step: {error}.") from error
        self._recorded += 1

    def outputs(self) -> Mapping[str, Array]:
        found = alive(self._method).get_outputs(True)  # noqa: FBT003 - copied: the next step writes there
        return {port.name: tensor.numpy() for port, tensor in zip(self.opened.outputs, found, strict=True)}

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        if not self._instrument or self._program is None or not self._recorded:
            return {}
        self._recorded = 0
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "steps.etdp"
            with captured_stderr():
                self._program.write_etdump_result_to_file(str(path))  # and begins a new one
            data = path.read_bytes() if path.is_file() else b""
        ran = steps_of(data, self._label) if data else []
        steps = [step for step in ran if len(step) == len(ran[-1])]
        return {"forward": self._named(steps)} if steps else {}

    def _named(self, steps: Sequence[Sequence[RanKernel]]) -> tuple[Kernel, ...]:
        seen: Counter[str] = Counter()
        kernels = []
        for index, (ran, layers) in enumerate(zip(steps[-1], layers_of(steps[-1], self._nodes), strict=True)):
            base = layers[0] if layers else f"{ran.kind} ({ran.instruction})"
            seen[base] += 1
            kernels.append(
                Kernel(
                    name=base if seen[base] == 1 else f"{base}#{seen[base]}",
                    kind=ran.kind,
                    samples_s=tuple(step[index].seconds for step in steps),
                    layers=layers or (() if self._nodes or ran.rest else (base,)),
                    own=ran.rest,
                    provider="delegate" if ran.delegated else "portable",
                )
            )
        return tuple(kernels)

    def close(self) -> None:
        self._fed = ()
        self._method = self._program = None
        _OPEN.discard(self)
