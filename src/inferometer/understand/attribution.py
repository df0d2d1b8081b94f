"""Where the time goes: one phase or one request, split in one way at a time. Every table adds up.

`whole_s = Σ rows + remainder_s`, always. A positive remainder is time that no row accounts for. A negative one means
that the rows overlap: ops that ran at the same time, or means compared with a median.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import fsum
from typing import Literal

from inferometer.core.frozen import frozen
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.core.request import repeats, request_s

By = Literal["phase", "block", "layer", "kind", "unit", "bound", "host", "parts"]
_UNKNOWN = "unknown"
_LAYER = re.compile(r"^(.*?[._/])?\d+(?=[._/]|$)")


@frozen
class Share:
    """`share` is a fraction of the whole, `count` the number of ops. A sum of work is None if any part is unknown.

    Floors and predictions are those of the ops that have one.
    """

    name: str
    time_s: float
    share: float
    count: int = 1
    flops: float | None = None
    bytes: float | None = None
    floor_s: float | None = None
    predicted_s: float | None = None


@frozen
class Breakdown:
    by: By
    phase: str | None  # None: the whole request
    whole_s: float
    rows: tuple[Share, ...]  # the largest first
    remainder_s: float
    remainder: str  # what the remainder is

    @property
    def remainder_share(self) -> float:
        return self.remainder_s / self.whole_s if self.whole_s > 0 else 0.0


Key = Callable[[OpTime], str]


def layer_of(op: OpTime) -> str:
    """`layers.12` for `layers.12.mlp.up_proj`; an op outside numbered layers goes under its block, or by itself."""
    match = _LAYER.match(op.name)
    merged = op.count > 1 and op.block  # a prediction lists equal layers once, under the first one's name
    return match[0] if match and not merged else op.block or op.name


_KEYS: dict[By, Key] = {
    "block": lambda op: op.block or _UNKNOWN,
    "layer": layer_of,
    "kind": lambda op: op.kind,
    "unit": lambda op: op.unit or _UNKNOWN,
    "bound": lambda op: op.bound or _UNKNOWN,
}


def attribution(profile: Profile, *, bound: Key | None = None) -> tuple[Breakdown, ...]:
    """Every table that the profile supports: the request by phase, then each phase with ops split in every way.

    `bound` names what bounds an op, if the caller knows more about it than the profile says.
    """
    tables = [by_phase(profile)] if any(not phase.once for phase in profile.phases) else []
    for phase in profile.phases:
        if phase.ops:
            tables += [split_phase(phase, by, bound if by == "bound" else None) for by in _KEYS]
            if (host := by_host(phase)) is not None:
                tables.append(host)
        if phase.parts:
            tables.append(by_parts(phase))
    return tuple(tables)


def split_phase(phase: Phase, by: By, key: Key | None = None) -> Breakdown:
    """One phase's ops, grouped by `by`, or by `key` if given."""
    groups: dict[str, list[OpTime]] = {}
    chosen = key or _KEYS[by]
    for op in phase.ops:
        groups.setdefault(chosen(op), []).append(op)
    return _closed(by, phase.name, phase.time_s, [_share(name, ops, phase) for name, ops in groups.items()])


def by_host(phase: Phase) -> Breakdown | None:
    """Host and device: by the device's own clock if ops have one, otherwise by the unit they ran on."""
    timed = [op for op in phase.ops if op.device_s is not None]
    if timed:
        device = fsum(min(op.device_s or 0.0, op.time_s) for op in timed)
        waiting = fsum(max(op.time_s - (op.device_s or 0.0), 0.0) for op in timed)
        host = waiting + fsum(op.time_s for op in phase.ops if op.device_s is None)
        rows = [_plain("device", device, phase.time_s, len(timed)), _plain("host", host, phase.time_s, len(phase.ops))]
        return _closed("host", phase.name, phase.time_s, rows)
    units = {op.unit for op in phase.ops}
    if units <= {None, "cpu"}:
        return None

    def side(op: OpTime) -> str:
        return _UNKNOWN if op.unit is None else "host" if op.unit == "cpu" else "device"

    return split_phase(phase, "host", side)


def by_parts(phase: Phase) -> Breakdown:
    """The parts of a step that the engine itself reports, such as write, run, read and sample."""
    rows = [
        replace(_plain(name, seconds, phase.time_s), predicted_s=phase.predicted_parts.get(name))
        for name, seconds in phase.parts.items()
    ]
    return _closed("parts", phase.name, phase.time_s, rows)


def by_phase(profile: Profile) -> Breakdown:
    """One request: each phase times how often it runs. One-time costs belong to no request."""
    times_run = repeats(profile)
    rows = [(phase, times_run[phase.name]) for phase in profile.phases if phase.name in times_run]
    whole_s = request_s(profile)
    shares = [
        Share(
            name=phase.name,
            time_s=times * phase.time_s,
            share=times * phase.time_s / whole_s if whole_s > 0 else 0.0,
            count=round(times),
            flops=None if phase.flops is None else times * phase.flops,
            bytes=None if phase.bytes is None else times * phase.bytes,
            floor_s=None if phase.floor_s is None else times * phase.floor_s,
            predicted_s=None if phase.predicted_s is None else times * phase.predicted_s,
        )
        for phase, times in rows
    ]
    return _closed("phase", None, whole_s, shares)


def one_time(profile: Profile) -> tuple[Phase, ...]:
    return tuple(phase for phase in profile.phases if phase.once)


def _share(name: str, ops: list[OpTime], phase: Phase) -> Share:
    seconds = fsum(op.time_s for op in ops)
    return Share(
        name=name,
        time_s=seconds,
        share=seconds / phase.time_s if phase.time_s > 0 else 0.0,
        count=sum(op.count for op in ops),
        flops=_known(op.flops for op in ops),
        bytes=_known(op.bytes for op in ops),
        floor_s=_as_far_as_known(op.floor_s for op in ops),
        predicted_s=_as_far_as_known(op.predicted_s for op in ops),
    )


def _known(values: Iterable[float | None]) -> float | None:
    numbers = list(values)
    return None if any(value is None for value in numbers) else fsum(value or 0.0 for value in numbers)


def _as_far_as_known(values: Iterable[float | None]) -> float | None:
    """What an engine does beside the layers has no floor and no prediction: those of the layers are the sum."""
    numbers = [value for value in values if value is not None]
    return fsum(numbers) if numbers else None


def _plain(name: str, seconds: float, whole_s: float, count: int = 1) -> Share:
    return Share(name=name, time_s=seconds, share=seconds / whole_s if whole_s > 0 else 0.0, count=count)


def _closed(by: By, phase: str | None, whole_s: float, rows: list[Share]) -> Breakdown:
    remainder = whole_s - fsum(row.time_s for row in rows)
    if abs(remainder) <= 1e-9 * abs(whole_s):
        remainder = 0.0
    return Breakdown(
        by=by,
        phase=phase,
        whole_s=whole_s,
        rows=tuple(sorted(rows, key=lambda row: -row.time_s)),
        remainder_s=remainder,
        remainder="overlapping" if remainder < 0 else "unattributed",
    )
