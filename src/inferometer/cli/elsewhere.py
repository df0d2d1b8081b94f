"""`--on PLACE`: giving a measurement to another place, and taking back what came of it as if it were made here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.options import print_profiles, print_table, say
from inferometer.core import errors
from inferometer.core.errors import DomainError, EngineError, InferometerError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.job import JobResult
    from inferometer.hub.places.base import Handle
    from inferometer.hub.places.hub import HubPlace
    from inferometer.hub.places.requests import PackedJob
    from inferometer.measure.bench.loop import LoopProgress
    from inferometer.measure.run.outcome import MeasuredOutcome

PLACES = "ssh://USER@HOST, hub:NAME, adb:SERIAL, qai-hub:DEVICE, aws:DEVICE, bundle:FILE.zip or local"


def place_option(function: click.decorators.FC) -> click.decorators.FC:
    """`--on PLACE`, for commands to which a device means nothing else."""
    return click.option("--on", "place", metavar="PLACE", help=f"Where to run it: {PLACES}.  [default: here]")(function)


def place_and_device(texts: tuple[str, ...]) -> tuple[str | None, str | None]:
    """The values of a repeated `--on`: where to run, and the catalog device that the machine is; one of each."""
    from inferometer.hub.places.base import is_place

    places: list[str] = []
    devices: list[str] = []
    for text in texts:
        (places if is_place(text) else devices).append(text)
    for several, what in ((places, "places to run at"), (devices, "devices")):
        if len(several) > 1:
            raise DomainError(f"--on names two {what}: {several[0]} and {several[1]}.", remedy="Run it once for each.")
    if devices and "://" in devices[0]:
        raise UnknownNameError("kind of place", devices[0].partition(":")[0], ("ssh",), listing=f"There is {PLACES}.")
    return (places[0] if places else None), (devices[0] if devices else None)


def require_place(place: str) -> None:
    """For commands whose `--on` is a place only: another text is an error that says what there is."""
    from inferometer.hub.places.base import is_place

    if not is_place(place):
        known = ("local", "ssh", "hub", "adb", "qai-hub", "aws", "bundle")
        raise UnknownNameError("place", place, known, listing=f"There is {PLACES}.")


def waits(place: str) -> bool:
    """Whether somebody has to carry the job there: then there is no result, and no run to record."""
    return place.startswith("bundle:")


def keeps_runs(place: str | None) -> bool:
    """Whether the run is stored there: a hub keeps what its devices measure, and one run is enough."""
    return place is not None and place.startswith("hub:")


def for_hub(place: str, project: str, name: str | None, tags: tuple[str, ...]) -> str:
    """The address with what the run is to be called and where it belongs, if the hub stores it."""
    if not keeps_runs(place):
        return place
    from urllib.parse import quote, urlencode

    given = {"project": project if project != "default" else None, "name": name, "tags": ",".join(tags) or None}
    more = urlencode({key: value for key, value in given.items() if value is not None}, quote_via=quote)
    return place + (f"{'&' if '?' in place else '?'}{more}" if more else "")


def run_elsewhere(
    place: str, work: PackedJob, progress: Callable[[LoopProgress], None] | None = None
) -> JobResult | None:
    from inferometer.hub.places.base import resolve
    from inferometer.hub.places.local import run_at

    with resolve(place) as there:
        return run_at(there, work, progress=progress)


def hand_over(place: str, work: PackedJob) -> None:
    """Write a job for a device that cannot be reached from here, and say what to do with it."""
    if run_elsewhere(place, work) is not None:
        raise InferometerError(f"{place} has run the job already.")  # pragma: no cover - a bundle only waits
    say_how_to_carry(place.removeprefix("bundle:").partition("?")[0])


def say_how_to_carry(file: str) -> None:
    name = file.replace("\\", "/").rpartition("/")[2]
    say(f"Wrote {file}. On the device: python {name}")
    say("It writes result.json; here, `inferometer import result.json` makes that a run.")


def outcome_from(result: JobResult, *, strict: bool = False) -> MeasuredOutcome:
    """What a place measured, in the shape that a measurement here has. If it is nothing, its error is raised."""
    from inferometer.measure.run.outcome import MeasuredOutcome

    require_answer(result, there=bool(result.profiles))
    return MeasuredOutcome(
        profiles=result.profiles,
        ended=result.ended,
        error=result.error,
        remedy=result.remedy,
        log=result.log,
        series={name: dict(points) for name, points in result.series.items()},
        strict=strict,
    )


def require_answer(result: JobResult, *, there: bool) -> None:
    """Raise what went wrong there as if it had gone wrong here."""
    if there:
        return
    if result.ended == "stopped":
        raise KeyboardInterrupt
    raise error_of(result)


def error_of(result: JobResult) -> InferometerError:
    kind = getattr(errors, result.error_kind or "", EngineError)
    lines = [line for line in result.log.splitlines() if line.strip()] if result.ended == "lost" else []
    printed = f" Its log ends with: {lines[-1]}" if lines else ""
    message = (result.error or f"The job ended without a result ({result.ended}).") + printed
    if kind is UnknownNameError or not issubclass(kind, InferometerError):
        kind = DomainError if kind is UnknownNameError else EngineError  # its message is made from its parts
    made: InferometerError = kind(message, remedy=result.remedy)
    return made


# `profile --on "hub:each?unit=gpu"`: one model on every device that fits, as one comparison.


def profile_on_each(address: str, work: PackedJob, form: str) -> None:
    """All are submitted at once, so that the devices measure side by side; what fails on one is said, and not fatal."""
    from inferometer.hub.places.base import parse_address, resolve
    from inferometer.hub.places.hub import each_of

    places: list[Any] = [resolve(one) for one in each_of(parse_address(address), work.job.runtime)]
    handles = [place.submit(work.job, work.files) for place in places]
    try:
        results = [_ended(place, handle) for place, handle in zip(places, handles, strict=True)]
    except KeyboardInterrupt:
        for place, handle in zip(places, handles, strict=True):
            place.cancel(handle)
        raise
    _print(places, handles, results, form)


def _ended(place: HubPlace, handle: Handle) -> JobResult:
    for event in place.events(handle):
        if event.kind == "notice" and event.text:
            say(f"{place.title}: {event.text}")
    return place.fetch(handle)


def _print(places: list[HubPlace], handles: list[Handle], results: list[JobResult], form: str) -> None:
    measured = [result.profiles[0] for result in results if result.profiles]
    if form == "json":
        print_profiles(tuple(measured), ())
    else:
        from inferometer.understand.view.runs import each_table

        names = [place.title.removesuffix(" of the hub") for place in places]
        print_table(each_table(names, results), form)
    runs = [run for place, handle in zip(places, handles, strict=True) if (run := place.run_of(handle)) is not None]
    if len(runs) > 1:
        query = "&".join(f"run={run}" for run in runs)
        say(f"Compared: {places[0].url}/compare?{query}")
    failed = [result for result in results if not result.complete]
    if not measured:
        raise _error(failed[0])
    if failed:
        raise EngineError(f"{len(failed)} of {len(results)} devices could not measure it: the table says why.")


def _error(result: JobResult) -> InferometerError:

    return error_of(result)
