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
@click.option("--against", "reference", required=True, metavar="RUNTIME", help="The runtime that is taken as right.")
@click.option("--reference", "reference_model", metavar="MODEL", help="The same model in another file.")
@click.option(
    "--relative", default="1e-3", show_default=True, metavar="X", help="Largest error, of an output's largest."
)
@click.option("--cosine", default=0.999, show_default=True, metavar="X", help="Least cosine of each output.")
@click.option(
    "--top-1", default=0.9, show_default=True, metavar="X", help="Least share of positions with the same best."
)
@click.option("--nll", default=0.05, show_default=True, metavar="X", help="Largest drift of the likelihood, in nats.")
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

    Both get the same random inputs; the reference computes in f32. Exit code 1 where the outputs differ by more than
    is allowed.
    """
    from inferometer.measure.run import verify_against
    from inferometer.measure.verify import Tolerance
    from inferometer.report.profiles import verification_card

    tolerance = Tolerance(relative=parse_quantity(relative, "1"), cosine=cosine, top_1=top_1, nll=nll)
    asked = measurement_from(model, options)
    found = verify_against(asked, reference, tolerance=tolerance, model=reference_model)
    if form == "json":
        print_document(asdict(found))
    else:
        print_card(verification_card(model, found), form)
    if found.status == "failed":
        raise GateError(f"The outputs are not those of {found.reference}: {found.reason}.")
