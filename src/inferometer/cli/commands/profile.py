"""`inferometer profile`."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from inferometer.cli.commands.compare import criteria_from, hold_gates, print_comparisons, verdict_options
from inferometer.cli.elsewhere import (
    PLACES,
    for_hub,
    hand_over,
    keeps_runs,
    outcome_from,
    place_and_device,
    require_answer,
    require_place,
    run_elsewhere,
    waits,
)
from inferometer.cli.measuring import (
    ONCE,
    MeasuringOptions,
    SubjectOptions,
    measurement_from,
    measuring_options,
    progress_recorder,
    record,
    require_complete,
)
from inferometer.cli.options import (
    SHARE,
    Number,
    OutputFile,
    command_line,
    format_option,
    percentile_option,
    print_card,
    print_document,
    print_profiles,
    print_table,
    print_text,
    print_view,
    refuse_given,
    say,
)
from inferometer.cli.storing import StoringOptions, print_run_link, recording_from, storing_options
from inferometer.core.errors import DomainError, GateError
from inferometer.core.frozen import frozen
from inferometer.core.units import parse_quantity

if TYPE_CHECKING:
    from inferometer.core.job import JobResult
    from inferometer.core.profile import Verification
    from inferometer.hub.places.requests import PackedJob
    from inferometer.measure.bench.loop import Progress
    from inferometer.measure.run.model import MeasureRequest
    from inferometer.measure.run.outcome import MeasuredOutcome
    from inferometer.store.recording import RunRecorder

_BY_FORMATS = "  [default: by the formats]"
_ON = f"Where to run it: {PLACES}; or the catalog device that the machine is, for the prediction; or both."


@click.command("profile")
@click.argument("model")
@click.option("--against", metavar="MODEL", help="The baseline: another model, measured in turns with MODEL.")
@measuring_options
@storing_options
@click.option("--text", "words", metavar="TEXT", help="Use this text as the prompt, not random tokens.")
@click.option("--predict/--no-predict", default=True, help="Show the prediction and the floor of each layer.")
@click.option("--on", "places", multiple=True, metavar="PLACE|DEVICE", help=_ON)
@click.option("--verify", "reference", metavar="RUNTIME", help="Check the outputs against those of another runtime.")
@click.option("--reference", "reference_model", metavar="MODEL", help="With --verify: the same model in another file.")
@click.option("--outputs-only", is_flag=True, help="With --verify: compare the outputs, and measure no times.")
@click.option("--relative", metavar="X", help=f"Maximum error, relative to an output's largest value.{_BY_FORMATS}")
@click.option("--cosine", type=Number(-1, 1), help=f"Minimum cosine similarity of each output.{_BY_FORMATS}")
@click.option("--top-1", type=SHARE, metavar="X", help=f"Minimum share of positions with the same token.{_BY_FORMATS}")
@click.option("--nll", type=Number(0, 1000), help=f"Maximum change of the log-likelihood, in nats.{_BY_FORMATS}")
@click.option("--dataflow", is_flag=True, help="Print the timeline of a generation, step by step.")
@click.option("--drawing", type=OutputFile(), metavar="FILE.svg", help="Save the timeline as a drawing.")
@click.option("--trace", type=OutputFile(), metavar="FILE.json", help="Save the profile as a Chrome/Perfetto trace.")
@click.option("-o", "--out", type=OutputFile(), metavar="FILE.json", help="Also save the profile as a file.")
@click.option("--save-against", type=OutputFile(), metavar="FILE.json", help="Save the baseline's profile too.")
@verdict_options
@percentile_option
@format_option
def command(model: str, places: tuple[str, ...], form: str, **options: Any) -> None:
    """Measure how fast a model runs here: every layer and every token, on the real runtime.

    \b
    inferometer profile model.onnx
    inferometer profile resnet50 --runtime onnxruntime --batch 8
    inferometer profile smollm2-135m --runtime llamacpp --prompt 512 --generate 64
    inferometer profile smollm2-135m --prompt 128,512 --depth 0,1024 --generate 32
    inferometer profile model.onnx --on ssh://pi@board
    inferometer profile model.onnx --on "hub:any?unit=npu"
    inferometer profile net.tflite --runtime litert --verify onnxruntime --reference net.onnx --outputs-only

    MODEL is a file, a folder with a config.json, or a catalog name, which runs with random weights in the exact shapes.
    A clean run gives the total times; a second run with the engine's own timers says where they go.

    With --against, both models are loaded and run in turns, in a new random order each round, and the answer is a
    verdict: faster, slower, same or no difference shown (see `inferometer compare --help`).

    With --verify, both engines get the same random inputs, and the reference computes in f32, on its own default unit.
    How far outputs may differ follows from how the formats of both sides round; what was allowed is printed with the
    reason. The exit code is 1 if they differ by more. --outputs-only does that alone, and takes other limits.
    """
    if options["against"] is None and (options["fail_if"] or options["save_against"]):
        raise click.UsageError("--fail-if and --save-against need --against.", ctx=click.get_current_context())
    place, device = place_and_device(places)
    if options["outputs_only"]:
        _compare_outputs(model, options, place or device, form)
        return
    refuse_given(_LIMITS, "{} is a limit for --outputs-only.", "Add it; a measurement takes the limits of the formats.")
    beside = _Beside(
        predict=options["predict"], device=device, against=options["reference"],
        reference_model=options["reference_model"],
    )  # fmt: skip
    if beside.reference_model is not None and beside.against is None:
        raise DomainError(
            f"--reference is {beside.reference_model!r}, but there is no runtime to run it.",
            remedy="Add --verify RUNTIME.",
        )
    if place is not None:
        place = for_hub(place, options["project"], options["name"], options["tags"])
    storing = cast("StoringOptions", options)
    recorder = recording_from(storing, kind="profile", enabled=not keeps_runs(place), model=model)
    measuring = cast("MeasuringOptions", options)
    asked = measurement_from(model, measuring, command=command_line(), words=options["words"])
    if options["against"] is not None:
        _measure_against(asked, recorder, options, place, beside, form)
    elif place is not None and waits(place):
        hand_over(place, _packed(asked, beside))
    elif place is not None and place.startswith("hub:each"):
        from inferometer.cli.elsewhere import profile_on_each

        profile_on_each(place, _packed(asked, beside), form)
    else:
        _measure(asked, beside, place, recorder, options, form)


def _measure(
    asked: "MeasureRequest", beside: "_Beside", place: str | None, recorder: "RunRecorder", options: dict[str, Any],
    form: str,
) -> None:  # fmt: skip
    with recorder:
        with progress_recorder(recorder) as progress:
            outcome = _measured(asked, beside, place, progress)
        record(recorder, outcome)
        if options["out"] is not None:
            _save(options["out"], outcome.profiles)
        print_measured(outcome.profiles, form, options["percentiles"], dataflow=options["dataflow"])
        _save_drawings(outcome.profile, options["drawing"], options["trace"])
        require_complete(outcome)
    print_run_link(recorder)


# `inferometer profile --outputs-only`: whether the outputs are right, and no times.

_LIMITS = {"relative", "cosine", "top_1", "nll"}
_OF_OUTPUTS = {
    *SubjectOptions.__annotations__, *_LIMITS, "model", "places", "reference", "reference_model", "outputs_only",
    "form",
}  # fmt: skip


def _compare_outputs(model: str, options: dict[str, Any], place: str | None, form: str) -> None:
    from inferometer.measure.run.tolerance import Tolerance

    reference, reference_model = options["reference"], options["reference_model"]
    error = None if options["relative"] is None else parse_quantity(options["relative"], "1")
    tolerance = Tolerance(relative=error, **{name: options[name] for name in ("cosine", "top_1", "nll")})
    others = {parameter.name or "" for parameter in click.get_current_context().command.params} - _OF_OUTPUTS
    refuse_given(others, "{} is of a measurement, and --outputs-only measures no times.", "Leave one of them out.")
    if reference is None:
        raise DomainError("--outputs-only compares with another runtime.", remedy="Add --verify RUNTIME.")
    once: Any = {**options, **ONCE}
    asked = measurement_from(model, once)
    if asked.cases:
        raise DomainError("A verification is of one length.", remedy="Give --prompt and --generate one number each.")
    if place is None:
        from inferometer.measure.run.model import verify_against

        print_verification(model, verify_against(asked, reference, tolerance=tolerance, model=reference_model), form)
        return
    from inferometer.hub.places.requests import Judging, pack_measurement

    require_place(place)
    work = pack_measurement("verify", asked, Judging(against=reference, tolerance=tolerance), reference=reference_model)
    if waits(place):
        hand_over(place, work)
        return
    result = run_elsewhere(place, work)
    if result is not None:
        print_verified(model, result, form)


def print_verified(model: str, result: "JobResult", form: str) -> None:
    """What a place found when it compared the outputs."""
    require_answer(result, there=result.verification is not None)
    if result.verification is not None:
        print_verification(model, result.verification, form)


def print_verification(model: str, verification: "Verification", form: str) -> None:
    """Print it, and raise if the outputs differ, so that the exit code says so too."""
    from inferometer.understand.view.profiles import verification_card

    if form == "json":
        print_document(asdict(verification))
    else:
        print_card(verification_card(model, verification), form)
    if verification.status == "failed":
        raise GateError(f"The outputs differ from those of {verification.reference}: {verification.reason}.")


# Options about one profile have no meaning for two.
_OF_ONE = {"reference": "verify", "dataflow": "dataflow", "drawing": "drawing", "trace": "trace",
           "percentiles": "percentile"}  # fmt: skip


def _measure_against(
    asked: "MeasureRequest", recorder: "RunRecorder", options: dict[str, Any], place: str | None, beside: "_Beside",
    form: str,
) -> None:  # fmt: skip
    from inferometer.api import measure_pair_and_judge
    from inferometer.measure.bench.compare import compare
    from inferometer.measure.bench.gate import parse_gate
    from inferometer.measure.run.outcome import outcome_of

    gates = tuple(parse_gate(text) for text in options["fail_if"])
    criteria = criteria_from(options["threshold"], options["alpha"])
    for name, option in _OF_ONE.items():
        if options[name]:
            raise DomainError(
                f"--{option} is about one model, and --against measures two.", remedy="Leave one of them out."
            )
    if place is not None:
        raise DomainError("Two models are measured in turns on this machine only.", remedy=f"Leave --on {place} out.")
    baseline = replace(asked, model=options["against"])
    with recorder:
        with progress_recorder(recorder) as progress:
            pair = measure_pair_and_judge(baseline, asked, predict=beside.predict, on=beside.device, progress=progress)
        old, new = map(outcome_of, pair)
        record(recorder, new)
        recorder.keep_below(old.profile)
        for run, path in ((old, options["save_against"]), (new, options["out"])):
            if path is not None:
                _save(path, run.profiles)
        names = (baseline.model, asked.model)
        comparison = compare(old.profile, new.profile, criteria=criteria, names=names)
        print_comparisons([comparison], form)
        for run in (old, new):
            require_complete(run)
        hold_gates(gates, [comparison])
    print_run_link(recorder)


@frozen
class _Beside:
    """What is asked for beside the measurement."""

    predict: bool
    device: str | None
    against: str | None
    reference_model: str | None


def _packed(asked: "MeasureRequest", beside: _Beside) -> "PackedJob":
    from inferometer.hub.places.requests import Judging, pack_measurement

    judging = Judging(predict=beside.predict, device=beside.device, against=beside.against)
    return pack_measurement("profile", asked, judging, reference=beside.reference_model)


def _measured(
    asked: "MeasureRequest", beside: _Beside, place: str | None, progress: "Progress | None"
) -> "MeasuredOutcome":
    """Measured here, or at a place that does with the same request what is done here."""
    if place is not None:
        result = run_elsewhere(place, _packed(asked, beside), progress)
        if result is not None:
            return outcome_from(result, strict=asked.strict)
    from inferometer.api import measure_and_judge
    from inferometer.measure.run.outcome import outcome_of

    measured = measure_and_judge(
        asked,
        predict=beside.predict,
        on=beside.device,
        reference=beside.against,
        reference_model=beside.reference_model,
        progress=progress,
    )
    return outcome_of(measured)


def print_measured(
    profiles: tuple[Any, ...], form: str, percentiles: tuple[float, ...] = (), *, dataflow: bool = False
) -> None:
    from inferometer.understand.view.profiles import layer_table, length_table, measured_view

    if form == "json":
        print_profiles(profiles, percentiles)
        return
    first = profiles[0]
    if form == "csv":
        print_table(length_table(profiles) if len(profiles) > 1 else layer_table(first, most=None), form)
        return
    print_view(measured_view(first, percentiles), form)
    if any(profile.phase("prefill") for profile in profiles):
        print_text("")
        print_table(length_table(profiles), form)
    if dataflow:
        from inferometer.measure.run.spans import trace_of
        from inferometer.understand.view.dataflow import dataflow as flow_of

        print_text("")
        print_text(str(flow_of(trace_of(first))))


def _save_drawings(profile: Any, drawing: Path | None, trace: Path | None) -> None:
    if drawing is None and trace is None:
        return
    from inferometer.core.cache import write_asked_for
    from inferometer.measure.run.spans import trace_of
    from inferometer.measure.spans.build import from_trace
    from inferometer.understand.view.drawing import drawn
    from inferometer.understand.view.traces import chrome

    recording = from_trace(trace_of(profile))
    for path, form in ((drawing, drawn), (trace, chrome)):
        if path is not None:
            write_asked_for(path, form(recording))
            say(f"Saved {path}.")


def _save(path: Path, profiles: tuple[Any, ...]) -> None:
    """One file per profile: the second and later ones have a number before the suffix."""
    from inferometer.measure.bench.files import save_profile

    for number, profile in enumerate(profiles, start=1):
        target = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        save_profile(profile, target)
        say(f"Saved {target}.")
