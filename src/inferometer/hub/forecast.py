"""`python -m inferometer.hub.forecast`: how long a job should take on a device, from our own prediction.

A process of its own, with limits: it opens models that others sent. What goes in and out is JSON.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from inferometer.asking.question import Question
from inferometer.bench.plan import Plan
from inferometer.catalog.engines import default_runtime
from inferometer.core.calibration import Calibration
from inferometer.core.codec import decode
from inferometer.core.device import Device
from inferometer.core.job import Job
from inferometer.core.sizes import with_given_sizes
from inferometer.cost.options import Options
from inferometer.errors import InferometerError
from inferometer.providers.requests import calibrating_of, model_path, request_of, require_known
from inferometer.readers.resolve import read

_WARM_UPS = 5  # what warming up until the times are steady takes, mostly


def measuring_s(job: Job, files: Path, device: Device, calibrations: tuple[Calibration, ...]) -> float:
    """The time of a job's own runs: warm-up, clean runs, and the run with the engine's timers."""
    require_known(job)
    if job.verb == "calibrate":
        return calibrating_of(job).budget_s
    step_s = _step_s(job, files, device, calibrations)
    if job.verb == "verify":
        return 2 * step_s
    plan = request_of(job, files).plan or Plan()
    warm_s = min((_WARM_UPS if plan.warmup is None else plan.warmup) * step_s, plan.warmup_seconds_at_most)
    clean_s = min(max(plan.runs * step_s, plan.seconds), plan.seconds_at_most)
    shaped = job.verb == "profile" and job.options.get("shape", True)
    return warm_s + clean_s * (2 if shaped else 1)


def _step_s(job: Job, files: Path, device: Device, calibrations: tuple[Calibration, ...]) -> float:
    assert job.model is not None  # noqa: S101 - every other verb has one
    graph = read(model_path(job.model, files))
    workload, options = job.workload, Options()
    sizes = job.options.get("sizes")
    if sizes:
        workload, rest = with_given_sizes(graph, workload, sizes)
        options = Options(sizes=rest)
    runtime = job.runtime or default_runtime(device, graph)
    fitting = [made for made in calibrations if (made.device, made.runtime) == (device.name, runtime)]
    profile = Question(
        graph=graph, device=device, runtime=runtime, workload=workload, options=options,
        calibrated=False, calibration=fitting[0] if fitting else None,
    ).answer()  # fmt: skip
    summary = profile.summary
    whole = summary.latency_s if summary.latency_s is not None else summary.e2e_s
    if whole is None:
        whole = sum(phase.time_s for phase in profile.phases)
    return float(whole)


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        job = decode(json.dumps(asked["job"]), Job)
        device = decode(json.dumps(asked["device"]), Device)
        made = tuple(decode(json.dumps(plain), Calibration) for plain in asked["calibrations"])
        return {"seconds": measuring_s(job, Path(asked["files"]), device, made)}
    except InferometerError as error:
        return {"error": error.message}


def main() -> None:
    asked = json.loads(sys.stdin.read())
    with suppress(ImportError, ValueError, OSError):  # POSIX only
        import resource  # noqa: PLC0415 - as above

        resource.setrlimit(resource.RLIMIT_AS, (asked["memory_bytes"],) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"],) * 2)
    sys.stdout.write(json.dumps(answer(asked)))


if __name__ == "__main__":
    main()
