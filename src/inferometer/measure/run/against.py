"""Two models in turns: a measured run of each, whose samples compare pair by pair."""

import uuid
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import replace

from inferometer.core.errors import DomainError
from inferometer.core.profile import Environment, Profile
from inferometer.measure.bench.guard import Guard
from inferometer.measure.bench.loop import Progress
from inferometer.measure.bench.measurement import BENCH
from inferometer.measure.bench.plan import Plan
from inferometer.measure.bench.run import require_quiet
from inferometer.measure.run.model import MeasuredRun, MeasureRequest, measure_model
from inferometer.measure.run.turns import Conductor

Pair = tuple[MeasuredRun, MeasuredRun]
_RUNS = 30
_WARMUP = 5  # enough to find how many calls make a run
_SECONDS_AT_MOST = 300.0  # of waiting for the other and of running


def measure_in_turns(baseline: MeasureRequest, request: MeasureRequest, *, progress: Progress | None = None) -> Pair:
    """Measure two models in turns. Both do as many runs, so that run i of one belongs to run i of the other.

    The guard looks from here, since to either child the other is another program; a disturbed round is not repeated,
    because it is as slow for both.
    """
    if request.cases or baseline.cases:
        raise DomainError(
            "Several lengths cannot be measured in turns.", remedy="Give one --prompt and one --generate."
        )
    guard = Guard() if request.guarded else None
    first = guard.before(retries=1) if guard is not None else None
    require_quiet(tuple(map(str, first.disturbances)) if first else (), strict=request.strict)
    conductor = Conductor(2, seed=request.seed)
    in_turns = conductor.is_reachable()
    places = conductor.addresses() if in_turns else (None, None)
    plan = _in_step(request.plan)
    asked = [
        replace(one, turns=at, plan=plan, guarded=False, strict=False)
        for one, at in zip((baseline, request), places, strict=True)
    ]
    mark = guard.mark() if guard is not None else None
    if in_turns:
        runs = _together(asked, conductor, progress)
    else:  # in a box where no process may reach another: one after the other
        conductor.stop()
        runs = [measure_model(one, progress=progress) for one in asked]
    environment = None
    if guard is not None and first is not None:
        environment = guard.environment(first, guard.since(mark), guard.after(first))
    turns = uuid.uuid4().hex if in_turns else None
    old, new = (_marked(run, environment, turns, strict=request.strict) for run in runs)
    return old, new


def _in_step(plan: Plan | None) -> Plan:
    """The plan of both sides: as many runs as asked for, whatever each takes."""
    runs = _RUNS if plan is None else plan.runs
    warmup = _WARMUP if plan is None or plan.warmup is None else plan.warmup
    # each side waits while the other runs, so that both together may take twice as long
    at_most = _SECONDS_AT_MOST if plan is None else 2 * max(plan.seconds_at_most, plan.seconds)
    return Plan(runs=runs, warmup=warmup, seconds=0.0, seconds_at_most=at_most, retries=0)


def _together(asked: list[MeasureRequest], conductor: Conductor, progress: Progress | None) -> list[MeasuredRun]:
    """Both measurements at once. If one cannot be made, the other is ended too, and the error is raised."""
    with ThreadPoolExecutor(max_workers=len(asked) + 1) as threads:
        try:
            futures: list[Future[MeasuredRun]] = []
            for number, request in enumerate(asked):
                told = progress if number == len(asked) - 1 else None
                future = threads.submit(copy_context().run, measure_model, request, progress=told)
                future.add_done_callback(lambda done: conductor.stop() if _failed(done) else None)
                futures.append(future)
            leading = threads.submit(conductor.conduct)
            interrupted = _wait_for(futures, conductor)
        finally:
            conductor.stop()
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:  # the other one was only stopped for it
        raise next((error for error in errors if not isinstance(error, KeyboardInterrupt)), errors[0])
    leading.result()
    runs = [future.result() for future in futures]
    return [replace(run, complete=False) for run in runs] if interrupted else runs


def _wait_for(futures: list[Future[MeasuredRun]], conductor: Conductor) -> bool:
    """Ctrl-C ends both children, and keeps what they have; True if that was so."""
    try:
        wait(futures)
    except KeyboardInterrupt:
        conductor.stop()
        wait(futures)
        return True
    return False


def _failed(done: Future[MeasuredRun]) -> bool:
    return done.exception() is not None or not done.result().complete


def _marked(run: MeasuredRun, environment: Environment | None, turns: str | None, *, strict: bool) -> MeasuredRun:
    """With the state of the machine, and the mark by which `compare` pairs the samples."""
    raw = run.raw if environment is None else replace(run.raw, environment=environment)
    profiles = tuple(_paired(profile, environment, turns) for profile in run.profiles)
    return replace(run, raw=raw, profiles=profiles, strict=strict)


def _paired(profile: Profile, environment: Environment | None, turns: str | None) -> Profile:
    own = profile.environment or Environment()
    seen = own
    if environment is not None:
        seen = replace(
            environment,
            versions={**environment.versions, **own.versions},
            threads=own.threads,
            host={**environment.host, **own.host},
            energy=own.energy,
        )
    host = seen.host if turns is None else {**seen.host, BENCH: {"turns": turns}}
    return replace(profile, environment=replace(seen, host=host))
