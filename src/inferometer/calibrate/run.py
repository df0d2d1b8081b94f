"""The run of a calibration: which case to measure next, until the time is spent.

The scheduler knows no engine. A provider says what can be measured (`candidates`) and measures one (`measure`); after
each the next is taken where the fit is least certain for the share of time such ops have. Everything measured is in
the journal before the next begins, so a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from inferometer.calibrate.fitting.fit import Fitted, class_for, doubts, fit_points
from inferometer.calibrate.fitting.points import Point, StepPoint, append_points, read_points, read_steps
from inferometer.errors import EngineError, InferometerError

# How much of a model's time such ops mostly take: where certainty pays.
SHARES = {
    "linear": 1.0, "attention": 0.7, "convolution": 0.8, "vector": 0.4, "depthwise": 0.4, "indexing": 0.1,
    "matmul": 0.3, "experts": 0.5, "step": 2.0,
}  # fmt: skip
_REFIT = 20  # points between two fits, at most
_RETRIES = 2
_LEAST_FLOOR_S = 1e-6
_CASE_SHARE = 0.05  # of the budget that one case may take
_STEP_SHARE = 0.5  # of the time that goes into whole models, where there are any


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something that can be measured. `op_class` is the table it informs; `first` comes before everything else.

    `seconds` is what measuring it takes at least, `floor_s` what one run of it takes at the device's peaks, and
    `weight` how much it matters beside others of its class. Candidates of one `probe` take turns with those of others.
    """

    key: str
    op_class: str
    axes: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.1
    floor_s: float = 0.0
    weight: float = 1.0
    probe: str = ""
    first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of a candidate. `runs` of 1 says that it was too slow to be repeated."""

    points: tuple[Point, ...] = ()
    steps: tuple[StepPoint, ...] = ()
    runs: int = 3


class Provider(Protocol):
    """Where candidates come from: kernels of an engine, or probe models run through it."""

    def candidates(self) -> Sequence[Candidate]:
        """All that could be measured, in no particular order."""

    def measure(self, candidate: Candidate) -> Measured:
        """Measure one. An `InferometerError` says that this one cannot be; the others are still tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands, for whoever watches."""

    done: int
    of: int
    spent_s: float
    budget_s: float
    current: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run has measured, with what it had before; and why candidates were left out."""

    points: tuple[Point, ...]
    steps: tuple[StepPoint, ...]
    done: int
    left: int
    skipped: tuple[str, ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Two files in a folder: single ops and whole steps; and the keys of the candidates that are done."""

    folder: Path

    @property
    def _done(self) -> Path:
        return self.folder / "done.txt"

    def clear(self) -> None:
        for path in (self.folder / "points.jsonl", self.folder / "steps.jsonl", self._done):
            path.unlink(missing_ok=True)

    def points(self) -> tuple[Point, ...]:
        path = self.folder / "points.jsonl"
        return read_points(path) if path.exists() else ()

    def steps(self) -> tuple[StepPoint, ...]:
        path = self.folder / "steps.jsonl"
        return read_steps(path) if path.exists() else ()

    def done(self) -> Counter[str]:
        """How often each was measured."""
        return Counter(self._done.read_text().splitlines() if self._done.exists() else ())

    def add(self, candidate: Candidate, measured: Measured) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        append_points(self.folder / "points.jsonl", measured.points)
        append_points(self.folder / "steps.jsonl", measured.steps)
        with self._done.open("a") as file:
            file.write(f"{candidate.key}\n")


def calibrate_with(  # noqa: PLR0913 - the seams: what is measured, where to, how long, who watches
    provider: Provider,
    journal: Journal,
    *,
    budget_s: float,
    watch: Callable[[Progress], None] | None = None,
    disturbed: Callable[[], str | None] | None = None,
    rounds: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Measure until the budget is spent or nothing is left. `disturbed` says why the machine is not quiet, or None.

    With several `rounds` all is measured again where time is left: a machine's pace drifts, and the middle counts.
    """
    run = _Run(provider=provider, journal=journal, budget_s=budget_s, rounds=rounds, clock=clock, begun=clock())
    run.take_up()
    interrupted = False
    try:
        while (candidate := run.next()) is not None:
            if watch is not None:
                watch(run.progress(candidate))
            run.measure(candidate, disturbed)
    except KeyboardInterrupt:
        interrupted = True
    return Outcome(
        points=tuple(run.points),
        steps=tuple(run.steps),
        done=run.done,
        left=sum(not run.times[key] for key in run.all),
        skipped=tuple(run.skipped),
        interrupted=interrupted,
    )


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run under way."""

    provider: Provider
    journal: Journal
    budget_s: float
    rounds: int
    clock: Callable[[], float]
    begun: float
    points: list[Point] = field(default_factory=list)
    steps: list[StepPoint] = field(default_factory=list)
    all: dict[str, Candidate] = field(default_factory=dict)
    waiting: dict[str, Candidate] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    skipped: list[str] = field(default_factory=list)
    taken: Counter[str] = field(default_factory=Counter)
    pace: dict[str, float] = field(default_factory=dict)
    fitted: dict[str, Fitted] = field(default_factory=dict)
    fitted_at: int = -1
    on_steps_s: float = 0.0
    done: int = 0

    def take_up(self) -> None:
        """What an earlier run has left, and what is still to do."""
        before = self.journal.done()
        self.points, self.steps = list(self.journal.points()), list(self.journal.steps())
        self.all = {each.key: each for each in self.provider.candidates()}
        self.times = Counter({key: times for key, times in before.items() if key in self.all})
        self._begin_round()
        self.done = before.total()

    def _begin_round(self) -> None:
        """What has been measured least often, unless that is often enough."""
        often = min((self.times[key] for key in self.all), default=self.rounds)
        if often < self.rounds:
            self.waiting = {key: each for key, each in self.all.items() if self.times[key] == often}

    def left_s(self) -> float:
        return self.budget_s - (self.clock() - self.begun)

    def progress(self, candidate: Candidate) -> Progress:
        spent = self.clock() - self.begun
        total = self.done + len(self.waiting)
        return Progress(done=self.done, of=total, spent_s=spent, budget_s=self.budget_s, current=candidate.key)

    def next(self) -> Candidate | None:
        """The one that is worth most: doubt times share of time, over what measuring it takes."""
        if not self.waiting:
            self._begin_round()
        left = self.left_s()
        fitting = [each for each in self.waiting.values() if self._cost(each) <= min(left, self._most(each))]
        if not fitting or left <= 0:
            return None
        urgent = [each for each in fitting if each.first]
        if urgent:
            return urgent[0]
        self._refit()
        ops = [each for each in fitting if not _is_step(each)]
        steps = [each for each in fitting if _is_step(each)]
        fitting = steps if steps and (not ops or self.on_steps_s < _STEP_SHARE * (self.clock() - self.begun)) else ops
        best = [self._best_of(name, fitting) for name in sorted({each.op_class for each in fitting})]
        return max(best, key=lambda pair: pair[0])[1]

    def _most(self, candidate: Candidate) -> float:
        return max(2.0, (3 if _is_step(candidate) else 1) * _CASE_SHARE * self.budget_s)

    def _cost(self, candidate: Candidate) -> float:
        """What measuring it will take, from the slowest of its class so far: slow formats are not met twice."""
        return max(candidate.seconds, 3 * self.pace.get(candidate.op_class, 0.0) * candidate.floor_s)

    def _refit(self) -> None:
        if self.fitted_at < 0 or len(self.points) - self.fitted_at >= max(1, min(_REFIT, len(self.points) // 10)):
            found = fit_points([point for point in self.points if point.floor_s > 0])
            self.fitted = {each.table.op_class: each for each in found}
            self.fitted_at = len(self.points)

    def _best_of(self, name: str, fitting: list[Candidate]) -> tuple[tuple[float, str], Candidate]:
        """The best of a class with its worth. The first of a class is its smallest, which shows how slow the rest are.

        Classes that have had many turns wait, so that none is left out by one that cannot be made certain.
        """
        ours = [each for each in fitting if each.op_class == name]
        share = SHARES.get(name, SHARES.get(name.partition(".")[0], 0.3))
        if not self.taken[name]:
            least = min(ours, key=lambda each: (each.floor_s, each.key))
            return (100 * share, least.key), least
        known = [point for point in self.points if class_for(point) == name]
        doubt = doubts(self.fitted.get(name), [each.axes for each in ours], known)
        turns = 1 + self.taken[name]
        worth = [
            share
            * each.weight
            * float(wide)
            / (turns * (1 + self.taken[each.probe]) * (0.05 + self._cost(each))) ** 0.5
            for each, wide in zip(ours, doubt, strict=True)
        ]
        best = max(range(len(ours)), key=lambda place: worth[place])
        return (worth[best], ours[best].key), ours[best]

    def measure(self, candidate: Candidate, disturbed: Callable[[], str | None] | None) -> None:
        """Measure one, again where the machine was disturbed; refuse to go on where it stays so."""
        self.waiting.pop(candidate.key)
        begun = self.clock()
        for attempt in range(_RETRIES + 1):
            try:
                found = self.provider.measure(candidate)
            except InferometerError as error:
                self.skipped.append(f"{candidate.key}: {error.message}")
                del self.all[candidate.key]
                return
            reason = disturbed() if disturbed is not None else None
            if reason is None:
                break
            if attempt == _RETRIES:
                raise EngineError(
                    f"The machine is disturbed, and was after {_RETRIES} repetitions: {reason}.",
                    remedy="Stop what disturbs it and run `inferometer calibrate` again: it goes on where it was.",
                )
        for point in found.points:
            slow = point.seconds / max(point.floor_s, candidate.floor_s, _LEAST_FLOOR_S)
            self.pace[candidate.op_class] = max(self.pace.get(candidate.op_class, 0.0), slow)
        self.journal.add(candidate, found)
        self.points += found.points
        self.steps += found.steps
        self.taken[candidate.op_class] += 1
        if candidate.probe:
            self.taken[candidate.probe] += 1
        if _is_step(candidate):
            self.on_steps_s += self.clock() - begun
        self.done += 1
        self.times[candidate.key] += 1


def _is_step(candidate: Candidate) -> bool:
    return candidate.op_class.partition(".")[0] == "step"
