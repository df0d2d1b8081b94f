"""What profiles taught of this machine: how far whole steps were from their predictions, and of which models.

Every profile on a quiet machine leaves a line for each phase that repeats: what it took, and what was predicted without
what was learned. Predictions for this machine are then corrected by them. Of an error one part is the engine's on this
machine, one is shared by models that are alike, and one is a model's own; what few lines leave open is the interval.
That is a Gaussian process over models, as `predict.price.likeness` has it for published times. How much models differ
is told by the lines themselves, of few of them with Student's quantiles; from ten lines on, the interval is as wide
as those lines are off when each is left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from math import exp, log, pi, sqrt
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from inferometer.core.calibration import Calibration
from inferometer.core.codec import settled
from inferometer.core.device import Device, Roof, is_local
from inferometer.core.errors import FormatError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.kept import Kept
from inferometer.core.profile import Environment, Phase, Profile
from inferometer.core.settings import learns
from inferometer.core.statistics import EIGHT_IN_TEN, student_quantile
from inferometer.core.units import counted
from inferometer.core.workload import Workload
from inferometer.known.engines import require_effects
from inferometer.predict.applicable import meaningful
from inferometer.predict.basis.calibrations import HostSetup, format_key, formats_of, host_setup
from inferometer.predict.basis.files import name_start, own_folder
from inferometer.predict.options import Options
from inferometer.predict.price.likeness import alike, features_of
from inferometer.predict.ready import make_ready
from inferometer.predict.work.classes import CLASSES, FUSED, PLAIN

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.predict.question import Question

STEADY = ("forward", "prefill", "decode")
PRIOR = "prior"  # the basis of a prediction without a calibration
# Of what models differ by beyond what they share, the part that models which are alike have in common; the rest is a
# model's own. Chosen with the models of five recorded calibrations left out, two, four or seven of them being known:
# 0.3, 0.5 and 0.7 are within half a point of each other.
_ALIKE = 0.3
_TOLD = 2.0  # weight of a prediction's own spread, as a number of models beside the measured ones
_NOISE = 0.03  # what the same profile differs by from one quiet time to another, as a logarithm
_CHANGED = 0.12  # what an engine's new version or a governor adds to that
_LEAST = 0.2  # of the predicted work: a step that was shorter than its overheads says no more than that
_ENOUGH = 10  # lines that say by themselves how wide an interval is
_MEDIAN = pi / 2  # times the variance of a mean that a median has, for which one odd model moves nothing
_SIGMA = 1.4826  # times the middle distance from the median, a normal distribution's standard deviation
# In the environment of a calibration, by phase: the logarithm of what the whole models beside its probes share.
SHARED = "shared_by_models."
_PATHS = {"forward": ("masked", "padded", "prefill"), "prefill": ("masked", "padded")}  # names of attention


@frozen
class LearnedStep:
    """A phase of a profile. Of `predicted_s` the part `overhead_s` is no op's work; `spread` is how sure it was.

    `basis` is the hash of the calibration that it was predicted with: another predicts otherwise, and what was off then
    says nothing of it.
    """

    model: str
    phase: str
    runtime: str
    dtype: str
    threads: int | None
    machine: str
    created: str
    seconds: float
    predicted_s: float
    overhead_s: float
    spread: float
    basis: str
    features: tuple[int, ...]
    batch: int = 1
    prompt: int | None = None
    generate: int | None = None
    context: int | None = None
    image: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """The same for another profile of the same thing: the newest counts."""
        sizes = (self.batch, self.prompt, self.generate, self.context, self.image)
        return self.model, self.phase, self.runtime, self.dtype, self.threads, self.basis, *sizes


def _machine_id() -> str:
    from inferometer.known.machine.detect.identity import this_machine  # noqa: PLC0415 - only for this machine

    return this_machine().id


def learned_file(device: str, runtime: str, folder: Path | None = None) -> Path:
    return (folder or own_folder()) / "learned" / f"{name_start(device, runtime)}.jsonl"


def read_learned(path: Path) -> tuple[LearnedStep, ...]:
    """The newest line of each kind. A last line that was cut off is skipped; any other bad line is an error."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return ()
    newest: dict[tuple[Any, ...], LearnedStep] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            step = msgspec.json.decode(line, type=settled(LearnedStep))
        except msgspec.DecodeError as error:
            if number == len(lines):
                break
            raise FormatError(
                f"Line {number} of {path} is no learned step: {error}.", remedy="`inferometer calibrate --forget`."
            ) from None
        newest.pop(step.key, None)
        newest[step.key] = step
    return tuple(newest.values())


def keep_learned(path: Path, steps: Sequence[LearnedStep]) -> None:
    """Add lines in one write, so that those of two processes never mix. A disk without room loses them, and no more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = b"".join(msgspec.json.encode(step) + b"\n" for step in steps)
    # O_APPEND puts each write at the end, wherever another process has written meanwhile.
    place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        before = os.fstat(place).st_size
        if os.write(place, lines) < len(lines):
            os.ftruncate(place, before)
    finally:
        os.close(place)


def learn_from(profile: Profile, question: Question, folder: Path | None = None) -> tuple[str, ...]:
    """Keep what a profile of this machine's CPU teaches, and say so; or why it teaches nothing.

    `question` is the one that the profile answers.
    """
    environment = profile.environment or Environment()
    if not is_local(question.device.name) or question.device.unit != "cpu" or not learns():
        return ()
    if environment.host.get("loop") == "bare":
        return ("Predictions for this machine learn nothing from this run: its loop was bare.",)
    if environment.disturbed is not False:
        why = environment.reasons[0] if environment.reasons else "nobody looked whether the machine was quiet"
        return (f"Predictions for this machine learn nothing from this run: {why.removesuffix('.')}.",)
    try:
        steps = learned_steps(profile, replace(question, learned=False))
        if steps:
            keep_learned(learned_file(question.device.name, question.runtime_name, folder), steps)
    except (InferometerError, OSError) as error:
        return (f"Predictions for this machine learn nothing from this run: {error}",)
    return ()


def learned_steps(profile: Profile, question: Question) -> tuple[LearnedStep, ...]:
    """A line for each phase that repeats and is predicted whole. `question` must not use what was learned."""
    seconds = {phase.name: phase.time_s for phase in profile.phases if phase.name in STEADY}
    return lines_of(replace(question, workload=profile.workload), profile.model.name, seconds, question.answer())


def lines_of(
    question: Question, model: str, seconds: Mapping[str, float], predicted: Profile
) -> tuple[LearnedStep, ...]:
    """What phases of a model took beside what was predicted of them; a phase without an interval has no line."""
    basis, workload = question.basis(), question.workload
    setup = host_setup(question.runtime_name, question.had_threads)
    expected = {name: phase for name in seconds if (phase := predicted.phase(name)) is not None and phase.low_s}
    return tuple(
        LearnedStep(
            model=model, phase=name, runtime=question.runtime_name,
            dtype=format_key(question.graph, question.runtime_name, question.precision),
            threads=setup.threads, machine=_machine_id(),
            created=datetime.now(UTC).isoformat(timespec="seconds"), seconds=seconds[name],
            basis=basis_of(basis.calibration), **_predicted(phase),
            features=_features(question), batch=workload.batch, prompt=workload.prompt,
            generate=workload.generate, context=workload.context, image=workload.image,
            versions=dict(setup.versions),
        )
        for name, phase in expected.items()
    )  # fmt: skip


def _predicted(phase: Phase) -> dict[str, Any]:
    """What a line says of a prediction that has an interval."""
    wide = log((phase.high_s or phase.time_s) / (phase.low_s or phase.time_s))
    return {
        "predicted_s": phase.time_s,
        "overhead_s": phase.streams.get("overhead", 0.0),
        "spread": wide / (2 * EIGHT_IN_TEN),
    }


def basis_of(calibration: Calibration | None) -> str:
    return PRIOR if calibration is None else calibration.content_hash or PRIOR


# A graph's features do not depend on the workload: a sweep over one model asks once.
_kept_features = Kept(256)


def _features(question: Question) -> tuple[int, ...]:
    """What the model is to a machine, in numbers; the same for every workload."""

    def make() -> tuple[int, ...]:
        # Nothing is prepared without peaks, which the roof has.
        priced_on = replace(question, calibrated=False, calibration=None).basis().device
        ready = make_ready(
            question.graph, priced_on, effects=require_effects(question.runtime),
            workload=question.workload, options=Options(sizes=question.options.sizes),
        )  # fmt: skip
        return features_of(ready.plan.prepared, question.precision.activations or "f32")

    return _kept_features.get_or_make((), (question.graph,), make)


@frozen
class Correction:
    """Of one phase: the logarithm of what it takes over its prediction, how far off that may be, and from what."""

    shift: float
    spread: float
    lines: int
    models: int


def with_learned(question: Question, calibration: Calibration | None) -> tuple[Calibration | None, tuple[str, ...]]:
    """The calibration of a question about this machine, corrected by its profiles; and what to say of it.

    Without one, what is corrected are the priors. The same files give the same object, as pricing wants it.
    """
    device, runtime = question.device, question.runtime_name
    if not is_local(device.name) or device.unit != "cpu" or not learns():
        return calibration, ()
    path = learned_file(device.name, runtime)
    try:
        stamp = path.stat()
    except OSError:
        return calibration, ()
    setup = host_setup(runtime, question.had_threads or question.options.threads)
    asked = (str(path), stamp.st_mtime_ns, stamp.st_size, setup.threads, question.precision)

    def make() -> tuple[Calibration | None, tuple[str, ...]]:
        dtype = format_key(question.graph, runtime, question.precision)
        ours = [
            step
            for step in read_learned(path)
            if (step.dtype, step.threads, step.machine, step.basis)
            == (dtype, setup.threads, _machine_id(), basis_of(calibration))
        ]
        if not ours:
            return calibration, ()
        known = {phase: [step for step in ours if step.phase == phase] for phase in STEADY}
        model, features = question.graph.name, _features(question)
        levels = {} if calibration is None else calibration.environment
        corrections = {
            phase: correction_of(steps, model, features, setup, levelled=f"{SHARED}{phase}" in levels)
            for phase, steps in known.items()
            if steps
        }
        bare = Calibration(device=device.name, runtime=runtime, dtype=dtype, created=ours[-1].created, unit=device.unit)
        return corrected(calibration or bare, corrections), _notes(corrections, ours, setup)

    return _corrected.get_or_make(asked, (question.graph, calibration, device), make)


# The stamp of the file is part of the key, so what is learned meanwhile counts; a sweep asks for each of its formats
# and threads with one graph.
_corrected = Kept(256)


@frozen
class Scatter:
    """What predictions for models are off by: all alike by `level`, and by variances beyond it."""

    level: float  # the logarithm of what they take over their predictions, as far as it is known beforehand
    doubt: float  # of that, as a variance
    shared: float  # by all of them, beyond the level
    own: float
    freedom: int  # the models behind `own`, less the one that what they share took

    def between(self, likeness: Any, same: Any) -> Any:
        """What the errors of models have in common, by how alike they are and whether they are the same."""
        return self.shared + self.own * (_ALIKE * likeness + (1 - _ALIKE) * same)

    def student(self) -> float:
        """How much wider than a normal distribution's an interval is that so few models tell."""
        return student_quantile(0.8, self.freedom) / EIGHT_IN_TEN


def scatter_of(models: Sequence[str], errors: Any, spread: float, *, levelled: bool) -> Scatter:
    """Of models with these errors, of which a prediction said `spread`.

    What they share may be anything under a prior, so it is no less than their mean: a machine, an engine's version and
    the way of timing shift all models alike, by more than they differ. A calibration of this machine is `levelled`: it
    has all that from probes, so models move it by their median beyond what chance explains.
    """
    means = np.array([np.mean([errors[place] for place, name in enumerate(models) if name == one])
                      for one in dict.fromkeys(models)])  # fmt: skip
    freedom = _TOLD + len(means) - 1
    own = max(_NOISE**2, (_TOLD * spread**2 + float(((means - means.mean()) ** 2).sum())) / freedom)
    if levelled:
        level = _beyond_chance(means, spread)
        doubt = own / len(means) if level else 0.0
        return Scatter(level=level, doubt=doubt, shared=0.0, own=own, freedom=round(freedom))
    shared = max(spread**2, float(means.mean()) ** 2)
    return Scatter(level=0.0, doubt=0.0, shared=shared, own=own, freedom=round(freedom))


def _beyond_chance(errors: Any, spread: float) -> float:
    """The median, which one odd model does not move, shrunk by its variance: James and Stein's positive part."""
    middle = float(np.median(errors))
    scale = _SIGMA * float(np.median(np.abs(errors - middle)))
    variance = (_TOLD * spread**2 + len(errors) * scale**2) / (_TOLD + len(errors))
    doubt = _MEDIAN * variance / len(errors)
    return middle * (1 - doubt / middle**2) if middle**2 > doubt else 0.0


def stranger_to(models: Mapping[str, float], spread: float) -> Correction:
    """What models say of one that is like none of them, beyond probes: what all share, and what they differ by."""
    scatter = scatter_of([*models], np.array([*models.values()]), spread, levelled=True)
    wide = scatter.student() * sqrt(scatter.own + scatter.doubt + _NOISE**2)
    return Correction(shift=scatter.level, spread=wide, lines=len(models), models=len(models))


def correction_of(
    steps: Sequence[LearnedStep],
    model: str,
    features: tuple[int, ...],
    setup: HostSetup | None = None,
    *,
    levelled: bool = False,
) -> Correction:
    """What the lines of a phase say of a model, whose predictions are `levelled` as in `scatter_of`.

    The lines share their errors with each other and with the model by how alike they are; the rest is what they leave
    open.
    """
    errors = np.array([_error(step) for step in steps])
    changed = np.array([setup is not None and bool(changes(step, setup)) for step in steps])
    noise = _NOISE**2 + _CHANGED**2 * changed
    names, shapes = [step.model for step in steps], [step.features for step in steps]
    spread = sqrt(float(np.mean([step.spread**2 for step in steps])))
    scatter = scatter_of(names, errors, spread, levelled=levelled)
    beyond = errors - scatter.level
    between = scatter.between(alike(shapes, shapes), np.equal.outer(names, names))
    towards = scatter.between(alike([features], shapes)[0], np.array([name == model for name in names]))
    inverse = np.linalg.inv(between + np.diag(noise))
    variance = float(scatter.shared + scatter.own - towards @ inverse @ towards) + scatter.doubt + _NOISE**2
    wide = sqrt(max(_NOISE**2, variance))
    if len(steps) >= _ENOUGH:
        # By how much intervals must grow or shrink so that 80 % of the lines lie in theirs, each left out in
        # turn. The errors of all left-out lines follow from the one inverse: an entry of inverse · e over that
        # of the diagonal.
        off = np.abs(inverse @ beyond) / np.sqrt(np.diag(inverse))
        # a handful of lines may agree or scatter by chance: they change the width by no more than five times
        wide *= float(np.clip((1 + 1 / len(errors)) * np.quantile(off, 0.8) / EIGHT_IN_TEN, 0.2, 5.0))
    else:
        wide *= scatter.student()
    return Correction(
        shift=scatter.level + float(towards @ inverse @ beyond), spread=wide, lines=len(steps), models=len(set(names))
    )  # fmt: skip


def _error(step: LearnedStep) -> float:
    return work_error(step.seconds, step.predicted_s, step.overhead_s)


def work_error(seconds: float, predicted_s: float, overhead_s: float) -> float:
    """log(measured / predicted) of the work; overheads are no op's, and are taken as they were predicted."""
    # a step may be all overhead: a logarithm needs something above 0
    work_s = max(predicted_s - overhead_s, 1e-12)
    return log(max(seconds - overhead_s, _LEAST * work_s) / work_s)


def changes(step: LearnedStep, setup: HostSetup) -> tuple[str, ...]:
    """What is no longer as it was when a line was written."""
    return tuple(
        f"{name} {was}, and now {setup.versions[name]}"
        for name, was in sorted(step.versions.items())
        if name in setup.versions and setup.versions[name] != was
    )


def corrected(calibration: Calibration, corrections: Mapping[str, Correction]) -> Calibration:
    """The calibration with what was learned in its factors of whole steps, and what that leaves open as interval."""
    factors, residuals = dict(calibration.factors), dict(calibration.residuals)
    for phase, correction in corrections.items():
        times = exp(correction.shift)
        names = {f"{name}.{phase}" for name in CLASSES} | {f"attention.{path}" for path in _PATHS.get(phase, ())}
        if phase == "forward":  # what runs inside other kernels has one factor for all phases: that of networks
            names |= {FUSED, PLAIN} & calibration.factors.keys()
        for name in names | {name for name in calibration.factors if name.endswith(f".{phase}")}:
            known = calibration.factors.get(name, calibration.factors.get(name.partition(".")[0], 1.0))
            factors[name] = known * times
        residuals[f"step.{phase}"] = correction.spread
    return replace(calibration, factors=factors, residuals=residuals)


def _notes(corrections: Mapping[str, Correction], steps: Sequence[LearnedStep], setup: HostSetup) -> tuple[str, ...]:
    moved = ", ".join(f"{phase} {exp(correction.shift) - 1:+.0%}" for phase, correction in corrections.items())
    of = counted(len({step.model for step in steps}), "model")
    notes = [f"Corrected by {counted(len(steps), 'measured phase')} of {of} profiled on this machine: {moved}."]
    changed = dict.fromkeys(change for step in steps for change in changes(step, setup))
    notes += [f"Some were measured with {change}: they count less, and the interval is wider." for change in changed]
    return tuple(notes)


@frozen
class LearnedOf:
    """What was learned of one engine in one format: how many lines, of which models."""

    runtime: str
    dtype: str
    threads: int | None
    lines: int
    models: tuple[str, ...]
    off: float | None  # what they are off by when each is left out, as a logarithm; None of fewer than three
    basis: str


def learned_here(folder: Path) -> tuple[LearnedOf, ...]:
    """What profiles of this machine have taught, by engine, format, threads and basis."""
    groups: dict[tuple[str, str, int | None, str], list[LearnedStep]] = {}
    place = folder / "learned"
    for path in sorted(place.glob("*.jsonl")) if place.is_dir() else ():
        for step in read_learned(path):
            if step.machine == _machine_id():
                groups.setdefault((step.runtime, step.dtype, step.threads, step.basis), []).append(step)
    return tuple(
        LearnedOf(
            runtime=runtime, dtype=dtype, threads=threads, lines=len(steps),
            models=tuple(dict.fromkeys(step.model for step in steps)), off=_left_out(steps), basis=basis,
        )
        for (runtime, dtype, threads, basis), steps in groups.items()
    )  # fmt: skip


def _left_out(steps: Sequence[LearnedStep]) -> float | None:
    """The median error of lines that were left out, those of their model with them where others are there."""
    errors = []
    for step in steps:
        others = [other for other in steps if other.phase == step.phase and other.model != step.model]
        if others:
            errors.append(abs(_error(step) - correction_of(others, step.model, step.features).shift))
    # Of two errors the median is their mean, which one bad line decides.
    return float(np.median(errors)) if len(errors) >= 3 else None


def carry_over(device: Device, runtime: str, *, roof: Roof | None = None, folder: Path | None = None) -> int:
    """Predict anew what was measured before, now that there is another calibration; returns how many lines it gave.

    Only models that can be read by their name can be: a file may have gone or changed.
    """
    from inferometer.formats.resolve import read  # noqa: PLC0415 - only a new calibration needs a reader
    from inferometer.predict.question import Question  # noqa: PLC0415 - which corrects its calibration through here

    path = learned_file(device.name, runtime, folder)
    known, carried = read_learned(path), []
    current = {step.key for step in known}
    for step in known:
        workload = Workload(
            batch=step.batch, prompt=step.prompt, generate=step.generate, context=step.context, image=step.image,
            precision=formats_of(runtime, step.dtype),
        )  # fmt: skip
        try:
            graph = read(step.model)
            question = Question(
                graph=graph, device=device, runtime=runtime, workload=meaningful(workload, graph), roof=roof,
                had_threads=step.threads, learned=False,
            )  # fmt: skip
            predicted, basis = question.answer().phase(step.phase), basis_of(question.basis().calibration)
        except InferometerError:
            continue
        if predicted is not None and predicted.low_s and predicted.high_s:
            new = replace(step, basis=basis, **_predicted(predicted))
            if new.key not in current:
                carried.append(new)
    if carried:
        keep_learned(path, carried)
    return len(carried)
