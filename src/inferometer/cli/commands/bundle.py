"""`inferometer bundle`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import click

from inferometer.cli.elsewhere import outcome_from, say_how_to_carry
from inferometer.cli.measuring import MeasuringOptions, measurement_from, measuring_options, record, require_complete
from inferometer.cli.old_spellings import advise
from inferometer.cli.options import ListingGroup, OutputFile, command_line, format_option
from inferometer.cli.storing import StoringOptions, print_run_link, recording_from, storing_options
from inferometer.core.errors import InferometerError

if TYPE_CHECKING:
    from inferometer.core.job import JobResult

_LEAVE = "A package that the device has, such as torch, and that is not put in; may be repeated."


@click.group("bundle", cls=ListingGroup)
def command() -> None:
    """Measure on a device that nothing reaches: a job in one file, and the file that it brings back.

    \b
    inferometer bundle create model.onnx -o job.zip --target linux-aarch64-cp311
    python job.zip                           on the device: nothing has to be installed there
    inferometer import result.json           back here

    `calibrate`, `verify` and `bench` make one with --on bundle:job.zip.
    """


@command.command("create")
@click.argument("model")
@click.option("-o", "--out", required=True, type=OutputFile(), metavar="FILE.zip", help="The bundle.")
@click.option("--target", default="here", metavar="TARGET", help="The device: linux-x86_64-cp312, macos-arm64-cp313 …")
@click.option("--leave", multiple=True, metavar="PACKAGE", help=_LEAVE)
@click.option("--text", "words", metavar="TEXT", help="Use this text as the prompt, not random tokens.")
@click.option("--predict/--no-predict", default=True, help="Also predict each layer, on the device.")
@click.option("--verify", "reference", metavar="RUNTIME", help="Check the outputs against those of another runtime.")
@measuring_options
def create(
    model: str,
    out: Path,
    target: str,
    leave: tuple[str, ...],
    words: str | None,
    predict: bool,
    reference: str | None,
    **options: Unpack[MeasuringOptions],
) -> None:
    """Put a measurement into one file: the job, the model, our code and the packages of the device.

    \b
    inferometer bundle create model.onnx -o job.zip --target linux-x86_64-cp312
    inferometer bundle create llama-3.2-1b --runtime torch-compile --unit gpu --leave torch -o job.zip

    The options are those of `profile`. Without --target the bundle is for devices like this one, with the packages that
    are installed here; with one, pip fetches the wheels of that system, machine and Python.
    """
    from inferometer.hub.places.bundle import BundlePlace
    from inferometer.hub.places.requests import Judging, pack_measurement

    line = command_line()
    asked = measurement_from(model, options, command=line, words=words)
    work = pack_measurement("profile", asked, Judging(predict=predict, against=reference))
    BundlePlace(out, target=target, leave=leave).submit(work.job, work.files)
    say_how_to_carry(str(out))


@command.command("import", hidden=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=OutputFile(folders=True), metavar="FILE", help="Of a calibration: where to save it.")
@storing_options
@format_option
def import_result(file: Path, out: Path | None, form: str, **options: Unpack[StoringOptions]) -> None:
    """Make what a bundle wrote on its device a run here: `inferometer import result.json`."""
    advise("bundle import", "import")
    print_result(file, out, form, options)


def print_result(file: Path, out: Path | None, form: str, options: StoringOptions) -> None:
    """Make what a bundle wrote on its device a run here, as if it had been measured now."""
    from inferometer.hub.places.bundle import read_result

    result = read_result(file)
    if result.job.verb == "calibrate":
        from inferometer.cli.commands.calibrate import print_calibrated

        print_calibrated(result, out, form)
    elif result.job.verb == "verify":
        from inferometer.cli.commands.profile import print_verified

        print_verified(result.job.model.name if result.job.model is not None else "", result, form)
    else:
        _store(result, form, options)


def _store(result: "JobResult", form: str, options: Any) -> None:
    from inferometer.cli.commands.profile import print_measured

    if result.ended == "stopped" and not result.profiles:
        raise InferometerError("The job was stopped on its device before anything was measured.")
    name = result.job.model.name if result.job.model is not None else ""
    outcome = outcome_from(result, strict=bool(result.job.options.get("strict")))
    recorder = recording_from(options, kind=result.job.verb, model=name, job=result.job.id)
    with recorder:
        record(recorder, outcome)
        print_measured(outcome.profiles, form)
        if outcome.ended != "stopped":
            require_complete(outcome)
    print_run_link(recorder)
