"""A TFLite file in LiteRT's compiled model with its profiler on: what XNNPACK ran, kernel by kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import EngineError
from inferometer.engines.base import Stage
from inferometer.engines.host import captured_stderr
from inferometer.engines.litert.capi import Profiled, library_path
from inferometer.engines.litert.events import StepEvents
from inferometer.engines.litert.ports import check_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from inferometer.engines.base import Kernel, Opened, Target
    from inferometer.engines.litert.interpreter import PlainSession
    from inferometer.engines.litert.ports import FileTensor

_NOTE = "Kernels are XNNPACK's, timed by LiteRT's profiler in whole microseconds; their order says which operators."
_FRESH = (
    "The sizes of this model's results are decided while it runs, and LiteRT's compiled model runs such a model once: "
    "each instrumented step is a first run, and the results are the interpreter's."
)


def open_profiled(target: Target, plain: PlainSession, threads: int, *, clock: Callable[[], float]) -> ProfiledSession:
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
    import numpy as np  # noqa: PLC0415 - only a session needs it

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
        profiled = self._alive()
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
        profiled = self._alive() if self._make is None else self._renewed(self._make)
        profiled.run()
        self._steps.add(profiled.events())

    def _renewed(self, make: Callable[[], Profiled]) -> Profiled:
        with captured_stderr():
            self._alive().close()
            self._profiled = profiled = make()
        _write(profiled, self._given, self._inputs)
        return profiled

    def outputs(self) -> Mapping[str, np.ndarray[Any, Any]]:
        import numpy as np  # noqa: PLC0415 - only a session needs it

        profiled, arrays = self._alive(), {}
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

    def _alive(self) -> Profiled:
        if self._profiled is None:
            raise EngineError("The session is closed.", remedy="Open the model again.")
        return self._profiled

    def close(self) -> None:
        if self._profiled is not None:
            with captured_stderr():
                self._profiled.close()
            self._profiled = None
            self._plain.close()
