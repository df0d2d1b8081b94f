"""Rows of several steps → kernels with one sample a step. Pure.

Steps of one phase run the same sequence, or nearly: routing to experts differs by token. Two rows are
one kernel if they stand at the same place in the model, are of one kind, and are equally often repeated before there.
A step without the kernel counts as no time of it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from inferometer.engines.base import Kernel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.engines.torch.trace import TraceRow

_AHEAD = re.compile(r"aoti_torch_[a-z]+_(\w+?)(?:_out)?")
_Key = tuple[str | None, str, int]


def kernels_from_rows(steps: Sequence[Sequence[TraceRow]], *, unit: str, provider: str) -> tuple[Kernel, ...]:
    """One kernel for each row that any of the steps has, in order of execution. `unit` is where devices are seen."""
    keyed = [_keyed(rows) for rows in steps]
    return tuple(_kernel(key, [step.get(key) for step in keyed], unit, provider) for key in _merged(keyed))


def _keyed(rows: Sequence[TraceRow]) -> dict[_Key, TraceRow]:
    seen: Counter[tuple[str | None, str]] = Counter()
    keyed = {}
    for row in rows:
        keyed[row.place, row.kind, seen[row.place, row.kind]] = row
        seen[row.place, row.kind] += 1
    return keyed


def _merged(steps: Sequence[Mapping[_Key, TraceRow]]) -> list[_Key]:
    """Every key once; one that only a later step has comes after the key that it followed there."""
    after: dict[_Key | None, list[_Key]] = defaultdict(list)
    known: set[_Key] = set()
    for step in steps:
        before: _Key | None = None
        for key in step:
            if key not in known:
                known.add(key)
                after[before].insert(0, key)
            before = key
    order: list[_Key] = []
    pending = list(reversed(after[None]))
    while pending:
        key = pending.pop()
        order.append(key)
        pending += reversed(after[key])
    return order


def _kernel(key: _Key, rows: Sequence[TraceRow | None], unit: str, provider: str) -> Kernel:
    place, kind, index = key
    first = next(row for row in rows if row is not None)
    on_device = any(row is not None and row.device_ns for row in rows)
    device = tuple(sum(row.device_ns) * 1e-9 if row else 0.0 for row in rows) if on_device else None
    waited = tuple(row.waited_ns * 1e-9 if row else 0.0 for row in rows) if on_device else None
    layers = first.layers or ((place,) if first.module and place else ())
    label = "step" if place is None else place or "(model)"
    name = f"{label}/{kind}" + (f"#{index + 1}" if index else "")
    return Kernel(
        name=name, kind=kind, samples_s=tuple(row.host_ns * 1e-9 if row else 0.0 for row in rows),
        unit=unit if on_device else "cpu", layers=layers, provider=provider if on_device else "cpu", device_s=device,
        waited_s=waited, dtype=first.dtype, shapes=first.shapes,
    )  # fmt: skip


def map_calls(rows: Sequence[TraceRow], calls: Sequence[tuple[str, tuple[str, ...]]]) -> tuple[list[TraceRow], int]:
    """Rows with the layers the compiler says its calls stand for, and how many kernels it did not mention.

    The compiler's calls are in order of execution, by the names the profiler shows; the n-th call of a name is the n-th
    that the compiler tells of, and may be several rows. Where their numbers differ nothing is claimed.
    """
    by_name: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for name, layers in calls:
        by_name[name].append(layers)
    shown = Counter(compiled_name(row.root) for row in rows if not row.more)
    seen: Counter[str] = Counter()
    mapped, missed = [], 0
    for row in rows:
        name = compiled_name(row.root)
        if name in by_name and shown[name] == len(by_name[name]):
            seen[name] += not row.more
            mapped.append(_placed(row, by_name[name][seen[name] - 1]))
        else:
            mapped.append(row)
            missed += row.kind not in {"host", "wait"} and not row.module and row.place is None
    return mapped, missed


def _placed(row: TraceRow, layers: tuple[str, ...]) -> TraceRow:
    """Named after the first of the layers it stands for."""
    kind = compiled_name(row.kind)
    return replace(row, place=layers[0], module=True, kind=kind, layers=layers) if layers else replace(row, kind=kind)


def compiled_name(name: str) -> str:
    """`graph_0_cpp_fused_add_1` is `cpp_fused_add_1` of the first graph; `aoti_torch_cpu_mm_out` is `aten::mm`."""
    if ahead := _AHEAD.fullmatch(name):
        return f"aten::{ahead[1]}"
    head, _, rest = name.partition("_")
    number, _, bare = rest.partition("_")
    return bare if head == "graph" and number.isdigit() else name


def align_layers(
    rows: Sequence[TraceRow], reference: Sequence[tuple[str, tuple[str, ...]]]
) -> tuple[list[TraceRow], int]:
    """Rows replayed from a graph with the layers of the same device kernels in a run that was not captured.

    `reference` are device kernels in order, by name. As many as possible are matched in order, and between them
    stretches of equal length: a library may choose another kernel for the same product.
    """
    places = [index for index, row in enumerate(rows) if row.on_device]
    pairs = aligned(tuple(rows[index].device_names[0] for index in places), tuple(name for name, _ in reference))
    mapped = list(rows)
    for ours, theirs in pairs:
        index = places[ours]
        mapped[index] = _placed(rows[index], reference[theirs][1])
    return mapped, len(places) - len(pairs)


@lru_cache(maxsize=8)  # every step of a phase has the same kernels
def aligned(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Places of the two sequences that belong together.

    Decoder layers repeat, so the longest equal stretch misleads. The most equal pairs in order are found (E. Myers, An
    O(ND) difference algorithm, 1986).
    """
    matched: list[tuple[int, int]] = []
    before = (-1, -1)
    for pair in (*_common(ours, theirs), (len(ours), len(theirs))):
        between = [range(last + 1, now) for last, now in zip(before, pair, strict=True)]
        if len(between[0]) == len(between[1]):
            matched += zip(*between, strict=True)
        if pair[0] < len(ours):
            matched.append(pair)
        before = pair
    return tuple(matched)


def _common(ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int]]:
    """The longest common subsequence, as pairs of places."""
    trail: list[dict[int, int]] = []
    furthest = {1: 0}
    for edits in range(len(ours) + len(theirs) + 1):
        trail.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            down = diagonal == -edits or (
                diagonal != edits and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
            )
            x = furthest[diagonal + 1] if down else furthest[diagonal - 1] + 1
            while x < len(ours) and x - diagonal < len(theirs) and ours[x] == theirs[x - diagonal]:
                x += 1
            furthest[diagonal] = x
            if x >= len(ours) and x - diagonal >= len(theirs):
                return _walked_back(trail, len(ours), len(theirs))
    return []


def _walked_back(trail: Sequence[Mapping[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for edits in range(len(trail) - 1, -1, -1):
        furthest, diagonal = trail[edits], x - y
        down = diagonal == -edits or (
            diagonal != edits and furthest.get(diagonal - 1, -1) < furthest.get(diagonal + 1, -1)
        )
        before = diagonal + 1 if down else diagonal - 1
        last_x = furthest.get(before, 0)
        last_y = last_x - before
        while x > max(last_x, 0) and y > max(last_y, 0):
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = last_x, last_y
    return pairs[::-1]
