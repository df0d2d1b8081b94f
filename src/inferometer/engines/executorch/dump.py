"""ETDump, ExecuTorch's record of what it ran: a flatbuffer with a list of timed events for each run.

An instruction of the program is an event of its own (`OPERATOR_CALL`, `DELEGATE_CALL`), written when it ends, after the
events inside it: the kernel that an operator call ran, or what a delegate tells of its own kernels. XNNPACK tells each
kernel's name and whole microseconds, and ExecuTorch writes them down once all have run.

Source of the fields: devtools/etdump/etdump_schema_flatcc.fbs of pytorch/executorch; of what is written of XNNPACK:
backends/xnnpack/runtime/profiling/XNNProfiler.cpp there, and `xnn_get_elapsed_time` of google/XNNPACK.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from inferometer.core.frozen import frozen
from inferometer.formats.flatbuffer import Buffer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from inferometer.formats.flatbuffer import FlatTable

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
