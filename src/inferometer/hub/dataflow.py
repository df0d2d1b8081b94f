"""The dataflow drawing of a profile: one generation, or one pass, laid out in time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inferometer.core.profile import Phase, Profile

_MOST_SPANS = 40_000  # a drawing of more says nothing more


def dataflow_svg(profile: Profile) -> str | None:
    """The drawing, or None where the profile has no phase that a request goes through."""
    from inferometer.measure.spans import trace_of  # noqa: PLC0415 - numpy comes with it: only where it is drawn
    from inferometer.profiler.build import from_trace  # noqa: PLC0415 - as above
    from inferometer.report.drawing import drawn  # noqa: PLC0415 - as above

    fewer = replace(profile, phases=tuple(map(_fewer, profile.phases)))
    trace = trace_of(fewer)
    if not trace.spans:
        return None
    return b"".join(drawn(from_trace(trace))).decode()


def _fewer(phase: Phase) -> Phase:
    """As many steps of a long generation as can be drawn in a moment: its first ones, in their order."""
    most = max(1, _MOST_SPANS // max(len(phase.ops), 1))
    contexts = sorted(set(phase.context or ()))
    if len(contexts) <= most:
        return phase
    kept = set(contexts[:most])
    pairs = [
        (c, s) for c, s in zip(phase.context or (), phase.samples_s or (), strict=False) if c in kept
    ]  # fmt: skip
    return replace(phase, context=tuple(c for c, _ in pairs), samples_s=tuple(s for _, s in pairs))
