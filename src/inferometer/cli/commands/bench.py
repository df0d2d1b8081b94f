"""`inferometer bench`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from inferometer.cli.commands.compare import criteria_from, hold_gates, print_comparisons, verdict_options
from inferometer.cli.elsewhere import (
    PLACES,
    for_hub,
    hand_over,
    keeps_runs,
    outcome_from,
    require_place,
    run_elsewhere,
    waits,
)
from inferometer.cli.options import (
    MEMORY,
    RUNS,
    SEED,
    TIME,
    WARMUP,
    OutputFile,
    command_line,
    format_option,
    percentile_option,
    print_card,
    print_profiles,
    say,
    together,
)
from inferometer.cli.progress import progress_line, step_text
from inferometer.cli.storing import StoringOptions, print_run_link, recording_from, storing_options
from inferometer.core.errors import DomainError
from inferometer.core.units import parse_quantity

if TYPE_CHECKING:
    from inferometer.measure.bench.measurement import Measurement
    from inferometer.measure.bench.plan import Plan
    from inferometer.measure.run.model import MeasureRequest


# How many runs, how long, within what limits: the options that `plan_from` reads.
plan_options = together(
    click.option("--runs", type=RUNS, default=30, help="Minimum number of runs."),
    click.option("--seconds", type=TIME, default="1 s", help="Minimum time for all runs."),
    click.option("--runs-at-most", type=RUNS, default=10_000, help="Maximum number of runs."),
    click.option("--seconds-at-most", type=TIME, default="60 s", help="Maximum time."),
    click.option("--warmup", type=WARMUP, help="Warm-up runs.  [default: until times are steady]"),
    click.option("--timeout", type=TIME, help="Kill a run that takes longer."),
    click.option("--memory-limit", type=MEMORY, help="Kill a run that uses more memory."),
    click.option("--cooldown", type=TIME, default="0 s", help="Pause before each run."),
    click.option("--seed", type=SEED, default=0, help="Seed of the order of runs and of resampling."),
)


class PlanOptions(TypedDict):
    """The values of `plan_options`, as the user wrote them."""

    runs: int
    seconds: str
    runs_at_most: int
    seconds_at_most: str
    warmup: int | None
    timeout: str | None
    memory_limit: str | None
    cooldown: str
    seed: int


def plan_from(options: PlanOptions) -> "Plan":
    from inferometer.measure.bench.plan import Plan

    timeout, memory = options["timeout"], options["memory_limit"]
    return Plan(
        runs=options["runs"],
        seconds=parse_quantity(options["seconds"], "s"),
        runs_at_most=options["runs_at_most"],
        seconds_at_most=parse_quantity(options["seconds_at_most"], "s"),
        warmup=options["warmup"],
        timeout_s=None if timeout is None else parse_quantity(timeout, "s"),
        memory_bytes=None if memory is None else int(parse_quantity(memory, "B")),
        cooldown_s=parse_quantity(options["cooldown"], "s"),
        seed=options["seed"],
    )


class BenchOptions(PlanOptions, StoringOptions):
    """Options that `bench` shares with other commands."""


@click.command("bench")
@click.argument("words", nargs=-1, metavar="-- CMD [ARG]…", type=click.UNPROCESSED)
@click.option("--against", metavar="CMD", help="The baseline: another command, measured in turns with CMD.")
@click.option("--on", "place", metavar="PLACE", help=f"Measure a model there: {PLACES}; -- MODEL in place of CMD.")
@click.option("--runtime", metavar="NAME", help="With --on: the engine.  [default: the first that can open the model]")
@plan_options
@click.option("--strict", is_flag=True, help="Exit with 1 if the machine was not quiet.")
@click.option("--no-guard", is_flag=True, help="Do not check that the machine is quiet.")
@storing_options
@click.option("-o", "--out", "output", type=OutputFile(), metavar="FILE", help="Save the result as JSON.")
@click.option("--save-against", type=OutputFile(), metavar="FILE", help="Save the baseline's result too.")
@percentile_option
@verdict_options
@format_option
def command(
    words: tuple[str, ...],
    percentiles: tuple[float, ...],
    against: str | None,
    place: str | None,
    runtime: str | None,
    strict: bool,
    no_guard: bool,
    output: Path | None,
    save_against: Path | None,
    threshold: str,
    alpha: float,
    fail_if: tuple[str, ...],
    form: str,
    **options: Unpack[BenchOptions],
) -> None:
    """Measure a command, alone or in turns with another.

    \b
    inferometer bench -- ./model --prompt hello
    inferometer bench --runs 100 --timeout 10s -o new.json -- ./model
    inferometer bench --against "./old --fast" --fail-if "latency>5%" -- ./new --fast
    inferometer bench --on ssh://pi@board -- model.onnx

    Every run is a new process, started without a shell, and its output is discarded. Warm-up runs are not counted,
    failed runs are reported as errors, and a run over its limit is killed with all its children. Runs that other
    programs disturbed are repeated; if they stay disturbed, the result says so, with the reason. Ctrl-C keeps the runs
    so far.

    With --against, the two commands run in turns, in a new random order each round, and the answer is a verdict:
    faster, slower, same or no difference shown (see `inferometer compare --help`).

    With --on, the total time of a model is measured at another place: what is sent there is data, never a command.
    """
    from inferometer.measure.bench.gate import parse_gate
    from inferometer.measure.bench.run import require_quiet
    from inferometer.measure.bench.subject import split_command

    if not words:
        raise click.UsageError("Give the command to measure after --.", ctx=click.get_current_context())
    if against is None and (fail_if or save_against):
        raise click.UsageError("--fail-if and --save-against need --against.", ctx=click.get_current_context())
    if against is not None and percentiles:
        raise click.UsageError("--percentile is for one command, without --against.", ctx=click.get_current_context())
    if place is not None:
        _require_model(words, against)
        asked = _model_request(words[0], runtime, plan_from(options), guarded=not no_guard, strict=strict)
        _bench_model(place, asked, options, output, form, percentiles)
        return
    if runtime is not None:
        raise click.UsageError("--runtime is for a model, with --on.", ctx=click.get_current_context())
    gates = tuple(parse_gate(text) for text in fail_if)
    criteria = criteria_from(threshold, alpha)
    name = options["name"]
    recorder = recording_from(options, kind="bench", command=shlex.join(words))
    plan = plan_from(options)
    files = (output,) if against is None else (save_against, output)
    commands = (words,) if against is None else (split_command(against), words)
    names = None if name is None else (name,) if against is None else (f"{name} (baseline)", name)
    with recorder:
        measurements = _measure(commands, names, plan, guarded=not no_guard, strict=strict)
        recorder.keep(measurements[-1].profile)
        for baseline in measurements[:-1]:
            recorder.keep_below(baseline.profile)
        _save(measurements, files)
        disturbances = measurements[0].environment.reasons
        for reason in disturbances:
            say(f"inferometer: disturbed {reason}")
        if against is None:
            _print_measurement(measurements[0], form, percentiles)
        else:
            _print_verdict(measurements, criteria, gates, form)
        if measurements[0].interrupted:
            print_run_link(recorder)
            raise KeyboardInterrupt  # what there is has been printed and saved, and the run is stored as interrupted
        require_quiet(disturbances, strict=strict)
    print_run_link(recorder)


def _require_model(words: tuple[str, ...], against: str | None) -> None:
    if against is not None or len(words) != 1:
        raise DomainError(
            "With --on, bench measures one model: a command is not sent elsewhere.",
            remedy="Write -- MODEL; compare two of them with `inferometer compare`.",
        )


def _model_request(model: str, runtime: str | None, plan: "Plan", *, guarded: bool, strict: bool) -> "MeasureRequest":
    """The total time of a model: no layers, no prediction."""
    from inferometer.measure.run.isolate import ChildLimits
    from inferometer.measure.run.model import MeasureRequest

    limits = ChildLimits(silence_s=plan.timeout_s or ChildLimits().silence_s, memory_bytes=plan.memory_bytes)
    line = command_line()
    return MeasureRequest(
        model=model, runtime=runtime, plan=plan, limits=limits, seed=plan.seed, shape=False, guarded=guarded,
        strict=strict, command=line,
    )  # fmt: skip


def _bench_model(
    place: str,
    asked: "MeasureRequest",
    options: "BenchOptions",
    output: Path | None,
    form: str,
    percentiles: tuple[float, ...],
) -> None:
    from inferometer.cli.commands.profile import print_measured
    from inferometer.cli.measuring import progress_recorder, record, require_complete
    from inferometer.hub.places.requests import Judging, pack_measurement
    from inferometer.measure.bench.files import require_room, save_profile

    require_place(place)
    place = for_hub(place, options["project"], options["name"], options["tags"])
    if output is not None:
        require_room(output)
    work = pack_measurement("bench", asked, Judging(predict=False))
    if waits(place):
        hand_over(place, work)
        return
    recorder = recording_from(options, kind="bench", enabled=not keeps_runs(place), model=asked.model)
    with recorder:
        with progress_recorder(recorder) as progress:
            result = run_elsewhere(place, work, progress)
        if result is None:
            return
        outcome = outcome_from(result, strict=asked.strict)
        record(recorder, outcome)
        if output is not None:
            save_profile(outcome.profile, output)
            say(f"Saved {output}.")
        print_measured(outcome.profiles, form, percentiles)
        require_complete(outcome)
    print_run_link(recorder)


def _print_verdict(measurements: "tuple[Measurement, ...]", criteria: Any, gates: tuple[Any, ...], form: str) -> None:
    from inferometer.measure.bench.compare import compare

    old, new = measurements
    comparison = compare(old.profile, new.profile, criteria=criteria, names=(old.name, new.name))
    print_comparisons([comparison], form)
    hold_gates(gates, [comparison])


def _measure(
    commands: tuple[tuple[str, ...], ...],
    names: tuple[str, ...] | None,
    plan: "Plan",
    *,
    guarded: bool,
    strict: bool,
) -> "tuple[Measurement, ...]":
    """With --strict, nothing is run on a machine that is not quiet. Later disturbances are reported with the result."""
    from inferometer.measure.bench.guard import Guard, NoGuard
    from inferometer.measure.bench.run import bench_commands, require_quiet

    guard = Guard() if guarded else NoGuard()
    first = guard.before(retries=plan.retries) if isinstance(guard, Guard) else None
    require_quiet([str(disturbance) for disturbance in first.disturbances] if first else [], strict=strict)
    with progress_line(step_text) as progress:
        return bench_commands(
            commands, plan, names=names, guard=guard, first=first, progress=progress, keep_interrupted=True
        )


def _save(measurements: "tuple[Measurement, ...]", files: tuple[Path | None, ...]) -> None:
    from inferometer.measure.bench.files import save_profile

    for measurement, path in zip(measurements, files, strict=True):
        if path is not None:
            save_profile(measurement.profile, path)
            say(f"Saved {path}.")


def _print_measurement(measurement: "Measurement", form: str, percentiles: tuple[float, ...]) -> None:
    if form == "json":
        print_profiles([measurement.profile], percentiles)
        return
    from inferometer.understand.view.measured import measurement_card

    print_card(measurement_card(measurement, percentiles), form)
