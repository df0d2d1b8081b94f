"""The run of a calibration: choosing what to measure next until the time is spent.

The scheduler knows no engine. A provider lists what can be measured (`candidates`) and measures one (`measure`). The
next one is where the fit is least certain, weighted by how much of a model's time such ops take. Every result is in the
journal before the next measurement begins, so an interrupted run resumes where it stopped.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from inferometer.core.cache import held_alone
from inferometer.core.errors import EngineError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.measure.bench.loop import LoopProgress
from inferometer.measure.calibrate.fitting.fit import Fitted, class_for, doubts, fit_points
from inferometer.measure.calibrate.fitting.points import OpPoint, StepPoint, append_points, read_points, read_steps
from inferometer.predict.basis.files import read_calibration, write_calibration

if TYPE_CHECKING:
    from inferometer.core.calibration import Calibration

# How much of a model's time such ops typically take: where certainty pays.
SHARES = {
    "linear": 1.0, "attention": 0.7, "convolution": 0.8, "vector": 0.4, "depthwise": 0.4, "indexing": 0.1,
    "matmul": 0.3, "experts": 0.5, "step": 2.0,
}  # fmt: skip
_REFIT = 20  # the most points between two fits
_RETRIES = 2  # of a disturbed case, before others have their turn: a neighbour's burst passes
_IN_A_ROW = 4  # cases, each disturbed three times over and waited for: such a machine stays so
_LEAST_FLOOR_S = 1e-6  # below a microsecond a kernel's overhead says nothing about how slow its class is
_CASE_SHARE = 0.05  # of the budget: the most that one case may take while smaller ones wait
_STEP_SHARE = 0.5  # of the time goes into whole models, if there are any


@frozen
class ProbeCandidate:
    """Something that can be measured. `op_class` is the table it informs; `first` comes before everything else.

    `seconds` is the least that measuring it takes, `making_s` what making its file takes the first time, `floor_s` one
    run of it at the device's peaks, and `weight` how much it matters within its class. A `probe` is a model with
    several workloads: each is measured once before any again, since a family of models that was never measured is a
    guess, however near the shapes of its ops are.
    """

    key: str
    op_class: str
    axes: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.1
    making_s: float = 0.0
    floor_s: float = 0.0
    weight: float = 1.0
    probe: str = ""
    first: bool = False
    buys: str = ""  # what is known better after it, for whoever watches


@frozen
class CandidateResult:
    """The result of a candidate. `runs` of 1 means that it was too slow to be repeated."""

    points: tuple[OpPoint, ...] = ()
    steps: tuple[StepPoint, ...] = ()
    runs: int = 3


class CandidateSource(Protocol):
    """Where candidates come from: kernels of an engine, or probe models run through it."""

    def candidates(self) -> Sequence[ProbeCandidate]:
        """Everything that can be measured, in no particular order."""

    def measure(self, candidate: ProbeCandidate) -> CandidateResult:
        """Measure one. An `InferometerError` means that this one cannot be measured; the others are still tried."""


@frozen
class CalibrationProgress:
    """How far a run is, for whoever watches."""

    done: int
    of: int
    spent_s: float
    budget_s: float
    current: str


@frozen
class CalibrationOutcome:
    """Everything measured, earlier runs included, and why candidates were skipped."""

    points: tuple[OpPoint, ...]
    steps: tuple[StepPoint, ...]
    done: int
    left: int
    skipped: tuple[str, ...] = ()
    disturbed: tuple[str, ...] = ()  # what disturbed cases, each of which was put off or never measured
    interrupted: bool = False
    unspent_s: float = 0.0  # of the budget


@frozen
class CalibrationJournal:
    """Files in a folder: single ops, whole steps, the keys of the candidates that are done, and the base.

    The base is the calibration that the device had when the journal was begun. A resumed run has the same: what was
    fitted to the journal's own points in the meantime would agree with them whatever they are.

    A candidate counts once its key is written, last, with how long both files were then: what lies beyond, of a run
    that was killed or of a disk that was full, is cut off before anything is read.
    """

    folder: Path

    @property
    def _done(self) -> Path:
        return self.folder / "done.txt"

    @property
    def _base(self) -> Path:
        return self.folder / "base.json"

    @contextmanager
    def held(self) -> Iterator[None]:
        """No other run may write to it meanwhile: rounds of two would be counted as one's."""
        with held_alone(self.folder / "lock") as alone:
            if not alone:
                raise EngineError(
                    f"Another calibration writes to {self.folder}.",
                    remedy="Wait for its end, or give another --folder.",
                )
            yield

    def clear(self) -> None:
        for path in (*self._measured, self._done, self._base, self._kept):
            path.unlink(missing_ok=True)

    @property
    def _measured(self) -> tuple[Path, Path]:
        return self.folder / "points.jsonl", self.folder / "steps.jsonl"

    @property
    def _kept(self) -> Path:
        return self.folder / "kept.txt"

    def note_kept(self, reason: str | None) -> None:
        """Why what was measured last is not used, for `calibrate --show`; None if it is."""
        if reason is None:
            self._kept.unlink(missing_ok=True)
        elif self.folder.is_dir():  # a run that was stopped at once has none, and nothing to tell of
            self._kept.write_text(f"{reason}\n", encoding="utf-8")

    def kept(self) -> str | None:
        return self._kept.read_text(encoding="utf-8").strip() if self._kept.exists() else None

    def base(self, choose: Callable[[], Calibration | None]) -> Calibration | None:
        """The journal's starting point; if it has not begun yet, the one chosen now."""
        if self._base.exists():
            return read_calibration(self._base)
        base = None if self._done.exists() else choose()
        if base is not None:
            write_calibration(base, self._base)
        return base

    def points(self) -> tuple[OpPoint, ...]:
        path, _ = self._measured
        return read_points(path) if path.exists() else ()

    def steps(self) -> tuple[StepPoint, ...]:
        _, path = self._measured
        return read_steps(path) if path.exists() else ()

    def done(self) -> Counter[str]:
        """How often each candidate was measured, by key."""
        return Counter(line.partition("\t")[0] for line in self._lines())

    def _lines(self) -> list[str]:
        """The lines of the candidates that are done; one that was cut off has no end, and is none."""
        text = self._done.read_text(encoding="utf-8") if self._done.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    def mend(self) -> None:
        """Cut off what no candidate's line accounts for."""
        lines = self._lines()
        ends = lines[-1].split("\t")[1:] if lines else ["0", "0"]
        if self._done.exists() and not self._done.read_bytes().endswith(b"\n"):
            self._done.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        for path, end in zip(self._measured, ends, strict=False):  # journals of older versions say no lengths
            if path.exists() and path.stat().st_size > int(end):
                os.truncate(path, int(end))

    def add(self, candidate: ProbeCandidate, measured: CandidateResult) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            points, steps = self._measured
            append_points(points, measured.points)
            append_points(steps, measured.steps)
            ends = "\t".join(str(path.stat().st_size) for path in self._measured)
            with self._done.open("a", encoding="utf-8") as file:
                file.write(f"{candidate.key}\t{ends}\n")
        except OSError as error:
            self.mend()
            raise EngineError(
                f"{candidate.key} was measured and cannot be kept in {self.folder}: {error.strerror or error}.",
                remedy="Make room, or give another --folder; then run the same command again: it resumes there.",
            ) from None


def calibrate_with(  # noqa: PLR0913 - the seams: what is measured, where to, how long, who watches
    provider: CandidateSource,
    journal: CalibrationJournal,
    *,
    budget_s: float,
    watch: Callable[[CalibrationProgress], None] | None = None,
    disturbed: Callable[[], str | None] | None = None,
    rounds: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> CalibrationOutcome:
    """Measure until the budget is spent or nothing is left. `disturbed` returns what disturbs the machine, or None.

    With several `rounds`, everything is measured again while time is left: a machine's pace drifts, and the median
    counts.
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
    return CalibrationOutcome(
        points=tuple(run.points),
        steps=tuple(run.steps),
        done=run.done,
        left=sum(not run.times[key] for key in run.all),
        skipped=tuple(run.skipped),
        disturbed=tuple(run.disturbed),
        interrupted=interrupted,
        unspent_s=max(0.0, run.left_s()),
    )


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run under way."""

    provider: CandidateSource
    journal: CalibrationJournal
    budget_s: float
    rounds: int
    clock: Callable[[], float]
    begun: float
    points: list[OpPoint] = field(default_factory=list)
    steps: list[StepPoint] = field(default_factory=list)
    all: dict[str, ProbeCandidate] = field(default_factory=dict)
    waiting: dict[str, ProbeCandidate] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    skipped: list[str] = field(default_factory=list)
    disturbed: list[str] = field(default_factory=list)
    in_a_row: int = 0
    taken: Counter[str] = field(default_factory=Counter)
    pace: dict[str, float] = field(default_factory=dict)
    fitted: dict[str, Fitted] = field(default_factory=dict)
    fitted_at: int = -1
    on_steps_s: float = 0.0
    done: int = 0

    def take_up(self) -> None:
        """Load what an earlier run measured, and find what is still to do."""
        self.journal.mend()
        before = self.journal.done()
        self.points, self.steps = list(self.journal.points()), list(self.journal.steps())
        self.all = {candidate.key: candidate for candidate in self.provider.candidates()}
        self.times = Counter({key: times for key, times in before.items() if key in self.all})
        self.done = before.total()

    def _fits(self, candidate: ProbeCandidate, left_s: float) -> bool:
        """Whether it can be measured before the budget is spent. What was measured before has been made."""
        making_s = 0.0 if self.times[candidate.key] else candidate.making_s
        return self._cost(candidate) + making_s <= left_s

    def left_s(self) -> float:
        return self.budget_s - (self.clock() - self.begun)

    def progress(self, candidate: ProbeCandidate) -> CalibrationProgress:
        spent = self.clock() - self.begun
        total = self.done + len(self.waiting)
        current = f"{candidate.key} → {candidate.buys}" if candidate.buys else candidate.key
        return CalibrationProgress(done=self.done, of=total, spent_s=spent, budget_s=self.budget_s, current=current)

    def next(self) -> ProbeCandidate | None:
        """The candidate that is worth most: doubt times share of time, over the cost of measuring it.

        One that takes a large part of the budget waits until nothing smaller is left, unless it comes before everything
        else; and what is measured again until nothing new is.
        """
        left_s = self.left_s()
        if self.in_a_row >= _IN_A_ROW:  # what was measured before is worth a fit
            return None
        fitting = [candidate for candidate in self.waiting.values() if self._fits(candidate, left_s)]
        if not fitting:
            # Queue what has been measured least often of what there is time for, unless that is often enough.
            able = {key: candidate for key, candidate in self.all.items() if self._fits(candidate, left_s)}
            least_often = min((self.times[key] for key in able), default=self.rounds)
            if least_often < self.rounds:
                self.waiting |= {key: candidate for key, candidate in able.items() if self.times[key] == least_often}
            fitting = [candidate for candidate in self.waiting.values() if self._fits(candidate, left_s)]
        small = [each for each in fitting if each.first or self._cost(each) <= self._most(each)]
        fitting = small or fitting
        if not fitting or left_s <= 0:
            return None
        urgent = [candidate for candidate in fitting if candidate.first]
        if urgent:
            return urgent[0]
        # Fitting takes longer the more points there are, and changes less: a tenth more of them makes it worth while.
        if self.fitted_at < 0 or len(self.points) - self.fitted_at >= max(1, min(_REFIT, len(self.points) // 10)):
            fits = fit_points([point for point in self.points if point.floor_s > 0])
            self.fitted = {fit.table.op_class: fit for fit in fits}
            self.fitted_at = len(self.points)
        ops = self._turns_of_probes([candidate for candidate in fitting if not _is_step(candidate)])
        steps = [candidate for candidate in fitting if _is_step(candidate)]
        fitting = steps if steps and (not ops or self.on_steps_s < _STEP_SHARE * (self.clock() - self.begun)) else ops
        best = [self._best_of(name, fitting) for name in sorted({candidate.op_class for candidate in fitting})]
        return max(best, key=lambda pair: pair[0])[1]

    def _turns_of_probes(self, ops: list[ProbeCandidate]) -> list[ProbeCandidate]:
        least = min((self.taken[candidate.probe] for candidate in ops), default=0)
        return [candidate for candidate in ops if self.taken[candidate.probe] == least]

    def _most(self, candidate: ProbeCandidate) -> float:
        # A whole step is worth several ops, since it alone shows what lies between them; two seconds let a short budget
        # measure at all.
        return max(2.0, (3 if _is_step(candidate) else 1) * _CASE_SHARE * self.budget_s)

    def _cost(self, candidate: ProbeCandidate) -> float:
        """Seconds that measuring it will take, by the slowest of its class so far: no slow format surprises twice."""
        # three runs at least
        return max(candidate.seconds, 3 * self.pace.get(candidate.op_class, 0.0) * candidate.floor_s)

    def _best_of(self, name: str, fitting: list[ProbeCandidate]) -> tuple[tuple[float, str], ProbeCandidate]:
        """The best of a class, with its worth. A class starts with its smallest, which shows how slow the rest are.

        Classes that had many turns wait, so that one that never becomes certain does not crowd out the others.
        """
        ours = [candidate for candidate in fitting if candidate.op_class == name]
        share = SHARES.get(name, SHARES.get(name.partition(".")[0], 0.3))  # a class without a row is worth a turn too
        if not self.taken[name]:
            least = min(ours, key=lambda candidate: (candidate.floor_s, candidate.key))
            return (100 * share, least.key), least  # before any class that has had its turn
        known = [point for point in self.points if class_for(point.classes) == name]
        doubt = doubts(self.fitted.get(name), [candidate.axes for candidate in ours], known)
        turns = 1 + self.taken[name]
        worth = [
            share
            * candidate.weight
            * float(wide)
            # A twentieth of a second that every turn costs besides: without it, ops of microseconds would be worth
            # without end.
            / (turns * (1 + self.taken[candidate.probe]) * (0.05 + self._cost(candidate))) ** 0.5
            for candidate, wide in zip(ours, doubt, strict=True)
        ]
        best = max(range(len(ours)), key=lambda place: worth[place])
        return (worth[best], ours[best].key), ours[best]

    def measure(self, candidate: ProbeCandidate, disturbed: Callable[[], str | None] | None) -> None:
        """Measure one, again if the machine was disturbed. One that stays so is put off until the others are done."""
        self.waiting.pop(candidate.key)
        started = self.clock()
        for attempt in range(_RETRIES + 1):
            try:
                result = self.provider.measure(candidate)
            except InferometerError as error:
                self.skipped.append(f"{candidate.key}: {error.message}")
                del self.all[candidate.key]
                return
            reason = disturbed() if disturbed is not None else None
            if reason is None:
                break
            if attempt == _RETRIES:
                self._put_off(reason)
                return
        self.in_a_row = 0
        for point in result.points:
            slow = point.seconds / max(point.floor_s, candidate.floor_s, _LEAST_FLOOR_S)
            self.pace[candidate.op_class] = max(self.pace.get(candidate.op_class, 0.0), slow)
        self.journal.add(candidate, result)
        self.points += result.points
        self.steps += result.steps
        self.taken[candidate.op_class] += 1
        if candidate.probe:
            self.taken[candidate.probe] += 1
        if _is_step(candidate):
            self.on_steps_s += self.clock() - started
        self.done += 1
        self.times[candidate.key] += 1

    def _put_off(self, reason: str) -> None:
        self.disturbed.append(reason)
        self.in_a_row += 1
        if self.in_a_row == _IN_A_ROW and not self.times:
            raise EngineError(
                f"The machine was disturbed, and still is after {_IN_A_ROW * (1 + _RETRIES)} readings: {reason}.",
                remedy="Stop what disturbs it and run `inferometer calibrate` again: it resumes where it stopped.",
            )


def _is_step(candidate: ProbeCandidate) -> bool:
    return candidate.op_class.partition(".")[0] == "step"


# Several providers as one.


@dataclass(slots=True)
class Together:
    """Candidates of all providers, each measured by the one it comes from."""

    providers: tuple[CandidateSource, ...]
    _owner: dict[str, CandidateSource]

    def __init__(self, *providers: CandidateSource) -> None:
        self.providers, self._owner = providers, {}

    def candidates(self) -> list[ProbeCandidate]:
        candidates = []
        for provider in self.providers:
            for candidate in provider.candidates():
                self._owner[candidate.key] = provider
                candidates.append(candidate)
        return candidates

    def measure(self, candidate: ProbeCandidate) -> CandidateResult:
        return self._owner[candidate.key].measure(candidate)


# What a running calibration shows: a bar, what it measures now, and the time left.

_BAR = 24  # letters: bar, figures and a case's name fit into 120 columns
_WORDS = 72  # letters of a case's name


def line_of(progress: CalibrationProgress) -> str:
    """One line: how far it is, how long it will take, what it measures."""
    share = min(1.0, progress.spent_s / progress.budget_s) if progress.budget_s > 0 else 1.0
    full = round(_BAR * share)
    left = max(0.0, progress.budget_s - progress.spent_s)
    bar = "█" * full + "·" * (_BAR - full)
    return f"{bar} {share:4.0%}  {left:4.0f} s left  {progress.done} of {progress.of}  {progress.current[:_WORDS]}"


def step_of(progress: CalibrationProgress) -> LoopProgress:
    """The same for whoever watches from elsewhere: by time, since the budget is a time."""
    share = min(1.0, progress.spent_s / progress.budget_s) if progress.budget_s > 0 else 1.0
    return LoopProgress(stage="calibrate", done=progress.done, share=share)
