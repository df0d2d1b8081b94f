"""Opens MNN's files through its library alone: importing its tools would install packages and report their use.

MNN calls back before and after each operator that it runs, with its name and type. The names are those that its
converter gave: an operator of an ONNX file is called by its first output. What was merged into a convolution has no
call of its own, and what the engine adds to lay tensors out (`Raster`) is its own.
"""

import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from statistics import median
from typing import Any

import numpy as np

from inferometer.core.errors import EngineError
from inferometer.engines.base import Kernel, Opened, Port, Stage, Target
from inferometer.engines.feeding import alive, require_arrays_on_cpu, require_fitting
from inferometer.engines.host import threads_of
from inferometer.known.machine.counters import HardwareCounters, PieceCounts, hardware_counters

Array = np.ndarray[Any, Any]

_PRECISION = {"f32": "high", "f16": "low"}
_OWN = frozenset({"Raster", "ConvertTensor"})
_PARTS = frozenset({"activation", "bias", "shape", "ends"})  # what an operator does beside its main work
_PASSES = 5  # without operators, that the cost of a pair of callbacks is measured on


def open_session(target: Target, name: str, *, clock: Callable[[], float] = time.perf_counter) -> "MnnSession":
    import _mnncengine as engine  # noqa: PLC0415 - the engine is imported when a model is opened

    _check(target, name)
    threads, precision = threads_of(target.threads), target.precision or "f32"
    counters = hardware_counters() if target.instrument else None  # before the engine makes threads: they count too
    start = clock()
    try:
        interpreter = engine.Interpreter(str(target.path))
        session = interpreter.createSession(
            {"backend": "CPU", "numThread": threads, "precision": _PRECISION[precision]}
        )
    except Exception as error:  # it raises no narrower kind
        raise _refused(target, str(error)) from error
    if session is None:
        raise _refused(target, "it gave no reason")
    for tensor_name, tensor in interpreter.getSessionInputAll(session).items():
        shape = target.shapes.get(tensor_name)
        if shape is not None and tuple(shape) != tuple(tensor.getShape()):
            interpreter.resizeTensor(tensor, tuple(shape))
    interpreter.resizeSession(session)
    loaded = clock() - start
    inputs, outputs = (_ports(found) for found in (
        interpreter.getSessionInputAll(session), interpreter.getSessionOutputAll(session)
    ))  # fmt: skip
    unsized = next((port for port in inputs if any(not isinstance(s, int) or s < 1 for s in port.shape)), None)
    if unsized is not None:
        raise EngineError(
            f"{target.path.name!r} does not say the sizes of its input {unsized.name!r}.",
            remedy="Give them with --size, --image or --batch.",
        )
    opened = Opened(
        stages=(Stage(name="load", seconds=loaded),), versions={"MNN": version("MNN")}, inputs=inputs,
        outputs=outputs, threads=threads, precision=precision, sums="f16" if precision == "f16" else None,
    )  # fmt: skip
    return MnnSession(engine, interpreter, session, opened, target, clock, counters)


def _refused(target: Target, words: str) -> EngineError:
    return EngineError(
        f"MNN refused {str(target.path)!r}: {words.strip() or 'it gave no reason'}.",
        remedy="Convert the model again: `inferometer prepare MODEL --for mnn`.",
    )


def _check(target: Target, name: str) -> None:
    require_arrays_on_cpu(target, name, "MNN", listing="It has none: choose threads and precision.")
    if not target.path.is_file():
        raise EngineError(f"{name} was given {str(target.path)!r}, which is no file.", remedy="Give the .mnn file.")


def _ports(tensors: Mapping[str, Any]) -> tuple[Port, ...]:
    """In the order of their names: the engine gives them in none."""
    return tuple(
        Port(name=name, dtype=str(tensor.getNumpyData().dtype), shape=tuple(tensor.getShape()))
        for name, tensor in sorted(tensors.items())
    )


class MnnSession:
    """A Session. A step is one run; instrumented, one run with callbacks.

    MNN puts results where inputs lay once they are read, so each step copies its inputs in, as MNN's own benchmark
    does.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what is open, and how
        self,
        engine: Any,
        interpreter: Any,
        session: Any,
        opened: Opened,
        target: Target,
        clock: Callable[[], float],
        counters: HardwareCounters | None = None,
    ) -> None:
        self.opened, self._engine, self._interpreter, self._session = opened, engine, interpreter, session
        # The names of the graph's nodes by the operator of the file that they stand for: one may be several nodes.
        nodes: dict[str, tuple[str, ...]] = {}
        for node in target.nodes:
            whole, _, part = node.name.rpartition("/")
            operator = whole if whole and part in _PARTS else node.name
            nodes[operator] = (*nodes.get(operator, ()), node.name)
        self._clock, self._layers, self._counters = clock, nodes, counters
        self._inputs, self._outputs = interpreter.getSessionInputAll(session), interpreter.getSessionOutputAll(session)
        self._steps: list[list[tuple[str, str, float]]] = []
        self._fed: list[tuple[Any, Any, Array]] = []  # the network's tensor, ours, and the memory that ours is of
        self._instrument = target.instrument
        self.cost_per_kernel_s: float | None = self._cost() if target.instrument else None

    def feed(self, inputs: Mapping[str, Array]) -> None:
        alive(self._interpreter)
        require_fitting(self.opened.inputs, inputs)
        rows = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
        self._fed = [
            (self._inputs[name], self._host_tensor(self._inputs[name], array), array) for name, array in rows.items()
        ]

    def _host_tensor(self, tensor: Any, array: Array) -> Any:
        """A tensor in the host's memory with the same layout as the network's own."""
        return self._engine.Tensor(tuple(tensor.getShape()), tensor.getDataType(), array, tensor.getDimensionType())

    def step(self) -> None:
        interpreter = alive(self._interpreter)
        for tensor, given, _ in self._fed:
            tensor.copyFrom(given)
        wrong = self._watched() if self._instrument else interpreter.runSession(self._session)
        if wrong:
            raise EngineError(f"MNN failed in a step: error {wrong}.")

    def _watched(self) -> int:
        rows: list[tuple[str, str, float]] = []
        clock = self._clock
        began = 0.0

        def before(_tensors: Any, _info: Any) -> bool:
            nonlocal began
            began = clock()
            return True

        def after(_tensors: Any, info: Any) -> bool:
            ended = clock()
            rows.append((info.getName(), info.getType(), ended - began))
            return True

        wrong = int(alive(self._interpreter).runSessionWithCallBackInfo(self._session, before, after))
        self._steps.append(rows)
        return wrong

    def _cost(self) -> float | None:
        """What lies between the two readings of the clock when nothing runs there.

        An operator whose first callback says no is not run, and both are called all the same.
        """
        times: list[float] = []
        clock, began = self._clock, 0.0

        def before(_tensors: Any, _info: Any) -> bool:
            nonlocal began
            began = clock()
            return False

        def after(_tensors: Any, _info: Any) -> bool:
            times.append(clock() - began)
            return True

        for _ in range(_PASSES):
            alive(self._interpreter).runSessionWithCallBackInfo(self._session, before, after)
        return median(times) if times else None

    def outputs(self) -> Mapping[str, Array]:
        alive(self._interpreter)
        found = {}
        for port in self.opened.outputs:
            tensor = self._outputs[port.name]
            array = np.zeros([size for size in port.shape if isinstance(size, int)], port.dtype)
            host = self._host_tensor(tensor, array)
            tensor.copyToHostTensor(host)
            found[port.name] = np.array(host.getNumpyData(), copy=True).reshape(array.shape)
        return found

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        steps = [rows for rows in self._steps if len(rows) == len(self._steps[-1])]
        self._steps = []
        if not steps:
            return {}
        counts = self._counted(len(steps[-1]))
        kernels = [
            Kernel(
                name=name,
                kind=kind,
                samples_s=tuple(rows[index][2] for rows in steps),
                provider="cpu",
                own=kind in _OWN,
                layers=self._layers_of(name),
                counters=counts[index],
            )
            for index, (name, kind, _) in enumerate(steps[-1])
        ]
        return {"forward": tuple(kernels)}

    def _counted(self, operators: int) -> list[dict[str, float]]:
        """What the processor counts in each operator, in a step of its own: reading counters takes time."""
        nothing: list[dict[str, float]] = [{} for _ in range(operators)]
        if self._counters is None or not self._counters.descriptors:
            return nothing
        pieces = PieceCounts(counters=self._counters)

        def before(_tensors: Any, _info: Any) -> bool:
            pieces.begin()
            return True

        def after(_tensors: Any, _info: Any) -> bool:
            pieces.end()
            return True

        with self._counters.counting():
            alive(self._interpreter).runSessionWithCallBackInfo(self._session, before, after)
        return pieces.pieces if len(pieces.pieces) == operators else nothing

    def _layers_of(self, name: str) -> tuple[str, ...]:
        """The file's operator of that name, or the one that a layout was changed for (`conv1_raster_0`)."""
        if not self._layers:
            return (name,)
        return self._layers.get(name) or self._layers.get(name.partition("_raster_")[0], ())

    def close(self) -> None:
        if self._counters is not None:
            self._counters.close()
        self._inputs, self._outputs, self._fed = {}, {}, []
        self._session = self._interpreter = None
