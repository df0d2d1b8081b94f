"""Raw journals of kernels and probe models → the calibrations that the package ships for a device.

    python benchmarks/fit_journals.py benchmarks/recorded/nvidia-h200-journals-2026-11-16.tar.gz

The archive has a folder for each runtime and format, `torch-graph-bf16`, with the points and steps that
benchmarks/kernel_journal.py measured. Of a kernel only its name and its seconds count: its class, shape and floor are
counted anew, so a journal outlives changes of the cost model. Matrix products are the same kernels in every runtime:
a runtime whose journal lacks them has those of torch-graph.
"""

from __future__ import annotations

import argparse
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

import torch  # noqa: TID251 - names the formats of the kernels

from inferometer.asking.files import write_calibration
from inferometer.calibrate.fitting import single as ops
from inferometer.calibrate.fitting.assemble import CalibrationSubject, assemble_calibration
from inferometer.calibrate.fitting.points import OpPoint, measured_point, read_points, read_steps
from inferometer.calibrate.torch.kernels import Kernels
from inferometer.calibrate.torch.timing import Clock
from inferometer.catalog import device
from inferometer.catalog.engines import require_effects

SHIPPED = Path(__file__).parent.parent / "src" / "inferometer" / "catalog" / "data" / "calibrations"
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
    rest = [point for point in points if point.classes[-1] not in PRODUCTS]
    return (*rest, *(point for point in read_points(other) if point.classes[-1] in PRODUCTS))


def fit(folder: Path, journal: Path, args: argparse.Namespace) -> None:
    runtime, _, dtype = journal.name.rpartition("-")
    gpu, effects = device(args.device), require_effects(runtime)
    kernels = Kernels(Clock(torch=torch, place="cuda"), gpu, effects, dtype)
    steps = read_steps(journal / "steps.jsonl") if (journal / "steps.jsonl").exists() else ()
    subject = CalibrationSubject(
        device=gpu, runtime=effects, dtype=dtype, created=args.created,
        versions={"torch": args.torch, "cuda": args.cuda},
        environment={},
    )  # fmt: skip
    calibration = assemble_calibration(subject, renewed(journal_points(folder, runtime, dtype), kernels), steps)
    for path in args.out.glob(f"{args.device}-{runtime}-{dtype}-*.json"):
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
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(args.archive) as archive:
            archive.extractall(scratch, filter="data")
        folder = next(Path(scratch).iterdir())
        for journal in sorted(path for path in folder.iterdir() if path.is_dir()):
            fit(folder, journal, args)


if __name__ == "__main__":
    main()
