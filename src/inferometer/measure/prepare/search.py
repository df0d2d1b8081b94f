"""What is searched for: the format that a target runs best, and the settings that its engine opens it with.

Every format is tried within a budget; those stay that no other beats in speed, size and drift.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from inferometer.core.device import LOCAL, is_local
from inferometer.core.errors import DomainError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.notices import tell
from inferometer.core.profile import Verification
from inferometer.engines.host import threads_of
from inferometer.known.engines import engine as engine_named
from inferometer.measure.bench.compare import ComparedMetric, compare
from inferometer.measure.bench.plan import Plan
from inferometer.measure.prepare.artifact import starting_format
from inferometer.measure.prepare.chain import formats_for
from inferometer.measure.prepare.run import Prepared, PrepareRequest, carry_out_request
from inferometer.measure.run.against import measure_in_turns
from inferometer.measure.run.model import MeasureRequest, verify_against

AS_IT_IS = "as it is"
GOALS = ("drift", "latency", "size")


@frozen
class Goal:
    """A limit that a format must keep: `drift<=1%`, `latency<=0.7x`, `size<=0.5x`."""

    name: str
    most: float

    def met_by(self, row: "Found") -> bool:
        drift, latency, size = (None, None, None) if row.prepared is None else _figures(row.prepared)
        figure = {"drift": drift, "latency": latency, "size": size}[self.name]
        return figure is not None and figure <= self.most


def parse_goal(text: str) -> Goal:
    """A share is of the original's time or size, with an x behind it if one likes; a drift may be in per cent."""
    found = re.fullmatch(r"\s*(\w+)\s*(?:<=|≤|<)\s*([0-9.]+)\s*(%|x|×)?\s*", text.casefold())
    if found is None or found[1] not in GOALS or not _is_number(found[2]):
        raise DomainError(
            f"{text!r} is no goal.", remedy=f'Goals are limits of {", ".join(GOALS)}, as in --goal "latency<=0.7x".'
        )
    return Goal(name=found[1], most=float(found[2]) / (100 if found[3] == "%" else 1))


def _is_number(text: str) -> bool:
    return text.count(".") < 2 and text != "."


@frozen
class Found:
    """One format: what came of it, or why nothing did. `best` says that no other is better in every respect.

    `meets` says whether it keeps every goal; None where none was set.
    """

    quantise: str
    prepared: Prepared | None = None
    reason: str | None = None
    best: bool = False
    meets: bool | None = None


def search(
    request: PrepareRequest,
    *,
    budget_s: float,
    goals: Sequence[Goal] = (),
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Found, ...]:
    """Prepare the model in each format; those that there is no time left for are listed as not tried."""
    begun = clock()
    engine = engine_named(request.runtime)
    form, generates = starting_format(request.model, engine)
    names = (None, *formats_for(form, engine, generates=generates))
    found: list[Found] = []
    for name in names:
        shown = name or AS_IT_IS
        if found and clock() - begun > budget_s:
            found.append(Found(quantise=shown, reason="not tried: the budget is used up"))
            continue
        tell(f"Trying {shown} …")
        try:
            prepared = carry_out_request(replace(request, quantise=name, out=None))
        except InferometerError as error:
            found.append(Found(quantise=shown, reason=str(error)))
            continue
        wrong = next((row for row in prepared.steps if row.verdict == "wrong"), None)
        reason = None if prepared.right else f"{wrong.name if wrong else 'a step'} makes the outputs wrong"
        found.append(Found(quantise=shown, prepared=prepared, reason=reason))
    marked = with_best(tuple(found))
    if not goals:
        return marked
    return tuple(replace(row, meets=row.reason is None and all(goal.met_by(row) for goal in goals)) for row in marked)


def chosen(found: Sequence[Found]) -> Found | None:
    """The fastest that keeps every goal."""
    meeting = [row for row in found if row.meets]
    return min(meeting, key=_measures, default=None)


def with_best(found: tuple[Found, ...]) -> tuple[Found, ...]:
    """Marked are those that are right, and that no other right one beats in one respect and equals in the others."""
    right = [row for row in found if row.prepared is not None and row.prepared.right]
    return tuple(
        replace(row, best=row in right and not any(_beats(other, row) for other in right if other is not row))
        for row in found
    )


def _beats(other: Found, row: Found) -> bool:
    mine, theirs = _measures(row), _measures(other)
    return all(a <= b for a, b in zip(theirs, mine, strict=True)) and theirs != mine


def _measures(row: Found) -> tuple[float, float, float]:
    """Time, size and drift, each the smaller the better; the time is over the original's."""
    prepared = row.prepared
    if prepared is None:
        return float("inf"), float("inf"), float("inf")
    drift, latency, _ = _figures(prepared)
    return latency or 1.0, float(prepared.bytes or prepared.original_bytes), drift or 0.0


def _figures(prepared: Prepared) -> tuple[float | None, float | None, float]:
    """Drift, time and size, the latter over the original's; what is the original has none of the first."""
    gain = prepared.measured_gain or prepared.predicted_gain
    as_it_is = prepared.bytes is None
    drift = 0.0 if as_it_is and prepared.drift is None else prepared.drift
    latency = 1 / gain if gain else 1.0 if as_it_is else None
    return drift, latency, (prepared.bytes or prepared.original_bytes) / prepared.original_bytes


# The settings that an engine opens a file with, tried one by one: threads, providers, and options of its own.
#
# Each is measured in turns with the best so far and kept where it is faster beyond doubt. What was kept is then
# measured once more against the engine's own choice: the best of many tries looks better than it is.

_PLAN = Plan(runs=15, warmup=3, seconds=0.0, seconds_at_most=60.0)  # as a step is proven
_PROVIDERS = "providers"  # a key of an engine's `tuned` that is no option


@frozen
class Setting:
    """How a file is opened; None and nothing are the engine's own choice."""

    threads: int | None = None
    providers: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def flags(self) -> str:
        """As `inferometer profile` takes them."""
        words = [] if self.threads is None else [f"--threads {self.threads}"]
        words += [f"--provider {name}" for name in self.providers]
        return " ".join([*words, *(f"--option {name}={value}" for name, value in self.options.items())])


@frozen
class TriedSetting:
    """One change to the best so far. `gain` is over that; for the last row, over the engine's own choice."""

    change: str
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = "not tried"
    kept: bool = False
    reason: str | None = None


@frozen
class Tuned:
    """`setting` is what is faster than the engine's own choice, proven; empty where nothing is."""

    model: str
    runtime: str
    setting: Setting
    tried: tuple[TriedSetting, ...]
    whole: TriedSetting | None = None

    def document(self) -> dict[str, Any]:
        return {"schema": "inferometer.tuned/1", **asdict(self), "flags": self.setting.flags}


def tune(  # noqa: PLR0913 - the clock, the measurement and the check can be replaced
    path: Path,
    request: PrepareRequest,
    *,
    budget_s: float,
    clock: Callable[[], float] = time.monotonic,
    measure: Callable[[MeasureRequest, MeasureRequest], ComparedMetric] | None = None,
    check: Callable[[MeasureRequest, str], Verification] = verify_against,
) -> Tuned:
    """Try what the engine's description lists for a file that it opens. `request` says at which sizes."""
    if not is_local(request.device or LOCAL):
        raise DomainError(
            f"Settings are tuned by measuring, and {request.device} is not this machine.", remedy="Tune the file there."
        )
    begun, in_turns = clock(), measure or _measured
    plain = MeasureRequest(
        model=str(path), runtime=request.runtime, workload=request.workload, sizes=request.sizes, seed=request.seed,
        threads=request.threads, plan=_PLAN if request.runs is None else replace(_PLAN, runs=request.runs),
        shape=False, guarded=False, energy=False, trust=request.trust,
    )  # fmt: skip
    best, tried = Setting(threads=request.threads), []
    for change, candidate in _changes(request):
        if clock() - begun > budget_s:
            tried.append(TriedSetting(change=change, reason="the budget is used up"))
            continue
        tell(f"{change}: is it faster? …")
        changed = _merged(best, candidate)
        row = _row(change, in_turns, _opened(plain, best), _opened(plain, changed))
        best = changed if row.kept else best
        tried.append(row)
    if not any(row.kept for row in tried):
        return Tuned(model=request.model, runtime=request.runtime, setting=best, tried=tuple(tried))
    tell("The whole against the engine's own choice …")
    whole = _row("all that was kept", in_turns, plain, _opened(plain, best))
    if whole.kept and (right := check(_opened(plain, best), request.runtime)).status == "failed":
        whole = replace(whole, verdict="wrong", kept=False, reason=right.reason)
    setting = best if whole.kept else Setting(threads=request.threads)
    return Tuned(model=request.model, runtime=request.runtime, setting=setting, tried=tuple(tried), whole=whole)


def _changes(request: PrepareRequest) -> Iterator[tuple[str, Setting]]:
    """Threads where none are asked for, then what the engine's description lists, in its order."""
    own, every = threads_of(None), os.cpu_count() or 1
    counts = () if request.threads is not None else sorted({1, max(1, own // 2), own, every} - {own})
    for threads in counts:
        yield f"threads={threads}", Setting(threads=threads)
    for name, values in engine_named(request.runtime).tuned.items():
        for value in values:
            given = {"providers": (value,)} if name == _PROVIDERS else {"options": {name: value}}
            yield f"{name}={value}", Setting(**given)


def _merged(best: Setting, change: Setting) -> Setting:
    return Setting(
        threads=change.threads or best.threads,
        providers=change.providers or best.providers,
        options={**best.options, **change.options},
    )


def _opened(request: MeasureRequest, setting: Setting) -> MeasureRequest:
    return replace(request, threads=setting.threads, providers=setting.providers, options=setting.options)


def _row(
    change: str,
    in_turns: Callable[[MeasureRequest, MeasureRequest], ComparedMetric],
    before: MeasureRequest,
    after: MeasureRequest,
) -> TriedSetting:
    """What an engine refuses is a row too: no build has every provider."""
    try:
        main = in_turns(before, after)
    except InferometerError as error:
        return TriedSetting(change=change, verdict="refused", reason=error.message)
    return TriedSetting(
        change=change,
        gain=1 / (main.ratio or 1.0),
        low=1 / main.high if main.high else None,
        high=1 / main.low if main.low else None,
        verdict=main.verdict,
        kept=main.verdict == "faster",
        reason=main.reason if main.verdict == "undecided" else None,
    )


def _measured(before: MeasureRequest, after: MeasureRequest) -> ComparedMetric:
    old, new = measure_in_turns(before, after)
    if not (old.complete and new.complete):
        raise KeyboardInterrupt  # half a measurement proves nothing
    return compare(old.profile, new.profile).main
