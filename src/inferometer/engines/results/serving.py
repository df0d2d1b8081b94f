"""What the load generators have in common: requests with a first token, further tokens and an end.

TTFT becomes the phase prefill, though it holds the queue, the network and the tokeniser as well; the time per further
token, (end − first token) / (tokens − 1), becomes one step of the phase decode. A source without either has one phase,
request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.core.profile import Phase, Profile
from inferometer.core.served import Distribution, Level, LevelFigures, Served
from inferometer.core.traffic.figures import figures_of, headline_of
from inferometer.core.workload import Workload
from inferometer.engines.results.assemble import Draft, tokens


@frozen
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


@frozen
class Offered:
    """The load that a source says it made: requests a second, or requests at once; None is as fast as possible."""

    rate_per_s: float | None = None
    concurrency: int | None = None

    @property
    def name(self) -> str:
        if self.rate_per_s is not None:
            return f"{self.rate_per_s:g}/s"
        return "all at once" if self.concurrency is None else f"{self.concurrency} at once"


def add_level(draft: Draft, offered: Offered, figures: LevelFigures) -> None:
    """The run as one level of load, with the figures that the source states: it is drawn and compared like our own."""
    level = Level(
        name=offered.name,
        rate_per_s=offered.rate_per_s,
        concurrency=offered.concurrency if offered.rate_per_s is None else None,
        seconds=figures.window_s,
        stated=figures,
    )
    loop = "open" if offered.rate_per_s is not None else "closed"
    arrivals = f"as {draft.tool} made it: {offered.name}"
    draft.served = Served(
        loop=loop,  # type: ignore[arg-type] # one of two words
        levels=(level,),
        streamed=figures.ttft_s is not None,
        arrivals=arrivals,
        prompts=f"as {draft.tool} counts them",
    )


def distribution(values: Mapping[str, float | None], *, count: int | None = None) -> Distribution | None:
    """What a source states of a time, by our names; None where it states nothing."""
    known = {name: value for name, value in values.items() if value is not None}
    return Distribution(count=count, **known) if known else None


def per_step(gaps: Sequence[float]) -> float | None:
    """The mean time between a request's tokens, from the gaps between them."""
    return sum(gaps) / len(gaps) if gaps else None


def as_sweep(profiles: Sequence[Profile]) -> Profile:
    """Several results of one service, each at its own load, as one profile with a level for each: the knee is seen."""
    levels = [(level, profile) for profile in profiles if profile.served is not None for level in profile.served.levels]
    if not levels or len(levels) < len(profiles):
        raise FormatError(
            "Not every result in the file is of a service under load.", remedy="Import them apart: leave --sweep out."
        )
    different = {(profile.model.name, profile.device.name, profile.runtime) for profile in profiles}
    if len(different) > 1:
        names = "; ".join(" on ".join(filter(None, each[:2])) for each in sorted(different, key=str))
        raise FormatError(f"The results are of several services: {names}.", remedy="Leave --sweep out.")
    levels.sort(key=lambda pair: pair[0].rate_per_s or pair[0].concurrency or 0)
    ordered = tuple(level for level, _ in levels)
    headline = headline_of([figures_of(level) for level in ordered])
    first = levels[headline][1]
    assert first.served is not None  # noqa: S101 - asked above
    return replace(first, served=replace(first.served, levels=ordered, headline=headline))
