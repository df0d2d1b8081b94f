"""Benchmarks that engines come with, for devices that run no Python: how each is asked, and who reads what it prints.

The binary is the user's own build for the device, named in the address; a job has none. A benchmark takes fewer options
than our own measuring, and those that it does not take are refused.
"""

import tempfile
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path

from inferometer.core.errors import DomainError, InferometerError, UnknownNameError
from inferometer.core.frozen import frozen
from inferometer.core.job import Job, JobResult
from inferometer.engines.results.detect import import_file
from inferometer.hub.places.base import PlaceAddress
from inferometer.hub.places.requests import request_of
from inferometer.measure.run.model import MeasureRequest

# Options of a job that such a benchmark can be asked for, or that mean nothing on a phone.
_TAKEN = frozenset({
    "threads", "options", "guarded", "energy", "shape", "strict", "limits", "predict", "seed", "cases",
})  # fmt: skip


@frozen
class Benchmark:
    """A benchmark that an engine comes with: how it is asked, and which importer reads what it prints."""

    name: str
    runtime: str
    importer: str
    suffixes: tuple[str, ...]

    def arguments(self, model: str, request: MeasureRequest) -> list[str]:
        options = request.options
        if self.runtime == "llamacpp":
            return _llama_bench(model, request, options)
        runs = [f"--num_runs={request.plan.runs}"] if request.plan else []
        threads = [f"--num_threads={request.threads}"] if request.threads else []
        shape = ["--enable_op_profiling=true"] if request.shape else []
        return [f"--graph={model}", *shape, *runs, *threads, *(f"--{key}={value}" for key, value in options.items())]


def _llama_bench(model: str, request: MeasureRequest, options: Mapping[str, str]) -> list[str]:
    workload = request.workload
    sizes = {
        "-p": workload.prompt, "-n": workload.generate, "-d": workload.context, "-t": request.threads,
        "-r": request.plan.runs if request.plan else None,
    }  # fmt: skip
    asked = [word for flag, value in sizes.items() if value is not None for word in (flag, str(value))]
    return [
        "-m",
        model,
        "-o",
        "json",
        *asked,
        *(word for pair in options.items() for word in (f"--{pair[0]}", pair[1])),
    ]


BENCHMARKS = (
    Benchmark(name="benchmark_model", runtime="litert", importer="litert", suffixes=(".tflite",)),
    Benchmark(name="llama-bench", runtime="llamacpp", importer="llama-bench", suffixes=(".gguf",)),
)


@frozen
class Program:
    """A benchmark as its user built it for a device, with the libraries that it needs."""

    benchmark: Benchmark
    binary: Path
    libraries: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.binary, *self.libraries)

    def request(self, job: Job) -> MeasureRequest:
        """What is asked of the benchmark. What it cannot be asked is refused here."""
        require_measurement(job, "A phone", "it runs an engine's own benchmark, which only measures")
        if job.runtime not in {None, self.benchmark.runtime}:
            raise DomainError(
                f"{self.binary.name} is of {self.benchmark.runtime}, and --runtime is {job.runtime}.",
                remedy="Name the benchmark of that engine: ?binary=PATH.",
            )
        entry = job.model.entry if job.model is not None else ""
        if not entry.endswith(self.benchmark.suffixes):
            takes = " or ".join(self.benchmark.suffixes)
            raise DomainError(f"{self.benchmark.name} opens {takes} files, and this is {entry}.")
        require_taken(
            job, _TAKEN, f"{self.benchmark.name} on a phone", "--option KEY=VALUE passes on what the benchmark knows"
        )
        return request_of(job, Path())

    def result(self, job: Job, out: bytes, log: str, device: str) -> JobResult:
        """What it printed, read through its importer."""
        return imported(
            job, out, log, device=device, source=self.benchmark.importer, runtime=self.benchmark.runtime,
            what=f"What {self.binary.name} printed",
        )  # fmt: skip

    def failed(self, job: Job, code: int | None, log: str) -> JobResult:
        lines = [line.strip() for line in log.splitlines() if line.strip()]
        said = f" It said: {' / '.join(lines[-3:])}" if lines else ""
        how = "was ended without an exit code" if code is None else f"ended with exit code {code}"
        remedy = "Run it by hand with `adb shell` to see more."
        if code in {126, 127}:  # what a shell says of a program that it cannot start
            remedy = "Build it for the phone (mostly arm64-v8a), and name the libraries that it needs: &with=LIB.so."
        return JobResult(
            job=job, ended="failed" if code is not None else "lost", error=f"{self.binary.name} {how}.{said}",
            remedy=remedy, error_kind="EngineError", log=log,
        )  # fmt: skip


def program_of(address: PlaceAddress) -> Program:
    """The program of `?binary=PATH&with=LIB.so,LIB.so&kind=NAME`."""
    binary = _existing(address.options.get("binary"), address)
    libraries = [_existing(name, address) for name in address.options.get("with", "").split(",") if name]
    name = address.options.get("kind") or binary.name
    for benchmark in BENCHMARKS:
        if benchmark.name in name:
            return Program(benchmark=benchmark, binary=binary, libraries=tuple(libraries))
    known = [benchmark.name for benchmark in BENCHMARKS]
    raise UnknownNameError("benchmark", name, known, listing=f"Known: {', '.join(known)}; ?kind=NAME says which it is.")


def _existing(text: str | None, address: PlaceAddress) -> Path:
    if not text:
        names = " or ".join(benchmark.name for benchmark in BENCHMARKS)
        raise DomainError(
            f"{address.text!r} names no program to run on the phone.",
            remedy=f"Write {address.scheme}:NAME?binary=PATH, with a build of {names} for the phone.",
        )
    path = Path(text).expanduser()
    if not path.is_file():
        raise DomainError(f"There is no file {text!r} to send to the phone.", remedy="Check the path.")
    return path


def require_measurement(job: Job, where: str, why: str) -> None:
    """For places that only measure a model of the job's own."""
    if job.verb not in {"profile", "bench"}:
        raise DomainError(f"{where} cannot {job.verb}: {why}.")
    if job.model is None or not job.model.files:
        raise DomainError(f"{where} needs a model file.", remedy="`inferometer prepare MODEL -o FILE` makes one.")


def require_taken(job: Job, taken: Collection[str], where: str, instead: str) -> None:
    """An option that would be ignored there is refused: the job would measure something else than was asked."""
    known = {entry.name for entry in fields(MeasureRequest)}
    for name in (*job.options, *(["inputs"] if job.inputs else []), *(["reference"] if job.reference else [])):
        if name not in taken:
            what = name if name in known else f"{name} (which needs our own measuring)"
            raise DomainError(f"{where} cannot be asked for {what}.", remedy=f"Leave it out; {instead}.")


def imported(  # noqa: PLR0913 - what another's file cannot say
    job: Job, data: bytes, log: str, *, device: str, source: str, runtime: str | None, what: str
) -> JobResult:
    """A result out of another tool's file; one that cannot be read is a failure in that tool's words."""
    name = None if job.model is None else Path(job.model.name).stem
    with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
        path = Path(folder) / "out"
        path.write_bytes(data)
        try:
            profiles = import_file(path, source=source, model=name, device=device)
        except InferometerError as error:
            words = f"{what} cannot be read: {error.message}"
            return JobResult(
                job=job, ended="failed", error=words, remedy=error.remedy, error_kind="EngineError", log=log
            )  # fmt: skip
    named = tuple(replace(profile, runtime=runtime or profile.runtime) for profile in profiles)
    return JobResult(job=job, ended="done", profiles=named, log=log)
