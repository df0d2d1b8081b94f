"""LiteRT's profiler events, step by step, as kernels. Its clock counts whole microseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferometer.core.frozen import frozen
from inferometer.engines.base import Kernel
from inferometer.engines.litert.mapping import RanOperator, layers_of_kernels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.engines.litert.mapping import Operator

# What kind of event it is, as TFLite's profiler interface numbers them.
OPERATOR, DELEGATE_INTERNAL, DELEGATE_KERNEL = 2, 4, 8
_PREFIX = "Delegate/"


@frozen
class ProfilerEvent:
    """`number` is an operator's place in the graph, or a kernel's place within its delegate."""

    tag: str
    kind: int
    elapsed_us: int
    number: int
    subgraph: int = 0


def kernel_events(events: Sequence[ProfilerEvent]) -> list[ProfilerEvent]:
    """What ran, each once: kernels of delegates, and operators that no delegate took.

    A delegate's own event holds its kernels, which come right after it; without any it is reported as a whole. What ran
    in a branch or a loop's body is in the time of the operator that called it, and we read that as one.
    """
    kernels: list[ProfilerEvent] = []
    kinds = {OPERATOR, DELEGATE_INTERNAL, DELEGATE_KERNEL}
    timed = [event for event in events if event.kind in kinds]
    timed = [event for event in timed if event.subgraph == timed[0].subgraph]
    for index, event in enumerate(timed):
        after = timed[index + 1] if index + 1 < len(timed) else None
        is_parent = event.kind == OPERATOR and after is not None and after.kind != OPERATOR and "elegate" in event.tag
        if not is_parent:
            kernels.append(event)
    return kernels


class StepEvents:
    """Events of steps, one list each. What a step did not run took no time in it."""

    def __init__(self, operators: Sequence[Operator], partitions: Sequence[Sequence[int]] = ()) -> None:
        self._operators, self._partitions = tuple(operators), tuple(partitions)
        self._steps: list[list[ProfilerEvent]] = []

    def add(self, events: Sequence[ProfilerEvent]) -> None:
        self._steps.append(kernel_events(events))

    def take(self) -> Mapping[str, tuple[Kernel, ...]]:
        """What ran since the last call; the order is that of the first step."""
        steps, self._steps = self._steps, []
        if not steps:
            return {}
        rows: dict[tuple[str, int, int], list[float]] = {}
        order: list[ProfilerEvent] = []
        for number, step in enumerate(steps):
            seen: dict[tuple[str, int], int] = {}
            for event in step:
                place = (event.tag, event.number)
                seen[place] = seen.get(place, 0) + 1
                key = (*place, seen[place])
                if key not in rows:
                    rows[key] = [0.0] * len(steps)
                    order.append(event)
                rows[key][number] = event.elapsed_us * 1e-6
        return {"forward": self._kernels(order, list(rows.values()))}

    def _kernels(self, order: Sequence[ProfilerEvent], samples: Sequence[Sequence[float]]) -> tuple[Kernel, ...]:
        ran = _ran(order, {(operator.index, operator.type) for operator in self._operators})
        layers = layers_of_kernels(ran, self._operators, self._partitions)
        names: dict[str, int] = {}
        kernels = []
        for event, each, stands_for, times in zip(order, ran, layers, samples, strict=True):
            base = stands_for[0] if stands_for else f"{each.kind}:{event.number}"
            names[base] = names.get(base, 0) + 1
            kernels.append(
                Kernel(
                    name=base if names[base] == 1 else f"{base}#{names[base]}",
                    kind=each.kind,
                    samples_s=tuple(times),
                    layers=stands_for,
                    provider="builtin" if event.kind == OPERATOR else "XNNPACK",
                )
            )
        return tuple(kernels)


def _ran(order: Sequence[ProfilerEvent], known: set[tuple[int, str]]) -> list[RanOperator]:
    """A delegate numbers its kernels from 0: where the numbers begin anew, another delegate runs."""
    kernels: list[RanOperator] = []
    delegate, before = -1, None
    for event in order:
        if event.kind != OPERATOR:
            if before is None or event.number <= before:
                delegate += 1
            before = event.number
        else:
            before = None
        is_told = event.kind == OPERATOR and (event.number, event.tag) in known
        kernels.append(
            RanOperator(
                kind=event.tag.removeprefix(_PREFIX),
                operator=event.number if is_told else None,
                delegate=-1 if event.kind == OPERATOR else delegate,
            )
        )
    return kernels
