"""The settings that an engine opens a file with, tried one by one: threads, providers, and options of its own.

Each is measured in turns with the best so far and kept where it is faster beyond doubt. What was kept is then measured
once more against the engine's own choice: the best of many tries looks better than it is.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
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
from inferometer.measure.prepare.run import PrepareRequest
from inferometer.measure.run.against import measure_in_turns
from inferometer.measure.run.model import MeasureRequest, verify_against

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
