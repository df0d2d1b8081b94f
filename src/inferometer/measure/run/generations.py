"""Generations → the phases of a request with their times and parts; the ops come later.

One statistic holds for a phase and its parts: the parts are those of the very generation whose time is the median (of
the two in the middle, if their number is even), so they add up to the phase.
"""

from __future__ import annotations

from math import fsum
from statistics import median
from typing import TYPE_CHECKING

from inferometer.core.profile import Phase
from inferometer.core.request import BETWEEN, PARTS, RUN
from inferometer.measure.bench.statistics import summarise
from inferometer.measure.run.raw import event_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from inferometer.engines.base import Event
    from inferometer.measure.run.raw import Generation


def first_phase(generations: Iterable[Generation]) -> list[Phase]:
    """The prefill of the first generation after loading, which is in no statistic."""
    for generation in generations:
        if generation.first and generation.events:
            return [_timed("first_run", (event_seconds(generation.events[0]),), "single")]
    return []


def tokenise_phase(kept: Iterable[Generation]) -> list[Phase]:
    return _known("tokenise", (generation.tokenise_s for generation in kept))


def detokenise_phase(kept: Sequence[Generation]) -> list[Phase]:
    """The whole answer at once; an engine that turns each token into text as it comes has done so in its steps."""
    if any("detokenise" in event.parts for generation in kept for event in generation.events):
        return []
    return _known("detokenise", (generation.detokenise_s for generation in kept))


def _known(name: str, seconds: Iterable[float | None]) -> list[Phase]:
    known = tuple(value for value in seconds if value is not None)
    return [_timed(name, known, "median")] if known else []


def _timed(name: str, samples_s: tuple[float, ...], statistic: str) -> Phase:
    return Phase(name=name, time_s=median(samples_s), statistic=statistic, samples_s=samples_s)


def prefill_phase(kept: Iterable[Generation]) -> Phase | None:
    events = [event for generation in kept for event in generation.events if event.kind == "prefill"]
    if not events:
        return None
    seconds = tuple(event_seconds(event) for event in events)
    summary = summarise(seconds, name="prefill")
    interval = summary.median_interval
    return Phase(
        name="prefill",
        time_s=summary.median,
        low_s=interval.low if interval else None,
        high_s=interval.high if interval else None,
        statistic="median",
        samples_s=seconds,
        clean_s=summary.median,
        context=tuple(event.context for event in events),
        parts=_parts([[events[place]] for place in middle(seconds)], summary.median),
    )


def decode_phase(kept: Iterable[Generation]) -> Phase | None:
    """The time is the median over generations of their mean step. Samples are single tokens, in order."""
    steps = [(generation, _steps(generation)) for generation in kept]
    steps = [(generation, events) for generation, events in steps if events]
    if not steps:
        return None
    intervals = [token for generation, _ in steps for token in _tokens(generation)]
    means = [mean_step(generation) or 0.0 for generation, _ in steps]
    time_s = median(means)
    return Phase(
        name="decode",
        time_s=time_s,
        low_s=min(means) if len(means) > 1 else None,
        high_s=max(means) if len(means) > 1 else None,
        statistic="median over generations of the mean step",
        samples_s=tuple(seconds for seconds, _ in intervals),
        context=tuple(context for _, context in intervals),
        clean_s=time_s,
        parts=_parts([steps[place][1] for place in middle(means)], time_s),
    )


def mean_step(generation: Generation) -> float | None:
    """Seconds per token after the first: (end − first token) / (tokens − 1)."""
    tokens = _tokens(generation)
    return fsum(seconds for seconds, _ in tokens) / len(tokens) if tokens else None


def _steps(generation: Generation) -> list[Event]:
    return [event for event in generation.events if event.kind == "token"]


def _tokens(generation: Generation) -> list[tuple[float, int]]:
    """For each token after the first: the seconds since the one before it, and the tokens in the cache.

    Tokens that come in one chunk share its time.
    """
    steps = _steps(generation)
    before = [event.end_ns for event in generation.events if event.kind == "prefill"][-1:]
    last_ns = before[0] if before else steps[0].start_ns if steps else 0
    tokens: list[tuple[float, int]] = []
    for event in steps:
        seconds = (event.end_ns - last_ns) * 1e-9 / event.tokens
        tokens += [(seconds, event.context + index) for index in range(event.tokens)]
        last_ns = event.end_ns
    return tokens


def middle(values: Sequence[float]) -> tuple[int, ...]:
    """The places of the readings whose mean is the median: one, or two of an even number."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    half = len(order) // 2
    return (order[half],) if len(order) % 2 else (order[half - 1], order[half])


def _parts(groups: Sequence[Sequence[Event]], time_s: float) -> dict[str, float]:
    """Seconds a token of each part, the mean of the groups; what no part accounts for is a part too.

    An engine that is not asked for its parts has one: it runs.
    """
    told = dict.fromkeys(name for events in groups for event in events for name in event.parts)
    if not told:
        return {RUN: time_s}
    seconds = {name: fsum(_a_token(events, name) for events in groups) / len(groups) for name in told}
    if "detokenise" in seconds:  # the token is read as text
        seconds["read"] = seconds.get("read", 0.0) + seconds.pop("detokenise")
    parts = {name: seconds[name] for name in PARTS if name in seconds}
    left_s = time_s - fsum(parts.values())
    return {**parts, BETWEEN: left_s} if left_s > 1e-9 * time_s else parts


def _a_token(events: Sequence[Event], name: str) -> float:
    """A prefill reads all its tokens in one step; a later step makes some."""
    made = sum(event.tokens if event.kind == "token" else 1 for event in events)
    return fsum(event.parts.get(name, 0.0) for event in events) / made
