"""`profile --on "hub:each?unit=gpu"`: one model on every device that fits, as one comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferometer.cli.options import print_profiles, print_table, say
from inferometer.core.errors import EngineError, InferometerError

if TYPE_CHECKING:
    from inferometer.core.job import JobResult
    from inferometer.hub.places.base import Handle
    from inferometer.hub.places.hub import HubPlace
    from inferometer.hub.places.requests import PackedJob


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
    from inferometer.cli.elsewhere import error_of

    return error_of(result)
