"""Compare two profiles: a verdict for each metric and each op.

Times with raw samples are compared by rank tests (`verdict`), pair by pair where both were taken in turns. Times with
only an interval are compared by it, and single numbers have a ratio but no verdict on noise. Two predictions have no
noise: their ratio stands. The p-values of all metrics are corrected together, and so are those of all ops (Holm).
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from inferometer.core import statistics
from inferometer.core.frozen import frozen
from inferometer.core.lazy import Framed, late
from inferometer.core.profile import Environment, OpTime, Phase, Profile
from inferometer.measure.bench.measurement import TOOL, turns_of
from inferometer.measure.bench.ranks import holm
from inferometer.measure.bench.verdict import Call, Criteria, Evidence, Judgement, decide, weigh, weigh_intervals

# The comparable numbers of a profile: the times of its phases and ops, and a few scalars.

LATENCY, SUSTAINED = "latency", "sustained"
_LATENCY_PHASES = ("forward", "run")
_SERVED = ("e2e", "ttft", "tpot")

Key = tuple[str | None, str]  # phase, where it is an op's, and name


@frozen
class Figure:
    """A time, with whatever is known of its noise."""

    value: float
    samples: tuple[float, ...] | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, timed: Phase | OpTime) -> "Figure":
        return cls(value=timed.time_s, samples=timed.samples_s or None, low=timed.low_s, high=timed.high_s)

    @property
    def interval(self) -> tuple[float, float, float] | None:
        if self.low is None or self.high is None or not 0 < self.low <= self.value <= self.high:
            return None
        return self.low, self.value, self.high


def phase_times(profile: Profile) -> dict[Key, Figure]:
    """By metric name: the phase's, or `latency` for the one phase of a model without a cache.

    `sustained` is what the phase that repeats takes in the end of a long run, where both were watched for one.
    """
    times: dict[Key, Figure] = {}
    for phase in profile.phases:
        is_latency = phase.name in _LATENCY_PHASES and profile.summary.latency_s is not None
        times[None, LATENCY if is_latency else phase.name] = Figure.of(phase)
    if (lasts := profile.sustained) is not None:
        windows = tuple(each for at, each in zip(lasts.at_s, lasts.latency_s, strict=True) if at > lasts.steady_after_s)
        times[None, SUSTAINED] = Figure(
            value=lasts.steady_s, samples=windows or None, low=lasts.low_s, high=lasts.high_s
        )
    return times


def served_times(profile: Profile) -> dict[Key, Figure]:
    """Of a service under load, by level: `e2e at 4/s`, `ttft at 4/s`, `tpot at 4/s`; the headline level first."""
    served = profile.served
    if served is None:
        return {}
    from inferometer.core.traffic.figures import figures_of, median_of, times_of  # noqa: PLC0415 - numpy, for these alone

    times: dict[Key, Figure] = {}
    for level in sorted(served.levels, key=lambda level: level is not served.levels[served.headline]):
        figures = figures_of(level)
        for metric in _SERVED:
            samples = times_of(level, metric)
            stated = median_of(getattr(figures, f"{metric}_s"))
            if samples or stated is not None:
                value = statistics.median(samples) if samples else stated or 0.0
                times[None, f"{metric} at {level.name}"] = Figure(value=value, samples=samples or None)
    return times


def op_times(profile: Profile) -> dict[Key, Figure]:
    """By phase and name; the second op of the same name is `name #2`."""
    times: dict[Key, Figure] = {}
    for phase in profile.phases:
        seen: dict[str, int] = {}
        for op in phase.ops:
            seen[op.name] = seen.get(op.name, 0) + 1
            name = op.name if seen[op.name] == 1 else f"{op.name} #{seen[op.name]}"
            times[phase.name, name] = Figure.of(op)
    return times


def scalars(profile: Profile) -> dict[str, float | None]:
    """Figures of the headline that have no samples. An input is counted apart only where several ran at once."""
    summary, batch, decode = profile.summary, profile.workload.batch, profile.phase("decode")
    token_j = decode.energy_j if decode is not None else None
    return {
        "memory": summary.peak_memory_bytes,
        "energy": summary.energy_j,
        "energy_per_token": None if token_j is None else token_j / batch,
        "energy_per_input": None if summary.energy_j is None or batch < 2 else summary.energy_j / batch,
        "tokens_per_s": summary.tokens_per_s,
    }


_PRIMARY = (SUSTAINED, LATENCY, "decode", "prefill")  # what the verdict on the whole is of: the first that both have
_COVERAGE = 0.95  # of the intervals that profiles carry
UNITS = {"memory": "B", "energy": "J", "energy_per_token": "J", "energy_per_input": "J", "tokens_per_s": "token/s"}
_SHOWN = 3
_WHEN = ("before ", "during ", "after ", "for an ")  # reasons that go on where a sentence stops
_MEMORY_NOISE = 0.02  # between two runs of one model: buffers, threads' stacks, pages touched
_FROM_EVIDENCE = ("ratio", "low", "high", "test", "effect", "detectable", "runs", "runs_needed")

Better = Literal["lower", "higher"]


@frozen
class ComparedMetric:
    """One thing compared. `ratio` is B over A; `p_value` is corrected. None is what the data cannot say.

    `effect` is Cliff's delta, of pairs the share that rose less the share that fell. `detectable` is the smallest
    relative difference that these samples would find; with `runs_needed` runs per side they would find the threshold.
    """

    name: str
    verdict: Call
    reason: str
    unit: str = "s"
    better: Better = "lower"
    sure: bool = True  # enough for a gate
    phase: str | None = None
    a: float | None = None
    b: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    test: str | None = None
    effect: float | None = None
    detectable: float | None = None
    runs: int | None = None
    runs_needed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Framed):
    """B against A, the baseline. `metric` names the one that the verdict on the whole is of."""

    a: str
    b: str
    metric: str
    metrics: tuple[ComparedMetric, ...]
    ops: tuple[ComparedMetric, ...]
    notes: tuple[str, ...]
    criteria: Criteria

    @property
    def main(self) -> ComparedMetric:
        return next(metric for metric in self.metrics if metric.name == self.metric)

    def __repr__(self) -> str:
        ratio = f", {self.main.ratio:.3f} of the time" if self.main.ratio is not None else ""
        return f"<comparison of {self.b} with {self.a}: {self.main.verdict} ({self.metric}{ratio})>"

    def to_columns(self) -> dict[str, Any]:
        """One row a metric, then one an op: lists by name, times in seconds, `ratio` is B over A."""
        columns: dict[str, Any] = late("frames", "comparison_columns")(self)
        return columns

    def _repr_html_(self) -> str:
        return str(late("notebook", "view_html")(self))


@frozen
class _Terms:
    """How two profiles may be compared."""

    criteria: Criteria
    in_turns: bool
    predictions: bool
    disturbed: str | None


def compare(
    a: Profile, b: Profile, *, criteria: Criteria | None = None, names: tuple[str, str] = ("A", "B"), ops: bool = True
) -> Comparison:
    """Whether B is faster or slower than A, as a whole, in each phase and, with `ops`, in each op."""
    criteria = criteria or Criteria()
    turns = turns_of(a)
    terms = _Terms(
        criteria=criteria,
        in_turns=turns is not None and turns == turns_of(b),
        predictions=a.kind == b.kind == "predicted",
        disturbed=_disturbance(a.environment, names[0]) or _disturbance(b.environment, names[1]),
    )
    # Loads are compared with their equals: a sweep's headline may be another level on either side.
    is_served = bool(served_times(a).keys() & served_times(b).keys())
    times = _judged(*((served_times(a), served_times(b)) if is_served else (phase_times(a), phase_times(b))), terms)
    if not times:
        times = [ComparedMetric(name=LATENCY, verdict="undecided", reason="the two have no phase in common")]
    known = {metric.name for metric in times}
    timed = (op_times(a), op_times(b)) if ops else ({}, {})
    return Comparison(
        a=names[0],
        b=names[1],
        metric=next((name for name in _PRIMARY if name in known), times[0].name),
        metrics=(*times, *_compared_scalars(a, b, criteria.threshold)),
        ops=tuple(_judged(*timed, replace(terms, in_turns=False))),  # layers are measured apart
        notes=(*_notes(a, b, names), *_alone(timed, names)),
        criteria=criteria,
    )


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    """The JSON that other programs rely on: verdict, ratio, low, high, p_value, reason, ops, and more."""
    main = comparison.main
    return {
        **{name: getattr(main, name) for name in ("verdict", "ratio", "low", "high", "p_value", "reason")},
        "metric": comparison.metric,
        "a": comparison.a,
        "b": comparison.b,
        "metrics": [asdict(metric) for metric in comparison.metrics],
        "ops": [asdict(op) for op in comparison.ops],
        "notes": list(comparison.notes),
        "criteria": asdict(comparison.criteria),
    }


def _judged(a: Mapping[Key, Figure], b: Mapping[Key, Figure], terms: _Terms) -> list[ComparedMetric]:
    """Verdicts on the times that both have, their p-values corrected for their number."""
    weighed = [(key, a[key], b[key], _evidence(a[key], b[key], terms)) for key in a if key in b]
    adjusted = iter(holm([evidence.p_value for *_, evidence in weighed if evidence and evidence.p_value is not None]))
    metrics = []
    for (phase, name), first, second, evidence in weighed:
        shown: dict[str, Any] = {"verdict": "undecided", "reason": "a time of 0 s has no ratio"}
        if evidence is not None:
            p_value = next(adjusted) if evidence.p_value is not None else None
            judged = _undisturbed(_judgement(evidence, p_value, terms), terms)
            shown = {name: getattr(evidence, name) for name in _FROM_EVIDENCE}
            shown |= {"verdict": judged.verdict, "reason": judged.reason, "sure": judged.sure, "p_value": p_value}
        metrics.append(ComparedMetric(name=name, phase=phase, a=first.value, b=second.value, **shown))
    return metrics


def _evidence(a: Figure, b: Figure, terms: _Terms) -> Evidence | None:
    if a.value <= 0 or b.value <= 0:
        return None
    if a.samples is not None and a.samples == b.samples:
        return Evidence(ratio=1.0, low=1.0, high=1.0, p_value=1.0, test="the very same samples")
    if a.samples and b.samples and max(len(a.samples), len(b.samples)) > 1 and min(*a.samples, *b.samples) > 0:
        paired = terms.in_turns and len(a.samples) == len(b.samples)
        return weigh(a.samples, b.samples, paired=paired, criteria=terms.criteria)
    if not terms.predictions and a.interval and b.interval:
        return weigh_intervals(a.interval, b.interval, coverage=_COVERAGE)
    test = "predictions" if terms.predictions else "single numbers"
    return Evidence(ratio=b.value / a.value, low=None, high=None, p_value=None, test=test)


def _judgement(evidence: Evidence, p_value: float | None, terms: _Terms) -> Judgement:
    if p_value is not None:
        return decide(evidence, terms.criteria, p_value=p_value)
    ratio = evidence.ratio
    if evidence.test == "predictions":
        near = max(ratio, 1 / ratio) < 1 + terms.criteria.threshold
        verdict: Call = "same" if near else "slower" if ratio > 1 else "faster"
        reason = f"ratio {ratio:.4g}: both are predictions, without noise"
        return Judgement(verdict=verdict, reason=reason, evidence=evidence)
    reason = f"ratio {ratio:.4g}: one number per side, so noise cannot be ruled out"
    return Judgement(verdict="undecided", reason=reason, evidence=evidence)


def _undisturbed(judged: Judgement, terms: _Terms) -> Judgement:
    """Runs that were disturbed, and not taken in turns, may differ for that reason alone."""
    sure = judged.evidence.in_turns or judged.evidence.test == "predictions"
    if terms.disturbed is None or sure or judged.verdict not in {"faster", "slower"}:
        return judged
    reason = f"{judged.reason}; but {terms.disturbed}, which may be why: measure both in turns, with --against"
    return replace(judged, sure=False, reason=reason)


def _disturbance(environment: Environment | None, name: str) -> str | None:
    if environment is None or not environment.disturbed:
        return None
    why = environment.reasons[0].rstrip(".") if environment.reasons else "for an unknown reason"
    return f"{name} was disturbed{'' if why.startswith(_WHEN) else ':'} {why}"


def _compared_scalars(a: Profile, b: Profile, threshold: float) -> Iterator[ComparedMetric]:
    """Memory, energy, throughput: one number per side. Near ones are the same; memory is judged, others are not.

    A peak of memory follows from what is allocated, and hardly from chance: what differs by more than allocators and
    threads vary is more or less.
    """
    others = scalars(b)
    for name, first in scalars(a).items():
        second = others[name]
        if not first or not second:
            continue
        ratio = second / first
        judged = name == "memory"
        near = max(ratio, 1 / ratio) < 1 + (max(threshold, _MEMORY_NOISE) if judged else threshold)
        verdict: Call = "same" if near else ("more" if ratio > 1 else "less") if judged else "undecided"
        reason = f"ratio {ratio:.4g}: one number per side"
        if judged:
            reason = (
                f"{abs(ratio - 1):.1%} {'more' if ratio > 1 else 'less'} at the peak" if ratio != 1 else "equal peaks"
            )
        elif not near:
            reason += ", so noise cannot be ruled out"
        yield ComparedMetric(
            name=name,
            unit=UNITS[name],
            verdict=verdict,
            reason=reason,
            better="higher" if name == "tokens_per_s" else "lower",
            a=first,
            b=second,
            ratio=ratio,
            test="single numbers",
        )


def _notes(a: Profile, b: Profile, names: tuple[str, str]) -> Iterator[str]:
    """What else differs: a reader should know that two things may have changed."""
    named = all(side.provenance is not None and side.provenance.tool == TOOL for side in (a, b))  # no models: names
    for what, first, second in (
        ("kind", a.kind, b.kind),
        ("device", a.device.name, b.device.name),
        ("runtime", a.runtime, b.runtime),
        ("workload", a.workload, b.workload),
        ("model", a.model.name, b.model.name),
    ):
        if first != second and not (what == "model" and named):
            shown = "" if what == "workload" else f": {first} and {second}"
            yield f"The {what} differs{shown}."
    yield from _environment_notes(a.environment or Environment(), b.environment or Environment(), names)


def _alone(timed: tuple[Mapping[Key, Figure], Mapping[Key, Figure]], names: tuple[str, str]) -> Iterator[str]:
    first, second = timed
    for name, left, right in ((names[0], first, second), (names[1], second, first)):
        alone = [op for _, op in left.keys() - right.keys()]
        if alone:
            more = f" and {len(alone) - _SHOWN} more" if len(alone) > _SHOWN else ""
            yield f"Only {name} has the op {', '.join(sorted(alone)[:_SHOWN])}{more}."


def _environment_notes(a: Environment, b: Environment, names: tuple[str, str]) -> Iterator[str]:
    if a.machine is not None and b.machine is not None and a.machine.id != b.machine.id:
        yield f"The machine differs: {a.machine.title()} and {b.machine.title()}."
    for package in sorted(a.versions.keys() & b.versions.keys()):
        if a.versions[package] != b.versions[package]:
            yield f"{package} is {a.versions[package]} in {names[0]} and {b.versions[package]} in {names[1]}."
    for key in ("cpu", "logical_cores", "system"):
        first, second = a.host.get(key), b.host.get(key)
        if first is not None and second is not None and first != second:
            yield f"The {key.replace('_', ' ')} differs: {first} and {second}."
    for environment, name in ((a, names[0]), (b, names[1])):
        if environment.disturbed:
            yield f"{_disturbance(environment, name)}."
