"""What is recorded beside time, where it is asked for: places among tasks, memory, device events."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from inferometer.profiler.places import Link, Places
from inferometer.profiler.record import Closed, Open

__all__ = ["Device", "Meter", "Watcher", "failed"]


class Meter(Protocol):
    """Reads something at both ends of a span; what it found goes into columns by name."""

    def begin(self, span: Open) -> Any: ...

    def end(self, span: Open, state: Any) -> dict[str, float]: ...


class Device(Protocol):
    """Marks both ends of a span on a device's own time line, without waiting for it."""

    def begin(self, span: Open) -> Any: ...

    def end(self, span: Open, state: Any) -> Any: ...


class Watcher:
    """Keeps what the meters said at the beginning of each open span until its end."""

    def __init__(
        self, keep: Callable[[Closed], None], places: Places, meters: Sequence[Meter], device: Device | None
    ) -> None:
        self._keep, self._places, self._meters, self._device = keep, places, tuple(meters), device
        self._open: dict[int, tuple[Link | None, list[Any], Any]] = {}
        self.numbers: Callable[[], int] | None = None

    def begin(self, span: Open) -> None:
        link = self._places.enter()
        states = [meter.begin(span) for meter in self._meters] if self._meters else _NO_STATES
        mark = None if self._device is None else self._device.begin(span)
        if link is not None or states or mark is not None:
            self._open[id(span)] = (link, states, mark)

    def end(self, span: Open, kind: type[BaseException] | None, end_ns: int) -> None:
        held = self._open.pop(id(span), None) if self._open else None
        if held is None:
            self._keep(Closed(span, end_ns, -1 if self.numbers is None else self.numbers(), failed(kind)))
            return
        link, states, mark = held
        device = None if self._device is None else self._device.end(span, mark)
        readings: dict[str, float] = {}
        for meter, state in zip(reversed(self._meters), reversed(states), strict=True):
            readings |= meter.end(span, state)
        if link is not None:
            self._places.leave(link)
        self._keep(
            Closed(
                span=span,
                end=end_ns,
                number=-1 if self.numbers is None else self.numbers(),
                failed=failed(kind),
                task=None if link is None else link.task,
                link=None if link is None else link.number,
                above=None if link is None or link.above is None else link.above.number,
                readings=readings or None,
                device=device,
            )
        )


_NO_STATES: list[Any] = []


def failed(kind: type[BaseException] | None) -> bool:
    """A generator that its consumer closes early has not failed."""
    return kind is not None and not issubclass(kind, GeneratorExit)
