"""Raw journals of kernels and probe models → the calibrations that the package ships for a device.

    python -m workshop.calibrations.gpu workshop/recorded/nvidia-h200-journals-2026-11-16.tar.gz

The archive has a folder for each runtime and format, `torch-graph-bf16`, with the points and steps that
workshop/calibrations/journal.py measured. Of a kernel only its name and its seconds count: its class, shape and floor
are counted anew, so a journal outlives changes of the cost model. Matrix products are the same kernels in every
runtime, and eager modules run all kernels that a captured graph has, but for attention: they have those of torch-graph.

With --keep-tables the tables of the calibrations that are there stay as they are, and only the whole steps are fitted
anew: seconds in place of minutes, after a change of how steps are fitted.
"""

from __future__ import annotations

import argparse
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

import torch  # noqa: TID251 - names the formats of the kernels

from inferometer.core.calibration import Calibration
from inferometer.core.device import Sourced
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting import single as ops
from inferometer.measure.calibrate.fitting.assemble import CalibrationSubject, assemble_calibration, whole_steps
from inferometer.measure.calibrate.fitting.bounds import bounded, unbounded
from inferometer.measure.calibrate.fitting.points import (
    OpPoint,
    StepPoint,
    measured_point,
    middle_steps,
    read_points,
    read_steps,
)
from inferometer.measure.calibrate.fitting.steps import alone_note, whole_fit
from inferometer.measure.calibrate.torch.kernels import Kernels
from inferometer.measure.calibrate.torch.timing import Clock
from inferometer.predict.basis.files import SHIPPED, read_calibration, sealed, write_calibration

PRODUCTS = ("linear", "experts")
BESIDE = ("overhead", "reading")  # what is no op


def renewed(points: tuple[OpPoint, ...], kernels: Kernels) -> list[OpPoint]:
    """The points as today's cost model sees their ops; those of shapes that are measured no more are left out."""
    works = {}
    for candidate in kernels.candidates():
        case = kernels.case(candidate)
        work = ops.work_of_single(case.single, kernels.device, runtime=kernels.runtime, dtype=kernels.dtype)
        works[candidate.key] = (work, case.probe)
    fresh = [point for point in points if point.classes[0] in BESIDE]
    for point in points:
        if point.op in works:
            work, probe = works[point.op]
            again = measured_point(work, point.seconds, dtype=kernels.dtype, probe=probe)
            fresh.append(replace(again, rates=point.rates))
    return fresh


def journal_points(folder: Path, runtime: str, dtype: str) -> tuple[OpPoint, ...]:
    points = read_points(folder / f"{runtime}-{dtype}" / "points.jsonl")
    other = folder / f"torch-graph-{dtype}" / "points.jsonl"
    if runtime == "torch-graph" or not other.exists():
        return points
    taken = [point for point in read_points(other) if _shared(point, runtime)]
    classes = {point.classes[-1] for point in taken}
    return (*(point for point in points if point.classes[-1] not in classes), *taken)


def _shared(point: OpPoint, runtime: str) -> bool:
    """A captured graph replays the kernels of eager modules, but for attention; a compiler writes all but products."""
    if require_effects(runtime).execution == "launched":
        return point.classes[-1] not in {"attention", *BESIDE}
    return point.classes[-1] in PRODUCTS


def with_steps(subject: CalibrationSubject, there: Calibration, steps: tuple[StepPoint, ...]) -> Calibration:
    """A calibration with its tables as they are, and everything that comes from whole steps fitted anew."""
    alone = {
        name.removeprefix("alone."): value.value for name, value in there.overheads.items() if name.startswith("alone.")
    }
    kept = {name: value for name, value in there.residuals.items() if not name.startswith("step") and name != "host"}
    said = {alone_note(phase) for phase in ("prefill", "decode", "forward")}
    notes = tuple(note for note in there.notes if note not in said)
    bare = unbounded(replace(there, steps=0, fitted_on=(), notes=notes))
    bare = replace(bare, residuals={name: kept[name] for name in kept if bare.table(name) is not None})
    fitted = whole_fit(whole_steps(subject, bare, middle_steps(steps)), alone)
    return sealed(bounded(fitted.applied_to(bare, source=subject.source, date=subject.created[:10])))


def with_stated_host(calibration: Calibration, stated: Sourced | None) -> Calibration:
    """The calibration with what the engine's own row says of a launch, in place of what it took in whole steps.

    The host of these journals was shared: a launch of the same layers took 15 to 31 µs, by the minute, and 20 % more in
    f32 than in bf16, which no host tells apart.
    """
    return (
        calibration
        if stated is None
        else sealed(replace(calibration, overheads={**calibration.overheads, "host": stated}))
    )


def fit(folder: Path, journal: Path, args: argparse.Namespace) -> None:
    runtime, _, dtype = journal.name.rpartition("-")
    gpu, effects = device(args.device), require_effects(runtime)
    steps = read_steps(journal / "steps.jsonl") if (journal / "steps.jsonl").exists() else ()
    subject = CalibrationSubject(
        device=gpu, runtime=effects, dtype=dtype, created=args.created,
        versions={"torch": args.torch, "cuda": args.cuda},
        environment={},
    )  # fmt: skip
    before = list(args.out.glob(f"{args.device}-{runtime}-{dtype}-*.json"))
    if args.keep_tables:
        calibration = with_steps(subject, read_calibration(before[-1]), steps)
    else:
        kernels = Kernels(Clock(torch=torch, place="cuda"), gpu, effects, dtype)
        calibration = assemble_calibration(subject, renewed(journal_points(folder, runtime, dtype), kernels), steps)
    if effects.execution == "launched":
        calibration = with_stated_host(calibration, effects.on(gpu.unit).host_s)
    for path in before:
        path.unlink()
    write_calibration(calibration, args.out)
    shown = {name: round(value, 3) for name, value in calibration.residuals.items()}
    print(f"{runtime} {dtype}: {calibration.points} points, {calibration.steps} steps, residuals {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--device", default="nvidia-h200")
    parser.add_argument("--created", default="2026-11-16T02:54:00+00:00", help="when the journals ended")
    parser.add_argument("--torch", default="2.11.0+cu130")
    parser.add_argument("--cuda", default="13.0")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--keep-tables", action="store_true", help="fit whole steps anew, and nothing else")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(args.archive) as archive:
            archive.extractall(scratch, filter="data")
        folder = next(Path(scratch).iterdir())
        for journal in sorted(path for path in folder.iterdir() if path.is_dir()):
            fit(folder, journal, args)


if __name__ == "__main__":
    main()
