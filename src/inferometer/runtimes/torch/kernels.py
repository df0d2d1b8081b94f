"""Rows of several steps → kernels with one sample a step. Pure.

Steps of one phase run the same sequence, or nearly: routing to experts differs by token. A row is the same in two steps
where place, kind and its count among those agree; in a step that has not got it, it took no time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from inferometer.runtimes.base import Kernel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inferometer.runtimes.torch.trace import TraceRow

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

    The compiler's calls are in order of execution, by the names the profiler shows; the n-th row of a name is the n-th
    call of it. Where their numbers differ nothing is claimed.
    """
    by_name: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for name, layers in calls:
        by_name[name].append(layers)
    shown = Counter(_compiled_name(row.root) for row in rows)
    seen: Counter[str] = Counter()
    mapped, missed = [], 0
    for row in rows:
        name = _compiled_name(row.root)
        if name in by_name and shown[name] == len(by_name[name]):
            mapped.append(_placed(row, by_name[name][seen[name]]))
            seen[name] += 1
        else:
            mapped.append(row)
            missed += row.kind not in {"host", "wait"} and not row.module and row.place is None
    return mapped, missed


def _placed(row: TraceRow, layers: tuple[str, ...]) -> TraceRow:
    """Named after the first of the layers it stands for."""
    kind = _compiled_name(row.kind)
    return replace(row, place=layers[0], module=True, kind=kind, layers=layers) if layers else replace(row, kind=kind)


def _compiled_name(name: str) -> str:
    """`graph_0_cpp_fused_add_1` is the kernel `cpp_fused_add_1` of the first graph."""
    head, _, rest = name.partition("_")
    number, _, bare = rest.partition("_")
    return bare if head == "graph" and number.isdigit() else name


def align_layers(
    rows: Sequence[TraceRow], reference: Sequence[tuple[str, tuple[str, ...]]]
) -> tuple[list[TraceRow], int]:
    """Rows replayed from a graph with the layers of the same device kernels in a run that was not captured.

    `reference` are device kernels in order, by name. Equal stretches of the two sequences are matched, and between them
    stretches of equal length: a library may choose another kernel for the same product.
    """
    places = [index for index, row in enumerate(rows) if row.on_device]
    names = [rows[index].device_names[0] for index in places]
    matcher = SequenceMatcher(None, names, [name for name, _ in reference], autojunk=False)
    mapped, missed = list(rows), 0
    for _, first, last, other, end in matcher.get_opcodes():
        if last - first != end - other:
            missed += last - first
            continue
        for offset in range(last - first):
            index = places[first + offset]
            mapped[index] = _placed(rows[index], reference[other + offset][1])
    return mapped, missed
