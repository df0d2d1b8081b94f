"""The dataflow drawing of a profile: one generation, or one pass, laid out in time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inferometer.core.profile import Phase, Profile

_MOST_SPANS = 40_000  # a drawing of more shows nothing more


def dataflow_svg(profile: Profile) -> str | None:
    """The drawing, or None if the profile has no phase that a request goes through."""
    from inferometer.measure.spans import trace_of  # noqa: PLC0415 - it brings numpy: only when drawing
    from inferometer.profiler.build import from_trace  # noqa: PLC0415 - as above
    from inferometer.report.drawing import drawn  # noqa: PLC0415 - as above

    trace = trace_of(replace(profile, phases=tuple(map(_first_steps, profile.phases))))
    if not trace.spans:
        return None
    return b"".join(drawn(from_trace(trace))).decode()


def _first_steps(phase: Phase) -> Phase:
    """The phase with as many of its first steps as can be drawn in a moment."""
    most = max(1, _MOST_SPANS // max(len(phase.ops), 1))
    contexts = sorted(set(phase.context or ()))
    if len(contexts) <= most:
        return phase
    kept = set(contexts[:most])
    samples = zip(phase.context or (), phase.samples_s or (), strict=False)
    context, samples_s = zip(*((tokens, seconds) for tokens, seconds in samples if tokens in kept), strict=True)
    return replace(phase, context=context, samples_s=samples_s)
