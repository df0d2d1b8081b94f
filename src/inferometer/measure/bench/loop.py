"""The measuring loop: warm up, run in rounds, discard what was disturbed, stop when the plan is met.

Clock, sleep, guard and progress are parameters. Warm-up runs are kept apart from the samples. With several subjects a
round runs each of them once, in an order drawn anew; a round in which one failed gives no sample, so that the samples
of all subjects stay in step.
"""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from inferometer.core.frozen import frozen
from inferometer.measure.bench.plan import Plan
from inferometer.measure.bench.subject import RunOutcome, Subject

# What disturbed a measurement: when, how it was noticed, and what to do about it.

When = Literal["before", "during", "after"]


@frozen
class Disturbance:
    """`code` is the doctor's. `times` counts the stretches of runs in which it was seen."""

    when: When
    code: str
    found: str
    remedy: str | None = None
    times: int = 1

    def __str__(self) -> str:
        often = f", {self.times} times" if self.times > 1 else ""
        words = f"{self.when} the runs{often}: {self.found} ({self.code})"
        return f"{words}. {self.remedy}" if self.remedy else words


def together(disturbances: Iterable[Disturbance]) -> tuple[Disturbance, ...]:
    """One of each kind, as it was first seen, with how often it came."""
    kinds: dict[tuple[str, str], Disturbance] = {}
    for new in disturbances:
        key = (new.when, new.code)
        known = kinds.get(key)
        kinds[key] = new if known is None else replace(known, times=known.times + new.times)
    return tuple(kinds.values())


@frozen
class Failure:
    """A run that gave no time, and why. `run` counts all runs of the subject, warm-up included, from 1."""

    run: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSamples:
    """What the loop saw of one subject. `runs` counts all of them: warm-up, failed and discarded ones too.

    `discarded` runs were disturbed and repeated; they are in no sample.

    `settled`: warm-up ended because the times were steady, and not because it reached its limit; None if a number of
    runs was asked for. `complete`: as many runs and seconds as the plan wants at least. `interrupted`: Ctrl-C ended it.
    """

    name: str
    samples_s: tuple[float, ...]
    warmup_s: tuple[float, ...]
    failures: tuple[Failure, ...]
    runs: int
    discarded: int
    settled: bool | None
    complete: bool
    calls: int
    peak_memory_bytes: int | None
    disturbances: tuple[Disturbance, ...]
    interrupted: bool = False


@frozen
class LoopProgress:
    """For a progress bar: `share` of the least the plan asks for."""

    stage: str
    done: int
    share: float


Progress = Callable[[LoopProgress], None]
Mark = object


class DisturbanceWatch(Protocol):
    """Looks whether something else disturbs a stretch of runs."""

    def mark(self) -> Mark: ...

    def since(self, mark: Mark) -> tuple[Disturbance, ...]:
        """What disturbed since then; empty where nothing did."""


@dataclass(slots=True)
class _Series:
    subject: Subject
    samples: list[float] = field(default_factory=list)
    warmup: list[float] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    runs: int = 0
    attempts: int = 0
    discarded: int = 0
    in_a_row: int = 0
    settled: bool | None = None
    cold: bool = True
    calls: int = 1
    peak_bytes: int | None = None

    def run(self, *, watched: bool = False) -> RunOutcome:
        outcome = self.subject.run(watched=watched)
        self.runs += 1
        self.calls = outcome.calls
        if outcome.peak_bytes is not None:
            self.peak_bytes = max(self.peak_bytes or 0, outcome.peak_bytes)
        if outcome.error is not None:
            self.failures.append(Failure(run=self.runs, reason=outcome.error))
            self.in_a_row += 1
        else:
            self.in_a_row = 0
        self.cold = self.cold or outcome.lost
        return outcome


def collect(  # noqa: PLR0913 - the seams of the loop
    subjects: Sequence[Subject],
    plan: Plan,
    *,
    watch: DisturbanceWatch,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
    progress: Progress | None = None,
    keep_interrupted: bool = False,
) -> tuple[LoopSamples, ...]:
    """Measure the subjects, in turns or, where the plan says so, one after the other.

    With `keep_interrupted`, Ctrl-C gives what every subject has by then instead of an exception, if each has a sample.
    """
    groups = [list(subjects)] if plan.interleave else [[subject] for subject in subjects]
    tell = progress or (lambda _step: None)
    loops = [_Loop(group, plan, watch=watch, clock=clock, sleep=sleep, progress=tell) for group in groups]
    interrupted = False
    try:
        for loop in loops:
            loop.run()
    except KeyboardInterrupt:
        if not keep_interrupted or not all(series.samples for loop in loops for series in loop.series):
            raise
        interrupted = True
    return tuple(collected for loop in loops for collected in loop.collected(interrupted=interrupted))


class _Loop:
    def __init__(  # noqa: PLR0913 - as above
        self,
        subjects: list[Subject],
        plan: Plan,
        *,
        watch: DisturbanceWatch,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        progress: Progress,
    ) -> None:
        self.series = [_Series(subject) for subject in subjects]
        self.plan, self.watch, self.clock, self.sleep, self.progress = plan, watch, clock, sleep, progress
        self.order = random.Random(plan.seed)  # noqa: S311 - an order of runs, not a secret
        self.retries = plan.retries
        self.kept_s = 0.0
        self.begun = 0.0
        self.disturbances: list[Disturbance] = []

    def run(self) -> None:
        for series in self.series:
            self._warm_up(series)
        self.begun = self.clock()
        while not self._over():
            self._window()

    def collected(self, *, interrupted: bool) -> list[LoopSamples]:
        return [self._collected(series, interrupted=interrupted) for series in self.series]

    def _given_up(self) -> bool:
        return any(series.in_a_row >= self.plan.failures_at_most for series in self.series)

    def _enough(self, runs: int, seconds: float) -> bool:
        return runs >= self.plan.runs and seconds >= self.plan.seconds

    def _exhausted(self) -> bool:
        spent = self.clock() - self.begun
        return spent >= self.plan.seconds_at_most or self.series[0].attempts >= self.plan.runs_at_most

    def _over(self) -> bool:
        kept = len(self.series[0].samples)
        return self._given_up() or self._exhausted() or self._enough(kept, self.kept_s)

    def _warm_up(self, series: _Series) -> None:
        """Run without counting until steady, or as often as asked; again after a process was lost, as long as then."""
        again, begun = bool(series.warmup), self.clock()
        wanted = self.plan.warmup if not again else min(len(series.warmup), self.plan.warmup_at_most)
        times: list[float] = []
        series.cold = False
        while not self._warm(series, times, wanted, self.clock() - begun) and not self._given_up():
            self._cool(series)
            outcome = series.run(watched=True)
            if outcome.seconds is not None:
                times.append(outcome.seconds)
            if outcome.lost:
                times.clear()
                series.cold = False
            self.progress(LoopProgress(stage="warm-up", done=len(times), share=0.0))
        if not again:
            series.warmup = times

    def _warm(self, series: _Series, times: list[float], wanted: int | None, spent_s: float) -> bool:
        plan = self.plan
        if wanted is not None:
            return len(times) >= wanted
        from inferometer.measure.bench.statistics import is_steady  # noqa: PLC0415 - brings numpy, after the first runs

        series.settled = is_steady(times)
        return series.settled or len(times) >= plan.warmup_at_most or spent_s >= plan.warmup_seconds_at_most

    def _cool(self, series: _Series) -> None:
        if self.plan.cooldown_s > 0 and series.runs > 0:
            self.sleep(self.plan.cooldown_s)

    def _window(self) -> None:
        """A stretch of rounds between two looks at the machine: kept, or thrown away and repeated if disturbed."""
        for series in self.series:
            if series.cold:
                self._warm_up(series)
        mark, start = self.watch.mark(), self.clock()
        rounds: list[list[float]] = []
        try:
            self._run_rounds(rounds, start)
        except KeyboardInterrupt:
            self._keep(rounds, self.clock() - start, self.watch.since(mark))  # it is not going to be repeated
            raise
        spent, disturbances = self.clock() - start, self.watch.since(mark)
        if disturbances and self.retries > 0 and not self._exhausted():
            self.retries -= 1
            for series in self.series:
                series.discarded += len(rounds)
            self.sleep(self.plan.window_s)  # what disturbs is often short
            return
        self._keep(rounds, spent, disturbances)

    def _run_rounds(self, rounds: list[list[float]], start: float) -> None:
        while True:
            times = self._round()
            if times is not None:
                rounds.append(times)
            spent = self.clock() - start
            kept = len(self.series[0].samples) + len(rounds)
            self._tell(kept, self.kept_s + spent)
            if self._ended(kept, spent):
                return

    def _keep(self, rounds: list[list[float]], spent: float, disturbances: tuple[Disturbance, ...]) -> None:
        self.disturbances += disturbances
        self.kept_s += spent
        for times in rounds:
            for series, taken in zip(self.series, times, strict=True):
                series.samples.append(taken)

    def _ended(self, kept: int, spent: float) -> bool:
        lost = any(series.cold for series in self.series)
        enough = self._enough(kept, self.kept_s + spent)
        return lost or enough or spent >= self.plan.window_s or self._given_up() or self._exhausted()

    def _round(self) -> list[float] | None:
        """Each subject once, in an order drawn anew; None if one of them failed."""
        order = list(range(len(self.series)))
        self.order.shuffle(order)
        times = [0.0] * len(order)
        complete = True
        for index in order:
            series = self.series[index]
            self._cool(series)
            outcome = series.run()
            series.attempts += 1
            complete = complete and outcome.seconds is not None
            times[index] = outcome.seconds or 0.0
        return times if complete else None

    def _tell(self, runs: int, seconds: float) -> None:
        by_time = seconds / self.plan.seconds if self.plan.seconds else 1.0
        share = min(runs / self.plan.runs, by_time, 1.0)
        self.progress(LoopProgress(stage="runs", done=runs, share=share))

    def _collected(self, series: _Series, *, interrupted: bool) -> LoopSamples:
        return LoopSamples(
            name=series.subject.name,
            samples_s=tuple(series.samples),
            warmup_s=tuple(series.warmup),
            failures=tuple(series.failures),
            runs=series.runs,
            discarded=series.discarded,
            settled=series.settled,
            complete=self._enough(len(series.samples), self.kept_s),
            calls=series.calls,
            peak_memory_bytes=series.peak_bytes,
            disturbances=together(self.disturbances),
            interrupted=interrupted,
        )
