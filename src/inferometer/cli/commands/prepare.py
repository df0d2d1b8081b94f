"""`inferometer prepare`."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

import click

from inferometer.cli.measuring import trust_option
from inferometer.cli.options import (
    BATCH,
    IMAGE,
    RUNS,
    SEED,
    THREADS,
    TIME,
    TOKENS,
    OutputFile,
    format_option,
    print_document,
    print_table,
    refuse_given,
    say,
)
from inferometer.cli.progress import progress_line
from inferometer.cli.storing import StoringOptions, print_run_link, recording_from, storing_options
from inferometer.core.errors import DomainError, GateError
from inferometer.core.units import parse_quantity
from inferometer.predict.flags import parse_sizes

if TYPE_CHECKING:
    from pathlib import Path

    from inferometer.measure.prepare.run import Prepared, PrepareRequest
    from inferometer.measure.prepare.search import Tuned
    from inferometer.store.recording import RunRecorder


# What a file with random weights has, which no engine is named for.
_OF_SHAPES = {"model", "out", "form", "weights", "seed", "sizes", "part", "overwrite"}


@click.command("prepare")
@click.argument("model")
@click.option("--for", "target", metavar="RUNTIME[@DEVICE]", help="The engine, and where it will run.")
@click.option("--quantise", metavar="FORMAT", help="i8, i8-dynamic, i8-weights, i4-weights, f16, q8_0, q4_0 …")
@click.option(
    "--calibrate-with",
    "given",
    multiple=True,
    metavar="FILES|random",
    help="Inputs in .npy or .npz files, or a folder.",
)
@click.option(
    "-o", "--out", type=OutputFile(folders=True), metavar="FILE",
    help="The file to write; its ending says the format. Some engines open a folder.",
)  # fmt: skip
@click.option("--dry", is_flag=True, help="Only predict what each format would gain, op by op; nothing is made.")
@click.option(
    "--sensitivity",
    is_flag=True,
    help="With --dry: how far outputs drift with each layer rounded alone, by running it so.",
)
@click.option("--search", "searching", is_flag=True, help="Try every format that the engine can run.")
@click.option(
    "--goal", "goals", multiple=True, metavar="LIMIT",
    help='Search for what keeps it: "drift<=1%", "latency<=0.7x", "size<=0.5x"; repeatable. -o writes the fastest.',
)  # fmt: skip
@click.option(
    "--tune", "tuning", is_flag=True,
    help="Then try the engine's settings in turns: threads, providers, its own options. Without -o, of MODEL as it is.",
)  # fmt: skip
@click.option("--budget", type=TIME, default="10 min", help="Begin no further format or setting after this time.")
@click.option("--no-measure", is_flag=True, help="Verify and predict, but measure no times.")
@click.option("--force", is_flag=True, help="Write the file although its outputs are wrong.")
@click.option("--overwrite", is_flag=True, help="Overwrite an existing file.")
@click.option("--batch", type=BATCH, default=1, help="Inputs or sequences at once.")
@click.option("--prompt", type=TOKENS, help="Prompt length in tokens.")
@click.option("--generate", type=TOKENS, help="Tokens to generate.")
@click.option("--image", type=IMAGE, help="Side of the input image, in pixels.")
@click.option("--size", "sizes", multiple=True, metavar="NAME=N", help="Any other size the model leaves open.")
@click.option("--threads", type=THREADS, help="Engine threads.  [default: one per physical core]")
@click.option("--runs", type=RUNS, help="Runs of each side of a measurement.  [default: 15]")
@click.option("--seed", type=SEED, default=0, help="Seed of random inputs and weights.")
@click.option("--weights", default="f32", metavar="FORMAT", help="Without --for: f16, bf16, q8_0, q4_0, q4_k …")
@click.option("--part", metavar="NAME", help="Without --for: only this part of several, such as encoder.")
@trust_option
@storing_options
@format_option
def command(model: str, target: str | None, form: str, **options: Any) -> None:
    """Make the file that an engine runs: converted, simplified, quantised, and proven step by step.

    \b
    inferometer prepare model.onnx --for onnxruntime --quantise i8 --calibrate-with images/ -o model-i8.onnx
    inferometer prepare resnet50 --for openvino -o resnet50.xml
    inferometer prepare checkpoint/ --for llamacpp --quantise q4_0 -o model.gguf
    inferometer prepare checkpoint/ --for onnxruntime-genai --quantise i4 -o model/
    inferometer prepare model.onnx --for onnxruntime --search --budget "5 min"
    inferometer prepare model.onnx --for openvino --dry
    inferometer prepare model.onnx --for onnxruntime --dry --quantise i8 --sensitivity
    inferometer prepare model.onnx --for onnxruntime --tune
    inferometer prepare llama-3.2-1b -o llama.gguf --weights q4_0

    Each step is done by the tool that is made for it, and proven: its outputs against the original's within the limits
    that `inferometer profile --verify` has, its size, the gain that is predicted and the one that is measured here, in
    turns with what went in. A step that only helps is left out if it makes the model wrong or slower. What was made is
    kept by content: the same step of the same file is not done twice.

    The exit code is 1 if what was asked for gives wrong outputs; nothing wrong is written then without --force.

    Without --for, a new .onnx, .gguf, .tflite or .safetensors file, or a folder, has the model's shapes, size and speed
    and random weights: its outputs are noise. MODEL is then a catalog name, a folder with a config.json, or a file.
    """
    if target is None:
        others = {str(parameter.name) for parameter in click.get_current_context().command.params} - _OF_SHAPES
        refuse_given(others, "{} is for an engine.", "Say which: --for RUNTIME.")
        _write_shapes(model, options, form)
        return
    refuse_given({"weights", "part"}, "{} is of a file with random weights.", "Leave out --for, or say --quantise.")
    dry, goals, tuning, out = (options[name] for name in ("dry", "goals", "tuning", "out"))
    searching = options["searching"] or bool(goals)
    request, budget_s = _request(model, target, options), parse_quantity(options["budget"], "s")
    if tuning and (dry or options["no_measure"] or (searching and not goals)):
        raise DomainError("Settings are tuned by measuring one file.", remedy="Say --tune alone, or with -o or --goal.")
    if options["sensitivity"] and not (dry and request.quantise):
        raise DomainError("Sensitivity is told of one format.", remedy="Say --dry --quantise FORMAT --sensitivity.")
    if dry:
        _foretell(request, form, sensitivity=options["sensitivity"])
    elif searching:
        _search(request, budget_s, goals, form, tuning=tuning)
    elif tuning and out is None:
        _print_tuned(_tuned(None, request, budget_s), form)
    elif out is None:
        raise DomainError("There is no file to write.", remedy="Say -o FILE, or --dry to see what there is to gain.")
    else:
        _prepare(request, options, budget_s if tuning else None, form)


def _request(model: str, target: str, options: dict[str, Any]) -> PrepareRequest:
    from inferometer.core.workload import Workload
    from inferometer.measure.prepare.calibration import RANDOM
    from inferometer.measure.prepare.run import PrepareRequest

    runtime, _, device = target.partition("@")
    sizes = {name: options[name] for name in ("batch", "prompt", "generate", "image")}
    same = ("quantise", "out", "overwrite", "force", "threads", "runs", "seed", "trust")
    return PrepareRequest(
        model=model, runtime=runtime, device=device or None, calibrate_with=options["given"] or (RANDOM,),
        measure=not options["no_measure"], workload=Workload(**sizes), sizes=parse_sizes(options["sizes"]),
        **{name: options[name] for name in same},
    )  # fmt: skip


def _prepare(request: PrepareRequest, options: dict[str, Any], tuning_s: float | None, form: str) -> None:
    """The file is made, kept with the run that proves it, and shown; then its settings are tuned for so long."""
    recorder = recording_from(
        cast("StoringOptions", options), kind="prepare",
        model=request.model, runtime=request.runtime, quantise=request.quantise or "none",
    )  # fmt: skip
    with recorder:
        prepared = _prepared(request)
        _keep(recorder, prepared)
        tuned = tuning_s is not None and prepared.artifact is not None
        _print(prepared, form, _tuned(prepared.artifact, request, tuning_s or 0.0) if tuned else None)
        if not prepared.right:
            wrong = next(row for row in prepared.steps if row.verdict == "wrong")
            raise GateError(f"The step {wrong.name} makes the outputs wrong: {wrong.notes[-1]}.")
    print_run_link(recorder)


def _write_shapes(model: str, options: dict[str, Any], form: str) -> None:
    """A runnable file with random weights in the exact shapes of a model."""
    from inferometer.formats.synth import synthesise
    from inferometer.understand.view.listings import synthesis_table

    if options["out"] is None:
        raise DomainError("There is no file to write.", remedy="Say -o FILE; its ending says the format.")
    made = synthesise(
        model, options["out"], weights=options["weights"], seed=options["seed"], sizes=parse_sizes(options["sizes"]),
        part=options["part"], overwrite=options["overwrite"],
    )  # fmt: skip
    if form == "json":
        names = ("format", "weights", "parameters", "seed", "note")
        print_document({
            "path": str(made.path), "paths": [str(path) for path in made.paths], "bytes": made.nbytes,
            **{name: getattr(made, name) for name in names},
        })  # fmt: skip
    else:
        print_table(synthesis_table(made), form)


def _prepared(request: PrepareRequest) -> Prepared:
    from inferometer.core.notices import told_to
    from inferometer.measure.prepare.run import carry_out_request

    with progress_line(str) as draw, told_to(draw):
        return carry_out_request(request)


def _keep(recorder: RunRecorder, prepared: Prepared) -> None:
    """The artifact belongs to the run, with the table that proves it."""
    import json

    from inferometer.core.job import PROOF
    from inferometer.measure.prepare.carrying_out import model_files
    from inferometer.measure.prepare.run import prepared_document

    if prepared.profile is not None:
        recorder.keep(prepared.profile)
    proof = json.dumps(prepared_document(prepared), indent=2).encode()
    recorder.attach(PROOF, proof, "application/json")
    if prepared.artifact is not None:
        for path in model_files(prepared.artifact):
            recorder.attach(path.name, path)


def _print(prepared: Prepared, form: str, settings: Tuned | None) -> None:
    from inferometer.measure.prepare.run import prepared_document
    from inferometer.understand.view.prepared import prepared_table

    if form == "json":
        more = {} if settings is None else {"tuned": settings.document()}
        print_document({**prepared_document(prepared), **more})
    else:
        print_table(prepared_table(prepared), form)
        if settings is not None:
            _print_tuned(settings, form)
    if prepared.artifact is not None:
        say(f"Saved {prepared.artifact}.")


def _foretell(request: PrepareRequest, form: str, *, sensitivity: bool) -> None:
    from inferometer.measure.prepare.foretell import foretell
    from inferometer.understand.view.prepared import foretold_ops, foretold_table

    found = foretell(request, sensitivity=sensitivity)
    if form == "json":
        rows = [asdict(row) | {"verdict": row.verdict} for row in found]
        print_document({"schema": "inferometer.prepare-foretold/1", "formats": rows})
        return
    print_table(foretold_table(found), form)
    if request.quantise is not None and form != "csv":
        print_table(foretold_ops(found[0], rows=None if form == "md" else 12), form)


def _tuned(path: Path | None, request: PrepareRequest, budget_s: float) -> Tuned:
    """Of a file that was prepared, else of the model as it is."""
    from inferometer.core.notices import told_to
    from inferometer.known.engines import engine
    from inferometer.measure.prepare.artifact import source_of, starting_format
    from inferometer.measure.prepare.search import tune

    if path is None:
        target = engine(request.runtime)
        if request.quantise is not None or starting_format(request.model, target)[0] not in target.opens:
            raise DomainError(f"{target.title} needs a file of its own.", remedy="Say -o FILE: it is made, then tuned.")
        path = source_of(request.model, target, image=request.workload.image, seed=request.seed)
    with progress_line(str) as draw, told_to(draw):
        return tune(path, request, budget_s=budget_s)


def _print_tuned(settings: Tuned, form: str) -> None:
    from inferometer.understand.view.prepared import tuned_table

    if form == "json":
        print_document(settings.document())
    else:
        print_table(tuned_table(settings), form)


def _search(request: PrepareRequest, budget_s: float, goals: tuple[str, ...], form: str, *, tuning: bool) -> None:
    from inferometer.core.notices import told_to
    from inferometer.measure.prepare.run import prepared_document
    from inferometer.measure.prepare.search import AS_IT_IS, chosen, parse_goal, search
    from inferometer.understand.view.prepared import search_table

    with progress_line(str) as draw, told_to(draw):
        found = search(request, budget_s=budget_s, goals=[parse_goal(goal) for goal in goals])
    best, settings = chosen(found), None
    if best is not None and request.out is not None:
        made = _prepared(replace(request, quantise=None if best.quantise == AS_IT_IS else best.quantise))
        say(f"Saved {made.artifact}: {best.quantise}." if made.artifact else f"{request.model} keeps them as it is.")
        settings = _tuned(made.artifact, request, budget_s) if tuning and made.artifact is not None else None
    if form == "json":
        rows = [
            {"quantise": row.quantise, "best": row.best, "meets": row.meets, "reason": row.reason}
            | ({} if row.prepared is None else {"prepared": prepared_document(row.prepared)})
            for row in found
        ]
        more = {} if settings is None else {"tuned": settings.document()}
        print_document({"schema": "inferometer.measure.prepare-search/1", "formats": rows, **more})
    else:
        print_table(search_table(found), form)
        if settings is not None:
            _print_tuned(settings, form)
    if goals and best is None:
        raise GateError("No format keeps every goal.", remedy="Allow more, or ask for another runtime.")
