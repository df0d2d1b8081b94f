"""`inferometer calibrate`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from inferometer.cli.options import format_option, print_document, print_table, say
from inferometer.cli.outputs import OutputFile
from inferometer.cli.progress import progress_line
from inferometer.core.device import LOCAL
from inferometer.errors import InferometerError
from inferometer.units import counted

if TYPE_CHECKING:
    from inferometer.calibrate.job import CalibrationResult, Job
    from inferometer.core.calibration import Calibration
    from inferometer.core.device import Device

_FORMAT = "Number format; for llamacpp, of the weights.  [default: bf16 on a GPU, q8_0 for llamacpp, else f32]"


@click.command("calibrate")
@click.option("--runtime", metavar="NAME", help="The engine.  [default: torch-compile on a GPU, else onnxruntime]")
@click.option("--budget", default="120s", metavar="TIME", help="How long to measure.")
@click.option(
    "--device", "device_name", default="local", metavar="NAME", help="A catalog name, or local:cpu, local:gpu."
)
@click.option("--unit", metavar="UNIT", help="The unit of this machine: cpu, gpu, gpu:1.  [default: the best]")
@click.option("--dtype", metavar="FORMAT", help=_FORMAT)
@click.option("--threads", type=int, metavar="N", help="Threads on a CPU.  [default: one per physical core]")
@click.option(
    "--out", type=OutputFile(folders=True), metavar="FILE", help="Where to write it: a .json file or a folder."
)
@click.option(
    "--folder", type=click.Path(path_type=Path), metavar="FOLDER", help="Where to keep journals and calibrations."
)
@click.option("--no-guard", is_flag=True, help="Do not check that the machine is quiet.")
@click.option("--resume/--fresh", default=True, help="Continue an earlier run, or measure everything again.")
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
    """Measure what predictions for this machine need, and how far off they may be.

    \b
    inferometer calibrate --runtime onnxruntime --budget 120s
    inferometer calibrate --runtime llamacpp --dtype q4_0
    inferometer calibrate --runtime torch-compile --budget 4min --out gpu.json

    It measures ops and small models through the engine itself, the least certain first, until the budget is spent.
    It starts from the calibration that the device has, if there is one, and corrects it by what it measures. Ctrl-C
    keeps what was measured; the next run continues from there.
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
    from inferometer.calibrate.progress import line_of
    from inferometer.units import parse_quantity

    device = _device(device_name, unit, runtime)
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
    with progress_line(line_of) as progress:
        result = calibrate(job, prepared, watch=progress)
    _print_outcome(job, result)
    if result.calibration is not None:
        _print_calibration(result.calibration, result.path, form)


def _device(name: str, unit: str | None, runtime: str | None) -> "Device":
    """The device of that name. This machine's best unit, unless one is asked for or the engine has no probes there."""
    from inferometer.catalog import device as device_named
    from inferometer.catalog.engines import engine

    if name == LOCAL and unit is not None:
        name = f"{LOCAL}:{unit}"
    device = device_named(name)
    if name == LOCAL and runtime is not None and device.unit not in engine(runtime).calibrated:
        device = device_named(f"{LOCAL}:cpu")
    if unit is not None and device.unit != unit.partition(":")[0]:
        raise InferometerError(
            f"--unit is {unit}, but {device.name} is a {device.unit}.", remedy="Name the device with --device."
        )
    return device


def _print_outcome(job: "Job", result: "CalibrationResult") -> None:
    outcome = result.outcome
    if outcome.interrupted:
        raise InferometerError(
            f"Stopped. Kept: {counted(len(outcome.points), 'point')} and {counted(len(outcome.steps), 'step')}.",
            remedy="Run the same command again to continue, or with --fresh to start again.",
        )
    done = counted(outcome.done, "case")
    say(f"{done} measured, {outcome.left} left out for lack of time, {len(outcome.skipped)} impossible.")
    for reason in outcome.skipped[:5]:
        say(f"  {reason}")
    if result.path is not None:
        for note in result.calibration.notes if result.calibration is not None else ():
            say(note)
        say(f"Saved {result.path}. `inferometer predict --on {job.device.name} --runtime {job.runtime}` will use it.")


def _print_calibration(calibration: "Calibration", path: Path | None, form: str) -> None:
    if form == "json":
        from inferometer.core.codec import document

        print_document(document(calibration) | {"path": None if path is None else str(path)})
        return
    from inferometer.report.calibrations import calibration_table

    print_table(calibration_table(calibration), form)
