"""What a job asks, done: each verb by the same functions that the command line calls.

They are imported by what calls them: a warden needs only the words here, and starts with every job.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from inferometer.core.errors import EngineError, FormatError, InferometerError, TrustError
from inferometer.core.job import Job, JobModel, JobResult
from inferometer.core.settings import value_of
from inferometer.formats.resolve import read
from inferometer.formats.trust.door import require_data
from inferometer.hub.places.artifacts import FileHashes, companions
from inferometer.hub.places.requests import (
    calibrating_of,
    judging_of,
    model_path,
    preparing_of,
    request_of,
    require_known,
)
from inferometer.measure.run.model import MeasuredRun, MeasureRequest, verify_against

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.measure.bench.loop import Progress

# The files that came with a job, looked at before anything opens them: all that its models need, and nothing else.
#
# What a job says beside its files is looked at by `requests.require_known`, wherever a job goes by.

NATIVE_CODE = "native-code"  # what the owner of a device may allow: packages of AOTInductor that come with jobs
_COMPILED = "aoti"


def require_files(job: Job, folder: Path, *, native_code: bool = False) -> tuple[str, ...]:
    """The files as they were said to be, no more than the models need, and without code of their own.

    `native_code`: the owner of this machine lets jobs bring compiled packages. Gives the packages that this one brings.
    """
    for file in job.files:
        place = folder / file.path
        if not place.is_file():
            raise FormatError(f"The job's file {file.path!r} is not there, or is no file.")
        if place.stat().st_size != file.size_bytes:
            raise FormatError(
                f"The job's file {file.path!r} has {place.stat().st_size:,} bytes, and was said to have "
                f"{file.size_bytes:,}.",
                remedy="Send it again.",
            )
    brought = (model for model in (job.model, job.reference) if model is not None and model.files)
    formats = {model_path(model, folder): _let_in(model, folder, native_code=native_code) for model in brought}
    return tuple(path for path, form in formats.items() if form == _COMPILED)


def _let_in(model: JobModel, folder: Path, *, native_code: bool) -> str:
    """The format of a model that is data, or compiled where that is allowed."""
    path = Path(model_path(model, folder))
    if path.is_file():
        needed = {path, *companions(path)}
        extra = next((file.path for file in model.files if folder / file.path not in needed), None)
        if extra is not None:
            raise TrustError(
                f"The job carries {extra!r}, which {model.entry!r} does not need.",
                remedy="A job carries a model's own files alone.",
            )
    form = str(read(str(path)).metadata.get("format"))
    try:
        require_data(path, form, trusted=native_code and form == _COMPILED)
    except TrustError as error:
        allowed = f"The owner of the device can allow it: inferometer hub agent --allow {NATIVE_CODE}."
        raise TrustError(error.message, remedy=allowed if form == _COMPILED else "A job is data.") from None
    return form


MADE = "made"  # the folder beside a job's result with the files that the result names


def carry_out(job: Job, files: Path, progress: Progress, into: Path | None = None) -> JobResult:
    """The result of a job, however it ends; only an interrupt before anything is measured is raised.

    What it makes is left in the folder `made` of `into`.
    """
    verbs: dict[str, Callable[[Job, Path, Progress], JobResult]] = {
        "profile": _measure, "bench": _measure, "verify": _verify, "calibrate": _calibrate,
        "prepare": partial(_prepare, (into or files.parent) / MADE),
    }  # fmt: skip
    try:
        require_known(job)
        return verbs[job.verb](job, files, progress)
    except InferometerError as error:
        return failed(job, error)
    except MemoryError:
        return JobResult(job=job, ended="too-big", error="The memory was not enough.", error_kind="EngineError")
    except Exception as error:  # noqa: BLE001 - a fault of ours is a result too: whoever waits must hear of it
        import traceback  # noqa: PLC0415 - only here

        words = f"{type(error).__name__}: {error}"
        return JobResult(job=job, ended="failed", error=words, error_kind="EngineError", log=traceback.format_exc())


def failed(job: Job, error: InferometerError) -> JobResult:
    """What was refused before it ran, or what the engine did not manage; told apart by the class of the error."""
    return JobResult(
        job=job,
        ended="failed" if isinstance(error, EngineError) else "refused",
        error=error.message,
        remedy=error.remedy,
        error_kind=type(error).__name__,
    )


def hide_places(text: str, folder: Path) -> str:
    """A text for whoever asked for a job, without where this device keeps things.

    Paths in the job's folder, in the agent's, and in that of temporary files lose all that is before the name that the
    job has for the file, or before the last name; the user's folder is ~.
    """
    separator, ending = r"[\\/]", r"(?![\w-]|\.\w)"
    for place in (folder, folder.resolve()):
        own = re.escape(str(place))
        text = re.sub(rf"{own}{separator}(files{separator})?", "", text)
        text = re.sub(own + ending, "the job's folder", text)
        text = re.sub(rf"{re.escape(str(place.parent.parent))}{separator}", "", text)
    inside = rf"{separator}(?:[^\\/\s'\":,;]+{separator})*"
    text = re.sub(re.escape(tempfile.gettempdir()) + inside, "", text)
    home = os.path.expanduser("~")  # noqa: PTH111 - pathlib raises where a service's user has none
    return text if len(Path(home).parts) < 2 else re.sub(re.escape(home) + ending, "~", text)


def without_places(result: JobResult, folder: Path) -> JobResult:
    """The same for all that a result says in words."""
    return replace(
        result,
        error=None if result.error is None else hide_places(result.error, folder),
        remedy=None if result.remedy is None else hide_places(result.remedy, folder),
        log=hide_places(result.log, folder),
    )


def _measure(job: Job, files: Path, progress: Progress) -> JobResult:
    from inferometer.api import measure_and_judge  # noqa: PLC0415 - as above

    judging = judging_of(job)
    measured = measure_and_judge(
        _request(job, files),
        predict=judging.predict,
        on=judging.device,
        reference=judging.against,
        reference_model=None if job.reference is None else model_path(job.reference, files),
        progress=progress,
    )
    return result_of(job, measured)


def _request(job: Job, files: Path) -> MeasureRequest:
    return replace(request_of(job, files), trust=_admitted(job, files))


def _admitted(job: Job, files: Path) -> tuple[str, ...]:
    """The job's files are data, or code that the owner of this machine allows: gives that."""
    allowed = NATIVE_CODE in (value_of("INFEROMETER_ALLOW") or "").split(",")
    return require_files(job, files, native_code=allowed)


def result_of(job: Job, measured: MeasuredRun) -> JobResult:
    from inferometer.measure.run.outcome import outcome_of  # noqa: PLC0415 - as above

    outcome = outcome_of(measured)
    return JobResult(
        job=job,
        ended=measured.raw.ended,
        profiles=outcome.profiles,
        error=outcome.error,
        remedy=outcome.remedy,
        error_kind=None if measured.complete else "EngineError",
        log=outcome.log,
        series={name: tuple(points.items()) for name, points in outcome.series.items()},
    )


def _verify(job: Job, files: Path, progress: Progress) -> JobResult:
    del progress  # two runs of one step each
    judging = judging_of(job)
    verification = verify_against(
        _request(job, files),
        judging.against or "",
        tolerance=judging.tolerance,
        model=None if job.reference is None else model_path(job.reference, files),
    )
    return JobResult(job=job, ended="done", verification=verification)


def _prepare(made: Path, job: Job, files: Path, progress: Progress) -> JobResult:
    """The model for one engine, proven step by step. What gives wrong outputs fails, and its proof says where."""
    del progress  # each step tells of itself
    from inferometer.measure.prepare.artifact import written  # noqa: PLC0415 - as above
    from inferometer.measure.prepare.carrying_out import model_files  # noqa: PLC0415 - as above
    from inferometer.measure.prepare.run import PrepareRequest, carry_out_request, prepared_document  # noqa: PLC0415 - as above

    assert job.model is not None  # noqa: S101 - whoever prepares has one
    assert job.runtime is not None  # noqa: S101 - `require_known` has seen to it
    asked, compiled = preparing_of(job), _admitted(job, files)
    prepared = carry_out_request(
        PrepareRequest(
            model=model_path(job.model, files), runtime=job.runtime, quantise=asked.quantise, workload=job.workload,
            sizes=asked.sizes, threads=asked.threads, runs=asked.runs, seed=asked.seed, trust=compiled,
        )
    )  # fmt: skip
    proof = {**prepared_document(prepared), "model": job.model.name, "artifact": None}
    proof["notes"] = [hide_places(note, files.parent) for note in proof["notes"]]
    for step in proof["steps"]:
        step["notes"] = [hide_places(note, files.parent) for note in step["notes"]]
    kept = () if prepared.profile is None else (prepared.profile,)
    result = JobResult(job=job, ended="done", profiles=kept, prepared=proof)
    if prepared.artifact is None:
        wrong = next((row for row in prepared.steps if row.verdict == "wrong"), None)
        reason = "There was nothing to do" if wrong is None else f"The step {wrong.name} makes the outputs wrong"
        remedy = "`inferometer prepare --dry` shows what each format would bring." if wrong is None else None
        return replace(result, ended="failed", error=f"{reason}: nothing was made.", remedy=remedy)
    suffix = "" if prepared.artifact.is_dir() else prepared.artifact.suffix
    stem = Path(job.model.entry or job.model.name).name.removesuffix(suffix or " ")
    made.mkdir(parents=True, exist_ok=True)
    out = written(prepared.artifact, made / f"{stem}-{asked.quantise or job.runtime}{suffix}", overwrite=True)
    hashes = FileHashes()
    named = tuple(hashes.file(path, path.relative_to(made).as_posix()) for path in model_files(out))
    return replace(result, made=named, prepared={**proof, "artifact": out.name})


def _calibrate(job: Job, files: Path, progress: Progress) -> JobResult:
    del files  # it makes its own models
    from inferometer.measure.calibrate.job import calibrate, calibration_job, prepare_engine  # noqa: PLC0415 - as above
    from inferometer.measure.calibrate.run import step_of  # noqa: PLC0415 - as above
    from inferometer.predict.basis.files import own_folder  # noqa: PLC0415 - as above

    asked = calibrating_of(job)
    made = calibration_job(
        asked.device,
        unit=asked.unit,
        runtime=job.runtime,
        dtype=asked.dtype,
        threads=asked.threads,
        budget_s=asked.budget_s,
        folder=own_folder(),
        fresh=asked.fresh,
        guarded=asked.guarded,
    )
    outcome = calibrate(made, prepare_engine(made), watch=lambda at: progress(step_of(at)))
    if outcome.calibration is None:
        stopped = outcome.kept or "Stopped. What was measured is kept where it ran."
        return JobResult(job=job, ended="stopped", error=stopped)
    spent = outcome.outcome
    log = f"{spent.done} cases measured, {spent.left} left out for lack of time, {len(spent.skipped)} impossible.\n"
    return JobResult(job=job, ended="done", calibration=outcome.calibration, log=log)
