"""`inferometer verify`."""

from dataclasses import asdict
from typing import Unpack

import click

from inferometer.cli.measuring import MeasuringOptions, measurement_from, measuring_options
from inferometer.cli.options import format_option, print_card, print_document
from inferometer.errors import GateError
from inferometer.units import parse_quantity


@click.command("verify")
@click.argument("model")
@click.option("--against", "reference", required=True, metavar="RUNTIME", help="The runtime to take as correct.")
@click.option("--reference", "reference_model", metavar="MODEL", help="The same model in another file.")
@click.option("--relative", default="1e-3", metavar="X", help="Maximum error, relative to an output's largest value.")
@click.option("--cosine", default=0.999, metavar="X", help="Minimum cosine similarity of each output.")
@click.option("--top-1", default=0.9, metavar="X", help="Minimum share of positions with the same top choice.")
@click.option("--nll", default=0.05, metavar="X", help="Maximum change of the log-likelihood, in nats.")
@measuring_options
@format_option
def command(
    model: str,
    reference: str,
    reference_model: str | None,
    relative: str,
    cosine: float,
    top_1: float,
    nll: float,
    form: str,
    **options: Unpack[MeasuringOptions],
) -> None:
    """Check that a runtime, a format or a file gives the same outputs as a reference.

    \b
    inferometer verify model.onnx --runtime openvino --against onnxruntime
    inferometer verify net.tflite --runtime litert --against onnxruntime --reference net.onnx

    Both get the same random inputs, and the reference computes in f32. The exit code is 1 if the outputs differ by more
    than is allowed.
    """
    from inferometer.measure.run import verify_against
    from inferometer.measure.verify import Tolerance
    from inferometer.report.profiles import verification_card

    tolerance = Tolerance(relative=parse_quantity(relative, "1"), cosine=cosine, top_1=top_1, nll=nll)
    asked = measurement_from(model, options)
    verification = verify_against(asked, reference, tolerance=tolerance, model=reference_model)
    if form == "json":
        print_document(asdict(verification))
    else:
        print_card(verification_card(model, verification), form)
    if verification.status == "failed":
        raise GateError(f"The outputs differ from those of {verification.reference}: {verification.reason}.")
