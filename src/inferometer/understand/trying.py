"""Advice put to the test: make the change, measure both here and now, and compare the gain with the prediction.

The baseline is measured before and after all changes, so that a machine that gets slower meanwhile does not look like a
gain or a loss. A change that the runtime cannot make on the spot is not tried, and the trial says why.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import Any

from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.finding import Finding
from inferometer.core.frozen import frozen
from inferometer.core.profile import Profile
from inferometer.engines.base import Capabilities
from inferometer.known.files import row_named
from inferometer.measure.bench.verdict import judge
from inferometer.measure.run.model import MeasureRequest
from inferometer.predict.change import Change, parse_change
from inferometer.understand.advice import preparations
from inferometer.understand.judging import other_machine

Measure = Callable[[MeasureRequest], Profile]

OURS = "inferometer profile"


@frozen
class Trial:
    """One change. `obtained` is before over after, per item of the batch; `why` says why it was not tried."""

    change: str
    code: str
    predicted: float | None = None
    predicted_low: float | None = None
    predicted_high: float | None = None
    before_s: float | None = None
    after_s: float | None = None
    obtained: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str | None = None
    reason: str | None = None
    why: str | None = None
    as_predicted: bool | None = None  # the two intervals overlap
    notes: tuple[str, ...] = ()


def require_ours(profile: Profile) -> None:
    """Only what `inferometer profile` measured on this machine can be measured again."""
    provenance = profile.provenance
    if profile.kind != "measured" or provenance is None or provenance.tool != OURS:
        origin = (
            "a prediction" if profile.kind == "predicted" else f"from {provenance.tool if provenance else 'elsewhere'}"
        )
        raise DomainError(
            f"--try repeats a measurement, and this profile is {origin}.",
            remedy="Measure it first: `inferometer profile MODEL -o FILE`, then `inferometer explain FILE --try`.",
        )
    elsewhere = other_machine(profile)
    if elsewhere is not None:
        raise DomainError(
            f"--try measures here, and this run was made on another machine, {elsewhere.called}.",
            remedy="Try it there, or measure the model here first with `inferometer profile`.",
        )


def same_request(profile: Profile) -> MeasureRequest:
    """The measurement that led to the profile, as far as the profile says."""
    named = row_named("models", profile.model.name) is not None
    model = profile.model.name if named else profile.model.source
    if model is None:
        raise DomainError(f"The profile does not say where {profile.model.name} is.", remedy="Measure it again.")
    environment = profile.environment
    return MeasureRequest(
        model=model,
        runtime=profile.runtime,
        workload=replace(profile.workload, precision=type(profile.workload.precision)()),
        threads=environment.threads if environment else None,
        sizes=profile.sizes,
    )


def try_changes(
    findings: Iterable[Finding], request: MeasureRequest, *, measure: Measure, can: Capabilities
) -> tuple[Trial, ...]:
    """Try each change that a finding proposes, once, in the order of the findings."""
    wanted: dict[str, Finding] = {}
    for finding in findings:
        for change in finding.changes:
            wanted.setdefault(change, finding)
    orders = {change: with_preparation(request, change, can) for change in wanted}
    if all(isinstance(order, str) for order in orders.values()):  # each says why it cannot be tried
        return tuple(_blank(change, wanted[change], why=str(orders[change])) for change in wanted)
    before = measure(replace(request, shape=False))
    after: dict[str, Profile | str] = {}
    for change, order in orders.items():
        after[change] = order if isinstance(order, str) else _measured(measure, order)
    again = measure(replace(request, shape=False))
    base = (*_items(before), *_items(again))
    return tuple(_judged(_blank(change, wanted[change]), base, after[change]) for change in wanted)


def _measured(measure: Measure, order: MeasureRequest) -> Profile | str:
    try:
        return measure(replace(order, shape=False))
    except InferometerError as error:
        return str(error)


def _blank(change: str, finding: Finding, *, why: str | None = None) -> Trial:
    """A trial before it is measured. A finding predicts only its first change."""
    first = finding.changes[0] == change
    return Trial(
        change=change,
        code=finding.code,
        predicted=finding.gain if first else None,
        predicted_low=finding.gain_low if first else None,
        predicted_high=finding.gain_high if first else None,
        why=why,
    )


def _judged(trial: Trial, base: Sequence[float], after: Profile | str) -> Trial:
    if isinstance(after, str):
        return replace(trial, why=after)
    refused = next(
        (note for note in (after.provenance.notes if after.provenance else ()) if "not applied" in note), None
    )
    readings = _items(after)
    if refused or not base or not readings:
        return replace(trial, why=refused or "no time of a run was measured")
    outcome = judge(base, readings)
    evidence = outcome.evidence
    low, high = (1 / evidence.high if evidence.high else None), (1 / evidence.low if evidence.low else None)
    disturbed = after.environment.reasons if after.environment and after.environment.disturbed else ()
    return replace(
        trial,
        before_s=median(base),
        after_s=median(readings),
        obtained=1 / evidence.ratio,
        low=low,
        high=high,
        verdict=outcome.verdict,
        reason=outcome.reason,
        as_predicted=_overlap(trial, low, high),
        notes=disturbed,
    )


def _overlap(trial: Trial, low: float | None, high: float | None) -> bool | None:
    if trial.predicted_low is None or trial.predicted_high is None or low is None or high is None:
        return None
    return low <= trial.predicted_high and trial.predicted_low <= high


def _items(profile: Profile) -> tuple[float, ...]:
    """Seconds per item of the batch, in each run of the phase that repeats."""
    phase = profile.steady
    return tuple(seconds / profile.workload.batch for seconds in (phase.samples_s or ())) if phase else ()


def with_change(request: MeasureRequest, text: str, can: Capabilities) -> MeasureRequest | str:
    """The same measurement with one thing changed, or why it cannot be made here."""
    change = parse_change(text)
    refusal = _refusal(request, change, can)
    if refusal is not None:
        return refusal
    fields: dict[str, Any] = {change.key: change.value}
    if change.key == "threads":
        fields = {"threads": change.number}
    elif change.key == "batch":
        fields = {"workload": replace(request.workload, batch=change.number)}
    elif change.key == "unit":
        fields["providers"] = ()
    elif change.key == "provider":
        fields = {"providers": (change.value,), "unit": None}
    return replace(request, **fields)


def with_preparation(request: MeasureRequest, text: str, can: Capabilities) -> MeasureRequest | str:
    """As `with_change`; other numbers are made by the tools that `prepare` knows.

    Not where the engine computes in them without another file, and not weights of a name of the catalog: those are
    random, and made in the format.
    """
    order, change = with_change(request, text, can), parse_change(text)
    if change.key not in {"weights", "precision"}:
        return order
    made_so = change.value in can.precision or (change.key == "weights" and row_named("models", request.model))
    if made_so and not isinstance(order, str):
        return order
    way = next(iter(preparations(request.model, request.runtime, text)), None)
    if way is None or request.runtime is None:
        return order
    from inferometer.measure.prepare.run import PrepareRequest, carry_out_request  # noqa: PLC0415 - only who tries makes files

    try:
        prepared = carry_out_request(
            PrepareRequest(
                model=way.model,
                runtime=request.runtime,
                quantise=way.quantise,
                measure=False,
                workload=replace(request.workload, image=request.workload.image or way.image),
                sizes={**way.sizes, **request.sizes},
                threads=request.threads,
                seed=request.seed,
            )
        )
    except InferometerError as error:
        return str(error)
    if not prepared.right or prepared.artifact is None:
        return f"{way.quantise} gives wrong outputs: {prepared.steps[-1].notes[-1]}"
    return replace(request, model=str(prepared.artifact))


_ON_THE_SPOT = frozenset({
    "threads", "batch", "optimisation", "precision", "weights", "unit", "provider", "runtime",
})  # fmt: skip


def _refusal(request: MeasureRequest, change: Change, can: Capabilities) -> str | None:
    key, value = change.key, change.value
    reasons = {
        "threads": "this engine chooses its threads itself" if not can.threads
        else f"it had {value} threads already" if str(request.threads) == value else None,
        "optimisation": "this engine has no levels of graph optimisation" if value not in can.optimisation
        # the last level is the default: engines optimise all they can unless asked not to
        else f"it was measured with graph optimisation {value} already"
        if (request.optimisation or can.optimisation[-1]) == value else None,
        "precision": "it was asked for already" if request.precision == value else None,
        "weights": f"the file has its weights: convert it to {value} with its engine's own tool, and profile that"
        if row_named("models", request.model) is None else None,
        "unit": f"this engine does not run on {value}" if value not in can.units else None,
    }  # fmt: skip
    if key not in _ON_THE_SPOT:
        return f"{key} cannot be changed on the spot"
    return reasons.get(key)


def trial_document(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    return [asdict(trial) for trial in trials]
