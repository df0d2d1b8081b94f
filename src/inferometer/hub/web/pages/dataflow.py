"""Drawings of a profile: one generation, or one pass, laid out in time; and its layers, as small as in a list."""

from dataclasses import replace

from inferometer.core.profile import Phase, Profile
from inferometer.core.request import kept_steps

_MOST_SPANS = 40_000  # a drawing of more shows nothing more


def dataflow_svg(profile: Profile) -> str | None:
    """The drawing, or None if the profile has no phase that a request goes through."""
    from inferometer.measure.run.spans import trace_of  # noqa: PLC0415 - it brings numpy: only when drawing
    from inferometer.measure.spans.build import from_trace  # noqa: PLC0415 - as above
    from inferometer.understand.view.drawing import drawn  # noqa: PLC0415 - as above

    trace = trace_of(replace(profile, phases=tuple(map(_drawable, profile.phases))))
    if not trace.spans:
        return None
    return b"".join(drawn(from_trace(trace))).decode()


def _drawable(phase: Phase) -> Phase:
    """The phase with as many of its steps as can be drawn in a moment."""
    most = max(2, _MOST_SPANS // max(len(phase.ops), 1))
    if phase.op_context is None or len(phase.op_context) <= most:
        return phase
    kept = kept_steps(len(phase.op_context), most)
    ops = tuple(
        op if op.samples_s is None else replace(op, samples_s=tuple(op.samples_s[place] for place in kept))
        for op in phase.ops
    )
    return replace(phase, ops=ops, op_context=tuple(phase.op_context[place] for place in kept))


_BARS, _WIDE, _HIGH = 48, 96, 20  # of a thumbnail: the most bars, and its size in pixels


def layers_svg(profile: Profile | None) -> str:
    """The times of the layers of its steady phase as bars, neighbours together where they are many; maybe none."""
    phase = None if profile is None else profile.steady
    times = [] if phase is None else [op.time_s for op in phase.ops]
    each = -(-len(times) // _BARS) or 1
    bars = [sum(times[at : at + each]) for at in range(0, len(times), each)]
    most, width = max(bars, default=0.0) or 1.0, _WIDE / (len(bars) or 1)
    drawn = "".join(
        f'<rect x="{number * width:.2f}" y="{_HIGH * (1 - bar / most):.2f}" width="{max(width - 0.3, 0.3):.2f}" '
        f'height="{_HIGH * bar / most:.2f}"/>'
        for number, bar in enumerate(bars)
    )
    box = f'viewBox="0 0 {_WIDE} {_HIGH}" width="{_WIDE}" height="{_HIGH}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} fill="#0072b2">{drawn}</svg>'
