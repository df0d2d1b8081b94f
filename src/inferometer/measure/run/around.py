"""What is read around a session, whatever it runs: if the machine is quiet, the memory, the speed of the host."""

from collections.abc import Sequence
from statistics import median

from inferometer.core.profile import Environment
from inferometer.engines.base import Session, TextSession
from inferometer.known.machine.health import host_call_s
from inferometer.measure.bench.guard import Guard, NoGuard
from inferometer.measure.bench.loop import Disturbance
from inferometer.measure.run.order import MeasureOrder
from inferometer.measure.run.raw import MemoryReadings, Tell
from inferometer.measure.spans.meters import process_memory


class Around:
    """Made before the engine is loaded, so that what it holds is the engine's and the model's."""

    def __init__(self, order: MeasureOrder, tell: Tell) -> None:
        self.guard: Guard | NoGuard = Guard() if order.guarded else NoGuard()
        self._first_look = self.guard.before(retries=order.plan.retries) if isinstance(self.guard, Guard) else None
        self._tell, self._gauge = tell, process_memory()
        self._before = self._opened = self._gauge.read().current
        self._restarted = False
        self._host_s: float | None = None

    def opened(self) -> int:
        """The model is there: the bytes that it took."""
        self._opened = self._gauge.read().current
        return self._opened - self._before

    def begin(self, unit: str | None) -> None:
        """Peaks count from here on. A device may wait for its host, whose speed is looked at now and at the end."""
        self._restarted = self._gauge.restart()
        self._host_s = None if unit == "cpu" else host_call_s()

    def tell_memory(self, session: Session | TextSession) -> None:
        memory = MemoryReadings(
            before_bytes=self._before, opened_bytes=self._opened,
            peak_bytes=self._gauge.read().peak if self._restarted else None,
            device_peak_bytes=getattr(session, "memory_peak_bytes", None),
        )  # fmt: skip
        self._tell("memory", memory)

    def tell_surroundings(self, during: Sequence[Disturbance], modules_s: Sequence[float]) -> None:
        environment, guard = Environment(), self.guard
        if isinstance(guard, Guard) and self._first_look is not None:
            environment = guard.environment(self._first_look, tuple(during), guard.after(self._first_look))
        self._tell("environment", environment)
        if self._host_s is not None:  # the figure belongs to the run
            self._tell("host_call_s", min(self._host_s, host_call_s()))  # of two looks: others only ever add to one
        if modules_s:
            self._tell("host_module_s", median(modules_s))
