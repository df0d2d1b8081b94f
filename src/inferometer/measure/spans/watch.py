"""What is recorded besides time when enabled: asyncio tasks, memory, device events."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from inferometer.measure.spans.places import Link, Places
from inferometer.measure.spans.record import Closed, Failure, Open


class Meter(Protocol):
    """Reads something at both ends of a span; what it found goes into columns by name."""

    def begin(self, span: Open) -> Any: ...

    def end(self, span: Open, state: Any) -> dict[str, float]: ...


class Device(Protocol):
    """Marks both ends of a span on a device's own time line, without waiting for it."""

    def begin(self, span: Open) -> Any: ...

    def end(self, span: Open, state: Any) -> Any: ...


class Watcher:
    """Keeps the meters' readings at the beginning of each open span until its end. `places` is None without tasks."""

    def __init__(
        self,
        keep: Callable[[Closed], None],
        places: Places | None,
        meters: Sequence[Meter],
        device: Device | None,
        *,
        numbers: Callable[[], int] | None = None,
    ) -> None:
        self._keep, self._places, self._meters, self._device = keep, places, tuple(meters), device
        self._numbers = numbers
        self._open: dict[int, tuple[Link | None, list[Any], Any]] = {}

    def begin(self, span: Open) -> None:
        link = None if self._places is None else self._places.enter()
        states = [meter.begin(span) for meter in self._meters] if self._meters else _NO_STATES
        mark = None if self._device is None else self._device.begin(span)
        if link is not None or states or self._device is not None:
            self._open[id(span)] = (link, states, mark)

    def end(self, span: Open, error: Failure, end_ns: int) -> None:
        number = -1 if self._numbers is None else self._numbers()
        held = self._open.pop(id(span), None) if self._open else None
        if held is None:
            self._keep(Closed(span, end_ns, number, error))
            return
        link, states, mark = held
        device = None if self._device is None else self._device.end(span, mark)
        readings: dict[str, float] = {}
        for meter, state in zip(reversed(self._meters), reversed(states), strict=True):
            readings |= meter.end(span, state)
        if link is not None and self._places is not None:
            self._places.leave(link)
        self._keep(
            Closed(
                span=span,
                end=end_ns,
                number=number,
                error=error,
                task=None if link is None else link.task,
                link=None if link is None else link.number,
                above=None if link is None or link.above is None else link.above.number,
                readings=readings or None,
                device=device,
            )
        )


_NO_STATES: list[Any] = []
