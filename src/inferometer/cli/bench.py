"""`inferometer bench`."""

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from inferometer.cli.compare import criteria_from, hold_gates, print_comparisons, verdict_options
from inferometer.cli.options import format_option, print_card, print_document, say
from inferometer.cli.storing import StoringOptions, recording_from, storing_options, tell
from inferometer.units import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.bench.loop import Step
    from inferometer.bench.measurement import Measurement
    from inferometer.bench.plan import Plan

_BAR = 30
_REDRAW_S = 0.1


def plan_options(function: click.decorators.FC) -> click.decorators.FC:
    """How often, how long, within what limits: the options that `plan_from` reads."""
    for option in reversed((
        click.option("--runs", default=30, show_default=True, help="Runs at least."),
        click.option("--seconds", default="1 s", show_default=True, help="Time at least; both are kept."),
        click.option("--runs-at-most", default=10_000, show_default=True, help="Runs at most."),
        click.option("--seconds-at-most", default="60 s", show_default=True, help="Time at most."),
        click.option("--warmup", type=int, help="Runs that are not counted; without it, until the times are steady."),
        click.option("--timeout", metavar="TIME", help="Kill a run that takes longer."),
        click.option("--memory-limit", metavar="SIZE", help="Kill a run that needs more."),
        click.option("--cooldown", default="0 s", show_default=True, help="Pause before each run."),
        click.option("--seed", default=0, show_default=True, help="Of the order of runs and of the resampling."),
    )):  # fmt: skip
        function = option(function)
    return function


class PlanOptions(TypedDict):
    """What `plan_options` puts into a command's parameters, as the user wrote it."""

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
    from inferometer.bench.plan import Plan

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
@click.option("--against", metavar="CMD", help="Another command, measured in turns with it: the baseline.")
@plan_options
@click.option("--strict", is_flag=True, help="Exit with 1 where the machine was not quiet.")
@click.option("--no-guard", is_flag=True, help="Do not look whether the machine is quiet.")
@storing_options
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Save the result, as JSON.")
@click.option("--save-against", type=click.Path(path_type=Path), help="Save the baseline's result too.")
@verdict_options
@format_option
def command(
    words: tuple[str, ...],
    against: str | None,
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
    """Measure a command line, alone or in turns with another.

    \b
    inferometer bench -- ./model --prompt hello
    inferometer bench --runs 100 --timeout 10s -o new.json -- ./model
    inferometer bench --against "./old --fast" --fail-if "latency>5%" -- ./new --fast

    Every run is a new process, started without a shell; its output goes nowhere. Warm-up runs are not counted, failed
    runs are kept as errors, and a run over its limit is killed with all its children. Stretches of runs in which other
    programs disturbed are repeated; what stays disturbed is marked so, with the reason.

    With --against both commands run in turns, in an order drawn anew each round, and the answer is a verdict: faster,
    slower, same or undecided (see `inferometer compare --help`).
    """
    from inferometer.bench.commands import split_command
    from inferometer.bench.files import require_room
    from inferometer.bench.gate import parse_gate
    from inferometer.bench.run import require_quiet

    if not words:
        raise click.UsageError("A command to measure is needed, after --.", ctx=click.get_current_context())
    if against is None and (fail_if or save_against):
        raise click.UsageError("--fail-if and --save-against need --against.", ctx=click.get_current_context())
    gates = tuple(parse_gate(text) for text in fail_if)
    criteria = criteria_from(threshold, alpha)
    name = options["name"]
    recorder = recording_from(options, kind="bench", command=shlex.join(words))
    plan = plan_from(options)
    files = (output,) if against is None else (save_against, output)
    for path in filter(None, files):
        require_room(path)
    commands = (words,) if against is None else (split_command(against), words)
    names = None if name is None else (name,) if against is None else (f"{name} (baseline)", name)
    with recorder:
        found = _measured(commands, names, plan, guarded=not no_guard, strict=strict)
        recorder.keep(found[-1].profile)
        for baseline in found[:-1]:
            recorder.keep_below(baseline.profile)
        _save(found, files)
        for reason in found[0].environment.reasons:
            say(f"inferometer: disturbed {reason}")
        if against is None:
            _print(found[0], form)
        else:
            _judge(found, criteria, gates, form)
        require_quiet(found[0].environment.reasons, strict=strict)
    tell(recorder)


def _judge(found: "tuple[Measurement, ...]", criteria: Any, gates: tuple[Any, ...], form: str) -> None:
    from inferometer.bench.compare import compare

    old, new = found
    comparison = compare(old.profile, new.profile, criteria=criteria, names=(old.name, new.name))
    print_comparisons([comparison], form)
    hold_gates(gates, [comparison])


def _measured(
    commands: tuple[tuple[str, ...], ...],
    names: tuple[str, ...] | None,
    plan: "Plan",
    *,
    guarded: bool,
    strict: bool,
) -> "tuple[Measurement, ...]":
    """Look first: where --strict forbids it, nothing is run. What disturbs later is told after the result is saved."""
    from inferometer.bench.guard import Guard, NoGuard
    from inferometer.bench.run import bench_commands, require_quiet

    bar = progress_bar()
    guard = Guard() if guarded else NoGuard()
    first = guard.before(retries=plan.retries) if isinstance(guard, Guard) else None
    require_quiet([str(each) for each in first.disturbances] if first else [], strict=strict)
    try:
        return bench_commands(commands, plan, names=names, guard=guard, first=first, progress=bar)
    finally:
        if bar is not None:
            sys.stderr.write("\r\x1b[K")


def _save(found: "tuple[Measurement, ...]", files: tuple[Path | None, ...]) -> None:
    from inferometer.bench.files import save_profile

    for measurement, path in zip(found, files, strict=True):
        if path is not None:
            save_profile(measurement.profile, path)
            say(f"Saved {path}.")


def _print(measurement: "Measurement", form: str) -> None:
    if form == "json":
        from inferometer.core.codec import document

        print_document(document(measurement.profile))
        return
    from inferometer.report.measured import measurement_card

    print_card(measurement_card(measurement), form)


def progress_bar() -> "Callable[[Step], None] | None":
    """A line on stderr that is drawn over again; None where nobody would see it."""
    if not sys.stderr.isatty():
        return None
    drawn = 0.0

    def draw(step: "Step") -> None:
        nonlocal drawn
        now = time.monotonic()
        if now - drawn < _REDRAW_S:
            return
        drawn = now
        full = round(_BAR * step.share)
        sys.stderr.write(f"\r\x1b[K{step.stage:<8} {'█' * full}{'·' * (_BAR - full)} {step.done} {step.share:.0%}")
        sys.stderr.flush()

    return draw
