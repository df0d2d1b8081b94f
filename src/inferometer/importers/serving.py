"""What the load generators have in common: requests with a first token, further tokens and an end.

TTFT becomes the phase prefill, though it holds the queue, the network and the tokeniser as well; the time per further
token, (end − first token) / (tokens − 1), becomes one step of the phase decode. A source without either has one phase,
request.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from inferometer.core.profile import Phase
from inferometer.core.workload import Workload
from inferometer.errors import FormatError
from inferometer.importers.assemble import Draft, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One of a source's distributions: the value taken from it, which statistic that is, and the raw readings."""

    value_s: float
    statistic: str
    samples_s: tuple[float, ...] | None = None


def add_requests(draft: Draft, *, first: Measure | None, step: Measure | None, whole: Measure | None) -> None:
    """Phases and headline from the times to first token, per further token, and of the whole request."""
    if first is None and step is None and whole is None:
        raise FormatError("It holds no time of a request.", remedy="Check that requests succeeded.")
    for name, measure in (("prefill", first), ("decode", step)):
        if measure is not None:
            draft.phases.append(_phase(name, measure))
    if not draft.phases and whole is not None:
        draft.phases.append(_phase("request", whole))
    if first is not None:
        draft.notes.append("prefill is the time to the first token as a client sees it, with queue and network")
    draft.headline |= {
        "ttft_s": first.value_s if first else None,
        "tpot_s": step.value_s if step else None,
        "e2e_s": whole.value_s if whole else None,
    }


def _phase(name: str, measure: Measure) -> Phase:
    return Phase(name=name, time_s=measure.value_s, statistic=measure.statistic, samples_s=measure.samples_s)


def add_sizes(draft: Draft, *, prompt: float | None, generate: float | None, arrival: float | None = None) -> None:
    draft.workload = Workload(
        prompt=tokens(prompt, "prompt", draft.notes),
        generate=tokens(generate, "generate", draft.notes),
        arrival_per_s=arrival or None,
    )


def per_step(gaps: Sequence[float]) -> float | None:
    """The mean time between a request's tokens, from the gaps between them."""
    return sum(gaps) / len(gaps) if gaps else None
