"""`inferometer calibrate`."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.elsewhere import hand_over, place_option, require_answer, require_place, run_elsewhere, waits
from inferometer.cli.options import format_option, print_document, print_table, say
from inferometer.cli.outputs import OutputFile
from inferometer.cli.progress import progress_line, step_text
from inferometer.errors import DomainError, InferometerError
from inferometer.units import counted

if TYPE_CHECKING:
    from inferometer.calibrate.job import CalibrationResult, Job
    from inferometer.core.calibration import Calibration
    from inferometer.core.job import JobResult
    from inferometer.providers.requests import PackedJob

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
@place_option
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
    place: str | None,
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

    if place is not None:
        if folder is not None:
            raise DomainError("--folder is for a calibration here: elsewhere the device keeps its own journals.")
        asked = {"device": device_name, "unit": unit, "dtype": dtype, "threads": threads}
        work = _packed(runtime, budget, guarded=not no_guard, fresh=not resume, **asked)
        _calibrate_at(place, work, out, form)
        return
    from inferometer.calibrate.job import calibrate, calibration_job, prepare_engine
    from inferometer.calibrate.progress import line_of
    from inferometer.units import parse_quantity

    job = calibration_job(
        device_name,
        unit=unit,
        runtime=runtime,
        dtype=dtype,
        budget_s=parse_quantity(budget, "s"),
        folder=folder or own_folder(),
        out=out,
        fresh=not resume,
        threads=threads,
        guarded=not no_guard,
    )
    prepared = prepare_engine(job)
    with progress_line(line_of) as progress:
        result = calibrate(job, prepared, watch=progress)
    _print_outcome(job, result)
    if result.calibration is not None:
        _print_calibration(result.calibration, result.path, form)


def _packed(runtime: str | None, budget: str, **asked: Any) -> "PackedJob":
    from inferometer.providers.requests import Calibrating, pack_calibration
    from inferometer.units import parse_quantity

    line = shlex.join(["inferometer", *sys.argv[1:]])
    return pack_calibration(runtime, Calibrating(budget_s=parse_quantity(budget, "s"), **asked), command=line)


def _calibrate_at(place: str, work: "PackedJob", out: Path | None, form: str) -> None:
    require_place(place)
    if waits(place):
        hand_over(place, work)
        return
    with progress_line(step_text) as progress:
        result = run_elsewhere(place, work, progress)
    if result is not None:
        print_calibrated(result, out, form)


def print_calibrated(result: "JobResult", out: Path | None, form: str) -> None:
    """A calibration that was made elsewhere. One of `local` is of that machine, which keeps and uses it."""
    from inferometer.asking.files import own_folder, write_calibration
    from inferometer.core.device import is_local

    require_answer(result, there=result.calibration is not None)
    calibration = result.calibration
    if calibration is None:
        return
    say(result.log.strip())
    here = out or (None if is_local(calibration.device) else own_folder())
    path = None if here is None else write_calibration(calibration, here)
    say(f"Saved {path}." if path else "The device keeps it for jobs that run there; --out saves it here as well.")
    _print_calibration(calibration, path, form)


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
