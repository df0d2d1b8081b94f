"""Raw journals of kernels and probe models → the calibrations that the package ships for a device.

    python -m workshop.calibrations.gpu workshop/recorded/nvidia-h200-journals-2026-11-16.tar.gz

The archive has a folder for each runtime and format, `torch-graph-bf16`, with the points and steps that
workshop/calibrations/journal.py measured. Of a kernel only its name and its seconds count: its class, shape and floor
are counted anew, so a journal outlives changes of the cost model. Matrix products are the same kernels in every
runtime, and eager modules run all kernels that a captured graph has, but for attention: they have those of torch-graph.

With --keep-tables the tables of the calibrations that are there stay as they are, and only the whole steps are fitted
anew: seconds in place of minutes, after a change of how steps are fitted.

    python -m workshop.calibrations.gpu --forwards workshop/recorded/nvidia-h200-forwards-2026-11-17.jsonl.gz

fits one thing alone: what a compiled network takes that is replayed from a graph, in whole. The probes of the archive
were launched kernel by kernel, so their forwards say what a host takes. Everything of prompts and tokens stays.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch  # noqa: TID251 - names the formats of the kernels

from inferometer.core.calibration import Calibration
from inferometer.core.device import Sourced
from inferometer.core.errors import InferometerError
from inferometer.formats.resolve import read
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.fitting import single as ops
from inferometer.measure.calibrate.fitting.assemble import assemble_calibration, whole_steps
from inferometer.measure.calibrate.fitting.bounds import bounded, unbounded
from inferometer.measure.calibrate.fitting.fit import residual_spread
from inferometer.measure.calibrate.fitting.points import (
    OpPoint,
    StepPoint,
    measured_point,
    middle_steps,
    read_points,
    read_steps,
)
from inferometer.measure.calibrate.fitting.steps import (
    StepBase,
    WholeStep,
    alone_note,
    explained_seconds,
    fit_busy,
    whole_fit,
)
from inferometer.measure.calibrate.fitting.subject import CalibrationSubject
from inferometer.measure.calibrate.torch.kernels import Kernels
from inferometer.measure.calibrate.torch.timing import Clock
from inferometer.predict.basis.files import SHIPPED, read_calibration, sealed, write_calibration

PRODUCTS = ("linear", "experts")
BESIDE = ("overhead", "reading")  # what is no op
FAMILIES = ("resnet", "efficientnet")  # networks of a family are left out together; others are one of a kind
UNMEASURED = 0.3  # what steps are off by that nobody measured: as wide as predictions from published figures are
UNCACHED = frozenset({"attention.padded", "attention.prefill"})  # attention of networks with one forward


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


def forward_steps(journal: Path, dtype: str) -> list[StepPoint]:
    """Compiled forwards that were replayed from graphs; networks whose graphs are not shipped are left out."""
    steps = []
    for row in map(json.loads, gzip.decompress(journal.read_bytes()).splitlines()):
        if (row.get("way"), row.get("phase"), row.get("dtype")) != ("compile-graph", "forward", dtype):
            continue
        for name in (row["model"].replace("_", "-"), f"torchvision:{row['model']}"):
            try:
                read(name)
            except InferometerError:
                continue
            sizes = {"batch": row["batch"], "query": row["query"], "image": row["image"]}
            steps.append(StepPoint(model=name, phase="forward", seconds=row["seconds"], dtype=dtype, **sizes))
            break
        else:
            print(f"{row['model']}: no graph of it is shipped.", flush=True)
    return steps


def forward_factors(steps: list[WholeStep], overheads: dict[str, float]) -> dict[str, float]:
    """Factors by class of what is left of each step without its kernels' and its own overhead, which tokens told."""
    beside = [overheads["kernel"] * step.launches + overheads["step"] for step in steps]
    bare = [replace(step, seconds=step.seconds - own, launches=0) for step, own in zip(steps, beside, strict=True)]
    return fit_busy(bare, {}, StepBase(factors={}, residuals={}, steps=0.0))[0]


def family(model: str) -> str:
    return next((name for name in FAMILIES if name in model), model)


def with_forwards(subject: CalibrationSubject, there: Calibration, steps: list[StepPoint]) -> Calibration:
    """A calibration with its factors of forwards fitted to these, and their residual from leaving each family out.

    A factor may be far from 1: ops were timed one by one in the layout that they are given, and a compiler gives a
    whole network the layout of its convolutions and writes what follows an op into one kernel with it.
    """
    overheads = {name: there.overheads[name].value for name in ("kernel", "step")}
    whole = whole_steps(subject, there, middle_steps(steps))
    errors = []
    for name in dict.fromkeys(family(step.model) for step in whole):
        factors = forward_factors([step for step in whole if family(step.model) != name], overheads)
        for step in (step for step in whole if family(step.model) == name):
            errors.append(np.log(step.seconds / explained_seconds(step, factors, overheads)))
            print(f"{step.model} {step.workload}: {np.exp(-errors[-1]) - 1:+.1%}", flush=True)
    kept = {name: value for name, value in there.factors.items() if not _of_forwards(name)}
    fresh = replace(
        there,
        tables=tuple(table for table in there.tables if not table.op_class.endswith(".forward")),
        factors={**kept, **forward_factors(whole, overheads)},
        residuals={
            **{name: value for name, value in there.residuals.items() if not name.endswith(".forward")},
            "step.forward": residual_spread(np.array(errors)),
        },
        steps=there.steps + len([step for step in whole if step.model not in there.fitted_on]),
        fitted_on=tuple(sorted({*there.fitted_on, *(step.model for step in whole)})),
    )
    return sealed(bounded(fresh))


def _of_forwards(name: str) -> bool:
    return name.endswith(".forward") or name in UNCACHED


def captured_instead(out: Path, gpu: str, dtype: str) -> Calibration:
    """What stands for a compiler whose kernels were not timed in this format: those that a captured graph replays.

    A kernel and a step take what they take in the format that was timed.
    """
    graph = unbounded(read_calibration(next(out.glob(f"{gpu}-torch-graph-{dtype}-*.json"))))
    timed = read_calibration(next(out.glob(f"{gpu}-torch-compile-bf16-*.json")))
    residuals = {name: value for name, value in graph.residuals.items() if graph.table(name) is not None}
    residuals |= {"step.prefill": UNMEASURED, "step.decode": UNMEASURED}
    note = f"Ops in {dtype} were timed in captured graphs; compiled networks say by how much they differ."
    return replace(
        graph, runtime=timed.runtime, overheads=timed.overheads, residuals=residuals, steps=0, fitted_on=(),
        notes=(*(said for said in graph.notes if said != alone_note("forward")), note),
    )  # fmt: skip


def refit_forwards(args: argparse.Namespace) -> None:
    """The compiled calibrations, each with the forwards of its format."""
    for dtype in ("bf16", "f32"):
        before = list(args.out.glob(f"{args.device}-torch-compile-{dtype}-*.json"))
        there = read_calibration(before[-1]) if before else captured_instead(args.out, args.device, dtype)
        effects = require_effects(there.runtime)
        subject = CalibrationSubject(device=device(args.device), runtime=effects, dtype=dtype, created=there.created)
        calibration = with_forwards(subject, there, forward_steps(args.forwards, dtype))
        for path in before:
            path.unlink()
        write_calibration(calibration, args.out)
        print(f"{dtype}: forwards are off by {calibration.residuals['step.forward']:.3f}", flush=True)


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
    parser.add_argument("archive", type=Path, nargs="?")
    parser.add_argument("--forwards", type=Path, help="a journal of workshop.calibrations.forwards: fit only those")
    parser.add_argument("--device", default="nvidia-h200")
    parser.add_argument("--created", default="2026-11-16T02:54:00+00:00", help="when the journals ended")
    parser.add_argument("--torch", default="2.11.0+cu130")
    parser.add_argument("--cuda", default="13.0")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--keep-tables", action="store_true", help="fit whole steps anew, and nothing else")
    args = parser.parse_args()
    if args.forwards:
        refit_forwards(args)
        return
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(args.archive) as archive:
            archive.extractall(scratch, filter="data")
        folder = next(Path(scratch).iterdir())
        for journal in sorted(path for path in folder.iterdir() if path.is_dir()):
            fit(folder, journal, args)


if __name__ == "__main__":
    main()
