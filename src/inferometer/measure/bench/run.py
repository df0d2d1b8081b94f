"""Benchmark a function, two functions in turns, or command lines: the subjects, the guard and the loop together."""

import shlex
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import GateError
from inferometer.core.profile import Environment
from inferometer.known.machine.detect import LocalMachine, Machine
from inferometer.known.machine.detect.identity import this_machine
from inferometer.measure.bench.guard import FirstLook, Guard, NoGuard
from inferometer.measure.bench.loop import LoopSamples, Progress, collect
from inferometer.measure.bench.measurement import Measurement, measured
from inferometer.measure.bench.plan import Plan
from inferometer.measure.bench.subject import CommandSubject, FunctionSubject, Stopwatch, Subject, calls_for, name_of

if TYPE_CHECKING:
    from inferometer.measure.spans.energy import EnergyMeter


def bench(  # noqa: PLR0913 - what may be chosen
    function: Callable[[], Any],
    plan: Plan | None = None,
    *,
    name: str | None = None,
    phase: str = "run",
    guard: Guard | NoGuard | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> Measurement:
    """Measure a function that takes no arguments and returns when its work is done.

    With a time or memory limit in the plan it runs in a child process, which is killed when it breaks one. `guard` is
    by default this machine's; `NoGuard()` does not look. `strict` makes a disturbed measurement a `GateError`.
    """
    plan = plan or Plan()
    subject = function_subject(function, plan, name=name)
    return measure([subject], plan, guard=guard, strict=strict, phase=phase, progress=progress)[0]


def bench_against(  # noqa: PLR0913 - as above
    old: Callable[[], Any],
    new: Callable[[], Any],
    plan: Plan | None = None,
    *,
    names: tuple[str, str] | None = None,
    guard: Guard | NoGuard | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> tuple[Measurement, Measurement]:
    """Measure two functions in turns, so that whatever slows the machine slows both."""
    plan = plan or Plan()
    old_name, new_name = names or (name_of(old), name_of(new))
    subjects = [function_subject(old, plan, name=old_name), function_subject(new, plan, name=new_name)]
    first, second = measure(subjects, plan, guard=guard, strict=strict, progress=progress)
    return first, second


def bench_commands(  # noqa: PLR0913 - as above
    commands: Sequence[Sequence[str]],
    plan: Plan | None = None,
    *,
    names: Sequence[str] | None = None,
    guard: Guard | NoGuard | None = None,
    first: FirstLook | None = None,
    strict: bool = False,
    progress: Progress | None = None,
    keep_interrupted: bool = False,
) -> tuple[Measurement, ...]:
    """Measure command lines, several of them in turns. With `keep_interrupted`, Ctrl-C gives the runs so far."""
    plan = plan or Plan()
    lines = [shlex.join(command) for command in commands]
    subjects = [
        CommandSubject(argv=tuple(command), name=name, timeout_s=plan.timeout_s, memory_bytes=plan.memory_bytes)
        for command, name in zip(commands, names or lines, strict=True)
    ]
    return measure(
        subjects, plan, guard=guard, first=first, strict=strict, progress=progress, commands=lines,
        keep_interrupted=keep_interrupted,
    )  # fmt: skip


def function_subject(function: Callable[[], Any], plan: Plan, *, name: str | None = None) -> Subject:
    """The function in this process, or in a child where the plan limits its runs."""
    name = name or name_of(function)
    calls = calls_for(plan.calls, plan.warmup)
    if plan.timeout_s is None and plan.memory_bytes is None:
        return FunctionSubject(name=name, stopwatch=Stopwatch(function, calls))
    from inferometer.measure.bench.child import ChildSubject  # noqa: PLC0415 - multiprocessing, only for limits

    return ChildSubject(
        function, name=name, calls=calls, timeout_s=plan.timeout_s, memory_bytes=plan.memory_bytes
    )  # fmt: skip


def measure(  # noqa: PLR0913 - as above, and the seams
    subjects: Sequence[Subject],
    plan: Plan,
    *,
    guard: Guard | NoGuard | None = None,
    first: FirstLook | None = None,
    strict: bool = False,
    phase: str = "run",
    commands: Sequence[str] | None = None,
    progress: Progress | None = None,
    meter: "EnergyMeter | None" = None,
    keep_interrupted: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], datetime] = lambda: datetime.now(tz=UTC),
) -> tuple[Measurement, ...]:
    """Look, warm up, run, look again. `first` is a look already taken, for many measurements in a row."""
    from inferometer.measure.bench.energy import MeteredSubject  # noqa: PLC0415 - brings numpy, when something is to be run
    from inferometer.measure.spans.energy import energy_meter  # noqa: PLC0415 - as above

    watch = Guard() if guard is None else guard
    if isinstance(watch, Guard):
        first = first or watch.before(retries=plan.retries)
        require_quiet(tuple(map(str, first.disturbances)), strict=strict)
    with ExitStack() as stack:
        meter = (energy_meter(_machine(watch)) if meter is None else meter).at_rest()
        stack.callback(meter.close)
        measuring = [MeteredSubject(subject=subject, meter=meter) for subject in subjects]
        for subject in measuring:
            stack.callback(subject.close)
        collected = collect(
            measuring, plan, watch=watch, clock=clock, sleep=sleep, progress=progress, keep_interrupted=keep_interrupted
        )
        energies = [subject.energy(phase) for subject in measuring]
    environment = _environment(watch, first, collected)
    require_quiet(environment.reasons, strict=strict)
    turns = uuid.uuid4().hex if len(subjects) > 1 and plan.interleave else None
    created = now().isoformat(timespec="seconds")
    lines: Sequence[str | None] = commands or [None] * len(collected)
    return tuple(
        measured(
            one,
            plan,
            replace(environment, energy=energy.facts),
            created=created,
            phase=phase,
            command=line,
            turns=turns,
            energy_j=energy.energy_j,
        )
        for one, line, energy in zip(collected, lines, energies, strict=True)
    )


def _environment(watch: Guard | NoGuard, first: FirstLook | None, collected: Sequence[LoopSamples]) -> Environment:
    if not isinstance(watch, Guard) or first is None:
        return Environment(machine=this_machine())
    during = tuple(dict.fromkeys(disturbance for one in collected for disturbance in one.disturbances))
    return watch.environment(first, during, watch.after(first))


def _machine(watch: Guard | NoGuard) -> Machine:
    return watch.machine if isinstance(watch, Guard) else LocalMachine()


def require_quiet(reasons: Sequence[str], *, strict: bool = True) -> None:
    if strict and reasons:
        raise GateError(f"The measurement was disturbed {reasons[0]}")
