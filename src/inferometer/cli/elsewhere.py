"""`--on PLACE`: giving a measurement to another place, and taking back what came of it as if it were made here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from inferometer.cli.options import say
from inferometer.core import errors
from inferometer.core.errors import DomainError, EngineError, InferometerError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable

    from inferometer.core.job import JobResult
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
    from inferometer.hub.places.running import run_at

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
