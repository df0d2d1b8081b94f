"""A calibration from start to end: the provider of a runtime, the run, the fit, the file."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inferometer.calibrate.assemble import Subject, assemble
from inferometer.calibrate.files import write_calibration
from inferometer.calibrate.run import Journal, Outcome, Progress, Provider, calibrate_with
from inferometer.core.calibration import Calibration
from inferometer.core.device import Device
from inferometer.cost.effects import RuntimeEffects, require_effects
from inferometer.errors import DomainError, EngineError

__all__ = ["Job", "Prepared", "Result", "calibrate", "default_dtype", "prepare"]

LEAST_BUDGET_S = 1.0
_LOOK_S = 10.0  # between two looks at who else uses a GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be calibrated. `folder` keeps journals and, where `out` names no file, the calibrations."""

    device: Device
    runtime: str
    dtype: str
    budget_s: float
    folder: Path
    out: Path | None = None
    fresh: bool = False
    threads: int | None = None

    def __post_init__(self) -> None:
        if not self.budget_s >= LEAST_BUDGET_S:
            raise DomainError(f"A budget of {self.budget_s:g} s measures nothing.", remedy="Give 30 s or more.")

    @property
    def journal(self) -> Journal:
        return Journal(folder=self.folder / "journals" / f"{self.device.name}-{self.runtime}-{self.dtype}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An engine that is ready to be measured. `disturbed` says why the machine is not fit now, or None."""

    provider: Provider
    versions: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    disturbed: Callable[[], str | None] | None = None
    device: Device | None = None  # with what the engine itself showed of its peaks
    threads: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    outcome: Outcome
    calibration: Calibration | None = None
    path: Path | None = None


def default_dtype(device: Device) -> str:
    return "bf16" if device.unit == "gpu" and "bf16" in device.peaks else "f32"


def prepare(job: Job) -> Prepared:
    """The engine of a runtime. Torch on a GPU needs nothing but torch; every other engine runs probe models."""
    effects = require_effects(job.runtime)
    if job.runtime.startswith("torch-") and job.device.unit == "gpu":
        return _torch(job, effects)
    raise DomainError(
        f"{job.runtime} on a {job.device.unit} has no probes to calibrate it with.",
        remedy="Calibrate torch-eager, torch-graph or torch-compile on a GPU.",
    )


def _torch(job: Job, effects: RuntimeEffects) -> Prepared:
    from inferometer.calibrate.torch_provider import (  # noqa: PLC0415 - only torch needs it
        import_torch,
        now_and_then,
        others_on,
        require_cuda,
        torch_environment,
        torch_provider,
    )

    torch: Any = import_torch()
    require_cuda(torch)
    reason = others_on(torch)
    if reason is not None:
        raise EngineError(f"The GPU is shared: {reason}.", remedy="Calibrate when nothing else runs on it.")
    versions, environment = torch_environment(torch)
    return Prepared(
        provider=torch_provider(torch, job.device, effects, job.dtype, limit_s=max(0.5, min(3.0, job.budget_s / 60))),
        versions=versions,
        environment=environment,
        disturbed=now_and_then(lambda: others_on(torch), _LOOK_S, time.monotonic),
    )


def calibrate(
    job: Job,
    prepared: Prepared,
    *,
    watch: Callable[[Progress], None] | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Result:
    """Measure, fit and write. An interrupted run keeps what it measured and writes nothing."""
    if job.fresh:
        job.journal.clear()
    outcome = calibrate_with(
        prepared.provider, job.journal, budget_s=job.budget_s, watch=watch, disturbed=prepared.disturbed
    )
    if outcome.interrupted:
        return Result(outcome=outcome)
    subject = Subject(
        device=prepared.device or job.device,
        runtime=require_effects(job.runtime),
        dtype=job.dtype,
        created=now().isoformat(timespec="seconds"),
        versions=prepared.versions,
        environment=prepared.environment,
        threads=prepared.threads or job.threads,
    )
    made = assemble(subject, outcome.points, outcome.steps)
    path = write_calibration(made, job.out or job.folder)
    return Result(outcome=outcome, calibration=made, path=path)
