"""`inferometer profile`."""

import shlex
import sys
from pathlib import Path
from typing import Any, Unpack

import click

from inferometer.cli.measuring import (
    MeasuringOptions,
    measurement_from,
    measuring_options,
    progress_bar,
    record,
    require_whole,
)
from inferometer.cli.options import format_option, print_card, print_document, print_table, print_text, say
from inferometer.cli.storing import StoringOptions, recording_from, storing_options, tell
from inferometer.errors import DomainError


class ProfileOptions(MeasuringOptions, StoringOptions):
    """Options that `profile` shares with other commands."""


@click.command("profile")
@click.argument("model")
@measuring_options
@storing_options
@click.option("--text", "words", metavar="WORDS", help="A prompt of your own, in place of random tokens.")
@click.option(
    "--predict/--no-predict", default=True, help="The prediction and the floor beside each layer.  [default: on]"
)
@click.option("--on", "device", metavar="DEVICE", help="The catalog device this machine is, to predict it as that.")
@click.option("--verify", "reference", metavar="RUNTIME", help="Compare the outputs with those of another runtime.")
@click.option("--reference", "reference_model", metavar="MODEL", help="With --verify: the same model in another file.")
@click.option("--dataflow", is_flag=True, help="The end-to-end walk of a generation, with its tables.")
@click.option("--drawing", metavar="FILE.svg", help="The dataflow as a drawing.")
@click.option("--trace", metavar="FILE.json", help="The profile as a Chrome/Perfetto trace.")
@click.option("-o", "--out", metavar="FILE.json", help="Keep the profile as a file, too.")
@format_option
def command(
    model: str,
    predict: bool,
    device: str | None,
    reference: str | None,
    reference_model: str | None,
    dataflow: bool,
    drawing: str | None,
    trace: str | None,
    out: str | None,
    form: str,
    words: str | None,
    **options: Unpack[ProfileOptions],
) -> None:
    """Measure how fast a model runs here: every layer, every token, on the real runtime.

    \b
    inferometer profile model.onnx
    inferometer profile resnet50 --runtime onnxruntime --batch 8
    inferometer profile smollm2-135m --runtime llamacpp --prompt 512 --generate 64
    inferometer profile smollm2-135m --prompt 128,512 --depth 0,1024 --generate 32

    MODEL is a file, a folder with a config.json, or a name of the catalog, whose weights are then made up at the exact
    shapes. A clean run gives the times; a second run with the engine's own timers says where they go.
    """
    from inferometer.verbs import measure_and_judge

    if reference_model is not None and reference is None:
        raise DomainError(
            f"--reference is {reference_model!r}, and no runtime was named to run it.", remedy="Add --verify RUNTIME."
        )
    if out is not None:
        from inferometer.bench.files import require_room

        require_room(Path(out))
    recorder = recording_from(options, kind="profile", model=model)
    line = shlex.join(["inferometer", *sys.argv[1:]])
    asked = measurement_from(model, options, command=line, words=words)
    with recorder:
        with progress_bar(recorder) as progress:
            found = measure_and_judge(
                asked,
                predict=predict,
                on=device,
                reference=reference,
                reference_model=reference_model,
                progress=progress,
            )
        record(recorder, found)
        if out is not None:
            _keep(Path(out), found.profiles)
        _show(found.profiles, form, dataflow=dataflow)
        _draw(found.profile, drawing, trace)
        require_whole(found)
    tell(recorder)


def _show(profiles: tuple[Any, ...], form: str, *, dataflow: bool) -> None:
    from inferometer.core.codec import document
    from inferometer.report.profiles import layer_table, length_table, measured_phase_table, profile_card

    if form == "json":
        if len(profiles) == 1:
            print_document(document(profiles[0]))
        else:
            print_document([document(profile) for profile in profiles])
        return
    first = profiles[0]
    if form == "csv":
        print_table(length_table(profiles) if len(profiles) > 1 else layer_table(first, most=None), form)
        return
    print_card(profile_card(first), form)
    print_text("")
    print_table(measured_phase_table(first), form)
    for phase in first.phases:
        if phase.ops:
            print_text("")
            print_table(layer_table(first, phase=phase), form)
    if any(profile.phase("prefill") for profile in profiles):
        print_text("")
        print_table(length_table(profiles), form)
    if dataflow:
        from inferometer.measure.spans import trace_of
        from inferometer.report.dataflow import dataflow as flow_of

        print_text("")
        print_text(str(flow_of(trace_of(first))))


def _draw(profile: Any, drawing: str | None, trace: str | None) -> None:
    if drawing is None and trace is None:
        return
    from inferometer.measure.spans import trace_of
    from inferometer.profiler.build import from_trace
    from inferometer.profiler.files import write_whole
    from inferometer.report.drawing import drawn
    from inferometer.report.traces import chrome

    recording = from_trace(trace_of(profile))
    for path, form in ((drawing, drawn), (trace, chrome)):
        if path is not None:
            write_whole(Path(path), form(recording))
            say(f"Saved {path}.")


def _keep(path: Path, profiles: tuple[Any, ...]) -> None:
    """One file a profile: the second and later ones have a number before the suffix."""
    from inferometer.bench.files import save_profile

    for number, profile in enumerate(profiles, start=1):
        place = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        save_profile(profile, place)
        say(f"Saved {place}.")
