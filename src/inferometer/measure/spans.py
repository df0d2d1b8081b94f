"""A measured profile as spans, for the dataflow view and its drawing.

One request is laid out in time: tokenise, prefill, then each step, with the kernels of the instrumented run inside at
their corrected times. Durations are the profile's; only the positions on the time line are made up.
"""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING

from inferometer.core.trace import Segment, Span, Trace

if TYPE_CHECKING:
    from inferometer.core.profile import OpTime, Phase, Profile

_LAYER = re.compile(r"(?:^|[._/])(?:layers?|blk|h|blocks?)[._/](\d+)(?:[._/]|$)")
_REQUEST = ("tokenise", "encode", "prefill", "decode", "detokenise", "forward")  # in order; one-time costs are left out
_SEGMENTS = ("write", "run", "read")


def trace_of(profile: Profile) -> Trace:
    """The phases of a request one after the other; decode once per token, as long as that token took."""
    spans: list[Span] = []
    now = 0
    for phase in profile.phases:
        if phase.name not in _REQUEST:
            continue
        if phase.name == "decode":
            now = _decode(spans, phase, now)
        else:
            now = _once(spans, phase, phase.time_s, now, token=None)
    created = profile.provenance.created if profile.provenance else None
    return Trace(spans=tuple(spans), clock="profile", started_at=created)


def _decode(spans: list[Span], phase: Phase, now: int) -> int:
    """The median of each token over the generations, in the order of their contexts."""
    by_context: dict[int, list[float]] = {}
    for context, seconds in zip(phase.context or (), phase.samples_s or (), strict=False):
        by_context.setdefault(context, []).append(seconds)
    steps = [median(times) for _, times in sorted(by_context.items())] or [phase.time_s]
    for token, seconds in enumerate(steps, start=1):
        now = _once(spans, phase, seconds, now, token=token)
    return now


def _once(spans: list[Span], phase: Phase, seconds: float, now: int, *, token: int | None) -> int:
    end = now + _ns(seconds)
    parent = len(spans)
    scale = seconds / phase.time_s if phase.time_s > 0 else 1.0
    unit = None if phase.ops else "host"
    segments = _segments(phase, now, end)
    spans.append(
        Span(
            name=phase.name, start_ns=now, end_ns=end, phase=phase.name, token=token, unit=unit, segments=segments,
            bytes=phase.bytes, flops=phase.flops,
        )
    )  # fmt: skip
    place = now
    for op in phase.ops:
        place = _kernel(spans, op, place, end, parent=parent, scale=scale, phase=phase.name, token=token)
    return end


def _kernel(  # noqa: PLR0913 - where and of what
    spans: list[Span], op: OpTime, place: int, end: int, *, parent: int, scale: float, phase: str, token: int | None
) -> int:
    until = min(place + _ns(op.time_s * scale), end)
    match = _LAYER.search(op.name)
    spans.append(
        Span(
            name=_LAYER.sub(".", op.name).strip(".") if match else op.name,
            start_ns=place, end_ns=until, kind=op.kind, unit=op.unit, phase=phase, parent=parent, token=token,
            layer=int(match.group(1)) if match else None, bytes=op.bytes, flops=op.flops,
        )
    )  # fmt: skip
    return until


def _segments(phase: Phase, start: int, end: int) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    for name in _SEGMENTS:
        if name in phase.parts:
            until = min(start + _ns(phase.parts[name]), end)
            segments.append(Segment(name=name, start_ns=start, end_ns=until))
            start = until
    return tuple(segments)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
