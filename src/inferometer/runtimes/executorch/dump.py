"""ETDump, ExecuTorch's record of what it ran: a flatbuffer with a list of timed events for each run.

An instruction of the program is an event of its own (`OPERATOR_CALL`, `DELEGATE_CALL`), written when it ends, after the
events inside it: the kernel that an operator call ran, or what a delegate tells of its own kernels. XNNPACK tells each
kernel's name and whole microseconds.

Source of the fields: devtools/etdump/etdump_schema_flatcc.fbs of pytorch/executorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from inferometer.flatbuffer import Buffer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from inferometer.flatbuffer import FlatTable

_PREFIX = 4  # bytes before the flatbuffer: how long it is
_TICK_S = 1e-9  # of the clock that the engine has on every system with a wheel
_MOST = 1 << 22  # runs, events
_KERNEL, _OPERATOR, _DELEGATE, _WHOLE = "native_call_", "OPERATOR_CALL", "DELEGATE_CALL", "Method::execute"


@dataclass(frozen=True, slots=True, kw_only=True)
class RanKernel:
    """What ran within an instruction of the program. `rest` is what a delegate did outside its own kernels."""

    kind: str
    instruction: int
    seconds: float
    delegated: bool = False
    rest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    name: str
    instruction: int
    seconds: float
    told: bool  # by a delegate, of what it did inside


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
            seconds=max(0, ended - began) * _TICK_S,
            told=own is not None or number >= 0,
        )


def _kernels(events: list[_Event]) -> list[RanKernel]:
    kernels: list[RanKernel] = []
    inside: list[_Event] = []
    for event in events:
        if event.name == _OPERATOR:
            kernels.append(_operator(event, inside))
        elif event.name == _DELEGATE:
            kernels += _delegated(event, inside)
        elif event.told or event.name.startswith(_KERNEL):
            inside.append(event)
            continue
        inside = []
    return kernels


def _operator(call: _Event, inside: list[_Event]) -> RanKernel:
    """The kernel alone where it is the only one: the events around it cost the rest of the call."""
    kernel = inside[0] if len(inside) == 1 else call
    kind = inside[0].name.removeprefix(_KERNEL) if inside else _OPERATOR
    return RanKernel(kind=kind, instruction=call.instruction, seconds=kernel.seconds)


def _delegated(call: _Event, inside: list[_Event]) -> list[RanKernel]:
    """Each kernel of a delegate that tells of them; one that tells nothing is a kernel as a whole."""
    place = call.instruction
    if not inside:
        return [RanKernel(kind=_DELEGATE, instruction=place, seconds=call.seconds, delegated=True)]
    told = [RanKernel(kind=one.name, instruction=place, seconds=one.seconds, delegated=True) for one in inside]
    rest_s = max(0.0, call.seconds - sum(kernel.seconds for kernel in told))
    return [*told, RanKernel(kind=_DELEGATE, instruction=place, seconds=rest_s, delegated=True, rest=True)]
