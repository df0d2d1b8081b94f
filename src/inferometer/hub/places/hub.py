"""The provider `hub`: a device of a hub's fleet, by its name (`hub:jetson`) or by what it has (`hub:any?unit=npu`).

The hub keeps the job in its queue and the result in its store, so that a lost connection costs nothing but time.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec

from inferometer.core import notices
from inferometer.core.codec import decode, document
from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.core.job import Job, JobEvent, JobResult
from inferometer.core.json_text import parse_json
from inferometer.core.units import format_duration, format_quantity, parse_quantity
from inferometer.hub.places.base import Closing, Handle, LocalFiles, Missing, PlaceAddress, Ready
from inferometer.hub.places.following import Patience
from inferometer.hub.places.hub_client import API, HubAwayError, HubClient, hub_address, upload
from inferometer.hub.places.requests import require_known
from inferometer.version import __version__

# All others are labels.
_OPTIONS = frozenset({"url", "ca", "project", "priority", "name", "tags", "patience", "seconds_at_most"})
T = TypeVar("T")

_PATIENCE = "10 min"
_WAIT_S = 20.0
_SLOW_BYTES = 50_000_000
ANY, EACH = "any", "each"


@frozen
class _Asked:
    """What an address says of the device and of the job."""

    device: str | None
    labels: Mapping[str, str]
    project: str
    priority: int
    name: str | None
    tags: tuple[str, ...]
    seconds_at_most: float | None = None


class HubPlace(Closing):
    resumes = True
    waits = False

    def __init__(self, address: PlaceAddress, *, sleep: Callable[[float], None] = time.sleep) -> None:
        options = address.options
        if address.host is not None or not address.rest:
            raise DomainError(
                f"The address {address.text!r} names no device of a hub.",
                remedy='Write hub:NAME, or "hub:any?unit=npu"; INFEROMETER_HUB says where the hub is.',
            )
        if address.rest == EACH:
            raise DomainError(
                "hub:each means several devices, and here one is needed.",
                remedy="`inferometer profile` takes it; elsewhere name a device, or hub:any.",
            )
        self._address = address
        self._client = HubClient(hub_address(options.get("url"), ca=options.get("ca")))
        patience_s = parse_quantity(options.get("patience", _PATIENCE), "s")
        self._patience = Patience(title="The hub", seconds=patience_s, sleep=sleep)
        self._asked = _asked(address)

    @property
    def title(self) -> str:
        if self._asked.device is not None:
            return f"{self._asked.device} of the hub"
        labels = ", ".join(f"{key}={value}" for key, value in self._asked.labels.items())
        return f"a device of the hub{f' with {labels}' if labels else ''}"

    def submit(self, job: Job, files: LocalFiles) -> Handle:
        require_known(job)  # before its files travel
        self._send_files(job, files)
        asked = self._asked
        if asked.seconds_at_most is not None:  # another limit is another job: this one is not to be picked up for it
            limit = asked.seconds_at_most
            job = replace(job, id=f"{job.id}-{limit:.0f}s", seconds_at_most=limit)
        row = self._client.post(f"{API}/jobs", {
            "job": document(job), "device": asked.device, "labels": asked.labels, "project": asked.project,
            "priority": asked.priority, "name": asked.name, "tags": asked.tags,
        })  # fmt: skip
        handle = Handle(address=self._address.text, job=job.id, folder=row["id"])
        notices.tell(f"Job {row['id']}: {self._client.url}{row['link']}{_said_of(row)}")
        return handle

    def _send_files(self, job: Job, files: LocalFiles) -> None:
        named = {file.sha256: file for file in job.files}
        if not named:
            return
        listed = [{"sha256": file.sha256, "size_bytes": file.size_bytes} for file in named.values()]
        missing = self._client.post(f"{API}/artifacts/missing", listed)["missing"]
        total = sum(named[sha256].size_bytes - have for sha256, have in missing.items())
        if total > _SLOW_BYTES:
            notices.tell(f"Sending {format_quantity(total, 'B')} to the hub …")
        for sha256 in missing:
            self.patiently(partial(self._send, files, named[sha256]))

    def _send(self, files: LocalFiles, file: Any) -> None:
        listed = [{"sha256": file.sha256, "size_bytes": file.size_bytes}]
        missing = self._client.post(f"{API}/artifacts/missing", listed)["missing"]
        if file.sha256 in missing:
            upload(self._client, files[file.sha256], file, missing[file.sha256], lambda _at: None)

    def events(self, handle: Handle, after: int = 0) -> Iterator[JobEvent]:
        expected = False
        path = f"{API}/jobs/{handle.folder}/events"
        while True:
            data = self.patiently(partial(self._events_after, path, after))
            for plain in parse_json(data):
                event = decode(msgspec.json.encode(plain), JobEvent)
                after = event.number
                yield event
                if event.final:
                    return
            if not expected:
                expected = self._tell_expected(handle)

    def _events_after(self, path: str, after: int) -> bytes:
        query = {"after": after, "wait_s": _WAIT_S, "inconclusive": "true"}
        return self._client.call("GET", path, query=query, timeout_s=_WAIT_S + 30)

    def _tell_expected(self, handle: Handle) -> bool:
        """Once the hub knows it: how long the job should take."""
        row = self.patiently(lambda: self._client.get(f"{API}/jobs/{handle.folder}"))
        if row["expected_s"] is None:
            return bool(row["expected_from"])
        notices.tell(f"Expected to take {format_duration(row['expected_s'])} ({row['expected_from']}).")
        return True

    def cancel(self, handle: Handle) -> None:
        self.patiently(lambda: self._client.post(f"{API}/jobs/{handle.folder}/cancel"))

    def fetch(self, handle: Handle) -> JobResult:
        path = f"{API}/jobs/{handle.folder}/result"
        result = decode(self.patiently(lambda: self._client.call("GET", path, query={"fetched": "true"})), JobResult)
        row = self.patiently(lambda: self._client.get(f"{API}/jobs/{handle.folder}"))
        if row["moved"]:
            notices.tell(f"The reference on {row['device']} moved while this was measured: look at it with care.")
        if row["run"]:
            notices.tell(f"Run {row['run']}: {self._client.url}{row['run_link']}")
        return result

    def devices(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._client.get(f"{API}/devices")
        return found

    def run_of(self, handle: Handle) -> str | None:
        run: str | None = self._client.get(f"{API}/jobs/{handle.folder}")["run"]
        return run

    @property
    def url(self) -> str:
        return self._client.url

    def patiently(self, ask: Callable[[], T]) -> T:
        """Ask, and while the hub is away ask again until the patience is at its end."""
        return self._patience.ask(ask, away=HubAwayError, says=lambda away: f"{away.message} Trying again …")


def _asked(address: PlaceAddress) -> _Asked:
    options = address.options
    priority = options.get("priority", "0")
    if not priority.removeprefix("-").isdecimal():
        raise DomainError(f"The priority {priority!r} is not a whole number.")
    return _Asked(
        device=None if address.rest == ANY else address.rest,
        labels={key: value for key, value in options.items() if key not in _OPTIONS},
        project=options.get("project", "default"),
        priority=int(priority),
        name=options.get("name"),
        tags=tuple(filter(None, options.get("tags", "").split(","))),
        seconds_at_most=parse_quantity(options["seconds_at_most"], "s") if "seconds_at_most" in options else None,
    )


def _said_of(row: Mapping[str, Any]) -> str:
    if row["state"] == "queued":
        return ""
    where = f" on {row['device']}" if row["device"] else ""
    return f" ({row['state']}{where}: picked up where it is)"


def each_of(address: PlaceAddress, runtime: str | None = None) -> tuple[str, ...]:
    """`hub:each?unit=gpu` as one address for each device that fits, is there, and has the runtime of the job."""
    single = HubPlace(replace(address, rest=ANY))
    wanted = {**({"runtime": runtime} if runtime else {}), **_asked(address).labels}
    names = []
    for device in single.devices():
        labels = device["labels"]
        fits = all(value.casefold() in map(str.casefold, labels.get(key, ())) for key, value in wanted.items())
        if fits and device["state"] == "ready" and not device["away"]:
            names.append(device["name"])
    if not names:
        asks = " and ".join(f"{key}={value}" for key, value in wanted.items()) or "anything"
        raise DomainError(f"No device of the hub that has {asks} is there and ready.", remedy="See its page /fleet.")
    query = address.text.partition("?")[2]
    return tuple(f"hub:{name}" + (f"?{query}" if query else "") for name in names)


class HubProvider:
    name = "hub"
    title = "A hub's fleet"

    def probe(self) -> Ready | Missing:
        return Ready(version=__version__)

    def open(self, address: PlaceAddress) -> HubPlace:
        return HubPlace(address)


provider: Any = HubProvider()
