"""A measured profile as spans, for the dataflow view and its drawing.

One request is laid out in time: tokenise, prefill, then the steps whose kernels were timed, each as long as that step
took and with its own kernels' times in it. Between them are the steps without timers: their time passes, and nothing is
drawn. Durations are the profile's; only the positions on the time line are made up.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.core.request import BETWEEN, outside_layers, sampled_steps, step_times
from inferometer.core.trace import Segment, Span, Trace

_LAYER = re.compile(r"(?:^|[._/])(?:layers?|blk|h|blocks?)[._/](\d+)(?:[._/]|$)")
_REQUEST = ("tokenise", "encode", "prefill", "decode", "detokenise", "forward")  # in order; one-time costs are left out
_SEGMENTS = ("write", "run", "read")


def trace_of(profile: Profile) -> Trace:
    """The phases of a request one after the other; decode step by step."""
    spans: list[Span] = [Span(name="request", start_ns=0, end_ns=0)]  # its end is known once all phases are laid out
    now = 0
    for phase in profile.phases:
        if phase.name not in _REQUEST:
            continue
        now = _decode(spans, phase, now) if phase.name == "decode" else _once(spans, phase, phase.time_s, now)
    spans[0] = replace(spans[0], end_ns=now)
    created = profile.provenance.created if profile.provenance else None
    return Trace(spans=tuple(spans) if now else (), clock="profile", started_at=created)


def _decode(spans: list[Span], phase: Phase, now: int) -> int:
    """Each token at its place. Without times of the kernels in each step, one mean step stands for all of them."""
    times = step_times(phase)
    sampled = sampled_steps(phase)
    if not times or (phase.ops and sampled is None):
        return _once(spans, phase, phase.time_s, now, token=1)
    drawn = dict(zip(phase.op_context or (), range(len(sampled or ())), strict=True)) if phase.ops else {}
    for token, (context, seconds) in enumerate(times.items(), start=1):
        if phase.ops and context not in drawn:
            now += _ns(seconds)
            continue
        now = _once(spans, phase, seconds, now, token=token, step=drawn.get(context))
    return now


def _once(  # noqa: PLR0913 - what, where, and which step of it
    spans: list[Span], phase: Phase, seconds: float, now: int, *, token: int | None = None, step: int | None = None
) -> int:
    end = now + _ns(seconds)
    parent = len(spans)
    scale = seconds / phase.time_s if phase.time_s > 0 else 1.0
    segments = () if _parts_around(phase) else _segments(phase, now, end, scale)
    spans.append(
        Span(
            name=phase.name, start_ns=now, end_ns=end, phase=phase.name, token=token, parent=0,
            unit=None if phase.ops else "host", segments=segments, bytes=phase.bytes, flops=phase.flops,
        )
    )  # fmt: skip
    place = now
    for name, took, op in _inside(phase, step, scale):
        until = min(place + _ns(took), end)
        spans.append(_inner(name, op, place, until, parent=parent, phase=phase.name, token=token))
        place = until
    return end


def _inside(phase: Phase, step: int | None, scale: float) -> Iterable[tuple[str, float, OpTime | None]]:
    """What a step consists of, in order, with its times: writing, the ops, then what comes after them."""
    named = {name: scale * seconds for name, seconds in _parts_around(phase).items()}
    yield from ((name, seconds, None) for name, seconds in named.items() if name == "write")
    for op in phase.ops:
        sampled = step is not None and op.samples_s is not None
        yield op.name, op.samples_s[step] if sampled else scale * op.time_s, op  # type: ignore[index]  # checked above
    yield from ((name, seconds, None) for name, seconds in named.items() if name not in {"write", BETWEEN})


def _parts_around(phase: Phase) -> dict[str, float]:
    """The parts of a phase that are spans beside its ops; where there are none, they are segments of the phase."""
    outside = outside_layers(phase) if phase.ops else {}
    return {name: seconds for name, seconds in outside.items() if name in phase.parts}


def _inner(  # noqa: PLR0913 - where and of what
    name: str, op: OpTime | None, start: int, end: int, *, parent: int, phase: str, token: int | None
) -> Span:
    if op is None:
        return Span(name=name, start_ns=start, end_ns=end, kind=name, unit="host", phase=phase, parent=parent,
                    token=token)  # fmt: skip
    match = _LAYER.search(name)
    return Span(
        name=_LAYER.sub(".", name).strip(".") if match else name,
        start_ns=start, end_ns=end, kind=op.kind, unit=op.unit, phase=phase, parent=parent, token=token,
        layer=int(match.group(1)) if match else None, bytes=op.bytes, flops=op.flops,
    )  # fmt: skip


def _segments(phase: Phase, start: int, end: int, scale: float) -> tuple[Segment, ...]:
    """Write, run and read of a step whose ops are not known, or are a device's."""
    segments: list[Segment] = []
    for name in _SEGMENTS:
        if name in phase.parts:
            until = min(start + _ns(scale * phase.parts[name]), end)
            segments.append(Segment(name=name, start_ns=start, end_ns=until))
            start = until
    return tuple(segments)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
