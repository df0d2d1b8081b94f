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
    progress_recorder,
    record,
    require_complete,
)
from inferometer.cli.options import (
    format_option,
    percentile_option,
    print_card,
    print_profiles,
    print_table,
    print_text,
    say,
)
from inferometer.cli.outputs import OutputFile
from inferometer.cli.storing import StoringOptions, print_run_link, recording_from, storing_options
from inferometer.errors import DomainError


class ProfileOptions(MeasuringOptions, StoringOptions):
    """Options that `profile` shares with other commands."""


@click.command("profile")
@click.argument("model")
@measuring_options
@storing_options
@click.option("--text", "words", metavar="TEXT", help="Use this text as the prompt, not random tokens.")
@click.option("--predict/--no-predict", default=True, help="Show the prediction and the floor of each layer.")
@click.option("--on", "device", metavar="DEVICE", help="The catalog device that this machine is, for the prediction.")
@click.option("--verify", "reference", metavar="RUNTIME", help="Check the outputs against those of another runtime.")
@click.option("--reference", "reference_model", metavar="MODEL", help="With --verify: the same model in another file.")
@click.option("--dataflow", is_flag=True, help="Print the timeline of a generation, step by step.")
@click.option("--drawing", type=OutputFile(), metavar="FILE.svg", help="Save the timeline as a drawing.")
@click.option("--trace", type=OutputFile(), metavar="FILE.json", help="Save the profile as a Chrome/Perfetto trace.")
@click.option("-o", "--out", type=OutputFile(), metavar="FILE.json", help="Also save the profile as a file.")
@percentile_option
@format_option
def command(
    model: str,
    percentiles: tuple[float, ...],
    predict: bool,
    device: str | None,
    reference: str | None,
    reference_model: str | None,
    dataflow: bool,
    drawing: Path | None,
    trace: Path | None,
    out: Path | None,
    form: str,
    words: str | None,
    **options: Unpack[ProfileOptions],
) -> None:
    """Measure how fast a model runs here: every layer and every token, on the real runtime.

    \b
    inferometer profile model.onnx
    inferometer profile resnet50 --runtime onnxruntime --batch 8
    inferometer profile smollm2-135m --runtime llamacpp --prompt 512 --generate 64
    inferometer profile smollm2-135m --prompt 128,512 --depth 0,1024 --generate 32

    MODEL is a file, a folder with a config.json, or a catalog name, which runs with random weights in the exact shapes.
    A clean run gives the total times; a second run with the engine's own timers says where they go.
    """
    from inferometer.verbs import measure_and_judge

    if reference_model is not None and reference is None:
        raise DomainError(
            f"--reference is {reference_model!r}, but there is no runtime to run it.", remedy="Add --verify RUNTIME."
        )
    recorder = recording_from(options, kind="profile", model=model)
    line = shlex.join(["inferometer", *sys.argv[1:]])
    asked = measurement_from(model, options, command=line, words=words)
    with recorder:
        with progress_recorder(recorder) as progress:
            measured = measure_and_judge(
                asked,
                predict=predict,
                on=device,
                reference=reference,
                reference_model=reference_model,
                progress=progress,
            )
        record(recorder, measured)
        if out is not None:
            _save(out, measured.profiles)
        _print_profiles(measured.profiles, form, percentiles, dataflow=dataflow)
        _save_drawings(measured.profile, drawing, trace)
        require_complete(measured)
    print_run_link(recorder)


def _print_profiles(profiles: tuple[Any, ...], form: str, percentiles: tuple[float, ...], *, dataflow: bool) -> None:
    from inferometer.report.profiles import layer_table, length_table, measured_phase_table, profile_card

    if form == "json":
        print_profiles(profiles, percentiles)
        return
    first = profiles[0]
    if form == "csv":
        print_table(length_table(profiles) if len(profiles) > 1 else layer_table(first, most=None), form)
        return
    print_card(profile_card(first, percentiles), form)
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


def _save_drawings(profile: Any, drawing: Path | None, trace: Path | None) -> None:
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
            write_whole(path, form(recording))
            say(f"Saved {path}.")


def _save(path: Path, profiles: tuple[Any, ...]) -> None:
    """One file per profile: the second and later ones have a number before the suffix."""
    from inferometer.bench.files import save_profile

    for number, profile in enumerate(profiles, start=1):
        target = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        save_profile(profile, target)
        say(f"Saved {target}.")
