"""Whether what an agent brings is an answer to the question of its job.

A device is somebody else's machine: it may be broken, of another version, or lie. What can be known here is compared:
the job, its model, the number of cases, the machine, the engine, the workload; and no time is believed that is shorter
than physics allows. Whoever forges all of that within these bounds is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.core.units import format_duration, format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from inferometer.core.job import Job, JobResult
    from inferometer.core.profile import Profile

# Of its floor that a phase takes at least. Caches and algorithms with fewer operations let honest ones beat it: the
# boldest of 165 real files took 0.48 of it (benchmarks/recorded). A floor that only the document states may be one of
# figures that were measured beside others on a busy machine, and is many times too long.
_LEAST_OF_FLOOR, _OF_A_STATED_ONE = 0.25, 1 / 16
_LEAST_S = 1e-7  # that a call of an engine takes, whatever it computes
_HEADLINES = {"forward": "latency_s", "prefill": "ttft_s", "decode": "tpot_s"}


def mismatch(job: Job, result: JobResult, machine: str | None, model: str | None) -> str | None:
    """Why a result cannot be one of this job; None if it may be.

    `machine` is the id of the one that the device registered with, `model` the name that its file has; None: not known.
    """
    wrong = _other_question(job, result)
    if wrong is not None:
        return wrong
    cases = cases_of(job)
    if len(result.profiles) > len(cases) or (result.complete and len(result.profiles) != len(cases)):
        return f"It has {len(result.profiles)} profiles, and the job asks for {len(cases)}."
    for profile, case in zip(result.profiles, cases, strict=False):
        for what, asked, found in _compared(job, profile, case, machine, model):
            if asked is not None and asked != found:
                return f"Its {what} is {found}, and the job is about {asked}."
    return None


def _other_question(job: Job, result: JobResult) -> str | None:
    theirs = result.job
    if theirs.id != job.id:
        return f"It is the answer to another job, {theirs.id}."
    hashes = [None if each.model is None else (each.model.name, each.model.sha256) for each in (job, theirs)]
    if hashes[0] != hashes[1]:
        return "It is the answer for another model than the job's."
    if (theirs.verb, theirs.runtime, theirs.workload) != (job.verb, job.runtime, job.workload):
        return "It is the answer to another question: its verb, runtime or workload is not the job's."
    made = {"verify": result.verification, "calibrate": result.calibration}
    if result.complete and job.verb in made and made[job.verb] is None:
        return f"It is done, and has nothing of what {job.verb} makes."
    return None


def cases_of(job: Job) -> list[Mapping[str, Any]]:
    """What each profile of the answer is of: lengths of a language model, or nothing more than the job says."""
    if job.verb not in {"profile", "bench"}:
        return []
    return list(job.options.get("cases") or [{}])


def _compared(
    job: Job, profile: Profile, case: Mapping[str, Any], machine: str | None, model: str | None
) -> Iterator[tuple[str, Any, Any]]:
    """What it is, what the job asks for (None: anything), and what the profile says."""
    yield "kind", "measured", profile.kind
    yield "model", model, profile.model.name
    yield "runtime", job.runtime, profile.runtime
    theirs = None if profile.environment is None else profile.environment.machine
    yield "machine", machine, machine if theirs is None else theirs.id  # an older agent does not say
    asked, found = job.workload, profile.workload
    if job.options.get("sizes"):
        return  # they may be given in the model's own names
    yield "batch", asked.batch, found.batch
    yield "image size", asked.image, found.image
    told = job.options.get("words") is not None or case.get("words") is not None  # a text has the tokens that it has
    yield "prompt", None if told else case.get("prompt", asked.prompt), found.prompt
    yield "number of generated tokens", case.get("generate", asked.generate), found.generate


def too_fast(result: JobResult, floors: list[Mapping[str, float]]) -> str | None:
    """Which time of a result is shorter than can be; None if none is. `floors` are ours, by phase, for each case."""
    for number, profile in enumerate(result.profiles):
        ours = floors[number] if number < len(floors) else {}
        for what, time_s, floor_s in _times(profile, ours):
            if time_s < _LEAST_S:
                return f"Its {what} takes {format_quantity(time_s, 's')}: no engine answers a call in that time."
            if time_s < _LEAST_OF_FLOOR * floor_s:
                return (
                    f"Its {what} takes {format_duration(time_s)}, and cannot take less than "
                    f"{format_duration(floor_s)} on this device."
                )
    return None


def _times(profile: Profile, ours: Mapping[str, float]) -> Iterator[tuple[str, float, float]]:
    """Each time that repeats, and its floor: ours, or a share of what the document itself says."""
    for phase in profile.phases:
        if phase.name not in _HEADLINES:
            continue  # loading, reading a text, or a phase that an engine made up, has no floor
        floor_s = ours.get(phase.name) or _OF_A_STATED_ONE * (phase.floor_s or 0.0)
        yield f"phase {phase.name}", phase.time_s, floor_s
        for sample_s in phase.samples_s or ():
            yield f"shortest {phase.name}", sample_s, floor_s
        if (headline := getattr(profile.summary, _HEADLINES[phase.name])) is not None:
            yield f"headline of {phase.name}", headline, floor_s
