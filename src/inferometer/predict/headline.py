"""The times a person asks for, from the phases of a request: expected, or at either end of their intervals.

**The interval of a sum.** A request's time is a sum of phases, and so are its ends: the low end is the sum of the
phases' low ends, the high end the sum of their high ends. That is exact where the phases err together, and they nearly
do: one calibration, one device and one runtime stand behind all of them, so that a bandwidth taken too high makes the
prompt and every step too fast at once. Independent errors would partly cancel, which would make the interval of many
steps narrow for no reason. So the ends are added, and an interval that is off is too wide.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf
from typing import TYPE_CHECKING

from inferometer.core.units import format_quantity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from inferometer.core.graph import Graph
    from inferometer.core.profile import Phase
    from inferometer.core.workload import Workload
    from inferometer.predict.options import Options, Speculative

_TO_FIRST = ("tokenise", "encode", "prefill", "sampling", "transfer")
_AROUND_STEP = ("sampling", "detokenise")
AROUND = "around"  # what of a pipeline runs once a picture: text encoders before the steps, the image's decoder after
_ENDS = {"": "time_s", "_low": "low_s", "_high": "high_s"}


def headline_times(phases: Collection[Phase], workload: Workload, options: Options) -> dict[str, float | None]:
    """The four times of a request and the ends of their intervals, by the names that a `Headline` has for them.

    `latency`, `ttft`, `tpot` and `e2e`; None for a time that the request does not have. The high end of a sum is not
    known where that of a part is not.
    """
    times: dict[str, float | None] = {}
    for ending, end in _ENDS.items():
        seconds = {phase.name: inf if (each := getattr(phase, end)) is None else each for phase in phases}
        for name, time in _sums(seconds, workload, options).items():
            times[f"{name}{ending}_s"] = None if time == inf else time
    return times


def _sums(seconds: Mapping[str, float], workload: Workload, options: Options) -> dict[str, float | None]:
    times: dict[str, float | None] = dict.fromkeys(("latency", "ttft", "tpot", "e2e"))
    if "forward" in seconds:
        return {**times, "latency": seconds["forward"] * (options.steps or 1) + seconds.get(AROUND, 0.0)}
    if "prefill" in seconds:
        times["ttft"] = sum(seconds[name] for name in _TO_FIRST if name in seconds)
    if "decode" in seconds:
        times["tpot"] = _step(seconds, options.speculative)
    if times["ttft"] is not None and workload.generate:
        times["e2e"] = times["ttft"] + (workload.generate - 1) * (times["tpot"] or 0.0)
    return times


def _step(seconds: Mapping[str, float], drafting: Speculative | None) -> float:
    """Seconds a token: a step, with sampling and detokenising where they are known, and drafts shared out."""
    step = seconds["decode"] + sum(seconds[name] for name in _AROUND_STEP if name in seconds)
    if drafting is None or not drafting.length:
        return step
    return (step + drafting.length * seconds["draft"]) / tokens_gained(drafting)


def tokens_gained(drafting: Speculative) -> float:
    """Tokens that a round of drafting and checking gives on average."""
    from inferometer.known.formulas.llm import speculative_tokens  # noqa: PLC0415 - only drafting needs it

    return float(speculative_tokens(acceptance=drafting.acceptance, draft_length=drafting.length))


def windows_per_s(graph: Graph, options: Options) -> float | None:
    """Windows that a model of speech hears for each second of a recording; None of a model that states no window.

    A recording is heard window by window, and the last one is padded: 31 s of audio take two windows of 30 s.
    """
    frames, frame_s = graph.metadata.get("default_sizes", {}).get("frames"), graph.metadata.get("frame_s")
    if frames is None or frame_s is None:
        return None
    window_s = float(frames * frame_s)
    audio_s = options.audio_s or window_s
    return ceil(audio_s / window_s) / audio_s


def recording_note(windows: float, e2e_s: float) -> str:
    whole, count = format_quantity(windows * e2e_s, "s"), round(windows)
    if count == 1:
        return "The recording fits into one window of the model."
    return f"The recording is {count} windows, one after the other: {whole} in all. The times are those of one window."


def with_own_steps(graph: Graph, options: Options) -> Options:
    """With the steps that a pipeline takes where none are asked for."""
    steps = graph.metadata.get("steps")
    return options if options.steps is not None or steps is None else replace(options, steps=steps)


def with_repeats(phases: Iterable[Phase], workload: Workload, options: Options) -> list[Phase]:
    """The phases with how often a request runs them, where only the options tell: denoising steps, and drafting.

    A round of drafting and checking gives several tokens, so there are fewer rounds than tokens.
    """
    if options.steps is not None:
        return [replace(phase, repeats=float(options.steps)) if phase.name == "forward" else phase for phase in phases]
    if options.speculative is None or not options.speculative.length:
        return list(phases)
    phases = list(phases)
    prefilled = workload.generate and any(phase.name == "prefill" for phase in phases)
    rounds = (workload.generate - 1.0 if workload.generate and prefilled else 1.0) / tokens_gained(options.speculative)
    times = {
        "decode": rounds,
        "draft": rounds * options.speculative.length,
        "detokenise": rounds,
        "sampling": rounds + (1.0 if prefilled else 0.0),
    }
    return [replace(phase, repeats=times.get(phase.name)) for phase in phases]
