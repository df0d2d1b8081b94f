"""The options of commands that measure a model, and the measurement they ask for."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, TypedDict

import click

from inferometer.cli.options import BATCH, IMAGE, MEMORY, RUNS, SEED, THREADS, TIME, WARMUP, together
from inferometer.cli.progress import progress_line, step_text
from inferometer.core.errors import DomainError, EngineError, GateError
from inferometer.core.units import parse_quantity
from inferometer.predict.flags import parse_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inferometer.measure.bench.loop import LoopProgress
    from inferometer.measure.bench.plan import Plan
    from inferometer.measure.run.model import MeasureRequest
    from inferometer.measure.run.outcome import MeasuredOutcome
    from inferometer.store.recording import RunRecorder

_LIST = "N,…"
_SHORTEST_S, _LONGEST_S = 10.0, 86_400.0  # of a sustained run
_MANY_RUNS = 100_000_000
_RECORD_S = 1.0  # writing to the store takes a few milliseconds of this process, not of the one that measures


trust_option = click.option(
    "--trust", multiple=True, metavar="FILE", help="Open this file though it could run code of its own; repeatable."
)


# What to run, and how.
subject_options = together(
    click.option("--runtime", metavar="NAME", help="The engine.  [default: the first that can open the model]"),
    click.option("--batch", type=BATCH, default=1, help="Inputs or sequences at once."),
    click.option("--prompt", metavar=_LIST, help="Prompt length in tokens; a list measures each length."),
    click.option("--generate", metavar=_LIST, help="Tokens to generate."),
    click.option("--image", type=IMAGE, help="Side of the input image, in pixels."),
    click.option("--size", "sizes", multiple=True, metavar="NAME=N", help="Any other size the model leaves open."),
    click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="A number or a .npy file."),
    click.option("--weights", metavar="FORMAT", help="Format of generated weights: f32, f16, q8_0, q4_0 …"),
    click.option(
        "--activations",
        "precision",
        metavar="FORMAT",
        help="Format to compute in, if the engine has a choice.",
    ),
    click.option("--threads", type=THREADS, help="Engine threads.  [default: one per physical core]"),
    click.option("--unit", metavar="UNIT", help="Where to run: cpu, gpu, npu; gpu:1 is the second GPU."),
    click.option("--provider", "providers", multiple=True, metavar="NAME", help="An execution provider."),
    click.option("--optimisation", metavar="LEVEL", help="Graph optimisation: none, basic, extended, all."),
    click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="Passed to the engine unchanged."),
    click.option("--timeout", type=TIME, default="10 min", help="Stop an engine that is silent for longer."),
    click.option("--memory-limit", type=MEMORY, help="Stop an engine that uses more memory."),
    click.option("--ignore-memory", is_flag=True, help="Run a model though it seems not to fit into memory."),
    click.option("--seed", type=SEED, default=0, help="Seed of random inputs and weights."),
    trust_option,
)


# What to run, how, and how often.
measuring_options = together(
    subject_options,
    click.option("--depth", metavar=_LIST, help="Tokens already in the cache before the prompt."),
    click.option("--runs", type=RUNS, help="Minimum number of runs.  [default: 30; generation 5]"),
    click.option("--seconds", type=TIME, help="Minimum time for all runs.  [default: 1 s; generation 2 s]"),
    click.option("--seconds-at-most", type=TIME, help="Maximum time.  [default: 30 s; generation 60 s]"),
    click.option("--sustained", type=TIME, help="Whether the speed lasts for so long, such as 30min."),
    click.option("--cool-down", type=TIME, help="First wait, at most so long, until the machine is cool."),
    click.option("--warmup", type=WARMUP, help="Warm-up runs.  [default: until times are steady]"),
    click.option(
        "--loop",
        type=click.Choice(["product", "bare"]),
        default="product",
        show_default=True,
        help="What is around the steps: a production loop, or nothing.",
    ),
    click.option("--no-shape", is_flag=True, help="Only measure the total: no layers."),
    click.option("--no-guard", is_flag=True, help="Do not check that the machine is quiet."),
    click.option("--strict", is_flag=True, help="Exit with 1 if the machine was not quiet."),
)


class SubjectOptions(TypedDict):
    """The values of `subject_options`, as the user wrote them."""

    runtime: str | None
    batch: int
    prompt: str | None
    generate: str | None
    image: int | None
    sizes: tuple[str, ...]
    inputs: tuple[str, ...]
    weights: str | None
    precision: str | None
    threads: int | None
    unit: str | None
    providers: tuple[str, ...]
    optimisation: str | None
    options: tuple[str, ...]
    timeout: str
    memory_limit: str | None
    ignore_memory: bool
    seed: int
    trust: tuple[str, ...]


class _EffortOptions(TypedDict):
    depth: str | None
    runs: int | None
    seconds: str | None
    seconds_at_most: str | None
    sustained: str | None
    cool_down: str | None
    warmup: int | None
    loop: str
    no_shape: bool
    no_guard: bool
    strict: bool


class MeasuringOptions(SubjectOptions, _EffortOptions):
    """The values of `measuring_options`, as the user wrote them."""


ONCE: _EffortOptions = {
    "depth": None, "runs": None, "seconds": None, "seconds_at_most": None, "sustained": None, "cool_down": None,
    "warmup": None, "loop": "product", "no_shape": True, "no_guard": True, "strict": False,
}  # fmt: skip


def measurement_from(
    model: str, options: MeasuringOptions, *, command: str | None = None, words: str | None = None
) -> MeasureRequest:
    """The measurement that the options ask for."""
    from inferometer.core.workload import Workload
    from inferometer.measure.run.isolate import ChildLimits
    from inferometer.measure.run.model import MeasureRequest

    prompts, generates = _parse_numbers(options["prompt"], "prompt"), _parse_numbers(options["generate"], "generate")
    depths, memory = _parse_numbers(options["depth"], "depth"), options["memory_limit"]
    return MeasureRequest(
        model=model,
        runtime=options["runtime"],
        workload=Workload(
            batch=options["batch"],
            prompt=prompts[0] if prompts else None,
            generate=generates[0] if generates else None,
            context=(depths[0] or None) if depths else None,
            image=options["image"],
        ),
        plan=_plan(options),
        sustained_s=_sustained(options),
        cool_down_s=None if options["cool_down"] is None else parse_quantity(options["cool_down"], "s"),
        cases=_cases(prompts, generates, depths, words),
        words=words,
        weights=options["weights"],
        threads=options["threads"],
        unit=options["unit"],
        providers=options["providers"],
        precision=options["precision"],
        optimisation=options["optimisation"],
        sizes=parse_sizes(options["sizes"]),
        inputs=_parse_pairs(options["inputs"], "input"),
        options=_parse_pairs(options["options"], "option"),
        limits=ChildLimits(
            silence_s=parse_quantity(options["timeout"], "s"),
            memory_bytes=None if memory is None else int(parse_quantity(memory, "B")),
        ),
        seed=options["seed"],
        ignore_memory=options["ignore_memory"],
        trust=options["trust"],
        loop=options["loop"],
        shape=not options["no_shape"],
        guarded=not options["no_guard"],
        strict=options["strict"],
        command=command,
    )


def _cases(
    prompts: tuple[int, ...], generates: tuple[int, ...], depths: tuple[int, ...], words: str | None
) -> tuple[Any, ...]:
    """Every combination of the lists; none if each has at most one length, which is then the workload's."""
    if max(len(prompts), len(generates), len(depths)) <= 1:
        return ()
    from inferometer.core.sizes import PROMPT
    from inferometer.measure.run.order import TextOrder
    from inferometer.predict.request import GENERATE

    return tuple(
        TextOrder(prompt=prompt, generate=generate, depth=depth, words=words)
        for prompt, generate, depth in product(prompts or (PROMPT,), generates or (GENERATE,), depths or (0,))
    )


def _parse_numbers(text: str | None, name: str) -> tuple[int, ...]:
    """Parse a list such as 128,512."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise DomainError(f"--{name} is {text!r}.", remedy="Write whole numbers separated by commas: 128,512.")
    return tuple(map(int, parts))


def _parse_pairs(texts: tuple[str, ...], name: str) -> dict[str, str]:
    values = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise DomainError(f"--{name} is {text!r}.", remedy="Write NAME=VALUE.")
        values[key] = value
    return values


def _plan(options: MeasuringOptions) -> Plan | None:
    """None if no option is given: the default depends on the kind of model."""
    runs, warmup, seconds, most = options["runs"], options["warmup"], options["seconds"], options["seconds_at_most"]
    span_s = _sustained(options)
    if span_s is None and all(value is None for value in (runs, warmup, seconds, most)):
        return None
    from inferometer.measure.bench.plan import Plan

    if span_s is not None:
        # Nothing is repeated and nothing warmed up: what the machine becomes is what is looked for.
        return Plan(seconds=span_s, seconds_at_most=2 * span_s, runs_at_most=_MANY_RUNS, retries=0, warmup=0)
    most_s = None if most is None else parse_quantity(most, "s")
    least_s = min(1.0, most_s or 1.0) if seconds is None else parse_quantity(seconds, "s")
    plan = Plan(seconds=least_s, seconds_at_most=max(30.0, least_s) if most_s is None else most_s, warmup=warmup)
    return plan if runs is None else replace(plan, runs=runs)


def _sustained(options: MeasuringOptions) -> float | None:
    """How long the speed is watched. How often and how long is then no other option's matter."""
    if options["sustained"] is None:
        return None
    other = next((name for name in ("runs", "seconds", "seconds_at_most", "warmup") if options[name] is not None), None)
    if other is not None:
        raise DomainError(
            f"--sustained says how long it runs, and --{other.replace('_', '-')} does too.", remedy="Leave one out."
        )
    span_s = parse_quantity(options["sustained"], "s")
    if not _SHORTEST_S <= span_s <= _LONGEST_S:
        raise DomainError(
            f"Speed cannot be watched for {options['sustained']}.", remedy="Give a time from 10 s to a day."
        )
    return span_s


def record(recorder: RunRecorder, outcome: MeasuredOutcome) -> None:
    """Store the profile, the engine's log and memory, and each further length as a run below it."""
    recorder.keep(outcome.profile)
    for name, points in outcome.series.items():
        recorder.series(name, points)
    if outcome.log:
        recorder.log(outcome.log)
    if outcome.disturbances:
        recorder.tag(["disturbed"])
    for profile in outcome.profiles[1:]:
        recorder.keep_below(profile)


def require_complete(outcome: MeasuredOutcome) -> None:
    """Raise if the measurement ended early or the outputs are wrong, so that the exit code says so too."""
    if outcome.ended == "stopped":
        raise KeyboardInterrupt
    if outcome.ended != "done":
        kept = "What was measured until then is printed above and marked incomplete."
        raise EngineError(
            f"The measurement ended early ({outcome.ended}): {outcome.error}",
            remedy=" ".join(filter(None, (kept, outcome.remedy))),
        )
    if outcome.strict and outcome.disturbances:
        raise GateError(f"The measurement was disturbed {outcome.disturbances[0]}")
    verification = outcome.profile.verification
    if verification is None or verification.reference is None or verification.status == "verified":
        return
    if verification.status == "failed":
        raise GateError(f"The outputs differ from those of {verification.reference}: {verification.reason}.")
    raise EngineError(f"The outputs could not be checked: {verification.reason}")


@contextmanager
def progress_recorder(recorder: RunRecorder | None = None) -> Iterator[Callable[[LoopProgress], None]]:
    """Show progress on stderr and, with a recorder, write it to the store for those who watch in the hub."""
    with progress_line(step_text) as draw:
        if recorder is None:
            yield draw
            return
        recorded = 0.0

        def draw_and_record(step: LoopProgress) -> None:
            nonlocal recorded
            draw(step)
            now = time.monotonic()
            if now - recorded >= _RECORD_S:
                recorded = now
                recorder.metric("progress", step.share, step.done)

        yield draw_and_record
