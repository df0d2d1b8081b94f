"""Jobs ↔ what the measuring code takes. Only what differs from a default travels.

An option that this version does not know is refused: skipped, the job would measure something else than was asked.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from inferometer.core.codec import encode, settled
from inferometer.core.errors import DomainError, SchemaError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.job import Job, JobFile, JobModel, Verb
from inferometer.core.workload import Workload
from inferometer.hub.places.artifacts import FileHashes, ModelFiles, model_files
from inferometer.hub.places.base import LocalFiles
from inferometer.known.engines import engine as engine_named
from inferometer.known.engines import known_engine
from inferometer.known.files import is_built_in
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.model import MeasureRequest
from inferometer.measure.run.tolerance import Tolerance
from inferometer.version import __version__

V = TypeVar("V")
# Fields of a request that a job has itself, and those that hold on one machine alone: the address of two models that
# take turns, and what its owner trusts.
_OWN = frozenset({"model", "runtime", "workload", "plan", "command", "turns", "trust"})


@frozen
class Judging:
    """What is asked for beside the measurement. `device` is the catalog device that the machine is."""

    predict: bool = True
    device: str | None = None
    against: str | None = None  # a runtime to compare the outputs with
    tolerance: Tolerance | None = None


@frozen
class Calibrating:
    """What `calibrate` takes, beside the runtime."""

    budget_s: float = 120.0
    device: str = "local"
    unit: str | None = None
    dtype: str | None = None
    threads: int | None = None
    guarded: bool = True
    fresh: bool = False


@frozen
class Preparing:
    """What `prepare` takes, beside the model, the runtime and the workload. Ranges are found with random inputs."""

    quantise: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    threads: int | None = None
    runs: int | None = None
    seed: int = 0


@frozen
class PackedJob:
    """A job, and its files on this machine."""

    job: Job
    files: LocalFiles


def pack_measurement(
    verb: Verb, request: MeasureRequest, judging: Judging | None = None, *, reference: str | None = None
) -> PackedJob:
    """The job of a measurement. The hashes of its files are worked out here."""
    if request.trust:
        raise DomainError(
            f"--trust {request.trust[0]} holds on this machine, and the job runs on another.",
            remedy="Leave it out: whoever owns the device decides what may run there.",
        )
    hashes = FileHashes()
    model = model_files(request.model, hashes=hashes)
    other = None if reference is None else _beside(model_files(reference, hashes=hashes), model)
    inputs, numbers = _inputs(request.inputs, hashes)
    paths = {**model.paths, **(other.paths if other else {}), **inputs.paths}
    brought = {"reference": other.model if other else None, "inputs": inputs.files}
    job = measurement_job(verb, replace(request, inputs=numbers), model.model, judging, **brought)
    return PackedJob(job=job, files=paths)


def measurement_job(
    verb: Verb, request: MeasureRequest, model: JobModel, judging: Judging | None = None, **brought: Any
) -> Job:
    """The job of a measurement whose files are somewhere else already. `brought` are other files that it names."""
    return _made(
        verb=verb,
        model=model,
        runtime=request.runtime,
        workload=request.workload,
        plan=None if request.plan is None else _changed(request.plan),
        options={**_changed(request, _OWN), **(_changed(judging) if judging else {})},
        command=request.command,
        **brought,
    )


def pack_calibration(runtime: str | None, asked: Calibrating, *, command: str | None = None) -> PackedJob:
    job = _made(verb="calibrate", runtime=runtime, options=_changed(asked), command=command)
    return PackedJob(job=job, files={})


def preparation_job(runtime: str, workload: Workload, model: JobModel, asked: Preparing) -> Job:
    """The job of preparing a model whose files are somewhere else already."""
    return _made(verb="prepare", model=model, runtime=runtime, workload=workload, options=_changed(asked))


def _beside(reference: ModelFiles, model: ModelFiles) -> ModelFiles:
    """The reference in a folder of its own, if another file of the same name comes with the model."""
    known = {file.path: file.sha256 for file in model.model.files}
    named = reference.model
    if all(known.get(file.path, file.sha256) == file.sha256 for file in named.files):
        return reference
    files = tuple(replace(file, path=f"reference/{file.path}") for file in named.files)
    return replace(reference, model=replace(named, entry=f"reference/{named.entry}", files=files))


@frozen
class _InputFiles:
    files: dict[str, JobFile]
    paths: LocalFiles


def _inputs(given: Mapping[str, str], hashes: FileHashes) -> tuple[_InputFiles, dict[str, str]]:
    """Inputs that are files travel as files; numbers stay options."""
    files: dict[str, JobFile] = {}
    paths, numbers = {}, {}
    for name, value in given.items():
        path = Path(value)
        if not path.is_file():
            numbers[name] = value
            continue
        file = hashes.file(path.resolve(), f"inputs/{len(files)}-{path.stem}.npy")
        files[name], paths[file.sha256] = file, path.resolve()
    return _InputFiles(files=files, paths=paths), numbers


def _made(**known: Any) -> Job:
    """A job whose id follows from what it asks, so that asking again while it runs finds it running."""
    draft = Job(id="draft", by=__version__, **known)
    mark = hashlib.sha256(encode(replace(draft, command=None))).hexdigest()[:16]
    return replace(draft, id=f"{draft.verb}-{mark}", created=datetime.now(UTC).isoformat(timespec="seconds"))


def _changed(value: Any, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The fields of a value that are not at their default, as plain data."""
    return {
        entry.name: msgspec.to_builtins(getattr(value, entry.name))
        for entry in fields(value)
        if entry.name not in without and getattr(value, entry.name) != _default(entry)
    }


def _default(entry: Field[Any]) -> Any:
    if entry.default_factory is not MISSING:
        return entry.default_factory()
    return entry.default


def request_of(job: Job, folder: Path) -> MeasureRequest:
    """The measurement that a job asks for; its files lie in the folder."""
    if job.model is None:
        raise DomainError(f"Job {job.id} has no model.")
    names = {entry.name for entry in fields(MeasureRequest)}
    options = {name: value for name, value in job.options.items() if name in names - _OWN}
    inputs = {name: str(folder / file.path) for name, file in job.inputs.items()}
    request = _converted({**options, "model": model_path(job.model, folder)}, MeasureRequest)
    return replace(
        request,
        runtime=job.runtime,
        workload=job.workload,
        plan=None if job.plan is None else _converted(job.plan, Plan),
        inputs={**request.inputs, **inputs},
        command=job.command,
    )


def model_path(model: JobModel, folder: Path) -> str:
    return str(folder / model.entry) if model.files else model.name


def judging_of(job: Job) -> Judging:
    return _rest_of(job, Judging, {entry.name for entry in fields(MeasureRequest)} - _OWN)


def calibrating_of(job: Job) -> Calibrating:
    return _rest_of(job, Calibrating, set())


def preparing_of(job: Job) -> Preparing:
    return _rest_of(job, Preparing, set())


def _rest_of(job: Job, kind: type[V], measured: set[str]) -> V:
    return _converted({name: value for name, value in job.options.items() if name not in measured}, kind)


def _converted(plain: Mapping[str, Any], kind: type[V]) -> V:
    assert is_dataclass(kind)  # noqa: S101 - for the type checker
    known = {entry.name for entry in fields(kind)}
    unknown = sorted(plain.keys() - known)
    if unknown:
        raise SchemaError(
            f"The job asks for {', '.join(map(repr, unknown))}, which Inferometer {__version__} does not know.",
            remedy="Upgrade it where the job runs.",
        )
    try:
        return msgspec.convert(plain, settled(kind))
    except msgspec.ValidationError as error:
        raise SchemaError(f"The job's {kind.__name__} does not hold: {error}.") from None


def require_known(job: Job) -> None:
    """Everything that a job says is known: models that every place has, options of this version and of the engine."""
    for model in (job.model, job.reference):
        if model is not None and not model.files and not is_built_in("models", model.name):
            raise UnknownNameError(
                "model of the catalog", model.name, (), listing="A job brings the files of any other model with it."
            )
    if job.verb == "calibrate":
        calibrating_of(job)
        return
    if job.verb == "prepare":
        engine_named(job.runtime or "")
        preparing_of(job)
        return
    request = request_of(job, Path("files"))  # wherever they are: nothing is opened
    judging_of(job)
    if request.options:
        given = frozenset(request.options)
        engine = known_engine(job.runtime) if job.runtime is not None else None
        if engine is None:
            raise DomainError(
                f"The job sets the option {min(given)!r} of an engine that it does not name, or that is not described.",
                remedy="Name the runtime, one of those that `inferometer runtimes` lists.",
            )
        for name in sorted(given - engine.job_options):
            raise UnknownNameError(
                f"option of {engine.title} that a job may set", name, engine.job_options,
                listing=f"There are: {', '.join(sorted(engine.job_options)) or 'none'}.",
            )  # fmt: skip
