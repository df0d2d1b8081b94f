"""Options of the commands that measure a model, and what they ask for."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, TypedDict

import click

from inferometer.cli.bench import progress_bar as drawn_bar
from inferometer.cli.sizes import parse_sizes
from inferometer.errors import DomainError, EngineError, GateError, UnitError
from inferometer.units import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from inferometer.bench.loop import Step
    from inferometer.bench.plan import Plan
    from inferometer.measure.run import MeasuredRun, MeasureRequest
    from inferometer.store.recording import RunRecorder

_LIST = "N,…"
_TELL_S = 1.0


def measuring_options(function: click.decorators.FC) -> click.decorators.FC:
    """What to run, how, how often: see `MeasuringOptions`."""
    for option in reversed((
        click.option("--runtime", metavar="NAME", help="The engine.  [default: the first that opens the model]"),
        click.option("--batch", default=1, show_default=True, metavar="N"),
        click.option("--prompt", metavar=_LIST, help="Tokens of the prompt; several are measured one after the other."),
        click.option("--generate", metavar=_LIST, help="Tokens to make."),
        click.option("--depth", metavar=_LIST, help="Tokens in the cache before the prompt."),
        click.option("--image", type=int, metavar="N", help="Pixels of an image's side."),
        click.option("--size", "sizes", multiple=True, metavar="NAME=N", help="Any other size a file leaves open."),
        click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="A number or a .npy file."),
        click.option("--weights", metavar="FORMAT", help="Of made-up weights: f32, f16, q8_0, q4_0 …"),
        click.option("--precision", metavar="FORMAT", help="Arithmetic, where the engine lets one choose."),
        click.option("--threads", type=int, metavar="N"),
        click.option("--unit", metavar="UNIT", help="cpu, gpu, npu; gpu:1 for the second."),
        click.option("--provider", "providers", multiple=True, metavar="NAME", help="By the engine's own name."),
        click.option("--optimisation", metavar="LEVEL", help="Of the graph: none, basic, extended, all."),
        click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="Given to the engine as it is."),
        click.option("--runs", type=int, metavar="N", help="Runs at least.  [default: 30, or 5 generations]"),
        click.option("--seconds", metavar="TIME", help="Time at least; both are kept.  [default: 1 s, or 2 s]"),
        click.option("--seconds-at-most", metavar="TIME", help="[default: 30 s, or 60 s]"),
        click.option("--warmup", type=int, metavar="N", help="Runs that are not counted.  [default: until steady]"),
        click.option("--timeout", metavar="TIME", default="10 min", show_default=True, help="End it when silent."),
        click.option("--memory-limit", metavar="SIZE", help="End it when it holds more."),
        click.option("--seed", default=0, show_default=True, metavar="N"),
        click.option("--no-shape", is_flag=True, help="Only the clean run: no layers."),
        click.option("--no-guard", is_flag=True, help="Do not look whether the machine is quiet."),
        click.option("--strict", is_flag=True, help="Exit with 1 where the machine was not quiet."),
    )):  # fmt: skip
        function = option(function)
    return function


class MeasuringOptions(TypedDict):
    """What `measuring_options` puts into a command's parameters, as the user wrote it."""

    runtime: str | None
    batch: int
    prompt: str | None
    generate: str | None
    depth: str | None
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
    runs: int | None
    seconds: str | None
    seconds_at_most: str | None
    warmup: int | None
    timeout: str
    memory_limit: str | None
    seed: int
    no_shape: bool
    no_guard: bool
    strict: bool


def measurement_from(
    model: str, options: MeasuringOptions, *, command: str | None = None, words: str | None = None
) -> MeasureRequest:
    """The measurement that the options ask for."""
    from inferometer.core.workload import Workload
    from inferometer.measure.isolate import ChildLimits
    from inferometer.measure.run import MeasureRequest

    prompts, generates = numbers(options["prompt"], "prompt"), numbers(options["generate"], "generate")
    depths, memory = numbers(options["depth"], "depth"), options["memory_limit"]
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
        cases=_cases(prompts, generates, depths, words),
        words=words,
        weights=options["weights"],
        threads=options["threads"],
        unit=options["unit"],
        providers=options["providers"],
        precision=options["precision"],
        optimisation=options["optimisation"],
        sizes=parse_sizes(options["sizes"]),
        inputs=pairs(options["inputs"], "input"),
        options=pairs(options["options"], "option"),
        limits=ChildLimits(
            silence_s=_quantity("timeout", options["timeout"], "s"),
            memory_bytes=None if memory is None else int(_quantity("memory-limit", memory, "B")),
        ),
        seed=options["seed"],
        shape=not options["no_shape"],
        guarded=not options["no_guard"],
        strict=options["strict"],
        command=command,
    )


def _quantity(option: str, text: str, unit: str) -> float:
    """The error says which option it was."""
    try:
        return parse_quantity(text, unit)
    except UnitError as error:
        raise UnitError(f"--{option} is {text!r}. {error.message}", remedy=error.remedy) from None


def _cases(
    prompts: tuple[int, ...], generates: tuple[int, ...], depths: tuple[int, ...], words: str | None
) -> tuple[Any, ...]:
    """Lists mean every combination. One length each is the workload's own."""
    if max(len(prompts), len(generates), len(depths)) <= 1:
        return ()
    from inferometer.cost.request import GENERATE, PROMPT
    from inferometer.measure.order import TextOrder

    return tuple(
        TextOrder(prompt=prompt, generate=generate, depth=depth, words=words)
        for prompt, generate, depth in product(prompts or (PROMPT,), generates or (GENERATE,), depths or (0,))
    )


def numbers(text: str | None, name: str) -> tuple[int, ...]:
    """Whole numbers from a list like 128,512."""
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise DomainError(f"--{name} is {text!r}.", remedy="Write whole numbers with commas between them: 128,512.")
    return tuple(map(int, parts))


def pairs(texts: tuple[str, ...], name: str) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise DomainError(f"--{name} is {text!r}.", remedy="Write NAME=VALUE.")
        found[key] = value
    return found


def _plan(options: MeasuringOptions) -> Plan | None:
    """None where nothing is asked for: the default depends on the kind of model."""
    runs, warmup, seconds, most = options["runs"], options["warmup"], options["seconds"], options["seconds_at_most"]
    if all(each is None for each in (runs, warmup, seconds, most)):
        return None
    from inferometer.bench.plan import Plan

    most_s = None if most is None else _quantity("seconds-at-most", most, "s")
    least_s = min(1.0, most_s or 1.0) if seconds is None else _quantity("seconds", seconds, "s")
    plan = Plan(seconds=least_s, seconds_at_most=max(30.0, least_s) if most_s is None else most_s, warmup=warmup)
    return plan if runs is None else replace(plan, runs=runs)


def record(recorder: RunRecorder, found: MeasuredRun) -> None:
    """Into the store: the profile, what the engine printed, its memory, and each further length as a run below it."""
    recorder.keep(found.profile)
    held = found.raw.resident
    points = {round(at_s * 1e3): float(size) for at_s, size in zip(held.at_s, held.nbytes, strict=True)}
    recorder.series("memory_bytes", points)
    if found.raw.log:
        recorder.log(found.raw.log)
    if found.raw.environment is not None and found.raw.environment.disturbed:
        recorder.tag(["disturbed"])
    for profile in found.profiles[1:]:
        recorder.keep_below(profile)


def require_whole(found: MeasuredRun) -> None:
    """What ended early, and outputs that are wrong, are told by the exit code too."""
    from inferometer.measure.run import remedy_of

    if found.raw.ended == "stopped":
        raise KeyboardInterrupt
    if not found.complete:
        kept = "What was measured until then is above, and marked."
        raise EngineError(
            f"The measurement ended early ({found.raw.ended}): {found.raw.error}",
            remedy=" ".join(filter(None, (kept, found.raw.remedy or remedy_of(found.raw)))),
        )
    found.require_quiet()
    checked = found.profile.verification
    if checked is None or checked.reference is None or checked.status == "verified":
        return
    if checked.status == "failed":
        raise GateError(f"The outputs are not those of {checked.reference}: {checked.reason}.")
    raise EngineError(f"The outputs could not be checked: {checked.reason}")


@contextmanager
def progress_bar(recorder: RunRecorder | None = None) -> Iterator[Callable[[Step], None] | None]:
    """A bar on a terminal that is gone afterwards, and a number in the store now and then, for who watches there."""
    bar = drawn_bar()
    try:
        yield bar if recorder is None else _told(recorder, bar)
    finally:
        if bar is not None:
            sys.stderr.write("\r\x1b[K")


def _told(recorder: RunRecorder, bar: Callable[[Step], None] | None) -> Callable[[Step], None]:
    """Writing costs a few milliseconds of this process, not of the one that measures."""
    last = 0.0

    def tell(step: Step) -> None:
        nonlocal last
        if bar is not None:
            bar(step)
        now = time.monotonic()
        if now - last >= _TELL_S:
            last = now
            recorder.metric("progress", step.share, step.done)

    return tell
