"""`inferometer verify`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Unpack

import click

from inferometer.cli.elsewhere import hand_over, place_option, require_answer, require_place, run_elsewhere, waits
from inferometer.cli.measuring import ONCE, SubjectOptions, measurement_from, subject_options
from inferometer.cli.options import SHARE, Number, format_option, print_card, print_document
from inferometer.core.errors import DomainError, GateError
from inferometer.core.units import parse_quantity

if TYPE_CHECKING:
    from inferometer.core.profile import Verification
    from inferometer.measure.run.model import MeasureRequest
    from inferometer.measure.run.tolerance import Tolerance

_BY_FORMATS = "  [default: by the formats]"


@click.command("verify")
@click.argument("model")
@click.option("--against", "reference", required=True, metavar="RUNTIME", help="The runtime to take as correct.")
@click.option("--reference", "reference_model", metavar="MODEL", help="The same model in another file.")
@click.option("--relative", metavar="X", help=f"Maximum error, relative to an output's largest value.{_BY_FORMATS}")
@click.option("--cosine", type=Number(-1, 1), help=f"Minimum cosine similarity of each output.{_BY_FORMATS}")
@click.option("--top-1", type=SHARE, metavar="X", help=f"Minimum share of positions with the same token.{_BY_FORMATS}")
@click.option("--nll", type=Number(0, 1000), help=f"Maximum change of the log-likelihood, in nats.{_BY_FORMATS}")
@place_option
@subject_options
@format_option
def command(
    model: str,
    reference: str,
    reference_model: str | None,
    relative: str | None,
    cosine: float | None,
    top_1: float | None,
    nll: float | None,
    place: str | None,
    form: str,
    **options: Unpack[SubjectOptions],
) -> None:
    """Check that a runtime, a format or a file gives the same outputs as a reference.

    \b
    inferometer verify model.onnx --runtime openvino --against onnxruntime
    inferometer verify net.tflite --runtime litert --against onnxruntime --reference net.onnx

    Both get the same random inputs, and the reference computes in f32, on its own default unit. How far outputs may
    differ follows from how the formats of both sides round; what was allowed is printed with the reason. The exit code
    is 1 if they differ by more.
    """
    from inferometer.measure.run.tolerance import Tolerance

    error = None if relative is None else parse_quantity(relative, "1")
    tolerance = Tolerance(relative=error, cosine=cosine, top_1=top_1, nll=nll)
    asked = measurement_from(model, {**ONCE, **options})
    if asked.cases:
        raise DomainError("A verification is of one length.", remedy="Give --prompt and --generate one number each.")
    if place is not None:
        verification = _verified_at(place, asked, reference, tolerance, reference_model)
        if verification is None:
            return
    else:
        from inferometer.measure.run.model import verify_against

        verification = verify_against(asked, reference, tolerance=tolerance, model=reference_model)
    print_verification(model, verification, form)


def print_verification(model: str, verification: "Verification", form: str) -> None:
    """Print it, and raise if the outputs differ, so that the exit code says so too."""
    from inferometer.understand.view.profiles import verification_card

    if form == "json":
        print_document(asdict(verification))
    else:
        print_card(verification_card(model, verification), form)
    if verification.status == "failed":
        raise GateError(f"The outputs differ from those of {verification.reference}: {verification.reason}.")


def _verified_at(
    place: str, asked: "MeasureRequest", reference: str, tolerance: "Tolerance", model: str | None
) -> "Verification | None":
    """Compared at a place; None if the job has been written for somebody to carry there."""
    from inferometer.hub.places.requests import Judging, pack_measurement

    require_place(place)
    work = pack_measurement("verify", asked, Judging(against=reference, tolerance=tolerance), reference=model)
    if waits(place):
        hand_over(place, work)
        return None
    result = run_elsewhere(place, work)
    if result is None:
        return None
    require_answer(result, there=result.verification is not None)
    return result.verification
