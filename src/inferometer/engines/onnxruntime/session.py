"""Sessions of ONNX Runtime: the edge that imports it."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

from inferometer.core.errors import DomainError, InferometerError
from inferometer.engines.feeding import require_fitting
from inferometer.engines.onnxruntime.faults import fault_of, guarded
from inferometer.engines.onnxruntime.loading import (
    CPU,
    Clock,
    LoadingPlan,
    load,
    load_plan,
    opened_of,
    result_arrays,
    wrongly_declared,
)
from inferometer.engines.onnxruntime.recorder import SKIP, ProfileRecorder
from inferometer.engines.onnxruntime.text import open_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from inferometer.engines.base import Kernel, Opened, Session, Target, TextSession

Array = np.ndarray[Any, Any]


def open_session(target: Target, name: str, *, clock: Clock = time.perf_counter) -> Session | TextSession:
    del name  # one runtime is opened from here
    plan = load_plan(target)
    if target.text:
        return open_text(target, plan, clock=clock)
    if target.instrument:
        return OrtRecordedSession(plan, clock=clock)
    session, stages = load(plan, clock=clock)
    return OrtSession(plan, session, opened_of(plan, session, stages))


class OrtSession:
    """Inputs and outputs are bound once; a step is one call of the engine.

    The engine refuses to write into an output again whose shape is not the one the file declares. Where a file is wrong
    about that, the first step shows it, and every further one binds the outputs anew.
    """

    def __init__(self, plan: LoadingPlan, session: Any, opened: Opened) -> None:
        self._plan, self._session, self._opened = plan, session, opened
        self._fed: dict[str, Array] = {}
        self._binding: Any = None
        self._run: Callable[[], None] = _not_fed

    @property
    def opened(self) -> Opened:
        return self._opened

    @property
    def cost_per_kernel_s(self) -> float | None:
        return None

    def feed(self, inputs: Mapping[str, Array]) -> None:
        if self._session is None:
            raise DomainError("The session is closed.")
        require_fitting(self._opened.inputs, inputs)
        self._fed = {name: np.array(array, order="C") for name, array in inputs.items()}
        self._bind(self._session)

    def _bind(self, session: Any) -> None:
        """Inputs lie where the first provider reads them; the engine allocates the outputs there in the first step."""
        binding = session.io_binding()
        device = _device(self._plan)
        with guarded(self._plan.path, "refused the inputs of"):
            for name, array in self._fed.items():
                value = ort.OrtValue.ortvalue_from_numpy(array, *device)
                binding.bind_ortvalue_input(name, value)
            self._bind_outputs(binding)
        self._session, self._binding, self._run = session, binding, self._first_run

    def _bind_outputs(self, binding: Any) -> None:
        device = _device(self._plan)
        for port in self._opened.outputs:
            binding.bind_output(port.name, *device)

    def _first_run(self) -> None:
        session, binding = self._session, self._binding
        session.run_with_iobinding(binding)
        self._run = partial(session.run_with_iobinding, binding)
        given = [tuple(value.shape()) if value.is_tensor() else () for value in binding.get_outputs()]
        wrong = wrongly_declared(self._opened.outputs, given)
        if wrong:
            self._run = self._run_anew
            notes = (note for note in wrong if note not in self._opened.notes)
            self._opened = replace(self._opened, notes=(*self._opened.notes, *notes))

    def _run_anew(self) -> None:
        self._bind_outputs(self._binding)  # in place of those of the step before
        self._session.run_with_iobinding(self._binding)

    def step(self) -> None:
        try:
            self._run()
        except InferometerError:
            raise
        except Exception as error:
            raise fault_of(self._plan.path, "failed to run", error) from error

    def outputs(self) -> Mapping[str, Array]:
        if self._binding is None:
            return {}
        results = zip(self._opened.outputs, self._binding.copy_outputs_to_cpu(), strict=True)
        return {name: array for port, result in results for name, array in result_arrays(port.name, result).items()}

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return {}

    def close(self) -> None:
        self._session = self._binding = None
        self._fed, self._run = {}, _not_fed


class OrtRecordedSession(OrtSession):
    """The same with the engine's profiler on."""

    def __init__(self, plan: LoadingPlan, *, clock: Clock) -> None:
        self.recorder = ProfileRecorder(plan, clock=clock)
        session = self.recorder.session
        super().__init__(self.recorder.plan, session, opened_of(plan, session, self.recorder.stages))

    @property
    def cost_per_kernel_s(self) -> float | None:
        return self.recorder.timers.node_s

    @property
    def idle_per_step_s(self) -> float | None:
        """Known where every kernel ran on the CPU, one after another."""
        return self.recorder.timers.step_s if self._plan.providers[0][0] == CPU else None

    def step(self) -> None:
        self.recorder.ready(1, self._rebind)
        super().step()
        self.recorder.ran("forward")

    def _rebind(self, session: Any) -> None:
        """In a fresh session the first step pays for its memory: it is taken here."""
        self._bind(session)
        super().step()
        self.recorder.ran(SKIP)

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        return self.recorder.take()

    def close(self) -> None:
        super().close()
        self.recorder.close()


def _not_fed() -> None:
    raise DomainError("A step was asked for before any inputs were fed.")


def _device(plan: LoadingPlan) -> tuple[str, int]:
    """Where arrays should lie for the first provider, as the engine names places."""
    name, settings = plan.providers[0]
    place = {"CUDAExecutionProvider": "cuda", "TensorrtExecutionProvider": "cuda", "DmlExecutionProvider": "dml"}
    return place.get(name, "cpu"), int(settings.get("device_id", 0))
