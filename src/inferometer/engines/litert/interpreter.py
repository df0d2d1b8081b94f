"""A TFLite file in LiteRT's interpreter, with XNNPACK unless something else is asked for."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import EngineError
from inferometer.engines.base import Opened, Stage
from inferometer.engines.host import captured_stderr
from inferometer.engines.litert.operators import operators_of, partitions_of, placed
from inferometer.engines.litert.ports import check_inputs, concrete, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from inferometer.engines.base import Kernel, Target
    from inferometer.engines.litert.ports import FileTensor


def open_interpreter(target: Target, threads: int, *, clock: Callable[[], float]) -> PlainSession:
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
        self.operators = operators_of(details, self._names())
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

    def _names(self) -> dict[int, str]:
        return {int(each["index"]): str(each["name"]) for each in self._interpreter.get_tensor_details()}

    def _has_memory(self, place: int) -> bool:
        try:
            self._interpreter.tensor(place)()
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
        self._alive()
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
            self._alive()
            raise

    def outputs(self) -> Mapping[str, np.ndarray[Any, Any]]:
        self._alive()
        return {tensor.name: self._interpreter.get_tensor(tensor.index) for tensor in self._outputs}

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return {}

    def _alive(self) -> None:
        if self._interpreter is None:
            raise EngineError("The session is closed.", remedy="Open the model again.")

    def close(self) -> None:
        self._interpreter = None


def _notes(counts: Mapping[str, int], total: int, wanted: tuple[str, ...]) -> tuple[str, ...]:
    if "XNNPACK" in wanted or not wanted:
        left = total - counts.get("XNNPACK", 0)
        if left:
            return (f"{left} of {total} operators run in the interpreter, not in XNNPACK.",)
    return ()
