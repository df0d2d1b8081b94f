"""A calibration from start to end: a provider for the runtime, the run, the fit, the file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.core.calibration import Calibration
from inferometer.core.device import LOCAL, Device, is_local
from inferometer.core.errors import DomainError, EngineError, InferometerError
from inferometer.core.frozen import frozen
from inferometer.core.settings import cache_folder, learns
from inferometer.core.units import counted
from inferometer.known.engines import engine, engines
from inferometer.known.machine.detect.identity import this_machine
from inferometer.known.machine.health import host_call_s
from inferometer.measure.calibrate.fitting.assemble import assemble_calibration
from inferometer.measure.calibrate.fitting.base import with_peaks_of
from inferometer.measure.calibrate.fitting.held_against import held_against
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject
from inferometer.measure.calibrate.fitting.whole_models import FEWEST
from inferometer.measure.calibrate.run import (
    CalibrationJournal,
    CalibrationOutcome,
    CalibrationProgress,
    CandidateSource,
    Together,
    calibrate_with,
)
from inferometer.predict.basis.calibrations import (
    WIDER_VERSION,
    HostSetup,
    choose_calibration,
    differences,
    host_setup,
    widened,
)
from inferometer.predict.basis.files import sealed, write_calibration
from inferometer.predict.basis.learned import carry_over
from inferometer.predict.basis.roof import roof_for
from inferometer.predict.basis.same_core import shipped_for

if TYPE_CHECKING:
    from inferometer.core.engine import RuntimeEffects

LEAST_BUDGET_S = 1.0  # less does not open one engine
_CASES = 240  # the budget over the time that one case may run: making and opening it take as long again
_ROUNDS = 6  # of all cases, on a CPU: its pace drifts
_FITTING = 0.06  # of the budget: the most that the last fit takes
_LOOK_S = 10.0  # between two looks at who else uses a GPU

_UNGUARDED = "unguarded"  # an empty file of a journal
UNGUARDED_NOTE = (
    "It was calibrated with --no-guard, so nobody looked whether other programs made it slow: "
    "`inferometer calibrate --fresh` on a quiet machine measures it again."
)


@frozen
class CalibrationJob:
    """What to calibrate. `folder` keeps the journals, and the calibrations unless `out` names a file."""

    device: Device
    runtime: str
    dtype: str
    budget_s: float
    folder: Path
    out: Path | None = None
    fresh: bool = False  # measure everything again; what the device had before is still where it starts
    threads: int | None = None  # of a CPU; see `default_threads`
    guarded: bool = True  # watch for disturbances
    models: tuple[str, ...] = ()  # whose predictions it should make better; see `wanted`

    def __post_init__(self) -> None:
        if not self.budget_s >= LEAST_BUDGET_S:
            raise DomainError(f"A budget of {self.budget_s:g} s measures nothing.", remedy="Give 30 s or more.")

    @property
    def journal(self) -> CalibrationJournal:
        """Each number of threads has a journal of its own, as if it were another machine."""
        named = f"{self.device.name}-{self.runtime}-{self.dtype}"
        many = "" if self.threads is None else f"-{self.threads}-threads"
        return CalibrationJournal(folder=self.folder / "journals" / f"{named}{many}")


@frozen
class PreparedEngine:
    """An engine that is ready to be measured. `disturbed` returns what disturbs the machine now, or None.

    Preparing it took `spent_s` of the budget: its ceilings are measured first.
    """

    provider: CandidateSource
    spent_s: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    disturbed: Callable[[], str | None] | None = None
    device: Device | None = None  # with the peaks that the engine reached
    base: Calibration | None = None  # what the device had before, with shares of the same peaks
    serving: Calibration | None = None  # without a base: what predictions here stood on, made on another core
    threads: int | None = None
    rounds: int = 1  # of measuring everything, if time is left
    release: Callable[[], None] = lambda: None  # called when all is measured


@frozen
class CalibrationResult:
    """The measurements and the calibration made of them. If `kept` gives a reason, nothing was written."""

    outcome: CalibrationOutcome
    calibration: Calibration | None = None
    path: Path | None = None
    kept: str | None = None


def calibration_job(  # noqa: PLR0913 - what a calibration is asked for
    device_name: str,
    *,
    folder: Path,
    budget_s: float,
    unit: str | None = None,
    runtime: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    out: Path | None = None,
    fresh: bool = False,
    guarded: bool = True,
    models: tuple[str, ...] = (),
) -> CalibrationJob:
    """The calibration of a device by its name, with the defaults that follow from it."""
    require_models(models)  # before roofs are measured, and what an earlier run kept is removed
    device = device_to_calibrate(device_name, unit, runtime)
    runtime = runtime or default_calibration_runtime(device)
    return CalibrationJob(
        device=device,
        runtime=runtime,
        dtype=dtype or default_dtype(device, runtime),
        budget_s=budget_s,
        folder=folder,
        out=out,
        fresh=fresh,
        threads=calibration_threads(device, threads),
        guarded=guarded,
        models=models,
    )


def device_to_calibrate(name: str, unit: str | None, runtime: str | None) -> Device:
    """The device of that name. This machine's best unit, unless one is asked for or the engine has no probes there."""
    from inferometer.predict.ask import device_for  # noqa: PLC0415 - reads rows

    device = device_for(f"{LOCAL}:{unit}" if name == LOCAL and unit is not None else name, [runtime])
    if unit is not None and device.unit != unit.partition(":")[0]:
        raise InferometerError(
            f"--unit is {unit}, but {device.name} is a {device.unit}.", remedy="Name the device with --device."
        )
    return device


def default_calibration_runtime(device: Device) -> str:
    """The runtime calibrated by default: the first for GPUs or for arrays, which runs most kinds of model."""
    use = "gpu" if device.unit == "gpu" else "arrays"
    return next(name for name, described in engines().items() if use in described.first_for)


def default_dtype(device: Device, runtime: str) -> str:
    """The engine's own format (the weights', if it is calibrated by weight format), otherwise the device's."""
    wide = "bf16" if device.unit == "gpu" and "bf16" in device.peaks else "f32"
    return engine(runtime).calibrated_in or wide


def calibration_threads(device: Device, threads: int | None) -> int | None:
    """The threads given, otherwise the engine's default; on a GPU none unless given."""
    if device.unit != "cpu":
        return threads
    from inferometer.engines.host import threads_of  # noqa: PLC0415 - only an engine on a CPU has threads

    return threads_of(threads)


def prepare_engine(job: CalibrationJob, *, clock: Callable[[], float] = time.monotonic) -> PreparedEngine:
    """Prepare a runtime's engine for the kind of probe that its descriptor names for the unit."""
    described, unit = engine(job.runtime), job.device.unit
    if unit not in described.calibrated:
        able = [name for name, other in engines().items() if unit in other.calibrated]
        raise DomainError(
            f"{job.runtime} on a {unit} has no probes to calibrate it with.",
            remedy=f"Calibrate {' or '.join(able)}, or another unit." if able else "Calibrate another unit.",
        )
    if described.calibrated[unit] != "kernels":
        return _probed(job, clock)
    if job.models:
        raise DomainError(
            f"{job.runtime} on a {unit} is calibrated by its kernels, whatever models they are for.",
            remedy="Leave out --for.",
        )
    return _kernels(job, described.effects)


def require_models(names: Iterable[str]) -> None:
    """Refuse a name that is no model's, in the words of whoever looks for it."""
    from inferometer.formats.resolve import read  # noqa: PLC0415 - brings readers of files

    for name in names:
        read(name)


def _probed(job: CalibrationJob, clock: Callable[[], float]) -> PreparedEngine:
    from inferometer.measure.bench.guard import Guard  # noqa: PLC0415 - engines on a CPU bring their own
    from inferometer.measure.calibrate.engines import (  # noqa: PLC0415 - as above
        ProbedEngine,
        circumstances,
        decoders_beside,
        disturbed_by,
        engine_provider,
        require_quiet_machine,
    )
    from inferometer.measure.calibrate.probes.host_readings import HostReadings  # noqa: PLC0415 - as above
    from inferometer.measure.calibrate.probes.provider import CEILINGS  # noqa: PLC0415 - as above
    from inferometer.measure.calibrate.wanted import WantedModels, lately_profiled, usual_models  # noqa: PLC0415 - as above
    from inferometer.measure.run.child import runtime_named  # noqa: PLC0415 - as above

    started = clock()
    threads = job.threads or calibration_threads(job.device, None) or 1
    probed = ProbedEngine(
        runtime=runtime_named(job.runtime),
        device=job.device,
        dtype=job.dtype,
        threads=threads,
        journal=job.journal.folder,
        limit_s=max(0.1, min(1.0, job.budget_s / _CASES)),  # below it no median, beyond it nothing new
    )
    guard = Guard()
    if job.guarded:
        require_quiet_machine(guard)
    versions, environment = host_setup(job.runtime).versions, circumstances(guard)
    if job.fresh:
        (job.journal.folder / CEILINGS).unlink(missing_ok=True)
    base = begin_journal(replace(job, threads=threads), versions, environment)
    provider = engine_provider(probed, job.journal.points(), base)
    if base is not None and provider.device is not job.device:  # its row states no peaks
        base = with_peaks_of(provider.device, base)
    readings = HostReadings(device=job.device, dtype=job.dtype, threads=threads, folder=cache_folder())
    measured: CandidateSource = Together(provider, *decoders_beside(probed, provider), readings)
    models = job.models or lately_profiled(job.folder, job.device.name, job.runtime, job.dtype)
    beside = (
        ()
        if job.models or not is_local(job.device.name)
        else usual_models(engine(job.runtime).calibrated[job.device.unit], models)
    )
    if models or beside:
        subject = CalibrationSubject(
            device=provider.device, runtime=engine(job.runtime).effects, dtype=job.dtype, created=""
        )
        measured = WantedModels(
            provider=measured, subject=subject, models=models, beside=beside, budget_s=job.budget_s,
            threads=threads, base=base,
        )  # fmt: skip
    return PreparedEngine(
        provider=measured,
        spent_s=clock() - started,
        versions=versions,
        environment=environment,
        disturbed=disturbed_by(guard) if job.guarded else None,
        device=provider.device,
        base=base,
        serving=None if base is not None else serving_from_elsewhere(replace(job, threads=threads)),
        threads=threads,
        rounds=_ROUNDS,
        release=provider.close,
    )


def _kernels(job: CalibrationJob, effects: RuntimeEffects) -> PreparedEngine:
    from inferometer.engines.torch.engine import import_torch  # noqa: PLC0415 - as above
    from inferometer.measure.calibrate.torch.provider import (  # noqa: PLC0415 - only torch needs it
        now_and_then,
        others_on,
        require_cuda,
        torch_environment,
        torch_provider,
    )

    torch = import_torch()
    require_cuda(torch)
    reason = others_on(torch)
    if reason is not None:
        raise EngineError(f"The GPU is shared: {reason}.", remedy="Calibrate when nothing else runs on it.")
    versions, environment = torch_environment(torch)
    return PreparedEngine(
        # A kernel has a sixtieth of the budget, so that a slow one leaves room for others. Below half a second many
        # large ones would run only once, and none is worth more than three.
        provider=torch_provider(torch, job.device, effects, job.dtype, limit_s=max(0.5, min(3.0, job.budget_s / 60))),
        versions=versions,
        environment=environment,
        base=begin_journal(job, versions, environment),
        disturbed=now_and_then(lambda: others_on(torch), _LOOK_S, time.monotonic),
    )


def begin_journal(
    job: CalibrationJob, versions: Mapping[str, str], environment: Mapping[str, str]
) -> Calibration | None:
    """Begin the journal, or resume it; and what it starts from: the calibration that the device has.

    For this machine that may be a shipped one of its kind. It may have been made with other versions: then it is less
    certain, as it is for a prediction. Another number of threads is another machine, and so is `local` on another
    processor.
    """
    if job.fresh:
        job.journal.clear()

    def choose() -> Calibration | None:
        base = choose_calibration(job.device.name, job.runtime, job.dtype, folders=(job.folder,)).calibration
        if base is None and job.device.name == LOCAL:
            base = shipped_for(job.device, job.runtime, job.dtype, HostSetup(), this_machine()).calibration
        if base is None or (base.dtype, base.threads) != (job.dtype, job.threads):
            return None
        elsewhere = job.device.name == "local" and base.environment.get("cpu") != environment.get("cpu")
        return None if elsewhere else base

    base = job.journal.base(choose)
    if base is None or not differences(base, HostSetup(versions=versions)):
        return base
    return widened(base, WIDER_VERSION)


def serving_from_elsewhere(job: CalibrationJob) -> Calibration | None:
    """The calibration that serves this machine until it has its own, if that was made on another core.

    No fit starts from it: its shares by size are of other caches, and fits that began there were further off (left-out
    models 26 to 34 %, against 11 to 18 % of the probes alone). But it is often nearer than the priors, so a calibration
    must beat it to take its place.
    """
    if job.device.name != LOCAL or job.device.unit != "cpu":
        return None
    setup = HostSetup(threads=job.threads)
    return shipped_for(job.device, job.runtime, job.dtype, setup, this_machine()).calibration


def calibrate(
    job: CalibrationJob,
    prepared: PreparedEngine,
    *,
    watch: Callable[[CalibrationProgress], None] | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    calls: Callable[[], float] = host_call_s,
) -> CalibrationResult:
    """Measure, fit and write. An interrupted run keeps its journal, says so there, and writes no calibration."""
    left_s = (1 - _FITTING) * job.budget_s - prepared.spent_s
    try:
        outcome = calibrate_with(
            prepared.provider,
            job.journal,
            budget_s=max(LEAST_BUDGET_S, left_s),
            watch=watch,
            disturbed=prepared.disturbed,
            rounds=prepared.rounds,
        )
    finally:
        prepared.release()
    if outcome.interrupted:
        cases = counted(outcome.done, "case")
        job.journal.note_kept(f"A run was stopped after {cases}, which are kept; the same command goes on from there.")
        return CalibrationResult(outcome=outcome)
    subject = CalibrationSubject(
        device=prepared.device or job.device,
        runtime=engine(job.runtime).effects,
        dtype=job.dtype,
        created=now().isoformat(timespec="seconds"),
        versions=prepared.versions,
        environment=prepared.environment,
        threads=prepared.threads or job.threads,
        host_call_s=calls(),
        reached=prepared.device is not None and prepared.device is not job.device,
    )
    calibration = assemble_calibration(subject, outcome.points, outcome.steps, prepared.base)
    judged = held_against(
        job.device, subject, calibration, outcome.steps, prepared.base or prepared.serving,
        taught=_teaches(job) and job.guarded and learns(),
    )  # fmt: skip
    kept = f"{judged} What was known before is nearer, so it stays: nothing was written." if judged.is_worse else None
    if job.device.unit == "cpu" and prepared.base is None and not judged.now:  # other peaks alone move every prior
        kept = (
            f"Fewer than {FEWEST} whole models were measured, so nothing shows whether it would predict better than "
            "what was known before: nothing was written. Run it again to continue, or give it more time."
        )
    job.journal.note_kept(kept)
    if kept is not None:
        _let_learn(job, outcome, prepared.threads)
        return CalibrationResult(outcome=outcome, kept=kept)
    notes = (*calibration.notes, *([str(judged)] if judged.now else []), *_unguarded_notes(job))
    calibration = sealed(replace(calibration, notes=notes))
    path = write_calibration(calibration, job.out or job.folder)
    _let_learn(job, outcome, prepared.threads)
    return CalibrationResult(outcome=outcome, calibration=calibration, path=path)


def _unguarded_notes(job: CalibrationJob) -> tuple[str, ...]:
    """What stands on everything that is predicted from cases of which nobody knows whether they were disturbed."""
    mark = job.journal.folder / _UNGUARDED  # a later run that looks goes on with the same cases
    if job.fresh:
        mark.unlink(missing_ok=True)
    if not job.guarded:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    return (UNGUARDED_NOTE,) if mark.exists() else ()


def _teaches(job: CalibrationJob) -> bool:
    """Whether predictions learn from what it measures: those for this machine's own CPU."""
    return is_local(job.device.name) and job.device.unit == "cpu" and job.out is None


def _let_learn(job: CalibrationJob, outcome: CalibrationOutcome, threads: int | None) -> None:
    """Corrections from profiles belonged to the calibration before; whole models measured now replace them."""
    if not _teaches(job):
        return
    from inferometer.measure.calibrate.wanted import keep_asked  # noqa: PLC0415 - brings what measures models

    carry_over(job.device, job.runtime, roof=roof_for(job.device), folder=job.folder)
    if job.guarded:
        keep_asked(job.device, job.runtime, outcome.steps, threads=threads or job.threads, folder=job.folder)
