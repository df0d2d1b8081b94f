"""`inferometer demo`."""

import click

from inferometer.cli.measuring import progress_recorder, record
from inferometer.cli.options import print_text, say
from inferometer.cli.storing import print_run_link

_MEASURED, _RUNTIME = "resnet50", "onnxruntime"
_PREDICTED = "llama-3.2-1b"
_CASES = (("nvidia-h200", "bf16"), ("nvidia-jetson-orin-nano-super", "bf16"), ("raspberry-pi-5", "q4_0"))


@click.command("demo")
@click.option("--no-guard", is_flag=True, help="Do not check that the machine is quiet, or wait until it is.")
def command(*, no_guard: bool) -> None:
    """Measure a real architecture on this machine, with its prediction beside it.

    The weights are random, in the exact shapes, so nothing is downloaded.
    """
    from inferometer.api import explained, measure_and_judge, predict
    from inferometer.core.errors import MissingDependencyError
    from inferometer.measure.run.model import MeasureRequest
    from inferometer.measure.run.outcome import outcome_of
    from inferometer.store.recording import recording
    from inferometer.understand.explanation import explanation_document
    from inferometer.understand.view.demo import findings_part, machine_part, measured_part, predicted_part

    print_text(machine_part())
    asked = MeasureRequest(model=_MEASURED, runtime=_RUNTIME, command="inferometer demo", guarded=not no_guard)
    say(f"\nMeasuring {_MEASURED} on {_RUNTIME} …")
    recorder = recording("demo", name=_MEASURED, kind="profile")
    try:
        with recorder, progress_recorder(recorder) as progress:
            measured = measure_and_judge(asked, progress=progress)
            record(recorder, outcome_of(measured))
        print_text(measured_part(measured.profile))
        print_text(findings_part(explanation_document(explained(measured.profile))))
    except MissingDependencyError as error:
        say(f"It cannot be measured here: {error}")
    profiles = [predict(_PREDICTED, on=device, prompt=512, generate=128, weights=weights) for device, weights in _CASES]
    print_text(predicted_part(profiles))
    print_text("")
    print_run_link(recorder)
