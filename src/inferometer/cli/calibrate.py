"""`inferometer calibrate`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferometer.cli.options import format_option, print_document, print_table, say
from inferometer.errors import InferometerError

if TYPE_CHECKING:
    from inferometer.calibrate.job import CalibrationResult, Job
    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device

_FORMAT = "Of weights and activations; with llamacpp of the weights.  [default: bf16 on a GPU, q8_0, else f32]"


@click.command("calibrate")
@click.option("--runtime", metavar="NAME", help="The engine.  [default: torch-compile on a GPU, else onnxruntime]")
@click.option("--budget", default="120s", show_default=True, metavar="TIME", help="What it may take.")
@click.option("--device", "device_name", default="local", show_default=True, metavar="NAME", help="A catalog name.")
@click.option("--unit", metavar="UNIT", help="cpu or gpu, of this machine.")
@click.option("--dtype", metavar="FORMAT", help=_FORMAT)
@click.option("--threads", type=int, metavar="N", help="Of a CPU.  [default: one a physical core]")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="A .json file, or a folder.")
@click.option("--folder", type=click.Path(path_type=Path), metavar="FOLDER", help="For journals and calibrations.")
@click.option("--no-guard", is_flag=True, help="Do not look whether the machine is quiet.")
@click.option("--resume/--fresh", default=True, show_default=True, help="Go on with what an earlier run measured.")
@format_option
def command(
    runtime: str | None,
    budget: str,
    device_name: str,
    unit: str | None,
    dtype: str | None,
    threads: int | None,
    out: Path | None,
    folder: Path | None,
    no_guard: bool,
    resume: bool,
    form: str,
) -> None:
    """Measure what predictions for this machine need, and say how far they may be off.

    \b
    inferometer calibrate --runtime onnxruntime --budget 120s
    inferometer calibrate --runtime llamacpp --dtype q4_0
    inferometer calibrate --runtime torch-compile --device nvidia-h200 --budget 4min --out h200.json

    Measures ops and small models through the engine itself, the least certain first, until the budget is spent.
    Stopping it with Ctrl-C keeps what it has measured; the next run goes on there.
    """
    from inferometer.asking.files import own_folder
    from inferometer.calibrate.job import (
        Job,
        calibrate,
        calibration_threads,
        default_calibration_runtime,
        default_dtype,
        prepare_engine,
    )
    from inferometer.calibrate.progress import progress_bar
    from inferometer.units import parse_quantity

    device = _device(device_name, unit)
    runtime = runtime or default_calibration_runtime(device)
    job = Job(
        device=device,
        runtime=runtime,
        dtype=dtype or default_dtype(device, runtime),
        budget_s=parse_quantity(budget, "s"),
        folder=folder or own_folder(),
        out=out,
        fresh=not resume,
        threads=calibration_threads(device, threads),
        guarded=not no_guard,
    )
    prepared = prepare_engine(job)
    bar = progress_bar()
    try:
        result = calibrate(job, prepared, watch=bar)
    finally:
        if bar is not None:
            sys.stderr.write("\r\x1b[K")
    _tell(job, result)
    if result.calibration is not None:
        _show(result.calibration, result.path, form)


def _device(name: str, unit: str | None) -> "Device":
    from inferometer.catalog import device

    found = device(name)
    if unit is not None and found.unit != unit.partition(":")[0]:
        raise InferometerError(
            f"{found.name} is a {found.unit}, and --unit {unit} was asked for.", remedy="Name the device with --device."
        )
    return found


def _tell(job: "Job", result: "CalibrationResult") -> None:
    outcome = result.outcome
    if outcome.interrupted:
        raise InferometerError(
            f"Stopped. {len(outcome.points)} points and {len(outcome.steps)} steps are kept.",
            remedy="Run the same command again to go on; --fresh begins anew.",
        )
    say(f"{outcome.done} cases measured, {outcome.left} left out for want of time, {len(outcome.skipped)} cannot be.")
    for reason in outcome.skipped[:5]:
        say(f"  {reason}")
    if result.path is not None:
        say(f"Wrote {result.path}: predictions --on {job.device.name} --runtime {job.runtime} can use it.")


def _show(calibration: "Calibration", path: Path | None, form: str) -> None:
    if form == "json":
        from inferometer.core.codec import document

        print_document(document(calibration) | {"path": None if path is None else str(path)})
        return
    from inferometer.report.calibrations import calibration_table

    print_table(calibration_table(calibration), form)
