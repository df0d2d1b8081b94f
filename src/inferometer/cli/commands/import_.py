"""`inferometer import`."""

import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from inferometer.cli.options import (
    OutputFile,
    format_option,
    print_profiles,
    print_table,
    print_text,
    print_view,
    refuse_given,
    say,
)
from inferometer.cli.storing import StoringOptions, print_run_link, recording_from, storing_options
from inferometer.core.errors import DomainError
from inferometer.core.units import parse_quantity
from inferometer.understand.view.cards import view_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inferometer.core.profile import Profile
    from inferometer.engines.tools.own_table import OwnTable

# What a run of ours says itself, or what it is already: stored as a file, and sent by `export`.
_OF_OTHERS = (
    "source", "model", "device", "column", "pattern", "time_unit", "walls", "sweep", "out", "no_store", "hub", "token",
    "token_file",
)  # fmt: skip
_COLUMN = "Of a table of one's own: which column has which field; may be repeated."


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option("--as", "source", metavar="NAME", help="The tool that wrote the file.  [default: detected]")
@click.option("--model", metavar="NAME", help="Name of the model.  [default: from the file, or the file's name]")
@click.option("--device", metavar="NAME", help="The device it ran on.  [default: from the file, or unknown]")
@click.option("--column", "column", multiple=True, metavar="FIELD=COLUMN", help=_COLUMN)
@click.option("--pattern", metavar="REGEX", help="Of a log: what a row is, with a named group for each field.")
@click.option("--time-unit", metavar="UNIT", help="Of times that name none: ms, us …")
@click.option("--wall", "walls", multiple=True, metavar="PHASE=TIME", help="How long a phase of a table took.")
@click.option("--sweep", is_flag=True, help="Join load tests of one service into one profile with a level for each.")
@click.option("-o", "--out", metavar="FILE", type=OutputFile(), help="Also save the profile as a file.")
@click.option("--new-id", is_flag=True, help="Give a run of ours a new id, so that it can be imported twice.")
@storing_options
@format_option
@click.pass_context
def command(
    context: click.Context, /, files: tuple[Path, ...], out: Path | None, new_id: bool, form: str, **given: Any
) -> None:
    """Take in a file: another tool's results as profiles, a run of ours, or what a bundle brought back.

    \b
    inferometer import run.zip --project phones
    inferometer import result.json
    inferometer import onnxruntime_profile.json --model resnet50
    inferometer import llama-bench.jsonl --format json
    inferometer import profile.json --as qai-hub --device "Galaxy S24" -o s24.json
    inferometer import npu.csv --column name=ELF --column time="avg / call" --wall prefill=1280ms
    inferometer import run.log --pattern "(?P<name>\\w+) took (?P<time>[\\d.]+)" --time-unit ms
    inferometer compare old.json s24.json

    Known sources: ONNX Runtime profiling, PyTorch profiler traces, OpenVINO benchmark_app, LiteRT benchmark_model,
    TensorRT trtexec, Qualcomm AI Hub, Embedl Hub, llama-bench, GuideLLM, AIPerf, vllm bench serve, SGLang
    bench_serving, InferenceX, MLPerf LoadGen, hyperfine, benchncnn, MNN's benchmark, ExecuTorch, Nsight Systems,
    Nsight Compute, rocprof, VTune, perf stat; fio, iperf3 and sysbench, whose rates are those of a disk, a network and
    a memory; scores and curves of lm-evaluation-harness, MLflow and TensorBoard. What a tool does not report stays
    unknown.

    A run (`export -o run.zip`), a profile or a run in JSON, and the result of a bundle are stored. Another tool's
    results are printed, and stored with --name, --tag or --project.

    A file with several results gives several profiles: --format json then prints a list, and -o writes a numbered file
    for each. --format csv prints a row for each op, or for each phase if no ops are known.

    A table or a log of one's own is read with --column or --pattern. Fields: name, time (of one call) or total (of all
    calls), count, phase, unit, kind, bytes, and write, run and read, which a call's time is made of.
    """
    storing: Any = {name: given.pop(name) for name in StoringOptions.__annotations__}
    asked = context.get_parameter_source("project") is not ParameterSource.DEFAULT
    kinds = {file: _own_kind(file) for file in files}
    if runs := tuple(file for file in files if kinds[file] == "run"):
        from inferometer.cli.commands.runs import print_taken_in

        if len(runs) == len(files):  # beside another tool's file these options are that file's
            refuse_given(_OF_OTHERS, "{} is of another tool's results, and this is a run of ours.", "Leave it out.")
        print_taken_in(
            runs, storing["project"] if asked else None, storing["store"], form,
            new_id=new_id, name=storing["name"], tags=storing["tags"],
        )  # fmt: skip
    for file in files:
        if kinds[file] == "result":
            from inferometer.cli.commands.bundle import print_result

            print_result(file, out, form, storing)
        elif kinds[file] is None:
            profiles = _profiles(file, out, **given)
            _print_imported(profiles, form)
            if out is not None:
                _save(profiles, out)
            if asked or storing["name"] or storing["tags"]:
                _store(file, profiles, storing)


def _own_kind(file: Path) -> str | None:
    """Whether a file is a run or a profile of ours, or what a bundle brought back; None if it is another tool's."""
    try:
        with file.open("rb") as opened:
            head = opened.read(300)
        if head.startswith(b"PK"):
            with zipfile.ZipFile(file) as archive:
                return "run" if "run.json" in archive.namelist() else None
    except (OSError, zipfile.BadZipFile):
        return None  # who reads it says why it cannot be read
    schema = re.search(rb'"schema"\s*:\s*"inferometer\.([\w-]+)/', head)
    return {b"run": "run", b"profile": "run", b"job-result": "result"}.get(schema[1]) if schema else None


def _profiles(
    file: Path, out: Path | None, *, source: str | None, model: str | None, device: str | None,
    column: tuple[str, ...], pattern: str | None, time_unit: str | None, walls: tuple[str, ...], sweep: bool,
) -> "tuple[Profile, ...]":  # fmt: skip
    """What another tool's file says."""
    from inferometer.engines.results.detect import import_file

    if out is not None and out.resolve() == file.resolve():
        raise DomainError(
            f"--out {out} is the file being imported, which would be overwritten.", remedy="Choose another name."
        )
    table = _own_table(column, pattern, time_unit, walls)
    if table is not None and source is not None:
        raise DomainError(f"--as {source} has its own columns.", remedy="Leave out --as, or --column and --pattern.")
    importers = None if table is None else (table,)
    profiles = import_file(file, source=source, model=model, device=device, importers=importers)
    if sweep:
        from inferometer.engines.results.serving import as_sweep

        profiles = (as_sweep(profiles),)
    return profiles


def _store(file: Path, profiles: "Sequence[Profile]", storing: Any) -> None:
    """Make each profile a run."""
    for profile in profiles:
        recorder = recording_from(storing, kind="import", model=profile.model.name, file=str(file))
        figures = profile.environment.host if profile.environment else {}
        with recorder:
            recorder.keep(profile)
            recorder.metrics({name: value for name, value in figures.items() if type(value) in {int, float}})
        print_run_link(recorder)


def _own_table(
    column: "Sequence[str]", pattern: str | None, time_unit: str | None, walls: "Sequence[str]"
) -> "OwnTable | None":
    from inferometer.engines.tools.own_table import OwnTable, pattern_table

    if not column and pattern is None:
        if time_unit or walls:
            raise DomainError("--time-unit and --wall are of a table.", remedy="Add --column or --pattern.")
        return None
    if column and pattern is not None:
        raise DomainError("A table has columns and a log has a pattern.", remedy="Give --column or --pattern.")
    walls_s = {name: parse_quantity(text, "s") for name, text in map(_pair, walls)}
    if pattern is not None:
        return pattern_table(pattern, time_unit=time_unit, walls_s=walls_s)
    return OwnTable(columns=dict(map(_pair, column)), time_unit=time_unit, walls_s=walls_s)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise DomainError(f"{text!r} is not NAME=VALUE.", remedy="Write --column name=OP, --wall prefill=1280ms.")
    return name, value


def _print_imported(profiles: "Sequence[Profile]", form: str) -> None:
    if form == "json":
        print_profiles(profiles)
    elif form == "csv":
        from inferometer.understand.view.profiles import every_op_table

        print_table(every_op_table(profiles), form)
    else:
        for index, profile in enumerate(profiles):
            if index:
                print_text("")
            print_view(view_of(profile), form)


def _save(profiles: "Sequence[Profile]", out: Path) -> None:
    """One profile under the given name; several under that name with a number."""
    from inferometer.measure.bench.files import save_profile

    for number, profile in enumerate(profiles, start=1):
        path = out if len(profiles) == 1 else out.with_name(f"{out.stem}-{number}{out.suffix}")
        save_profile(profile, path)
        say(f"Saved {profile.model.name} ({', '.join(phase.name for phase in profile.phases)}) to {path}.")
